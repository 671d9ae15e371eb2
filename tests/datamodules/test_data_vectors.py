"""The tasks on vectors: what they say they are, and what predictors without a network reach."""

import math

import pytest
import torch

from app.protocols import Floored, UnitNormed
from datamodules import Correction, Gyroscope, NearPi, Negation, Reflection, Stability
from datamodules.sequences import Generated, UnitSequences, generator

TASKS = [Gyroscope, Stability, NearPi, Correction, Negation, Reflection]
SMALL = {"train_samples": 20, "val_samples": 10}


def made(task: type[Generated], **arguments: int) -> Generated:
    data = task(**({"batch_size": 8} | SMALL | arguments))  # type: ignore[arg-type]
    data.setup()
    return data


@pytest.mark.parametrize("task", TASKS)
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


@pytest.mark.parametrize("task", TASKS)
def test_floors_are_those_of_the_validation_set(task: type[Generated]) -> None:
    data = task(8, **SMALL)  # type: ignore[arg-type, misc]
    assert isinstance(data, Floored)
    floors = data.floors()
    assert next(iter(floors)) in ("copy", "zero", "negate")
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
    expected = 1e-6 * (1 + 63 / 64 * sum(1 / t for t in range(1, 128)) / 127)  # 63 directions are unknown
    many = Stability(val_samples=300).floors()
    assert many["bayes"] == pytest.approx(expected, rel=5e-3)
    assert many["bayes"] < many["running_mean"] * (1 - 4e-4)
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


@pytest.mark.parametrize(("angle", "planes"), [(3.10, 1), (3.14, 32), (math.pi, 3), (1.0, 2)])
def test_near_pi_is_one_rotation_of_the_first_planes(angle: float, planes: int) -> None:
    data = made(NearPi, angle=angle, planes=planes)  # type: ignore[arg-type]
    x, y = data.train_set  # type: ignore[misc]
    assert torch.equal(x[:, 1:], y[:, :-1])
    plane = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )
    rotation = torch.block_diag(*[plane] * planes, torch.eye(64 - 2 * planes, dtype=torch.float64))
    torch.testing.assert_close(y.double(), x.double() @ rotation.T, atol=5e-7, rtol=0)
    floors = data.floors()
    assert list(floors) == ["negate", "copy", "rotate"]
    assert floors["rotate"] == 0
    if angle == math.pi:
        assert floors["negate"] == 0  # exactly, at every multiple
    else:
        expected = 2 * (1 + math.cos(angle)) * 2 * planes / 64**2
        many = NearPi(angle=angle, planes=planes, time=8, val_samples=4000).floors()
        assert many["negate"] == pytest.approx(expected, rel=0.05)


def test_correction_turns_a_concept_round_at_the_signal() -> None:
    data = made(Correction, train_samples=400)
    x, y = data.train_set  # type: ignore[misc]
    at = x[..., 0] > 2.5
    assert (at.sum(-1) == 1).all()
    position = at.float().argmax(-1)
    assert sorted(set(position.tolist())) == list(range(8, 24))
    torch.testing.assert_close(y.norm(dim=-1), torch.ones(400, 32), atol=1e-5, rtol=0)
    before = torch.arange(32) < position.unsqueeze(-1)
    concept = x[:, :1]
    assert torch.equal(y, torch.where(before.unsqueeze(-1), concept, -concept))
    assert torch.equal(x[~at], y[~at])
    assert (x[at][:, 0] == 5).all()
    assert x[at][:, 1:4].std().item() == pytest.approx(0.1, rel=0.1)
    assert (x[at][:, 4:] == 0).all()
    floors = data.floors()
    assert floors["correct"] == 0
    # ‖signal + c‖² = 25 + 1 + 0.03 and a cross term of mean 0, at one of 32 positions of 32 numbers.
    assert Correction(val_samples=5000).floors()["copy"] == pytest.approx(26.03 / 1024, rel=0.03)


