import math

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from app.maths.attack import projected_gradient
from app.modules import Classification
from app.networks import CertifiedZPlaneMLP

CLASSES = 3


class Scores(nn.Module):
    """Returns its input as logits, and has a known Lipschitz constant."""

    def __init__(self, bound: float = 1.0) -> None:
        super().__init__()
        self.bound = bound
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.unused

    def lipschitz_bound(self) -> Tensor:
        return torch.tensor(self.bound)


def loader(x: Tensor, y: Tensor, batch: int = 4) -> DataLoader:
    return DataLoader(TensorDataset(x, y), batch)


def test_metrics_are_those_of_all_samples_with_uneven_batches(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(11, CLASSES, generator=generator) * 3
    y = torch.randint(CLASSES, (11,), generator=generator)
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    (found,) = trainer.test(Classification(Scores(), CLASSES), loader(x, y), verbose=False)
    assert found["test/loss"] == pytest.approx(cross_entropy(x, y).item(), rel=1e-6)
    assert found["test/acc"] == pytest.approx((x.argmax(-1) == y).float().mean().item())
    confidence, predicted = x.softmax(-1).max(-1)
    bins = (confidence * 15).long().clamp(max=14)
    right = (predicted == y).float()
    gaps = [
        (right[bins == b].mean() - confidence[bins == b].mean()).abs() * (bins == b).sum()
        for b in bins.unique()
    ]
    assert found["test/ece"] == pytest.approx((sum(gaps) / 11).item(), rel=1e-4)


@pytest.mark.parametrize("bound", [1.0, 0.5])
def test_certified_accuracy_counts_margins_over_root_two_times_the_bound(tmp_path, bound):
    # Margins 0.1, 0.5, 1.0 and, misclassified, −1: radii are margins over √2 L.
    x = torch.tensor([[0.1, 0.0, -9], [0.5, 0.0, -9], [1.0, 0.0, -9], [0.0, 1.0, -9]])
    y = torch.zeros(4, dtype=torch.long)
    radii = (0.0, 0.2, 0.6)
    module = Classification(Scores(bound), CLASSES, certified_radii=radii)
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    (found,) = trainer.test(module, loader(x, y), verbose=False)
    margins = [0.1, 0.5, 1.0]
    for radius, name in zip(radii, ("0", "0_2", "0_6"), strict=True):
        expected = sum(margin / (math.sqrt(2) * bound) > radius for margin in margins) / 4
        assert found[f"test/certified_acc_{name}"] == pytest.approx(expected)
    assert found["test/lipschitz"] == pytest.approx(bound)


class Stretched(pl.LightningDataModule):
    """Divides its inputs by ¼."""

    input_lipschitz = 4.0

    def test_dataloader(self) -> DataLoader:
        x = torch.tensor([[1.0, 0.0, -9.0]])
        return loader(x, torch.zeros(1, dtype=torch.long))


def test_normalisation_enters_the_certificate(tmp_path):
    module = Classification(Scores(), CLASSES, certified_radii=(0.17, 0.18))
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path
    )
    (found,) = trainer.test(module, datamodule=Stretched(), verbose=False)
    assert 0.17 < 1 / (math.sqrt(2) * 4) < 0.18
    assert found["test/certified_acc_0_17"] == 1
    assert found["test/certified_acc_0_18"] == 0
    assert found["test/lipschitz"] == 4


def test_an_attack_never_beats_the_certificate():
    """Projected gradient steps within each sample's certified radius change no prediction."""
    torch.manual_seed(0)
    network = CertifiedZPlaneMLP((1, 4, 4), CLASSES, depth=6, width=16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    x = torch.rand(64, 1, 4, 4)
    y = x.flatten(1)[:, :CLASSES].argmax(-1)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(network(x) * 8, y).backward()
        optimizer.step()
        network.constrain()
    with torch.no_grad():
        logits = network(x)
        top = logits.topk(2).values
        radius = (top[:, 0] - top[:, 1]) / (math.sqrt(2) * network.lipschitz_bound())
        predicted = logits.argmax(-1)
    assert (predicted == y).float().mean() > 0.8
    reached = {}
    for factor in (1.0, 30.0):
        attacked = projected_gradient(network, x, predicted, (factor * radius).float())
        reached[factor] = (network(attacked).argmax(-1) != predicted).float().mean().item()
    assert reached[1.0] == 0
    assert reached[30.0] > 0.5  # the attack itself works


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_classes": 1}, "at least 2, got 1"),
        ({"num_classes": 3, "certified_radii": [-1.0]}, "must not be negative"),
    ],
)
def test_bad_arguments(settings, message):
    with pytest.raises(ValueError, match=message):
        Classification(Scores(), **settings)


def test_declared_metric_names_are_those_that_are_logged(tmp_path):
    x = torch.randn(16, CLASSES)
    y = x.argmax(-1)
    module = Classification(Scores(), CLASSES)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=1,
        enable_progress_bar=False,
        log_every_n_steps=1,
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader(x, y), loader(x, y))
    logged = set(trainer.callback_metrics)
    trainer.test(module, loader(x, y), verbose=False)
    assert logged | set(trainer.callback_metrics) == set(module.metric_names)
