import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from datamodules import CIFAR10, Digits
from tests.processes import run_limited


class Linear(pl.LightningModule):
    def __init__(self, features: int = 64) -> None:
        super().__init__()
        self.head = torch.nn.Linear(features, 10)
        self.seen: list[tuple[int, int, torch.Tensor]] = []

    def forward(self, x):
        return self.head(x.flatten(1))

    def training_step(self, batch, index):
        self.seen.append((self.current_epoch, index, batch[0].flatten(1).double().sum(1)))
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def evaluate(self, batch, name):
        # Summed, since Lightning's mean over ranks gives each rank the same weight.
        right = (self(batch[0]).argmax(1) == batch[1]).float().sum()
        self.log(f"{name}/right", right, reduce_fx="sum", sync_dist=True)
        self.log(f"{name}/count", float(len(batch[1])), reduce_fx="sum", sync_dist=True)

    def validation_step(self, batch, index):
        self.evaluate(batch, "val")

    def test_step(self, batch, index):
        self.evaluate(batch, "test")

    def predict_step(self, batch, index):
        return batch[1]

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)


def trainer(folder: Path, **arguments) -> pl.Trainer:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
    }
    return pl.Trainer(default_root_dir=folder, **{**quiet, "enable_checkpointing": False, **arguments})


def module() -> Linear:
    torch.manual_seed(0)
    return Linear()


