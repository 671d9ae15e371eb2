"""The Cayley rotation against float64 dense algebra, on ordinary and on impossible inputs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from app.maths.orthogonal import cayley_angle, cayley_rotate

EXTREMES = (0.0, 1e-30, 1e-15, 1e-3, 1.0, 1e3, 1e15, 1e30)
few = settings(max_examples=40, deadline=None)


def dense(x: Tensor, u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The definition, solved in the precision of its arguments."""
    a = u.unsqueeze(-1) * v.unsqueeze(-2)
    step = beta[..., None, None] / 2 * (a - a.mT)
    eye = torch.eye(u.shape[-1], dtype=x.dtype)
    return torch.linalg.solve(eye + step, (eye - step) @ x)


def vectors(n: int, angle: float, seed: int) -> tuple[Tensor, Tensor]:
    """Two unit vectors in float64 at a given angle."""
    pair = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    e = torch.linalg.qr(pair)[0]
    return e[:, 0], math.cos(angle) * e[:, 0] + math.sin(angle) * e[:, 1]


def matrix(u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    return cayley_rotate(torch.eye(u.shape[-1], dtype=u.dtype), u, v, beta)


def error(q: Tensor) -> float:
    q = q.double()
    return float((q.mT @ q - torch.eye(q.shape[-1], dtype=q.dtype)).abs().max())


inputs = st.tuples(
    st.integers(2, 40),
    st.sampled_from((0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 0.3, 1.5, math.pi)),
    st.integers(0, 10_000),
)


@few
@given(inputs, st.sampled_from(EXTREMES), st.sampled_from(EXTREMES), st.sampled_from(EXTREMES), st.booleans())
def test_orthogonal_for_every_finite_input(
    shape: tuple[int, float, int], u_scale: float, v_scale: float, beta: float, negative: bool
) -> None:
    u, v = vectors(*shape)
    u, v = (u * u_scale).float(), (v * v_scale).float()
    b = torch.tensor(-beta if negative else beta)
    assert error(matrix(u, v, b)) <= 2e-6
    for scale in (1e-15, 1.0, 1e15):
        x = torch.randn(shape[0], 8, generator=torch.Generator().manual_seed(shape[2])) * scale
        norms = cayley_rotate(x, u, v, b).double().norm(dim=0) / x.double().norm(dim=0)
        assert (norms - 1).abs().max() <= 2e-6


@pytest.mark.parametrize("n", [2, 3, 64, 512, 1024])
@pytest.mark.parametrize("angle", [1.0, 1e-4, 1e-7, 0.0])
@pytest.mark.parametrize("beta", [0.7, 1e3, 1e15])
def test_orthogonal_at_any_width(n: int, angle: float, beta: float) -> None:
    u, v = vectors(n, angle, n)
    assert error(matrix(u.float(), v.float(), torch.tensor(beta))) <= 2e-6


@pytest.mark.parametrize("angle", [1.0, 1e-3, 1e-6, 1e-9, 1e-12, 1e-14])
@pytest.mark.parametrize("seed", range(5))
def test_float64_is_orthogonal_to_its_own_rounding(angle: float, seed: int) -> None:
    u, v = vectors(7, angle, seed)
    assert error(matrix(u, v, torch.tensor(1 / angle, dtype=torch.float64))) <= 2e-15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [2.0, -0.25])
def test_exactly_parallel_vectors_turn_nothing_whatever_beta(dtype: torch.dtype, factor: float) -> None:
    x, u = torch.eye(5, dtype=dtype), vectors(5, 1.0, 0)[0].to(dtype)
    assert torch.equal(cayley_rotate(x, u, factor * u, torch.tensor(1e30, dtype=dtype)), x)
    assert torch.equal(cayley_rotate(x, 0 * u, u, torch.tensor(1e30, dtype=dtype)), x)


@few
@given(inputs, st.floats(-6, 3), st.sampled_from((1e-3, 1.0, 1e3)))
def test_value_agrees_with_the_solve(shape: tuple[int, float, int], log_turn: float, scale: float) -> None:
    n, angle, seed = shape
    u, v = (t.float() for t in vectors(n, angle, seed))
    u, v = u * scale, v / scale
    sine = float(
        cayley_angle(u, v, torch.tensor(1.0)).double().div(2).tan()
        * 2
        / u.double().norm()
        / v.double().norm()
    )
    if sine < 1e-9:
        return
    beta = torch.tensor(2 * 10**log_turn / max(sine, 1e-4))
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    expected = dense(x.double(), u.double(), v.double(), beta.double())
    difference = (cayley_rotate(x, u, v, beta) - expected).norm(dim=0) / x.double().norm(dim=0)
    assert difference.max() <= 1e-5 / sine
    assert difference.max() <= 1e-5  # the float32 inputs are exact numbers, and the basis is built in float64


