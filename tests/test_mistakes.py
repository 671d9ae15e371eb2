"""A mistake is one line on stderr, found before training starts, with exit code 2 and nothing left behind."""

import pytest

QUICK = "fit --config z_plane_digits --trainer.accelerator=cpu --trainer.enable_progress_bar=false"
STOP = "lightning.pytorch.callbacks.EarlyStopping"
NETWORK = "--model.init_args.network.init_args"

MISTAKES = {
    "unknown command": ("fti", "did you mean fit?"),
    "unknown config": ("fit --config z_plan_digits", "did you mean z_plane_digits?"),
    "nothing given": ("fit", "--data and --model must be given"),
    "unknown option": (f"{QUICK} --trainer.max_epoch=3", "did you mean trainer.max_epochs?"),
    "unknown nested option": (f"{QUICK} {NETWORK}.dept=3", "has no option dept; did you mean depth?"),
    "unknown class": (
        f"{QUICK} --data=datamodules.Digit",
        "there is no datamodules.Digit; did you mean Digits?",
    ),
    "unknown module": (f"{QUICK} --data=datmodules.Digits", "there is no module datmodules"),
    "no lightning module": (f"{QUICK} --model=torch.nn.Linear", "model must be a LightningModule"),
    "wrong type": (f"{QUICK} --trainer.max_epochs=abc", "trainer.max_epochs must be int, got abc"),
    "wrong nested type": (f"{QUICK} {NETWORK}.depth=abc", "network.init_args.depth must be int, got abc"),
    "wrong choice": (f"{QUICK} {NETWORK}.mixing=quaternion", "must be real or complex, got quaternion"),
    "missing key": (
        "fit --model app.modules.Classification --data datamodules.Digits",
        "Classification needs network",
    ),
    "sizes do not fit": (
        f"{QUICK} {NETWORK}.input_shape=[1,28,28]",
        "must be [1, 8, 8], the input_shape of the data",
    ),
    "odd width": (f"{QUICK} {NETWORK}.width=33", "width must be a multiple of bundle 2, got 33"),
    "negative depth": (f"{QUICK} {NETWORK}.depth=-1", "depth must be at least 1, got -1"),
    "unknown monitor": (f"{QUICK} --checkpoint.monitor=val/accuracy", "did you mean val/acc?"),
    "unknown monitor of another callback": (
        f"{QUICK} --trainer.callbacks+={STOP} --trainer.callbacks.monitor=val/lss",
        "did you mean val/loss?",
    ),
    "monitor never computed": (
        f"{QUICK} --trainer.limit_val_batches=0",
        "leaves the monitored val/acc unknown",
    ),
    "too many devices": (f"{QUICK} --trainer.devices=4096", "the number of CPU cores"),
    "no checkpoint of the run": (f"{QUICK} --ckpt_path last", "there is no checkpoint last.ckpt"),
    "no checkpoint": (f"{QUICK} --ckpt_path no.ckpt", "there is no checkpoint no.ckpt"),
    "no data": (
        f"{QUICK} --data=datamodules.MNIST --data.init_args.root=none --data.init_args.download=false",
        "none/MNIST/raw",
    ),
    "unwritable folder": (f"{QUICK} --trainer.default_root_dir=/dev/null/x", "cannot be made"),
    "batch too large": (f"{QUICK} --data.init_args.batch_size=100000", "batch_size"),
    "no option value": (f"{QUICK} --trainer.max_epochs", "expected one argument"),
}


FOUND_IN_THE_DATA = {"batch too large"}  # by then the run has a folder, with its config in it


@pytest.mark.parametrize("name", MISTAKES)
def test_one_line(run, workspace, name):
    line, message = MISTAKES[name]
    code, _, err = run(line)
    lines = [text for text in err.splitlines() if text.startswith("error: ")]
    assert code == 2, err
    assert len(lines) == 1, err
    assert message in lines[0]
    assert "Traceback" not in err
    assert not list(workspace.rglob("*.ckpt"))
    if name not in FOUND_IN_THE_DATA:
        assert not list(workspace.rglob("*.*")), "something was written"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1,", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("include: 3", "include must be a list"),
        ("include: [mine.yaml]", "includes itself"),
        ("include: [nowhere.yaml]", "there is no config nowhere.yaml"),
        ("trainr: {max_epochs: 3}", "did you mean trainer.max_epochs?"),
        ("include: [z_plane_digits]\ntrainer: {max_epoch: 3}", "did you mean trainer.max_epochs?"),
    ],
)
def test_broken_config(run, workspace, text, message):
    (workspace / "mine.yaml").write_text(text)
    code, _, err = run("fit --config mine.yaml")
    assert code == 2
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_network_of_another_size_does_not_load(run, workspace):
    small = "--model.init_args.network.init_args.width=8 --model.init_args.network.init_args.depth=2"
    assert run(f"{QUICK} --trainer.max_epochs=1 {small}")[0] == 0
    code, _, err = run(f"test --config z_plane_digits --ckpt_path best {small.replace('depth=2', 'depth=3')}")
    assert code == 2
    (line,) = [text for text in err.splitlines() if text.startswith("error: ")]
    assert "was trained with model.init_args.network.init_args.depth=2" in line


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut short"])
@pytest.mark.parametrize("command", ["fit", "test"])
def test_a_damaged_checkpoint(run, workspace, command, content):
    (workspace / "x.ckpt").write_bytes(content)
    code, _, err = run(f"{QUICK.replace('fit', command, 1)} --ckpt_path x.ckpt")
    assert code == 2
    assert "error: x.ckpt is damaged, or no checkpoint of this application" in err


def test_another_learning_rate_is_not_dropped_in_silence(run, workspace):
    small = "--model.init_args.network.init_args.width=8 --model.init_args.network.init_args.depth=2"
    assert run(f"{QUICK} --trainer.max_epochs=1 {small}")[0] == 0
    lr = "--model.init_args.optimizer.init_args.lr=0.5"
    code, _, err = run(f"{QUICK} --trainer.max_epochs=2 {small} --ckpt_path last {lr}")
    assert code == 2
    assert "optimizer.init_args.lr=0.001, not 0.5" in err
    code, _, err = run(f"{QUICK} --trainer.max_epochs=2 {small} --ckpt_path last")
    assert code == 0, err


def test_a_run_that_fails_ends_with_1(run, workspace):
    small = "--model.init_args.network.init_args.width=8 --model.init_args.network.init_args.depth=2"
    code, _, err = run(
        f"{QUICK} --trainer.max_epochs=2 {small} --model.init_args.optimizer.init_args.lr=1e38"
    )
    (line,) = [text for text in err.splitlines() if text.startswith("error: ")]
    assert code == 1
    assert "not finite" in line


def test_debug_shows_the_traceback(run):
    with pytest.raises(ValueError, match="depth must be at least 1"):
        run(f"{QUICK} {NETWORK}.depth=-1 --debug")
