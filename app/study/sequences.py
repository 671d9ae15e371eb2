"""What whole networks on sequences do before and early in training: the future, the start, gradients."""

import copy
from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from app.networks.edelta import EDelta, EDeltaCayley, EDeltaReflection, EDeltaTwoReflections
from app.networks.hyper_connections import HC, MHC, OHC, JPmHC
from app.networks.published import (
    PublishedDDL,
    PublishedEDelta,
    PublishedEDeltaStream,
    PublishedEDeltaToken,
    PublishedGPT,
    PublishedJPmHC,
    PublishedMHC,
)
from app.networks.transformer import DDL, GPT
from app.protocols import Diagnosable, Penalised
from app.study.fitting import Build
from app.study.measures import median
from app.study.work import locate

Values = dict[str, dict[str, float]]


def future(seed: int, time: int = 32, dim: int = 16, last: int = 8, spread: float = 0.1) -> Values:
    """How far the first outputs move when the last inputs are replaced by others.

    Weights are those of the start plus N(0, ``spread``), so that nothing that starts at zero stays silent.

    Args:
        seed: Of weights and inputs.
        time: T.
        dim: Size of a vector.
        last: Inputs that are replaced.
        spread: Standard deviation of what is added to every weight.

    Returns:
        Network → ``moved``: the largest change of an output before the replaced inputs.
    """
    rows: Values = {}
    for name, build in networks(time, dim, depth=2, width=64).items():
        torch.manual_seed(seed)
        network = build()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(spread * torch.randn(parameter.shape))
            x = nn.functional.normalize(torch.randn(8, time, dim), dim=-1)
            other = x.clone()
            other[:, -last:] = nn.functional.normalize(torch.randn(8, last, dim), dim=-1)
            change = (network(other) - network(x))[:, :-last]
        rows[name] = {"moved": float(change.abs().amax())}
    return rows


def networks(time: int, dim: int, depth: int, width: int) -> dict[str, Build]:
    """Every compared network on sequences; those with slices of a wide residual get four times the width."""
    plain = {
        "gpt": GPT,
        "ddl": DDL,
        "hc": HC,
        "mhc": MHC,
        "ohc": OHC,
        "edelta": EDelta,
        "cayley": EDeltaCayley,
        "reflection": EDeltaReflection,
        "two_reflections": EDeltaTwoReflections,
        "published_gpt": PublishedGPT,
        "published_ddl": PublishedDDL,
        "published_mhc": PublishedMHC,
        "published_edelta": PublishedEDelta,
    }
    wide = {
        "jpmhc": JPmHC,
        "published_jpmhc": PublishedJPmHC,
        "published_edelta_stream": PublishedEDeltaStream,
        "published_edelta_token": PublishedEDeltaToken,
    }
    made: dict[str, Build] = {}
    for kinds, size in ((plain, width), (wide, 4 * width)):
        for name, kind in kinds.items():
            made[name] = partial(kind, (time, dim), dim, depth=depth, width=size)
    return made


def start(seed: int, task: str, depth: int = 6, width: int = 128, batch: int = 64) -> Values:
    """What is left of the first state after the skip paths alone, and the first gradient, before training.

    Published networks do not tell their skip paths: theirs are seen by silencing what writes to them.

    Args:
        seed: Of weights and data.
        task: Class path of a datamodule of sequences; its first batch is used.
        depth: L, of all networks.
        width: D.
        batch: Sequences.

    Returns:
        Network → ``energy_<layer>``: ‖state‖² over that of the first, after each block's skip paths;
        ``gradient``: norm of the first gradient of the loss, penalty included.
    """
    data = locate(task)(data_seed=seed, train_samples=batch, batch_size=batch)
    (x, y), _ = data.fit_data()
    time, dim = data.input_shape
    every = networks(time, dim, depth, width)
    biased = {
        "edelta_bias_1.5": partial(EDelta, (time, dim), dim, depth=depth, width=width, gate_bias=1.5),
        "edelta_bias_-1.5": partial(EDelta, (time, dim), dim, depth=depth, width=width, gate_bias=-1.5),
    }
    chosen = ("published_edelta", "published_gpt", "gpt", "edelta", "cayley", "reflection")
    rows: Values = {}
    for name, build in ({name: every[name] for name in chosen} | biased).items():
        torch.manual_seed(seed)
        network = build()
        energies = energy(network, x[:4])
        rows[name] = {f"energy_{i}": value for i, value in enumerate(energies, 1)}
        loss(network, x, y).backward()  # type: ignore[no-untyped-call]
        rows[name]["gradient"] = gradient_norm(network)
    return rows


