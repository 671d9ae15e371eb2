"""Complete networks. Each takes ``input_shape`` (one sample, without the batch) and ``num_outputs``."""

from app.networks.z_plane import CertifiedZPlaneMLP, RetractedZPlaneMLP, ZPlaneMLP

__all__ = [
    "CertifiedZPlaneMLP",
    "RetractedZPlaneMLP",
    "ZPlaneMLP",
]
