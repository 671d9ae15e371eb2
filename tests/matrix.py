"""Ten steps of every shipped model, and a test of its weights, on one rank or on two.

    python -m tests.matrix 1 FOLDER
    python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.matrix 2 FOLDER

What comes out lies in FOLDER/<ranks>.pt: weights before and after, test metrics of the one-rank weights.
"""

import sys
import traceback
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from app.cli import build
from tests.test_configs import ARITHMETIC, MODELS, partner, text_of

STEPS = 10


def sizes(name: str) -> list[str]:
    """Small sizes that the model takes; those of vectors are small as they are."""
    if "probe" in name or name in ARITHMETIC:
        return []
    width = 8 if "cnn" in name else 32 if "Regression" in text_of(name) else 16
    return [f"--model.init_args.network.init_args.{size}" for size in ("depth=3", f"width={width}")]


def trainer(ranks: int, steps: int) -> pl.Trainer:
    return pl.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_steps=steps,
        use_distributed_sampler=False, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=0, gradient_clip_val=1.0,
    )  # fmt: skip


def run(name: str, ranks: int, folder: Path) -> dict[str, Any]:
    config, *rest = partner(name).removeprefix("--config ").split()
    # Where a gradient is nearly zero, Adam would make steps of its rounding.
    settled = ("--model.init_args.optimizer.init_args.eps=1e-6", "--data.init_args.batch_size=16")
    module, data = build(name, f"--config={config}", *rest, *sizes(name), *settled)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    fit = trainer(ranks, STEPS)
    fit.fit(module, data)
    after = {key: value.clone() for key, value in module.state_dict().items()}
    alone = folder / "1.pt"
    if ranks > 1 and alone.is_file():
        module.load_state_dict(torch.load(alone, weights_only=True)[name]["after"])
    metrics = trainer(ranks, 1).test(module, data, verbose=False)[0]
    return {"before": before, "after": after, "metrics": metrics, "steps": fit.global_step}


def main() -> None:
    ranks, folder = int(sys.argv[1]), Path(sys.argv[2])
    found: dict[str, Any] = {}
    for name in MODELS:
        try:
            found[name] = run(name, ranks, folder)
        except Exception:
            found[name] = {"error": traceback.format_exc(limit=-4)}
    if pl.utilities.rank_zero_only.rank == 0:
        torch.save(found, folder / f"{ranks}.pt")


if __name__ == "__main__":
    main()
