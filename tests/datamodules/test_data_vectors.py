"""The tasks on vectors: what they say they are, and what predictors without a network reach."""

import pytest
import torch

from app.protocols import Floored
from datamodules import Gyroscope, Negation, Stability
from datamodules.sequences import Generated

SMALL = {"train_samples": 20, "val_samples": 10}


def made(task: type[Generated], **arguments: int) -> Generated:
    data = task(**({"batch_size": 8} | SMALL | arguments))  # type: ignore[arg-type]
    data.setup()
    return data


@pytest.mark.parametrize("task", [Gyroscope, Stability, Negation])
def test_three_independent_draws_that_the_data_seed_alone_decides(task: type[Generated]) -> None:
    data, same, other = made(task), made(task, seed=5), made(task, data_seed=7)
    sets = [data.train_set, data.val_set, data.test_set]
    for (x, y), n in zip(sets, (20, 10, 10), strict=True):  # type: ignore[misc]
        assert x.shape == (n, *data.input_shape)
        assert x.dtype == y.dtype == torch.float32
        assert y.shape[-1] == data.num_outputs
        assert x.isfinite().all()
        assert y.isfinite().all()
    assert not torch.equal(data.val_set[0], data.test_set[0])  # type: ignore[index]
    assert not torch.equal(data.train_set[0][:10], data.val_set[0])  # type: ignore[index]
    for a, b, c in zip(sets, (same.train_set, same.val_set), (other.train_set, other.val_set), strict=False):
        assert torch.equal(a[0], b[0])  # type: ignore[index]
        assert not torch.equal(a[0], c[0])  # type: ignore[index]
    (x, y) = next(iter(data.train_dataloader()))
    assert len(x) == len(y) == 8


@pytest.mark.parametrize("task", [Gyroscope, Stability, Negation])
def test_floors_are_those_of_the_validation_set(task: type[Generated]) -> None:
    data = task(8, **SMALL)  # type: ignore[arg-type, misc]
    assert isinstance(data, Floored)
    floors = data.floors()
    assert next(iter(floors)) in ("copy", "zero")
    loaded = made(task)
    x, y = loaded.val_set  # type: ignore[misc]
    for name, prediction in loaded.predictors(x, y).items():
        assert floors[name] == pytest.approx(float((prediction - y).square().mean()))


def test_gyroscope_turns_one_coordinate_plane_by_one_angle() -> None:
    data = made(Gyroscope, train_samples=200)
    x, y = data.train_set  # type: ignore[misc]
    assert torch.equal(x[:, 1:], y[:, :-1])
    torch.testing.assert_close(x.norm(dim=-1), torch.ones(200, 255), atol=1e-5, rtol=0)
    assert ((x != x[:, :1]).any(1).sum(-1) == 2).all()
    moved = (x != x[:, :1]).any(1)
    i, j = moved.float().argmax(-1), 15 - moved.flip(-1).float().argmax(-1)
    assert i.min() == 0
    assert i.max() == 14
    z = torch.complex(
        *(x.gather(-1, k.view(-1, 1, 1).expand(-1, 255, 1)).squeeze(-1).double() for k in (i, j))
    )
    angle = (z[:, 1:] / z[:, :-1]).angle()
    strong = z[:, 0].abs() > 0.1
    assert angle[strong].std(-1).max() < 1e-4
    assert angle[strong].mean(-1).min() >= 0.1
    assert angle[strong].mean(-1).max() <= 2.5


def test_gyroscope_floors_are_the_published_ones() -> None:
    floors = Gyroscope().floors()
    assert floors["copy"] == pytest.approx(12.4e-3, rel=0.05)
    assert floors["bayes"] == pytest.approx(0.0455e-3, rel=0.06)


def test_the_mean_rotation_is_the_mean_of_rotations() -> None:
    data = Gyroscope(dim=4, time=2, train_samples=1, val_samples=40_000, batch_size=1)
    x, y = data.test_data()
    fitted = torch.linalg.lstsq(x[:, 0].double(), y[:, 0].double()).solution.T
    torch.testing.assert_close(fitted, data.mean_rotation(), atol=0.02, rtol=0)


def test_stability_floors_are_the_published_ones() -> None:
    floors = Stability().floors()
    assert floors["copy"] == pytest.approx(2.0e-6, rel=0.02)
    assert floors["running_mean"] == pytest.approx(1.04e-6, rel=0.02)
    x, y = made(Stability).train_set  # type: ignore[misc]
    assert torch.equal(x[:, 1:], y[:, :-1])
    torch.testing.assert_close(x.mean(1).norm(dim=-1), torch.ones(20), atol=2e-3, rtol=0)


def test_negation() -> None:
    data = made(Negation)
    x, y = data.train_set  # type: ignore[misc]
    assert torch.equal(y, -x)
    floors = Negation(val_samples=5000).floors()
    assert floors["zero"] == pytest.approx(1, rel=0.02)
    assert floors["copy"] == pytest.approx(4, rel=0.02)
    assert floors["negate"] == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gyroscope(time=1), "time must be at least 2, got 1"),
        (lambda: Gyroscope(dim=1), "dim must be at least 2, got 1"),
        (lambda: Stability(dim=0), "dim must be at least 2, got 0"),
        (lambda: Negation(dim=1), "dim must be at least 2, got 1"),
        (lambda: Negation(train_samples=0), "train_samples must be at least 1, got 0"),
        (lambda: Stability(data_seed=-1), "data_seed must be at least 0, got -1"),
    ],
)
def test_refuses(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()
