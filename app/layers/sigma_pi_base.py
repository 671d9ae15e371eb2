"""What the repaired dense and convolutional Sigma-Pi layers share: everything but the sum over the inputs.

    y = Wx + b  +  exp(s) ⊙ (∏ᵢ |xᵢ|^wᵢ − 1)  +  A[(Ux) ⊙ (Vx)]
        sigma      product                       bilinear, when bilinear_rank > 0

The product has no sign: magnitudes raised to real powers. The bilinear branch is where a signed product comes
from, such as x₁x₂ on both sides of zero. ``app.layers.polyweave`` has the published layers, which these mend.
"""

import math
from collections.abc import Collection, Mapping
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from app.maths import recruitment, sigma_pi
from app.maths.sigma_pi import at_least_float32

# Standard deviation of the exponents at the start, times √fan-in: u = Σ w log|x| is then .05·rms(log|x|), .2
# where four inputs in five are zero, and the product a small part of the output whatever the fan-in.
INITIAL_EXPONENT = 0.05
# How far an optimizer's step moves an exponent, next to the same step on an additive weight. At 1 the product
# learns as fast as the affine map and takes over some of its work; at .1 it is left to products.
PACE = 0.1


class Branches(NamedTuple):
    """The summands of a layer, each of the output's shape; float32 at least, but for ``sigma``."""

    sigma: Tensor
    product: Tensor
    bilinear: Tensor | None

    @property
    def multiplicative(self) -> Tensor:
        """Product and bilinear branch together."""
        return self.product if self.bilinear is None else self.product + self.bilinear

    def total(self) -> Tensor:
        """The layer's output, in the additive branch's dtype."""
        return (at_least_float32(self.sigma) + self.multiplicative).to(self.sigma.dtype)


