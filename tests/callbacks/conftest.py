"""A small module with Diagnosable layers, dropout and BatchNorm, and data in memory."""

import warnings

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES, SAMPLES = 8, 3, 66


class PlaneLayer(nn.Module):
    """Linear map and tanh: says something of every shape that a diagnostic may have."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x))

    def diagnostics(self, *inputs: Tensor) -> dict[str, Tensor]:
        y = self(inputs[0])
        return {
            "bounded_fraction": (y.abs() > 0.5).float().mean(),
            "participation_ratio": y.pow(2).mean(0).sum(),
            "spectral_norm": torch.linalg.matrix_norm(self.linear.weight, 2),
            "radius": y.norm(dim=-1),
            "phasors": torch.stack(y.chunk(2, -1), -1).flatten(0, 1),
        }


class Network(nn.Module):
    def __init__(self, depth: int = 3, width: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, width)
        self.norm = nn.BatchNorm1d(width)
        self.layers = nn.Sequential(*(PlaneLayer(width) for _ in range(depth)))
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.layers(self.norm(self.encoder(x)))))


class Classifier(pl.LightningModule):
    def __init__(self, network: nn.Module, lr: float = 1e-2) -> None:
        super().__init__()
        self.network = network
        self.lr = lr

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def _loss(self, batch: tuple[Tensor, Tensor], name: str) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log(f"{name}/loss", loss, sync_dist=name != "train")
        return loss

    def training_step(self, batch, batch_idx):
        return self._loss(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._loss(batch, "val")

    def test_step(self, batch, batch_idx):
        self._loss(batch, "test")

    def predict_step(self, batch, batch_idx):
        return self(batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def dataset(samples: int = SAMPLES) -> TensorDataset:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(samples, FEATURES, generator=draw)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long())


class Data(pl.LightningDataModule):
    def __init__(self) -> None:
        super().__init__()
        self.seed = 7

    def train_dataloader(self):
        return DataLoader(dataset(), batch_size=11, shuffle=True)

    def val_dataloader(self):
        return DataLoader(dataset(), batch_size=32)

    test_dataloader = predict_dataloader = val_dataloader


@pytest.fixture
def make_module():
    def make(seed: int = 0, **kwargs) -> Classifier:
        torch.manual_seed(seed)
        return Classifier(Network(**kwargs))

    return make


@pytest.fixture
def make_trainer(tmp_path):
    def make(callbacks=(), **kwargs) -> pl.Trainer:
        settings = {
            "accelerator": "cpu",
            "logger": False,
            "max_steps": 50,
            "max_epochs": -1,
            "log_every_n_steps": 7,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
            "default_root_dir": tmp_path,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pl.Trainer(callbacks=list(callbacks), **{**settings, **kwargs})

    return make


@pytest.fixture
def data() -> Data:
    return Data()
