import math

import pytest
import torch
from scipy import special
from torch import nn

from app.maths.phasor import radius
from app.networks import CertifiedZPlaneMLP, RetractedZPlaneMLP, ZPlaneMLP
from app.protocols import Certified, Constrained

MIXINGS = ("real", "complex")
GAINS = [(0.9, 2.5e-5), (1.0, 0.67), (1.05, 5.5), (1.1, 30), (1.2, 611), (math.sqrt(2), 1.1e5)]


def mean_field_ratio(gain, depth=100, q=0.5):
    """Written out from the spec with scipy's E₁, apart from app.maths.mean_field."""
    squared = 1.0
    for _ in range(depth - 1):
        q = gain**2 * q * (1 - math.exp(-1 / (2 * q)))
        squared *= gain**2 * (1 - math.exp(-1 / (2 * q)) - special.expi(-1 / (2 * q)) / (4 * q))
    return math.sqrt(squared)


def activation_gradient_ratio(network, x, y):
    """‖∂L/∂z₁‖/‖∂L/∂z_depth‖ of the pre-activations."""
    kept = []

    def keep(module, inputs, output):
        output.retain_grad()
        kept.append(output)

    hooks = [layer.linear.register_forward_hook(keep) for layer in (network.layers[0], network.layers[-1])]
    nn.functional.cross_entropy(network(x), y).backward()
    for hook in hooks:
        hook.remove()
    first, last = (z.grad.double().norm().item() for z in kept)
    return first / last


@pytest.mark.parametrize(("gain", "measured"), GAINS)
@pytest.mark.parametrize("mixing", MIXINGS)
def test_gradient_ratio_over_100_layers(gain, measured, mixing):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(128, 1, 28, 28, generator=generator)
    y = torch.randint(10, (128,), generator=generator)
    ratios = []
    for seed in range(2):
        torch.manual_seed(seed)
        ratios.append(activation_gradient_ratio(ZPlaneMLP((1, 28, 28), 10, mixing=mixing, gain=gain), x, y))
    ratio = math.exp(sum(map(math.log, ratios)) / len(ratios))
    for reference in (measured, mean_field_ratio(gain)):
        assert reference / 1.5 < ratio < reference * 1.5


@pytest.mark.parametrize("bundle", [1, 2, 8])
@pytest.mark.parametrize("shape", [(784,), (1, 8, 8), (3, 16)])
def test_encoder_starts_at_rms_radius_one(shape, bundle):
    network = ZPlaneMLP(shape, 10, depth=1, width=128, bundle=bundle)
    z = network.encoder(torch.randn(512, *shape).flatten(1))
    assert radius(z, bundle).square().mean().sqrt().item() == pytest.approx(1, rel=0.03)