class SigmaPiLayer(nn.Module):
    """Parameters, branches, read-outs and state; a subclass brings the sums over its inputs."""

    METRICS: ClassVar[Mapping[str, str]] = {
        **recruitment.PUBLISHED,
        **recruitment.TRUSTWORTHY,
        **recruitment.PER_BRANCH,
    }
    # Powers and gain, and the additive weight: shrinking that one alone would hand its work to the product.
    no_decay: ClassVar[frozenset[str]] = frozenset({"pi_weight_raw", "pi_scale", "weight"})

    weight: Tensor
    pi_weight_raw: nn.Parameter
    pi_scale: nn.Parameter
    bilinear_left: nn.Parameter | None
    bilinear_right: nn.Parameter | None
    bilinear_mix: nn.Parameter | None

    def _sigma(self, x: Tensor) -> Tensor:
        """Wx + b."""
        raise NotImplementedError

    def _map(self, x: Tensor, weight: Tensor) -> Tensor:
        """The layer's sum over inputs with another weight of the shape [any, fan-in …]."""
        raise NotImplementedError

    def _mix(self, factors: Tensor, mix: Tensor) -> Tensor:
        """A applied to the products of the bilinear branch."""
        raise NotImplementedError

    def _add_products(
        self,
        scale_shape: tuple[int, ...],
        factor_shapes: tuple[tuple[int, ...], tuple[int, ...]],
        *,
        max_exponent: float,
        max_log: float,
        center: bool,
        bilinear_rank: int,
        pi_scale_init: float,
        delta: float,
    ) -> None:
        for name, value in (("max_exponent", max_exponent), ("max_log", max_log), ("delta", delta)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a positive number, got {value}")
        if not math.isfinite(pi_scale_init):
            raise ValueError(f"pi_scale_init must be finite, got {pi_scale_init}")
        self.max_exponent = float(max_exponent)
        self.max_log = float(max_log)
        self.center = bool(center)
        self.bilinear_rank = int(bilinear_rank)
        self.pi_scale_init = float(pi_scale_init)
        self.delta = float(delta)
        like = self.weight
        self.pi_weight_raw = nn.Parameter(torch.empty_like(like))
        self.pi_scale = nn.Parameter(like.new_empty(scale_shape))
        if bilinear_rank:
            factor, mix = factor_shapes
            self.bilinear_left = nn.Parameter(like.new_empty(factor))
            self.bilinear_right = nn.Parameter(like.new_empty(factor))
            self.bilinear_mix = nn.Parameter(like.new_empty(mix))
        else:
            for name in ("bilinear_left", "bilinear_right", "bilinear_mix"):
                self.register_parameter(name, None)
        self._reset_products()

    def reset_parameters(self) -> None:
        """Draws all parameters anew; the additive ones as the plain layer does."""
        super().reset_parameters()  # type: ignore[misc]
        if "pi_scale" in self._parameters:  # not yet there when the plain layer's constructor calls this
            self._reset_products()

    @torch.no_grad()
    def _reset_products(self) -> None:
        self.pi_weight_raw.normal_(std=INITIAL_EXPONENT / (PACE * self.max_exponent))
        self.pi_scale.fill_(self.pi_scale_init)
        if self.bilinear_left is None or self.bilinear_right is None or self.bilinear_mix is None:
            return
        bound = 1 / math.sqrt(self.bilinear_left[0].numel())
        self.bilinear_left.uniform_(-bound, bound)
        self.bilinear_right.uniform_(-bound, bound)
        self.bilinear_mix.zero_()  # starts absent; its own gradient is not zero

    def bounded_exponents(self) -> Tensor:
        """Powers max_exponent · tanh(PACE · raw/√fan-in), [out, fan-in …], not centred; float32 at least.

        With √fan-in in here, an optimizer's step moves u = Σ w log|x| in proportion to √fan-in, not fan-in.
        """
        raw = at_least_float32(self.pi_weight_raw)
        return sigma_pi.paced_exponents(raw, PACE / math.sqrt(raw[0].numel()), self.max_exponent)

    def exponents(self) -> Tensor:
        """The powers wᵢ as used: centred over the fan-in when ``center``."""
        bounded = self.bounded_exponents()
        return sigma_pi.centred_exponents(bounded) if self.center else bounded

    def log_product(self, x: Tensor) -> Tensor:
        """Σᵢ wᵢ log hypot(|xᵢ|, δ) before it is bounded; float32 at least, under autocast too."""
        with sigma_pi.full_precision(x):
            return self._map(sigma_pi.smooth_log_magnitude(x, self.delta), self.exponents())

    def branches(self, x: Tensor) -> Branches:
        """The summands of the output."""
        sigma = self._sigma(x)
        with sigma_pi.full_precision(x):
            product = sigma_pi.gained_product(
                self.log_product(x), at_least_float32(self.pi_scale), self.max_log
            )
        if self.bilinear_left is None or self.bilinear_right is None or self.bilinear_mix is None:
            return Branches(sigma, product, None)
        left, right = self._map(x, self.bilinear_left), self._map(x, self.bilinear_right)
        with sigma_pi.full_precision(x):  # a product of two float16 numbers above 256 is infinite
            factors = at_least_float32(left) * at_least_float32(right)
            bilinear = self._mix(factors, at_least_float32(self.bilinear_mix))
        return Branches(sigma, product, bilinear)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the sum of the branches, in the shape and dtype of the plain layer's output."""
        return self.branches(x).total()

    def forward_without(self, x: Tensor, removed: Collection[str]) -> Tensor:
        """The output with some branches replaced by their mean over everything but the feature dimension.

        The mean stays, because a constant is no contribution: the next bias or normalisation has it.

        Args:
            x: as in ``forward``.
            removed: of ``Branches``' names; one that the layer has not is passed over.
        """
        kept = {
            name: branch.mean(dim=self._mean_dims(branch), keepdim=True).expand_as(branch)
            if name in removed and branch is not None
            else branch
            for name, branch in self.branches(x)._asdict().items()
        }
        return Branches(**kept).total()

    def _mean_dims(self, branch: Tensor) -> list[int]:
        """All dimensions but that of the features."""
        raise NotImplementedError

    def _matrices(self, x: Tensor, parts: Branches) -> tuple[Tensor, Branches]:
        """Inputs as [rows, fan-in] and the branches there as [rows, out]."""
        raise NotImplementedError

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """The published read-outs and those that cannot be fooled: see ``METRICS``.

        What is called pi here is both multiplicative branches. The shares of the single branches appear when
        there is a bilinear one.
        """
        (x,) = inputs
        parts = self.branches(x)
        matrix, at_rows = self._matrices(x, parts)
        saturated = self.log_product(x).abs() > sigma_pi.KNEE * self.max_log
        weight = self.bounded_exponents()
        return {
            **recruitment.published(parts.sigma, parts.multiplicative, weight, self.pi_scale),
            **recruitment.trustworthy(matrix, at_rows.sigma, at_rows.multiplicative, weight, saturated),
            "nonfinite_inputs": recruitment.nonfinite_share(x),
            **recruitment.per_branch(*at_rows),
        }

    def get_extra_state(self) -> Tensor:
        """What the parameters mean: [max_exponent, max_log, delta, center], float64."""
        return torch.tensor(
            [self.max_exponent, self.max_log, self.delta, float(self.center)], dtype=torch.float64
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Compares; the parameters of another configuration would silently mean something else.

        Raises:
            ValueError: when the checkpoint was written by a layer with other arguments.
        """
        names = ("max_exponent", "max_log", "delta", "center")
        ours = self.get_extra_state().tolist()
        theirs = state.detach().to("cpu", torch.float64).flatten().tolist()
        if theirs != ours:
            raise ValueError(
                f"{type(self).__name__}: the checkpoint must have been written with "
                f"{dict(zip(names, ours, strict=True))}, got {dict(zip(names, theirs, strict=False))}"
            )

    def extra_repr(self) -> str:
        """The plain layer's arguments and those of the products."""
        return (
            f"{super().extra_repr()}, max_exponent={self.max_exponent}, max_log={self.max_log}, "
            f"center={self.center}, bilinear_rank={self.bilinear_rank}, delta={self.delta}"
        )
