import pytest
import torch

from app.maths.attack import projected_gradient


def test_on_a_linear_map_the_attack_reaches_the_boundary_and_no_further():
    """For z = (w·x, −w·x) the nearest misclassified point is |w·x|/‖w‖ away, and no attack does better."""
    torch.manual_seed(0)
    w = torch.randn(6, dtype=torch.float64)
    x = torch.randn(50, 6, dtype=torch.float64)
    y = (x @ w < 0).long()
    distance = (x @ w).abs() / w.norm()

    def predict(z):
        return torch.stack((z @ w, -(z @ w)), -1)

    assert (predict(projected_gradient(predict, x, y, 0.999 * distance)).argmax(-1) == y).all()
    assert (predict(projected_gradient(predict, x, y, 1.001 * distance)).argmax(-1) != y).all()


@pytest.mark.parametrize("radius", [0.0, 1e-6, 0.5])
def test_it_stays_in_the_ball(radius):
    x = torch.randn(8, 1, 3, 3, dtype=torch.float64)
    moved = projected_gradient(
        lambda z: z.flatten(1)[:, :3] * 5, x, torch.zeros(8, dtype=torch.long), radius, 10
    )
    assert (moved - x).flatten(1).norm(dim=1).max() <= radius * (1 + 1e-9) + 1e-14