def test_reflection_has_one_hidden_normal_for_all_parts() -> None:
    data = made(Reflection, train_samples=100)
    (x, y), (val_x, val_y) = data.train_set, data.val_set  # type: ignore[misc]
    fitted = torch.linalg.lstsq(x.double(), y.double()).solution
    torch.testing.assert_close(val_x.double() @ fitted, val_y.double(), atol=1e-4, rtol=0)
    values = torch.linalg.eigvalsh(fitted)
    torch.testing.assert_close(values[0], torch.tensor(-1.0).double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(values[1:], torch.ones(63).double(), atol=1e-5, rtol=0)
    floors = Reflection(val_samples=5000).floors()
    assert floors["copy"] == pytest.approx(4 / 64, rel=0.06)
    assert floors["zero"] == pytest.approx(1, rel=0.02)
    assert floors["negate"] == pytest.approx(4 - 4 / 64, rel=0.02)
    assert floors["reflect"] == 0


@pytest.mark.parametrize("task", [Gyroscope, Stability, NearPi, Correction])
def test_norms_are_probed_on_fresh_vectors_and_on_echoes(task: type[UnitSequences]) -> None:
    data = task(8, **SMALL)  # type: ignore[arg-type, call-arg, misc]
    assert isinstance(data, UnitNormed)
    probes = data.norm_probes()
    time, dim = data.input_shape
    start = probes.pop("start")
    assert start.shape == (8, time, dim)
    assert not torch.equal(start, data.draw(8, generator(data.data_seed, 2))[0])  # of neither split
    assert list(probes) == ["fresh", "echo"]
    for x in probes.values():
        assert x.shape == (50, min(100, time), dim)
        torch.testing.assert_close(x.norm(dim=-1), torch.ones(x.shape[:2]), atol=4e-3, rtol=0)
    together = {name: x.mean(1).norm(dim=-1).mean().item() for name, x in probes.items()}
    assert together["fresh"] < 0.3
    assert together["echo"] == pytest.approx(1, abs=1e-3)
    assert not torch.equal(probes["echo"][:, 0], probes["echo"][:, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gyroscope(time=1), "time must be at least 2, got 1"),
        (lambda: Gyroscope(dim=1), "dim must be at least 2, got 1"),
        (lambda: Stability(dim=0), "dim must be at least 2, got 0"),
        (lambda: NearPi(angle=0.0), "angle must be above 0 and at most π, got 0.0"),
        (lambda: NearPi(angle=3.2), "angle must be above 0 and at most π, got 3.2"),
        (lambda: NearPi(planes=33), "planes must be at least 1 and at most 32, half of dim, got 33"),
        (lambda: Correction(dim=3), "dim must be at least 4, got 3"),
        (lambda: Correction(time=3), "time must be at least 4, got 3"),
        (lambda: Reflection(dim=1), "dim must be at least 2, got 1"),
        (lambda: Negation(dim=1), "dim must be at least 2, got 1"),
        (lambda: Negation(train_samples=0), "train_samples must be at least 1, got 0"),
        (lambda: Stability(data_seed=-1), "data_seed must be at least 0, got -1"),
    ],
)
def test_refuses(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("task", TASKS)
def test_fresh_training_data_depend_on_data_seed_and_epoch_alone(task: type[Generated]) -> None:
    def epochs(data: Generated) -> list[list[torch.Tensor]]:
        loader = data.train_dataloader()
        drawn = []
        for epoch in (0, 1):
            loader.set_epoch(epoch)  # type: ignore[attr-defined]
            drawn.append([x for x, _ in loader])
        return drawn

    plain, first, again = made(task), made(task, fresh=True), made(task, fresh=True)
    zero, one = (torch.cat(parts) for parts in epochs(first))
    assert torch.equal(one, torch.cat(epochs(again)[1]))
    assert not (zero.flatten(1).unsqueeze(1) == one.flatten(1)).all(-1).any()
    assert not torch.equal(one, torch.cat(epochs(made(task, fresh=True, data_seed=7))[1]))
    assert torch.equal(plain.val_set[0], first.val_set[0])  # type: ignore[index]
    # Inside an epoch: the same samples go on where they were.
    loader = again.train_dataloader()
    loader.set_epoch(1)  # type: ignore[attr-defined]
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()  # type: ignore[attr-defined]
    resumed = made(task, fresh=True).train_dataloader()
    resumed.load_state_dict(state)  # type: ignore[attr-defined]
    resumed.set_epoch(1)  # type: ignore[attr-defined]
    rest = list(resumed)
    assert len(rest) == 1
    assert torch.equal(rest[0][0], next(batches)[0])
