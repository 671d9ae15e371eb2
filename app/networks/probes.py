"""Single operators on a whole vector, for tasks that ask for one: y = M(x)·x, nothing else.

n: size of the vector.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from app.layers.mixing.base import HISTOGRAM, shortcut_diagnostics
from app.layers.mixing.cayley import ROTATION_METRICS, rotation_diagnostics
from app.layers.mixing.fused import FusedMap
from app.layers.mixing.hybrid import CayleyHouseholder, Hybrid, hybrid_diagnostics
from app.maths.orthogonal import (
    cayley_iterate,
    cayley_rotate,
    delta,
    householder_reflect,
)
from app.maths.representation import thin
from app.networks.checks import check_sizes

NEAR = 0.1
"""Size of parameters that start near zero and must not start at it."""


class Probe(nn.Module):
    """What all probes share: one fused map from x to the operator's parameters.

    Args:
        input_shape: (n,).
        num_outputs: n; an operator cannot change the size.
        hidden: hidden units of the fused map.
        sizes: how many numbers each parameter has.
        silent: which of them start at zero, by position.

    Shape: ``[B, n] → [B, n]``.

    Raises:
        ValueError: sizes below 1, or an output of another size than the input.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        hidden: int,
        sizes: Sequence[int],
        silent: Sequence[int] = (),
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, 1, hidden)
        if tuple(input_shape) != (num_outputs,):
            raise ValueError(f"num_outputs must be the input's size {tuple(input_shape)}, got {num_outputs}")
        self.fused = FusedMap(num_outputs, hidden, sizes, silent)


class CayleyProbe(Probe):
    """y = Q(x)·x with a rotation in one plane. Reaches −x only in the limit β → ∞.

    It does not start at the identity: xᵀAx = 0 for every skew A, so that near Q = I no first-order change of
    a rotation brings y nearer to −x, and a plane that starts at zero stays there.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
    """

    METRICS: ClassVar[Mapping[str, str]] = ROTATION_METRICS

    def __init__(self, input_shape: Sequence[int], num_outputs: int, hidden: int = 128) -> None:
        n = num_outputs
        super().__init__(input_shape, n, hidden, (n, n, 1), silent=(2,))

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Plane ``[B, n]`` and scale ``[B]``."""
        u, v, beta = self.fused(x)
        return u, v, F.softplus(beta.squeeze(-1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the rotated vectors."""
        return cayley_rotate(x.unsqueeze(-1), *self.parameters_of(x)).squeeze(-1)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the vectors just received; names as in ``METRICS``."""
        return rotation_diagnostics(*self.parameters_of(inputs[0]))


class ReflectionProbe(Probe):
    """y = H(k)·x with k along αx + MLP(x).

    With α = 0 the direction starts anywhere. With α = 1 it starts near x, and the probe near y = −x: for
    negation that start is most of the answer.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
        along: α at the start, trained.
    """

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, hidden: int = 128, along: float = 1.0
    ) -> None:
        super().__init__(input_shape, num_outputs, hidden, (num_outputs,))
        self.along = nn.Parameter(torch.tensor(float(along)))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the reflected vectors."""
        (k,) = self.fused(x)
        return householder_reflect(x.unsqueeze(-1), self.along * x + k).squeeze(-1)


