"""Networks of neural arithmetic units: one multiplying unit, or an adding one in front of it."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from app.layers.arithmetic import INALU, NAU, NMU, ArithmeticUnit, NACPlus, NACTimes
from app.networks.checks import check_sizes


class ArithmeticNetwork(nn.Module):
    """One unit, or two with ``width`` features between them.

    Args:
        input_shape: of one sample; it is flattened.
        num_outputs: components of the output.
        depth: 1 for a multiplying unit alone, 2 with an adding unit before it.
        width: features between the two; the units' authors use 2, and more of them fail.
        adding: makes the first of two units.
        multiplying: makes the last unit.

    Shape: ``[B, *input_shape] → [B, num_outputs]``.

    Raises:
        ValueError: a size that is not positive, or a depth above 2.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int,
        width: int,
        adding: Callable[[int, int], ArithmeticUnit],
        multiplying: Callable[[int, int], ArithmeticUnit],
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        if depth > 2:
            raise ValueError(f"depth of an arithmetic network must be 1 or 2, got {depth}")
        features = math.prod(input_shape)
        units = [multiplying(features, num_outputs)]
        if depth == 2:
            units = [adding(features, width), multiplying(width, num_outputs)]
        self.layers = nn.Sequential(*units)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        prediction: Tensor = self.layers(x.flatten(1))
        return prediction


class NACTimesNetwork(ArithmeticNetwork):
    """NAC×, or NAC+ → NAC×."""

    def __init__(self, input_shape: Sequence[int], num_outputs: int, depth: int = 1, width: int = 2) -> None:
        super().__init__(input_shape, num_outputs, depth, width, NACPlus, NACTimes)


class RampedNetwork(ArithmeticNetwork):
    """An arithmetic network with a penalty that sets in while it trains.

    The penalty is multiplied by clip((step − begin)/(end − begin), 0, 1). The step is a buffer, counted when
    constraints are restored, so that it goes into checkpoints.

    Args:
        input_shape: as in ``ArithmeticNetwork``.
        num_outputs: as in ``ArithmeticNetwork``.
        depth: as in ``ArithmeticNetwork``.
        width: as in ``ArithmeticNetwork``.
        adding: as in ``ArithmeticNetwork``.
        multiplying: as in ``ArithmeticNetwork``.
        strength: of the whole penalty, ≥ 0.
        ramp: optimizer steps (begin, end) between which it sets in, begin < end.

    Raises:
        ValueError: also on a negative strength or a ramp that does not rise.
    """

    steps: Tensor

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int,
        width: int,
        adding: Callable[[int, int], ArithmeticUnit],
        multiplying: Callable[[int, int], ArithmeticUnit],
        strength: float,
        ramp: tuple[int, int],
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, adding, multiplying)
        if strength < 0:
            raise ValueError(f"strength must be at least 0, got {strength}")
        if not 0 <= ramp[0] < ramp[1]:
            raise ValueError(f"ramp must be two rising numbers of steps, got {tuple(ramp)}")
        self.strength = strength
        self.ramp = (int(ramp[0]), int(ramp[1]))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and the penalty at the present step."""
        begin, end = self.ramp
        weight = ((self.steps - begin) / (end - begin)).clamp(0, 1)
        return self(x), self.strength * weight * self.penalty()

    def penalty(self) -> Tensor:
        """The whole penalty, 0-d."""
        raise NotImplementedError

    @torch.no_grad()
    def constrain(self) -> None:
        """Counts the optimizer step. The units restore their own constraints."""
        self.steps.add_(1)


class NMUNetwork(RampedNetwork):
    """NMU, or NAU → NMU, with stable-nalu's sparsity penalty, which sets in from 20 to 40 % of the fit.

    There the fit is of five million steps; give ``ramp`` for another length.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 1,
        width: int = 2,
        strength: float = 10.0,
        ramp: tuple[int, int] = (1_000_000, 2_000_000),
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, NAU, NMU, strength, ramp)

    def penalty(self) -> Tensor:
        """Σ over the units of mean min(|W|, |1 − |W||)."""
        units = [unit.sparsity() for unit in self.layers if isinstance(unit, ArithmeticUnit)]
        return torch.stack(units).sum()


class INALUNetwork(RampedNetwork):
    """iNALU, one or two of them, with its own penalty, strength .05.

    Left out of the authors' recipe: weights and gates by turns, and drawing anew when stuck; both belong to a
    training loop of its own. ``ramp`` stands for their start of the penalty after ten epochs.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 1,
        width: int = 2,
        strength: float = 0.05,
        ramp: tuple[int, int] = (10_000, 10_001),
    ) -> None:
        super().__init__(input_shape, num_outputs, depth, width, INALU, INALU, strength, ramp)

    def penalty(self) -> Tensor:
        """Σ over the units of what keeps Ŵ, M̂ and the gate from 20."""
        return torch.stack([unit.indecision() for unit in self.layers if isinstance(unit, INALU)]).sum()
