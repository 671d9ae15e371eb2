"""What one or two small layers make of tasks with a known answer, by every read-out there is."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from app.layers import polyweave
from app.layers.arithmetic import ArithmeticUnit
from app.layers.sigma_pi import SigmaPiConv2d, SigmaPiLinear
from app.layers.sigma_pi_base import SigmaPiLayer
from app.networks.arithmetic import INALUNetwork, NACTimesNetwork, NMUNetwork
from app.networks.matching import trained_parameters
from app.networks.sigma_pi import BilinearMLP, PlainMLP, PolyWeaveMLP, SigmaPiMLP, TanhPolyWeaveMLP
from app.protocols import Diagnosable
from app.study.fitting import Build, Recipe, Task, fit, r_squared, relative_error
from app.study.work import locate

Values = dict[str, dict[str, float]]

INPUTS = 4
RECIPE = Recipe()
UNDECAYED = Recipe(weight_decay=0.0)  # decay does the others no good: measured
PENALISED = Recipe(lr=1e-2, weight_decay=0.0, penalised=True)
CALM = Recipe(lr=1e-2, weight_decay=0.0)  # two layers and a larger rate do not get on


def builders(steps: int) -> dict[str, tuple[Build, Recipe]]:
    """Every compared network for four inputs and one output, with its recipe, the same for all tasks."""
    ramp = (steps // 5, 2 * steps // 5)
    mlp = partial(SigmaPiMLP, (INPUTS,), 1)
    published = partial(PolyWeaveMLP, (INPUTS,), 1)
    models: dict[str, tuple[Build, Recipe]] = {
        "sigma_pi": (mlp, RECIPE),
        "sigma_pi_rank_0": (partial(mlp, bilinear_rank=0), RECIPE),
        "sigma_pi_2_layers": (partial(mlp, depth=2, width=8), CALM),
        "linear": (partial(PlainMLP, (INPUTS,), 1), UNDECAYED),
        "mlp_2_layers": (partial(PlainMLP, (INPUTS,), 1, depth=2, width=16), CALM),
        "bilinear": (partial(BilinearMLP, (INPUTS,), 1), UNDECAYED),
        "nmu": (partial(NMUNetwork, (INPUTS,), 1, ramp=ramp), PENALISED),
        "nac_times": (partial(NACTimesNetwork, (INPUTS,), 1), CALM),
        "inalu": (partial(INALUNetwork, (INPUTS,), 1, ramp=(ramp[1], ramp[1] + 1)), PENALISED),
        "polyweave_tanh": (partial(TanhPolyWeaveMLP, (INPUTS,), 1), UNDECAYED),
    }
    models["polyweave_signed_products"] = (partial(published, signed_products=True), UNDECAYED)
    for center in (False, True):
        for cap in (0.5, 2.0):
            name = f"polyweave{'_centred_product' if center else ''}{'_cap_2' if cap == 2 else ''}"
            one = partial(published, center_product=center, max_exponent=cap)
            models[name] = (one, UNDECAYED)
            models[f"{name}_2_layers"] = (partial(one, depth=2, width=8), CALM)
    return models


def fits(
    seed: int, tasks: Mapping[str, str], steps: int = 6000, only: Sequence[str] = ()
) -> dict[str, dict[str, dict[str, Any]]]:
    """Fits every network to every task, from one seed of data and weights.

    Args:
        seed: Of samples, weights and order.
        tasks: Name → class path of a datamodule of tensors.
        steps: Optimizer steps of each fit.
        only: Names of the networks that are fitted; all if empty.

    Returns:
        Task → network → metric → value: ``r2`` on the training range, ``r2_outside`` it, ``r2_rescaled`` on
        validation inputs × 10, ``gain_over_linear`` (of r2), ``success`` and ``sparsity_error`` as
        stable-nalu defines them, ``start_pi_share``, the read-outs of the first layer, ``effect_<branch>``:
        by how much the relative error rises without it, ``parameters``, and ``fitted``: pairs of a right
        answer and the prediction, inside and outside of the training range.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small
    made = [locate(path)(seed=seed) for path in tasks.values()]
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in tasks}
    for model, (build, recipe) in builders(steps).items():
        if only and model not in only:
            continue
        recipe = Recipe(recipe.lr, recipe.weight_decay, steps, recipe.batch_size, recipe.penalised)
        networks = fit(build, made, recipe)
        for name, task, network in zip(tasks, made, networks, strict=True):
            torch.manual_seed(seed)
            row = {**at_start(build(), task), **judge(task, network)}
            found[name][model] = {**row, "fitted": points(task, network)}
    for values in found.values():
        reference = values.get("linear", {}).get("r2", float("nan"))
        for row in values.values():
            row["gain_over_linear"] = row["r2"] - reference
    torch.set_num_threads(threads)
    return found


