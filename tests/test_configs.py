"""Every shipped config, through the real command line."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from app import configs

ABSTRACT = {"model/classification", "model/regression"}  # included by others, no model of their own
EXPERIMENTS = [name for name in configs.shipped() if "/" not in name]
MODELS = [name for name in configs.shipped() if name.startswith("model/") and name not in ABSTRACT]
DATA = [name for name in configs.shipped() if name.startswith("data/")]
IMAGES = ("Digits", "MNIST", "CIFAR", "ImageFolder")
FAST = (
    "--trainer.accelerator=cpu --trainer.devices=1 --trainer.fast_dev_run=true"
    " --trainer.enable_progress_bar=false"
)


@pytest.fixture
def files(workspace: Path, write_mnist, write_cifar) -> str:
    """Lays tiny data of every kind in the working folder; returns the options that find them."""
    root = workspace / "data"
    for name in ("MNIST", "FashionMNIST"):
        write_mnist(root, name, train=200, test=21)
    write_cifar(root, 10, count=40)
    write_cifar(root, 100, count=400)
    for part in ("train", "val", "test"):
        for label in ("cat", "dog"):
            folder = workspace / "images" / part / label
            folder.mkdir(parents=True)
            for i in range(5):
                pixels = np.full((12, 12, 3), 40 * i, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return ""


def options(config: str) -> str:
    """Returns what makes a config run on the tiny files."""
    text = text_of(config)
    if "datamodules.ImageFolder" in text:
        return "--data.init_args.batch_size=4"
    if not any(f"datamodules.{kind}" in text for kind in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100")):
        return ""
    return "--data.init_args.verify_checksums=false --data.init_args.batch_size=20"


@pytest.mark.parametrize("config", EXPERIMENTS)
def test_experiment(run, files, config):
    code, _, err = run(f"fit --config {config} {FAST} {options(config)}")
    assert code == 0, err


def text_of(config: str) -> str:
    """Returns a config with all that it includes."""
    return "\n".join(file.read_text() for file in configs.included(configs.locate(config)))


def partner(config: str) -> str:
    """Returns data for a model, or a model for data."""
    if config.startswith("model/"):
        if "app.modules.Classification" in text_of(config):
            return "--config data/digits"
        return (
            "--config data/negation"
            if "Probe" in text_of(config)
            else "--config data/gyroscope --data.time=16"
        )
    if config == "data/negation":
        return "--config model/edelta_probe"
    classes = any(kind in text_of(config) for kind in IMAGES)
    return "--config model/relu_shallow" if classes else "--config model/gpt"


@pytest.mark.parametrize("config", MODELS)
def test_model(run, files, config):
    # Phasors normalised to radius 1 have gradients that overflow at once at 100 layers: the guard says so.
    depth = "--model.init_args.network.init_args.depth=4" if config == "model/unit_normalise" else ""
    code, _, err = run(f"fit --config {config} {partner(config)} {FAST} {depth}")
    assert code == 0, err


@pytest.mark.parametrize("config", DATA)
def test_data(run, files, config):
    code, _, err = run(f"fit {partner(config)} --config {config} {FAST} {options(config)}")
    assert code == 0, err


@pytest.mark.parametrize("config", ["z_plane_mnist", "z_plane_mnist_certified", "z_plane_cifar10"])
def test_fit_validate_test_predict(run, files, workspace, config):
    small = "--model.init_args.network.init_args.depth=3 --model.init_args.network.init_args.width=16"
    line = (
        f"--config {config} {small} {options(config)} --trainer.accelerator=cpu --trainer.devices=1"
        " --trainer.max_epochs=1 --trainer.enable_progress_bar=false"
    )
    assert run(f"fit {line}")[0] == 0
    for command in ("validate", "test", "predict"):
        code, _, err = run(f"{command} {line} --ckpt_path best")
        assert code == 0, err
    folders = {path.name for path in (workspace / "runs" / config).iterdir()}
    assert folders == {"version_0", "validate_0", "test_0", "predict_0"}


@pytest.mark.parametrize("config", MODELS)
def test_models_take_the_same_sizes(config):
    """A link to a size that a network lacks would be skipped in silence."""
    import importlib
    import inspect

    for file in configs.included(configs.locate(config)):
        network = yaml.safe_load(file.read_text())["model"]["init_args"].get("network")
        if network:
            module, _, name = network["class_path"].rpartition(".")
            taken = inspect.signature(getattr(importlib.import_module(module), name)).parameters
            assert {"input_shape", "num_outputs"} <= set(taken), config


def test_every_folder_of_components_is_listed():
    folders = {path.name for path in configs.SHIPPED.iterdir() if path.is_dir()}
    assert folders == {*configs.COMPONENTS, "studies"}
