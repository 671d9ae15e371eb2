"""The Sigma-Pi layers as published: the numbers, names, defaults and state keys of PolyWeave 0.2.0.

Kept as a baseline, faults included; ``app.layers.sigma_pi`` is the repaired family. Written anew from the
equations in the documentation of the PyPI package polyweave (Apache-2.0), and held to its
numbers by tests. ``TanhSigmaPiLinear`` is the older form, which PolyWeave names but does not ship.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from app.layers.batch_norm import block_effects, normalised_output
from app.layers.patches import rows, window_rows
from app.maths import recruitment, sigma_pi


def _published_energy(sigma: Tensor, pi: Tensor) -> dict[str, float]:
    """float32 and Python numbers, as published; a share of 0 where it is undefined."""
    sigma_rms, pi_rms = (branch.float().pow(2).mean().sqrt().item() for branch in (sigma, pi))
    total = sigma_rms + pi_rms
    return {"sigma_rms": sigma_rms, "pi_rms": pi_rms, "pi_share": pi_rms / total if total > 0 else 0.0}


NO_DECAY = frozenset({"pi_weight_raw", "pi_scale"})


class SigmaPiLinear(nn.Module):
    """Published dense layer: y = σ + π, [..., in] → [..., out].

    σ = Linear(x − x̄); ℓ = log(|x| + eps) minus its mean over the features; w = max_exponent · tanh(raw);
    u = clamp(ℓ wᵀ, ±max_log); π = exp(pi_scale) · exp(u), or · expm1(u) with ``center_product``.
    ``signed_products`` multiplies π by the sign of Σ |w| sign(x), which is a vote, not a product of signs.

    State keys: ``sigma.weight``, ``sigma.bias``, ``pi_weight_raw`` [out, in], ``pi_scale`` [out].
    """

    METRICS: ClassVar[Mapping[str, str]] = {**recruitment.PUBLISHED, **recruitment.TRUSTWORTHY}
    no_decay: ClassVar[frozenset[str]] = NO_DECAY

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        bias: bool = True,
        pi_scale_init: float = -2.0,
        max_exponent: float = 0.5,
        max_log: float = 6.0,
        signed_products: bool = False,
        center_product: bool = False,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = in_features if out_features is None else out_features
        self.max_exponent = float(max_exponent)
        self.max_log = float(max_log)
        self.signed_products = bool(signed_products)
        self.center_product = bool(center_product)
        self.eps = eps
        self.sigma = nn.Linear(self.in_features, self.out_features, bias=bias)
        self.pi_weight_raw = nn.Parameter(0.1 * torch.randn(self.out_features, self.in_features))
        self.pi_scale = nn.Parameter(torch.full((self.out_features,), float(pi_scale_init)))

    def pi_weight(self) -> Tensor:
        """The exponents w, [out, in]."""
        return sigma_pi.bounded_exponents(self.pi_weight_raw, self.max_exponent)

    def log_product(self, x: Tensor) -> Tensor:
        """ℓ wᵀ before the clamp, [..., out]."""
        magnitude = sigma_pi.log_magnitude(x, self.eps)
        return F.linear(magnitude - magnitude.mean(dim=-1, keepdim=True), self.pi_weight())

    def branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The two summands (σ, π)."""
        sigma = self.sigma(x - x.mean(dim=-1, keepdim=True))
        u = self.log_product(x).clamp(-self.max_log, self.max_log)
        product = torch.expm1(u) if self.center_product else torch.exp(u)
        if self.signed_products:
            votes = F.linear(sigma_pi.sign_or_one(x), self.pi_weight().abs())
            product = product * sigma_pi.sign_or_one(votes)
        return sigma, torch.exp(self.pi_scale) * product

    def forward(self, x: Tensor) -> Tensor:
        """Returns σ + π, [..., out]."""
        sigma, pi = self.branches(x)
        return sigma + pi

    @torch.no_grad()
    def exponent_abs_mean(self) -> float:
        """Mean |w|, published."""
        return self.pi_weight().abs().mean().item()

    @torch.no_grad()
    def pi_scale_mean(self) -> float:
        """Mean exp(pi_scale), published."""
        return self.pi_scale.exp().mean().item()

    @torch.no_grad()
    def branch_energy(self, x: Tensor) -> dict[str, float]:
        """``sigma_rms``, ``pi_rms`` and ``pi_share`` on x, published; 0 where the share is undefined."""
        return _published_energy(*self.branches(x))

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """The published read-outs and those that cannot be fooled: see ``METRICS``."""
        (x,) = inputs
        sigma, pi = self.branches(x)
        return recruitment.published(sigma, pi, self.pi_weight(), self.pi_scale) | recruitment.trustworthy(
            rows(x), rows(sigma), rows(pi), self.pi_weight(), self.log_product(x).abs() >= self.max_log
        )

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"max_exponent={self.max_exponent}, max_log={self.max_log}, "
            f"signed_products={self.signed_products}, center_product={self.center_product}, eps={self.eps}"
        )


