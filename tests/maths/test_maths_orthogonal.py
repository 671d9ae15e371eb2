"""Doubly stochastic, quaternion and iterated maps on the stream axis."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.maths.orthogonal import (
    cayley_iteration,
    kronecker_mixing,
    matmul,
    orthogonality_error,
    quaternion_rotate,
    sinkhorn,
    stochasticity_error,
)

few = settings(max_examples=40, deadline=None)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@few
@given(st.integers(1, 8), st.integers(0, 9999))
def test_sinkhorn_is_doubly_stochastic_for_small_logits(n: int, seed: int) -> None:
    logits = 2 * torch.rand(5, n, n, generator=torch.Generator().manual_seed(seed)) - 1
    matrix = sinkhorn(logits)
    assert (matrix >= 0).all()
    assert stochasticity_error(matrix).max() <= 1e-5


@few
@given(st.integers(2, 8), st.integers(0, 9999), st.sampled_from((2.0, 30.0, 1e4, 1e30)))
def test_sinkhorn_rows_are_exact_and_columns_reported(n: int, seed: int, scale: float) -> None:
    matrix = sinkhorn(draw(seed, n, n) * scale)
    assert matrix.isfinite().all()
    assert (matrix.sum(-1) - 1).abs().max() <= 1e-5
    assert float(stochasticity_error(matrix)) == pytest.approx(
        float((matrix.sum(-2) - 1).abs().max()), abs=1e-6
    )


def test_sinkhorn_equals_scaling_in_the_linear_domain() -> None:
    logits = draw(0, 4, 4).double()
    want = logits.exp()
    for _ in range(7):
        want = want / want.sum(-2, keepdim=True)
        want = want / want.sum(-1, keepdim=True)
    torch.testing.assert_close(sinkhorn(logits, 7), want)


def test_sinkhorn_falls_short_for_large_logits_and_says_so() -> None:
    errors = stochasticity_error(sinkhorn(2 * draw(0, 20_000, 4, 4)))
    assert 0.01 < errors.max() < 0.1
    assert sinkhorn(draw(0, 4, 4).bfloat16()).dtype == torch.float32
    with pytest.raises(ValueError, match="at least 1, got 0"):
        sinkhorn(torch.zeros(2, 2), 0)


def test_published_start_of_mhc_merges_the_streams() -> None:
    matrix = sinkhorn(2 * torch.eye(4).double())
    second = torch.linalg.eigvalsh(matrix)[-2]
    assert float(second) == pytest.approx(0.615, abs=5e-4)


@pytest.mark.parametrize(("std", "mean"), [(0.3, 2.8e-5), (1, 3.3e-3), (3, 0.17), (10, 125)])
def test_jpmhc_iteration_is_orthogonal_for_small_matrices_only(std: float, mean: float) -> None:
    h = std * draw(0, 20_000, 4, 4).double()
    error = orthogonality_error(cayley_iteration(h - h.mT)).mean()
    assert float(error) == pytest.approx(mean, rel=0.1)


def test_jpmhc_iteration_converges_to_the_cayley_transform() -> None:
    h = draw(0, 4, 4).double()
    w, eye = h - h.mT, torch.eye(4).double()
    limit = torch.linalg.solve(eye - 0.05 * w, eye + 0.05 * w)
    torch.testing.assert_close(cayley_iteration(w, 0.1, 60), limit)
    # Two steps on Y₀ leave the series of the inverse cut after the third power.
    half = 0.05 * w
    series = eye + 2 * half + 2 * half @ half + 2 * half @ half @ half
    torch.testing.assert_close(cayley_iteration(w, 0.1, 2), series)


@few
@given(st.integers(0, 9999), st.sampled_from((1e-30, 1e-3, 1.0, 1e15)))
def test_quaternions_rotate(seed: int, scale: float) -> None:
    q, r = draw(seed, 4) * scale, draw(seed + 1, 4) * scale
    h = quaternion_rotate(torch.eye(4), q, r)
    assert orthogonality_error(h) <= 2e-6
    assert float(torch.linalg.det(h.double())) == pytest.approx(1, abs=1e-5)
    # The two planes turn by the sum and the difference of the half-angles.
    a, b = (math.acos(float(t.double()[0] / t.double().norm())) for t in (q, r))
    assert float(h.double().trace()) == pytest.approx(2 * math.cos(a + b) + 2 * math.cos(a - b), abs=1e-5)


def test_quaternions_reach_the_identity_and_its_negative_exactly() -> None:
    x, one = draw(0, 3, 4, 5), torch.tensor([1.0, 0, 0, 0])
    assert torch.equal(quaternion_rotate(x, one, one), x)
    assert torch.equal(quaternion_rotate(x, -one, one), -x)
    i = torch.tensor([0.0, 1, 0, 0])
    assert torch.equal(quaternion_rotate(torch.eye(4), i, i), torch.diag(torch.tensor([1.0, 1, -1, -1])))
    assert torch.equal(quaternion_rotate(x, 0 * one, one), x)
    with pytest.raises(ValueError, match="must be 4, got 3, 4 and 4"):
        quaternion_rotate(draw(0, 3, 5), one, one)


def test_hamilton_product() -> None:
    # i·j = k, j·k = i, k·i = j: q x with r = 1.
    one, i, j, k = torch.eye(4)
    for a, b, c in ((i, j, k), (j, k, i), (k, i, j)):
        torch.testing.assert_close(quaternion_rotate(b.unsqueeze(-1), a, one).squeeze(-1), c)
        torch.testing.assert_close(
            quaternion_rotate(b.unsqueeze(-1), one, a).squeeze(-1), c
        )  # b ā = −b a = a b
    torch.testing.assert_close(quaternion_rotate(i.unsqueeze(-1), i, one).squeeze(-1), -one)


@few
@given(st.integers(1, 3), st.integers(0, 9999), st.sampled_from((0.1, 1.0, 50.0)))
def test_kronecker_mixing(factors: int, seed: int, scale: float) -> None:
    logits = draw(seed, 2, factors, 2).double() * scale
    matrix = kronecker_mixing(logits)
    assert matrix.shape == (2, 2**factors, 2**factors)
    assert stochasticity_error(matrix).max() <= 1e-12
    assert torch.equal(matrix, matrix.mT)
    p = logits.softmax(-1)[..., 0]
    for m, ps in zip(matrix, p, strict=True):
        want = torch.ones(1, 1).double()
        for pi in ps:
            want = torch.kron(want, torch.stack((torch.stack((pi, 1 - pi)), torch.stack((1 - pi, pi)))))
        torch.testing.assert_close(m, want)


def test_singular_values_at_the_published_starts() -> None:
    krom = kronecker_mixing(torch.tensor([[0.0, -8.0], [0.0, -8.0]]).double())
    torch.testing.assert_close(
        torch.linalg.svdvals(krom), torch.tensor([1, 0.9993, 0.9993, 0.9987]).double(), atol=5e-5, rtol=0
    )
    mhc = sinkhorn((torch.eye(4).double() - 1) * 8)
    torch.testing.assert_close(
        torch.linalg.svdvals(mhc)[1:], torch.full((3,), 0.9987).double(), atol=5e-5, rtol=0
    )


def test_matmul_and_orthogonality_error() -> None:
    a, b = draw(0, 3, 4, 5), draw(1, 3, 5, 6)
    torch.testing.assert_close(matmul(a, b), a @ b)
    with torch.autocast("cpu", torch.bfloat16):
        assert matmul(a, b).dtype == torch.float32
        assert torch.equal(matmul(a, b), matmul(a, b))
    q = torch.linalg.qr(draw(0, 5, 5).double())[0]
    assert orthogonality_error(q) < 1e-14
    assert float(orthogonality_error(2 * q)) == pytest.approx(3)
