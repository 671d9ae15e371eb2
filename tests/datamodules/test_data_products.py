"""Synthetic tasks: their answers, ranges, floors and seeds."""

import math

import pytest
import torch

from datamodules import products

ANSWERS = {
    products.PairProduct: lambda a, b, c, d: a * b,
    products.TripleProduct: lambda a, b, c, d: a * b * c,
    products.Ratio: lambda a, b, c, d: a / b,
    products.RootRatio: lambda a, b, c, d: math.sqrt(a / b),
    products.SignedProduct: lambda a, b, c, d: a * b,
    products.Mean: lambda a, b, c, d: (a + b + c + d) / 4,
    products.LinearMap: lambda a, b, c, d: a - 2 * b + c / 2 + d,
    products.Sine: lambda a, b, c, d: math.sin(3 * a),
    products.Parity: lambda a, b, c, d: (round(a) + round(b) + round(c) + round(d)) % 2,
}
KINDS = pytest.mark.parametrize("kind", ANSWERS)


@KINDS
def test_answers(kind) -> None:
    task = kind(train_samples=50, val_samples=20, test_samples=30)
    assert task.input_shape == (4,)
    assert task.num_outputs == 1
    for (x, y), samples in zip((*task.fit_data(), task.test_data()), (50, 20, 30), strict=True):
        assert x.shape == (samples, 4)
        assert y.shape == (samples, 1)
        assert x.dtype == y.dtype == torch.float32
        for row, answer in zip(x.tolist(), y[:, 0].tolist(), strict=True):
            assert answer == pytest.approx(ANSWERS[kind](*row), rel=1e-5, abs=1e-5)


@KINDS
def test_seeds_make_the_data(kind) -> None:
    first, again, other = kind(seed=1), kind(seed=1, train_samples=7), kind(seed=2)
    assert torch.equal(first.fit_data()[0][0], kind(seed=1).fit_data()[0][0])
    assert torch.equal(first.fit_data()[1][0], again.fit_data()[1][0])  # whatever the training set
    assert not torch.equal(first.fit_data()[0][0], other.fit_data()[0][0])
    assert not torch.equal(first.fit_data()[0][0][:1000], first.fit_data()[1][0])


def test_ranges_zeros_and_noise() -> None:
    ranges = {"low": -1, "high": 3, "test_low": 5, "test_high": 7}
    task = products.PairProduct(dimension=6, **ranges, zero_fraction=0.3, noise=0.5)
    (x, y), (val_x, val_y) = task.fit_data()
    assert x.min() >= -1
    assert x.max() <= 3
    assert (x == 0).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert (y[:, 0] - x[:, 0] * x[:, 1]).std().item() == pytest.approx(0.5, abs=0.03)
    torch.testing.assert_close(val_y[:, 0], val_x[:, 0] * val_x[:, 1])
    test_x, _ = task.test_data()
    nonzero = test_x[test_x != 0]
    assert nonzero.min() >= 5
    assert nonzero.max() <= 7


def test_signed_inputs_are_normal() -> None:
    x = products.SignedProduct().fit_data()[0][0]
    assert x.mean().abs() < 0.03
    assert x.std().item() == pytest.approx(1, abs=0.03)
    assert products.SignedProduct().test_data()[0].std().item() == pytest.approx(3, abs=0.15)


def test_floors() -> None:
    """x₁x₂ on U(.5, 2): variance (v + μ²)² − μ⁴, of which an affine map leaves v², v = 3/16, μ = 5/4."""
    v, mean = 3 / 16, 5 / 4
    floors = products.PairProduct(train_samples=40_000, val_samples=40_000).floors()
    assert floors["mean"] == pytest.approx((v + mean**2) ** 2 - mean**4, rel=0.05)
    assert floors["affine"] == pytest.approx(v**2, rel=0.05)
    assert products.Mean().floors()["affine"] < 1e-10
    assert products.Parity().floors()["affine"] == pytest.approx(0.25, abs=0.02)


def test_success_is_a_selection_right_to_five_digits() -> None:
    task = products.PairProduct()
    x = task.test_data()[0].double()
    off = 1e-5 * x.sum(dim=1)
    expected = ((x[:, 0] + off) * (x[:, 1] + off) - x[:, 0] * x[:, 1]).square().mean().item()
    assert task.success_error() == pytest.approx(expected, rel=1e-3)
    assert 1e-7 < expected < 1e-5


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (products.PairProduct, {"dimension": 1}, "dimension must be at least 2, got 1"),
        (products.TripleProduct, {"dimension": 2}, "dimension must be at least 3, got 2"),
        (products.Parity, {"dimension": 3}, "dimension must be at least 4, got 3"),
        (products.Mean, {"low": 2.0}, "high must be above the lower end 2.0, got 2.0"),
        (products.Mean, {"test_high": 0.0}, "test_high must be above"),
        (products.Mean, {"zero_fraction": 1.0}, "zero_fraction must be in"),
        (products.Mean, {"noise": -0.1}, "noise must be at least 0, got -0.1"),
        (products.Mean, {"val_samples": 0}, "val_samples must be at least 1, got 0"),
        (products.Ratio, {"low": -1.0}, "low must be above 0"),
        (products.RootRatio, {"zero_fraction": 0.1}, "zero_fraction 0 for a ratio"),
    ],
)
def test_arguments_are_checked(kind, wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**wrong)


def test_loaders() -> None:
    task = products.Ratio(train_samples=100, batch_size=30)
    task.setup("fit")
    sizes = [len(x) for x, _ in task.train_dataloader()]
    assert sum(sizes) in (90, 100)
    assert next(iter(task.val_dataloader()))[1].shape[1] == 1
