"""The command line: Lightning's, with shipped configs, sizes taken from the data and one folder a run."""

from argparse import ArgumentError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.model_helpers import is_overridden

from app import checks, configs, hparams, results, runs, sizes
from app.callbacks import Dashboard, NonFiniteError
from app.errors import Mistake, RunFailed, explain, one_line

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
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
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
        checks.devices(settings)
        # Checkpoints take their hyper-parameters from the dump, which leaves out what is linked.
        self._dump_config()
        sizes.complete(self.config_dump, settings)
        if checkpoint := settings.get("ckpt_path"):
            checks.resumed(checkpoint, self.config_dump["model"], str(self.subcommand))
        if self.run and not settings.trainer.get("fast_dev_run"):
            self.folder = self.given_folder or runs.claim(
                self._root(), settings.experiment, str(self.subcommand)
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
        checks.monitors(trainer, self.model)
        made: Trainer = trainer
        return made

    def _instantiate_trainer(self, config: dict[str, Any], callbacks: list[Callback]) -> Trainer:
        # The checkpoint's settings make a callback, which Lightning would refuse where none is wanted.
        return super()._instantiate_trainer(
            config, [] if config["enable_checkpointing"] is False else callbacks
        )

    def _run_subcommand(self, subcommand: str) -> None:
        if not self.run:
            return
        try:
            super()._run_subcommand(subcommand)
        except Exception as error:
            began = self.trainer.fit_loop.epoch_loop.batch_progress.total.completed > 0
            if began or isinstance(error, NonFiniteError):
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