@few
@given(st.integers(2, 20), st.floats(1e-3, 1.5), st.floats(-3, 3), st.integers(0, 10_000))
def test_rotates_by_the_angle_and_never_reaches_minus_one(
    n: int, angle: float, log_turn: float, seed: int
) -> None:
    u, v = (t.float() for t in vectors(n, angle, seed))
    t = 10**log_turn
    wedge = float(
        (u.double().square().sum() * v.double().square().sum() - (u.double() @ v.double()) ** 2).sqrt()
    )
    beta = torch.tensor(2 * t / wedge)
    q = matrix(u, v, beta).double()
    theta = 2 * math.atan(t)
    assert abs(float(q.trace()) - (n - 2 + 2 * math.cos(theta))) <= 1e-5
    assert abs(float(cayley_angle(u, v, beta)) - theta) <= 1e-5
    assert float(torch.linalg.det(q)) == pytest.approx(1, abs=1e-5)
    least = float(torch.linalg.svdvals(q + torch.eye(n, dtype=q.dtype)).min())
    assert least == pytest.approx(2 / math.hypot(1, t), rel=1e-3, abs=2e-6)
    assert least > 1e-3


def test_turns_in_the_plane_and_keeps_the_rest() -> None:
    x = torch.eye(3, dtype=torch.float64)
    u, v = x[0] * 3, x[0] + x[1]
    q = cayley_rotate(x, u, v, torch.tensor(2 / 3 * math.tan(0.35), dtype=torch.float64))
    cos, sin = math.cos(0.7), math.sin(0.7)
    torch.testing.assert_close(
        q, torch.tensor([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], dtype=torch.float64)
    )


SPECIAL = {
    "generic": lambda u, v: (u, v),
    "u zero": lambda u, v: (0 * u, v),
    "v zero": lambda u, v: (u, 0 * v),
    "both zero": lambda u, v: (0 * u, 0 * v),
    "parallel": lambda u, v: (u, 2 * u),
    "opposite": lambda u, v: (-u / 4, u),
    "nearly parallel": lambda u, v: (u, u + 1e-4 * v),
    "very nearly parallel": lambda u, v: (u, u + 3e-7 * v),
    "orthogonal": lambda u, v: (u, v - u * (u @ v) / (u @ u)),
    "large": lambda u, v: (u * 1e15, v * 1e-15),
}


@pytest.mark.parametrize("n", [2, 3, 4, 64])
@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.parametrize("beta", [0.0, 0.693, -5.0, 300.0])
def test_float32_derivatives_equal_the_dense_solves(n: int, case: str, beta: float) -> None:
    g = torch.Generator().manual_seed(n)
    x, cotangent = torch.randn(n, 3, generator=g), torch.randn(n, 3, generator=g)
    u, v = SPECIAL[case](torch.randn(n, generator=g), torch.randn(n, generator=g))
    mine = [t.clone().requires_grad_() for t in (x, u, v, torch.tensor(beta))]
    theirs = [t.detach().double().requires_grad_() for t in mine]
    got = torch.autograd.grad(cayley_rotate(*mine), mine, cotangent)
    want = torch.autograd.grad(dense(*theirs), theirs, cotangent.double())
    # u only enters through u vᵀ, so its gradient is as large as a change of Q by 1 can make it: β‖v‖ or
    # 1/‖u‖.
    size = float(x.double().norm() * cotangent.double().norm())
    scales = [
        float(cotangent.norm()),
        size * min(abs(beta) * float(v.double().norm()) + 1e-30, 1 / max(float(u.double().norm()), 1e-300)),
        size * min(abs(beta) * float(u.double().norm()) + 1e-30, 1 / max(float(v.double().norm()), 1e-300)),
        size * max(float(u.double().norm() * v.double().norm()), 1e-30),
    ]
    for a, b, scale, name in zip(got, want, scales, ("x", "u", "v", "beta"), strict=True):
        difference = float((a.double() - b).norm())
        assert difference <= 2e-6 * max(float(b.norm()), scale), name


def test_the_gradient_at_zero_is_not_zero() -> None:
    # Differentiating through an orthonormal basis would give 0 here.
    g = torch.Generator().manual_seed(1)
    x, v = torch.randn(4, 3, generator=g), torch.randn(4, generator=g)
    u = torch.zeros(4, requires_grad=True)
    cayley_rotate(x, u, v, torch.tensor(1.0)).square().mul(torch.arange(12.0).view(4, 3)).sum().backward()
    assert u.grad is not None
    assert u.grad.norm() > 1


