"""What E∆'s operators and their rivals do by themselves, without a network: gates, products, projections."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from app.maths.orthogonal import (
    cayley_iterate,
    cayley_iteration,
    cayley_rotate,
    householder_reflect,
    matmul,
    orthogonality_error,
    quaternion_rotate,
    sinkhorn,
)
from app.study.measures import median

Values = dict[str, dict[str, float]]

SYMMETRIC: dict[str, Callable[[Tensor], Tensor]] = {
    "4g(1-g)": lambda g: 4 * g * (1 - g),
    "its square": lambda g: (4 * g * (1 - g)).square(),
    "entropy": lambda g: -g * g.log() - (1 - g) * (1 - g).log(),
    "cosine": lambda g: torch.cos(2 * torch.pi * (g - 0.5)),
    "even polynomial": lambda g: 1 - (g - 0.5) ** 2 - 3 * (g - 0.5) ** 4,
}
"""Smooth penalties f with f(γ) = f(1 − γ), largest at ½."""


def zero_gradient(seed: int, steps: int = 1000, lr: float = 0.01, biased: float = 0.1) -> Values:
    """What a symmetric penalty alone does to a gate γ = σ(b), minimised by Adam.

    Returns:
        Penalty → ``gradient``, |df/db| at γ = ½; ``moved``, |γ − ½| after training from there; and
        ``moved_biased``, the same from b = ``biased``, at most ½.
    """
    rows: Values = {}
    for name, penalty in SYMMETRIC.items():
        b = torch.zeros((), requires_grad=True)
        (gradient,) = torch.autograd.grad(penalty(torch.sigmoid(b)), b)
        rows[name] = {
            "gradient": float(gradient.abs()),
            "moved": abs(trained_gate(penalty, 0.0, steps, lr) - 0.5),
            "moved_biased": abs(trained_gate(penalty, biased, steps, lr) - 0.5),
        }
    return rows


def trained_gate(penalty: Callable[[Tensor], Tensor], bias: float, steps: int, lr: float) -> float:
    """γ after the penalty alone has been minimised from γ = σ(``bias``)."""
    b = torch.tensor(bias, requires_grad=True)
    optimizer = torch.optim.Adam([b], lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        penalty(torch.sigmoid(b)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return float(torch.sigmoid(b.detach()))


def deviation(
    seed: int, depths: Sequence[int] = (1, 4, 16, 64), streams: int = 4, samples: int = 256
) -> Values:
    """How far a product of many mixing matrices is from an orthogonal one, in float32.

    Parameters are drawn from N(0, 1), those of mHC also at its published start (b_res = 2I) and at ours.

    Returns:
        Operator → ``deviation_<depth>``: mean over samples of max|MᵀM − I|, M the product of so many.
    """
    randomness = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(samples, *shape, generator=randomness)

    n, eye = streams, torch.eye(streams)

    def rotation(x: Tensor) -> Tensor:
        return cayley_rotate(x, draw(n), draw(n), draw().abs())

    def iterated(x: Tensor, scale: float) -> Tensor:
        h = scale * draw(n, n)
        return cayley_iterate(x, h - h.mT)

    def blended(x: Tensor, gate: float) -> Tensor:
        return gate * rotation(x) + (1 - gate) * householder_reflect(x, draw(n))

    operators: dict[str, Callable[[Tensor], Tensor]] = {
        "cayley": rotation,
        "reflection": lambda x: householder_reflect(x, draw(n)),
        "quaternion": lambda x: quaternion_rotate(x, draw(4), draw(4)),
        "edelta_decided": lambda x: blended(x, 1.0),
        "edelta_half": lambda x: blended(x, 0.5),
        "jpmhc_0.3": lambda x: iterated(x, 0.3),
        "jpmhc_1": lambda x: iterated(x, 1.0),
        "mhc": lambda x: matmul(sinkhorn(draw(n, n)), x),
        "mhc_start": lambda x: matmul(sinkhorn(8 * (eye - 1) + 0.01 * draw(n, n)), x),
        "mhc_published_start": lambda x: matmul(sinkhorn(2 * eye + 0.01 * draw(n, n)), x),
    }
    rows: Values = {}
    for name, operator in operators.items():
        product = eye.expand(samples, -1, -1)
        rows[name] = {}
        for depth in range(1, max(depths) + 1):
            product = operator(product)
            if depth in depths:
                rows[name][f"deviation_{depth}"] = float(orthogonality_error(product).mean())
    return rows


def iteration(
    seed: int, scales: Sequence[float] = (0.3, 1.0, 3.0, 10.0), streams: int = 4, samples: int = 10_000
) -> Values:
    """The error of JPmHC's two steps beside that of the closed form, for H̃ of growing size.

    Returns:
        ``jpmhc`` and ``cayley`` → ``error_<standard deviation>``: mean of max|YᵀY − I|; for ``cayley`` the
        largest.
    """
    randomness = torch.Generator().manual_seed(seed)
    rows: Values = {"jpmhc": {}, "cayley": {}}
    for scale in scales:
        h = scale * torch.randn(samples, streams, streams, generator=randomness)
        u, v = (scale * torch.randn(samples, streams, generator=randomness) for _ in range(2))
        beta = scale * torch.randn(samples, generator=randomness).abs()
        rotation = cayley_rotate(torch.eye(streams), u, v, beta)
        rows["jpmhc"][f"error_{scale:g}"] = float(orthogonality_error(cayley_iteration(h - h.mT)).mean())
        rows["cayley"][f"error_{scale:g}"] = float(orthogonality_error(rotation).amax())
    return rows


def projection(seed: int, tokens: int = 4096, streams: int = 4, width: int = 32, repeats: int = 15) -> Values:
    """Time of mixing streams, parameters to mixed streams, forward and backward, each in turn.

    Returns:
        Operator → ``seconds``, the median; ``ratio``, the median over turns of the time over that of the
        plain residual, which multiplies the streams by one number.
    """
    torch.manual_seed(seed)
    x = torch.randn(tokens, streams, width, requires_grad=True)
    n = streams

    def parameters(*shape: int) -> Tensor:
        return torch.randn(tokens, *shape, requires_grad=True)

    h, u, v, k = parameters(n, n), parameters(n), parameters(n), parameters(n)
    beta, left, right = parameters(), parameters(4), parameters(4)
    one = torch.ones(tokens, 1, 1, requires_grad=True)
    operators: dict[str, Callable[[], Tensor]] = {
        "plain": lambda: one * x,
        "mhc": lambda: matmul(sinkhorn(h), x),
        "jpmhc": lambda: matmul(cayley_iteration(h - h.mT), x),
        "cayley": lambda: cayley_rotate(x, u, v, nn.functional.softplus(beta)),
        "reflection": lambda: householder_reflect(x, k),
        "quaternion": lambda: quaternion_rotate(x, left, right),
    }
    times: dict[str, list[float]] = {name: [] for name in operators}
    for _ in range(repeats + 1):
        for name, operator in operators.items():
            began = time.perf_counter()
            operator().square().sum().backward()  # type: ignore[no-untyped-call]
            times[name].append(time.perf_counter() - began)
    plain = times["plain"][1:]
    return {
        name: {
            "seconds": median(taken[1:]),
            "ratio": median([one / other for one, other in zip(taken[1:], plain, strict=True)]),
        }
        for name, taken in times.items()
    }
