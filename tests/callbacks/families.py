"""A small network of each family with its task: seconds to train, every part as in the large ones."""

from collections.abc import Callable

import lightning.pytorch as pl
import torch

from app import networks
from app.modules import Classification, Constant, Regression
from datamodules import Digits, Gyroscope
from datamodules.products import PairProduct

Made = tuple[pl.LightningModule, pl.LightningDataModule]


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3)


def z_plane() -> Made:
    network = networks.RetractedZPlaneMLP((1, 8, 8), 10, depth=6, width=32, mixing="complex")
    return Classification(network, 10, optimizer=adam, schedule=Constant), Digits(batch_size=128)


def sigma_pi() -> Made:
    data = PairProduct(train_samples=1000, val_samples=200, batch_size=100)
    return Regression(
        networks.SigmaPiMLP((4,), 1, depth=2, width=16), optimizer=adam, schedule=Constant
    ), data


def sigma_pi_cnn() -> Made:
    network = networks.SigmaPiCNN((1, 8, 8), 10, depth=2, width=8, bilinear_rank=2)
    return Classification(network, 10, optimizer=adam, schedule=Constant), Digits(batch_size=128)


def edelta() -> Made:
    data = Gyroscope(time=12, dim=8, train_samples=320, val_samples=32, batch_size=32)
    network = networks.EDelta((12, 8), 8, depth=1, width=16, heads=2)
    return Regression(network, optimizer=adam, schedule=Constant), data


FAMILIES: dict[str, Callable[[], Made]] = {
    "z_plane": z_plane,
    "sigma_pi": sigma_pi,
    "sigma_pi_cnn": sigma_pi_cnn,
    "edelta": edelta,
}
