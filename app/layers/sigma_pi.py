"""The repaired Sigma-Pi layers, drop-in for ``nn.Linear`` and ``nn.Conv2d``."""

from collections.abc import Collection, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.common_types import _size_2_t

from app.layers.batch_norm import block_effects, reestimated_output
from app.layers.patches import rows, window_rows
from app.layers.sigma_pi_base import Branches, SigmaPiLayer
from app.maths import recruitment
from app.maths.sigma_pi import at_least_float32


def _check_sizes(bilinear_rank: int, **sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if bilinear_rank < 0:
        raise ValueError(f"bilinear_rank must be at least 0, got {bilinear_rank}")


class SigmaPiLinear(SigmaPiLayer, nn.Linear):
    """Dense layer with products, [..., in] → [..., out].

    Args:
        in_features: inputs.
        out_features: outputs.
        bias: whether the additive branch has one.
        device: as in ``nn.Linear``.
        dtype: as in ``nn.Linear``.
        max_exponent: bound on each power |wᵢ|.
        max_log: bound on the logarithm of the product, exact up to ¾ of it.
        center: subtract the mean exponent, so that only ratios of inputs count.
        bilinear_rank: terms of the bilinear branch, 0 for none. A signed product needs one.
        pi_scale_init: logarithm of the product's amplitude at the start.
        delta: magnitude below which an input is as good as zero.

    Raises:
        ValueError: on a size below 1, a negative rank or a bound that is not positive.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        max_exponent: float = 2.0,
        max_log: float = 8.0,
        center: bool = False,
        bilinear_rank: int = 0,
        pi_scale_init: float = -2.0,
        delta: float = 1e-2,
    ) -> None:
        _check_sizes(bilinear_rank, in_features=in_features, out_features=out_features)
        nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self._add_products(
            (out_features,),
            ((bilinear_rank, in_features), (out_features, bilinear_rank)),
            max_exponent=max_exponent,
            max_log=max_log,
            center=center,
            bilinear_rank=bilinear_rank,
            pi_scale_init=pi_scale_init,
            delta=delta,
        )

    def _sigma(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def _map(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight)

    def _mix(self, factors: Tensor, mix: Tensor) -> Tensor:
        return F.linear(factors, mix)

    def _mean_dims(self, branch: Tensor) -> list[int]:
        return list(range(branch.dim() - 1))

    def _matrices(self, x: Tensor, parts: Branches) -> tuple[Tensor, Branches]:
        bilinear = None if parts.bilinear is None else rows(parts.bilinear)
        return rows(x), Branches(rows(parts.sigma), rows(parts.product), bilinear)


class SigmaPiConv2d(SigmaPiLayer, nn.Conv2d):
    """Convolution with products, [N, C, H, W] → [N, C′, H′, W′], without normalisation or activation.

    ``nn.Conv2d``'s arguments, then those of ``SigmaPiLinear``. Local: an output sees its window and nothing
    else; padded with zeros, a pixel is a factor of 1. ``bilinear_rank`` counts terms per group.

    Raises:
        ValueError: on a size below 1, a negative rank or a bound that is not positive.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _size_2_t,
        stride: _size_2_t = 1,
        padding: str | _size_2_t = 0,
        dilation: _size_2_t = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        max_exponent: float = 2.0,
        max_log: float = 8.0,
        center: bool = False,
        bilinear_rank: int = 0,
        pi_scale_init: float = -2.0,
        delta: float = 1e-2,
    ) -> None:
        _check_sizes(bilinear_rank, in_channels=in_channels, out_channels=out_channels, groups=groups)
        nn.Conv2d.__init__(
            self,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,  # type: ignore[arg-type]
            device,
            dtype,
        )
        self._add_products(
            (out_channels, 1, 1),
            ((groups * bilinear_rank, *self.weight.shape[1:]), (out_channels, bilinear_rank, 1, 1)),
            max_exponent=max_exponent,
            max_log=max_log,
            center=center,
            bilinear_rank=bilinear_rank,
            pi_scale_init=pi_scale_init,
            delta=delta,
        )

    def _sigma(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(x, self.weight, self.bias)
        return y

    def _map(self, x: Tensor, weight: Tensor) -> Tensor:
        # Padding with copies of pixels commutes with the logarithm; padding with zeros pads the logarithm.
        y: Tensor = self._conv_forward(x, weight, None)
        return y

    def _mix(self, factors: Tensor, mix: Tensor) -> Tensor:
        return F.conv2d(factors, mix, groups=self.groups)

    def _mean_dims(self, branch: Tensor) -> list[int]:
        return [dim for dim in range(branch.dim()) if dim != branch.dim() - 3]

    def _matrices(self, x: Tensor, parts: Branches) -> tuple[Tensor, Branches]:
        maps = [branch for branch in parts if branch is not None]
        matrix, sigma, product, *bilinear = window_rows(self, x, maps, recruitment.MAX_FIT_ROWS)
        return matrix, Branches(sigma, product, bilinear[0] if bilinear else None)


class SigmaPiConvBlock2d(nn.Module):
    """relu(bn(conv(x))) with a ``SigmaPiConv2d``, [N, C, H, W] → [N, C′, H′, W′].

    Args:
        conv: the convolution.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **recruitment.PUBLISHED_BLOCK,
        **recruitment.TRUSTWORTHY_BLOCK,
    }

    def __init__(self, conv: SigmaPiConv2d) -> None:
        super().__init__()
        self.conv = conv
        self.bn = nn.BatchNorm2d(conv.out_channels, device=conv.weight.device, dtype=conv.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Returns relu(bn(conv(x)))."""
        return F.relu(self.bn(self.conv(x)))

    def forward_without(self, x: Tensor, removed: Collection[str]) -> Tensor:
        """The output with some branches at their mean, normalised by this batch, of which nothing is kept."""
        return reestimated_output(self.bn, at_least_float32(self.conv.forward_without(x, removed)))

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """What the multiplicative branches change behind batch normalisation: see ``METRICS``.

        The convolution inside reports its own.
        """
        (x,) = inputs
        parts = self.conv.branches(x)
        return block_effects(self.bn, at_least_float32(parts.sigma), parts.multiplicative)
