"""What one operator on a whole vector learns of −x and of a hidden reflection, and where its gate ends.

Probes are the networks of ``app.networks.probes`` and the published ones, at their published size (64
dimensions, 128 hidden units). n: number of training samples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from app.maths.orthogonal import cayley_rotate, householder_reflect
from app.networks.matching import trained_parameters
from app.networks.probes import (
    CayleyProbe,
    DeltaProbe,
    EDeltaProbe,
    ReflectionProbe,
    TwoReflectionsProbe,
)
from app.networks.published import PublishedDDLProbe, PublishedEDeltaProbe, PublishedJPmHCProbe
from app.study.fitting import Build, Recipe, fit
from app.study.work import locate

Values = dict[str, dict[str, float]]

PUBLISHED = Recipe(lr=1e-3, weight_decay=0.01, steps=2000, batch_size=32, final=1.0)
OURS = replace(PUBLISHED, lr=3e-3, weight_decay=1.0, final=0.0)
"""Decay removes what the small network has memorised once the loss is near zero: without, n = 50 overfits."""
COMMON = 1000
"""Length to which a few samples are repeated, so that fits of different n can be trained together."""


@dataclass(frozen=True)
class Few:
    """The first n of some samples, each as often as any other.

    Args:
        seed: Of the network's weights.
        x: Inputs, ``[N, D]``.
        y: Targets, ``[N, D]``.
        n: How many of them are used, a divisor of 1000.

    Raises:
        ValueError: ``n`` is no divisor of 1000, or there are fewer samples.
    """

    seed: int
    x: Tensor
    y: Tensor
    n: int

    def __post_init__(self) -> None:
        if self.n < 1 or COMMON % self.n or self.n > len(self.x):
            raise ValueError(f"n must divide {COMMON} and be at most {len(self.x)}, got {self.n}")

    def fit_data(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Returns the samples, as training and as validation set."""
        times = COMMON // self.n
        samples = (self.x[: self.n].repeat(times, 1), self.y[: self.n].repeat(times, 1))
        return samples, samples


