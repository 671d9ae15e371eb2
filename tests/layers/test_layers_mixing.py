"""One suite over all residual mixers: what each promises of its skip path, and what all promise."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from app.layers import mixing
from app.layers.attention import CausalAttention, FeedForward
from app.layers.mixing.base import Mixer
from app.maths.orthogonal import orthogonality_error, stochasticity_error
from app.protocols import Diagnosable

WIDTH, STREAMS, TIME = 16, 4, 6

MIXERS: dict[str, Callable[[nn.Module], Mixer]] = {
    "additive": lambda f: mixing.Additive(f, WIDTH),
    "delta": lambda f: mixing.Delta(f, WIDTH),
    "hyper": lambda f: mixing.Hyper(f, WIDTH, 1),
    "sinkhorn": lambda f: mixing.Sinkhorn(f, WIDTH, 2),
    "kronecker": lambda f: mixing.Kronecker(f, WIDTH, 3),
    "quaternion": lambda f: mixing.Quaternion(f, WIDTH, 4),
    "iterated": lambda f: mixing.CayleyIteration(f, WIDTH),
    "cayley": lambda f: mixing.Cayley(f, WIDTH),
    "cayley, prefix mean": lambda f: mixing.Cayley(f, WIDTH, source=mixing.PrefixMean()),
    "reflection": lambda f: mixing.Reflection(f, WIDTH),
    "hybrid": lambda f: mixing.CayleyHouseholder(f, WIDTH, gate_bias=0.4),
    "hybrid, prefix mean": lambda f: mixing.CayleyHouseholder(f, WIDTH, source=mixing.PrefixMean()),
    "two reflections": lambda f: mixing.TwoReflections(f, WIDTH),
}
EXPANDED = {"hyper", "sinkhorn", "kronecker", "quaternion"}
ORTHOGONAL = {
    "additive",
    "quaternion",
    "cayley",
    "cayley, prefix mean",
    "reflection",
    "two reflections",
}
STOCHASTIC = {"sinkhorn", "kronecker"}
IDENTITY_START = {"additive", "hyper", "quaternion", "iterated", "cayley", "two reflections"}
names = pytest.mark.parametrize("name", MIXERS)
few = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def make(name: str, trained: bool = True, branch: nn.Module | None = None) -> Mixer:
    """A mixer, with every parameter moved as training would move it."""
    torch.manual_seed(0)
    if branch is None:
        branch = FeedForward(WIDTH // STREAMS if name == "iterated" else WIDTH, 8)
    mixer = MIXERS[name](branch)
    if trained:
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=g))
    return mixer


def state(name: str, seed: int = 0, scale: float = 1.0, batch: int = 3) -> Tensor:
    shape = (batch, TIME, STREAMS, WIDTH) if name in EXPANDED else (batch, TIME, WIDTH)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def on_streams(matrix: Tensor, x: Tensor) -> Tensor:
    """Applies a shortcut's matrix to a state of any mixer."""
    m = matrix.shape[-1]
    streams = x if x.dim() == 4 else x.unflatten(-1, (m, -1))
    return (matrix @ streams).reshape(x.shape)


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@names
@few
@given(seed=st.integers(0, 999), scale=st.sampled_from((1e-6, 1.0, 1e3)))
def test_a_step_without_a_branch_is_the_shortcut(name: str, seed: int, scale: float) -> None:
    mixer, x = make(name, branch=Nothing()), state(name, seed, scale)
    torch.testing.assert_close(mixer(x), on_streams(mixer.shortcut(x), x), rtol=1e-5, atol=2e-6 * scale)


@pytest.mark.parametrize("name", sorted(ORTHOGONAL))
@few
@given(seed=st.integers(0, 999), scale=st.sampled_from((0.0, 1e-15, 1.0, 1e15)), trained=st.booleans())
def test_orthogonal_mixers_are(name: str, seed: int, scale: float, trained: bool) -> None:
    assert orthogonality_error(make(name, trained).shortcut(state(name, seed, scale))).max() <= 2e-6


@pytest.mark.parametrize("name", sorted(STOCHASTIC))
@few
@given(seed=st.integers(0, 999))
def test_stochastic_mixers_are(name: str, seed: int) -> None:
    matrix = make(name).shortcut(state(name, seed))
    assert (matrix >= 0).all()
    assert stochasticity_error(matrix).max() <= 1e-3
    assert torch.linalg.matrix_norm(matrix, 2).max() <= 1 + 1e-3


