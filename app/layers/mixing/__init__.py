"""Residual mixers: what happens on the skip path of a transformer, one kind a file."""

from app.layers.mixing.additive import Additive
from app.layers.mixing.base import Mixer, MixerFactory
from app.layers.mixing.cayley import Cayley
from app.layers.mixing.delta import Delta
from app.layers.mixing.hybrid import CayleyHouseholder
from app.layers.mixing.hyper import HyperConnection, Kronecker, Quaternion, Sinkhorn
from app.layers.mixing.iterated import CayleyIteration
from app.layers.mixing.reflection import Reflection
from app.layers.mixing.sources import PrefixMean, Token
from app.layers.mixing.static import Hyper
from app.layers.mixing.two_reflections import TwoReflections

__all__ = [
    "Additive",
    "Cayley",
    "CayleyHouseholder",
    "CayleyIteration",
    "Delta",
    "Hyper",
    "HyperConnection",
    "Kronecker",
    "Mixer",
    "MixerFactory",
    "PrefixMean",
    "Quaternion",
    "Reflection",
    "Sinkhorn",
    "Token",
    "TwoReflections",
]
