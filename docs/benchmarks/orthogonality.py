"""The Cayley rotation beside a batched solve and the textbook's closed form, all in float32.

python docs/benchmarks/orthogonality.py
"""

import math
from collections.abc import Callable, Sequence

import torch
from jsonargparse import auto_cli
from rich.console import Console
from rich.table import Table
from torch import Tensor

from app.maths.orthogonal import cayley_rotate

Rotate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def solve(x: Tensor, u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """The definition, by a batched solve in the precision of its arguments."""
    a = u.unsqueeze(-1) * v.unsqueeze(-2)
    step = beta[..., None, None] / 2 * (a - a.mT)
    eye = torch.eye(u.shape[-1], dtype=x.dtype)
    return torch.linalg.solve(eye + step, (eye - step) @ x)


def closed_form(x: Tensor, u: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Qx = x − c·Ax + c·s·A(Ax), s = β/2, c = 2s/(1 + s²Δ), Δ = ‖u‖²‖v‖² − (u·v)²."""

    def apply(y: Tensor) -> Tensor:
        return u.unsqueeze(-1) * (v @ y).unsqueeze(-2) - v.unsqueeze(-1) * (u @ y).unsqueeze(-2)

    s = beta / 2
    c = 2 * s / (1 + s**2 * (u.square().sum(-1) * v.square().sum(-1) - (u * v).sum(-1).square()))
    first = apply(x)
    return x - c * first + c * s * apply(first)


WAYS: dict[str, Rotate] = {"ours": cayley_rotate, "solve": solve, "closed form": closed_form}


def vectors(n: int, angle: float, seed: int) -> tuple[Tensor, Tensor]:
    """Two float64 unit vectors at an angle."""
    pair = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    e = torch.linalg.qr(pair)[0]
    return e[:, 0], math.cos(angle) * e[:, 0] + math.sin(angle) * e[:, 1]


def orthogonality(rotate: Rotate, u: Tensor, v: Tensor, beta: Tensor) -> float:
    """max|QᵀQ − I|, measured in float64; inf where Q is not finite or the way fails."""
    try:
        q = rotate(torch.eye(len(u)), u, v, beta).double()
    except torch.linalg.LinAlgError:
        return math.inf
    error = float((q.mT @ q - torch.eye(len(u), dtype=torch.float64)).abs().max())
    return math.inf if math.isnan(error) else error


def gradient_error(rotate: Rotate, u: Tensor, v: Tensor, beta: Tensor) -> float | None:
    """Relative error of the gradient by u and v against the float64 solve; None where that is no judge."""
    generator = torch.Generator().manual_seed(0)
    x, cotangent = (torch.randn(len(u), 3, generator=generator) for _ in range(2))
    turn = float(beta.double().abs() * u.double().norm() * v.double().norm())
    if turn > 1e6:
        return None  # the float64 solve has lost its digits as well

    def gradient(way: Rotate, dtype: torch.dtype) -> Tensor:
        arguments = [t.to(dtype) for t in (x, u, v, beta)]
        inputs = [t.clone().requires_grad_() for t in arguments[1:3]]
        y = way(arguments[0], *inputs, arguments[3])
        grads = torch.autograd.grad(y, inputs, cotangent.to(dtype))
        # In units of the vectors, so that scales compare.
        return torch.cat(
            [
                g.double() * max(float(t.detach().double().norm()), 1.0)
                for g, t in zip(grads, inputs, strict=True)
            ]
        )

    want = gradient(solve, torch.float64)
    try:
        got = gradient(rotate, torch.float32)
    except torch.linalg.LinAlgError:
        return math.inf
    error = float((got - want).norm() / want.norm().clamp(min=1e-30))
    return math.inf if math.isnan(error) else error


def cases() -> list[tuple[str, Callable[[int], tuple[Tensor, Tensor, float]]]]:
    """What each row of the table is made of: u, v and β for a size n."""
    rows: list[tuple[str, Callable[[int], tuple[Tensor, Tensor, float]]]] = []
    for exponent in range(1, 8):
        rows.append(
            (f"angle 1e-{exponent}, β = 0.69", lambda n, e=exponent: (*vectors(n, 10.0**-e, n), 0.693))  # type: ignore[misc]
        )
    for exponent in (1, 4, 7):
        rows.append(
            (
                f"angle 1e-{exponent}, quarter turn",
                lambda n, e=exponent: (*vectors(n, 10.0**-e, n), 2 * 10.0**e),
            )  # type: ignore[misc]
        )
    rows.append(("u = 0, β = 0.69", lambda n: (torch.zeros(n).double(), vectors(n, 1, n)[1], 0.693)))
    rows.append(("u = v, β = 1e15", lambda n: (vectors(n, 1, n)[0], vectors(n, 1, n)[0], 1e15)))
    for beta in (1e-6, 1.0, 1e3, 1e6, 1e15):
        rows.append((f"angle 1, β = {beta:.0e}", lambda n, b=beta: (*vectors(n, 1.0, n), b)))  # type: ignore[misc]
    for scale in (1e-15, 1e-3, 1e3, 1e15):
        rows.append(
            (
                f"angle 1, both × {scale:.0e}, β = 1",
                lambda n, s=scale: (*(s * t for t in vectors(n, 1.0, n)), 1.0),
            )  # type: ignore[misc]
        )
    return rows


def main(sizes: Sequence[int] = (4, 64, 512)) -> None:
    """Prints one table a size: the largest entry of |QᵀQ − I|, and the relative error of derivatives.

    Args:
        sizes: Lengths n of the vectors.
    """
    console = Console(width=118)
    for n in sizes:
        table = Table(title=f"n = {n}, float32", title_justify="left")
        table.add_column("case", no_wrap=True)
        for quantity in ("|QᵀQ − I|", "∂ by u, v"):
            for way in WAYS:
                table.add_column(f"{quantity}\n{way}", justify="right")
        for name, case in cases():
            u, v, beta = case(n)
            arguments = (u.float(), v.float(), torch.tensor(beta))
            errors = [orthogonality(way, *arguments) for way in WAYS.values()]
            gradients = [gradient_error(way, *arguments) for way in WAYS.values()]
            table.add_row(
                name, *(f"{e:.0e}" for e in errors), *("–" if g is None else f"{g:.0e}" for g in gradients)
            )
        console.print(table)


if __name__ == "__main__":
    auto_cli(main)
