"""A built wheel, installed elsewhere, runs from an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def test_wheel(tmp_path):
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(REPOSITORY),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    # An editable install of the checkout must not stand in for the wheel.
    where = [sys.executable, "-c", "import app, datamodules; print(app.__file__, datamodules.__file__)"]
    found = subprocess.run(where, cwd=empty, env=environment, check=True, capture_output=True, text=True)
    assert all(path.startswith(str(site)) for path in found.stdout.split())
    fit = [
        sys.executable, "-m", "app", "fit", "--config", "z_plane_digits", "--trainer.max_epochs=1",
        "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false",
        "--model.init_args.network.init_args.depth=2",
    ]  # fmt: skip
    done = subprocess.run(fit, cwd=empty, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Results" in done.stdout
    assert (empty / "runs/z_plane_digits/version_0/checkpoints/best.ckpt").is_file()