def test_fit_validate_test_and_predict(tmp_path):
    model, data = module(), Digits(batch_size=64)
    runner = trainer(tmp_path, max_epochs=8)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(worker|sampler|dataloader).*")
        runner.fit(model, datamodule=data)
        assert data.test_set is None
        validated = runner.validate(model, datamodule=data, verbose=False)[0]
        tested = runner.test(model, datamodule=data, verbose=False)[0]
        labels = torch.cat(runner.predict(model, datamodule=data))
    assert labels.equal(data.test_set[1])
    right = model(data.scaled(data.test_set[0])).argmax(1) == labels
    assert tested == {"test/right": int(right.sum()), "test/count": 359}
    assert validated["val/count"] == 144
    assert validated["val/right"] > 115
    epochs = [torch.cat([x for epoch, _, x in model.seen if epoch == e]) for e in range(8)]
    assert all(len(x) == 1294 // 64 * 64 for x in epochs)
    assert len({float(x[0]) for x in epochs}) > 1


class Stop(Callback):
    def __init__(self, epoch: int, batch: int) -> None:
        self.at = (epoch, batch)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == self.at:
            raise KeyError("stop")


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.parametrize("steps", [7, 20, 23, 40])
def test_a_run_resumed_inside_an_epoch_is_the_uninterrupted_run(tmp_path, steps):
    # 20 batches an epoch: the checkpoint falls inside the first or second, or on the end of one.
    whole = module()
    trainer(tmp_path, max_epochs=3).fit(whole, datamodule=Digits(batch_size=64))

    saved = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=steps, save_top_k=-1)
    model = module()
    first = trainer(
        tmp_path,
        max_epochs=3,
        callbacks=[saved, Stop(steps // 20, steps % 20 + 3)],
        enable_checkpointing=True,
    )
    with pytest.raises(KeyError):
        first.fit(model, datamodule=Digits(batch_size=64))
    model = module()
    path = tmp_path / f"step={steps}.ckpt"
    torch.load(path, weights_only=True)
    trainer(tmp_path, max_epochs=3).fit(model, datamodule=Digits(batch_size=64), ckpt_path=path)
    assert [entry[:2] for entry in model.seen] == [entry[:2] for entry in whole.seen[steps:]]
    for (*_, resumed), (*_, straight) in zip(model.seen, whole.seen[steps:], strict=True):
        assert resumed.equal(straight)
    assert model.head.weight.equal(whole.head.weight)


class SaveWhenStopped(Stop):
    def on_exception(self, trainer, pl_module, exception):
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "stopped.ckpt")


def test_a_run_stopped_in_a_step_repeats_that_step(tmp_path):
    whole = module()
    trainer(tmp_path, max_epochs=2).fit(whole, datamodule=Digits(batch_size=64))
    with pytest.raises(KeyError):
        trainer(tmp_path, max_epochs=2, callbacks=[SaveWhenStopped(1, 5)]).fit(
            module(), datamodule=Digits(64)
        )
    model = module()
    trainer(tmp_path, max_epochs=2).fit(model, datamodule=Digits(64), ckpt_path=tmp_path / "stopped.ckpt")
    assert [entry[:2] for entry in model.seen] == [entry[:2] for entry in whole.seen[25:]]
    assert model.head.weight.equal(whole.head.weight)


def test_augmented_images_are_the_same_after_a_resume(tmp_path, write_cifar):
    write_cifar(tmp_path)

    def data() -> CIFAR10:
        return CIFAR10(str(tmp_path), batch_size=10, verify_checksums=False)

    def cifar() -> Linear:
        torch.manual_seed(0)
        return Linear(3072)

    whole = cifar()
    trainer(tmp_path, max_epochs=2).fit(whole, datamodule=data())
    assert not whole.seen[0][2].equal(whole.seen[9][2])
    with pytest.raises(KeyError):
        trainer(tmp_path, max_epochs=2, callbacks=[SaveWhenStopped(1, 4)]).fit(cifar(), datamodule=data())
    model = cifar()
    torch.manual_seed(1)  # a resumed process has another global random state
    trainer(tmp_path, max_epochs=2).fit(model, datamodule=data(), ckpt_path=tmp_path / "stopped.ckpt")
    assert len(model.seen) == 5
    for (*_, resumed), (*_, straight) in zip(model.seen, whole.seen[13:], strict=True):
        assert resumed.equal(straight)


def test_overfitting_repeats_the_same_batches(tmp_path):
    model = module()
    trainer(tmp_path, max_epochs=2, overfit_batches=2).fit(model, datamodule=Digits(batch_size=64))
    assert [entry[:2] for entry in model.seen] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert model.seen[0][2].equal(model.seen[2][2])


@pytest.mark.parametrize(("precision", "dtype"), [("64-true", torch.float64), ("bf16-true", torch.bfloat16)])
def test_images_come_in_the_precision_of_the_run(tmp_path, precision, dtype):
    types = []

    class Watched(Linear):
        def training_step(self, batch, index):
            types.append((batch[0].dtype, batch[1].dtype))
            return super().training_step(batch, index)

    trainer(tmp_path, max_steps=1, precision=precision).fit(Watched(), datamodule=Digits())
    assert types == [(dtype, torch.int64)]


TWO_RANKS = """
import sys
import lightning.pytorch as pl
import torch
from datamodules import Digits
from test_data_trainer import Linear

pl.seed_everything(0)
model = Linear()
runner = pl.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                    enable_model_summary=False, accelerator="cpu", devices=int(sys.argv[1]),
                    strategy=sys.argv[2])
data = Digits(batch_size=66)
runner.fit(model, datamodule=data)
tested = runner.test(model, datamodule=data, verbose=False)[0]
if runner.is_global_zero:
    print("RESULT", tested["test/count"], tested["test/right"], float(model.head.weight.double().norm()))
"""


def run_ranks(folder: Path, devices: int, strategy: str) -> list[float]:
    script = folder / "ranks.py"
    script.write_text(TWO_RANKS)
    code, output = run_limited(
        [sys.executable, str(script), str(devices), strategy], 240, folder, Path(__file__).parent
    )
    assert code == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("RESULT")]
    return [float(word) for word in line.split()[1:]]


def test_two_ranks_train_and_test_as_one(tmp_path):
    alone, shared = run_ranks(tmp_path, 1, "auto"), run_ranks(tmp_path, 2, "ddp")
    assert alone[0] == shared[0] == 359
    assert alone[1] == shared[1]
    assert alone[2] == pytest.approx(shared[2], rel=1e-5)
