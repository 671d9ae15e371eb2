"""A run that was cut off and resumed is, bit for bit, the run that was not."""

import pytest

from app.modules import Classification
from tests.fingerprints import events, fingerprint

SMALL = "--model.init_args.network.init_args.depth=3 --model.init_args.network.init_args.width=16"
QUIET = "--trainer.accelerator=cpu --trainer.enable_progress_bar=false --trainer.enable_model_summary=false"
FIT = f"fit --config z_plane_digits {QUIET} {SMALL} --trainer.max_epochs=3 --checkpoint.last_interval=0"
# 20 batches an epoch


def cut(monkeypatch, step: str, times: int) -> None:
    """Lets a step of the module fail the given time that it is called."""
    whole, calls = getattr(Classification, step), 0

    def failing(self, *args):
        nonlocal calls
        calls += 1
        if calls == times:
            raise RuntimeError("cut off")
        return whole(self, *args)

    monkeypatch.setattr(Classification, step, failing)


@pytest.mark.parametrize(
    ("step", "times", "options"),
    [
        ("training_step", 2, ""),
        ("training_step", 27, ""),
        ("training_step", 41, ""),
        ("validation_step", 6, ""),
        ("test_step", 3, ""),
        ("training_step", 27, "--checkpoint.last_interval=1000"),
        ("training_step", 37, "--trainer.val_check_interval=5"),
        ("training_step", 36, "--trainer.val_check_interval=5"),
        ("training_step", 38, "--trainer.accumulate_grad_batches=3"),
        ("training_step", 40, "--trainer.max_steps=50 --trainer.max_epochs=10"),
        ("training_step", 40, "--trainer.check_val_every_n_epoch=2"),
    ],
)
def test_cut_off_and_resumed(run, workspace, monkeypatch, step, times, options):
    code, _, err = run(f"{FIT} {options} --experiment=whole")
    assert code == 0, err
    with monkeypatch.context() as patch:
        cut(patch, step, times)
        code, _, err = run(f"{FIT} {options} --experiment=cut")
        assert code == 1
        assert "cut off" in err
    code, out, err = run(f"{FIT} {options} --experiment=cut --ckpt_path=last")
    assert code == 0, err
    assert "runs/cut/version_0 goes on at step" in out
    assert [path.name for path in (workspace / "runs/cut").iterdir()] == ["version_0"]
    whole, resumed = workspace / "runs/whole/version_0", workspace / "runs/cut/version_0"
    assert (resumed / "metrics.csv").read_text() == (whole / "metrics.csv").read_text()
    assert events(resumed) == events(whole)
    assert fingerprint(resumed) == fingerprint(whole)
