"""The probes of the published negation experiment: one operator on all dimensions of a vector."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.maths.orthogonal import cayley_iterate
from app.networks.checks import check_sizes
from app.networks.published.common import small_mlp
from app.networks.published.edelta import rotate

HIDDEN = 128


class PublishedEDeltaProbe(nn.Module):
    """E∆'s operator on the whole vector; its gate starts at σ(−1.5), λ = 0.5.

    Its rotation turns the plane of u and v by 2·arctan(β/2): both are made orthonormal first, which they
    are not in the networks.

    Args:
        input_shape: (n,).
        num_outputs: n.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int) -> None:
        super().__init__()
        n = num_outputs
        check_sizes(input_shape, n, 1, HIDDEN)
        self.u, self.v, self.k = (small_mlp(n, HIDDEN, n) for _ in range(3))
        self.beta = small_mlp(n, HIDDEN, 1)
        self.gamma = nn.Linear(n, 1)
        nn.init.zeros_(self.gamma.weight)
        nn.init.constant_(self.gamma.bias, -1.5)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        return self.with_penalty(x)[0]

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and 0.5·mean(4γ(1 − γ))."""
        gamma = self.gate(x)
        rotated = rotate(x.unsqueeze(-1), *self.plane(x), F.softplus(self.beta(x))).squeeze(-1)
        k = F.normalize(self.k(x), dim=-1)
        reflected = x - 2 * k * (k * x).sum(-1, keepdim=True)
        return gamma * rotated + (1 - gamma) * reflected, 0.5 * (4 * gamma * (1 - gamma)).float().mean()

    def plane(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """An orthonormal pair by Gram and Schmidt, each ``[B, n]``."""
        u, v = (F.normalize(part(x), dim=-1) for part in (self.u, self.v))
        return u, F.normalize(v - (u * v).sum(-1, keepdim=True) * u, dim=-1)

    def gate(self, x: Tensor) -> Tensor:
        """γ, ``[B, 1]``."""
        return torch.sigmoid(self.gamma(x))


class PublishedDDLProbe(nn.Module):
    """The delta operator on the whole vector.

    Args:
        input_shape: (n,).
        num_outputs: n.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, 1, HIDDEN)
        self.k = small_mlp(num_outputs, HIDDEN, num_outputs)
        self.beta = small_mlp(num_outputs, HIDDEN, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        k = F.normalize(self.k(x), dim=-1)
        return x - self.strength(x) * k * (k * x).sum(-1, keepdim=True)

    def strength(self, x: Tensor) -> Tensor:
        """β, ``[B, 1]``."""
        return 2 * torch.sigmoid(self.beta(x))


class PublishedJPmHCProbe(nn.Module):
    """JPmHC's iteration on an n × n matrix, from y = x: two steps of it are I + αW + α²W²/2.

    In the networks it starts one step further, from y = x + αWx.

    Args:
        input_shape: (n,).
        num_outputs: n.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, 1, HIDDEN)
        self.matrix = small_mlp(num_outputs, HIDDEN, num_outputs**2)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        n = x.shape[-1]
        h = torch.unflatten(self.matrix(x), -1, (n, n))
        return cayley_iterate(x.unsqueeze(-1), h - h.mT, iterations=1).squeeze(-1)
