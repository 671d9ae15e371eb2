"""The two commands: help, mistakes in one line, and a comparison of runs."""

import pytest

from app.__main__ import main


@pytest.mark.parametrize("command", ["study", "report"])
def test_help_has_an_example(run, command):
    code, out, _ = run(f"{command} --help")
    assert code == 0
    assert f"example: python -m app {command}" in out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("study", "study must be given"),
        ("study z_plain", "there is no study z_plain; did you mean z_plane?"),
        ("study z_plane --preset=small", "z_plane has no preset small; it has quick, cpu, full"),
        ("study z_plane --cluster=moon", "cluster must be local or slurm, got moon"),
        ("study z_plane --worker=2", "there is no option --worker; did you mean workers?"),
        ("study z_plane --workers=-1", "workers must be at least 0, got -1"),
        ("study z_plane --threads=0", "threads must be at least 1, got 0"),
        ("study z_plane --candidate=nowhere.Layer", "there is no module nowhere"),
        ("study z_plane --candidate=app.layers.ZPlaneLinaer", "did you mean ZPlaneLinear?"),
        ("study z_plane --candidate=Layer", "Layer must be a dotted path"),
        ("study sigma_pi --candidate=app.layers.ZPlaneLinear", "sigma_pi has no place for a layer"),
        (
            'study z_plane --set={"model.init_args.network.init_args.depht":3}',
            "has no option depht; did you mean depth?",
        ),
        ("report", "folders must be given"),
        ("report nowhere", "there is no folder nowhere"),
        ("report .", ". holds no metrics"),
    ],
)
def test_mistakes_are_one_line(run, line, expected):
    code, out, err = run(line)
    assert code == 2, out + err
    assert err.count("\n") == 1, err
    assert err.startswith("error: ")
    assert expected in err


def test_runs_are_compared(run, workspace):
    fit = "fit --config model/relu_shallow --config data/digits --trainer.max_epochs=1"
    small = " --trainer.accelerator=cpu --trainer.devices=1 --model.init_args.network.init_args.width="
    for width, seed in ((8, 1), (8, 2), (16, 1)):
        assert main(f"{fit}{small}{width} --seed_everything={seed}".split()) == 0
    code, _, err = run("report " + " ".join(f"runs/relu_shallow/version_{i}" for i in range(3)))
    assert code == 0, err
    text = (workspace / "report" / "report.md").read_text()
    assert "width 16" in text
    assert "(2)" in text
    assert "model.init_args.network.init_args.width" in text
    assert "val/acc" in text
