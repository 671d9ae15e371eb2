"""Certified robustness from a Lipschitz bound, and losses that train for it.

A network whose logits are jointly L-Lipschitz in ℓ₂ cannot change its answer within radius margin / (√2 L): a
difference of two logits is √2 L-Lipschitz. Dimension letters: B samples, C classes.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional


def margin(logits: Tensor, targets: Tensor) -> Tensor:
    """z_y − max_{j≠y} z_j, ``[B, C], [B] → [B]``: positive where the answer is right."""
    own = functional.one_hot(targets, logits.shape[-1]).bool()
    return logits[own] - logits.masked_fill(own, -math.inf).amax(-1)


def certified_radius(logits: Tensor, targets: Tensor, lipschitz: Tensor | float) -> Tensor:
    """(z_y − max_{j≠y} z_j) / (√2 L), ``[B]``; no input within this ℓ₂ distance is misclassified.

    Negative where the answer is wrong. In units of the inputs to which L refers: inputs scaled by 1/σ after
    loading multiply L by 1/min σ.
    """
    return margin(logits, targets) / (math.sqrt(2) * lipschitz)


def hinge(logits: Tensor, targets: Tensor, offset: float) -> Tensor:
    """Mean over samples and over j ≠ y of max(0, u − z_y + z_j), 0-d. u = √2 L ε certifies radius ε.

    Source: Li et al., arXiv:1911.00937.
    """
    own = functional.one_hot(targets, logits.shape[-1]).bool()
    excess = functional.relu(offset - logits[own].unsqueeze(-1) + logits)
    return excess.masked_fill(own, 0).sum(-1).mean() / (logits.shape[-1] - 1)


def _shifted(logits: Tensor, targets: Tensor, offset: float, temperature: float) -> Tensor:
    return (logits - offset * functional.one_hot(targets, logits.shape[-1])) / temperature


def shifted_cross_entropy(logits: Tensor, targets: Tensor, offset: float, temperature: float) -> Tensor:
    """τ·CE((z − u·1_y)/τ), 0-d: the right logit must lead by u before the loss relaxes.

    Source: Prach & Lampert, arXiv:2208.03160.
    """
    return temperature * functional.cross_entropy(_shifted(logits, targets, offset, temperature), targets)


def annealed_cross_entropy(
    logits: Tensor, targets: Tensor, offset: float, temperature: float, power: float
) -> Tensor:
    """Mean of τ (1 − p)^β CE with p the right class's probability under (z − u·1_y)/τ, 0-d.

    Samples that already have their margin are let go, and capacity goes to the others. Source: the logit
    annealing loss of BRONet, arXiv:2505.15174.
    """
    log_p = functional.log_softmax(_shifted(logits, targets, offset, temperature), -1)
    log_p = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    # 1 − p without cancellation; kept off 0, where a fractional power has no derivative.
    rest = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
    return temperature * (rest**power * -log_p).mean()
