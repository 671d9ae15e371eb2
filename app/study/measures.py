"""What is measured of Z-Plane's parts without training a network."""

import copy
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

import torch
from torch import Tensor, nn

from app.layers.activations import UnitNormalise
from app.maths.phasor import radial_bound, radius
from app.networks.baselines import (
    DeepMLP,
    HardTanhMLP,
    LayerNormReLUMLP,
    LinearMLP,
    ReLUMLP,
    UnitNormaliseMLP,
)
from app.networks.z_plane import ZPlaneMLP

Values = dict[str, dict[str, float]]


def gradients(seed: int, width: int = 128, samples: int = 1000) -> Values:
    """What one layer lets through backwards, for inputs at the recommended start (RMS radius 1).

    Per activation: ``dead``, the share of units whose incoming weights get no gradient from any of the
    samples; ``blocked``, the share of (unit, sample) pairs that pass none. For radial bounding also
    ``tangential``, the mean over bounded phasors of ‖Jt‖/‖t‖ for a tangential t (1/r in theory), and
    ``tangential_times_radius``.
    """
    randomness = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, width, generator=randomness) / 2**0.5
    activations: dict[str, Callable[[Tensor], Tensor]] = {
        "radial_bounding": radial_bound,
        "hard_tanh": nn.functional.hardtanh,
        "relu": torch.relu,
        "layernorm_relu": lambda v: torch.relu(nn.functional.layer_norm(v, (width,))),
    }
    values: Values = {}
    for name, activation in activations.items():
        v = x.clone().requires_grad_()
        probe = torch.randn(samples, width, generator=randomness)
        (passed,) = torch.autograd.grad((activation(v) * probe).sum(), v)
        values[name] = {
            "blocked": float((passed == 0).float().mean()),
            "dead": float((passed == 0).all(0).float().mean()),
        }
    v = x.clone().requires_grad_()
    real, imaginary = x.chunk(2, -1)
    tangent = torch.cat([-imaginary, real], -1)
    (passed,) = torch.autograd.grad((radial_bound(v) * tangent).sum(), v)  # J is symmetric
    r = radius(x)
    bounded = r > 1
    kept = radius(passed)[bounded] / radius(tangent)[bounded]
    values["radial_bounding"] |= {
        "tangential": float(kept.mean()),
        "tangential_times_radius": float((kept * r[bounded]).mean()),
    }
    return values


def orthogonality(seed: int, width: int = 128) -> Values:
    """What is left of ``width`` mutually orthogonal vectors after an activation.

    ``cosine`` is the mean |cos| over pairs; the vectors have RMS phasor radius 1. ``trained`` weights are not
    looked at: this is the map alone.
    """
    randomness = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(width, width, generator=randomness))
    vectors = basis * (width / 2) ** 0.5
    activations: dict[str, Callable[[Tensor], Tensor]] = {
        "radial_bounding": radial_bound,
        "hard_tanh": nn.functional.hardtanh,
        "unit_normalise": UnitNormalise(),
        "layernorm": lambda v: nn.functional.layer_norm(v, (width,)),
        "relu": torch.relu,
        "layernorm_relu": lambda v: torch.relu(nn.functional.layer_norm(v, (width,))),
    }
    return {name: {"cosine": mean_cosine(activation(vectors))} for name, activation in activations.items()}


def mean_cosine(vectors: Tensor) -> float:
    """The mean |cos| over all pairs of different rows."""
    unit = nn.functional.normalize(vectors, dim=-1)
    gram = (unit @ unit.mT).abs()
    count = len(vectors) * (len(vectors) - 1)
    return float((gram.sum() - gram.diagonal().sum()) / count)


def cost(seed: int, depth: int = 100, width: int = 128, batch: int = 256, repeats: int = 7) -> Values:
    """Time of a forward and a backward pass, each network in turn so that all see the same machine.

    The ``compiled`` ones are compiled in blocks of ten layers. ``seconds`` is the median over ``repeats``;
    ``ratio`` is it over that of LayerNorm + ReLU in the same turn, the median of those.
    ``radial_bounding_naive`` is written as in the formula, v / max(1, ‖v‖), on interleaved pairs.
    """
    torch.manual_seed(seed)
    shape, classes = (28, 28), 10
    networks: dict[str, nn.Module] = {
        "layernorm_relu": LayerNormReLUMLP(shape, classes, depth, width),
        "radial_bounding": ZPlaneMLP(shape, classes, depth, width),
        "radial_bounding_naive": DeepMLP(shape, classes, depth, width, NaiveBound),
        "hard_tanh": HardTanhMLP(shape, classes, depth, width),
        "relu": ReLUMLP(shape, classes, depth, width),
        "unit_normalise": UnitNormaliseMLP(shape, classes, depth, width),
        "linear": LinearMLP(shape, classes, depth, width),
    }
    for name in ("layernorm_relu", "radial_bounding"):
        networks[f"{name}_compiled"] = in_blocks(copy.deepcopy(networks[name]))
    x = torch.randn(batch, *shape)
    times: dict[str, list[float]] = {name: [] for name in networks}
    for name, network in islice(cycle(networks.items()), (repeats + 1) * len(networks)):
        began = time.perf_counter()
        network(x).square().sum().backward()
        times[name].append(time.perf_counter() - began)
    reference = times["layernorm_relu"]
    return {
        name: {
            "seconds": median(taken[1:]),
            "ratio": median([one / other for one, other in zip(taken[1:], reference[1:], strict=True)]),
        }
        for name, taken in times.items()
    }


def in_blocks(network: nn.Module, size: int = 10) -> nn.Module:
    """Compiles a deep network's ``layers`` in blocks, which takes less time than the whole at once."""
    layers = list(network.layers)  # type: ignore[arg-type]  # every network here has them
    network.layers = nn.ModuleList(nn.Sequential(*layers[i : i + size]) for i in range(0, len(layers), size))
    for block in network.layers:
        block.compile()
    return network


class NaiveBound(nn.Module):
    """v / max(1, ‖v‖) as one would write it down first."""

    def forward(self, h: Tensor) -> Tensor:
        """Returns the bounded state."""
        pairs = h.reshape(*h.shape[:-1], -1, 2)
        norm = torch.linalg.vector_norm(pairs, dim=-1, keepdim=True)
        bounded: Tensor = pairs / norm.clamp(min=1)
        return bounded.reshape(h.shape)


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return float(torch.tensor(values, dtype=torch.float64).median())
