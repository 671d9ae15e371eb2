import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from app.maths.certificate import (
    annealed_cross_entropy,
    certified_radius,
    hinge,
    margin,
    shifted_cross_entropy,
)

LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 3.0, 2.5], [1.0, 1.0, 4.0]], dtype=torch.float64)
TARGETS = torch.tensor([0, 2, 2])


def test_margin():
    torch.testing.assert_close(margin(LOGITS, TARGETS), torch.tensor([1.5, -0.5, 3.0], dtype=torch.float64))


def test_radius_of_a_linear_classifier_is_exact():
    # Orthonormal rows: L = 1, and the nearest point of another class is at (z_y − z_j)/√2.
    weight = torch.linalg.qr(
        torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    )[0].T
    x = torch.randn(50, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    z = x @ weight.T
    targets = z.argmax(-1)
    radius = certified_radius(z, targets, 1.0)
    rivals = z.scatter(-1, targets.unsqueeze(-1), -math.inf).argmax(-1)
    direction = (weight[rivals] - weight[targets]) / math.sqrt(2)
    for factor, same in ((0.999, True), (1.001, False)):
        attacked = (x + factor * radius.unsqueeze(-1) * direction) @ weight.T
        assert torch.equal(attacked.argmax(-1), targets if same else rivals)


@settings(deadline=None, max_examples=30)
@given(
    offset=st.floats(0.1, 5), temperature=st.floats(0.1, 2), power=st.floats(0, 6), seed=st.integers(0, 99)
)
def test_losses_match_loops(offset, temperature, power, seed):
    z = 3 * torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = torch.randint(5, (4,), generator=torch.Generator().manual_seed(seed))
    hinges, shifted, annealed = [], [], []
    for row, t in zip(z.tolist(), y.tolist(), strict=True):
        hinges += [max(0.0, offset - row[t] + row[j]) for j in range(5) if j != t]
        w = [(v - offset * (j == t)) / temperature for j, v in enumerate(row)]
        p = math.exp(w[t]) / sum(map(math.exp, w))
        shifted.append(-temperature * math.log(p))
        annealed.append(-temperature * (1 - p) ** power * math.log(p))
    assert hinge(z, y, offset).item() == pytest.approx(sum(hinges) / 16, abs=1e-12)
    assert shifted_cross_entropy(z, y, offset, temperature).item() == pytest.approx(sum(shifted) / 4)
    found = annealed_cross_entropy(z, y, offset, temperature, power).item()
    assert found == pytest.approx(sum(annealed) / 4, rel=1e-6, abs=1e-12)


def test_hinge_vanishes_exactly_when_the_radius_is_certified():
    z = torch.tensor([[1.5 * math.sqrt(2) + 1e-6, 0.0]])
    y = torch.tensor([0])
    assert hinge(z, y, 1.5 * math.sqrt(2)).item() == 0
    assert certified_radius(z, y, 1.0).item() >= 1.5


@pytest.mark.parametrize("size", [0.0, 1e3, 1e6])
def test_gradients_are_finite_for_any_confidence(size):
    z = torch.tensor([[size, 0.0, -size], [-size, 0.0, size]], requires_grad=True)
    y = torch.tensor([0, 0])
    total = annealed_cross_entropy(z, y, 2.0, 0.75, 5.0) + annealed_cross_entropy(z, y, 2.0, 0.75, 0.5)
    (total + hinge(z, y, 1.0) + shifted_cross_entropy(z, y, 1.0, 0.25)).backward()
    assert z.grad.isfinite().all()
