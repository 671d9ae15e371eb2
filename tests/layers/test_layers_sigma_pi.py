"""The dense repaired layer: each fault of the published one, with the right value."""

import copy
import inspect
import math

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from app.layers.sigma_pi import SigmaPiLinear
from app.layers.sigma_pi_base import PACE
from app.protocols import Diagnosable

NEW = ("exponent_centred_abs_mean", "ac_share", "nonlinear_share", "saturation_fraction")


def with_exponents(layer: SigmaPiLinear, exponents: Tensor, gain: float = 1.0) -> SigmaPiLinear:
    """Sets the powers; σ becomes the constant that a product minus one lacks."""
    with torch.no_grad():
        unit = math.sqrt(layer.in_features) / PACE
        layer.pi_weight_raw.copy_(unit * torch.atanh(exponents / layer.max_exponent))
        layer.pi_scale.fill_(math.log(gain))
        layer.weight.zero_()
        layer.bias.fill_(gain)
    return layer


def r2(prediction: Tensor, y: Tensor) -> float:
    return (1 - (prediction - y).square().mean() / y.var(correction=0)).item()


def positive(rows: int = 2000) -> Tensor:
    return 0.5 + 1.5 * torch.rand(rows, 4, generator=torch.Generator().manual_seed(0))


# --- 1: what it can represent -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exponents", "target"),
    [
        ([1, 1, 0, 0], lambda x: x[:, 0] * x[:, 1]),
        ([1, 1, 1, 0], lambda x: x[:, 0] * x[:, 1] * x[:, 2]),
        ([1, -1, 0, 0], lambda x: x[:, 0] / x[:, 1]),
        ([0.5, -0.5, 0, 0], lambda x: (x[:, 0] / x[:, 1]).sqrt()),
    ],
)
def test_products_are_products(exponents: list[float], target) -> None:
    layer = with_exponents(SigmaPiLinear(4, 1), torch.tensor([exponents], dtype=torch.float32))
    x = positive()
    # δ² = 1e-4 against x² ≥ .25: each power is right to 2e-4.
    torch.testing.assert_close(layer(x)[:, 0], target(x), rtol=1e-3, atol=1e-3)


def test_the_mean_is_affine_and_needs_no_product() -> None:
    layer = SigmaPiLinear(4, 1)
    with torch.no_grad():
        layer.weight.fill_(0.25)
        layer.bias.zero_()
        layer.pi_weight_raw.zero_()
    torch.testing.assert_close(layer(positive()), positive().mean(dim=1, keepdim=True))


def test_only_a_centred_layer_is_limited_to_ratios() -> None:
    x, equal = positive(), torch.full((1, 4), 0.3)
    centred = with_exponents(SigmaPiLinear(4, 1, center=True), equal)
    torch.testing.assert_close(centred(x), torch.ones(len(x), 1))
    free = with_exponents(SigmaPiLinear(4, 1), equal)
    torch.testing.assert_close(free(x)[:, 0], x.prod(dim=1) ** 0.3, rtol=1e-3, atol=0)


# --- 2: signs ---------------------------------------------------------------------------------------


def test_bilinear_branch_multiplies_signs() -> None:
    layer = SigmaPiLinear(4, 1, bilinear_rank=2)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bilinear_left[0, 0] = layer.bilinear_right[0, 1] = layer.bilinear_mix[0, 0] = 1
    x = torch.tensor([[-1.0, -1, 5, 7], [-2, 3, 0, 0], [0, 9, 1, 1]])
    assert layer(x)[:, 0].tolist() == [1, -6, 0]


# --- 3: the start -----------------------------------------------------------------------------------


def inputs(kind: str, rows: int, features: int) -> Tensor:
    x = torch.randn(rows, features)
    if kind == "gaussian":
        return x
    threshold = {"relu": 0.0, "sparse": 0.8416}[kind]  # the second leaves 80 % zeros
    return F.relu(x - threshold)


@pytest.mark.parametrize("kind", ["gaussian", "relu", "sparse"])
@pytest.mark.parametrize("rank", [0, 8])
def test_starts_subdominant_whatever_the_fan_in(kind: str, rank: int) -> None:
    torch.manual_seed(0)
    for features in (1, 2, 3, 4, 8, 16, 64, 256, 784, 2048, 4096):
        layer = SigmaPiLinear(features, 64, bilinear_rank=rank)
        read = layer.diagnostics(inputs(kind, 128, features))
        assert 0 < read["pi_share"] <= 0.25, (features, read["pi_share"])
        assert read["saturation_fraction"] == 0


