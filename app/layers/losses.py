"""Losses for certified networks, to be injected where a cross-entropy would be.

Margins are in units of the logits: for a network of Lipschitz constant L with respect to raw inputs, a margin
of √2 L ε certifies radius ε. Dividing inputs by σ after loading multiplies L by 1/min σ.
"""

import math

from torch import Tensor, nn

from app.maths.certificate import annealed_cross_entropy, hinge, shifted_cross_entropy


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


class CertifiedHinge(nn.Module):
    """Mean over j ≠ y of max(0, √2 L ε − z_y + z_j).

    Args:
        radius: ε, in units of the raw inputs: 1.5 is usual on MNIST, .5 on CIFAR-10 (arXiv:1911.00937).
        lipschitz: L of network and input scaling together.

    Shape: logits ``[B, C]``, targets ``[B]`` → 0-d.
    """

    def __init__(self, radius: float = 1.5, lipschitz: float = 1.0) -> None:
        super().__init__()
        _positive(radius=radius, lipschitz=lipschitz)
        self.offset = math.sqrt(2) * lipschitz * radius

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the 0-d loss."""
        return hinge(logits, targets, self.offset)


class ShiftedCrossEntropy(nn.Module):
    """τ·CE((z − u·1_y)/τ).

    Args:
        offset: u, the margin asked for; 1.5·√2 (radius 1.5 at L = 1) is usual on MNIST.
        temperature: τ; the smaller, the nearer to a hinge.

    Shape: logits ``[B, C]``, targets ``[B]`` → 0-d.
    """

    def __init__(self, offset: float = 1.5 * math.sqrt(2), temperature: float = 0.25) -> None:
        super().__init__()
        _positive(offset=offset, temperature=temperature)
        self.offset = offset
        self.temperature = temperature

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the 0-d loss."""
        return shifted_cross_entropy(logits, targets, self.offset, self.temperature)


class AnnealedCrossEntropy(nn.Module):
    """τ (1 − p)^β CE((z − u·1_y)/τ), p the right class's probability: the logit annealing loss.

    Args:
        offset: u, the margin asked for.
        temperature: τ.
        power: β; 0 is ``ShiftedCrossEntropy``.

    Shape: logits ``[B, C]``, targets ``[B]`` → 0-d.
    """

    def __init__(self, offset: float = 2.0, temperature: float = 0.75, power: float = 5.0) -> None:
        super().__init__()
        _positive(offset=offset, temperature=temperature)
        if power < 0:
            raise ValueError(f"power must not be negative, got {power}")
        self.offset = offset
        self.temperature = temperature
        self.power = power

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the 0-d loss."""
        return annealed_cross_entropy(logits, targets, self.offset, self.temperature, self.power)
