"""nn.Modules that hold parameters and call app.maths."""

from app.layers.activations import ModReLU, ScaledLeakyReLU, UnitMeanSquare, UnitNormalise
from app.layers.bilinear import BilinearConv2d, BilinearLinear
from app.layers.dense import DenseLayer, ResidualLayer
from app.layers.linear import ComplexLinear
from app.layers.losses import AnnealedCrossEntropy, CertifiedHinge, ShiftedCrossEntropy
from app.layers.phasor import RadialBound, ZPlaneLinear
from app.layers.sigma_pi import SigmaPiConv2d, SigmaPiConvBlock2d, SigmaPiLinear

__all__ = [
    "AnnealedCrossEntropy",
    "BilinearConv2d",
    "BilinearLinear",
    "CertifiedHinge",
    "ComplexLinear",
    "DenseLayer",
    "ModReLU",
    "RadialBound",
    "ResidualLayer",
    "ScaledLeakyReLU",
    "ShiftedCrossEntropy",
    "SigmaPiConv2d",
    "SigmaPiConvBlock2d",
    "SigmaPiLinear",
    "UnitMeanSquare",
    "UnitNormalise",
    "ZPlaneLinear",
]
