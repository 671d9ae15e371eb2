"""Products of powers, formed in log space: the equations of the Sigma-Pi layers.

A product branch computes ∏ᵢ |xᵢ|^wᵢ as exp(Σᵢ wᵢ log |xᵢ|). Two families stand side by side:

* published: ``log(|x| + eps)``, a hard clamp of the sum, a vote for the sign;
* repaired: ``log hypot(|x|, δ)``, a bend instead of the clamp, and no sign of its own.

Everything here is element by element, so that dense and convolutional layers share it; the sum over
the inputs is ``F.linear`` or ``F.conv2d`` in between. Source of the published equations: the documentation of
PolyWeave 0.2.0 (https://pypi.org/project/polyweave).
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

# The share of the bound up to which ``soft_clamp`` is the identity.
KNEE = 0.75


def bounded_exponents(raw: Tensor, max_exponent: float) -> Tensor:
    """Exponents w = max_exponent · tanh(raw), each in (−max_exponent, max_exponent)."""
    return max_exponent * torch.tanh(raw)


def centred_exponents(exponents: Tensor) -> Tensor:
    """Exponents minus their mean over the fan-in: [out, …] → [out, …].

    The product with centred exponents is unchanged when all inputs are scaled alike: only ratios count.
    """
    fan_in_dims = tuple(range(1, exponents.dim()))
    return exponents - exponents.mean(dim=fan_in_dims, keepdim=True)


# --- published --------------------------------------------------------------------------------------


def log_magnitude(x: Tensor, eps: float) -> Tensor:
    """Magnitude log(|x| + eps), published: slope up to 1/eps, and eps = 1e-8 is 0 in float16."""
    return torch.log(x.abs() + eps)


def signed_log(x: Tensor, eps: float) -> Tensor:
    """Input sign(x) · log(|x| + eps) of the deprecated form: jumps at zero and is negative below 1."""
    return torch.sign(x) * torch.log(torch.abs(x) + eps)


def sign_or_one(x: Tensor) -> Tensor:
    """Sign of x, with +1 for 0."""
    sign = torch.sign(x)
    return torch.where(sign == 0, torch.ones_like(sign), sign)


# --- repaired ---------------------------------------------------------------------------------------


class _LogHypot(Function):
    """log hypot(x, δ), which keeps x alone for the backward pass and recomputes the rest."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: float) -> Tensor:
        return torch.log(torch.hypot(x, torch.full((), delta, dtype=x.dtype, device=x.device)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        x, ctx.delta = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        radius = torch.hypot(x, torch.full((), ctx.delta, dtype=x.dtype, device=x.device))
        # x/(x² + δ²) in two divisions: the square alone overflows from 1e19 on.
        return grad * (x / radius) / radius, None


def smooth_log_magnitude(x: Tensor, delta: float) -> Tensor:
    """Magnitude log √(x² + δ²) = log hypot(|x|, δ), with slope x/(x² + δ²), at most 1/(2δ).

    float16 and bfloat16 are computed, and returned, in float32; float64 stays. Finite for every finite x.
    An input smaller than δ counts as δ: the magnitude is never off by more than δ.
    """
    return _LogHypot.apply(at_least_float32(x), delta)  # type: ignore[no-any-return]


def _bend(t: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """``soft_clamp`` and its slope."""
    knee = KNEE * bound
    room = bound - knee
    excess = t - t.clamp(-knee, knee)
    squeeze = 1 / (1 + excess.abs() / room)
    return t - excess + excess * squeeze, squeeze.square()


def soft_clamp(t: Tensor, bound: float) -> Tensor:
    """The identity up to ¾·bound; beyond, it bends towards ±bound and never reaches it.

    With knee k = ¾·bound, room q = bound − k and e = |t| − k > 0: u = sign(t)·(k + e/(1 + e/q)), slope
    (1 + e/q)^−2. Algebraic, so that the slope at twice the bound is still 1/36: no dead region.
    """
    return _bend(t, bound)[0]


class _GainedProduct(Function):
    """exp(s) · expm1(soft_clamp(t)), which keeps t and s alone and recomputes the exponential."""

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, log_gain: Tensor, bound: float) -> Tensor:
        return torch.exp(log_gain) * torch.expm1(soft_clamp(t, bound))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        t, log_gain, ctx.bound = inputs
        ctx.save_for_backward(t, log_gain)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        t, log_gain = ctx.saved_tensors
        u, slope = _bend(t, ctx.bound)
        gained = grad * torch.exp(log_gain)
        to_t = gained * torch.exp(u) * slope
        to_gain = (gained * torch.expm1(u)).sum_to_size(log_gain.shape)
        return to_t, to_gain, None


def gained_product(log_product: Tensor, log_gain: Tensor, max_log: float) -> Tensor:
    """π = exp(log_gain) · (exp(u) − 1) with u = soft_clamp(log_product, max_log).

    Args:
        log_product: Σᵢ wᵢ log|xᵢ|, any shape.
        log_gain: logarithm of the amplitude, broadcast against ``log_product``.
        max_log: bound on |u|; the product lies in (e^−max_log, e^max_log).

    Returns:
        The shape of ``log_product``. Exactly 0 where every exponent is 0.
    """
    return _GainedProduct.apply(log_product, log_gain, max_log)  # type: ignore[no-any-return]


def at_least_float32(x: Tensor) -> Tensor:
    """Converts to float32 what is float16 or bfloat16, and leaves the rest."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Suspends autocast on x's device; on the meta device, which has none, does nothing."""
    return nullcontext() if x.device.type == "meta" else torch.autocast(x.device.type, enabled=False)
