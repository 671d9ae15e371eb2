"""Neural arithmetic units: layers whose weights are meant to end at whole numbers.

Facts from arXiv:1808.00508 (NAC), 2001.05016 (NAU, NMU), 2003.07629 (iNALU) and the released code of the last
two (AndreasMadsen/stable-nalu, daschloer/inalu). All map [..., in] → [..., out].
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALL = 1e-7  # of |x| in the logarithms
LARGE_EXPONENT = 20.0  # of iNALU's product


def nac_range(features_in: int, features_out: int) -> float:
    """Range r of U(−r, r) for Ŵ, M̂ with (in + out)·Var[tanh Ŵ σ(M̂)] = 2, at most 5.

    Var = (1 − tanh(r)/r)(r − tanh(r/2))/(2r) rises towards 1/2: with few features no r is large enough.
    """
    low, high = 1e-3, 5.0
    for _ in range(60):
        r = (low + high) / 2
        variance = (1 - math.tanh(r) / r) * (r - math.tanh(r / 2)) / (2 * r)
        low, high = (r, high) if variance * (features_in + features_out) < 2 else (low, r)
    return low


class ArithmeticUnit(nn.Module):
    """A unit that can say how far its weights are from whole ones."""

    METRICS: ClassVar[Mapping[str, str]] = {
        "sparsity_error": "largest distance of a |weight| from 0 or 1, whichever is nearer; healthy below "
        "1e-2, an exact selection of inputs; above, at most .5: the unit has not decided, train longer"
    }

    def weights(self) -> tuple[Tensor, ...]:
        """The effective weights, [out, in] each."""
        raise NotImplementedError

    def sparsity(self) -> Tensor:
        """Mean min(|W|, |1 − |W||), 0-d: the regulariser of NAU and NMU."""
        return torch.stack([_distance(weight).mean() for weight in self.weights()]).sum()

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """``sparsity_error``: max min(|W|, |1 − |W||)."""
        return {"sparsity_error": torch.stack([_distance(weight).amax() for weight in self.weights()]).amax()}


def _distance(weight: Tensor) -> Tensor:
    magnitude = weight.abs()
    return torch.minimum(magnitude, (1 - magnitude).abs())


class NAU(ArithmeticUnit):
    """Addition: z = Wx, W in [−1, 1]."""

    LIMITS: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        bound = min(0.5, math.sqrt(6 / (features_in + features_out)))
        self.weight = nn.Parameter(torch.empty(features_out, features_in).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        return F.linear(x, self.weight)

    @torch.no_grad()
    def constrain(self) -> None:
        """Clamps the weights into [−1, 1], in place."""
        self.weight.clamp_(*self.LIMITS)

    def weights(self) -> tuple[Tensor, ...]:
        """W."""
        return (self.weight,)


class NMU(ArithmeticUnit):
    """Multiplication: z_o = ∏ᵢ (W_oi xᵢ + 1 − W_oi), W in [0, 1]; signs and zeros are exact."""

    LIMITS: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_out, features_in).uniform_(0.25, 0.75))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        return (self.weight * (x.unsqueeze(-2) - 1) + 1).prod(dim=-1)

    @torch.no_grad()
    def constrain(self) -> None:
        """Clamps the weights into [0, 1], in place."""
        self.weight.clamp_(*self.LIMITS)

    def weights(self) -> tuple[Tensor, ...]:
        """W."""
        return (self.weight,)


class NACPlus(ArithmeticUnit):
    """Addition: z = Wx, W = tanh Ŵ ⊙ σ(M̂)."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        r = nac_range(features_in, features_out)
        self.weight_raw = nn.Parameter(torch.empty(features_out, features_in).uniform_(-r, r))
        self.mask_raw = nn.Parameter(torch.empty(features_out, features_in).uniform_(-r, r))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        return F.linear(x, self.weights()[0])

    def weights(self) -> tuple[Tensor, ...]:
        """W."""
        return (_gated(self.weight_raw, self.mask_raw),)


class NACTimes(NACPlus):
    """Multiplication: z = exp(W log(|x| + 1e-7)), W as in ``NACPlus``; sign is lost."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        return torch.exp(super().forward(torch.log(x.abs() + SMALL)))


class INALU(ArithmeticUnit):
    """g ⊙ W_a x + (1 − g) ⊙ s ⊙ exp(min(20, W_m log max(|x|, 1e-7))), g = σ(free vector).

    s_o = ∏ᵢ (sign(xᵢ)|W_m,oi| + 1 − |W_m,oi|). Both weights are tanh Ŵ ⊙ σ(M̂) of their own; Ŵ, M̂ and the
    gate start at 1, −1 and 0 with deviation .1.
    """

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        shape = (features_out, features_in)
        self.add_raw = nn.Parameter(torch.empty(shape).normal_(1, 0.1))
        self.add_mask = nn.Parameter(torch.empty(shape).normal_(-1, 0.1))
        self.multiply_raw = nn.Parameter(torch.empty(shape).normal_(1, 0.1))
        self.multiply_mask = nn.Parameter(torch.empty(shape).normal_(-1, 0.1))
        self.gate_raw = nn.Parameter(torch.empty(features_out).normal_(0, 0.1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns [..., out]."""
        add, multiply = self.weights()
        gate = torch.sigmoid(self.gate_raw)
        exponent = F.linear(torch.log(x.abs().clamp(min=SMALL)), multiply).clamp(max=LARGE_EXPONENT)
        share = multiply.abs()
        sign = (torch.sign(x).unsqueeze(-2) * share + 1 - share).prod(dim=-1)
        return gate * F.linear(x, add) + (1 - gate) * sign * torch.exp(exponent)

    def weights(self) -> tuple[Tensor, ...]:
        """W_a and W_m."""
        return _gated(self.add_raw, self.add_mask), _gated(self.multiply_raw, self.multiply_mask)

    def indecision(self) -> Tensor:
        """Σ mean max(0, 20 − |v|) over Ŵ, M̂ and the gate, 0-d: iNALU's own regulariser."""
        free = (self.add_raw, self.add_mask, self.multiply_raw, self.multiply_mask, self.gate_raw)
        return torch.stack([F.relu(20 - value.abs()).mean() for value in free]).sum()


def _gated(raw: Tensor, mask: Tensor) -> Tensor:
    return torch.tanh(raw) * torch.sigmoid(mask)
