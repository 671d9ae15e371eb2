"""The residual of deep delta learning: what is written replaces what was there along one direction."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from app.layers.mixing.base import HISTOGRAM, Mixer
from app.maths.direction import unit, working
from app.maths.orthogonal import log10_error
from app.maths.representation import thin


class Delta(Mixer):
    """x⁺ = x + βk(v − kᵀx), with k the normalised output of the branch F(LN x).

    β = 2σ(w_β·LN x + b_β) is the reflection strength: 0 keeps, 1 overwrites, 2 reflects; it starts at 1.
    v = 4σ(w_v·x) is the value that is written along k. Both per token, in float32 at least.

    Args:
        branch: F, at width ``width``.
        width: D.

    Shape: ``[B, T, D] → [B, T, D]``.

    Source: arXiv:2601.00417.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **Mixer.METRICS,
        "beta_mean": "mean reflection strength, 0 keeps, 1 overwrites, 2 reflects; healthy off 1; stuck "
        "at 1: the skip path loses a direction in every step, raise the learning rate of the gate",
        "beta": "distribution of the reflection strength over tokens; healthy: spread, or at 0 and 2; "
        "a single peak at 1: as for its mean",
        "value": "distribution of the written value over tokens, 0 to 4; healthy: spread; at 2: the value "
        "does not learn, raise the learning rate",
    }

    def __init__(self, branch: nn.Module, width: int) -> None:
        super().__init__(branch)
        self.norm = nn.LayerNorm(width)
        self.strength = nn.Parameter(torch.zeros(width))
        self.strength_bias = nn.Parameter(torch.zeros(()))
        self.value = nn.Parameter(torch.randn(width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        k, beta, value = self.parameters_of(x)
        state = working(x)
        return (state + beta * k * (value - (k * state).sum(-1, keepdim=True))).to(x.dtype)

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Direction k ``[B, T, D]`` (zero where F is), strength β and value v ``[B, T, 1]``."""
        h = self.norm(x)
        k, _ = unit(working(self.branch(h)))
        beta = 2 * torch.sigmoid((working(h) * self.strength).sum(-1, keepdim=True) + self.strength_bias)
        value = 4 * torch.sigmoid((working(x) * self.value).sum(-1, keepdim=True))
        return k, beta, value

    def shortcut(self, x: Tensor) -> Tensor:
        """I − βkkᵀ, ``[B, T, D, D]``."""
        k, beta, _ = self.parameters_of(x)
        eye = torch.eye(x.shape[-1], dtype=k.dtype, device=x.device)
        return eye - (beta * k).unsqueeze(-1) * k.unsqueeze(-2)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        k, beta, value = self.parameters_of(x)
        # MᵀM − I = (β² − 2β)kkᵀ: no D × D matrix for every token.
        error = (beta * (beta - 2)).abs() * k.square().amax(-1, keepdim=True)
        # The eigenvalues of M are 1 − β‖k‖², once, and 1.
        along = thin((1 - beta * k.square().sum(-1, keepdim=True)).flatten().float(), 64)
        real = torch.cat((along, torch.ones_like(along)))
        return {
            "orthogonality": error.amax(),
            "orthogonality_log10": log10_error(error.amax()),
            "eigenvalues": torch.stack((real, torch.zeros_like(real)), -1),
            "beta_mean": beta.mean(),
            "beta": thin(beta.flatten(), HISTOGRAM),
            "value": thin(value.flatten(), HISTOGRAM),
        }
