"""What a fit prints when it ends."""

import io

import torch
from rich.console import Console

from app import results


def test_small_errors_are_not_shown_as_zero():
    printed = io.StringIO()
    metrics = {"val/loss": torch.tensor(2.94e-6), "val/acc": torch.tensor(0.98046875)}
    results.show(metrics, None, Console(file=printed, width=100))
    assert "2.94e-06" in printed.getvalue()
    assert "0.9805" in printed.getvalue()
