"""One map that gives all parameters of an operator at once."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FusedMap(nn.Module):
    """W₂·GELU(W₁·LN x + b₁) + b₂, cut into the operator's parameters.

    One product instead of one small network for each parameter. Its start has GELU's output and every drawn
    parameter at order one; the parts named ``silent`` start at zero.

    Args:
        width: D.
        hidden: hidden units, at least 1.
        sizes: how many numbers each parameter has.
        silent: which of them start at zero, by position.

    Shape: ``[..., D]`` → one ``[..., size]`` for each of ``sizes``.

    Raises:
        ValueError: ``hidden`` below 1.
    """

    def __init__(self, width: int, hidden: int, sizes: Sequence[int], silent: Sequence[int] = ()) -> None:
        super().__init__()
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        self.sizes = list(sizes)
        self.norm = nn.LayerNorm(width)
        self.input = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, sum(self.sizes))
        with torch.no_grad():
            nn.init.normal_(self.input.weight, std=width**-0.5)
            nn.init.normal_(self.output.weight, std=hidden**-0.5)
            self.input.bias.zero_()
            self.output.bias.zero_()
            for i, (rows, bias) in enumerate(
                zip(
                    torch.split(self.output.weight, self.sizes),
                    torch.split(self.output.bias, self.sizes),
                    strict=True,
                )
            ):
                if i in silent:
                    rows.zero_()
                    bias.zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Returns the parameters."""
        return torch.split(self.output(F.gelu(self.input(self.norm(x)))), self.sizes, -1)