class TanhSigmaPiLinear(nn.Module):
    """Deprecated dense form, a historical baseline, [..., in] → [..., out].

    y = Linear(x − x̄) + exp(s) · tanh(W · sign(x) log(|x| + eps)). It never exponentiates, so it cannot
    multiply; all recruitment figures published so far come from it. W ~ N(0, .1), s starts at
    ``pi_scale_init``; σ is as in ``SigmaPiLinear``.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        name: text
        for name, text in SigmaPiLinear.METRICS.items()
        if name not in {"exponents", "exponent_abs_mean", "exponent_centred_abs_mean"}
    }
    no_decay: ClassVar[frozenset[str]] = frozenset({"pi_scale"})

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        *,
        bias: bool = True,
        pi_scale_init: float = -2.0,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = in_features if out_features is None else out_features
        self.eps = eps
        self.sigma = nn.Linear(self.in_features, self.out_features, bias=bias)
        self.pi_weight = nn.Parameter(0.1 * torch.randn(self.out_features, self.in_features))
        self.pi_scale = nn.Parameter(torch.full((self.out_features,), float(pi_scale_init)))

    def branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The two summands (σ, π)."""
        sigma = self.sigma(x - x.mean(dim=-1, keepdim=True))
        bounded = torch.tanh(F.linear(sigma_pi.signed_log(x, self.eps), self.pi_weight))
        return sigma, torch.exp(self.pi_scale) * bounded

    def forward(self, x: Tensor) -> Tensor:
        """Returns σ + π, [..., out]."""
        sigma, pi = self.branches(x)
        return sigma + pi

    @torch.no_grad()
    def pi_scale_mean(self) -> float:
        """Mean exp(pi_scale), published."""
        return self.pi_scale.exp().mean().item()

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """As in ``SigmaPiLinear``, without the exponents, which it has not; saturated is |tanh| > .99."""
        (x,) = inputs
        sigma, pi = self.branches(x)
        saturated = (pi / torch.exp(self.pi_scale)).abs() > 0.99
        read = recruitment.published(sigma, pi, self.pi_weight, self.pi_scale) | recruitment.trustworthy(
            rows(x), rows(sigma), rows(pi), self.pi_weight, saturated
        )
        return {name: read[name] for name in self.METRICS}


