"""Random changes of image batches, drawn and made where the images are."""

import torch
from torch import Tensor
from torch.nn import functional as F


def crop_and_flip(images: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Cuts each image out of its zero-padded self at a random place, and mirrors every second one at random.

    Crop and mirror are one gather: output pixel (i, j) of an image comes from row i + u and column j + v of
    the padded image, or column W − 1 − j + v, with u, v uniform in 0 … 2 · padding.

    Args:
        images: ``[B, C, H, W]`` of any type.
        padding: zeros on every side, ≥ 0.
        generator: on the device of the images.

    Returns:
        A new tensor of the same shape and type.
    """
    batch, channels, height, width = images.shape
    device = images.device
    shifts = torch.randint(2 * padding + 1, (2, batch, 1), device=device, generator=generator)
    mirrored = torch.randint(2, (batch, 1), device=device, generator=generator).bool()
    rows = torch.arange(height, device=device) + shifts[0]
    columns = torch.arange(width, device=device)
    columns = torch.where(mirrored, columns.flip(0), columns) + shifts[1]
    index = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    padded = F.pad(images, (padding,) * 4).flatten(2)
    return padded.gather(2, index.flatten(1)[:, None].expand(-1, channels, -1)).view_as(images)
