"""Read-outs of recruitment against closed forms."""

import math

import pytest
import torch
from torch import Tensor

from app.maths import recruitment


def uniform(rows: int, features: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 0.5 + 1.5 * torch.rand(rows, features, generator=generator, dtype=torch.float64)


def nonlinear_share(x: Tensor, y: Tensor) -> float:
    return (recruitment.affine_residual_rms(x, y) / recruitment.deviation_rms(y)).item()


def test_share_of_a_product_is_the_root_of_its_share_of_the_variance() -> None:
    """x₁x₂ on U(.5, 2): the variance v² of the interaction in (v + μ²)² − μ⁴, v = 3/16, μ = 5/4."""
    x = uniform(200_000)
    v, mean = 3 / 16, 5 / 4
    expected = math.sqrt(v**2 / ((v + mean**2) ** 2 - mean**4))
    assert expected == pytest.approx(0.238, abs=5e-4)
    assert nonlinear_share(x, (x[:, 0] * x[:, 1])[:, None]) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("rows", [9, 40, 1000, 5000])
def test_an_affine_map_leaves_nothing(rows: int) -> None:
    x = uniform(rows)
    y = x @ torch.randn(4, 3, dtype=torch.float64) + 7
    assert nonlinear_share(x, y) < 1e-12
    assert nonlinear_share(x.float(), y.float()) < 1e-5


def test_noise_is_not_explained_by_many_features() -> None:
    """An uncorrected fit of 60 unknowns to 128 rows would explain half of it."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(128, 60, generator=generator), torch.randn(128, 200, generator=generator)
    assert nonlinear_share(x, y) == pytest.approx(1.0, abs=0.03)


def test_fewer_rows_than_features_is_an_upper_bound() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 500, generator=generator)
    y = x @ torch.randn(500, 20, generator=generator)
    assert 0.5 < nonlinear_share(x, y) <= 1.05
    assert recruitment.affine_residual_rms(x, torch.full((64, 20), 3.0)) == 0


def test_collinear_and_constant_features() -> None:
    x = uniform(100, 3)
    x = torch.cat([x, x[:, :1], torch.ones(100, 1, dtype=x.dtype)], dim=1)
    assert nonlinear_share(x, x[:, :1] * 2) < 1e-12
    assert nonlinear_share(torch.ones_like(x), x[:, :1]) == pytest.approx(1.0, abs=0.1)


def test_constants_move_no_ac_readout() -> None:
    sigma = torch.randn(50, 3)
    assert (
        recruitment.share(recruitment.deviation_rms(torch.full((50, 3), 1e3)), recruitment.rms(sigma)) < 1e-6
    )
    assert recruitment.share(torch.tensor(0.0), torch.tensor(0.0)) == 0


def test_nan_and_nothing_are_nan() -> None:
    nan, one = torch.tensor(math.nan), torch.tensor(1.0)
    assert recruitment.share(nan, one).isnan()
    assert recruitment.share(one * 0, nan).isnan()
    x, y = torch.randn(20, 3), torch.randn(20, 2)
    x[3, 1] = math.nan
    assert recruitment.affine_residual_rms(x, y).isnan()
    assert recruitment.affine_residual_rms(torch.empty(0, 3), torch.empty(0, 2)).isnan()
    assert recruitment.rms(torch.empty(0)).isnan()
    assert recruitment.relative_change(nan, one).isnan()


def test_batch_normalised_equals_torch() -> None:
    x, weight, bias = torch.randn(4, 3, 5, 6), torch.randn(3), torch.randn(3)
    expected = torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True, eps=1e-3)
    torch.testing.assert_close(recruitment.batch_normalised(x, weight, bias, 1e-3), expected)


def test_equal_branches_share_equally() -> None:
    branch = torch.randn(30, 2)
    read = recruitment.per_branch(branch, branch, branch)
    assert read["product_ac_share"].item() == pytest.approx(1 / 3)
    assert read["bilinear_ac_share"].item() == pytest.approx(1 / 3)
    assert recruitment.per_branch(branch, branch, None) == {}
