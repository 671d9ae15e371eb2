import warnings

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from app.callbacks import GradientNorms, HealthRules, read_diagnostics
from app.callbacks.records import Recorder, Scalar

LAYERS = 20
START = {"norm": 1.0, "bounded": 0.03, "rank": 33.0, "gradient": 0.5, "loss": 2.4}
COLLAPSED = {"norm": 1.41, "bounded": 0.71, "rank": 1.0, "gradient": 3.5e-5, "loss": 2.3}


class Played(Recorder):
    """Plays the records and losses of a run: one dictionary a validation, one validation every 10 steps."""

    def __init__(self, story):
        super().__init__()
        self.story = story

    def play(self, trainer, warner):
        for place, now in enumerate(self.story):
            now = {**START, **now}
            for _ in range(40):
                loss = torch.tensor(now["loss"] + 0.0)
                warner.on_train_batch_end(trainer, None, {"loss": loss}, None, 0)
            self.records.write(
                trainer, [Scalar("gradients/weight_norm", now["gradient"], "first")], 10 * place
            )
            layers = [
                Scalar(f"diagnostics/{metric}", now[key], f"layers.{layer:03d}")
                for metric, key in (
                    ("spectral_norm", "norm"),
                    ("bounded_fraction", "bounded"),
                    ("participation_ratio", "rank"),
                )
                for layer in range(LAYERS)
            ]
            self.records.write(trainer, layers, 10 * place)


@pytest.fixture
def play(make_trainer, make_module, tmp_path):
    def run(*story, first=True):
        warner, played = HealthRules(), Played(story)
        logger = TensorBoardLogger(tmp_path, name="run", version="v")
        trainer = make_trainer([warner, played] if first else [played, warner], logger=logger)
        trainer.state.fn = TrainerFn.FITTING
        for callback in (warner, played) if first else (played, warner):
            callback.setup(trainer, make_module(), "fit")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            played.play(trainer, warner)
        logger.experiment.flush()
        return [str(w.message) for w in caught if "silent collapse" in str(w.message)]

    return run


@pytest.mark.parametrize("first", [True, False])
def test_the_collapse_of_the_published_recipe_is_told_once(play, tmp_path, first):
    (text,) = play({}, {"loss": 0.7, "rank": 10.0}, COLLAPSED, COLLAPSED, first=first)
    assert "mean spectral norm 1 → 1.41, broke at step 20" in text
    assert "bounded fraction a tenth into the depth 0.03 → 0.71, broke at step 20" in text
    assert "participation ratio of the last layer 33 → 1, broke at step 20" in text
    assert "weight gradient of the first layer 0.5 → 3.5e-05, broke at step 20" in text
    events = EventAccumulator(str(tmp_path / "run" / "v"))
    events.Reload()
    assert events.Scalars("warnings/silent_collapse")[0].value == 1
    assert "warnings/silent_collapse/text_summary" in events.Tags()["tensors"]
    assert "warnings/silent_collapse" in set(read_diagnostics(tmp_path / "run" / "v")["metric"])


def test_it_says_which_signals_hold(play):
    (text,) = play({}, {**COLLAPSED, "norm": 1.0, "bounded": 0.1})
    assert "mean spectral norm 1 → 1, holds" in text
    assert "bounded fraction a tenth into the depth 0.03 → 0.1, holds" in text


@pytest.mark.parametrize(
    "healthy",
    [
        {"loss": 1e-4, "rank": 9.0, "gradient": 1e-6},  # everything is learnt
        {"loss": 1e-4, "rank": 1.1, "gradient": 1e-6},  # two classes, everything is learnt
        {"norm": 2.0, "bounded": 0.9, "loss": 0.5, "rank": 12.0},  # weights have grown, and it works
        {"loss": 2.4, "rank": 30.0, "gradient": 1e-3},  # slow start
        {"loss": 2.3, "rank": 1.1, "gradient": 0.4},  # a dip, with gradients to get out of it
    ],
)
def test_it_is_silent_on_healthy_runs(play, healthy):
    assert play({}, healthy, healthy) == []


def test_values_that_are_not_finite_are_no_signal(play):
    nan = float("nan")
    assert play({}, {"rank": nan, "gradient": nan, "norm": nan}) == []


def test_a_resumed_run_remembers_its_start(make_module, make_trainer, data, tmp_path):
    warner = HealthRules()
    trainer = make_trainer([GradientNorms(), warner], max_steps=6)
    trainer.fit(make_module(), data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    start = warner.state_dict()["rules"]["silent_collapse"]
    assert set(start) == {"weight gradient of the first layer"}
    resumed = HealthRules()
    trainer = make_trainer([GradientNorms(), resumed], max_steps=12)
    trainer.fit(make_module(), data, ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    assert resumed.state_dict()["rules"]["silent_collapse"] == start
