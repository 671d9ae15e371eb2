"""How rich a batch of hidden states is: the numbers that break first when a deep network collapses.

Dimension letters: N samples, D features, b components of a bundle, n = D/b bundles. Leading dimensions are
samples too. Everything is computed in float32 or wider, without gradients in mind.
"""

import torch
from torch import Tensor

from app.maths.phasor import radius


def _samples(h: Tensor) -> Tensor:
    """``[..., D] → [N, D]`` in at least float32."""
    return h.flatten(0, -2).to(torch.promote_types(h.dtype, torch.float32))


def rms(h: Tensor) -> Tensor:
    """√(mean h²) over everything, 0-d."""
    return _samples(h).square().mean().sqrt()


def bounded_fraction(z: Tensor, bundle: int = 2) -> Tensor:
    """Share of bundles with radius above 1, 0-d, in [0, 1]."""
    return (radius(z, bundle) > 1).float().mean()


def rms_radius(z: Tensor, bundle: int = 2) -> Tensor:
    """√(mean ‖v‖²) over all bundles, 0-d."""
    return radius(z, bundle).square().mean().sqrt()


def phase_coherence(h: Tensor, bundle: int = 2) -> Tensor:
    """Mean over bundles of ‖E_sample[v/‖v‖]‖, 0-d, in [0, 1].

    1: every sample has the same phase, the layer says nothing about its input. Independent uniform phases
    of N samples give about 0.9/√N.
    """
    states = _samples(h)
    # By radius(): a vector norm over a middle dimension takes 50 times as long.
    length = radius(states, bundle).clamp(min=torch.finfo(states.dtype).tiny)
    units = states.view(len(states), bundle, -1) / length.unsqueeze(-2)
    coherence: Tensor = torch.linalg.vector_norm(units.mean(0), dim=-2).mean()
    return coherence


def pairwise_cosine(h: Tensor) -> Tensor:
    """Mean cosine between the states of two different samples, 0-d, in [−1/(N−1), 1]; 1 for one sample.

    The sum over all pairs is ‖Σu‖² − Σ‖u‖² with u = h/‖h‖: no N × N matrix.
    """
    units = torch.nn.functional.normalize(_samples(h), dim=-1)
    pairs = max(len(units) * (len(units) - 1), 1)
    total = units.sum(0).square().sum() - units.square().sum()
    return total / pairs if len(units) > 1 else units.new_ones(())


def participation_ratio(h: Tensor) -> Tensor:
    """(Σλ)²/Σλ² over the eigenvalues λ of the samples' covariance, 0-d, in [1, min(N, D)]: directions in use.

    0 where all samples share one state, up to rounding.
    """
    states = _samples(h)
    # A common scale leaves the ratio as it is and keeps fourth powers within range.
    states = states / states.abs().amax().clamp(min=torch.finfo(states.dtype).tiny)
    centred = states - states.mean(0)
    gram = centred @ centred.T if len(states) < states.shape[-1] else centred.T @ centred
    # Rounding leaves a spread of 1e-14 of the second moment, in every direction: no direction of the data.
    floor = 1e-10 * states.square().sum().clamp(min=1)
    return gram.diagonal().sum().square() / gram.square().sum().clamp(min=floor.square())


def thin(values: Tensor, count: int) -> Tensor:
    """At most ``count`` entries along the first dimension, evenly taken; no random number."""
    if len(values) <= count:
        return values
    # No fixed stride: one that divides the width would take the same few features of every sample.
    return values[torch.linspace(0, len(values) - 1, count, device=values.device).long()]


def constant_fraction(h: Tensor) -> Tensor:
    """Share of features whose spread over the samples is below 1e-3 of the common RMS, 0-d, in [0, 1].

    Counts dead rectifiers and saturated squashers alike.
    """
    states = _samples(h)
    spread = states.std(0, correction=0)
    return (spread <= 1e-3 * states.square().mean().sqrt()).float().mean()
