"""The published networks against figures of their authors, and against their known faults."""

import pytest
import torch
from torch import Tensor, nn

from app.maths.orthogonal import cayley_rotate
from app.networks.matching import trained_parameters
from app.networks.published import (
    PublishedEDelta,
    PublishedEDeltaProbe,
    PublishedEDeltaStream,
    PublishedEDeltaToken,
    PublishedGPT,
    PublishedJPmHC,
    PublishedMHC,
)
from app.networks.published.edelta import rotate
from datamodules import Stability


def echo(samples: int = 64) -> tuple[Tensor, Tensor]:
    return Stability().draw(samples, torch.Generator().manual_seed(42))


def first_gradient(network: type[nn.Module]) -> tuple[nn.Module, float]:
    torch.manual_seed(42)
    made = network((127, 64), 64)
    x, y = echo()
    (made(x) - y).square().mean().backward()
    norms = [p.grad.norm() for p in made.parameters() if p.grad is not None]
    return made, float(torch.stack(norms).norm())


def test_sizes_are_the_published_ones() -> None:
    edelta, gpt, jpmhc = (
        trained_parameters(network((255, 16), 16))
        for network in (PublishedEDelta, PublishedGPT, PublishedJPmHC)
    )
    assert edelta == pytest.approx(1.8e6, rel=0.02)
    assert gpt == pytest.approx(edelta, rel=0.01)
    assert jpmhc / edelta == pytest.approx(1.038, abs=5e-4)


def test_first_gradient_of_gpt_is_the_published_one() -> None:
    assert first_gradient(PublishedGPT)[1] == pytest.approx(0.71, rel=0.1)


def test_first_gradient_and_energy_of_edelta_are_of_the_published_size() -> None:
    made, norm = first_gradient(PublishedEDelta)
    assert 265 / 2 < norm < 265 * 2  # it varies as much from seed to seed
    assert isinstance(made, PublishedEDelta)
    state = made.trunk.input(echo()[0]) + made.trunk.positions[:, :127]
    start, carried, energies = state, state, []
    with torch.no_grad():
        for block in made.trunk.blocks:
            for step in (block.attention, block.feed_forward):
                carried = shortcut(step, state, carried)  # type: ignore[arg-type]
                state = step(state)[0]  # type: ignore[operator]
            energies.append(float(carried.square().sum() / start.square().sum()))
    for mine, theirs in zip(energies, (0.53, 0.27, 0.11, 0.07, 0.027), strict=False):
        assert theirs / 2 < mine < theirs * 2
    assert energies[5] < 0.05  # published: .007; twelve independent reflections leave (3/4)¹² = .03


def shortcut(step: nn.Module, state: Tensor, carried: Tensor) -> Tensor:
    """Applies the operator that a step takes from ``state`` to ``carried``."""
    mean = state.mean(1, keepdim=True)
    streams = carried.unflatten(-1, (4, -1))
    gamma = torch.sigmoid(step.gamma(mean)).unsqueeze(-1)  # type: ignore[operator]
    beta = nn.functional.softplus(step.beta(mean))  # type: ignore[operator]
    k = nn.functional.normalize(step.k(mean), dim=-1)  # type: ignore[operator]
    h = torch.eye(4) - 2 * k.unsqueeze(-1) * k.unsqueeze(-2)
    q = rotate(torch.eye(4).expand(*k.shape[:-1], 4, 4), step.u(mean), step.v(mean), beta)  # type: ignore[operator]
    return ((gamma * q + (1 - gamma) * h) @ streams).flatten(-2)


def test_the_solve_agrees_with_the_exact_rotation_where_it_can() -> None:
    g = torch.Generator().manual_seed(0)
    x, u, v, beta = (torch.randn(s, generator=g) for s in ((3, 5, 4, 6), (3, 5, 4), (3, 5, 4), (3, 5)))
    torch.testing.assert_close(
        rotate(x, u, v, beta.unsqueeze(-1)), cayley_rotate(x, u, v, beta), atol=1e-5, rtol=1e-5
    )


def test_mhc_starts_by_merging_its_streams() -> None:
    torch.manual_seed(0)
    step = PublishedMHC((8, 4), 4, depth=1, width=16).trunk.blocks[0].attention
    nn.init.zeros_(step.branch.output.weight)  # type: ignore[union-attr, arg-type]
    nn.init.zeros_(step.alpha)  # type: ignore[arg-type]
    matrix = step(torch.eye(4).repeat_interleave(4, 1).expand(1, 4, 16).contiguous())[0]  # type: ignore[operator]
    # Row t holds stream values that are the t-th unit vector: column sums of the mixing.
    mixing = matrix[0].unflatten(-1, (4, 4))[..., 0].T
    assert float(torch.linalg.eigvals(mixing.detach()).real.sort().values[-2]) == pytest.approx(
        0.615, abs=2e-3
    )


def test_gates_start_where_they_were() -> None:
    x = echo(2)[0]
    for network in (PublishedEDelta, PublishedEDeltaStream, PublishedEDeltaToken):
        torch.manual_seed(0)
        _, penalty = network((127, 64), 64, depth=2).with_penalty(x)
        assert float(penalty.detach()) == pytest.approx(4 * 0.1, abs=1e-6)  # γ = ½ in all four operators
    assert float(PublishedEDeltaProbe((64,), 64).gate(x[0]).mean().detach()) == pytest.approx(
        0.1824, abs=1e-4
    )


def test_the_stream_form_starts_where_its_planes_have_no_gradient() -> None:
    torch.manual_seed(0)
    made = PublishedEDeltaStream((127, 64), 64, depth=1)
    x, y = echo(4)
    (made(x) - y).square().mean().backward()
    weight = made.trunk.blocks[0].attention.fused[-1].weight.grad  # type: ignore[union-attr, index]
    assert float(weight[:12].abs().max()) == 0


def test_the_token_form_starts_with_an_exploding_gradient() -> None:
    # k = normalise(0 + 1e-8): the derivative of the direction is 1/‖1e-8·1‖.
    torch.manual_seed(42)
    made = PublishedEDeltaToken((127, 64), 64, depth=2)
    x, y = echo(4)
    (made(x) - y).square().mean().backward()
    assert max(float(p.grad.norm()) for p in made.parameters() if p.grad is not None) > 1e3