def test_exponents_scale_with_the_fan_in() -> None:
    torch.manual_seed(0)
    for features in (64, 784, 4096):
        deviation = SigmaPiLinear(features, 64).exponents().std().item()
        assert deviation == pytest.approx(0.05 / math.sqrt(features), rel=0.05)


def test_no_dead_clamp() -> None:
    """At twice the bound the published clamp has slope 0."""
    layer = with_exponents(SigmaPiLinear(1, 1), torch.tensor([[1.9]]))
    x = torch.tensor([[math.exp(2 * layer.max_log / 1.9)]])
    (gradient,) = torch.autograd.grad(layer(x).sum(), layer.pi_weight_raw)
    assert gradient.abs().item() > 1
    assert layer.diagnostics(x.expand(4, 1))["saturation_fraction"] == 1


# --- 4: read-outs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("rows", [7, 300])
def test_readouts_are_zero_without_exponents(rank: int, rows: int) -> None:
    layer = SigmaPiLinear(16, 5, bilinear_rank=rank)
    with torch.no_grad():
        layer.pi_weight_raw.zero_()
    read = layer.diagnostics(torch.randn(rows, 16))
    assert set(read) <= set(layer.METRICS)
    for name in (*NEW, "pi_share"):
        assert read[name] <= 1e-6, name
    assert read["pi_scale_mean"] == pytest.approx(math.exp(-2))  # the published gate still claims .135


def test_common_exponents_are_nothing_when_centred_and_a_product_when_not() -> None:
    x = torch.rand(300, 16) + 0.5
    centred, free = SigmaPiLinear(16, 5, center=True), SigmaPiLinear(16, 5)
    for layer in (centred, free):
        with torch.no_grad():
            layer.pi_weight_raw.fill_(0.6 / PACE)
    read = centred.diagnostics(x)
    assert read["exponent_abs_mean"] > 0.29  # published formula, published blindness
    for name in NEW:
        assert read[name] <= 1e-6, name
    assert free.diagnostics(x)["ac_share"] > 0.2


def test_readouts_of_a_true_product() -> None:
    x = positive(50_000)
    layer = with_exponents(SigmaPiLinear(4, 1), torch.tensor([[1.0, 1, 0, 0]]))
    read = layer.diagnostics(x)
    assert read["nonlinear_share"] == pytest.approx(0.238, abs=0.02)
    assert read["ac_share"] == pytest.approx(1.0)
    assert read["exponent_centred_abs_mean"] == pytest.approx(0.5, abs=1e-6)
    assert read["saturation_fraction"] == 0


def test_readouts_follow_their_formulas() -> None:
    torch.manual_seed(0)
    layer = SigmaPiLinear(6, 3, bilinear_rank=2).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
        layer.pi_weight_raw.div_(PACE)
    x = torch.randn(400, 6, dtype=torch.float64)
    sigma, product, bilinear = layer.branches(x)
    m, w, read = product + bilinear, layer.exponents(), layer.diagnostics(x)

    def rms(z: Tensor) -> float:
        return math.sqrt((z * z).mean().item())

    def ac(z: Tensor) -> float:
        return rms(z - z.mean(dim=0))

    design = torch.cat([x, torch.ones(400, 1, dtype=x.dtype)], dim=1)
    residual = m - design @ torch.linalg.lstsq(design, m).solution
    expected = {
        "sigma_rms": rms(sigma),
        "pi_rms": rms(m),
        "pi_share": rms(m) / (rms(m) + rms(sigma)),
        "exponent_abs_mean": w.abs().mean().item(),
        "pi_scale_mean": layer.pi_scale.exp().mean().item(),
        "exponent_centred_abs_mean": (w - w.mean(dim=1, keepdim=True)).abs().mean().item(),
        "ac_share": ac(m) / (ac(m) + ac(sigma)),
        "nonlinear_share": rms(residual) * math.sqrt(400 / 393) / ac(sigma + m),
        "saturation_fraction": (layer.log_product(x).abs() > 6).double().mean().item(),
        "nonfinite_inputs": 0.0,
        "product_ac_share": ac(product) / (ac(sigma) + ac(product) + ac(bilinear)),
        "bilinear_ac_share": ac(bilinear) / (ac(sigma) + ac(product) + ac(bilinear)),
    }
    assert set(read) == set(layer.METRICS) == {*expected, "exponents"}
    assert torch.equal(read["exponents"], layer.bounded_exponents().flatten())
    for name, value in expected.items():
        assert read[name].item() == pytest.approx(value, rel=1e-6), name


