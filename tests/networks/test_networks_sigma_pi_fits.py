"""What one layer learns from data with a known answer, five seeds of five, one recipe for all tasks.

The table of every model on every task, in range and outside:

    python -m pytest -m slow -s tests/networks/test_networks_sigma_pi_fits.py
"""

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from fits import Recipe, fit, r_squared, relative_error
from torch import nn

from app.layers.arithmetic import ArithmeticUnit
from app.layers.sigma_pi_base import SigmaPiLayer
from app.networks.arithmetic import INALUNetwork, NACTimesNetwork, NMUNetwork
from app.networks.sigma_pi import BilinearMLP, PlainMLP, PolyWeaveMLP, SigmaPiMLP
from datamodules import products

PRODUCTS = (
    products.PairProduct,
    products.TripleProduct,
    products.Ratio,
    products.RootRatio,
    products.SignedProduct,
)
AFFINE = (products.Mean, products.LinearMap)
NEITHER = (products.Sine, products.Parity)
SEEDS = range(5)

RECIPE = Recipe()
UNDECAYED = Recipe(weight_decay=0.0)  # decay does the others no good: measured
RAMP = (RECIPE.steps // 5, 2 * RECIPE.steps // 5)
PENALISED = Recipe(lr=1e-2, weight_decay=0.0, penalised=True)

MODELS = {
    "Sigma-Pi": (partial(SigmaPiMLP, (4,), 1), RECIPE),
    "Sigma-Pi, rank 0": (partial(SigmaPiMLP, (4,), 1, bilinear_rank=0), RECIPE),
    "PolyWeave": (partial(PolyWeaveMLP, (4,), 1), UNDECAYED),
    "PolyWeave, cap 2": (partial(PolyWeaveMLP, (4,), 1, max_exponent=2.0), UNDECAYED),
    "linear": (partial(PlainMLP, (4,), 1), UNDECAYED),
    "bilinear": (partial(BilinearMLP, (4,), 1), UNDECAYED),
    "NMU": (partial(NMUNetwork, (4,), 1, ramp=RAMP), PENALISED),
    "NAC×": (partial(NACTimesNetwork, (4,), 1), Recipe(lr=1e-2, weight_decay=0.0)),
    "iNALU": (partial(INALUNetwork, (4,), 1, ramp=(RAMP[1], RAMP[1] + 1)), PENALISED),
}


def fitted(build, recipe: Recipe, kinds) -> dict[type, list[tuple[products.AnswerTask, nn.Module]]]:
    tasks = [kind(seed=seed) for kind in kinds for seed in SEEDS]
    networks = fit(build, tasks, recipe)
    pairs = list(zip(tasks, networks, strict=True))
    return {kind: [pair for pair in pairs if type(pair[0]) is kind] for kind in kinds}


@torch.no_grad()
def judge(task: products.AnswerTask, network: nn.Module) -> Mapping[str, float]:
    """Everything about one fit."""
    x, y = task.fit_data()[1]
    outside_x, outside_y = task.test_data()
    network.eval()
    outside = network(outside_x)
    error = (outside - outside_y).square().mean().item()
    row = {
        "in": r_squared(network(x), y),
        "out": r_squared(outside, outside_y),
        "success": float(error < task.success_error()),
    }
    for module in network.modules():
        if isinstance(module, ArithmeticUnit):
            row |= {name: value.item() for name, value in module.diagnostics(x).items()}
    if isinstance(network, (SigmaPiMLP, PolyWeaveMLP)):
        row |= {name: value.item() for name, value in network.layers[0].diagnostics(x).items()}
    if isinstance(network, SigmaPiMLP):
        predictions = network.ablated(x)
        whole = relative_error(predictions["none"], y)
        row |= {f"−{name}": relative_error(p, y) - whole for name, p in predictions.items() if name != "none"}
        (layer,) = (m for m in network.modules() if isinstance(m, SigmaPiLayer))
        powers = layer.exponents().abs()
        row["sparsity_error"] = torch.minimum(powers, (1 - powers).abs()).amax().item()
    return row


def show(title: str, rows: Mapping[str, list[Mapping[str, float]]], columns: list[str]) -> None:
    print(f"\n{title}\n{'':15s}" + "".join(f"{c[:17]:>38s}" for c in columns))
    for name, fits in rows.items():
        cells = [" ".join(f"{row[c]:7.4f}" if c in row else "      –" for row in fits) for c in columns]
        print(f"{name:15s}" + "".join(f"{cell[:38]:>38s}" for cell in cells))


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", MODELS)
def test_table_of_models(name: str) -> None:
    """Prints; the bars are in the two tests below."""
    rows = {
        kind.__name__: [judge(*pair) for pair in pairs]
        for kind, pairs in fitted(*MODELS[name], PRODUCTS + AFFINE + NEITHER).items()
    }
    columns = ["in", "out", "success"]
    if "sparsity_error" in rows["Mean"][0]:
        columns.append("sparsity_error")
    show(name, rows, columns)
    read = [c for c in rows["Mean"][0] if c not in ("in", "out", "success", "sparsity_error")]
    if read:
        print(f"{'means':15s}" + "".join(f"{c[:13]:>15s}" for c in read))
        for task, fits in rows.items():
            means = [sum(row.get(c, float("nan")) for row in fits) / len(fits) for c in read]
            print(f"{task:15s}" + "".join(f"{mean:15.4f}" for mean in means))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_of_five_seeds_and_readouts_that_tell() -> None:
    """R² ≥ .99 in range where an affine map or a product is the answer; read-outs beside it."""
    for kind, pairs in fitted(*MODELS["Sigma-Pi"], PRODUCTS + AFFINE).items():
        for task, network in pairs:
            row, where = judge(task, network), (kind.__name__, task.seed)
            assert row["in"] >= 0.99, where
            assert row["saturation_fraction"] <= 0.05, where
            if kind in AFFINE:
                assert row["nonlinear_share"] < 0.05, where
                assert row["−multiplicative"] < 0.05, where
            else:
                assert row["nonlinear_share"] >= 0.2, where
                assert row["−multiplicative"] >= 0.2, where


def test_one_layer_learns_a_product_and_leaves_a_mean_alone() -> None:
    """The same in small: one seed, a third of the steps."""
    short = Recipe(steps=1000)
    tasks = [products.PairProduct(), products.SignedProduct(), products.Mean()]
    for task, network in zip(tasks, fit(MODELS["Sigma-Pi"][0], tasks, short), strict=True):
        row = judge(task, network)
        assert row["in"] >= 0.99, type(task)
        if isinstance(task, products.PairProduct):
            assert row["−multiplicative"] >= 0.2
        else:
            assert row["nonlinear_share"] < 0.05
