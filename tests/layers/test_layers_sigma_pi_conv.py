"""The repaired convolution and its block."""

import copy
import inspect
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from app.layers.batch_norm import block_effects
from app.layers.patches import window_rows
from app.layers.sigma_pi import SigmaPiConv2d, SigmaPiConvBlock2d
from app.layers.sigma_pi_base import PACE

NEW = ("exponent_centred_abs_mean", "ac_share", "nonlinear_share", "saturation_fraction")


def arguments() -> st.SearchStrategy[dict]:
    return st.fixed_dictionaries(
        {
            "kernel_size": st.sampled_from([1, 2, 3, (3, 2)]),
            "stride": st.sampled_from([1, 2, (1, 2)]),
            "padding": st.sampled_from([0, 1, (1, 0), "same", "valid"]),
            "dilation": st.sampled_from([1, 2]),
            "groups": st.sampled_from([1, 2]),
            "bias": st.booleans(),
            "padding_mode": st.sampled_from(["zeros", "reflect", "replicate", "circular"]),
        }
    ).filter(lambda a: a["padding"] != "same" or a["stride"] == 1)


def product_by_hand(conv: SigmaPiConv2d, x: Tensor) -> Tensor:
    """exp(s)(∏ m^w − 1), window by window; a pixel padded with zeros has m = 1."""
    magnitude = torch.hypot(x, torch.tensor(conv.delta, dtype=x.dtype))
    (kh, kw), (sh, sw), (dh, dw) = conv.kernel_size, conv.stride, conv.dilation
    if isinstance(conv.padding, str):
        totals = [d * (k - 1) if conv.padding == "same" else 0 for d, k in ((dh, kh), (dw, kw))]
        (top, bottom), (left, right) = ((t // 2, t - t // 2) for t in totals)
    else:
        top = bottom = conv.padding[0]
        left = right = conv.padding[1]
    pad = (left, right, top, bottom)
    if conv.padding_mode == "zeros":
        magnitude = F.pad(magnitude, pad, value=1.0)
    else:
        magnitude = F.pad(magnitude, pad, mode=conv.padding_mode)
    samples, channels, height, width = magnitude.shape
    rows = range(0, height - dh * (kh - 1), sh)
    columns = range(0, width - dw * (kw - 1), sw)
    w, inputs = conv.exponents(), channels // conv.groups
    out = torch.empty(samples, conv.out_channels, len(rows), len(columns), dtype=x.dtype)
    for o in range(conv.out_channels):
        first = o // (conv.out_channels // conv.groups) * inputs
        for a, i in enumerate(rows):
            for b, j in enumerate(columns):
                window = magnitude[:, first : first + inputs, i::dh, j::dw][:, :, :kh, :kw]
                product = (window ** w[o]).flatten(1).prod(dim=1)
                out[:, o, a, b] = conv.pi_scale[o, 0, 0].exp() * (product - 1)
    return out


@settings(max_examples=30, deadline=None)
@given(keywords=arguments(), rank=st.integers(0, 2), seed=st.integers(0, 999))
def test_every_argument_of_conv2d(keywords: dict, rank: int, seed: int) -> None:
    torch.manual_seed(seed)
    conv = SigmaPiConv2d(4, 6, **keywords, dtype=torch.float64, bilinear_rank=rank)
    plain = nn.Conv2d(4, 6, **keywords, dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in conv.state_dict().items() if k in ("weight", "bias")})
    with torch.no_grad():
        conv.pi_weight_raw.normal_(std=0.2 / PACE)
        if rank:
            conv.bilinear_mix.normal_()
    x = torch.randn(2, 4, 6, 7, dtype=torch.float64)
    sigma, product, bilinear = conv.branches(x)
    torch.testing.assert_close(sigma, plain(x))
    torch.testing.assert_close(product, product_by_hand(conv, x))
    assert conv(x).shape == plain(x).shape
    if rank:
        factors = []
        for weight in (conv.bilinear_left, conv.bilinear_right):
            factor = nn.Conv2d(4, conv.groups * rank, **{**keywords, "bias": False}, dtype=torch.float64)
            factor.weight.data.copy_(weight)
            factors.append(factor(x))
        pairs = (factors[0] * factors[1]).unflatten(1, (conv.groups, rank))
        mix = conv.bilinear_mix[..., 0, 0].unflatten(0, (conv.groups, -1))
        expected = torch.einsum("ngrhw,gor->ngohw", pairs, mix).flatten(1, 2)
        torch.testing.assert_close(bilinear, expected)
    read = conv.diagnostics(x)
    assert set(read) == set(conv.METRICS) - (set() if rank else {"product_ac_share", "bilinear_ac_share"})


def test_signature_starts_with_that_of_conv2d() -> None:
    ours = list(inspect.signature(SigmaPiConv2d).parameters.values())
    theirs = list(inspect.signature(nn.Conv2d).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [(p.name, p.default) for p in theirs]
    assert all(p.kind == p.KEYWORD_ONLY for p in ours[len(theirs) :])


@settings(max_examples=20, deadline=None)
@given(keywords=arguments())
def test_windows_are_those_of_the_convolution(keywords: dict) -> None:
    conv = nn.Conv2d(3, 5, **{**keywords, "groups": 1}, dtype=torch.float64)
    x = torch.randn(3, 3, 6, 7, dtype=torch.float64)
    windows, at = window_rows(conv, x, [conv(x)], limit=17)
    assert len(windows) <= 17
    expected = windows @ conv.weight.flatten(1).T + (0 if conv.bias is None else conv.bias)
    torch.testing.assert_close(at, expected)


def test_local() -> None:
    """The published block moves distant outputs with one corner pixel."""
    torch.manual_seed(0)
    conv = SigmaPiConv2d(2, 3, 3, padding=1, bilinear_rank=2)
    x = torch.rand(1, 2, 9, 9)
    moved = x.clone()
    moved[0, 0, 0, 0] += 5
    changed = ((conv(x) - conv(moved)).abs() > 1e-6).any(dim=1)[0]
    assert changed[:2, :2].any()
    changed[:2, :2] = False
    assert not changed.any()


def test_centred_layer_ignores_brightness() -> None:
    torch.manual_seed(0)
    conv = SigmaPiConv2d(2, 3, 3, center=True, dtype=torch.float64, delta=1e-9)
    conv.pi_weight_raw.data.normal_(std=1 / PACE)
    x = torch.rand(2, 2, 6, 6, dtype=torch.float64) + 0.1
    torch.testing.assert_close(conv.branches(7 * x).product, conv.branches(x).product)


@pytest.mark.parametrize("kind", ["gaussian", "relu", "sparse"])
def test_starts_subdominant(kind: str) -> None:
    torch.manual_seed(0)
    for channels, kernel in ((1, 3), (7, 3), (32, 3), (87, 3), (455, 3), (64, 1), (41, 5)):  # fan-in 9 … 4095
        x = torch.randn(2, channels, 9, 9)
        x = x if kind == "gaussian" else F.relu(x - (0.8416 if kind == "sparse" else 0.0))
        for padding in (0, kernel // 2):
            read = SigmaPiConv2d(channels, 16, kernel, padding=padding, bilinear_rank=2).diagnostics(x)
            assert 0 < read["pi_share"] <= 0.25, (channels, kernel, padding, read["pi_share"])
            assert read["saturation_fraction"] == 0


def test_readouts_are_zero_without_a_product() -> None:
    torch.manual_seed(0)
    x = torch.rand(6, 3, 8, 8)
    for center, raw in ((False, 0.0), (True, 0.0), (True, 1 / PACE)):
        block = SigmaPiConvBlock2d(SigmaPiConv2d(3, 4, 3, center=center))
        with torch.no_grad():
            block.conv.pi_weight_raw.fill_(raw)
        read = {**block.conv.diagnostics(x), **block.diagnostics(x)}
        for name in (*NEW, "pi_effect_reestimated"):
            assert read[name] <= 1e-6, name


def test_block_readouts() -> None:
    torch.manual_seed(0)
    block = SigmaPiConvBlock2d(SigmaPiConv2d(3, 4, 3, padding=1, bilinear_rank=1))
    with torch.no_grad():
        block.conv.pi_weight_raw.normal_(std=1 / PACE)
        block.conv.pi_scale.fill_(0.5)
        block.bn.running_mean.normal_()
        block.bn.running_var.uniform_(0.5, 2)
    x = torch.randn(6, 3, 8, 8)
    state, stream = copy.deepcopy(block.state_dict()), torch.get_rng_state()
    read = block.diagnostics(x)
    assert set(read) == set(block.METRICS)
    assert torch.equal(stream, torch.get_rng_state())
    assert block.training
    assert block.bn.training
    for name, value in block.state_dict().items():
        assert torch.equal(value, state[name]), name

    sigma, product, bilinear = block.conv.branches(x)
    for name, training in (("pi_effect_postbn", False), ("pi_effect_reestimated", True)):
        on, off = (
            F.relu(copy.deepcopy(block.bn).train(training)(y)) for y in (sigma + product + bilinear, sigma)
        )
        expected = ((on - off).square().mean() / on.square().mean()).sqrt()
        torch.testing.assert_close(read[name], expected.detach())
    torch.testing.assert_close(block.eval()(x), F.relu(block.bn(block.conv(x))))


def test_a_constant_product_fools_the_published_effect_alone() -> None:
    sigma = torch.randn(8, 4, 5, 5)
    read = block_effects(nn.BatchNorm2d(4), sigma, torch.full_like(sigma, 0.7))
    assert read["pi_effect_postbn"] > 0.2
    assert read["pi_effect_reestimated"] <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_after_relu_is_finite(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    conv = SigmaPiConv2d(8, 8, 3, padding=1, bilinear_rank=2)
    leaf = F.relu(torch.randn(2, 8, 6, 6) - 0.8).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        y = conv(leaf)
    assert y.dtype == dtype
    gradients = torch.autograd.grad(y.float().square().sum(), [leaf, *conv.parameters()])
    assert all(t.isfinite().all() for t in (y, *gradients))


@pytest.mark.parametrize("value", [0.0, 1e-15, 1e15])
def test_extremes_are_finite(value: float) -> None:
    torch.manual_seed(0)
    conv = SigmaPiConv2d(4, 4, 3, padding=1, bilinear_rank=2)
    leaf = (value * torch.randn(2, 4, 5, 5)).requires_grad_()
    y = conv(leaf)
    gradients = torch.autograd.grad(y.sum(), [leaf, *conv.parameters()])
    assert all(t.isfinite().all() for t in (y, *gradients))


def test_meta_reset_channels_last_compile() -> None:
    conv = SigmaPiConv2d(3, 4, 3, padding="same", bilinear_rank=1, device="meta")
    assert conv(torch.empty(2, 3, 5, 5, device="meta")).shape == (2, 4, 5, 5)
    conv = conv.to_empty(device="cpu")
    conv.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in conv.parameters())
    x = torch.randn(2, 3, 5, 5)
    expected = conv(x)
    conv = conv.to(memory_format=torch.channels_last)
    torch.testing.assert_close(conv(x.contiguous(memory_format=torch.channels_last)), expected)
    block = SigmaPiConvBlock2d(conv)
    compiled = torch.compile(copy.deepcopy(block), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), block(x))


def test_infinite_input_is_reported_and_otherwise_as_in_torch() -> None:
    conv = SigmaPiConv2d(2, 3, 3)
    block, plain = SigmaPiConvBlock2d(conv), nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    x = torch.randn(2, 2, 6, 6)
    x[0, 0, 0, 0] = math.inf
    assert conv.diagnostics(x)["nonfinite_inputs"].item() == pytest.approx(1 / x.numel(), rel=1e-3)
    assert conv.diagnostics(x)["nonlinear_share"].isnan()
    block(x)
    plain(x)
    assert block.bn.running_var.isnan().tolist() == plain[1].running_var.isnan().tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"in_channels": 0}, "in_channels"),
        ({"groups": 0}, "groups"),
        ({"bilinear_rank": -1}, "bilinear_rank"),
    ],
)
def test_arguments_are_checked(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"{message} must be at least"):
        SigmaPiConv2d(**{"in_channels": 2, "out_channels": 2, "kernel_size": 3, **wrong})


def test_another_configuration_does_not_load() -> None:
    with pytest.raises(ValueError, match="max_exponent"):
        SigmaPiConv2d(2, 2, 3, max_exponent=1.0).load_state_dict(SigmaPiConv2d(2, 2, 3).state_dict())
