"""Regression: its metrics, and every transformer through fifty steps with all diagnostics on."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from app.callbacks import Diagnostics, GradientNorms, NonFiniteGuard, read_diagnostics
from app.modules import Regression
from app.networks import (
    DDL,
    GPT,
    HC,
    MHC,
    OHC,
    CayleyIterationProbe,
    CayleyProbe,
    DeltaProbe,
    EDelta,
    EDeltaCayley,
    EDeltaProbe,
    EDeltaReflection,
    EDeltaTwoReflections,
    JPmHC,
    KromHC,
    ReflectionProbe,
    TwoReflectionsProbe,
)
from app.networks import published as p
from datamodules import Gyroscope, Negation
from datamodules.base import InMemory

OURS = [GPT, DDL, HC, MHC, JPmHC, EDelta, EDeltaCayley, EDeltaReflection, OHC, EDeltaTwoReflections, KromHC]
PUBLISHED = [
    p.PublishedGPT,
    p.PublishedDDL,
    p.PublishedMHC,
    p.PublishedJPmHC,
    p.PublishedEDelta,
    p.PublishedEDeltaStream,
    p.PublishedEDeltaToken,
]
PROBES = [
    CayleyProbe,
    ReflectionProbe,
    DeltaProbe,
    EDeltaProbe,
    TwoReflectionsProbe,
    CayleyIterationProbe,
    p.PublishedEDeltaProbe,
    p.PublishedDDLProbe,
    p.PublishedJPmHCProbe,
]


def fit(
    module: Regression, data: InMemory, folder: Path, precision: str = "32-true", steps: int = 50
) -> Trainer:
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=steps,
        precision=precision,  # type: ignore[arg-type]
        gradient_clip_val=1.0,
        logger=CSVLogger(folder),
        log_every_n_steps=5,
        callbacks=[Diagnostics(), GradientNorms(), NonFiniteGuard()],
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(module, datamodule=data)
    return trainer


def rotation() -> Gyroscope:
    return Gyroscope(batch_size=16, train_samples=800, val_samples=16, time=12, dim=8)


def transformer(network: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return network((12, 8), 8, depth=1, width=16)


def check(trainer: Trainer, module: Regression) -> None:
    assert trainer.global_step == 50
    losses = {k: float(v) for k, v in trainer.callback_metrics.items()}
    assert all(torch.isfinite(torch.tensor(v)) for v in losses.values()), losses
    assert set(losses) <= module.metric_names
    assert {"train/loss", "val/loss", "val/cosine", "val/r2", "val/over_trivial"} <= set(losses)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("network", [*OURS, *PUBLISHED])
def test_fifty_steps(network: type[nn.Module], precision: str, tmp_path: Path) -> None:
    module = Regression(transformer(network))
    trainer = fit(module, rotation(), tmp_path, precision)
    check(trainer, module)
    if network in OURS:
        metrics = set(read_diagnostics(str(trainer.log_dir))["metric"])
        assert {
            "diagnostics/orthogonality",
            "diagnostics/shortcut_energy",
            "gradients/weight_norm",
        } <= metrics


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("network", [*OURS, *PUBLISHED])
def test_fifty_compiled_steps(network: type[nn.Module], precision: str, tmp_path: Path) -> None:
    module = Regression(transformer(network), compile_network=True)
    check(fit(module, rotation(), tmp_path, precision), module)


@pytest.mark.parametrize("network", PROBES)
def test_fifty_steps_of_a_probe(network: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Regression(network((8,), 8))
    check(fit(module, Negation(batch_size=16, train_samples=800, val_samples=32, dim=8), tmp_path), module)


class Scale(nn.Module):
    """y = a·x, with a penalty of 0.25."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(-0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * x

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self(x), 0 * self.a + 0.25


def test_metrics_are_what_they_say(tmp_path: Path) -> None:
    data = Negation(batch_size=10, train_samples=20, val_samples=33, dim=8)
    module = Regression(Scale(), optimizer=lambda groups: torch.optim.SGD(groups, lr=0.0))
    trainer = fit(module, data, tmp_path, steps=2)
    x, y = data.val_set  # type: ignore[misc]
    error = float((-0.5 * x - y).square().mean())
    metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
    assert metrics["val/loss"] == pytest.approx(error, rel=1e-5)
    assert metrics["val/cosine"] == pytest.approx(1, abs=1e-6)
    assert metrics["val/r2"] == pytest.approx(1 - error / float(y.var(0, correction=0).mean()), rel=1e-5)
    assert "val/norm_deviation" not in metrics  # the vectors have no norm to keep
    assert metrics["val/over_trivial"] == pytest.approx(error / data.floors()["zero"], rel=1e-5)
    assert "val/over_floor" not in metrics  # the answer's error is zero
    assert metrics["train/penalty"] == pytest.approx(0.25)
    train = data.train_set[0]  # type: ignore[index]
    assert metrics["train/loss"] == pytest.approx(float((0.5 * train).square().mean()), rel=1e-5)


def test_the_floor_is_the_least_of_the_predictors(tmp_path: Path) -> None:
    data = Gyroscope(batch_size=16, train_samples=32, val_samples=16, time=12, dim=8)
    trainer = fit(Regression(transformer(GPT)), data, tmp_path, steps=2)
    metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
    assert metrics["val/over_floor"] == pytest.approx(metrics["val/loss"] / data.floors()["bayes"], rel=1e-4)
    assert metrics["val/over_trivial"] == pytest.approx(metrics["val/loss"] / data.floors()["copy"], rel=1e-4)


def test_norm_deviations_of_a_network_that_scales(tmp_path: Path) -> None:
    """y = −x/2: norms are off by ½ at once, and by 1 − 2⁻ᵗ in a rollout, which the test alone does."""
    data = Gyroscope(batch_size=16, train_samples=32, val_samples=20, time=12, dim=8)
    module = Regression(Scale(), optimizer=lambda groups: torch.optim.SGD(groups, lr=0.0), rollout_steps=60)
    trainer = fit(module, data, tmp_path, steps=2)
    fitted = dict(trainer.callback_metrics)
    tested = trainer.test(module, datamodule=data, verbose=False)[0]
    for stage, metrics in (("val", fitted), ("test", tested)):
        assert float(metrics[f"{stage}/norm_deviation"]) == pytest.approx(0.5, abs=1e-5)
        assert float(metrics[f"{stage}/norm_deviation_echo"]) == pytest.approx(0.5, abs=1e-5)
    expected = sum(1 - 0.5**t for t in range(1, 61)) / 60
    assert float(tested["test/norm_deviation_rollout"]) == pytest.approx(expected, abs=1e-5)
    assert "val/norm_deviation_rollout" not in fitted
    assert {name for name in (*fitted, *tested) if "norm" in name} <= module.metric_names
    assert not any(name.startswith("train/norm") for name in module.metric_names)


def test_a_rollout_has_a_length() -> None:
    with pytest.raises(ValueError, match="rollout_steps must be at least 1, got 0"):
        Regression(Scale(), rollout_steps=0)


def test_the_penalty_is_trained() -> None:
    module = Regression(EDelta((12, 8), 8, depth=1, width=16, gate_bias=1.0, penalty_weight=3.0))
    x = torch.randn(2, 12, 8)
    prediction, penalty = module.predict_with_penalty(x)
    assert penalty is not None
    assert prediction.shape == x.shape
    (grad,) = torch.autograd.grad(penalty, module.network.trunk.steps[0].fused.output.bias)  # type: ignore[union-attr, index]
    assert float(grad[-1]) < 0  # a descent step raises the gate's bias, away from ½