class DeltaProbe(Probe):
    """y = x − βk̂(k̂ᵀx) with k along αx + MLP(x) and β = 2σ(·), 1 at the start.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
        along: α at the start, trained; see ``ReflectionProbe``.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "beta_mean": "mean reflection strength, 0 keeps, 1 erases, 2 reflects; healthy on negation: "
        "towards 2; stuck at 1: a direction is lost, raise the learning rate",
        "beta": "distribution of the reflection strength over samples, 0 to 2; healthy on negation: at 2; "
        "spread: still learning",
    }

    def __init__(
        self, input_shape: Sequence[int], num_outputs: int, hidden: int = 128, along: float = 1.0
    ) -> None:
        super().__init__(input_shape, num_outputs, hidden, (num_outputs, 1), silent=(1,))
        self.along = nn.Parameter(torch.tensor(float(along)))

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Direction ``[B, n]`` and strength ``[B]``."""
        k, beta = self.fused(x)
        return self.along * x + k, 2 * torch.sigmoid(beta.squeeze(-1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the changed vectors."""
        return delta(x.unsqueeze(-1), *self.parameters_of(x)).squeeze(-1)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the vectors just received; names as in ``METRICS``."""
        _, beta = self.parameters_of(inputs[0])
        return {"beta_mean": beta.mean(), "beta": thin(beta, HISTOGRAM)}


class EDeltaProbe(Probe):
    """y = γ·Q x + (1 − γ)·H(k) x with k along αx + MLP(x): E∆'s operator.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
        along: α at the start, trained; see ``ReflectionProbe``.
        gate_bias: the gate's bias at the start; below 0 towards the reflection.
        penalty_weight: λ of the penalty on undecided gates, at least 0.

    Raises:
        ValueError: a negative λ.
    """

    METRICS: ClassVar[Mapping[str, str]] = CayleyHouseholder.METRICS

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        hidden: int = 128,
        along: float = 1.0,
        gate_bias: float = -1.5,
        penalty_weight: float = 0.5,
    ) -> None:
        n = num_outputs
        if penalty_weight < 0:
            raise ValueError(f"penalty_weight must not be negative, got {penalty_weight}")
        super().__init__(input_shape, n, hidden, (n, n, n, 1, 1), silent=(1, 3, 4))
        self.along = nn.Parameter(torch.tensor(float(along)))
        self.penalty_weight = penalty_weight
        with torch.no_grad():
            self.fused.output.bias[-1] = gate_bias

    def parameters_of(self, x: Tensor) -> Hybrid:
        """Plane and normal ``[B, n]``, scale and gate ``[B]``."""
        u, v, k, beta, gate = self.fused(x)
        beta, gamma = F.softplus(beta.squeeze(-1)), torch.sigmoid(gate.squeeze(-1))
        return Hybrid(u, v, self.along * x + k, beta, gamma)

    def penalty_of(self, gamma: Tensor) -> Tensor:
        """λ·mean(4γ(1 − γ)), 0-d."""
        return self.penalty_weight * (4 * gamma * (1 - gamma)).float().mean()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the blend."""
        return self.with_penalty(x)[0]

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the blend and λ·mean(4γ(1 − γ)), 0-d."""
        u, v, k, beta, gamma = self.parameters_of(x)
        column, gate = x.unsqueeze(-1), gamma.to(x.dtype).unsqueeze(-1)
        rotated, reflected = cayley_rotate(column, u, v, beta), householder_reflect(column, k)
        y = gate * rotated.squeeze(-1) + (1 - gate) * reflected.squeeze(-1)
        return y, self.penalty_of(gamma)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """Health for the vectors just received; names as in ``METRICS``."""
        (x,) = inputs
        parameters = self.parameters_of(x)
        basis = torch.eye(x.shape[-1], device=x.device)
        gate = parameters.gamma.to(basis.dtype)[:, None, None]
        rotation = cayley_rotate(basis, parameters.u, parameters.v, parameters.beta)
        blend = gate * rotation + (1 - gate) * householder_reflect(basis, parameters.k)
        return {
            **shortcut_diagnostics(blend),
            **hybrid_diagnostics(basis, parameters, self.penalty_of(parameters.gamma)),
        }


class TwoReflectionsProbe(Probe):
    """y = H(k₂)H(k₁)·x with k₂ = k₁ + w: a rotation in one plane by any angle, π included.

    w starts small: near the identity, but not at it; see ``CayleyProbe``.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int, hidden: int = 128) -> None:
        n = num_outputs
        super().__init__(input_shape, n, hidden, (n, n))
        with torch.no_grad():
            self.fused.output.weight[n:].mul_(NEAR)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the rotated vectors."""
        first, change = self.fused(x)
        once = householder_reflect(x.unsqueeze(-1), first)
        return householder_reflect(once, first + change).squeeze(-1)


class CayleyIterationProbe(Probe):
    """y = Y(x)·x with JPmHC's two-step iteration on an n × n matrix. Starts near Y = I, where two steps are
    orthogonal, but not at it; see ``CayleyProbe``.

    Args:
        input_shape: (n,).
        num_outputs: n.
        hidden: hidden units of the fused map.
    """

    def __init__(self, input_shape: Sequence[int], num_outputs: int, hidden: int = 128) -> None:
        super().__init__(input_shape, num_outputs, hidden, (num_outputs**2,))
        with torch.no_grad():
            self.fused.output.weight.mul_(NEAR)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the mixed vectors."""
        (h,) = self.fused(x)
        n = x.shape[-1]
        matrix = torch.unflatten(h, -1, (n, n))
        return cayley_iterate(x.unsqueeze(-1), matrix - matrix.mT).squeeze(-1)
