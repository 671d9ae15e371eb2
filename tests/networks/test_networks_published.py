"""The published networks against figures of their authors, and against their known faults."""

import pytest
import torch
from torch import Tensor, nn

from app.maths.orthogonal import cayley_rotate
from app.networks.matching import trained_parameters
from app.networks.published import (
    PublishedDDL,
    PublishedEDelta,
    PublishedEDeltaProbe,
    PublishedEDeltaStream,
    PublishedEDeltaToken,
    PublishedGPT,
    PublishedJPmHC,
    PublishedJPmHCProbe,
    PublishedMHC,
)
from app.networks.published.common import Trunk
from app.networks.published.edelta import rotate, spread
from datamodules import Stability


def echo(samples: int = 64) -> tuple[Tensor, Tensor]:
    return Stability().draw(samples, torch.Generator().manual_seed(42))


def first_gradient(network: type[nn.Module], seed: int = 42) -> tuple[nn.Module, float]:
    torch.manual_seed(seed)
    made = network((127, 64), 64)
    x, y = echo()
    (made(x) - y).square().mean().backward()
    norms = [p.grad.norm() for p in made.parameters() if p.grad is not None]
    return made, float(torch.stack(norms).norm())


@pytest.mark.parametrize(
    ("network", "millions"),
    [
        (PublishedEDelta, 1.788),
        (PublishedGPT, 1.780),
        (PublishedDDL, 1.784),
        (PublishedMHC, 1.838),
        (PublishedJPmHC, 1.771),
    ],
)
def test_sizes_are_the_published_ones(network: type[nn.Module], millions: float) -> None:
    # Their count: blocks, the last LayerNorm and an output map without bias to 64 tokens. A bias in every
    # LayerNorm, which they do not have, would add 0.14 % to GPT.
    trunk = network((127, 64), 64).trunk
    assert isinstance(trunk, Trunk)
    counted = trained_parameters(trunk.blocks) + trained_parameters(trunk.norm) + trunk.output.weight.numel()
    assert counted == pytest.approx(1e6 * millions, rel=5e-4)


def test_jpmhc_is_larger_on_the_gyroscope_as_published() -> None:
    edelta, jpmhc = (
        trained_parameters(network((255, 16), 16)) for network in (PublishedEDelta, PublishedJPmHC)
    )
    assert jpmhc / edelta == pytest.approx(1.038, abs=5e-4)


def test_first_gradient_of_gpt_is_the_published_one() -> None:
    assert first_gradient(PublishedGPT)[1] == pytest.approx(0.71, rel=0.1)


def test_first_gradient_and_energy_of_edelta_are_of_the_published_size() -> None:
    norms = torch.tensor([first_gradient(PublishedEDelta, seed)[1] for seed in range(4)])
    assert 265 / 2 < float(norms.log().mean().exp()) < 265 * 2  # from seed to seed: 240 to 840
    made = first_gradient(PublishedEDelta)[0]
    assert isinstance(made, PublishedEDelta)
    state = made.trunk.input(echo()[0]) + made.trunk.positions[:, :127]
    start, carried, energies = state, state, []
    with torch.no_grad():
        for block in made.trunk.blocks:
            for step in (block.attention, block.feed_forward):
                carried = shortcut(step, state, carried)  # type: ignore[arg-type]
                state = step(state)[0]  # type: ignore[operator]
            energies.append(float(carried.square().sum() / start.square().sum()))
    for mine, theirs in zip(energies, (0.53, 0.27, 0.11, 0.07), strict=False):
        assert theirs / 2 < mine < theirs * 2
    for layer, mine in enumerate(energies, 1):  # I − k̂k̂ᵀ on four streams leaves ¾; published after six: .007
        assert mine == pytest.approx(0.75 ** (2 * layer), rel=0.4)


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


def test_spread_of_streams() -> None:
    g = torch.Generator().manual_seed(0)
    stream = torch.randn(2, 3, 1, 8, generator=g)
    scales = torch.tensor([1.0, -2.0, 0.5, 3.0]).reshape(4, 1)
    frame = torch.linalg.qr(torch.randn(2, 3, 8, 4, generator=g)).Q.mT
    for streams, expected in (
        (stream * scales, 0.0),
        (frame, 1 - 1 / 4),
        (1e-6 * frame, 1.0),
        (torch.zeros(2, 3, 4, 8), 1.0),
    ):
        torch.testing.assert_close(spread(streams), torch.full((2, 1, 1), expected), atol=1e-5, rtol=0)


def test_the_gate_is_sharpened_by_the_spread() -> None:
    torch.manual_seed(0)
    network = PublishedEDelta((5, 8), 8, depth=1, width=16)
    step = network.trunk.blocks[0].attention
    nn.init.constant_(step.gamma.bias, 1.5)  # type: ignore[union-attr, arg-type]
    x = torch.randn(1, 5, 16)
    gram = x.double().unflatten(-1, (4, 4))
    gram = gram @ gram.mT
    phi = (1 - (gram**2).sum((-1, -2)) / torch.einsum("btii->bt", gram) ** 2).mean()
    gamma = torch.sigmoid(1.5 * (1 + phi))
    assert float(step(x)[1].detach()) == pytest.approx(float(0.4 * gamma * (1 - gamma)), rel=1e-5)  # type: ignore[operator]


def test_jpmhcs_probe_is_of_second_order() -> None:
    torch.manual_seed(0)
    probe, x = PublishedJPmHCProbe((6,), 6).double(), torch.randn(4, 6, dtype=torch.float64)
    h = probe.matrix(x).reshape(4, 6, 6)
    w = 0.1 * (h - h.mT)
    expected = (torch.eye(6, dtype=torch.float64) + w + w @ w / 2) @ x.unsqueeze(-1)
    torch.testing.assert_close(probe(x), expected.squeeze(-1))


def test_edeltas_probe_turns_by_an_angle_of_beta_alone() -> None:
    torch.manual_seed(0)
    probe = PublishedEDeltaProbe((6,), 6).double()
    nn.init.constant_(probe.gamma.bias, 50.0)  # γ = 1
    nn.init.zeros_(probe.beta[-1].weight)  # type: ignore[arg-type]
    nn.init.constant_(probe.beta[-1].bias, 3.0)  # type: ignore[arg-type]
    x = torch.randn(4, 6, dtype=torch.float64)
    u, v = probe.plane(x)
    inside = torch.stack(((u * x).sum(-1), (v * x).sum(-1)))
    turned = probe(x)
    after = torch.stack(((u * turned).sum(-1), (v * turned).sum(-1)))
    angle = torch.atan2(after[1], after[0]) - torch.atan2(inside[1], inside[0])
    expected = 2 * torch.atan(nn.functional.softplus(torch.tensor(3.0, dtype=torch.float64)) / 2)
    torch.testing.assert_close(torch.cos(angle), torch.cos(expected).expand(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(after.norm(dim=0), inside.norm(dim=0), atol=0, rtol=2e-6)


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
