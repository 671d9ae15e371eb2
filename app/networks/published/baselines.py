"""GPT, DDL, mHC and JPmHC as they were compared with E∆."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.maths.orthogonal import cayley_iteration
from app.networks.published.common import Block, Trunk, attention, feed_forward, norm, small_mlp

STREAMS = 4


class PublishedGPT(nn.Module):
    """The plain residual.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 9, width: int = 128
    ) -> None:
        super().__init__()
        blocks = [
            Block(_Additive(width, attention(width)), _Additive(width, feed_forward(width)))
            for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction


class _Additive(nn.Module):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        self.norm, self.branch = norm(width), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x + self.branch(self.norm(x)), x.new_zeros(())


class PublishedDDL(nn.Module):
    """Deep delta learning without its value write, its operator from the mean of the whole sequence.

    Sees the future.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 8, width: int = 128
    ) -> None:
        super().__init__()
        blocks = [
            Block(_Delta(width, attention(width)), _Delta(width, feed_forward(width))) for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction


class _Delta(nn.Module):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        self.direction = small_mlp(width, width // 4, width)
        self.strength = small_mlp(width, width // 4, 1)
        self.norm, self.branch = norm(width), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean(1, keepdim=True)
        k = F.normalize(self.direction(mean), dim=-1)
        beta = 2 * torch.sigmoid(self.strength(mean))
        x = x - beta * k * (k * x).sum(-1, keepdim=True)
        return x + self.branch(self.norm(x)), x.new_zeros(())


class PublishedMHC(nn.Module):
    """mHC with streams sliced from the residual instead of expanded, and a start that merges them.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 9, width: int = 128
    ) -> None:
        super().__init__()
        blocks = [
            Block(_Sinkhorn(width, attention(width)), _Sinkhorn(width, feed_forward(width)))
            for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction


class _Sinkhorn(nn.Module):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        n = STREAMS
        self.gather = nn.RMSNorm(width, eps=1e-6)
        self.pre = nn.Linear(width, n, bias=False)
        self.post = nn.Linear(width, n, bias=False)
        self.res = nn.Linear(width, n * n, bias=False)
        self.alpha = nn.Parameter(torch.full((3,), 0.01))
        self.pre_bias = nn.Parameter(torch.zeros(n))
        self.post_bias = nn.Parameter(torch.zeros(n))
        self.res_bias = nn.Parameter(2 * torch.eye(n))
        self.norm, self.branch = norm(width), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = STREAMS
        z = self.gather(x)
        pre = torch.sigmoid(self.alpha[0] * self.pre(z) + self.pre_bias)
        post = 2 * torch.sigmoid(self.alpha[1] * self.post(z) + self.post_bias)
        res = torch.unflatten(self.res(z), -1, (n, n))
        matrix = torch.exp(self.alpha[2] * res + self.res_bias)
        for _ in range(20):
            matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-8)
            matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-8)
        streams = torch.unflatten(x, -1, (n, -1))
        read = (pre.unsqueeze(-1) * streams).sum(-2)
        written = self.branch(self.norm(read.repeat(1, 1, n)))
        written = post.unsqueeze(-1) * torch.unflatten(written, -1, (n, -1))
        return (matrix @ streams + written).flatten(-2), x.new_zeros(())


class PublishedJPmHC(nn.Module):
    """JPmHC on a residual of 512, branches at 128; its projection does not start at zero, as it was meant to.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.

    Source: the code of arXiv:2605.06729.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, depth: int = 7, width: int = 512
    ) -> None:
        super().__init__()
        narrow = width // STREAMS
        blocks = [
            Block(_Iterated(width, attention(narrow)), _Iterated(width, feed_forward(narrow)))
            for _ in range(depth)
        ]
        self.trunk = Trunk(input_shape, num_outputs, width, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        prediction: Tensor = self.trunk(x)[0]
        return prediction


class _Iterated(nn.Module):
    def __init__(self, width: int, branch: nn.Module) -> None:
        super().__init__()
        self.gather = nn.LayerNorm(width)
        self.fused = nn.Linear(width, 3 * STREAMS**2)
        self.norm, self.branch = norm(width // STREAMS), branch

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = STREAMS
        pre, post, mix = torch.unflatten(self.fused(self.gather(x)), -1, (3, n, n)).unbind(-3)
        y = cayley_iteration(mix - mix.mT)
        streams = torch.unflatten(x, -1, (n, -1))
        read = (torch.softmax(pre, -1) @ streams).mean(-2)
        written = self.branch(self.norm(read)).unsqueeze(-2)
        post = torch.softmax(post, -2).sum(-1, keepdim=True)
        return (y.to(x.dtype) @ streams + post * written).flatten(-2), x.new_zeros(())
