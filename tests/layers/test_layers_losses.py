import math

import pytest
import torch

from app.layers import AnnealedCrossEntropy, CertifiedHinge, ShiftedCrossEntropy
from app.maths.certificate import annealed_cross_entropy, hinge, shifted_cross_entropy

LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_call_the_mathematics_with_their_arguments():
    found = CertifiedHinge(radius=0.5, lipschitz=3.0)(LOGITS, TARGETS)
    assert torch.equal(found, hinge(LOGITS, TARGETS, 1.5 * math.sqrt(2)))
    found = ShiftedCrossEntropy(offset=0.4, temperature=0.3)(LOGITS, TARGETS)
    assert torch.equal(found, shifted_cross_entropy(LOGITS, TARGETS, 0.4, 0.3))
    found = AnnealedCrossEntropy(offset=0.4, temperature=0.3, power=2.0)(LOGITS, TARGETS)
    assert torch.equal(found, annealed_cross_entropy(LOGITS, TARGETS, 0.4, 0.3, 2.0))


def test_no_shift_at_temperature_one_is_cross_entropy():
    expected = torch.nn.functional.cross_entropy(LOGITS, TARGETS)
    torch.testing.assert_close(ShiftedCrossEntropy(1e-9, 1.0)(LOGITS, TARGETS), expected)
    torch.testing.assert_close(AnnealedCrossEntropy(1e-9, 1.0, 0.0)(LOGITS, TARGETS), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CertifiedHinge(radius=0), "radius must be positive, got 0"),
        (lambda: CertifiedHinge(lipschitz=-1), "lipschitz must be positive, got -1"),
        (lambda: ShiftedCrossEntropy(temperature=0), "temperature must be positive, got 0"),
        (lambda: AnnealedCrossEntropy(offset=math.nan), "offset must be positive, got nan"),
        (lambda: AnnealedCrossEntropy(power=-1), "power must not be negative, got -1"),
    ],
)
def test_refuse_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
