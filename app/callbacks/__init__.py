"""Callbacks: what is seen while a network trains. They know app.protocols only."""

from app.callbacks.dashboard import Dashboard
from app.callbacks.diagnostics import Diagnostics
from app.callbacks.environment import Environment
from app.callbacks.gradients import GradientNorms
from app.callbacks.health import HealthRules
from app.callbacks.nonfinite import NonFiniteError, NonFiniteGuard
from app.callbacks.predictions import PredictionsWriter
from app.callbacks.table import read_diagnostics

__all__ = [
    "Dashboard",
    "Diagnostics",
    "Environment",
    "GradientNorms",
    "HealthRules",
    "NonFiniteError",
    "NonFiniteGuard",
    "PredictionsWriter",
    "read_diagnostics",
]