class ClosedForm(PublishedEDeltaProbe):
    """The published probe, its rotation in closed form: the same function, hundreds of times faster."""

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and 0.5·mean(4γ(1 − γ))."""
        gamma, column = self.gate(x), x.unsqueeze(-1)
        beta = nn.functional.softplus(self.beta(x)).squeeze(-1)
        rotated = cayley_rotate(column, *self.plane(x), beta).squeeze(-1)
        reflected = householder_reflect(column, self.k(x)).squeeze(-1)
        return gamma * rotated + (1 - gamma) * reflected, 0.5 * (4 * gamma * (1 - gamma)).float().mean()


def groups(dim: int) -> list[tuple[Recipe, dict[str, Build]]]:
    """Every probe by its name, those of one class together: they are trained in one fit."""
    shape = ((dim,), dim)
    gated = replace(PUBLISHED, penalised=True)
    return [
        (gated, {"published_edelta": partial(ClosedForm, *shape)}),
        (PUBLISHED, {"published_ddl": partial(PublishedDDLProbe, *shape)}),
        (PUBLISHED, {"published_jpmhc": partial(PublishedJPmHCProbe, *shape)}),
        (replace(OURS, penalised=True), starts("edelta", partial(EDeltaProbe, *shape))),
        (OURS, starts("ddl", partial(DeltaProbe, *shape))),
        (OURS, starts("reflection", partial(ReflectionProbe, *shape))),
        (OURS, {"cayley": partial(CayleyProbe, *shape)}),
        (OURS, {"two_reflections": partial(TwoReflectionsProbe, *shape)}),
    ]


def starts(name: str, build: Callable[..., nn.Module]) -> dict[str, Build]:
    """A probe whose direction starts along x, and the same without that start."""
    return {f"{name}_along_x": partial(build, along=1.0), f"{name}_anywhere": partial(build, along=0.0)}


def samples(
    seed: int,
    task: str,
    counts: Sequence[int] = (10, 25, 50, 100, 200, 500),
    steps: int = 2000,
    only: Sequence[str] = (),
    name: str = "negation",
) -> dict[str, Values]:
    """Trains every probe on n samples of a task and measures it on others.

    Args:
        seed: Of samples, weights and order.
        task: Class path of a datamodule of vectors.
        counts: n, divisors of 1000.
        steps: Optimizer steps of each fit.
        only: Names of the probes that are trained; all if empty.
        name: Of the measurement.

    Returns:
        ``name`` → probe → ``alignment_<n>``, the mean cosine between prediction and target on held-out
        samples, −1 … 1; ``start_alignment``, the same before training; ``gamma_<n>`` and ``beta_<n>``, the
        mean gate and strength where there are any; ``parameters``. And ``<name>_samples`` → ``<probe>_<n>``
        → ``alignment``, to be drawn over n.
    """
    data = locate(task)(data_seed=seed, train_samples=max(counts))
    (x, y), _ = data.fit_data()
    held_out = data.test_data()
    few = [Few(seed, x, y, n) for n in counts]
    rows: Values = {}
    for recipe, probes in groups(x.shape[-1]):
        chosen = {probe: build for probe, build in probes.items() if not only or probe in only}
        if not chosen:
            continue
        recipe = replace(recipe, steps=steps, order=seed)
        for probe, networks in together(chosen, few, recipe).items():
            torch.manual_seed(seed)
            before = probes[probe]()
            rows[probe] = {
                "start_alignment": alignment(before, held_out),
                "parameters": float(trained_parameters(before)),
            }
            for n, network in zip(counts, networks, strict=True):
                found = {"alignment": alignment(network, held_out), **readouts(network, held_out[0])}
                rows[probe] |= {f"{metric}_{n}": value for metric, value in found.items()}
    over_n = {
        f"{probe}_{n}": {"alignment": row[f"alignment_{n}"]} for probe, row in rows.items() for n in counts
    }
    return {name: rows, f"{name}_samples": over_n}


def together(builds: Mapping[str, Build], few: Sequence[Few], recipe: Recipe) -> dict[str, list[nn.Module]]:
    """Trains networks of one class in one fit, each on every set of samples."""
    makers = iter([build for build in builds.values() for _ in few])
    networks = fit(lambda: next(makers)(), [*few] * len(builds), recipe)
    size = len(few)
    return {name: networks[i * size : (i + 1) * size] for i, name in enumerate(builds)}


@torch.no_grad()
def alignment(network: nn.Module, held_out: tuple[Tensor, Tensor]) -> float:
    """The mean cosine between predictions and targets."""
    x, y = held_out
    return float(nn.functional.cosine_similarity(network(x), y, dim=-1).mean())


@torch.no_grad()
def readouts(network: nn.Module, x: Tensor) -> dict[str, float]:
    """The mean gate γ (1 is the rotation) and strength β of a probe that has them."""
    if isinstance(network, PublishedEDeltaProbe):
        return {"gamma": float(network.gate(x).mean())}
    if isinstance(network, PublishedDDLProbe):
        return {"beta": float(network.strength(x).mean())}
    if isinstance(network, EDeltaProbe):
        return {"gamma": float(network.parameters_of(x).gamma.mean())}
    if isinstance(network, DeltaProbe):
        return {"beta": float(network.parameters_of(x)[1].mean())}
    if isinstance(network, CayleyProbe):
        return {"beta": float(network.parameters_of(x)[2].mean())}
    return {}


class Weighted(nn.Module):
    """E∆'s probe whose λ is a buffer, so that fits with different ones are trained together."""

    weight: Tensor

    def __init__(self, dim: int, along: float, gate_bias: float, weight: float) -> None:
        super().__init__()
        self.probe = EDeltaProbe((dim,), dim, along=along, gate_bias=gate_bias, penalty_weight=1.0)
        self.register_buffer("weight", torch.tensor(weight))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction."""
        return self.with_penalty(x)[0]

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction and λ·mean(4γ(1 − γ))."""
        prediction, penalty = self.probe.with_penalty(x)
        return prediction, self.weight * penalty


def gates(
    seed: int,
    task: str,
    biases: Sequence[float] = (-1.5, 0.0, 1.5),
    weights: Sequence[float] = (0.0, 0.1, 0.5),
    steps: int = 2000,
) -> Values:
    """Where E∆'s gate ends on a task, for every start and every weight of its penalty.

    Args:
        seed: Of samples, weights and order.
        task: Class path of a datamodule of vectors.
        biases: b in γ = σ(b) at the start.
        weights: λ.
        steps: Optimizer steps of each fit.

    Returns:
        ``<start>_bias_<b>_penalty_<λ>``, the start being ``along_x`` or ``anywhere``, → ``gamma``, the mean
        gate on held-out samples, 1 the rotation; ``gamma_spread``, its standard deviation; ``undecided``, the
        mean of 4γ(1 − γ), 0 … 1; ``alignment``, as in ``samples``.
    """
    data = locate(task)(data_seed=seed)
    (x, y), _ = data.fit_data()
    held_out = data.test_data()
    builds: dict[str, Build] = {
        f"{start}_bias_{bias:g}_penalty_{weight:g}": partial(Weighted, x.shape[-1], along, bias, weight)
        for start, along in (("along_x", 1.0), ("anywhere", 0.0))
        for bias in biases
        for weight in weights
    }
    recipe = replace(PUBLISHED, steps=steps, penalised=True, order=seed)
    rows: Values = {}
    for name, (network,) in together(builds, [Few(seed, x, y, len(x))], recipe).items():
        assert isinstance(network, Weighted)
        with torch.no_grad():
            gamma = network.probe.parameters_of(held_out[0]).gamma
        rows[name] = {
            "gamma": float(gamma.mean()),
            "gamma_spread": float(gamma.std()),
            "undecided": float((4 * gamma * (1 - gamma)).mean()),
            "alignment": alignment(network, held_out),
        }
    return rows
