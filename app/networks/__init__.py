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
from app.networks.edelta import EDelta, EDeltaCayley, EDeltaReflection, EDeltaTwoReflections
from app.networks.hyper_connections import HC, MHC, OHC, JPmHC, KromHC
from app.networks.probes import (
    CayleyIterationProbe,
    CayleyProbe,
    DeltaProbe,
    EDeltaProbe,
    ReflectionProbe,
    TwoReflectionsProbe,
)
from app.networks.transformer import DDL, GPT, Transformer
from app.networks.z_plane import CertifiedZPlaneMLP, RetractedZPlaneMLP, ZPlaneMLP

__all__ = [
    "DDL",
    "GPT",
    "HC",
    "MHC",
    "OHC",
    "CayleyIterationProbe",
    "CayleyProbe",
    "CertifiedZPlaneMLP",
    "DeltaProbe",
    "EDelta",
    "EDeltaCayley",
    "EDeltaProbe",
    "EDeltaReflection",
    "EDeltaTwoReflections",
    "HardTanhMLP",
    "JPmHC",
    "KromHC",
    "LayerNormReLUMLP",
    "LinearMLP",
    "ModReLUMLP",
    "ReLUMLP",
    "ReflectionProbe",
    "ResidualLayerNormReLUMLP",
    "RetractedZPlaneMLP",
    "ShallowReLUMLP",
    "TailoredLeakyReLUMLP",
    "TanhMLP",
    "Transformer",
    "TwoReflectionsProbe",
    "UnitNormaliseMLP",
    "UnitaryMLP",
    "ZPlaneMLP",
]