@torch.no_grad()
def energy(network: nn.Module, x: Tensor) -> list[float]:
    """Energy after each block's skip paths over that of the first state."""
    if isinstance(network, Diagnosable):
        found = network.diagnostics(x)
        return [float(found[name]) for name in sorted(found) if name.startswith("shortcut_energy_")]
    silent = copy.deepcopy(network)
    for name, parameter in silent.named_parameters():
        if name.endswith((".write.weight", ".branch.output.weight")):
            parameter.zero_()
    sizes: list[Tensor] = []
    trunk = silent.trunk
    assert isinstance(trunk, nn.Module)
    blocks = trunk.blocks
    assert isinstance(blocks, nn.ModuleList)
    for block in blocks:
        block.register_forward_hook(lambda _, inputs, out: sizes.extend((inputs[0].norm(), out[0].norm())))
    silent(x)
    return [float((size / sizes[0]).square()) for size in sizes[1::2]]


def loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The training loss: mean squared error, and the network's own penalty if it has one."""
    if isinstance(network, Penalised):
        prediction, penalty = network.with_penalty(x)
        return (prediction - y).square().mean() + penalty
    error: Tensor = (network(x) - y).square().mean()
    return error


def gradient_norm(network: nn.Module) -> float:
    """Over all parameters."""
    norms = [parameter.grad.norm() for parameter in network.parameters() if parameter.grad is not None]
    return float(torch.stack(norms).norm())


def gradients(
    seed: int,
    task: str,
    arguments: Mapping[str, int],
    steps: int = 200,
    depth: int = 4,
    width: int = 32,
    batch: int = 32,
    only: Sequence[str] = ("published_gpt", "published_ddl", "published_edelta", "gpt", "ddl", "edelta"),
) -> Values:
    """How steady the gradient is early in training, and whether it follows DDL's strength β.

    Args:
        seed: Of weights and data.
        task: Class path of a datamodule of sequences.
        arguments: Of it.
        steps: Of AdamW at 1e-3 with 20 of warm-up, clipped at norm 1 as published.
        depth: L.
        width: D.
        batch: Sequences a step.
        only: Names of the networks.

    Returns:
        Network → ``median`` and ``largest`` norm of the gradient before clipping, ``spikes``: the largest
        over the median of its neighbours (21 steps), after warm-up; and for a DDL ``beta_spread``, the
        standard deviation of β over the network, and ``follows_beta``, the correlation of log norm with the
        mean |β − 1|, −1 … 1.
    """
    data = locate(task)(data_seed=seed, **arguments)
    (x, y), _ = data.fit_data()
    time, dim = data.input_shape
    every = networks(time, dim, depth, width)
    rows: Values = {}
    for name in only:
        torch.manual_seed(seed)
        network = every[name]()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        randomness = torch.Generator().manual_seed(seed)
        strengths = watch_strength(network)
        norms, distances, spreads = [], [], []
        for step in range(steps):
            picked = torch.randint(len(x), (batch,), generator=randomness)
            strengths.clear()
            optimizer.zero_grad()
            loss(network, x[picked], y[picked]).backward()  # type: ignore[no-untyped-call]
            norms.append(float(nn.utils.clip_grad_norm_(network.parameters(), 1.0)))
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, (step + 1) / 20)
            optimizer.step()
            if strengths:
                beta = torch.cat([strength.flatten() for strength in strengths])
                distances.append(float((beta - 1).abs().mean()))
                spreads.append(float(beta.std()))
        after = torch.tensor(norms[20:])
        window = torch.nn.functional.pad(after[None], (10, 10), "replicate")[0].unfold(0, 21, 1)
        rows[name] = {
            "median": median(norms[20:]),
            "largest": float(after.amax()),
            "spikes": float((after / window.median(-1).values).amax()),
        }
        if distances:
            pair = torch.stack((after.log(), torch.tensor(distances[20:])))
            rows[name] |= {"beta_spread": spreads[-1], "follows_beta": float(torch.corrcoef(pair)[0, 1])}
    return rows


def watch_strength(network: nn.Module) -> list[Tensor]:
    """A list that every forward pass of a published DDL appends its strengths β to."""
    seen: list[Tensor] = []
    for name, module in network.named_modules():
        if name.endswith(".strength"):
            module.register_forward_hook(lambda _, __, out: seen.append(2 * torch.sigmoid(out.detach())))
    return seen
