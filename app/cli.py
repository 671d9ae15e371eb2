"""The command line: Lightning's, with shipped configs, sizes taken from the data and one folder a run."""

from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, RichProgressBar
from lightning.pytorch.callbacks.progress.rich_progress import RichProgressBarTheme
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.model_helpers import is_overridden

from app import checks, configs, hparams, logs, results, runs, sizes
from app.callbacks import Dashboard, NonFiniteError
from app.callbacks.checkpoint import STATE, RunCheckpoint
from app.checkpoint_io import AtomicCheckpointIO, CheckpointError
from app.errors import Mistake, RunFailed, explain, one_line
from app.ranks import RankDied, Watch

EXAMPLES = {
    "fit": "python -m app fit --config z_plane_digits --trainer.max_epochs=5",
    "validate": "python -m app validate --config z_plane_digits --ckpt_path best",
    "test": "python -m app test --config z_plane_digits --ckpt_path last",
    "predict": "python -m app predict --config z_plane_digits --ckpt_path best",
}


class Parser(LightningArgumentParser):
    """A parser whose printed and saved settings are complete, and so include no other files."""

    def dump(self, cfg: Namespace, **kwargs: Any) -> str:
        """Returns the settings as text."""
        complete = cfg.clone()
        if "include" in complete:
            complete["include"] = None
        text: str = super().dump(complete, **kwargs)
        return text


