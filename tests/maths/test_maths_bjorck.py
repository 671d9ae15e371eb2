import pytest
import torch

from app.maths.bjorck import bjorck, spectral_norm, spectral_norm_bound


def with_singular_values(values, rows, columns, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    u = torch.linalg.qr(torch.randn(rows, rows, dtype=dtype, generator=generator))[0]
    v = torch.linalg.qr(torch.randn(columns, columns, dtype=dtype, generator=generator))[0]
    k = min(rows, columns)
    s = torch.as_tensor(values, dtype=torch.float64).expand(k).to(dtype)
    return (u[:, :k] * s) @ v[:, :k].mH


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_one_step_maps_each_singular_value(dtype, shape):
    k = min(shape)
    values = torch.linspace(0.7, 1.15, k, dtype=torch.float64)
    weight = with_singular_values(values, *shape, dtype=dtype)
    # No row sum of the Gram matrix is near the limit, so the bare polynomial acts.
    found = torch.linalg.svdvals(bjorck(weight)).sort().values
    torch.testing.assert_close(found, (1.5 * values - 0.5 * values**3).sort().values, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
@pytest.mark.parametrize("top", [1.2, 1.8, 2.0, 5.0, 100.0])
def test_converges_to_the_polar_factor(dtype, shape, top):
    values = torch.linspace(0.3, top, min(shape), dtype=torch.float64)
    weight = with_singular_values(values, *shape, dtype=dtype)
    u, _, vh = torch.linalg.svd(weight, full_matrices=False)
    torch.testing.assert_close(bjorck(weight, 40), u @ vh, rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0, 1e4])
def test_never_above_one_after_a_step(size):
    weight = size * torch.randn(20, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.linalg.matrix_norm(bjorck(weight), 2).max() <= 1 + 1e-12


def test_batch_is_one_by_one():
    weight = torch.randn(5, 4, 7)
    torch.testing.assert_close(bjorck(weight, 3), torch.stack([bjorck(w, 3) for w in weight]))


def test_zero_stays_finite():
    assert torch.equal(bjorck(torch.zeros(3, 3)), torch.zeros(3, 3))


def test_refuses_no_step():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        bjorck(torch.eye(2), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("shape", [(3, 128, 128), (2, 10, 128), (128, 30)])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_spectral_norm_bound_is_tight_and_above(dtype, shape, size):
    weight = size * torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(2))
    exact = torch.linalg.matrix_norm(weight.to(torch.promote_types(dtype, torch.float64)), 2)
    ratio = spectral_norm_bound(weight).double() / exact
    assert ratio.min() >= 1 - 1e-5
    assert ratio.max() <= 1 + 1e-3


def test_spectral_norm_bound_of_an_orthogonal_matrix():
    # All singular values equal is where the bound is loosest: n^(2^-14).
    weight = torch.linalg.qr(torch.randn(128, 128))[0]
    assert spectral_norm_bound(weight).item() == pytest.approx(128 ** (2.0**-14), abs=1e-5)


def test_spectral_norm_is_exact():
    weight = with_singular_values(torch.tensor([0.1, 0.5, 3.0]), 3, 5)
    torch.testing.assert_close(
        spectral_norm(weight.float()), torch.tensor(3.0, dtype=torch.float64), rtol=1e-6, atol=0
    )