def train(network, steps, lr, seed=0):
    """AdamW on a fixed random problem; yields after every step and its retraction."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(256, *network_input(network), generator=generator)
    y = torch.randint(10, (256,), generator=generator)
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr)
    for step in range(steps):
        batch = torch.arange(step * 64, (step + 1) * 64) % 256
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
        optimizer.step()
        network.constrain()
        yield


def network_input(network):
    return (network.encoder.in_features,)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("cls", [RetractedZPlaneMLP, CertifiedZPlaneMLP])
def test_retraction_holds_spectral_norms_over_training(cls, mixing):
    torch.manual_seed(0)
    network = cls((64,), 10, depth=8, width=128, mixing=mixing)
    assert isinstance(network, Constrained)
    start = [p.detach().clone() for p in network.parameters()]
    for _ in train(network, 50, 1e-3):
        norms = spectral_norms([full_matrix(layer) for layer in network.layers])
        assert (norms - 1).abs().max() < 1e-3
    moved = [(p - q).norm() / q.norm() for p, q in zip(network.parameters(), start, strict=True) if q.any()]
    assert min(moved) > 0.01
    if cls is CertifiedZPlaneMLP:
        for end in (network.encoder, network.head):
            assert spectral_norms([end.weight @ end.weight.T]).item() == pytest.approx(1, abs=2e-3)


def spectral_norms(matrices):
    """By eigenvalues: singular value routines may fail on (nearly) orthogonal matrices."""
    stack = torch.stack(list(matrices)).detach().double()
    return torch.linalg.eigvalsh(stack @ stack.mT)[:, -1].sqrt()


def full_matrix(layer):
    return layer.linear.weight if isinstance(layer.linear, nn.Linear) else layer.linear.matrix()


def test_without_retraction_the_norms_leave_one():
    torch.manual_seed(0)
    network = RetractedZPlaneMLP((64,), 10, depth=20, width=128, mixing="real")
    network.constrain = lambda: None
    for _ in train(network, 50, 1e-3):
        pass
    norms = spectral_norms([full_matrix(layer) for layer in network.layers])
    assert (norms - 1).max() > 0.02


@pytest.mark.parametrize("encoder_gain", [0.5, 1.0])
def test_sampled_pairs_never_beat_the_lipschitz_bound(encoder_gain):
    torch.manual_seed(0)
    network = CertifiedZPlaneMLP((32,), 10, depth=12, width=32, encoder_gain=encoder_gain)
    for _ in train(network, 50, 3e-3):
        pass
    assert isinstance(network, Certified)
    bound = network.lipschitz_bound()
    assert bound.ndim == 0
    assert encoder_gain * 0.9 < bound.item() <= encoder_gain * (1 + 1e-5)
    network.double()
    x = torch.randn(4000, 32, dtype=torch.float64) * torch.logspace(
        -2, 1, 4000, dtype=torch.float64
    ).unsqueeze(1)
    for size in (1e-3, 1.0):
        other = x + size * torch.randn_like(x)
        rates = (network(x) - network(other)).norm(dim=1) / (x - other).norm(dim=1)
        assert rates.max() <= bound
    # The steepest direction is at small inputs, where nothing is bounded.
    point = torch.zeros(32, dtype=torch.float64)
    jacobian = torch.func.jacrev(lambda t: network(t.unsqueeze(0)).squeeze(0))(point)
    steepest = torch.linalg.matrix_norm(jacobian, 2)
    assert steepest <= bound
    assert steepest > 0.3 * bound


@pytest.mark.parametrize("mixing", MIXINGS)
def test_lipschitz_bound_covers_weights_of_any_size(mixing):
    network = RetractedZPlaneMLP((8,), 3, depth=3, width=8, mixing=mixing)
    with torch.no_grad():
        for p in network.parameters():
            p.normal_()
    expected = math.prod(
        torch.linalg.matrix_norm(w.double(), 2).item()
        for w in (network.encoder.weight, *map(full_matrix, network.layers), network.head.weight)
    )
    assert network.lipschitz_bound().item() == pytest.approx(expected, rel=1e-5)
    assert network.lipschitz_bound().item() >= expected


def test_plain_network_is_not_constrained():
    assert not isinstance(ZPlaneMLP((8,), 3, depth=1, width=8), Constrained)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": -3}, "depth must be at least 1, got -3"),
        ({"width": 127}, "width must be a multiple of bundle 2, got 127"),
        ({"width": 7, "bundle": 1, "mixing": "complex"}, "width must be even for complex mixing, got 7"),
        ({"num_outputs": 0}, "num_outputs must be at least 1, got 0"),
        ({"input_shape": ()}, r"input_shape must hold positive sizes, got \(\)"),
        ({"gain": -1.0}, r"gain must be positive, got -1\.0"),
    ],
)
def test_refuses_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ZPlaneMLP(**{"input_shape": (4,), "num_outputs": 2, "depth": 2, "width": 8, **arguments})


def test_refuses_bad_retraction():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        RetractedZPlaneMLP((4,), 2, depth=1, width=4, steps=0)
    with pytest.raises(ValueError, match=r"encoder_gain must be positive, got 0\.0"):
        CertifiedZPlaneMLP((4,), 2, depth=1, width=4, encoder_gain=0.0)
