import math

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader

from app.callbacks import Diagnostics, read_diagnostics
from app.callbacks.probe import activation_gradient_ratio, capture, evenly, layer_paths


def events(folder):
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "histograms": 0})
    accumulator.Reload()
    return accumulator


@pytest.fixture
def board(tmp_path):
    return TensorBoardLogger(tmp_path, name="run", version="v")


def test_values_are_those_of_the_layer_on_the_first_validation_batch(
    make_module, make_trainer, data, tmp_path
):
    module = make_module()
    make_trainer([Diagnostics(samples=20)]).validate(module, data, verbose=False)
    table = read_diagnostics(tmp_path)
    x = next(iter(data.val_dataloader()))[0][:20]
    with torch.no_grad():
        x = module.eval().network.norm(module.network.encoder(x))
        for index, layer in enumerate(module.network.layers):
            said = layer.diagnostics(x)
            rows = table["layer"] == f"network.layers.{index:03d}"
            for metric in ("bounded_fraction", "participation_ratio", "spectral_norm"):
                value = table["value"][rows & (table["metric"] == f"diagnostics/{metric}")]
                np.testing.assert_allclose(value, [said[metric].item()], rtol=1e-6)
            for metric in ("radius", "phasors"):
                (values,) = table["values"][rows & (table["metric"] == f"diagnostics/{metric}")]
                np.testing.assert_allclose(values, said[metric], rtol=1e-6)
            x = layer(x)


def test_tensorboard_has_few_curves_and_the_table_all(make_module, make_trainer, data, board, tmp_path):
    trainer = make_trainer([Diagnostics(curves=4, figures_every=1)], logger=board, max_steps=12)
    trainer.fit(make_module(depth=12), data)
    found = events(tmp_path / "run" / "v")
    scalars = found.Tags()["scalars"]
    for metric in ("bounded_fraction", "participation_ratio", "spectral_norm"):
        shown = {tag.rsplit("/", 1)[1] for tag in scalars if tag.startswith(f"diagnostics/{metric}/")}
        depths = {"first", "last", "min", "mean", "max"}
        assert shown == depths | {f"network.layers.{index:03d}" for index in (0, 4, 7, 11)}
    assert set(found.Tags()["histograms"]) == {
        f"diagnostics/radius/network.layers.{index:03d}" for index in (0, 4, 7, 11)
    }
    images = {"bounded_fraction", "participation_ratio", "spectral_norm", "phasors"}
    assert set(found.Tags()["images"]) == {f"figures/{name}" for name in images}
    assert [image.step for image in found.Images("figures/phasors")] == [6, 12]
    table = read_diagnostics(tmp_path / "run" / "v")
    assert len(set(table["layer"][table["metric"] == "diagnostics/spectral_norm"])) == 12
    assert set(table["step"]) == {0, 6, 12}


def test_the_last_state_is_drawn_at_the_end(make_module, make_trainer, data, board, tmp_path):
    trainer = make_trainer([Diagnostics(figures_every=2)], logger=board, max_steps=18)
    trainer.fit(make_module(), data)
    assert [image.step for image in events(tmp_path / "run" / "v").Images("figures/phasors")] == [12, 18]


def test_names_do_not_tell_whether_the_network_was_compiled(make_module):
    module = make_module()
    eager = list(layer_paths(module))
    module.network = torch.compile(module.network, backend="eager")
    assert list(layer_paths(module)) == eager
    assert "network.layers.002.linear" in eager


@pytest.mark.parametrize("how", ["wrapped", "in place"])
def test_compiled_networks_are_probed(make_module, make_trainer, data, tmp_path, how):
    module = make_module()
    if how == "wrapped":
        module.network = torch.compile(module.network, backend="eager")
    else:
        module.network.compile(backend="eager")
    make_trainer([Diagnostics()], max_steps=6).fit(module, data)
    table = read_diagnostics(tmp_path)
    assert "network.layers.001" in set(table["layer"])
    assert "diagnostics/activation_gradient_ratio" in set(table["metric"])


class Strange(nn.Module):
    """Says what no writer likes to hear."""

    def forward(self, x):
        return x * 1.0

    def diagnostics(self, *inputs):
        nan = torch.tensor(math.nan)
        return {
            "nan": nan,
            "inf": torch.tensor(math.inf, dtype=torch.bfloat16),
            "none": torch.zeros(0),
            "some": torch.tensor([1.0, math.nan, 3.0, math.inf], dtype=torch.bfloat16),
            "all": torch.full((3,), math.nan),
            "complex": torch.tensor([1 + 1j, 0.5j, complex(math.nan, 0)]),
            "nothing": torch.zeros(0, 2),
            "lines": torch.tensor([[1, math.nan, 2], [math.inf, 1, 1]], dtype=torch.bfloat16),
            "count": torch.tensor(3),
        }