def test_readouts_touch_nothing() -> None:
    layer = SigmaPiLinear(4, 3, bilinear_rank=2).train()
    assert isinstance(layer, Diagnosable)
    state, stream = copy.deepcopy(layer.state_dict()), torch.get_rng_state()
    read = layer.diagnostics(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(stream, torch.get_rng_state())
    assert layer.training
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name])
    assert all(value.dim() <= 1 and not value.requires_grad for value in read.values())


def test_nan_in_nan_out() -> None:
    layer = SigmaPiLinear(4, 3)
    x = torch.randn(20, 4)
    x[0, 0] = math.nan
    for broken in (x, torch.empty(0, 4)):
        read = layer.diagnostics(broken)
        for name in ("pi_share", "ac_share", "nonlinear_share"):
            assert read[name].isnan(), name
    assert layer.diagnostics(x)["nonfinite_inputs"].item() == pytest.approx(1 / 80)


def test_gate_and_exponents_are_not_decayed() -> None:
    assert {"pi_weight_raw", "pi_scale"} <= SigmaPiLinear.no_decay


# --- 5: numbers -------------------------------------------------------------------------------------

EXTREMES = [0.0, 1e-15, 1e-9, 1.0, 1e15]


@pytest.mark.parametrize("rank", [0, 4])
def test_extremes_are_finite(rank: int) -> None:
    torch.manual_seed(0)
    values = EXTREMES if rank else [*EXTREMES, 1e30]
    layer = SigmaPiLinear(16, 8, bilinear_rank=rank)
    for value in values:
        for x in (torch.full((4, 16), value), value * torch.randn(4, 16)):
            leaf = x.requires_grad_()
            y = layer(leaf)
            gradients = torch.autograd.grad(y.sum(), [leaf, *layer.parameters()])
            assert all(t.isfinite().all() for t in (y, *gradients)), value


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("autocast", [True, False])
def test_half_precision_is_finite(dtype: torch.dtype, rank: int, autocast: bool) -> None:
    torch.manual_seed(0)
    layer = SigmaPiLinear(64, 32, bilinear_rank=rank)
    with torch.no_grad():
        layer.pi_weight_raw.normal_(std=1 / PACE)  # far from the start: products reach the bound
        if rank:
            layer.bilinear_mix.normal_(std=1e-3)
    layer = layer if autocast else layer.to(dtype)
    # A float16 gradient of a bilinear term at 300 is 300² times the rows: not representable.
    largest = 300.0 if autocast or not rank else 10.0
    for scale in (0.0, 1e-7, 1.0, largest):
        x = (scale * F.relu(torch.randn(16, 64))).to(torch.float32 if autocast else dtype)
        leaf = x.requires_grad_()
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            y = layer(leaf)
        assert y.dtype == dtype  # as nn.Linear's
        gradients = torch.autograd.grad(y.float().sum(), [leaf, *layer.parameters()])
        assert all(t.isfinite().all() for t in (y, *gradients)), scale