class CLI(LightningCLI):
    """LightningCLI with the project's defaults; experiments are described in ``configs/``.

    Args:
        arguments: The command line, without the program's name.
        run: Whether to run the subcommand; otherwise objects are made, and no run folder.
        folder: Where the run writes; the next free one of the experiment if not given.
    """

    def __init__(self, arguments: Sequence[str], run: bool = True, folder: Path | None = None) -> None:
        if not configs.DEFAULTS.is_file():
            raise FileNotFoundError(f"the installation is incomplete: {configs.DEFAULTS} is missing")
        expanded, self.stem = configs.expand(arguments)
        self.run = run
        self.folder: Path | None = None
        self.reached: dict[str, Any] | None = None
        self.batches_before = 0
        self.given_folder = folder
        settings: dict[str, Any] = {
            "exit_on_error": False,
            "default_config_files": [str(configs.DEFAULTS)],
            "allow_abbrev": False,  # a mistyped option must not pass for another
        }
        parsers = {name: {**settings, "epilog": f"example: {example}"} for name, example in EXAMPLES.items()}
        super().__init__(
            model_class=LightningModule,
            datamodule_class=LightningDataModule,
            parser_class=Parser,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,  # ours, added below, saves settings without a folder
            auto_configure_optimizers=False,
            parser_kwargs={"exit_on_error": False, "allow_abbrev": False, **parsers},
            args=expanded,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Adds the checkpoint's settings, the run's name, and links every size to the data."""
        parser.add_lightning_class_args(RunCheckpoint, "checkpoint")
        parser.add_argument(
            "--experiment", type=str | None, help="Name of the runs' folder (default: the config's)."
        )
        parser.add_argument(
            "--include", type=list[str] | None, help="In a config file: files merged before it."
        )
        for size in sizes.SIZES:
            parser.link_arguments(("data", "model"), size.target, compute_fn=size.value)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parses the given arguments, never those of the process."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            command = self._subcommand_parsers[args[0]]
            raise Mistake(explain(str(error), [*command.get_defaults().keys(), "config"])) from error

    @property
    def settings(self) -> Namespace:
        """The parsed settings of the subcommand."""
        settings: Namespace = self.config.get(str(self.config.get("subcommand")), self.config)
        return settings

    def _parse_ckpt_path(self) -> None:
        # Lightning lets a checkpoint's settings beat the command line, silently. Here the config decides.
        path = self.settings.get("ckpt_path")
        if path in ("best", "last"):
            self.settings["ckpt_path"] = str(runs.checkpoint(self._root(), self._experiment(), path))
        elif path and not Path(path).is_file():
            raise FileNotFoundError(f"there is no checkpoint {path}")

    def _root(self) -> Path:
        return Path(self.settings.trainer.default_root_dir or "runs")

    def _experiment(self) -> str:
        return self.settings.get("experiment") or self.stem or "default"

    def instantiate_classes(self) -> None:
        """Makes all objects, with one run folder for every logger and for what is written beside them."""
        settings = self.settings
        settings.experiment = self._experiment()
        self.saved = settings.clone()
        self.saved.ckpt_path = None  # the saved settings make the run again, from its start
        checks.devices(settings)
        checks.intervals(settings)
        # Checkpoints take their hyper-parameters from the dump, which leaves out what is linked.
        self._dump_config()
        sizes.complete(self.config_dump, settings)
        home = self._check_checkpoint(settings.get("ckpt_path"))
        if self.run and not settings.trainer.get("fast_dev_run"):
            if home is not None:
                runs.check_writable(home)
            self.folder = (
                home
                or self.given_folder
                or runs.claim(self._root(), settings.experiment, str(self.subcommand))
            )
            settings.trainer.default_root_dir = str(self.folder)
            for logger in loggers(settings):
                if {"save_dir", "name", "version"} <= set(logger.init_args.keys()):
                    logger.init_args.save_dir = str(self.folder.parent.parent)
                    logger.init_args.name = self.folder.parent.name
                    logger.init_args.version = self.folder.name
        try:
            super().instantiate_classes()
        except BaseException:
            self._release()
            raise

    def _check_checkpoint(self, path: str | None) -> Path | None:
        """Refuses a checkpoint that does not go with the settings; returns the run folder to go on in."""
        if not path:
            return None
        state, model = checks.checkpoint(path), self.config_dump["model"]
        if self.subcommand != "fit":
            checks.evaluated(path, state, model)
            return None
        checks.continued(path, state, model)
        batches = state["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]
        self.batches_before = batches["completed"]
        home = runs.home(Path(path))
        if home is None:
            return None
        before = yaml.safe_load((home / runs.CONFIG).read_text())
        now = yaml.safe_load(self._parser("fit").dump(self.saved, skip_none=False))
        changed = checks.changes(before, now)
        checks.refuse(path, changed)
        self.reached = state.get(STATE, {}).get("logs")
        if rank_zero_only.rank == 0:  # type: ignore[attr-defined]  # set when Lightning is imported
            results.show_resumed(home, state["global_step"], changed)
        return home

    def _rewind(self) -> None:
        """Takes the logs of a run that goes on back to where its checkpoint was."""
        if self.reached is not None and self.folder is not None and self.trainer.is_global_zero:
            logs.rewind(self.folder, self.reached)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Makes the trainer, with the callback that saves the settings."""
        trainer: Any = super().instantiate_trainer(**kwargs)
        if self.folder is not None:
            trainer.callbacks.append(
                SaveConfigCallback(self._parser(self.subcommand), self.saved, overwrite=True)
            )
        for callback in trainer.callbacks:
            if isinstance(callback, Dashboard) and callback.settings is None:
                defaults = self._parser(self.subcommand).get_defaults()
                callback.settings = hparams.differing(self.saved, defaults)
        bar = trainer.progress_bar_callback
        if isinstance(bar, RichProgressBar) and bar.theme == RichProgressBarTheme():
            bar.theme = RichProgressBarTheme(metrics_format=".3g")  # by default a loss of 3e-6 reads 0.000
        checks.monitors(trainer, self.model)
        made: Trainer = trainer
        return made

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        # The checkpoint's settings make a callback, which Lightning would refuse where none is wanted.
        given = config["plugins"] or []
        plugins = [*given] if isinstance(given, list) else [given]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(AtomicCheckpointIO())
        config["plugins"] = plugins
        return super()._instantiate_trainer(
            config, [] if config["enable_checkpointing"] is False else callbacks
        )

    def _run_subcommand(self, subcommand: str) -> None:
        if not self.run:
            return
        self._rewind()
        try:
            with Watch(self.trainer):
                super()._run_subcommand(subcommand)
        except Exception as error:
            began = self.trainer.fit_loop.epoch_loop.batch_progress.total.completed > self.batches_before
            if began or isinstance(error, (NonFiniteError, CheckpointError, RankDied)):
                raise RunFailed(one_line(error)) from error
            raise
        except SystemExit:
            if self.trainer.interrupted:  # Lightning leaves with 1
                raise KeyboardInterrupt from None
            raise
        finally:
            self._release()

    def _release(self) -> None:
        if self.folder is not None:
            runs.release(self.folder)

    def after_fit(self) -> None:
        """Tests the best checkpoint, and prints what came out and where to look at it."""
        trainer = self.trainer
        if trainer.interrupted:
            return
        fitted = dict(trainer.callback_metrics)
        if is_overridden("test_step", self.model) and is_overridden("test_dataloader", self.datamodule):
            kept = trainer.checkpoint_callback
            best = kept.best_model_path if isinstance(kept, ModelCheckpoint) else ""
            trainer.test(self.model, datamodule=self.datamodule, ckpt_path=best or None, verbose=False)
        if trainer.is_global_zero:
            results.show({**fitted, **trainer.callback_metrics}, self.folder)


def loggers(settings: Namespace) -> list[Namespace]:
    """Returns the settings of the loggers, of which there may be none, one or many."""
    chosen = settings.trainer.logger
    if isinstance(chosen, bool) or chosen is None:
        return []
    return list(chosen) if isinstance(chosen, list) else [chosen]


def build(config: str, *overrides: str) -> tuple[LightningModule, LightningDataModule]:
    """Returns the module and the datamodule of an experiment, without training and without a run folder.

    Args:
        config: A config file or the name of a shipped one.
        overrides: As on the command line.

    Example:
        >>> module, data = build("z_plane_digits", "--model.init_args.network.init_args.depth=10")
    """
    cli = CLI(["fit", "--config", config, *overrides], run=False)
    return cli.model, cli.datamodule