@few
@given(seed=st.integers(0, 999))
def test_delta_has_norm_at_most_one_and_the_named_singular_value(seed: int) -> None:
    mixer, x = make("delta"), state("delta", seed)
    matrix = mixer.shortcut(x)
    assert isinstance(mixer, mixing.Delta)
    _, beta, value = mixer.parameters_of(x)
    assert ((beta > 0) & (beta < 2)).all()
    assert ((value > 0) & (value < 4)).all()
    values = torch.linalg.svdvals(matrix)
    assert values.max() <= 1 + 1e-5
    torch.testing.assert_close(values[..., -1], (1 - beta[..., 0]).abs(), atol=1e-5, rtol=0)
    want = orthogonality_error(matrix).amax().float()
    torch.testing.assert_close(mixer.diagnostics(x)["orthogonality"], want, rtol=1e-4, atol=1e-6)


@few
@given(seed=st.integers(0, 999))
def test_delta_writes_the_value_along_k(seed: int) -> None:
    mixer, x = make("delta"), state("delta", seed)
    assert isinstance(mixer, mixing.Delta)
    k, beta, value = mixer.parameters_of(x)
    before, after = ((k * s).sum(-1, keepdim=True) for s in (x, mixer(x)))
    torch.testing.assert_close(after, before + beta * (value - before), atol=1e-5, rtol=1e-5)


@few
@given(seed=st.integers(0, 999))
def test_the_hybrid_blends_and_shrinks_between_the_ends(seed: int) -> None:
    mixer, x = make("hybrid"), state("hybrid", seed)
    assert isinstance(mixer, mixing.CayleyHouseholder)
    parameters = mixer.parameters_of(x)
    basis = torch.eye(STREAMS)
    ends = [
        mixer.operate(basis, parameters._replace(gamma=torch.full_like(parameters.gamma, g))) for g in (0, 1)
    ]
    assert all(orthogonality_error(end).max() <= 2e-6 for end in ends)
    torch.testing.assert_close(torch.linalg.det(ends[0]), -torch.ones(3, TIME), atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.linalg.det(ends[1]), torch.ones(3, TIME), atol=1e-5, rtol=0)
    gamma = parameters.gamma[..., None, None]
    torch.testing.assert_close(mixer.shortcut(x), gamma * ends[1] + (1 - gamma) * ends[0])
    # Q and H differ by a determinant's sign, so they disagree on a direction and the blend loses some of it.
    assert torch.linalg.matrix_norm(mixer.shortcut(x), 2).max() <= 1 + 1e-5
    least = torch.linalg.svdvals(mixer.shortcut(x))[..., -1]
    torch.testing.assert_close(least, (2 * parameters.gamma - 1).abs(), atol=1e-4, rtol=0)


def test_the_gate_starts_where_it_is_told_and_its_penalty_has_no_gradient_at_one_half() -> None:
    for bias, gamma in ((0.0, 0.5), (-1.5, 0.1824), (1.5, 0.8176)):
        torch.manual_seed(0)
        mixer = mixing.CayleyHouseholder(FeedForward(WIDTH, 8), WIDTH, gate_bias=bias, penalty_weight=0.5)
        x = state("hybrid")
        found = mixer.diagnostics(x)
        assert float(found["gamma_mean"]) == pytest.approx(gamma, abs=1e-4)
        penalty = mixer.penalty(x)
        assert float(penalty.detach()) == pytest.approx(0.5 * 4 * gamma * (1 - gamma), abs=1e-4)
        (grad,) = torch.autograd.grad(penalty, mixer.fused.output.bias)
        assert float(grad[:-1].abs().max()) == 0
        # dp/db = λ·4(1 − 2γ)γ(1 − γ): towards the nearer end, and nothing in the middle.
        assert float(grad[-1]) == pytest.approx(0.5 * 4 * (1 - 2 * gamma) * gamma * (1 - gamma), abs=1e-4)


@pytest.mark.parametrize("name", sorted(IDENTITY_START))
def test_identity_starts(name: str) -> None:
    matrix = make(name, trained=False).shortcut(state(name))
    atol = 1e-6 if name == "two reflections" else 0.0
    torch.testing.assert_close(matrix, torch.eye(matrix.shape[-1]).expand_as(matrix), atol=atol, rtol=0)


def test_stochastic_starts_are_nearly_the_identity_and_iterated_nearly_orthogonal() -> None:
    for name in STOCHASTIC:
        matrix = make(name, trained=False).shortcut(state(name))
        assert (matrix - torch.eye(STREAMS)).abs().max() < 2e-3
    mixer = make("iterated", trained=False)
    nn.init.normal_(mixer.fused.weight, std=0.3 / WIDTH**0.5)  # type: ignore[union-attr, arg-type]
    assert 0 < orthogonality_error(mixer.shortcut(state("iterated"))).mean() < 1e-3


