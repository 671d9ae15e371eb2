"""Every shipped config, through the real command line: parsed and made, and one of each kind fitted."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from app import configs
from app.cli import CLI
from app.networks.matching import trained_parameters

# Included by others, no model of their own.
ABSTRACT = {f"model/{n}" for n in ("classification", "regression", "product", "published", "published_probe")}
EXPERIMENTS = [name for name in configs.shipped() if "/" not in name]
MODELS = [name for name in configs.shipped() if name.startswith("model/") and name not in ABSTRACT]
DATA = [name for name in configs.shipped() if name.startswith("data/")]
IMAGES = ("Digits", "MNIST", "CIFAR", "ImageFolder")
FAST = (
    "--trainer.accelerator=cpu --trainer.devices=1 --trainer.fast_dev_run=true"
    " --trainer.enable_progress_bar=false"
)


def included(config: str) -> list[str]:
    """Returns the names of a config and of all that it includes."""
    return [
        str(file.relative_to(configs.SHIPPED).with_suffix(""))
        for file in configs.included(configs.locate(config))
    ]


def text_of(config: str) -> str:
    """Returns a config with all that it includes."""
    return "\n".join(configs.locate(name).read_text() for name in included(config))


# All of these are made. Rivals on a task differ in a network, which is fitted by tests of its own: one fit
# for each task and family is enough, and of the products' data and models none but sigma_pi_product.
TASK = "gyroscope|stability|near_pi|correction|negation|reflection"
GEOMETRIC = [name for name in EXPERIMENTS if re.match("edelta_|published_", name)]
ANSWERED = [name for name in EXPERIMENTS if "model/sigma_pi_mlp" in included(name)]
FITTED = [
    name
    for name in EXPERIMENTS
    if name not in (*GEOMETRIC, *ANSWERED)
    or name == "sigma_pi_product"
    or re.fullmatch(f"edelta_({TASK})|published_({TASK})_edelta", name)
]
PRODUCTS = [name for name in DATA if name.startswith("data/product_")]
ARITHMETIC = [name for name in MODELS if "model/product" in included(name)]
FITTED_MODELS = [
    name
    for name in MODELS
    if name not in ARITHMETIC and not re.search("published_|(ddl|jpmhc|cayley|reflections?)_probe", name)
]
FITTED_DATA = [
    name for name in DATA if name not in PRODUCTS and name not in {p for e in FITTED for p in included(e)}
]


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
    if re.search(r"datamodules\.(Gyroscope|Stability|NearPi|Correction)", text):
        return (
            "--data.init_args.batch_size=4 --data.init_args.train_samples=8 --data.init_args.val_samples=4"
            " --data.init_args.time=8 --model.init_args.rollout_steps=2"
            " --model.init_args.network.init_args.depth=1 --model.init_args.network.init_args.width=32"
        )
    if not any(f"datamodules.{kind}" in text for kind in ("MNIST", "FashionMNIST", "CIFAR10", "CIFAR100")):
        return ""
    return "--data.init_args.verify_checksums=false --data.init_args.batch_size=20"


@pytest.mark.parametrize("config", FITTED)
def test_experiment(run, files, config):
    code, _, err = run(f"fit --config {config} {FAST} {options(config)}")
    assert code == 0, err


def partner(config: str) -> str:
    """Returns data for a model, or a model for data."""
    if config.startswith("model/"):
        if "app.modules.Classification" in text_of(config):
            return "--config data/digits"
        if config in ARITHMETIC:
            return "--config data/product_pair"
        return (
            "--config data/negation"
            if "Probe" in text_of(config)
            else "--config data/gyroscope --data.time=16 --model.rollout_steps=2"
        )
    if config == "data/negation":
        return "--config model/edelta_probe"
    classes = any(kind in text_of(config) for kind in IMAGES)
    return "--config model/relu_shallow" if classes else "--config model/gpt"


@pytest.fixture(scope="module")
def cli() -> CLI:
    """The command line, to parse many configs with: making its parser takes most of a start."""
    return CLI(["fit", "--config", "published_negation_edelta"], run=False)


def made(cli: CLI, *names: str) -> CLI:
    """Parses configs and makes their objects."""
    arguments, cli.stem = configs.expand(["fit", *(part for name in names for part in ("--config", name))])
    cli.parse_arguments(cli.parser, arguments)
    cli.instantiate_classes()
    return cli


def stated(config: str) -> int | None:
    """Returns the number of parameters that a config's own file states."""
    found = re.search(r"([\d,]+) trained parameters", configs.locate(config).read_text())
    return int(found[1].replace(",", "")) if found else None


@pytest.mark.parametrize("config", GEOMETRIC)
def test_geometric_experiments_are_made_and_state_their_size(cli, config):
    """Ours on sequences have the size of E∆ within 2 %."""
    size = trained_parameters(made(cli, config).model)
    assert stated(config) == size
    if task := re.fullmatch(
        "edelta_(gyroscope|stability|near_pi_multi|near_pi|correction)_(?!multi).*", config
    ):
        assert size == pytest.approx(stated(f"edelta_{task[1]}"), rel=0.02)
    if config.startswith("published_"):
        assert cli.trainer.max_steps == 2000
        assert cli.trainer.check_val_every_n_epoch is None


@pytest.mark.parametrize("config", [*PRODUCTS, *ARITHMETIC, *ANSWERED])
def test_products_and_what_learns_them_are_made(cli, config):
    pair = {"model": (config, "data/product_pair"), "data": ("model/sigma_pi_mlp", config)}
    names = pair.get(config.partition("/")[0], (config,))
    batch = next(iter(loaded(made(cli, *names)).val_dataloader()))
    assert cli.model(batch[0]).shape == batch[1].shape
    assert cli.trainer.max_steps == 6000


def loaded(cli: CLI):
    """Returns the datamodule, ready to validate."""
    cli.datamodule.trainer = None
    cli.datamodule.setup("validate")
    return cli.datamodule


@pytest.mark.parametrize("config", FITTED_MODELS)
def test_model(run, files, config):
    # Phasors normalised to radius 1 have gradients that overflow at once at 100 layers: the guard says so.
    depth = "--model.init_args.network.init_args.depth=4" if config == "model/unit_normalise" else ""
    code, _, err = run(f"fit --config {config} {partner(config)} {FAST} {depth}")
    assert code == 0, err


@pytest.mark.parametrize("config", FITTED_DATA)
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
        settings = yaml.safe_load(file.read_text()).get("model", {})
        network = settings.get("init_args", {}).get("network")
        if network:
            module, _, name = network["class_path"].rpartition(".")
            taken = inspect.signature(getattr(importlib.import_module(module), name)).parameters
            assert {"input_shape", "num_outputs"} <= set(taken), config


def test_every_folder_of_components_is_listed():
    folders = {path.name for path in configs.SHIPPED.iterdir() if path.is_dir()}
    assert folders == {*configs.COMPONENTS, "studies"}
