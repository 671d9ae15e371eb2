"""Geometric networks on Lightning: train them, watch them, judge them against their baselines."""

__version__ = "0.1.0"
