"""Affine layers with a low-rank product: the multiplicative layers without powers."""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.maths.sigma_pi import at_least_float32, full_precision


class BilinearLinear(nn.Linear):
    """y = Wx + b + A[(Ux) ⊙ (Vx)], [..., in] → [..., out]: ``SigmaPiLinear`` without the product of powers.

    U and V start as ``nn.Linear`` weights, A at zero. W is not decayed, as in the layer it is compared with.

    Args:
        in_features: inputs.
        out_features: outputs.
        rank: products, ≥ 1.

    Raises:
        ValueError: on a rank below 1.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"weight"})

    def __init__(self, in_features: int, out_features: int, rank: int) -> None:
        if rank < 1:
            raise ValueError(f"rank must be at least 1, got {rank}")
        super().__init__(in_features, out_features)
        bound = 1 / math.sqrt(in_features)
        self.left = nn.Parameter(torch.empty(rank, in_features).uniform_(-bound, bound))
        self.right = nn.Parameter(torch.empty(rank, in_features).uniform_(-bound, bound))
        self.mix = nn.Parameter(torch.zeros(out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        left, right = F.linear(x, self.left), F.linear(x, self.right)
        affine = super().forward(x)
        with full_precision(x):
            products = at_least_float32(left) * at_least_float32(right)
            return affine + F.linear(products, at_least_float32(self.mix)).to(affine.dtype)


class BilinearConv2d(nn.Conv2d):
    """W * x + b + A[(U * x) ⊙ (V * x)], [N, C, H, W] → [N, C′, H′, W′], stride 1 and zero padding.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        kernel_size: side of the window.
        padding: zeros on each side.
        rank: products, ≥ 1.

    Raises:
        ValueError: on a rank below 1.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"weight"})

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, padding: int, rank: int
    ) -> None:
        if rank < 1:
            raise ValueError(f"rank must be at least 1, got {rank}")
        super().__init__(in_channels, out_channels, kernel_size, padding=padding)
        bound = 1 / math.sqrt(self.weight[0].numel())
        factor = (rank, *self.weight.shape[1:])
        self.left = nn.Parameter(torch.empty(factor).uniform_(-bound, bound))
        self.right = nn.Parameter(torch.empty(factor).uniform_(-bound, bound))
        self.mix = nn.Parameter(torch.zeros(out_channels, rank, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [N, C′, H′, W′]."""
        left = F.conv2d(x, self.left, padding=self.padding)
        right = F.conv2d(x, self.right, padding=self.padding)
        affine: Tensor = super().forward(x)
        with full_precision(x):
            products = at_least_float32(left) * at_least_float32(right)
            return affine + F.conv2d(products, at_least_float32(self.mix)).to(affine.dtype)
