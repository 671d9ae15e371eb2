"""One suite over the Z-Plane networks and all their baselines, then what each baseline is for."""

import copy
import math

import pytest
import torch
from torch import nn

import app.networks as networks
from app.networks import (
    HardTanhMLP,
    LinearMLP,
    ModReLUMLP,
    ReLUMLP,
    TailoredLeakyReLUMLP,
    TanhMLP,
    UnitaryMLP,
    UnitNormaliseMLP,
    ZPlaneMLP,
)
from app.protocols import Constrained, Diagnosable

FAMILY = [
    "CertifiedZPlaneMLP",
    "HardTanhMLP",
    "LayerNormReLUMLP",
    "LinearMLP",
    "ModReLUMLP",
    "ReLUMLP",
    "ResidualLayerNormReLUMLP",
    "RetractedZPlaneMLP",
    "ShallowReLUMLP",
    "TailoredLeakyReLUMLP",
    "TanhMLP",
    "UnitNormaliseMLP",
    "UnitaryMLP",
    "ZPlaneMLP",
]
every_network = pytest.mark.parametrize("name", FAMILY)


def build(name, **sizes):
    torch.manual_seed(0)
    return getattr(networks, name)(
        **{"input_shape": (1, 8, 8), "num_outputs": 10, "depth": 4, "width": 16, **sizes}
    )


def batch(shape=(1, 8, 8), count=32):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, *shape, generator=generator), torch.randint(10, (count,), generator=generator)


@every_network
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 4, 4), (5, 7), (9,)])
def test_every_parameter_gets_a_finite_gradient(name, shape):
    network = build(name, input_shape=shape)
    x, y = batch(shape)
    prediction = network(x)
    assert prediction.shape == (32, 10)
    nn.functional.cross_entropy(prediction, y).backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@every_network
def test_default_sizes_start_finite(name):
    torch.manual_seed(0)
    network = getattr(networks, name)(input_shape=(1, 8, 8), num_outputs=10)
    x, y = batch()
    loss = nn.functional.cross_entropy(network(x), y)
    loss.backward()
    assert loss.item() < 5
    assert all(p.grad.isfinite().all() for p in network.parameters())


@every_network
def test_blank_and_extreme_inputs_stay_finite(name):
    network = build(name)
    x = torch.cat((torch.zeros(2, 1, 8, 8), torch.full((2, 1, 8, 8), 1e6), torch.randn(2, 1, 8, 8)))
    prediction = network(x)
    prediction.sum().backward()
    assert prediction.isfinite().all()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@every_network
def test_deepcopy_and_state_dict(name):
    network, other = build(name), build(name)
    x, _ = batch()
    for p in other.parameters():
        nn.init.zeros_(p)
    assert torch.equal(copy.deepcopy(network)(x), network(x))
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), network(x))


@every_network
def test_compiles_whole(name):
    torch._dynamo.reset()  # the trunk is one code object: all its classes would count as recompilations
    network = build(name, depth=1)
    x, _ = batch()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), network(x))
    compiled(x).sum().backward()


@every_network
def test_layers_are_diagnosable(name):
    network = build(name)
    received = []
    for layer in network.layers:
        assert isinstance(layer, Diagnosable)
        layer.register_forward_pre_hook(lambda module, inputs: received.append((module, inputs)))
    network(batch()[0])
    assert len(received) == len(network.layers)
    for layer, inputs in received:
        assert all(value.isfinite().all() for value in layer.diagnostics(*inputs).values())
    assert len(received) == len(network.layers)


@every_network
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": -3}, "depth must be at least 1, got -3"),
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"num_outputs": 0}, "num_outputs must be at least 1, got 0"),
        ({"input_shape": (1, 0)}, r"input_shape must hold positive sizes, got \(1, 0\)"),
    ],
)
def test_refuses_bad_sizes(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(name, **arguments)


@pytest.mark.parametrize("cls", [UnitaryMLP, ModReLUMLP, UnitNormaliseMLP])
def test_phasor_networks_refuse_an_odd_width(cls):
    with pytest.raises(ValueError, match="width must be even, since a phasor has two components, got 15"):
        cls((4,), 2, depth=1, width=15)


@every_network
def test_learns_a_few_samples(name):
    network = build(name, width=32)
    x, y = batch(count=16)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if isinstance(network, Constrained):
            network.constrain()
        losses.append(loss.item())
    assert losses[-1] < 0.75 * losses[0]


@pytest.mark.parametrize(
    ("cls", "gain"),
    [(HardTanhMLP, 1), (TanhMLP, 1), (LinearMLP, 1), (ReLUMLP, math.sqrt(2)), (TailoredLeakyReLUMLP, 1)],
)
def test_start_is_orthogonal_with_its_gain(cls, gain):
    network = cls((1, 28, 28), 10, depth=2)
    for layer in network.layers:
        weight = layer.linear.weight
        torch.testing.assert_close(weight.T @ weight, gain**2 * torch.eye(128), rtol=0, atol=1e-4)
        assert not layer.linear.bias.any()


def test_hard_tanh_is_the_z_plane_of_bundle_one():
    baseline = HardTanhMLP((64,), 10, depth=3, width=32)
    ours = ZPlaneMLP((64,), 10, depth=3, width=32, bundle=1)
    ours.load_state_dict(baseline.state_dict())
    x = 3 * torch.randn(8, 64)
    torch.testing.assert_close(ours(x), baseline(x))


def test_unitary_network_stays_unitary_and_linear():
    network = build("UnitaryMLP")
    x, y = batch()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        network.constrain()
    for layer in network.layers:
        matrix = layer.linear.matrix()
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(16), rtol=0, atol=1e-4)
    zero = network(torch.zeros(1, 1, 8, 8))
    a, b = x[:1], x[1:2]
    torch.testing.assert_close(network(a + b) - zero, network(a) + network(b) - 2 * zero, rtol=0, atol=1e-4)


def test_tailored_start_reaches_its_cosine():
    # Orthogonal inputs meet at cosine .9 after the whole depth, which is what the slope was solved for.
    torch.manual_seed(0)
    network = TailoredLeakyReLUMLP((256,), 10, depth=30, width=256)
    x = torch.linalg.qr(torch.randn(256, 256))[0][:64] * 16
    states = []
    network.head.register_forward_pre_hook(lambda module, inputs: states.append(inputs[0]))
    network(x)
    units = nn.functional.normalize(states[0], dim=1)
    cosine = ((units @ units.T).sum() - 64) / (64 * 63)
    assert cosine.item() == pytest.approx(0.9, abs=0.03)
    assert 0.5 < states[0].square().mean().item() < 2


def test_tailored_input_of_mean_square_one_reaches_the_encoder():
    network = TailoredLeakyReLUMLP((49,), 10, depth=2, width=32)
    seen = []
    network.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    network(torch.zeros(2, 49))
    network(100 * torch.randn(2, 49))
    for x in seen:
        assert x.shape[1] == 50
        torch.testing.assert_close(x.square().mean(1), torch.ones(2))


def test_residual_layers_leave_the_shortcut_alone():
    network = build("ResidualLayerNormReLUMLP")
    for layer in network.layers:
        nn.init.zeros_(layer.linear.weight)
    x, _ = batch()
    torch.testing.assert_close(network(x), network.head(network.activation(network.encoder(x.flatten(1)))))
