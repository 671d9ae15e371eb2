"""nn.Modules that hold parameters and call app.maths."""

from app.layers.activations import ModReLU, ScaledLeakyReLU, UnitMeanSquare, UnitNormalise
from app.layers.dense import DenseLayer, ResidualLayer
from app.layers.linear import ComplexLinear
from app.layers.losses import AnnealedCrossEntropy, CertifiedHinge, ShiftedCrossEntropy
from app.layers.phasor import RadialBound, ZPlaneLinear

__all__ = [
    "AnnealedCrossEntropy",
    "CertifiedHinge",
    "ComplexLinear",
    "DenseLayer",
    "ModReLU",
    "RadialBound",
    "ResidualLayer",
    "ScaledLeakyReLU",
    "ShiftedCrossEntropy",
    "UnitMeanSquare",
    "UnitNormalise",
    "ZPlaneLinear",
]
