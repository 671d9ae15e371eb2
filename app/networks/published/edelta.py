"""E∆ in its three published forms."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.networks.published.common import Block, Trunk, attention, feed_forward, norm, small_mlp

STREAMS = 4
PENALTY = 0.1


class PublishedEDelta(nn.Module):
    """E∆, its operators from the mean of the whole sequence, H_pre and H_post from N(0, 0.02).

    Sees the future. At the start every operator is close to I − kkᵀ, which loses a direction. The gate is
    γ = σ((1 + φ)(wᵀx̄ + b)), φ of :func:`spread`: it is in their code and not in the paper's equations.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: arXiv:2605.06729 and its code.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 6, width: int = 128
    ) -> None:
        super().__init__()
        blocks = [
            Block(_Operator(width, attention(width)), _Operator(width, feed_forward(width)))
            for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)
        for module in self.modules():
            if isinstance(module, _Operator):
                nn.init.zeros_(module.gamma.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and 0.1·mean(4γ(1 − γ)), summed over operators."""
        prediction, penalty = self.trunk(x)
        return prediction, penalty


class _Operator(nn.Module):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        hidden = width // 4
        self.u = small_mlp(width, hidden, STREAMS)
        self.v = small_mlp(width, hidden, STREAMS)
        self.k = small_mlp(width, hidden, STREAMS)
        self.beta = small_mlp(width, hidden, 1)
        self.gamma = nn.Linear(width, 1)
        self.norm, self.branch = norm(width), branch
        self.read = nn.Linear(width, width, bias=False)
        self.write = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(1, keepdim=True)
        streams = torch.unflatten(x, -1, (STREAMS, -1))
        gamma = torch.sigmoid((1 + spread(streams)) * self.gamma(mean))
        rotated = rotate(streams, self.u(mean), self.v(mean), F.softplus(self.beta(mean)))
        k = F.normalize(self.k(mean), dim=-1).unsqueeze(-1)
        reflected = streams - 2 * k * (k * streams).sum(-2, keepdim=True)
        gate = gamma.unsqueeze(-1)
        g = (gate * rotated + (1 - gate) * reflected).flatten(-2)
        return g + self.write(self.branch(self.read(self.norm(g)))), penalty(gamma)


def spread(streams: Tensor) -> Tensor:
    """φ = mean over positions of 1 − ‖XXᵀ‖²/(tr²(XXᵀ) + 1e-8): streams ``[B, T, n, d]``, φ ``[B, 1, 1]``.

    0 where all streams lie on one line, 1 − 1/n where they are orthogonal and of one length, and 1 where
    the 1e-8 outweighs a small state. The authors read it as an entropy.
    """
    gram = streams @ streams.mT
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    purity = gram.square().sum((-1, -2)) / (trace.square() + 1e-8)
    return (1 - purity).mean(-1)[:, None, None]


def rotate(streams: Tensor, u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Q X by a solve, as published: streams ``[B, T, n, d]``, u and v ``[..., n]``, beta ``[..., 1]``."""
    with torch.autocast(streams.device.type, enabled=False):
        u, v, half = u.float(), v.float(), beta.float().unsqueeze(-1) / 2
        a = u.unsqueeze(-1) * v.unsqueeze(-2)
        step = half * (a - a.mT)
        eye = torch.eye(u.shape[-1], device=u.device)
        q = torch.linalg.solve(eye + step, eye - step)
    return torch.matmul(q.to(streams.dtype), streams)


def penalty(gamma: Tensor) -> Tensor:
    """0.1·mean(4γ(1 − γ)), 0-d."""
    return PENALTY * (4 * gamma * (1 - gamma)).float().mean()


class PublishedEDeltaStream(nn.Module):
    """E∆-Stream: a residual of 512, branches at 128, routed per token; the operator from the sequence's mean.

    Sees the future. All parameters of operators start at zero, where u, v and k have no gradient. Learning
    rate 5e-4.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 6, width: int = 512
    ) -> None:
        super().__init__()
        narrow = width // STREAMS
        blocks = [
            Block(_Stream(width, attention(narrow)), _Stream(width, feed_forward(narrow)))
            for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)
        for module in self.modules():
            if isinstance(module, _Stream):
                module.silence()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and 0.1·mean(4γ(1 − γ)), summed over operators."""
        prediction, added = self.trunk(x)
        return prediction, added


class _Zeroed(nn.Module):
    """An operator whose last layers start at zero."""

    fused: nn.Sequential
    route: nn.Linear

    def silence(self) -> None:
        """Sets them to zero."""
        for parameter in (*self.fused[-1].parameters(), *self.route.parameters()):
            nn.init.zeros_(parameter)


class _Stream(_Zeroed):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        self.gather = nn.LayerNorm(width)
        self.fused = small_mlp(width, 48, 3 * STREAMS + 2)
        self.route = nn.Linear(width, 2 * STREAMS**2, bias=False)
        self.norm, self.branch = norm(width // STREAMS), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = STREAMS
        u, v, k, beta, gate = torch.split(
            self.fused(self.gather(x.mean(1, keepdim=True))), [n, n, n, 1, 1], -1
        )
        gamma = torch.sigmoid(gate)
        streams = torch.unflatten(x, -1, (n, -1))
        rotated = rotate(streams, u, v, F.softplus(beta))
        k = F.normalize(k, dim=-1).unsqueeze(-1)
        reflected = streams - 2 * k * (k * streams).sum(-2, keepdim=True)
        g = gamma.unsqueeze(-1) * rotated + (1 - gamma.unsqueeze(-1)) * reflected
        return route(g, self.route(self.gather(x)), self.norm, self.branch), penalty(gamma)


def route(g: Tensor, logits: Tensor, norm: nn.Module, branch: nn.Module) -> Tensor:
    """G + H_post(F(LN(mean over streams of H_pre G)) ⊗ 1), H from logits ``[B, T, 2n²]``: ``[B, T, D]``."""
    n = g.shape[-2]
    pre, post = torch.unflatten(logits, -1, (2, n, n)).unbind(-3)
    read = (torch.softmax(pre, -1) @ g).mean(-2)
    out: Tensor = g + torch.softmax(post, -2).sum(-1, keepdim=True) * branch(norm(read)).unsqueeze(-2)
    return out.flatten(-2)


class PublishedEDeltaToken(nn.Module):
    """E∆'s per-token form: rotation of the streams, reflection of the whole vector. Causal.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729, its ARC experiments.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 6, width: int = 512
    ) -> None:
        super().__init__()
        narrow = width // STREAMS
        blocks = [
            Block(_Token(width, attention(narrow)), _Token(width, feed_forward(narrow))) for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)
        for module in self.modules():
            if isinstance(module, _Token):
                module.silence()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and 0.1·mean(4γ(1 − γ)), summed over operators."""
        prediction, added = self.trunk(x)
        return prediction, added


class _Token(_Zeroed):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        self.gather = nn.RMSNorm(width)
        self.fused = small_mlp(width, 48, 2 * STREAMS + 2 + width)
        self.route = nn.Linear(width, 2 * STREAMS**2, bias=False)
        self.norm, self.branch = norm(width // STREAMS), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = STREAMS
        u, v, beta, gate, k = torch.split(self.fused(self.gather(x)), [n, n, 1, 1, x.shape[-1]], -1)
        gamma = torch.sigmoid(gate)
        rotated = rotate(torch.unflatten(x, -1, (n, -1)), u, v, F.softplus(beta)).flatten(-2)
        k = F.normalize(k + 1e-8, dim=-1)
        reflected = x - 2 * k * (k * x).sum(-1, keepdim=True)
        g = gamma * rotated + (1 - gamma) * reflected
        streams = torch.unflatten(g, -1, (n, -1))
        return route(streams, self.route(g), self.norm, self.branch), penalty(gamma)
