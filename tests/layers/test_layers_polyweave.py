"""The published layers against their equations, as products of powers, and against PolyWeave itself."""

import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from app.layers.polyweave import ConvSigmaPi2d, SigmaPiLinear, TanhSigmaPiLinear

ROOT = Path(__file__).parents[2]
ARGUMENTS = st.fixed_dictionaries(
    {
        "pi_scale_init": st.sampled_from([-2.0, 0.0, 1.5]),
        "max_exponent": st.sampled_from([0.5, 2.0]),
        "max_log": st.sampled_from([6.0, 1.0]),
        "signed_products": st.booleans(),
        "center_product": st.booleans(),
        "eps": st.sampled_from([1e-8, 1e-3]),
    }
)


def shaken(layer: nn.Module, seed: int) -> nn.Module:
    """Exponents large enough that the clamp, the bound and the signs all matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    return layer


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 10 ** torch.randn(
        shape, generator=generator, dtype=torch.float64
    )
    return torch.where(torch.rand(shape, generator=generator) < 0.1, 0.0, x).to(dtype)


def powers(magnitude: Tensor, exponent: Tensor, layer: nn.Module, gain: float) -> float:
    """gain · ∏ mᵢ^wᵢ within e^±max_log, as a product and not as a sum of logarithms."""
    product = 1.0
    for m, w in zip(magnitude.tolist(), exponent.tolist(), strict=True):
        product *= m**w
    product = min(max(product, math.exp(-layer.max_log)), math.exp(layer.max_log))
    return gain * (product - 1 if layer.center_product else product)


def dense_by_hand(layer: SigmaPiLinear, x: Tensor) -> Tensor:
    """[N, in] → [N, out], one number at a time."""
    weight, bias = layer.sigma.weight, layer.sigma.bias
    w = layer.max_exponent * torch.tanh(layer.pi_weight_raw)
    out = torch.empty(len(x), layer.out_features, dtype=x.dtype)
    for n, row in enumerate(x):
        m = row.abs() + layer.eps
        m = m / math.exp(sum(math.log(v) for v in m.tolist()) / len(m))
        for o in range(layer.out_features):
            pi = powers(m, w[o], layer, math.exp(layer.pi_scale[o].item()))
            if layer.signed_products:
                vote = sum(
                    abs(a) * (-1 if v < 0 else 1) for a, v in zip(w[o].tolist(), row.tolist(), strict=True)
                )
                pi *= -1 if vote < 0 else 1
            out[n, o] = (weight[o] @ (row - row.mean()) + bias[o]).item() + pi
    return out


def conv_by_hand(layer: ConvSigmaPi2d, x: Tensor) -> Tensor:
    """Before batch normalisation, [1, C, H, W] with kernel 3 and padding 1, one number at a time."""
    (sample,) = x
    channels, height, width = sample.shape
    w = layer.max_exponent * torch.tanh(layer.pi_weight_raw)
    m = sample.abs() + layer.eps
    m = m / m.log().mean(dim=(1, 2), keepdim=True).exp()
    centred = sample - sample.mean(dim=(1, 2), keepdim=True)
    out = torch.empty(1, channels, height, width, dtype=x.dtype)
    for o in range(channels):
        for i in range(height):
            for j in range(width):
                sigma, product, vote = layer.sigma_conv.bias[o].item(), 1.0, 0.0
                for c in range(channels):
                    for di in range(3):
                        for dj in range(3):
                            p, q = i + di - 1, j + dj - 1
                            if 0 <= p < height and 0 <= q < width:
                                sigma += (layer.sigma_conv.weight[o, c, di, dj] * centred[c, p, q]).item()
                                product *= (m[c, p, q] ** w[o, c, di, dj]).item()
                                vote += abs(float(w[o, c, di, dj])) * (-1 if sample[c, p, q] < 0 else 1)
                pi = powers(
                    torch.tensor([product], dtype=x.dtype),
                    torch.tensor([1.0]),
                    layer,
                    layer.pi_scale[o].exp().item(),
                )
                out[0, o, i, j] = sigma + pi * (-1 if layer.signed_products and vote < 0 else 1)
    return out


FLAGS = [(a, b) for a in (False, True) for b in (False, True)]


def check_dense(kind: type[SigmaPiLinear], tolerance: float = 1e-10) -> None:
    for signed, centred in FLAGS:
        layer = shaken(kind(5, 3, signed_products=signed, center_product=centred, max_log=1.5).double(), 0)
        x = drawn((16, 5), 1)
        torch.testing.assert_close(layer(x), dense_by_hand(layer, x), rtol=tolerance, atol=tolerance)


def check_conv(kind: type[ConvSigmaPi2d], tolerance: float = 1e-10) -> None:
    for signed, centred in FLAGS:
        layer = shaken(kind(2, signed_products=signed, center_product=centred, max_log=1.5).double(), 0)
        x = drawn((1, 2, 4, 5), 1)
        sigma, pi = layer.branches(x)
        torch.testing.assert_close(sigma + pi, conv_by_hand(layer, x), rtol=tolerance, atol=tolerance)
        expected = torch.relu(layer.eval().bn(sigma + pi))
        torch.testing.assert_close(layer(x), expected, rtol=0, atol=0)


def test_dense_layer_computes_the_published_product() -> None:
    check_dense(SigmaPiLinear)


def test_conv_layer_computes_the_published_product() -> None:
    check_conv(ConvSigmaPi2d)


def test_tanh_form_computes_its_equation() -> None:
    layer = shaken(TanhSigmaPiLinear(4, 3).double(), 0)
    x = drawn((6, 4), 1)
    for n in range(6):
        for o in range(3):
            sigma = layer.sigma.weight[o] @ (x[n] - x[n].mean()) + layer.sigma.bias[o]
            signed = sum(
                float(layer.pi_weight[o, i]) * math.copysign(1, v) * math.log(abs(v) + 1e-8) if v else 0.0
                for i, v in enumerate(x[n].tolist())
            )
            expected = float(sigma) + math.exp(layer.pi_scale[o].item()) * math.tanh(signed)
            assert layer(x)[n, o].item() == pytest.approx(expected, rel=1e-10)
    assert set(layer.diagnostics(x)) == set(layer.METRICS)


# --- the four mutants that pass the published tests --------------------------------------------------


def tanh_for_exp(layer: nn.Module, sigma: Tensor, u: Tensor) -> Tensor:
    return torch.tanh(u)


def constant(layer: nn.Module, sigma: Tensor, u: Tensor) -> Tensor:
    return torch.ones_like(sigma)


def mutant(kind: type[nn.Module], product) -> type[nn.Module]:
    class Mutant(kind):  # type: ignore[misc,valid-type]
        def branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
            sigma, _ = super().branches(x)
            u = self.log_product(x).clamp(-self.max_log, self.max_log)
            return sigma, torch.exp(self.pi_scale) * product(self, sigma, u)

    return Mutant


def without_clamp(kind: type[nn.Module]) -> type[nn.Module]:
    class Mutant(kind):  # type: ignore[misc,valid-type]
        def branches(self, x: Tensor) -> tuple[Tensor, Tensor]:
            bound, self.max_log = self.max_log, math.inf
            try:
                return super().branches(x)
            finally:
                self.max_log = bound

    return Mutant


CHECKS = [(SigmaPiLinear, check_dense), (ConvSigmaPi2d, check_conv)]


@pytest.mark.parametrize(("kind", "check"), CHECKS)
@pytest.mark.parametrize("product", [tanh_for_exp, constant])
def test_wrong_products_are_caught(kind, check, product) -> None:
    with pytest.raises(AssertionError):
        check(mutant(kind, product))


@pytest.mark.parametrize(("kind", "check"), CHECKS)
def test_missing_clamp_is_caught(kind, check) -> None:
    with pytest.raises(AssertionError):
        check(without_clamp(kind))


@pytest.mark.parametrize(("kind", "check"), CHECKS)
def test_missing_logarithm_is_caught(kind, check, monkeypatch) -> None:
    monkeypatch.setattr("app.layers.polyweave.sigma_pi.log_magnitude", lambda x, eps: x.abs() + eps)
    with pytest.raises(AssertionError):
        check(kind)


# --- PolyWeave 0.2.0 itself ---------------------------------------------------------------------------


def peers():
    return pytest.importorskip("polyweave", reason="extra `peers`").layers


def close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    scale = theirs.abs().max().item() if theirs.numel() else 0.0
    torch.testing.assert_close(
        ours, theirs, rtol=tolerance, atol=tolerance * min(scale, 1e300), equal_nan=True
    )


def compare(ours: nn.Module, theirs: nn.Module, x: Tensor, tolerance: float, diagnostics: float) -> None:
    """Outputs, gradients and diagnostics of two layers with one state."""
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    read = [layer.branch_energy(x) for layer in (ours, theirs)]
    assert list(read[0]) == list(read[1])
    assert list(read[0].values()) == pytest.approx(list(read[1].values()), rel=diagnostics, nan_ok=True)
    assert ours.exponent_abs_mean() == pytest.approx(theirs.exponent_abs_mean(), rel=diagnostics)
    assert ours.pi_scale_mean() == pytest.approx(theirs.pi_scale_mean(), rel=diagnostics)
    gradients = []
    for layer in (ours, theirs):
        leaf = x.clone().requires_grad_()
        y = layer(leaf)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        gradients.append([y, *torch.autograd.grad((y * weights).sum(), [leaf, *layer.parameters()])])
    for mine, published in zip(*gradients, strict=True):
        close(mine, published, tolerance)
    for mine, published in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        close(mine, published, tolerance)  # batch normalisation's statistics moved alike


@settings(max_examples=25, deadline=None)
@given(
    arguments=ARGUMENTS,
    bias=st.booleans(),
    lead=st.lists(st.integers(1, 4), max_size=2),
    sizes=st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(1, 7))),
    single=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_dense_layer_equals_polyweave(arguments, bias, lead, sizes, single, seed) -> None:
    theirs = peers().SigmaPiLinear(*sizes, bias=bias, **arguments)
    ours = SigmaPiLinear(*sizes, bias=bias, **arguments)
    dtype = torch.float32 if single else torch.float64
    tolerance = 1e-5 if single else 1e-10
    x = drawn((*lead, sizes[0]), seed, dtype)
    compare(ours.to(dtype), shaken(theirs, seed).to(dtype), x, tolerance, tolerance)
    assert repr(ours) == repr(theirs)


@settings(max_examples=20, deadline=None)
@given(
    arguments=ARGUMENTS,
    kernel=st.sampled_from([(1, 0), (3, 1), (3, 0), (5, 2)]),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(5, 7), st.integers(5, 7)),
    training=st.booleans(),
    single=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_conv_layer_equals_polyweave(arguments, kernel, shape, training, single, seed) -> None:
    theirs = peers().ConvSigmaPi2d(shape[1], *kernel, **arguments).train(training)
    ours = ConvSigmaPi2d(shape[1], *kernel, **arguments).train(training)
    dtype = torch.float32 if single else torch.float64
    tolerance = 1e-5 if single else 1e-10
    x = drawn(shape, seed, dtype)
    compare(ours.to(dtype), shaken(theirs, seed).to(dtype), x, tolerance, tolerance)
    assert repr(ours) == repr(theirs)


def test_signatures_are_the_published_ones() -> None:
    import inspect

    layers = peers()
    for ours, theirs in ((SigmaPiLinear, layers.SigmaPiLinear), (ConvSigmaPi2d, layers.ConvSigmaPi2d)):
        mine, published = (inspect.signature(kind.__init__).parameters for kind in (ours, theirs))
        assert list(mine) == list(published)
        for name, parameter in published.items():
            assert (mine[name].default, mine[name].kind) == (parameter.default, parameter.kind)


@pytest.mark.skipif(
    "POLYWEAVE_TESTS" not in os.environ, reason="set POLYWEAVE_TESTS to the sdist's tests folder"
)
def test_published_layer_tests_pass_against_ours(tmp_path: Path) -> None:
    """Their wheel carries no tests, their source distribution does."""
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(
            """
            import sys, types
            import app.layers.polyweave as stand_in
            package = types.ModuleType("polyweave")
            package.layers = stand_in
            sys.modules["polyweave"], sys.modules["polyweave.layers"] = package, stand_in
            """
        )
    )
    for name in ("test_layers.py", "test_layer_diagnostics.py"):
        (tmp_path / name).write_text((Path(os.environ["POLYWEAVE_TESTS"]) / name).read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "21 passed" in done.stdout


# --- what the published layer is known for -------------------------------------------------------------


def test_published_readouts_are_fooled_and_the_others_are_not() -> None:
    torch.manual_seed(0)
    layer, x = SigmaPiLinear(64, 32), torch.randn(256, 64)
    before = layer(x)
    with torch.no_grad():
        layer.pi_weight_raw.copy_(torch.atanh((layer.pi_weight() + 0.3).clamp(max=0.499) / 0.5))
    torch.testing.assert_close(layer(x), before, rtol=1e-3, atol=1e-4)  # centring undoes a common exponent
    assert layer.exponent_abs_mean() > 0.25

    for raw in (0.0, 0.4):
        with torch.no_grad():
            layer.pi_weight_raw.fill_(raw)
        read = layer.diagnostics(x)
        assert read["pi_share"] > 0.15
        for name in ("exponent_centred_abs_mean", "ac_share", "nonlinear_share", "saturation_fraction"):
            assert read[name] <= 1e-6, name


def test_conv_readouts_at_zero_exponents() -> None:
    torch.manual_seed(0)
    block, x = ConvSigmaPi2d(8), torch.randn(4, 8, 12, 12)
    with torch.no_grad():
        block.pi_weight_raw.zero_()
    block.train()
    state = {name: value.clone() for name, value in block.state_dict().items()}
    read = block.diagnostics(x)
    assert set(read) == set(block.METRICS)
    assert read["pi_effect_postbn"] > 0.1
    for name in ("ac_share", "nonlinear_share", "saturation_fraction", "pi_effect_reestimated"):
        assert read[name] <= 1e-6, name
    assert block.training
    assert block.bn.training
    for name, value in block.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_tensor_readouts_equal_the_published_numbers() -> None:
    torch.manual_seed(0)
    block, x = shaken(ConvSigmaPi2d(3), 0), torch.randn(4, 3, 6, 6)
    read, published = block.diagnostics(x), block.branch_energy(x)
    for name, value in published.items():
        assert read[name].item() == pytest.approx(value, rel=1e-5)
    assert read["exponent_abs_mean"].item() == pytest.approx(block.exponent_abs_mean(), rel=1e-6)
    assert read["pi_scale_mean"].item() == pytest.approx(block.pi_scale_mean(), rel=1e-6)


def test_undefined_readouts() -> None:
    """Published: 0 for no data and for NaN. Ours: NaN."""
    layer = SigmaPiLinear(4)
    nan = torch.full((8, 4), math.nan)
    assert layer.branch_energy(nan)["pi_share"] == 0.0
    for x in (nan, torch.empty(0, 4)):
        read = layer.diagnostics(x)
        for name in ("pi_share", "ac_share", "nonlinear_share"):
            assert read[name].isnan(), name