def test_autocast_keeps_the_logarithms_in_float32() -> None:
    layer, x = SigmaPiLinear(64, 32), torch.rand(8, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(
            layer.log_product(x), layer.log_product(x.double().float()), rtol=0, atol=0
        )
        assert layer.log_product(x).dtype == torch.float32


def test_input_gradient_is_of_a_linear_layer_s_size() -> None:
    """The published layer: 1e5 against 138, after a ReLU."""
    torch.manual_seed(0)
    layer, plain = SigmaPiLinear(784, 256), nn.Linear(784, 256)
    x = F.relu(torch.randn(64, 784))
    x[0, 0] = 1e-9
    norms = []
    for module in (layer, plain):
        leaf = x.clone().requires_grad_()
        norms.append(torch.autograd.grad(module(leaf).square().sum(), leaf)[0].norm().item())
    assert norms[0] < 1.5 * norms[1]


def test_gradcheck() -> None:
    torch.manual_seed(0)
    for center in (False, True):
        layer = SigmaPiLinear(3, 2, bilinear_rank=2, center=center).double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_()
            layer.pi_weight_raw.div_(PACE)
        names = [name for name, _ in layer.named_parameters()]

        def call(x: Tensor, *values: Tensor, layer=layer, names=names) -> Tensor:
            return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

        x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(call, (x, *layer.parameters()))
        assert torch.autograd.gradgradcheck(call, (x, *layer.parameters()))


# --- 6: a drop-in -----------------------------------------------------------------------------------


def test_signature_starts_with_that_of_linear() -> None:
    ours = list(inspect.signature(SigmaPiLinear).parameters.values())
    theirs = list(inspect.signature(nn.Linear).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]
    assert all(p.kind == p.KEYWORD_ONLY for p in ours[len(theirs) :])
    defaults = {p.name: p.default for p in ours}
    assert (defaults["center"], defaults["max_exponent"], defaults["bilinear_rank"]) == (False, 2.0, 0)


@settings(max_examples=30, deadline=None)
@given(
    lead=st.lists(st.integers(0, 3), max_size=3),
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    bias=st.booleans(),
    rank=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_without_exponents_it_is_a_linear_layer(lead, sizes, bias, rank, dtype) -> None:
    layer = SigmaPiLinear(*sizes, bias, "cpu", dtype, bilinear_rank=rank)
    plain = nn.Linear(*sizes, bias, "cpu", dtype)
    plain.load_state_dict(
        {name: value for name, value in layer.state_dict().items() if name in ("weight", "bias")}
    )
    with torch.no_grad():
        layer.pi_weight_raw.zero_()
    x = torch.randn(*lead, sizes[0], dtype=dtype)
    assert torch.equal(layer(x), plain(x))


def test_meta_device_and_reset() -> None:
    layer = SigmaPiLinear(6, 4, device="meta", bilinear_rank=2)
    assert layer(torch.empty(3, 6, device="meta")).shape == (3, 4)
    layer = layer.to_empty(device="cpu")
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.manual_seed(3)
    fresh = SigmaPiLinear(6, 4, bilinear_rank=2)
    assert layer.pi_weight_raw.std() < 0.5
    assert torch.equal(layer.weight, fresh.weight)
    assert torch.equal(layer.bilinear_left.abs() <= 1 / math.sqrt(6), torch.ones(2, 6, dtype=torch.bool))


def test_compiles_without_a_break() -> None:
    torch.manual_seed(0)
    layer, x = SigmaPiLinear(6, 4, bilinear_rank=2), torch.randn(5, 6)
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compiled(x), layer(x), rtol=1e-2, atol=1e-2)
    grads = [
        torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
        for module in (compiled, layer)
    ]
    for ours, eager in zip(*grads, strict=True):
        torch.testing.assert_close(ours, eager)


# --- 7: arguments, state, every parameter in use ----------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features must be at least 1, got 0"),
        ({"out_features": -2}, "out_features must be at least 1, got -2"),
        ({"bilinear_rank": -1}, "bilinear_rank must be at least 0, got -1"),
        ({"max_exponent": 0.0}, "max_exponent must be a positive number, got 0.0"),
        ({"max_log": math.inf}, "max_log must be a positive number, got inf"),
        ({"delta": -1e-3}, "delta must be a positive number, got -0.001"),
        ({"pi_scale_init": math.nan}, "pi_scale_init must be finite, got nan"),
    ],
)
def test_arguments_are_checked(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SigmaPiLinear(**{"in_features": 3, "out_features": 2, **arguments})


def test_state_round_trip_through_safetensors(tmp_path) -> None:
    layer, other = SigmaPiLinear(4, 3, bilinear_rank=2), SigmaPiLinear(4, 3, bilinear_rank=2)
    safetensors.torch.save_file(layer.state_dict(), tmp_path / "layer.safetensors")
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "layer.safetensors"))
    x = torch.randn(5, 4)
    assert torch.equal(layer(x), other(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    other.half().load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))


@pytest.mark.parametrize(
    "argument", [{"max_exponent": 1.0}, {"max_log": 6.0}, {"center": True}, {"delta": 1e-3}]
)
def test_another_configuration_does_not_load(argument) -> None:
    with pytest.raises(ValueError, match=next(iter(argument))):
        SigmaPiLinear(4, 3, **argument).load_state_dict(SigmaPiLinear(4, 3).state_dict())
    with pytest.raises(RuntimeError, match="bilinear_mix"):
        SigmaPiLinear(4, 3, bilinear_rank=1).load_state_dict(SigmaPiLinear(4, 3).state_dict())


def test_every_parameter_takes_part() -> None:
    layer = SigmaPiLinear(4, 3, bilinear_rank=2)
    layer(torch.randn(8, 4)).square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    assert layer.pi_weight_raw.grad.abs().sum() > 0
    assert layer.bilinear_mix.grad.abs().sum() > 0