@few
@given(inputs, *[st.sampled_from(EXTREMES[:-1])] * 3)
def test_gradients_are_finite_where_representable(
    shape: tuple[int, float, int], u_scale: float, v_scale: float, beta: float
) -> None:
    u, v = vectors(*shape)
    u, v = (u * u_scale).float().requires_grad_(), (v * v_scale).float().requires_grad_()
    b = torch.tensor(beta, requires_grad=True)
    x = torch.randn(shape[0], 2, generator=torch.Generator().manual_seed(shape[2]), requires_grad=True)
    grads = torch.autograd.grad(cayley_rotate(x, u, v, b).sum(), (x, u, v, b))
    # Bounds of the true derivatives; only those beyond float32 may overflow.
    bounds = (1.0, beta * v_scale, beta * u_scale, u_scale * v_scale)
    for grad, bound, name in zip(grads, bounds, ("x", "u", "v", "beta"), strict=True):
        assert not grad.isnan().any(), name
        assert bound > 1e35 or grad.isfinite().all(), name


@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.parametrize("n", [2, 5])
def test_first_and_second_derivatives(n: int, case: str) -> None:
    if case == "large":
        pytest.skip("finite differences need inputs of order one")
    g = torch.Generator().manual_seed(n)
    x = torch.randn(2, n, 2, generator=g, dtype=torch.float64)
    pairs = [SPECIAL[case](*torch.randn(2, n, generator=g, dtype=torch.float64).unbind(0)) for _ in range(2)]
    u, v = (torch.stack(t) for t in zip(*pairs, strict=True))
    beta = torch.randn(2, generator=g, dtype=torch.float64)
    arguments = tuple(t.detach().requires_grad_() for t in (x, u, v, beta))
    assert gradcheck(cayley_rotate, arguments)
    assert gradgradcheck(cayley_rotate, arguments)


def batch(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    shapes = ((3, 5, 4, 6), (3, 5, 4), (3, 5, 4), (3, 5))
    return [torch.randn(s, generator=g).to(dtype).requires_grad_() for s in shapes]


def value_and_grads(function, arguments: list[Tensor]) -> list[Tensor]:  # type: ignore[no-untyped-def]
    y = function(*arguments)
    cotangent = torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)
    return [y, *torch.autograd.grad(y, arguments, cotangent)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compute_in_float32(dtype: torch.dtype) -> None:
    half = batch(dtype)
    got = value_and_grads(cayley_rotate, half)
    want = value_and_grads(cayley_rotate, [t.detach().float().requires_grad_() for t in half])
    assert all(a.dtype == dtype for a in got)
    torch.testing.assert_close(got[0], want[0].to(dtype), rtol=0, atol=0)
    for a, b in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(a.float(), b, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing(dtype: torch.dtype) -> None:
    want = value_and_grads(cayley_rotate, batch())
    with torch.autocast("cpu", dtype):
        got = value_and_grads(cayley_rotate, batch())
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


class Recorder(TorchDispatchMode):
    """Notes the name of every operation and the size of its largest output."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = function(*args, **(kwargs or {}))
        self.names.add(str(function))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.numel())
        return out


def test_no_matrix_no_product_that_tf32_touches_and_no_solve() -> None:
    n, d = 256, 3
    g = torch.Generator().manual_seed(0)
    arguments = [torch.randn(s, generator=g, requires_grad=True) for s in ((n, d), (n,), (n,), ())]
    with Recorder() as seen:
        cayley_rotate(*arguments).sum().backward()
    assert seen.largest <= n * d
    assert not [
        name for name in seen.names if any(w in name for w in ("mm", "linalg", "solve", "inv", "dot", "lu_"))
    ]


def test_matmul_precision_changes_nothing() -> None:
    want = value_and_grads(cayley_rotate, batch())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        got = value_and_grads(cayley_rotate, batch())
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_vmap_and_broadcasting() -> None:
    x, u, v, beta = batch()
    want = cayley_rotate(x, u, v, beta)
    mapped = torch.func.vmap(torch.func.vmap(cayley_rotate))(x, u, v, beta)
    assert torch.equal(mapped, want)
    shared = cayley_rotate(x, u[0, 0], v[0, 0], beta[0, 0])
    expanded = cayley_rotate(x, u[0, 0].expand(3, 5, 4), v[0, 0].expand(3, 5, 4), beta[0, 0].expand(3, 5))
    assert torch.equal(shared, expanded)
    gradient = torch.func.grad(lambda *a: cayley_rotate(*a).square().cos().sum(), argnums=1)
    torch.testing.assert_close(torch.func.vmap(gradient)(x, u, v, beta), gradient(x, u, v, beta))


def test_compiles_as_one_graph() -> None:
    compiled = torch.compile(cayley_rotate, fullgraph=True)
    for a, b in zip(value_and_grads(compiled, batch()), value_and_grads(cayley_rotate, batch()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    u, v = vectors(4, 1e-6, 0)
    q = compiled(torch.eye(4), u.float(), v.float(), torch.tensor(1e15))
    assert error(q) <= 2e-6


def test_refuses_different_stream_axes() -> None:
    with pytest.raises(ValueError, match=r"must share n, got 4, 3, 4"):
        cayley_rotate(torch.zeros(4, 2), torch.zeros(3), torch.zeros(4), torch.tensor(1.0))