class ConvSigmaPi2d(nn.Module):
    """Published convolutional block: relu(bn(σ + π)), [N, C, H, W] → [N, C, H′, W′].

    As ``SigmaPiLinear`` with convolutions for the products; x and log(|x| + eps) are centred by their means
    over (H, W), per sample and channel, before the zero padding. ``pi_enabled = False`` drops π from
    ``forward``.

    State keys: ``sigma_conv.weight``, ``sigma_conv.bias``, ``pi_weight_raw`` [C, C, k, k],
    ``pi_scale`` [C, 1, 1], ``bn.*``.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        **SigmaPiLinear.METRICS,
        **recruitment.PUBLISHED_BLOCK,
        **recruitment.TRUSTWORTHY_BLOCK,
    }
    no_decay: ClassVar[frozenset[str]] = NO_DECAY

    def __init__(
        self,
        channels: int,
        kernel_size: int = 3,
        padding: int = 1,
        pi_scale_init: float = -2.0,
        max_exponent: float = 0.5,
        max_log: float = 6.0,
        signed_products: bool = False,
        center_product: bool = False,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.padding = padding
        self.max_exponent = float(max_exponent)
        self.max_log = float(max_log)
        self.signed_products = bool(signed_products)
        self.center_product = bool(center_product)
        self.eps = eps
        self.sigma_conv = nn.Conv2d(channels, channels, kernel_size, padding=padding)
        self.pi_weight_raw = nn.Parameter(0.1 * torch.randn(channels, channels, kernel_size, kernel_size))
        self.pi_scale = nn.Parameter(torch.full((channels, 1, 1), float(pi_scale_init)))
        self.bn = nn.BatchNorm2d(channels)
        self.pi_enabled = True

    def pi_weight(self) -> Tensor:
        """The exponents w, [C, C, k, k]."""
        return sigma_pi.bounded_exponents(self.pi_weight_raw, self.max_exponent)

    def log_product(self, x: Tensor) -> Tensor:
        """The convolution of centred log-magnitudes before the clamp, [N, C, H′, W′]."""
        magnitude = sigma_pi.log_magnitude(x, self.eps)
        magnitude = magnitude - magnitude.mean(dim=(-2, -1), keepdim=True)
        return F.conv2d(magnitude, self.pi_weight(), padding=self.padding)

    def branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The two summands (σ, π), before batch normalisation."""
        sigma = self.sigma_conv(x - x.mean(dim=(-2, -1), keepdim=True))
        u = self.log_product(x).clamp(-self.max_log, self.max_log)
        product = torch.expm1(u) if self.center_product else torch.exp(u)
        if self.signed_products:
            votes = F.conv2d(sigma_pi.sign_or_one(x), self.pi_weight().abs(), padding=self.padding)
            product = product * sigma_pi.sign_or_one(votes)
        return sigma, torch.exp(self.pi_scale) * product

    def forward(self, x: Tensor) -> Tensor:
        """Returns relu(bn(σ + π)), [N, C, H′, W′]."""
        sigma, pi = self.branches(x)
        if not self.pi_enabled:
            pi = torch.zeros_like(pi)
        return F.relu(self.bn(sigma + pi))

    @torch.no_grad()
    def exponent_abs_mean(self) -> float:
        """Mean |w|, published."""
        return self.pi_weight().abs().mean().item()

    @torch.no_grad()
    def pi_scale_mean(self) -> float:
        """Mean exp(pi_scale), published."""
        return self.pi_scale.exp().mean().item()

    @torch.no_grad()
    def branch_energy(self, x: Tensor) -> dict[str, float]:
        """As in ``SigmaPiLinear``, and ``pi_effect_postbn``, published."""
        sigma, pi = self.branches(x)
        on, off = (normalised_output(self.bn, branch).float() for branch in (sigma + pi, sigma))
        size = on.pow(2).mean().sqrt()
        effect = ((on - off).pow(2).mean().sqrt() / size).item() if size > 0 else 0.0
        return _published_energy(sigma, pi) | {"pi_effect_postbn": effect}

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """The published read-outs and those that cannot be fooled: see ``METRICS``."""
        (x,) = inputs
        sigma, pi = self.branches(x)
        centred = x - x.mean(dim=(-2, -1), keepdim=True)
        matrix, *branches = window_rows(self.sigma_conv, centred, (sigma, pi), recruitment.MAX_FIT_ROWS)
        saturated = self.log_product(x).abs() >= self.max_log
        return (
            recruitment.published(sigma, pi, self.pi_weight(), self.pi_scale)
            | block_effects(self.bn, sigma, pi)
            | recruitment.trustworthy(matrix, branches[0], branches[1], self.pi_weight(), saturated)
            | {"nonfinite_inputs": recruitment.nonfinite_share(x)}
        )

    def extra_repr(self) -> str:
        """The arguments, for ``repr``."""
        return (
            f"channels={self.channels}, max_exponent={self.max_exponent}, max_log={self.max_log}, "
            f"signed_products={self.signed_products}, center_product={self.center_product}, eps={self.eps}"
        )
