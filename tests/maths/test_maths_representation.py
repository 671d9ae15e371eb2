import math

import pytest
import torch

from app.maths import representation as rep


def test_participation_ratio_counts_directions():
    corners = torch.cat((torch.eye(6), -torch.eye(6)))
    assert rep.participation_ratio(corners).item() == pytest.approx(6)
    assert rep.participation_ratio(5 + corners * torch.tensor([1, 1, 1, 0, 0, 0])).item() == pytest.approx(3)
    assert rep.participation_ratio(
        torch.linspace(0, 1, 9).unsqueeze(1) * torch.ones(4)
    ).item() == pytest.approx(1)


def test_participation_ratio_of_one_state_is_zero():
    assert rep.participation_ratio(torch.zeros(9, 4)).item() == 0
    state = torch.randn(32)
    rounded = state * (1 + 1e-7 * torch.randn(64, 32))
    assert rep.participation_ratio(rounded).item() < 1e-3


@pytest.mark.parametrize("shape", [(40, 7), (7, 40)])
def test_participation_ratio_matches_eigenvalues(shape):
    h = torch.randn(shape, dtype=torch.float64) * torch.linspace(0.1, 3, shape[1], dtype=torch.float64)
    values = torch.linalg.eigvalsh(torch.cov(h.T))
    expected = values.sum() ** 2 / values.square().sum()
    torch.testing.assert_close(rep.participation_ratio(h), expected)
    for scale in (1e-15, 1e15):
        torch.testing.assert_close(
            rep.participation_ratio(h.float() * scale).double(), expected, rtol=1e-4, atol=0
        )


def test_pairwise_cosine_matches_all_pairs():
    h = torch.randn(12, 5, dtype=torch.float64) + 1
    units = h / h.norm(dim=1, keepdim=True)
    cosines = units @ units.T
    expected = (cosines.sum() - cosines.trace()) / (12 * 11)
    torch.testing.assert_close(rep.pairwise_cosine(h), expected)
    assert rep.pairwise_cosine(torch.ones(3, 4)).item() == pytest.approx(1)
    assert rep.pairwise_cosine(torch.ones(1, 4)).item() == 1


def test_phase_coherence_is_the_resultant_length():
    same = torch.tensor([[0.1, 2.0, 0.0, 0.0]]).repeat(8, 1)
    assert rep.phase_coherence(same).item() == pytest.approx(1)
    angles = torch.arange(8) * 2 * math.pi / 8
    assert rep.phase_coherence(torch.stack((angles.cos(), angles.sin()), -1)).item() == pytest.approx(
        0, abs=1e-6
    )
    n = 400
    angles = 2 * math.pi * torch.rand(n, 500, generator=torch.Generator().manual_seed(0))
    uniform = torch.cat((angles.cos(), angles.sin()), -1)
    assert rep.phase_coherence(uniform).item() == pytest.approx(math.sqrt(math.pi / 4 / n), rel=0.1)


def test_fractions_and_radii():
    z = torch.tensor([[3.0, 0.1, 4.0, 0.1], [0.0, 0.6, 1.0, 0.8]])
    assert rep.bounded_fraction(z).item() == pytest.approx(0.25)
    assert rep.rms_radius(z).item() == pytest.approx(math.sqrt((25 + 0.02 + 1 + 1) / 4))
    assert rep.rms(z).item() == pytest.approx(math.sqrt((25 + 0.02 + 1 + 1) / 8))


def test_constant_fraction_counts_dead_and_saturated():
    h = torch.randn(16, 4)
    h[:, 0], h[:, 1] = 0, -1
    assert rep.constant_fraction(h).item() == 0.5


def test_thin_takes_evenly():
    assert rep.thin(torch.arange(10), 4).tolist() == [0, 3, 6, 9]
    assert len(rep.thin(torch.arange(1024), 1024)) == 1024
    assert len(rep.thin(torch.arange(1025), 1024)) <= 1024


def test_leading_dimensions_and_half_types():
    h = torch.randn(2, 3, 8)
    for statistic in (rep.participation_ratio, rep.pairwise_cosine, rep.phase_coherence, rep.rms):
        torch.testing.assert_close(statistic(h), statistic(h.flatten(0, 1)))
        assert statistic(h.bfloat16()).dtype == torch.float32