@torch.no_grad()
def points(task: Task, network: nn.Module, samples: int = 100) -> list[list[float]]:
    """Right answers with predictions, inside the training range and outside it."""
    pairs = [(x[:samples], y[:samples]) for x, y in (task.fit_data()[1], task.test_data())]
    return [
        [round(float(right), 5), round(float(made), 5)]
        for x, y in pairs
        for right, made in zip(y.flatten(), network(x).flatten(), strict=True)
        if made.isfinite()
    ]


@torch.no_grad()
def at_start(network: nn.Module, task: Task) -> dict[str, float]:
    """The published share before training."""
    layer = first_layer(network)
    if layer is None:
        return {}
    (x, _), _ = task.fit_data()
    return {"start_pi_share": float(layer.diagnostics(x).get("pi_share", torch.tensor(float("nan"))))}


def first_layer(network: nn.Module) -> Diagnosable | None:
    """The first layer that has read-outs."""
    return next((part for part in network.modules() if isinstance(part, Diagnosable)), None)


@torch.no_grad()
def judge(task: Task, network: nn.Module) -> dict[str, float]:
    """Everything about one fit."""
    x, y = task.fit_data()[1]
    outside_x, outside_y = task.test_data()
    network.eval()
    outside = network(outside_x)
    row = {
        "r2": r_squared(network(x), y),
        "r2_outside": r_squared(outside, outside_y),
        "r2_rescaled": r_squared(network(10 * x), task.answer(10 * x).unsqueeze(1)),
        "success": float((outside - outside_y).square().mean().item() < task.success_error()),
        "parameters": float(trained_parameters(network)),
    }
    layer = first_layer(network)
    if layer is not None:
        row |= {name: float(value) for name, value in layer.diagnostics(x).items() if value.dim() == 0}
    for module in network.modules():
        if isinstance(module, ArithmeticUnit):
            row |= {name: float(value) for name, value in module.diagnostics(x).items()}
    if isinstance(network, SigmaPiMLP):
        predictions = network.ablated(x)
        whole = relative_error(predictions["none"], y)
        for name, prediction in predictions.items():
            if name != "none":
                row[f"effect_{name}"] = relative_error(prediction, y) - whole
        # Without a bilinear branch the product is all that multiplies.
        row.setdefault("effect_multiplicative", row["effect_product"])
        (powers, *_) = (
            part.exponents().abs() for part in network.modules() if isinstance(part, SigmaPiLayer)
        )
        row["sparsity_error"] = torch.minimum(powers, (1 - powers).abs()).amax().item()
    return row


