"""LightningModules: a network, a loss, an optimizer and a schedule."""

from app.modules.base import NetworkModule
from app.modules.classification import Classification
from app.modules.regression import Regression
from app.modules.schedules import Constant, WarmupCosine

__all__ = [
    "Classification",
    "Constant",
    "NetworkModule",
    "Regression",
    "WarmupCosine",
]
