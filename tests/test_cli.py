"""The command line as a user meets it."""

import csv
import re
from pathlib import Path

import pytest
import torch
import yaml

from app import configs
from app.cli import CLI, build
from app.modules import Classification
from app.networks import RetractedZPlaneMLP
from app.welcome import FAMILIES, RIVALLED, task_of

SMALL = "--model.init_args.network.init_args.depth=4 --model.init_args.network.init_args.width=16"
QUICK = f"--trainer.accelerator=cpu --trainer.max_epochs=2 --trainer.enable_progress_bar=false {SMALL}"
FIT = f"fit --config z_plane_digits {QUICK}"

OWN_BAR = (
    '--trainer.callbacks+={"class_path": "RichProgressBar", "init_args": {"theme": {"class_path": '
    '"lightning.pytorch.callbacks.progress.rich_progress.RichProgressBarTheme", "init_args": '
    '{"metrics_format": ".5f"}}}}'
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_alone_it_says_what_to_type_next(run):
    code, out, _ = run("")
    assert code == 0
    assert "python -m app fit --config z_plane_digits" in out
    assert max(map(len, out.splitlines())) <= 110
    listed = re.findall(r"[a-z_0-9]+", out[out.index("What --config knows") :])
    for name in configs.shipped():
        family = next((family for family in FAMILIES if name.startswith(f"{family}_")), "")
        rest = name.removeprefix(f"{family}_").rpartition("/")[2]
        task = task_of(rest, configs.shipped()) if family in RIVALLED else ""
        assert {part for part in (task, rest.removeprefix(task).strip("_")) if part} <= {*listed}, name


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_help_has_an_example(run, command):
    code, out, _ = run(f"{command} --help")
    assert code == 0
    assert f"python -m app {command} --config z_plane_digits" in " ".join(out.split())


def test_fit_leaves_one_complete_run_folder(run, workspace):
    code, out, err = run(FIT)
    assert code == 0, err
    folder = workspace / "runs/z_plane_digits/version_0"
    assert [path.name for path in (workspace / "runs/z_plane_digits").iterdir()] == ["version_0"]
    for name in (
        "config.yaml",
        "environment.json",
        "metrics.csv",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
    ):
        assert (folder / name).is_file(), name
    assert list(folder.glob("events.out.tfevents.*"))
    assert list((folder / "diagnostics").iterdir())
    table = rows(folder / "metrics.csv")
    for name in ("train/loss", "val/loss", "val/acc", "test/loss", "test/acc"):
        assert any(row.get(name) for row in table), name
    assert not [name for name in table[0] if name.startswith("diagnostics")]
    assert "test (best)" in out
    assert "python -m app dashboard" in out


def test_runs_in_a_row_do_not_touch_each_other(run, workspace):
    quick = FIT.replace("max_epochs=2", "max_epochs=1")
    for logger in (
        "",
        " --trainer.logger=false",
        " --trainer.logger=lightning.pytorch.loggers.CSVLogger --trainer.logger.save_dir=x",
    ):
        assert run(quick + logger)[0] == 0
    folders = sorted((workspace / "runs/z_plane_digits").iterdir())
    assert [folder.name for folder in folders] == ["version_0", "version_1", "version_2"]
    for folder in folders:
        assert (folder / "config.yaml").is_file()
        assert (folder / "checkpoints/best.ckpt").is_file()
    assert {path.name for path in workspace.iterdir()} == {"runs"}


def test_evaluation_never_writes_into_a_fit(run, workspace):
    assert run(FIT)[0] == 0
    fit = workspace / "runs/z_plane_digits/version_0"
    before = {path: path.stat().st_mtime_ns for path in fit.rglob("*")}
    for command in ("validate", "test", "predict"):
        code, _, err = run(f"{command} --config z_plane_digits --ckpt_path best {QUICK}")
        assert code == 0, err
        assert (workspace / f"runs/z_plane_digits/{command}_0/config.yaml").is_file()
    assert {path: path.stat().st_mtime_ns for path in fit.rglob("*")} == before
    assert rows(workspace / "runs/z_plane_digits/test_0/metrics.csv")[-1]["test/acc"]
    predictions = rows(workspace / "runs/z_plane_digits/predict_0/predictions.csv")
    assert len(predictions) % 2 == 1
    assert [int(row["index"]) for row in predictions] == list(range(len(predictions)))


def test_a_saved_config_repeats_the_run_bit_for_bit(run, workspace):
    assert run(FIT)[0] == 0
    saved = workspace / "runs/z_plane_digits/version_0/config.yaml"
    assert run(f"fit --config {saved} --trainer.enable_progress_bar=false")[0] == 0
    first, second = (
        torch.load(workspace / f"runs/z_plane_digits/version_{i}/checkpoints/last.ckpt", weights_only=True)
        for i in (0, 1)
    )
    assert all(torch.equal(first["state_dict"][key], value) for key, value in second["state_dict"].items())


def test_checkpoints_rebuild_the_module_without_pickle(run, workspace):
    assert run(FIT)[0] == 0
    path = workspace / "runs/z_plane_digits/version_0/checkpoints/best.ckpt"
    module = Classification.load_from_checkpoint(path, weights_only=True)
    assert isinstance(module.network, RetractedZPlaneMLP)
    assert len(module.network.layers) == 4
    assert module(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_compiled_and_eager_checkpoints_are_the_same(run, workspace):
    compiled = "--model.init_args.compile_network=true --model.init_args.network.init_args.depth=1"
    assert run(f"{FIT} {compiled} --trainer.max_epochs=1")[0] == 0
    state = torch.load(workspace / "runs/z_plane_digits/version_0/checkpoints/last.ckpt", weights_only=True)
    assert not [key for key in state["state_dict"] if "_orig_mod" in key]


@pytest.mark.parametrize(
    "options", ["--trainer.precision=bf16-mixed", "--trainer.enable_checkpointing=false"]
)
def test_usual_options_work_with_the_shipped_settings(run, options):
    code, _, err = run(f"{FIT} --trainer.max_epochs=1 {options}")
    assert code == 0, err


def test_print_config_is_a_config(run, workspace):
    code, out, _ = run(f"{FIT} --print_config")
    assert code == 0
    settings = yaml.safe_load(out)
    assert settings["model"]["init_args"]["network"]["init_args"]["depth"] == 4
    (workspace / "mine.yaml").write_text(out)
    module, _ = build("mine.yaml")
    assert len(module.network.layers) == 4
    assert not (workspace / "runs").exists()


def test_build_gives_module_and_data_without_a_run(workspace):
    module, data = build("z_plane_digits", *SMALL.split())
    assert isinstance(module, Classification)
    assert module(torch.zeros(3, *data.input_shape)).shape == (3, data.num_outputs)
    assert not list(workspace.iterdir())


@pytest.mark.parametrize(("options", "shown"), [([], ".3g"), ([OWN_BAR], ".5f")])
def test_the_bar_shows_losses_of_any_size(options, shown, workspace):
    cli = CLI(["fit", "--config", "z_plane_digits", *options], run=False)
    assert cli.trainer.progress_bar_callback.theme.metrics_format == shown


def test_defaults_come_from_the_package_only(run, workspace):
    (workspace / "configs").mkdir()
    (workspace / "configs/defaults.yaml").write_text("trainer: {max_epochs: 77}\n")
    code, out, _ = run("fit --config z_plane_digits --print_config")
    assert code == 0
    assert yaml.safe_load(out)["trainer"]["gradient_clip_val"] == 1.0
    assert yaml.safe_load(out)["trainer"]["max_epochs"] != 77


def test_missing_defaults_are_an_error(run, monkeypatch, tmp_path):
    monkeypatch.setattr(configs, "DEFAULTS", tmp_path / "defaults.yaml")
    code, _, err = run("fit --config z_plane_digits")
    assert code == 2
    assert "defaults.yaml is missing" in err


def test_callbacks_are_appended_through_three_files(run, workspace):
    for name in ("DeviceStatsMonitor", "LearningRateMonitor"):
        (workspace / f"{name}.yaml").write_text(
            f"trainer:\n  callbacks+: lightning.pytorch.callbacks.{name}\n"
        )
    code, out, err = run(
        f"{FIT} --config DeviceStatsMonitor.yaml --config LearningRateMonitor.yaml --print_config"
    )
    assert code == 0, err
    names = [entry["class_path"].rpartition(".")[2] for entry in yaml.safe_load(out)["trainer"]["callbacks"]]
    assert names[-2:] == ["DeviceStatsMonitor", "LearningRateMonitor"]
    assert "Diagnostics" in names


def test_another_class_on_the_command_line_drops_the_old_arguments(run):
    code, out, err = run(
        "fit --config z_plane_digits --model.init_args.network=app.networks.TanhMLP --print_config"
    )
    assert code == 0, err
    network = yaml.safe_load(out)["model"]["init_args"]["network"]
    assert network["class_path"] == "app.networks.TanhMLP"
    assert "mixing" not in network["init_args"]


def test_models_and_data_from_outside_the_package(run, workspace):
    (workspace / "theirs.yaml").write_text(
        "model: {class_path: tests.outside.TheirModule, init_args: {slope: 2.0}}\n"
        "data: {class_path: tests.outside.TheirData}\n"
        "trainer: {max_epochs: 3, accelerator: cpu, enable_progress_bar: false}\n"
    )
    code, _, err = run("fit --config theirs.yaml")
    assert code == 0, err
    assert (workspace / "runs/theirs/version_0/checkpoints/best.ckpt").is_file()
    code, _, err = run(f"{FIT} --model.init_args.network=tests.outside.TheirNetwork".replace(SMALL, ""))
    assert code == 0, err


def test_include_merges_in_order_and_overrides(run, workspace):
    (workspace / "base.yaml").write_text("include: [z_plane_digits.yaml]\ntrainer: {max_epochs: 3}\n")
    (workspace / "top.yaml").write_text("include: [base.yaml]\ntrainer: {max_steps: 5}\n")
    code, out, err = run("fit --config top.yaml --print_config")
    assert code == 0, err
    settings = yaml.safe_load(out)
    assert (settings["trainer"]["max_epochs"], settings["trainer"]["max_steps"]) == (3, 5)
    assert settings["include"] is None