def start(seed: int, samples: int = 512) -> dict[str, Values]:
    """The published share at the start, for dense and convolutional layers of many inputs.

    Returns:
        Kind of inputs (``start_gaussian``, ``start_relu``) → layer → ``pi_share_<n>``, n the inputs of an
        output.
    """
    torch.manual_seed(seed)
    kinds: dict[str, Callable[..., Tensor]] = {
        "start_gaussian": torch.randn,
        "start_relu": lambda *shape: torch.randn(*shape).relu(),
    }
    found: dict[str, Values] = {}
    for kind, draw in kinds.items():
        rows: Values = {"polyweave": {}, "sigma_pi": {}, "polyweave_conv": {}, "sigma_pi_conv": {}}
        for n in (64, 784, 2048, 4096):
            x = draw(samples, n)
            rows["polyweave"][f"pi_share_{n}"] = share(polyweave.SigmaPiLinear(n, 64), x)
            rows["sigma_pi"][f"pi_share_{n}"] = share(SigmaPiLinear(n, 64), x)
        for channels in (16, 64, 256):
            x = draw(8, channels, 8, 8)
            fan_in = 9 * channels
            rows["polyweave_conv"][f"pi_share_{fan_in}"] = share(polyweave.ConvSigmaPi2d(channels), x)
            conv = SigmaPiConv2d(channels, channels, 3, padding=1)
            rows["sigma_pi_conv"][f"pi_share_{fan_in}"] = share(conv, x)
        for row in rows.values():
            row["pi_share_max"] = max(row.values())
        found[kind] = rows
    return found


@torch.no_grad()
def share(layer: Diagnosable, x: Tensor) -> float:
    """A layer's published share for inputs."""
    return float(layer.diagnostics(x)["pi_share"])


def fooled(seed: int, inputs: int = 64, samples: int = 512) -> Values:
    """What the published read-outs of the published layer show where nothing multiplies.

    Rows: ``start``, as drawn; ``no_product``, all exponents 0; ``shifted``, every exponent raised by .3,
    which a centring layer's output does not notice; ``decayed``, 1000 steps of AdamW (rate 1e-2, decay .1)
    without any gradient. ``output_change`` is the relative change of the layer's output from the start.
    """
    torch.manual_seed(seed)
    x = torch.rand(samples, inputs) * 1.5 + 0.5
    layer = polyweave.SigmaPiLinear(inputs, 32)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with torch.no_grad():
        reference = layer(x)

    def row() -> dict[str, float]:
        with torch.no_grad():
            change = (layer(x) - reference).square().mean().sqrt() / reference.std()
            values = {name: float(value) for name, value in layer.diagnostics(x).items() if value.dim() == 0}
            return {**values, "output_change": float(change)}

    rows = {"start": row()}
    with torch.no_grad():
        layer.pi_weight_raw.zero_()
    rows["no_product"] = row()
    layer.load_state_dict(before)
    with torch.no_grad():
        weight = layer.pi_weight() + 0.3
        layer.pi_weight_raw.copy_(torch.atanh((weight / layer.max_exponent).clamp(max=1 - 1e-6)))
    rows["shifted"] = row()
    layer.load_state_dict(before)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2, weight_decay=0.1)
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(1000):
        optimizer.step()
    rows["decayed"] = row()
    return rows


def knob(seed: int, inputs: int = 16, samples: int = 1024) -> Values:
    """What the gain of the published layer moves, with and without ``center_product``.

    ``constant_share``: of the output's change when every gain is raised by a factor e, the part that is the
    same for all inputs, RMS over RMS. ``effect_without_exponents``: the relative change where all exponents
    are 0.
    """
    rows: Values = {}
    for name, center in (("polyweave", False), ("polyweave_centred_product", True)):
        torch.manual_seed(seed)
        x = torch.randn(samples, inputs)
        layer = polyweave.SigmaPiLinear(inputs, 32, center_product=center)
        rows[name] = {"constant_share": constant_share(layer, x)}
        with torch.no_grad():
            layer.pi_weight_raw.zero_()
            before = layer(x)
            layer.pi_scale.add_(1)
            change = layer(x) - before
            rows[name]["effect_without_exponents"] = float(change.square().mean().sqrt() / before.std())
    return rows


@torch.no_grad()
def constant_share(layer: polyweave.SigmaPiLinear, x: Tensor) -> float:
    """The part of the output's change with the gain that is the same for all inputs."""
    before = layer(x)
    layer.pi_scale.add_(1)
    change = layer(x) - before
    layer.pi_scale.sub_(1)
    return float(change.mean(0).square().mean().sqrt() / change.square().mean().sqrt())
