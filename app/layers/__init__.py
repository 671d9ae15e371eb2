"""nn.Modules that hold parameters and call app.maths."""

from app.layers.linear import ComplexLinear
from app.layers.phasor import RadialBound, ZPlaneLinear

__all__ = [
    "ComplexLinear",
    "RadialBound",
    "ZPlaneLinear",
]
