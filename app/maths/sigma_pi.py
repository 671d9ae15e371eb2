"""Products of powers, formed in log space: the equations of the Sigma-Pi layers.

A product branch computes ∏ᵢ |xᵢ|^wᵢ as exp(Σᵢ wᵢ log |xᵢ|). Two families stand side by side:

* published: ``log(|x| + eps)``, a hard clamp of the sum, a vote for the sign;
* repaired: ``log hypot(|x|, δ)``, a bend instead of the clamp, and no sign of its own.

Everything here is element by element, so that dense and convolutional layers share it; the sum over
the inputs is ``F.linear`` or ``F.conv2d`` in between. Source of the published equations: the documentation of
PolyWeave 0.2.0 (PyPI package polyweave).
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

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
    """ℓ = log hypot(x, δ). Keeps x and ℓ, which the sum that follows keeps anyway."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, delta: float) -> Tensor:
        return torch.hypot(x, torch.full((), delta, dtype=x.dtype, device=x.device)).log_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, magnitude = ctx.saved_tensors
        inverse = torch.exp(-magnitude)
        # x/(x² + δ²) in two factors: the square alone overflows from 1e19 on.
        return grad * (x * inverse).mul_(inverse), None


def smooth_log_magnitude(x: Tensor, delta: float) -> Tensor:
    """Magnitude log √(x² + δ²) = log hypot(|x|, δ), with slope x/(x² + δ²), at most 1/(2δ).

    float16 and bfloat16 are computed, and returned, in float32; float64 stays. Finite for every finite x.
    An input smaller than δ counts as δ: the magnitude is never off by more than δ.
    """
    return _LogHypot.apply(at_least_float32(x), delta)  # type: ignore[no-any-return]


def soft_clamp(t: Tensor, bound: float) -> Tensor:
    """The identity up to ¾·bound; beyond, it bends towards ±bound and never reaches it.

    With knee k = ¾·bound, room q = bound − k and e = |t| − k > 0: u = sign(t)·(k + e/(1 + e/q)), slope
    (1 + e/q)^−2. Algebraic, so that the slope at twice the bound is still 1/36: no dead region.
    """
    excess = functional.softshrink(t, KNEE * bound)
    size = excess.abs()
    return t - excess * size / (size + (1 - KNEE) * bound)


def _soft_clamp_slope(t: Tensor, bound: float) -> Tensor:
    room = (1 - KNEE) * bound
    excess = functional.softshrink(t, KNEE * bound)
    if torch.is_grad_enabled():  # differentiated once more
        return (room / (excess.abs() + room)).square()
    ratio = excess.abs_().add_(room).reciprocal_().mul_(room)
    return ratio.mul_(ratio)


class _PacedExponents(Function):
    """w = bound · tanh(pace · raw). Keeps w alone, which the sum that follows keeps anyway."""

    generate_vmap_rule = True

    @staticmethod
    def forward(raw: Tensor, pace: float, bound: float) -> Tensor:
        return (raw * pace).tanh_().mul_(bound)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        _, ctx.pace, ctx.bound = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (exponents,) = ctx.saved_tensors
        slope = exponents.square().mul_(-ctx.pace / ctx.bound).add_(ctx.pace * ctx.bound)
        return grad * slope, None, None


def paced_exponents(raw: Tensor, pace: float, max_exponent: float) -> Tensor:
    """Exponents w = max_exponent · tanh(pace · raw): an optimizer moves them slowly at a small pace."""
    return _PacedExponents.apply(raw, pace, max_exponent)  # type: ignore[no-any-return]


class _GainedProduct(Function):
    """π = exp(s) · (exp(u) − 1), u = soft_clamp(t). Keeps t, s and π; the rest is recomputed.

    exp(u) − 1 and not expm1(u), which takes ten times as long on a CPU: the error is a rounding of exp(u),
    and π stands in a sum.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, log_gain: Tensor, bound: float) -> Tensor:
        return torch.exp(log_gain) * soft_clamp(t, bound).exp_().sub_(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        t, log_gain, ctx.bound = inputs
        ctx.save_for_backward(t, log_gain, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        t, log_gain, product = ctx.saved_tensors
        # exp(s) exp(u) = π + exp(s)
        to_t = grad * (product + torch.exp(log_gain)).mul_(_soft_clamp_slope(t, ctx.bound))
        to_gain = (grad * product).sum_to_size(log_gain.shape)
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
