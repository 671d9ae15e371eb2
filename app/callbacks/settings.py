"""A run's row in TensorBoard's HParams tab."""

from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer
from tensorboard.plugins.hparams.metadata import SESSION_START_INFO_TAG
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

Setting = bool | int | float | str

FOLDER = "hparams"
PER_STEP = ("batch_loss", "lr", "penalty")


class Summary:
    """Writes the settings at once, and the metrics when there are some.

    Args:
        folder: the run's folder, in which a sub-run is made.
        settings: the columns.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Setting]) -> None:
        self._folder = Path(folder) / FOLDER
        for earlier in self._folder.glob("events.out.tfevents.*"):
            earlier.unlink()  # of the fit that this one resumes: a run has one row
        self._writer = SummaryWriter(str(self._folder))
        # Only the session is written. An experiment's summary would fix the columns to those of one run.
        _, session, _ = hparams(dict(settings) or {"settings": "default"}, {})  # type: ignore[no-untyped-call]
        assert session.value[0].tag == SESSION_START_INFO_TAG
        self._writer._get_file_writer().add_summary(session)  # type: ignore[no-untyped-call]
        self._writer.flush()

    def finish(self, metrics: Mapping[str, Tensor], step: int) -> None:
        """Adds ``final/<stage>/<metric>`` for each metric, but those that are of a single batch."""
        for name, value in metrics.items():
            if name.rpartition("/")[2] not in PER_STEP and not name.endswith(("_step", "_epoch")):
                self._writer.add_scalar(f"final/{name}", float(value), step)
        self._writer.flush()

    def flush(self) -> None:
        """Makes sure that all of it is in the file."""
        self._writer.flush()


def scalars(trainer: Trainer, module: LightningModule) -> dict[str, Setting]:
    """The hyper-parameters of module and datamodule that are plain; nested ones with a dot in their name."""
    found: dict[str, Setting] = {}
    data = trainer.datamodule  # type: ignore[attr-defined]
    for part in (module, data) if data is not None else (module,):
        _flatten(part.hparams, "", found)
    return found


def _flatten(settings: Mapping[str, object], prefix: str, found: dict[str, Setting]) -> None:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{prefix}{name}.", found)
        elif isinstance(value, (bool, int, float, str)) and not str(name).startswith("_"):
            found[f"{prefix}{name}"] = value
