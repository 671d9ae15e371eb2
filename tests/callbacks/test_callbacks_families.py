"""Every family with all callbacks: nothing changes, and the tags do not tell how it was run."""

import pytest
import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from app.callbacks import Dashboard
from tests.callbacks.families import FAMILIES

SETTINGS = {"plain": {}, "accumulate": {"accumulate_grad_batches": 2}, "bf16": {"precision": "bf16-mixed"}}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_bitwise_equal_with_and_without(make_trainer, tmp_path, family, settings):
    ends = []
    for chosen in ([], [Dashboard()]):
        seed_everything(3, verbose=False)
        module, data = FAMILIES[family]()
        logger = TensorBoardLogger(tmp_path, name=f"run{len(ends)}") if chosen else False
        trainer = make_trainer(chosen, logger=logger, max_steps=50, **SETTINGS[settings])
        trainer.fit(module, data)
        assert trainer.global_step == 50
        ends.append((module.state_dict(), torch.rand(4)))
    for name, value in ends[0][0].items():
        assert torch.equal(value, ends[1][0][name]), name
    assert torch.equal(ends[0][1], ends[1][1])


@pytest.mark.parametrize("family", FAMILIES)
def test_tags_are_the_same_compiled_and_eager(make_trainer, tmp_path, family):
    tags = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module, data = FAMILIES[family]()
        if compiled:
            module.network.compile(backend="eager")
        logger = TensorBoardLogger(tmp_path, name="run", version=str(compiled))
        make_trainer([Dashboard()], logger=logger, max_steps=6, limit_train_batches=3).fit(module, data)
        events = EventAccumulator(str(tmp_path / "run" / str(compiled)))
        events.Reload()
        found = events.Tags()
        tags.append({kind: sorted(found[kind]) for kind in ("scalars", "histograms", "images", "tensors")})
    assert tags[0] == tags[1]
    histogram = {"z_plane": "radius", "edelta": "gamma"}.get(family, "exponents")
    assert any(tag.startswith(f"diagnostics/{histogram}/") for tag in tags[0]["histograms"])
    figures = {
        "z_plane": {"bounded_fraction", "phasors", "weight_gradient_norm"},
        "edelta": {"gamma_mean", "eigenvalues", "rollout_norm", "weight_gradient_norm"},
    }.get(family, {"pi_share", "nonlinear_share"})
    assert {f"figures/{name}" for name in figures} <= set(tags[0]["images"])
