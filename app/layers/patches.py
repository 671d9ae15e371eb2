"""Features and feature maps as rows of a matrix, for the read-outs that fit a linear map to a layer."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rows(x: Tensor) -> Tensor:
    """[..., D] → [rows, D]."""
    return x.reshape(-1, x.shape[-1])


def zero_padding(conv: nn.Conv2d) -> list[int]:
    """The padding of ``conv`` as ``F.pad`` takes it: [left, right, top, bottom]."""
    if conv.padding == "valid":
        return [0, 0, 0, 0]
    if conv.padding == "same":
        totals = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return [amount for total in reversed(totals) for amount in (total // 2, total - total // 2)]
    height, width = (int(p) for p in conv.padding)
    return [width, width, height, height]


def window_rows(conv: nn.Conv2d, x: Tensor, maps: Sequence[Tensor], limit: int) -> list[Tensor]:
    """Some windows of a convolution, and what is found at their places in feature maps.

    Args:
        conv: says where the windows lie; its weights are not used.
        x: [N, C, H, W], its input.
        maps: each [N, C′, H′, W′], of its output's size.
        limit: of windows. They are evenly spaced over samples and positions, with a step that shares no
            factor with H′W′, so that no row or column of the maps is preferred. Nothing is drawn at random.

    Returns:
        The windows [rows, C·kh·kw], then for each map [rows, C′].
    """
    mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
    padded = F.pad(x, zero_padding(conv), mode=mode)
    samples, _, height, width = maps[0].shape
    step = max(1, -(-samples * height * width // limit))
    while math.gcd(step, height * width) != 1:
        step += 1
    position = torch.arange(0, samples * height * width, step, device=x.device)
    sample, place = position // (height * width), position % (height * width)
    down, right = place // width, place % width

    def taps(start: Tensor, axis: int) -> Tensor:
        offsets = torch.arange(conv.kernel_size[axis], device=x.device) * conv.dilation[axis]
        return start[:, None] * conv.stride[axis] + offsets

    windows = padded[
        sample[:, None, None, None],
        torch.arange(x.shape[1], device=x.device)[None, :, None, None],
        taps(down, 0)[:, None, :, None],
        taps(right, 1)[:, None, None, :],
    ]
    return [windows.flatten(1), *(m.permute(0, 2, 3, 1).flatten(0, 2)[position] for m in maps)]
