import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from app.callbacks import GradientNorms, NonFiniteError, NonFiniteGuard, read_diagnostics
from app.callbacks.nonfinite import all_finite


def poison(module, step, what):
    """Makes something NaN or infinite in the update after ``step``."""
    inner = module.training_step

    def training_step(batch, batch_idx):
        weight = module.network.layers[1].linear.weight
        if what == "weight" and module.global_step == step:
            with torch.no_grad():
                weight[0, 0] = torch.nan
        loss = inner(batch, batch_idx)
        if module.global_step != step:
            return loss
        if what == "gradient":
            return loss + 0 * (weight[0, 0] - weight[0, 0].detach()).sqrt()
        return loss * float("nan") if what == "loss" else loss

    module.training_step = training_step


@pytest.mark.parametrize("what", ["weight", "gradient", "loss"])
@pytest.mark.parametrize("every", [1, 1000])
def test_a_run_ends_with_the_name_and_without_a_bad_checkpoint(
    make_module, make_trainer, data, tmp_path, what, every
):
    module = make_module()
    poison(module, 9, what)
    saver = ModelCheckpoint(tmp_path, filename="best", monitor="val/loss", save_last=True)
    trainer = make_trainer(
        [GradientNorms(), NonFiniteGuard(), saver], log_every_n_steps=every, enable_checkpointing=True
    )
    with pytest.raises(NonFiniteError, match="is not finite at step") as caught:
        trainer.fit(module, data)
    # Seen at the step itself, or, where no step is a logging step, before the next validation.
    assert caught.value.step == (9 if every == 1 else 12)
    if what == "weight":
        # All gradients of that step are NaN, and with them all parameters after it; the first one is named.
        first = "network.layers.1.linear.weight" if every == 1 else "network.encoder.weight"
        assert caught.value.name == first
    if what == "gradient" and every == 1:
        assert caught.value.name == "the gradient of network.layers.1.linear.weight"
    for name in ("best.ckpt", "last.ckpt"):
        saved = torch.load(tmp_path / name, weights_only=True)
        assert all_finite([v.float() for v in saved["state_dict"].values()])
        assert saved["global_step"] == 6
    assert "warnings/nonfinite" in set(read_diagnostics(tmp_path)["metric"])


def test_no_checkpoint_of_numbers_that_are_not_finite(make_module, make_trainer, data, tmp_path):
    module = make_module()
    trainer = make_trainer([NonFiniteGuard()], max_steps=1)
    trainer.fit(module, data)
    module.network.head.bias.data[1] = float("inf")
    with pytest.raises(NonFiniteError, match=r"network.head.bias is not finite at step 1;"):
        trainer.save_checkpoint(tmp_path / "bad.ckpt")
    assert not (tmp_path / "bad.ckpt").exists()


def test_all_finite():
    assert all_finite([torch.tensor([1e38, -3e38]), torch.zeros(0), torch.tensor([6e4], dtype=torch.float16)])
    assert not all_finite([torch.zeros(2), torch.tensor([1.0, torch.nan])])
    assert not all_finite([torch.tensor([-torch.inf])])
