"""Stands for a user's own package: a network, a module and a datamodule that know nothing of this project."""

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class TheirNetwork(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], num_outputs: int, hidden: int = 8) -> None:
        super().__init__()
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        size = torch.Size(input_shape).numel()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, num_outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class TheirModule(pl.LightningModule):
    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)
        self.slope = slope

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        return (self(batch[0]) - self.slope * batch[1]).square().mean()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("val/loss", (self(batch[0]) - self.slope * batch[1]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class TheirData(pl.LightningDataModule):
    """A line: no sizes, no test data."""

    def __init__(self, samples: int = 32) -> None:
        super().__init__()
        x = torch.linspace(-1, 1, samples)[:, None]
        self.pairs = TensorDataset(x, x)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.pairs, 8)

    val_dataloader = train_dataloader