@names
def test_gradients_reach_the_operator_at_the_start(name: str) -> None:
    mixer, x = make(name, trained=False), state(name)
    target = torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
    (mixer(x) * target).sum().add(mixer.penalty(x)).backward()
    grads = {n: p.grad for n, p in mixer.named_parameters()}
    assert all(g is not None and g.isfinite().all() for g in grads.values())
    if name != "additive":
        watched = {"delta": "value", "hyper": "static"}.get(
            name, "output.weight" if hasattr(mixer, "source") else "fused"
        )
        assert any(g is not None and g.abs().max() > 0 for n, g in grads.items() if watched in n)


@names
def test_every_parameter_takes_part(name: str) -> None:
    mixer, x = make(name), state(name)
    mixer(x).square().sum().backward()
    idle = [n for n, p in mixer.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert idle == []


@names
@pytest.mark.parametrize("position", range(TIME - 1))
def test_the_past_does_not_see_the_future(name: str, position: int) -> None:
    if name == "iterated":
        mixer = make(name, branch=CausalAttention(WIDTH // STREAMS, 2))
    else:
        mixer = make(name, branch=CausalAttention(WIDTH, 2))
    x = state(name)
    other = x.clone()
    other[:, position + 1 :] = state(name, 7)[:, position + 1 :]
    a, b = mixer(x), mixer(other)
    assert torch.equal(a[:, : position + 1], b[:, : position + 1])
    assert not torch.equal(a[:, position + 1 :], b[:, position + 1 :])


@names
def test_samples_do_not_see_each_other(name: str) -> None:
    mixer, x = make(name), state(name)
    torch.testing.assert_close(mixer(x[1:2]), mixer(x)[1:2])


@names
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_keeps_the_residual_in_float32(name: str, dtype: torch.dtype) -> None:
    mixer, x = make(name), state(name)
    want = mixer(x)
    with torch.autocast("cpu", dtype):
        got, matrix = mixer(x), mixer.shortcut(x)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=0.1, atol=0.25)
    if name in ORTHOGONAL:
        assert orthogonality_error(matrix).max() <= 2e-6


@names
def test_state_and_copies(name: str) -> None:
    mixer, x = make(name), state(name)
    clone = copy.deepcopy(mixer)
    fresh = make(name, trained=False)
    fresh.load_state_dict(mixer.state_dict())
    assert torch.equal(clone(x), mixer(x))
    assert torch.equal(fresh(x), mixer(x))


@names
def test_diagnostics_are_pure_and_explained(name: str) -> None:
    mixer, x = make(name), state(name)
    assert isinstance(mixer, Diagnosable)
    before = {k: v.clone() for k, v in mixer.state_dict().items()}
    random = torch.random.get_rng_state()
    found, again = mixer.diagnostics(x), mixer.diagnostics(x)
    assert torch.equal(random, torch.random.get_rng_state())
    assert all(torch.equal(before[k], v) for k, v in mixer.state_dict().items())
    assert set(found) == set(mixer.METRICS)
    for metric, value in found.items():
        assert value.dim() < 2 or (value.dim() == 2 and value.shape[1] == 2)
        assert value.isfinite().all()
        assert torch.equal(value, again[metric])
        assert "\n" not in mixer.METRICS[metric]


@names
def test_compiles_as_one_graph(name: str) -> None:
    mixer, x = make(name), state(name)
    want = mixer(x)
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    got = compiled(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.square().sum().backward()
    compiled_grads = [p.grad.clone() for p in mixer.parameters() if p.grad is not None]
    mixer.zero_grad()
    want.square().sum().backward()
    for a, p in zip(compiled_grads, mixer.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-3, atol=1e-3)


def test_prefix_mean_is_the_mean_so_far() -> None:
    x = state("additive")
    want = torch.stack([x[:, : t + 1].mean(1) for t in range(TIME)], 1)
    torch.testing.assert_close(mixing.PrefixMean()(x), want)
    assert mixing.Token()(x) is x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: mixing.Cayley(Nothing(), 16, 3),
            "streams must be at least 2 and divide the width 16, got 3",
        ),
        (lambda: mixing.CayleyIteration(Nothing(), 16, 1), "streams must be at least 2"),
        (lambda: mixing.Hyper(Nothing(), 16, 0, 1), "streams must be at least 2, got 1"),
        (lambda: mixing.Sinkhorn(Nothing(), 16, 0, 1), "streams must be at least 2, got 1"),
        (lambda: mixing.Kronecker(Nothing(), 16, 0, 3), "streams must be a power of 2, got 3"),
        (
            lambda: mixing.CayleyHouseholder(Nothing(), 16, penalty_weight=-1),
            "penalty_weight must not be negative",
        ),
        (lambda: mixing.Cayley(Nothing(), 16, hidden=-1), "hidden must be at least 1, got -1"),
        (lambda: CausalAttention(16, 3), "heads must be a divisor of the width 16, got 3"),
        (lambda: FeedForward(16, 0), "hidden must be at least 1, got 0"),
    ],
)
def test_refuses(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
