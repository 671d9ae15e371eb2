"""What looking costs: the same fit with and without the dashboard, in alternating pairs.

    export PYTHONPATH=. OMP_NUM_THREADS=1
    python docs/benchmarks/diagnostics.py z_plane --root DATA   # five epochs of 100 layers on MNIST
    python docs/benchmarks/diagnostics.py edelta                # 600 steps of the small E∆ on stability

Each pair fits twice from the same seed, once with the dashboard and once without any callback that looks, in
turns which of the two comes first; figures included, at the default cadence. Both write to the same loggers.
The clock counts processor time from the start of training to its end, with one thread. Printed are the ratio
of each pair and the median. ``--pairs`` and ``--epochs`` make it shorter.
"""

import argparse
import gc
import statistics
import tempfile
import time
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from app.callbacks import Dashboard
from app.cli import build
from app.quiet import silence

TASKS = {
    "z_plane": ("z_plane_mnist", (), 5),
    "edelta": ("edelta_stability", (), 43),  # 14 steps an epoch: 602
}


class Clock(pl.Callback):
    """Seconds of processor time of all threads, validations included: others' load does not count."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Starts."""
        self.start = time.process_time()

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stops."""
        self.seconds = time.process_time() - self.start


def seconds(task: str, looking: bool, epochs: int, root: str) -> float:
    """Time of one fit."""
    config, overrides, _ = TASKS[task]
    given = [f"--data.init_args.root={root}"] if task == "z_plane" else []
    pl.seed_everything(42, verbose=False)
    module, data = build(config, *overrides, *given)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            gradient_clip_val=1.0,
            log_every_n_steps=10,
            use_distributed_sampler=False,
            callbacks=[Dashboard(), clock] if looking else [clock],
            logger=[TensorBoardLogger(folder, default_hp_metric=False), CSVLogger(folder)],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            default_root_dir=folder,
        )
        trainer.fit(module, data)
    gc.collect()
    return clock.seconds


def main() -> None:
    """Runs the pairs and prints their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="fewer than the full size")
    parser.add_argument("--root", default="data", help="where MNIST lies")
    asked = parser.parse_args()
    silence()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    epochs = asked.epochs or TASKS[asked.task][2]
    ratios = []
    for pair in range(asked.pairs):
        order = (False, True) if pair % 2 else (True, False)
        took = {looking: seconds(asked.task, looking, epochs, asked.root) for looking in order}
        ratios.append(took[True] / took[False])
        print(
            f"pair {pair}: {took[True]:.1f} s with, {took[False]:.1f} s without, {ratios[-1]:.3f}", flush=True
        )
    print(
        f"{asked.task}, {epochs} epochs: median ratio of {asked.pairs} pairs {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
