"""All callbacks on two ranks, under a hard time limit."""

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from app.callbacks import read_diagnostics
from tests.processes import run_limited

SCRIPT = '''
import sys
import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader, Subset

sys.path.insert(0, sys.argv[2])
from conftest import Classifier, Network, dataset
import app.callbacks as callbacks


class Dealt(pl.LightningDataModule):
    """Rank r of W has the samples r, r + W ..., without padding; rank 0 has one more."""

    def loader(self, samples, size):
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        return DataLoader(Subset(dataset(samples), range(rank, samples, ranks)), batch_size=size)

    def train_dataloader(self):
        return self.loader(40, 5)

    def val_dataloader(self):
        return self.loader(33, 17)

    test_dataloader = predict_dataloader = val_dataloader


def main():
    every = [getattr(callbacks, n)() for n in callbacks.__all__ if n[0].isupper() and "Error" not in n]
    torch.manual_seed(0)
    module, data = Classifier(Network()), Dealt()
    loggers = [TensorBoardLogger(sys.argv[1], name="run", version="v"), CSVLogger(sys.argv[1], "run", "v")]
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=loggers, callbacks=every,
        use_distributed_sampler=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, log_every_n_steps=3, default_root_dir=sys.argv[1],
    )
    trainer.fit(module, data)
    trainer.validate(module, data, verbose=False)
    trainer.test(module, data, verbose=False)
    trainer.predict(module, data, return_predictions=False)
    if trainer.is_global_zero:
        torch.save(module.state_dict(), sys.argv[1] + "/weights.pt")


if __name__ == "__main__":
    main()
'''


def test_all_callbacks_on_two_ranks(tmp_path):
    script = tmp_path / "two_ranks.py"
    script.write_text(SCRIPT)
    code, output = run_limited(
        [sys.executable, str(script), str(tmp_path), str(Path(__file__).parent)], 240, tmp_path
    )
    assert code == 0, output[-3000:]
    folder = tmp_path / "run" / "v"
    assert (folder / "environment.json").is_file()
    table = read_diagnostics(folder)
    assert set(table["stage"]) == {"fit", "validate", "test"}
    mask = table["metric"] == "diagnostics/spectral_norm"
    assert set(table["layer"][mask]) == {f"network.layers.{index:03d}" for index in range(3)}
    once = mask & (table["stage"] == "fit") & (table["layer"] == "network.layers.000")
    assert table["step"][once].tolist() == [0, 4, 8]  # written by one rank alone

    from tests.callbacks.conftest import Classifier, Network, dataset

    module = Classifier(Network())
    module.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    with (folder / "predictions.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    assert [int(row[0]) for row in rows] == list(range(33))
    with torch.no_grad():
        expected = module.eval()(dataset(33).tensors[0])
    np.testing.assert_allclose(np.array(rows, dtype=float)[:, 1:], expected, atol=1e-6)
