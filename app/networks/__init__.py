"""Complete networks. Each takes ``input_shape`` (one sample, without the batch) and ``num_outputs``."""

from app.networks.baselines import (
    HardTanhMLP,
    LayerNormReLUMLP,
    LinearMLP,
    ModReLUMLP,
    ReLUMLP,
    ResidualLayerNormReLUMLP,
    ShallowReLUMLP,
    TailoredLeakyReLUMLP,
    TanhMLP,
    UnitaryMLP,
    UnitNormaliseMLP,
)
from app.networks.z_plane import CertifiedZPlaneMLP, RetractedZPlaneMLP, ZPlaneMLP

__all__ = [
    "CertifiedZPlaneMLP",
    "HardTanhMLP",
    "LayerNormReLUMLP",
    "LinearMLP",
    "ModReLUMLP",
    "ReLUMLP",
    "ResidualLayerNormReLUMLP",
    "RetractedZPlaneMLP",
    "ShallowReLUMLP",
    "TailoredLeakyReLUMLP",
    "TanhMLP",
    "UnitNormaliseMLP",
    "UnitaryMLP",
    "ZPlaneMLP",
]
