"""Every architecture and baseline on one rank and on two: the same steps, and the same metrics."""

import sys

import pytest
import torch

from tests.processes import run_limited
from tests.test_configs import MODELS

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """What one rank found, and what two started by torchrun found, for all models in two launches."""
    folder = tmp_path_factory.mktemp("matrix")
    for start, ranks in ([], "1"), (TORCHRUN, "2"):
        code, output = run_limited(
            [sys.executable, *start, "-m", "tests.matrix", ranks, str(folder)], 900, folder
        )
        assert code == 0, output[-3000:]
    return [torch.load(folder / f"{ranks}.pt", weights_only=True) for ranks in (1, 2)]


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(1900)
@pytest.mark.parametrize("model", MODELS)
def test_two_ranks_are_as_one(matrix, model):
    one, two = (found[model] for found in matrix)
    assert "error" not in one, one["error"]
    assert "error" not in two, two["error"]
    assert one["steps"] == two["steps"] == 10
    assert any(not torch.equal(one["before"][key], one["after"][key]) for key in one["before"])
    for key, value in one["before"].items():
        torch.testing.assert_close(two["before"][key], value, rtol=0, atol=0)
    for name, value in one["metrics"].items():
        assert two["metrics"][name] == pytest.approx(value, abs=1e-6, rel=1e-6), name
    if "cnn" in model:
        return  # batch statistics are those of a rank's own part
    for key, value in one["after"].items():
        torch.testing.assert_close(two["after"][key], value, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("model", ["model/z_plane", "model/layernorm_relu_residual", "model/plain_cnn"])
def test_two_ranks_by_the_command_line(tmp_path, model):
    fit = [
        sys.executable, "-m", "app", "fit", "--config", model, "--config", "data/digits",
        "--trainer.accelerator=cpu", "--trainer.devices=2", "--trainer.strategy=ddp",
        "--trainer.max_epochs=1", "--trainer.limit_train_batches=3", "--trainer.enable_progress_bar=false",
        "--model.init_args.network.init_args.depth=3", "--model.init_args.network.init_args.width=16",
    ]  # fmt: skip
    code, output = run_limited(fit, 280, tmp_path)
    assert code == 0, output[-3000:]
