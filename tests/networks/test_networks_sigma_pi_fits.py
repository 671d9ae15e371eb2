"""What one layer learns from data with a known answer, five seeds of five, one recipe for all tasks.

The table of every model on every task, in range and outside, is the page of the study ``sigma_pi``.
"""

import pytest
from torch import nn

from app.study import products as products_study
from app.study.fitting import Recipe, fit
from app.study.products import judge
from datamodules import products

PRODUCTS = (
    products.PairProduct,
    products.TripleProduct,
    products.Ratio,
    products.RootRatio,
    products.SignedProduct,
)
AFFINE = (products.Mean, products.LinearMap)
SEEDS = range(5)

RECIPE = Recipe()

MODELS = products_study.builders(RECIPE.steps)


def fitted(build, recipe: Recipe, kinds) -> dict[type, list[tuple[products.AnswerTask, nn.Module]]]:
    tasks = [kind(seed=seed) for kind in kinds for seed in SEEDS]
    networks = fit(build, tasks, recipe)
    pairs = list(zip(tasks, networks, strict=True))
    return {kind: [pair for pair in pairs if type(pair[0]) is kind] for kind in kinds}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_of_five_seeds_and_readouts_that_tell() -> None:
    """R² ≥ .99 in range where an affine map or a product is the answer; read-outs beside it."""
    for kind, pairs in fitted(*MODELS["sigma_pi"], PRODUCTS + AFFINE).items():
        for task, network in pairs:
            row, where = judge(task, network), (kind.__name__, task.seed)
            assert row["r2"] >= 0.99, where
            assert row["saturation_fraction"] <= 0.05, where
            if kind in AFFINE:
                assert row["nonlinear_share"] < 0.05, where
                assert row["effect_multiplicative"] < 0.05, where
            else:
                assert row["nonlinear_share"] >= 0.2, where
                assert row["effect_multiplicative"] >= 0.2, where


def test_one_layer_learns_a_product_and_leaves_a_mean_alone() -> None:
    """The same in small: one seed, a third of the steps."""
    short = Recipe(steps=1000)
    tasks = [products.PairProduct(), products.SignedProduct(), products.Mean()]
    for task, network in zip(tasks, fit(MODELS["sigma_pi"][0], tasks, short), strict=True):
        row = judge(task, network)
        assert row["r2"] >= 0.99, type(task)
        if isinstance(task, products.PairProduct):
            assert row["effect_multiplicative"] >= 0.2
        else:
            assert row["nonlinear_share"] < 0.05
