"""A hundred bad inputs, each of which ends with exactly one line on stderr and the right exit code.

Run them all: python -m pytest -m "slow or not slow" tests/test_bad_inputs.py
"""

import copy
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from PIL import Image

from app.configs import SHIPPED

QUIET = "--trainer.accelerator=cpu --trainer.devices=1 --trainer.enable_progress_bar=false"
QUIET += " --trainer.enable_model_summary=false --trainer.max_epochs=1 --trainer.limit_train_batches=10"
NET = ("model", "init_args", "network", "init_args")
ADAM = ("model", "init_args", "optimizer", "init_args")


def whole(*names: str) -> dict[str, Any]:
    """The shipped files merged, as one mapping."""

    def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
        for key, value in more.items():
            if isinstance(value, dict) and isinstance(into.get(key), dict):
                merge(into[key], value)
            else:
                into[key] = value

    merged: dict[str, Any] = {}
    for name in names:
        content = yaml.safe_load((SHIPPED / f"{name}.yaml").read_text())
        includes = [item.removesuffix(".yaml") for item in content.pop("include", [])]
        merge(
            merged,
            whole(*(item if (SHIPPED / f"{item}.yaml").is_file() else f"model/{item}" for item in includes)),
        )
        merge(merged, content)
    return merged


def put(config: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy with another value."""
    changed = copy.deepcopy(config)
    node = changed
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = value
    return changed


DIGITS = put(whole("z_plane_digits"), ("trainer", "max_epochs"), 1)
NEGATION = whole("edelta_negation")


def keys(config: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All keys, nested ones by their path."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from keys(value, (*path, key))


def misspelt(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """A copy in which one key has two letters swapped."""
    changed = copy.deepcopy(config)
    node = changed
    for key in path[:-1]:
        node = node[key]
    key = path[-1]
    node[key[:-2] + key[-1] + key[-2]] = node.pop(key)
    return changed


TYPOS = {
    f"typo {'.'.join(path)} in {name}": misspelt(config, path)
    for name, config in (("digits", DIGITS), ("negation", NEGATION))
    for path in keys(config)
    if path[-1][-1] != path[-1][-2]
}
VALUES: dict[str, dict[str, Any]] = {
    f"{'.'.join(path)}={value!r}": put(DIGITS, path, value)
    for path, values in {
        ("trainer", "max_epochs"): ("abc", [1], {"a": 1}, -2, 1.5),
        ("trainer", "precision"): ("fp17",),
        ("trainer", "accelerator"): ("quantum",),
        ("trainer", "gradient_clip_val"): ("much",),
        ("trainer", "strategy"): ("dpp",),
        ("trainer", "limit_val_batches"): (-1, "all"),
        ("trainer", "accumulate_grad_batches"): (0, "x"),
        ("trainer", "log_every_n_steps"): ("often",),
        ("trainer", "val_check_interval"): (0, 1000, "x"),
        ("trainer", "devices"): (0, -5, "many"),
        ("trainer", "callbacks"): ([{"class_path": "app.callbacks.Nothing"}], [{"class_path": 3}], "x"),
        ("trainer", "logger"): ([{"class_path": "app.logs.CSVLoger"}], "maybe"),
        ("checkpoint", "monitor"): ("val/none", 3.5),
        ("checkpoint", "mode"): ("least",),
        ("checkpoint", "save_top_k"): (-7, "all"),
        ("checkpoint", "last_interval"): (-1, "often"),
        ("checkpoint", "every_n_train_steps"): (-3,),
        ("seed_everything",): ("abc", -1),
        ("data",): ("nothing", 3, [], {"class_path": "datamodules.Digit"}),
        ("data", "class_path"): ("torch.nn.Linear", "datamodules", "", 7),
        ("data", "init_args", "batch_size"): (0, -1, "x", 10**7, 2.5),
        ("data", "init_args", "seed"): (-1,),
        ("data", "init_args", "val_fraction"): (0, 1, -0.5, "x"),
        ("data", "init_args", "train_samples"): (0, 10**9),
        ("model",): (3, {"class_path": "app.modules.Clasification"}),
        ("model", "class_path"): ("app.networks.ZPlaneMLP", "os.path", "no.such.Thing"),
        ("model", "init_args", "network"): (3, {"class_path": "app.networks.No"}, {"class_path": "math.pi"}),
        ("model", "init_args", "optimizer"): ({"class_path": "torch.optim.Adamm"}, 5),
        ("model", "init_args", "schedule"): ({"class_path": "app.modules.Cosine"},),
        (*NET, "depth"): (0, -3, "deep", 1.5),
        (*NET, "width"): (0, 7, "wide"),
        (*ADAM, "lr"): (-1, "fast"),
        (*ADAM, "betas"): ([2, 3], "x"),
        (*ADAM, "weight_decay"): (-0.1,),
        ("experiment",): ([1],),
    }.items()
    for value in values
}  # fmt: skip

SHIPPED_TEXT = yaml.safe_dump(DIGITS)
TEXTS = {
    "cut in the middle": SHIPPED_TEXT[: len(SHIPPED_TEXT) // 2].rsplit(":", 1)[0] + ": [",
    "a tab": "trainer:\n\tmax_epochs: 3\n",
    "no mapping": "- trainer\n- model\n",
    "a number": "3\n",
    "empty": "",
    "NUL": "trainer: {max_epochs: 3}\n\x00\n",
    "unclosed quote": 'experiment: "x\n',
    "an object": "trainer: !!python/object/apply:os.getcwd []\n",
    "unknown anchor": "trainer: *nowhere\n",
    "twice a colon": "trainer: max_epochs: 3\n",
    "includes itself": "include: [bad.yaml]\n",
    "includes in a circle": "include: [other.yaml]\n",
    "includes nothing": "include: [model/none.yaml]\n",
    "includes a folder": "include: [folder]\n",
    "include is a number": "include: 5\n",
    "include has a number": "include: [5]\n",
    "no YAML included": "include: [image.yaml]\n",
}


def fails(run: Any, line: str, expected: int = 2) -> str:
    """Runs the line and returns the one line on stderr."""
    code, out, err = run(line)
    assert code == expected, f"exit code {code}\n{err}\n{out[-500:]}"
    assert err.count("\n") == 1, err
    assert err.startswith("error: "), err
    assert 10 < len(err) < 600, err
    return err


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TYPOS, *VALUES])
def test_a_mutated_config(run, workspace, name):
    config = (TYPOS | VALUES)[name]
    (workspace / "bad.yaml").write_text(yaml.safe_dump(config))
    options = QUIET
    for path in keys(config):
        options = " ".join(o for o in options.split() if not o.startswith(f"--{'.'.join(path)}="))
    fails(run, f"fit --config bad.yaml {options}")
    assert not list(workspace.rglob("*.ckpt"))


@pytest.mark.parametrize("name", TEXTS)
def test_a_broken_config(run, workspace, name):
    (workspace / "bad.yaml").write_text(TEXTS[name])
    (workspace / "other.yaml").write_text("include: [bad.yaml]\n")
    (workspace / "folder").mkdir()
    (workspace / "image.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    fails(run, f"fit --config bad.yaml {QUIET}")


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "longer":
            path.write_bytes(content + b"x" * 100)
        case "noise":
            path.write_bytes(bytes(range(256)) * 40)
        case "text":
            path.write_text("not found\n" * 100)
        case "missing":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
        case "wrong labels":
            path.write_bytes(content[:8] + b"\xff" * (len(content) - 8))


HOWS = ("empty", "truncated", "longer", "noise", "text", "missing", "folder")
MNIST = f"fit --config model/z_plane --config data/mnist {QUIET} --data.init_args.root=."
MNIST += (
    " --data.init_args.download=false --data.init_args.verify_checksums=false --data.init_args.batch_size=10"
)
SMALL = "--model.init_args.network.init_args.depth=2 --model.init_args.network.init_args.width=8"
MNIST += f" {SMALL}"
CIFAR = MNIST.replace("data/mnist", "data/cifar10")
IMAGES = f"fit --config model/z_plane --config data/folder {QUIET} {SMALL} --data.init_args.root=images"
IMAGES += " --data.init_args.batch_size=4"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_a_damaged_mnist_file(run, workspace, write_mnist, file, how):
    damage(write_mnist(workspace) / file, how)
    assert file in fails(run, MNIST)


def test_mnist_labels_out_of_range(run, workspace, write_mnist):
    damage(write_mnist(workspace) / "train-labels-idx1-ubyte", "wrong labels")
    assert "labels must lie in 0 … 9" in fails(run, MNIST)


@pytest.mark.parametrize("how", [how for how in HOWS if how != "longer"])  # a pickle says where it ends
def test_a_damaged_cifar_file(run, workspace, write_cifar, how):
    damage(write_cifar(workspace) / "data_batch_3", how)
    assert "data_batch_3" in fails(run, CIFAR)


def test_the_same_commands_run_on_whole_files(run, workspace, write_mnist, write_cifar):
    """So that the tests above fail for the damage and nothing else."""
    write_mnist(workspace)
    write_cifar(workspace)
    folder_of_images(workspace, None)
    for line in (MNIST, CIFAR, IMAGES):
        code, _, err = run(line)
        assert code == 0, err
    (workspace / "good.yaml").write_text(SHIPPED_TEXT)
    code, _, err = run(f"fit --config good.yaml {QUIET} {SMALL}")
    assert code == 0, err


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n cut short"])
def test_a_damaged_image(run, workspace, content):
    folder_of_images(workspace, content)
    assert ".png" in fails(run, IMAGES)


def folder_of_images(workspace: Path, content: bytes | None) -> None:
    """Ten files a class; real images without a content."""
    for label in ("cat", "dog"):
        (workspace / "images" / label).mkdir(parents=True)
        for number in range(10):
            path = workspace / "images" / label / f"{number}.png"
            if content is None:
                Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
            else:
                path.write_bytes(content)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    """A checkpoint as a run leaves it."""
    from app.__main__ import main

    folder = tmp_path_factory.mktemp("good")
    line = f"fit --config z_plane_digits {QUIET} {SMALL} --trainer.default_root_dir={folder}"
    assert main(line.split()) == 0
    return (folder / "z_plane_digits/version_0/checkpoints/last.ckpt").read_bytes()


def edited(good: bytes, change: Any) -> bytes:
    import io

    state = torch.load(io.BytesIO(good), weights_only=True)
    buffer = io.BytesIO()
    changed = change(state)
    torch.save(state if changed is None else changed, buffer)
    return buffer.getvalue()


def without(key: str, state: dict[str, Any]) -> None:
    del state[key]


def resized(state: dict[str, Any]) -> None:
    name = next(name for name, value in state["state_dict"].items() if value.dim() == 2)
    state["state_dict"][name] = torch.zeros(3, 3)


def renamed(state: dict[str, Any]) -> None:
    state["state_dict"] = {f"x.{name}": value for name, value in state["state_dict"].items()}


def unmatched(state: dict[str, Any]) -> None:
    state["optimizer_states"][0]["param_groups"] = []


DAMAGED = {
    **{f"cut at {share}": (lambda good, s=share: good[: int(len(good) * s)])
       for share in (0, 0.001, 0.1, 0.5, 0.9, 0.999)},
    "middle overwritten": lambda good: good[:9000] + b"\xff" * (len(good) - 18000) + good[-9000:],
    "text": lambda good: b"hello",
    "another pickle": lambda good: pickle.dumps({"state_dict": {}}),
    "an object": lambda good: pickle.dumps(Path("x")),
    "a list": lambda good: edited(good, lambda state: [1, 2]),
    "a tensor": lambda good: edited(good, lambda state: torch.zeros(3)),
    "weights alone": lambda good: edited(good, lambda state: state["state_dict"]),
    "a module": lambda good: edited(good, lambda state: torch.nn.Linear(2, 2)),
    **{f"without {key}": partial(edited, change=partial(without, key))
       for key in ("state_dict", "loops", "optimizer_states", "lr_schedulers", "global_step")},
    "other sizes": partial(edited, change=resized),
    "other names": partial(edited, change=renamed),
    "optimizer of another network": partial(edited, change=unmatched),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_checkpoint(run, workspace, good, name):
    (workspace / "x.ckpt").write_bytes(DAMAGED[name](good))
    fails(run, f"fit --config z_plane_digits {QUIET} {SMALL} --ckpt_path x.ckpt")
    assert [path.name for path in workspace.rglob("*.ckpt")] == ["x.ckpt"]


def test_there_are_a_hundred():
    assert len(TYPOS) + len(VALUES) + len(TEXTS) + 3 * len(HOWS) + 4 + len(DAMAGED) >= 100
