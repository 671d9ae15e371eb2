import math

import pytest
import torch

from app.modules import Constant, WarmupCosine


def learning_rates(make, total: int, lr: float = 0.5) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    schedule = make(optimizer, total)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_warmup_is_linear_and_the_rest_half_a_cosine(final):
    rates = learning_rates(lambda o, t: WarmupCosine(o, t, warmup_steps=10, final_fraction=final), 50)
    expected = [
        0.5 * ((t + 1) / 10 if t < 10 else final + (1 - final) * (1 + math.cos(math.pi * (t - 10) / 40)) / 2)
        for t in range(50)
    ]
    torch.testing.assert_close(torch.tensor(rates), torch.tensor(expected))
    assert rates[9] == 0.5


def test_a_fit_shorter_than_the_warmup_stays_finite():
    rates = learning_rates(lambda o, t: WarmupCosine(o, t, warmup_steps=100), 5)
    torch.testing.assert_close(torch.tensor(rates), torch.arange(1, 6) * 0.005)


def test_constant_is_constant():
    assert set(learning_rates(Constant, 20)) == {0.5}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"total_steps": 0}, "total_steps must be at least 1, got 0"),
        ({"total_steps": 5, "warmup_steps": -1}, "warmup_steps must be at least 0, got -1"),
        ({"total_steps": 5, "final_fraction": 1.5}, r"final_fraction must lie in \[0, 1\], got 1.5"),
    ],
)
def test_bad_arguments(settings, message):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match=message):
        WarmupCosine(optimizer, **settings)
