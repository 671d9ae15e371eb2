"""Checkpoints from which a run goes on as if it had never stopped."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info

from app import logs
from app.callbacks import resumption
from app.callbacks.interruption import Interrupted, Signals
from app.callbacks.records import run_folder

STATE = "resumption"
"""Key of a checkpoint under which lies what Lightning's own checkpoints lack."""

WRITE, END = 1, 2  # what ranks ask each other for; a signal's number is added to END


class RunCheckpoint(ModelCheckpoint):
    """Lightning's checkpoint callback, except that it writes between batches only, and at signals.

    Lightning saves inside hooks: a checkpoint of the end of an epoch lacks the epoch's row in the logs, and
    one from inside an epoch is resumed with counters that are off by one. Here a save that is due waits for
    the next batch to begin, or for training to end: then everything before is done and logged, and nothing
    after has begun. Beyond Lightning's, a checkpoint has the random states of each process, what metrics have
    gathered so far in the epoch, and how far the logs had come.

    SIGTERM, Ctrl-C and SLURM's signal are noted, and acted upon at the next such moment: ``last.ckpt`` is
    written and :class:`~app.callbacks.Interrupted` raised on all ranks. A validation is finished before.

    Args:
        last_interval: seconds after which ``last.ckpt`` is written again inside an epoch, at least 0;
            0 for every batch.
        **kwargs: those of Lightning's :class:`~lightning.pytorch.callbacks.ModelCheckpoint`.

    Raises:
        ValueError: ``last_interval`` is negative.
        Interrupted: by a signal, after ``last.ckpt`` is written.
    """

    def __init__(self, last_interval: float = 300.0, **kwargs: Any) -> None:
        if not last_interval >= 0:
            raise ValueError(f"last_interval must be at least 0, got {last_interval}")
        super().__init__(**kwargs)
        self.last_interval = last_interval
        self.signals = Signals()
        self._due: list[str] = []
        self._obsolete: list[str] = []
        self._clean = False
        self._epoch_done = False
        self._written_at = time.monotonic()
        self._folder: Path | None = None
        self._group: Any = None
        self._loaded: dict[str, Any] = {}
        self._scheduled: list[Any] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Resolves the folder, on every rank."""
        super().setup(trainer, pl_module, stage)
        folder = run_folder(trainer)
        self._folder = None if folder is None else Path(folder)
        self._due, self._obsolete = [], []

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to listen for signals."""
        self.signals.listen(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores what Lightning does not, and begins to listen for signals."""
        super().on_train_start(trainer, pl_module)
        self.signals.listen(trainer)
        self._written_at = time.monotonic()
        if trainer.world_size > 1 and self._group is None:
            # Of its own and on the CPU: what ranks ask each other must not wait for a device.
            self._group = torch.distributed.new_group(backend="gloo")
        if loaded := self._loaded:
            resumption.load_positions(trainer)
            resumption.skip_recount(trainer)
            ranks = loaded["ranks"]
            if trainer.global_rank < len(ranks):
                resumption.set_random_states(ranks[trainer.global_rank]["random"])
            if trainer.world_size == len(ranks):
                resumption.set_metric_states(pl_module, ranks[trainer.global_rank]["metrics"])
            self._say_schedule(trainer)
        self._loaded = {}

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Writes what is due, unless gradients are being accumulated, which no checkpoint has."""
        if batch_idx % trainer.accumulate_grad_batches:
            return
        wanted = self._agree(trainer)
        if wanted or self._due:
            last = [self._last_path(trainer)] if wanted else []
            self._write(trainer, [*self._due, *last], epoch_done=False)
        if wanted >= END:
            self._end(trainer, wanted - END)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes what is due at the end of training."""
        super().on_train_end(trainer, pl_module)
        wanted = self._agree(trainer)
        last = [self._last_path(trainer)] if wanted >= END else []
        self._write(trainer, [*self._due, *last], epoch_done=True)
        if wanted >= END:
            self._end(trainer, wanted - END)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lets signals end an evaluation at once."""
        self._unless_fitting(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lets signals end an evaluation at once."""
        self._unless_fitting(trainer)

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lets signals end an evaluation at once."""
        self._unless_fitting(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Writes nothing: an exception strikes anywhere, and the state is that of half a step."""

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds what Lightning lacks; collective, as saving is."""
        own = {"random": resumption.random_states(), "metrics": resumption.metric_states(pl_module)}
        ranks = resumption.of_all_ranks(own)
        for logger in trainer.loggers:
            logger.save()
        reached = logs.positions(self._folder) if self._folder and trainer.is_global_zero else {}
        checkpoint[STATE] = {"ranks": ranks, "logs": reached}
        if self._clean:
            resumption.settle(checkpoint["loops"]["fit_loop"], self._epoch_done)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keeps what is restored when training starts."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._loaded = checkpoint.get(STATE, {})
            self._scheduled = [state.get("total_steps") for state in checkpoint.get("lr_schedulers", [])]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the scores; the folder may have moved with its run."""
        before, here = state_dict.get("dirpath"), self.dirpath
        if before and here and before != here:
            names = [
                Path(path).name for path in (state_dict["best_model_path"], state_dict["last_model_path"])
            ]
            if any((Path(here) / name).is_file() for name in names if name):
                state_dict = _moved(state_dict, Path(before), Path(here))
        super().load_state_dict(state_dict)

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        self._due = [*(path for path in self._due if path != filepath), filepath]
        self._last_global_step_saved = trainer.global_step
        self._last_checkpoint_saved = filepath

    def _remove_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        self._obsolete.append(filepath)  # only once what takes its place is written

    def _last_path(self, trainer: Trainer) -> str:
        path = self.format_checkpoint_name(self._monitor_candidates(trainer), self.CHECKPOINT_NAME_LAST)
        self.last_model_path = path
        return path

    def _write(self, trainer: Trainer, paths: list[str], epoch_done: bool) -> None:
        self._clean, self._epoch_done = True, epoch_done
        try:
            for path in dict.fromkeys(paths):
                trainer.save_checkpoint(path, self.save_weights_only)
        finally:
            self._clean = False
        for path in self._obsolete:
            super()._remove_checkpoint(trainer, path)
        self._due, self._obsolete = [], []
        self._written_at = time.monotonic()

    def _agree(self, trainer: Trainer) -> int:
        """What any rank wants, on all ranks: 0, to write, or to end by a signal."""
        own = END + self.signals.pending if self.signals.pending else 0
        due = self.save_last and time.monotonic() - self._written_at >= self.last_interval
        if not own and due and trainer.global_step > 0:
            own = WRITE
        if self._group is None:
            return own
        wanted = torch.tensor(own)
        torch.distributed.all_reduce(wanted, torch.distributed.ReduceOp.MAX, group=self._group)
        return int(wanted)

    def _end(self, trainer: Trainer, signum: int) -> None:
        self.signals.pending = signum
        if trainer.is_global_zero:
            self.signals.requeue()
        raise Interrupted(signum, f" at step {trainer.global_step}: go on with --ckpt_path last")

    def _unless_fitting(self, trainer: Trainer) -> None:
        if trainer.state.fn != TrainerFn.FITTING:
            self.signals.end_at_once()

    def _say_schedule(self, trainer: Trainer) -> None:
        for before, config in zip(self._scheduled, trainer.lr_scheduler_configs, strict=False):
            now = vars(config.scheduler).get("total_steps")
            if before is not None and now is not None and before != now:
                rate = config.scheduler.get_last_lr()[0]
                rank_zero_info(
                    f"the schedule is now that of {now} steps, not {before}: "
                    f"at step {trainer.global_step} the learning rate is {rate:.3g}"
                )


def _moved(state: dict[str, Any], before: Path, here: Path) -> dict[str, Any]:
    """The state of a callback whose folder was ``before`` and is ``here``."""

    def path(old: str) -> str:
        return str(here / Path(old).name) if old and Path(old).parent == before else old

    paths = ("best_model_path", "kth_best_model_path", "last_model_path")
    moved = {key: path(value) if key in paths else value for key, value in state.items()}
    best = {path(old): score for old, score in state.get("best_k_models", {}).items()}
    return {**moved, "best_k_models": best, "dirpath": str(here)}