def test_nan_inf_empty_and_half_neither_raise_nor_vanish(make_module, make_trainer, data, board, tmp_path):
    module = make_module()
    module.network.layers = nn.Sequential(Strange(), Strange())
    make_trainer([Diagnostics(figures_every=1)], logger=board).validate(module, data, verbose=False)
    folder = tmp_path / "run" / "v"
    table = read_diagnostics(folder)

    def row(metric):
        rows = (table["metric"] == f"diagnostics/{metric}") & (table["layer"] == "network.layers.000")
        return table[rows].iloc[0]

    def value(metric):
        return row(metric)["value"]

    assert math.isnan(value("nan"))
    assert value("inf") == math.inf
    assert value("count") == 3
    np.testing.assert_array_equal(row("some")["values"], [1, math.nan, 3, math.inf])
    assert np.isnan(row("all")["values"]).all()
    assert row("none")["shape"] == (0,)
    assert row("complex")["shape"] == (3, 2)
    assert row("nothing")["shape"] == (0, 2)
    assert row("lines")["shape"] == (2, 3)
    found = events(folder)
    assert found.Tags()["histograms"] == [f"diagnostics/some/network.layers.00{i}" for i in (0, 1)]
    assert found.Scalars("diagnostics/all_nonfinite/network.layers.000")[0].value == 3
    assert found.Scalars("diagnostics/nan/nonfinite")[0].value == 2
    assert {"figures/complex", "figures/lines", "figures/nothing"} == set(found.Tags()["images"])


class Wrong(Strange):
    def diagnostics(self, *inputs):
        return {"cube": torch.zeros(2, 2, 2)}


def test_other_shapes_are_refused_by_name(make_module, make_trainer, data):
    module = make_module()
    module.network.layers = Wrong()
    with pytest.raises(ValueError, match=r"0-d, 1-d or 2-d, got \[2, 2, 2\] for cube/network.layers"):
        make_trainer([Diagnostics()]).validate(module, data, verbose=False)


class Drawing(Strange):
    """Draws, counts and switches modes where it should not."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x + 0 * torch.rand(())

    def diagnostics(self, *inputs):
        self.train()
        return {"drawn": torch.rand(()) + float(np.random.rand())}  # noqa: NPY002


def test_even_an_unruly_network_is_left_as_it_was(make_module, make_trainer, data):
    module = make_module()
    module.network.layers = Drawing()
    module.network.head.eval()
    trainer = make_trainer()
    batch = capture(next(iter(data.val_dataloader())), 16)
    assert batch is not None
    from app.callbacks.probe import measure

    modes = [part.training for part in module.modules()]
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    torch.manual_seed(1)
    measure(trainer, module, batch)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3))
    assert modes == [part.training for part in module.modules()]
    for name, value in module.named_buffers():
        assert torch.equal(value, buffers[name]), name
    assert not any(part._forward_pre_hooks for part in module.modules())


def test_activation_gradient_ratio_against_the_chain_rule(make_module, make_trainer, data):
    module = make_module().double()
    x, y = next(iter(data.val_dataloader()))
    batch = capture((x.double(), y), 16)
    with torch.inference_mode():
        ratio = activation_gradient_ratio(make_trainer(), module, batch)
    module.eval()
    net = module.network
    first = net.layers[0](net.norm(net.encoder(x[:16].double()))).detach().requires_grad_()
    last = net.layers[2](net.layers[1](first))
    last.retain_grad()
    nn.functional.cross_entropy(net.head(last), y[:16]).backward()
    torch.testing.assert_close(ratio, (first.grad.norm() / last.grad.norm()).float())
    assert all(p.grad is None for p in net.encoder.parameters())


def test_a_module_that_is_called_again_is_asked_once_and_recursion_is_no_call(
    make_module, make_trainer, data
):
    asked = []

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(self.inner(x) + 1)

        def diagnostics(self, x):
            self.forward(x)  # recomputes through a hooked part
            return {"outer": x.mean()}

    class Inner(nn.Module):
        def forward(self, x):
            return x * 2

        def diagnostics(self, x):
            asked.append(x.mean().item())
            return {"inner": x.mean()}

    module = make_module()
    module.network.layers = Outer()
    make_trainer([Diagnostics()]).validate(module, data, verbose=False)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("count", "picks", "expected"),
    [(3, 10, [0, 1, 2]), (100, 4, [0, 33, 66, 99]), (5, 1, [0]), (5, 0, []), (0, 4, [])],
)
def test_evenly(count, picks, expected):
    assert evenly(count, picks) == expected


def test_counts_out_of_range_are_refused():
    with pytest.raises(ValueError, match="samples must be at least 1, got 0"):
        Diagnostics(samples=0)


def test_a_batch_of_another_kind_is_said_not_guessed(make_module, make_trainer, data):
    module = make_module()
    module.validation_step = lambda batch, batch_idx: None
    loader = DataLoader([{"x": torch.zeros(8)}] * 4, batch_size=2)
    with pytest.warns(UserWarning, match="neither"):
        make_trainer([Diagnostics()]).validate(module, loader, verbose=False)
