"""Hyper-connections: the residual is n expanded streams of full width, mixed by a small matrix.

C: width of a stream and of the branch.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from app.layers.attention import zero_linear_
from app.layers.mixing.base import OPERATOR_METRICS, Mixer, shortcut_diagnostics
from app.maths.direction import working
from app.maths.orthogonal import (
    kronecker_mixing,
    matmul,
    quaternion_rotate,
    sinkhorn,
    stochasticity_error,
)


class HyperConnection(Mixer):
    """X⁺ = M X + h_postᵀ F(LN(h_pre X)), everything per token from z = RMSNorm(vec X).

    h_pre = σ(α₁Wz + b), h_post = 2σ(α₂Wz + b), M from the logits α₃Wz + b. W starts at 0, the α at 0.01, b
    of h_pre at −1 and +1 on the stream (index mod n): every step first reads a stream of its own.

    Args:
        branch: F, at width ``width``.
        width: C.
        index: which residual step this is, from 0.
        bias: the logits' b at the start, ``[L]``.
        streams: n, at least 2.

    Shape: ``[B, T, n, C] → [B, T, n, C]``.

    Raises:
        ValueError: fewer than 2 streams.

    Source: arXiv:2512.24880.
    """

    def __init__(self, branch: nn.Module, width: int, index: int, bias: Tensor, streams: int = 4) -> None:
        super().__init__(branch)
        if streams < 2:
            raise ValueError(f"streams must be at least 2, got {streams}")
        self.streams = streams
        self.sizes = [streams, streams, len(bias)]
        self.norm = nn.LayerNorm(width)
        self.gather = nn.RMSNorm(streams * width)
        self.fused = zero_linear_(nn.Linear(streams * width, sum(self.sizes), bias=False))
        self.scale = nn.Parameter(torch.full((3,), 0.01))
        reads = torch.full((streams,), -1.0)
        reads[index % streams] = 1.0
        self.bias = nn.Parameter(torch.cat((reads, torch.zeros(streams), bias)))

    @abstractmethod
    def mix(self, streams: Tensor, logits: Tensor) -> Tensor:
        """Applies M, made from logits ``[..., L]``, on the stream axis: ``[..., n, d] → [..., n, d]``."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns the next state."""
        pre, post, logits = self.parameters_of(x)
        read = (torch.sigmoid(pre).unsqueeze(-1) * x).sum(-2)
        written = self.branch(self.norm(read)).unsqueeze(-2)
        out: Tensor = self.mix(x, logits) + 2 * torch.sigmoid(post).unsqueeze(-1) * written
        return out

    def parameters_of(self, x: Tensor) -> tuple[Tensor, ...]:
        """Logits of h_pre, of h_post ``[B, T, n]`` and of M ``[B, T, L]``, in float32 at least."""
        logits = torch.split(working(self.fused(self.gather(x.flatten(-2)))), self.sizes, -1)
        return tuple(
            scale * part + bias
            for scale, part, bias in zip(self.scale, logits, torch.split(self.bias, self.sizes), strict=True)
        )

    def shortcut(self, x: Tensor) -> Tensor:
        """M, ``[B, T, n, n]``."""
        *_, logits = self.parameters_of(x)
        eye = torch.eye(self.streams, device=x.device)
        return self.mix(eye.expand(*logits.shape[:-1], -1, -1), logits)


class Stochastic(HyperConnection):
    """A hyper-connection with doubly stochastic M: it keeps the mean of the streams and shrinks the rest."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **Mixer.METRICS,
        "stochasticity": "largest |sum − 1| over rows and columns of M; healthy below 1e-4; above: the "
        "projection has not converged, its logits are too large",
    }

    @abstractmethod
    def matrix(self, logits: Tensor) -> Tensor:
        """M ``[..., n, n]`` from logits ``[..., L]``."""

    def mix(self, streams: Tensor, logits: Tensor) -> Tensor:
        """Applies M."""
        return matmul(self.matrix(logits), streams)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        (x,) = inputs
        matrix = self.shortcut(x)
        return {**shortcut_diagnostics(matrix), "stochasticity": stochasticity_error(matrix).amax()}


class Sinkhorn(Stochastic):
    """mHC: M by 20 Sinkhorn iterations from n² logits, at the start nearly the identity (−8 off the
    diagonal).

    Args:
        branch: F, at width ``width``.
        width: C.
        index: which residual step this is, from 0.
        streams: n, at least 2.

    Source: arXiv:2512.24880.
    """

    def __init__(self, branch: nn.Module, width: int, index: int, streams: int = 4) -> None:
        super().__init__(branch, width, index, 8 * (torch.eye(streams) - 1).flatten(), streams)

    def matrix(self, logits: Tensor) -> Tensor:
        """The doubly stochastic matrix."""
        return sinkhorn(torch.unflatten(logits, -1, (self.streams, self.streams)))


class Kronecker(Stochastic):
    """KromHC: M is the Kronecker product of doubly stochastic 2 × 2 matrices, exact but symmetric.

    Args:
        branch: F, at width ``width``.
        width: C.
        index: which residual step this is, from 0.
        streams: n, a power of 2.

    Raises:
        ValueError: ``streams`` is no power of 2.

    Source: arXiv:2601.21579.
    """

    def __init__(self, branch: nn.Module, width: int, index: int, streams: int = 4) -> None:
        if streams < 2 or streams & (streams - 1):
            raise ValueError(f"streams must be a power of 2, got {streams}")
        factors = streams.bit_length() - 1
        super().__init__(branch, width, index, torch.tensor([0.0, -8.0]).repeat(factors), streams)

    def matrix(self, logits: Tensor) -> Tensor:
        """The Kronecker product."""
        return kronecker_mixing(torch.unflatten(logits, -1, (-1, 2)))


class Quaternion(HyperConnection):
    """oHC: M x = q x r̄ with unit quaternions, every rotation of four streams, −I included.

    q and r come from 1 + logits; they start at 1, where M is the identity bit for bit. The scale of their
    logits stays at 0.01: trained, it dominates the gradient norm.

    Args:
        branch: F, at width ``width``.
        width: C.
        index: which residual step this is, from 0.

    Source: arXiv:2609.02672.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **Mixer.METRICS,
        "rotation_orthogonality": OPERATOR_METRICS["rotation_orthogonality"],
    }

    def __init__(self, branch: nn.Module, width: int, index: int) -> None:
        super().__init__(branch, width, index, torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0]), 4)
        self.scale = nn.Parameter(torch.full((2,), 0.01))

    def parameters_of(self, x: Tensor) -> tuple[Tensor, ...]:
        """Logits of h_pre, of h_post ``[B, T, 4]`` and both quaternions ``[B, T, 8]``."""
        parts = torch.split(working(self.fused(self.gather(x.flatten(-2)))), self.sizes, -1)
        pre, post, rotation = torch.split(self.bias, self.sizes)
        first, second = self.scale
        return first * parts[0] + pre, second * parts[1] + post, 0.01 * parts[2] + rotation

    def mix(self, streams: Tensor, logits: Tensor) -> Tensor:
        """Multiplies from both sides."""
        left, right = torch.split(logits, 4, -1)
        return quaternion_rotate(streams, left, right)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the state just received; names as in ``METRICS``."""
        found = super().diagnostics(*inputs)
        return {**found, "rotation_orthogonality": found["orthogonality"]}
