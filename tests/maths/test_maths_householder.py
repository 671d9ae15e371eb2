"""The reflection and the delta operator against float64 dense algebra."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from app.maths.orthogonal import delta, householder_reflect

few = settings(max_examples=60, deadline=None)


def dense(x: Tensor, k: Tensor, beta: float | Tensor = 2.0) -> Tensor:
    if not k.any():
        return x
    direction = k / k.norm()
    return x - beta * torch.outer(direction, direction) @ x


def draw(n: int, seed: int, *shape: int) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


def matrix(k: Tensor) -> Tensor:
    return householder_reflect(torch.eye(k.shape[-1], dtype=k.dtype), k)


@few
@given(st.integers(1, 64), st.integers(0, 9999), st.sampled_from((0.0, 1e-40, 1e-30, 1e-15, 1.0, 1e15, 3e37)))
def test_a_reflection_for_every_finite_input(n: int, seed: int, scale: float) -> None:
    k = draw(n, seed) * scale
    h = matrix(k).double()
    eye = torch.eye(n, dtype=torch.float64)
    assert (h.mT @ h - eye).abs().max() <= 2e-6
    assert (h @ h - eye).abs().max() <= 2e-6
    assert torch.equal(h, h.mT)
    x = draw(n, seed + 1, 4)
    y = householder_reflect(x, k).double()
    assert (y.norm(dim=0) / x.double().norm(dim=0) - 1).abs().max() <= 2e-6
    assert (y - dense(x.double(), k.double())).abs().max() <= 2e-6 * x.abs().max()
    values = torch.linalg.eigvalsh(h)
    assert float(values.min()) == pytest.approx(-1 if k.any() else 1, abs=1e-5)
    assert n == 1 or float(values[1]) == pytest.approx(1, abs=1e-5)  # exactly one direction changes its sign


@pytest.mark.parametrize("n", [2, 64, 512, 1024])
def test_orthogonal_at_any_width(n: int) -> None:
    h = matrix(draw(n, n) * 1e15).double()
    assert (h.mT @ h - torch.eye(n)).abs().max() <= 2e-6


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_lengths_whose_square_is_not_representable(scale: float) -> None:
    k = draw(6, 0).double()
    torch.testing.assert_close(matrix(k * scale), matrix(k), rtol=0, atol=1e-15)


def test_reflects_k_and_keeps_the_hyperplane() -> None:
    k = torch.tensor([3.0, 0.0, 4.0], dtype=torch.float64)
    x = torch.stack((k, torch.tensor([0.0, 1.0, 0.0]), torch.tensor([-4.0, 0.0, 3.0])), -1)
    torch.testing.assert_close(householder_reflect(x, k), x * torch.tensor([-1.0, 1.0, 1.0]))


@few
@given(st.integers(1, 20), st.integers(0, 9999), st.sampled_from((1e-15, 1e-3, 1.0, 1e15)), st.floats(-1, 3))
def test_float32_derivatives_equal_the_dense_form(n: int, seed: int, scale: float, beta: float) -> None:
    x, cotangent, k = draw(n, seed, 3), draw(n, seed + 1, 3), draw(n, seed + 2) * scale
    mine = [t.clone().requires_grad_() for t in (x, k, torch.tensor(beta))]
    theirs = [t.detach().double().requires_grad_() for t in mine]
    got = torch.autograd.grad(delta(*mine), mine, cotangent)
    want = torch.autograd.grad(dense(*theirs), theirs, cotangent.double())
    size = float(x.norm() * cotangent.norm())
    for a, b, natural in zip(
        got, want, (float(cotangent.norm()), size / float(k.double().norm()), size), strict=True
    ):
        assert float((a - b).norm()) <= 3e-6 * natural


def test_at_zero_the_identity_with_zero_gradient() -> None:
    x, k = draw(4, 0, 3).requires_grad_(), torch.zeros(4, requires_grad=True)
    y = householder_reflect(x, k)
    assert torch.equal(y, x)
    grad_x, grad_k = torch.autograd.grad(y.sum(), (x, k))
    assert torch.equal(grad_x, torch.ones_like(x))
    assert torch.equal(grad_k, torch.zeros(4))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_first_and_second_derivatives(n: int) -> None:
    x, k, beta = draw(n, 1, 2, 3).double().movedim(0, 1), draw(n, 2, 2).double().T, draw(2, 3).double()
    x, k, beta = (t.contiguous().requires_grad_() for t in (x, k, beta))
    assert gradcheck(householder_reflect, (x, k))
    assert gradgradcheck(householder_reflect, (x, k))
    assert gradcheck(delta, (x, k, beta))
    assert gradgradcheck(delta, (x, k, beta))


def test_delta_keeps_erases_and_reflects() -> None:
    x, k = draw(5, 1, 3), draw(5, 2)
    assert torch.equal(delta(x, k, torch.tensor(0.0)), x)
    erased = delta(x, k, torch.tensor(1.0))
    torch.testing.assert_close(k @ erased, torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(delta(x, k, torch.tensor(2.0)), householder_reflect(x, k))


def batch(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    g = torch.Generator().manual_seed(3)
    return [torch.randn(s, generator=g).to(dtype).requires_grad_() for s in ((3, 5, 4, 6), (3, 5, 4))]


def value_and_grads(function, arguments: list[Tensor]) -> list[Tensor]:  # type: ignore[no-untyped-def]
    y = function(*arguments)
    cotangent = torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)
    return [y, *torch.autograd.grad(y, arguments, cotangent)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_and_autocast(dtype: torch.dtype) -> None:
    half = batch(dtype)
    got = value_and_grads(householder_reflect, half)
    want = value_and_grads(householder_reflect, [t.detach().float().requires_grad_() for t in half])
    assert all(a.dtype == dtype for a in got)
    assert torch.equal(got[0], want[0].to(dtype))
    full = value_and_grads(householder_reflect, batch())
    with torch.autocast("cpu", dtype):
        cast = value_and_grads(householder_reflect, batch())
    assert all(torch.equal(a, b) for a, b in zip(cast, full, strict=True))


def test_matmul_precision_vmap_and_compile() -> None:
    want = value_and_grads(householder_reflect, batch())
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        got = value_and_grads(householder_reflect, batch())
    finally:
        torch.set_float32_matmul_precision(before)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert torch.equal(torch.func.vmap(torch.func.vmap(householder_reflect))(*batch()), want[0])
    compiled = torch.compile(householder_reflect, fullgraph=True)
    for a, b in zip(value_and_grads(compiled, batch()), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_refuses_different_stream_axes() -> None:
    with pytest.raises(ValueError, match=r"must share n, got 4 and 3"):
        householder_reflect(torch.zeros(4, 2), torch.zeros(3))
