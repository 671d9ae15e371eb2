"""Complete networks. Each takes ``input_shape`` (one sample, without the batch) and ``num_outputs``."""

from app.networks.arithmetic import INALUNetwork, NACTimesNetwork, NMUNetwork
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
from app.networks.sigma_pi import (
    BilinearCNN,
    BilinearMLP,
    PlainCNN,
    PlainMLP,
    PolyWeaveCNN,
    PolyWeaveMLP,
    SigmaPiCNN,
    SigmaPiMLP,
    TanhPolyWeaveMLP,
)
from app.networks.z_plane import CertifiedZPlaneMLP, RetractedZPlaneMLP, ZPlaneMLP

__all__ = [
    "BilinearCNN",
    "BilinearMLP",
    "CertifiedZPlaneMLP",
    "HardTanhMLP",
    "INALUNetwork",
    "LayerNormReLUMLP",
    "LinearMLP",
    "ModReLUMLP",
    "NACTimesNetwork",
    "NMUNetwork",
    "PlainCNN",
    "PlainMLP",
    "PolyWeaveCNN",
    "PolyWeaveMLP",
    "ReLUMLP",
    "ResidualLayerNormReLUMLP",
    "RetractedZPlaneMLP",
    "ShallowReLUMLP",
    "SigmaPiCNN",
    "SigmaPiMLP",
    "TailoredLeakyReLUMLP",
    "TanhMLP",
    "TanhPolyWeaveMLP",
    "UnitNormaliseMLP",
    "UnitaryMLP",
    "ZPlaneMLP",
]
