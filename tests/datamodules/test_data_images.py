import pytest
import torch
from torch import Tensor

from datamodules.augment import crop_and_flip
from datamodules.images import InMemoryImages


class Colours(InMemoryImages):
    input_shape = (3, 6, 6)
    num_outputs = 4
    mean = (0.1, 0.5, 0.6)
    std = (0.5, 0.2, 0.25)
    padding = 2

    def training_images(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(256, (64, 3, 6, 6), generator=generator, dtype=torch.uint8), torch.arange(64) % 4

    def test_data(self) -> tuple[Tensor, Tensor]:
        x, y = self.training_images()
        return x[:5], y[:5]


def shown(task: InMemoryImages, trainer) -> list[Tensor]:
    task.trainer = trainer
    task.setup("fit")
    loader = task.train_dataloader()
    return [task.on_after_batch_transfer(batch, 0)[0] for batch in loader]


def test_images_are_normalised_by_channel():
    task = Colours()
    x = task.training_images()[0]
    out, _y = task.on_after_batch_transfer((x, torch.zeros(64)), 0)
    assert out.dtype == torch.float32
    expected = (x.double() / 255 - torch.tensor(task.mean).double().view(3, 1, 1)) / torch.tensor(
        task.std
    ).double().view(3, 1, 1)
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)
    assert task.input_lipschitz == pytest.approx(5.0)


def test_images_may_stay_between_0_and_1():
    task = Colours(normalise=False)
    x = torch.tensor([0, 51, 255], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 6, 6)
    out, _ = task.on_after_batch_transfer((x, torch.zeros(1)), 0)
    torch.testing.assert_close(out[0, :, 0, 0], torch.tensor([0.0, 0.2, 1.0]))
    assert task.input_lipschitz == 1


def test_distances_grow_by_no_more_than_the_lipschitz_constant():
    task = Colours()
    a, b = task.training_images()[0].split(32)
    raw = (a.double() - b.double()).flatten(1).norm(dim=1) / 255
    seen = (task.scaled(a).double() - task.scaled(b).double()).flatten(1).norm(dim=1)
    assert (seen <= raw * task.input_lipschitz * (1 + 1e-6)).all()
    only = torch.zeros(1, 3, 6, 6, dtype=torch.uint8)
    other = only.clone()
    other[:, 1] = 255  # the channel of the least deviation reaches the constant
    ratio = (task.scaled(other) - task.scaled(only)).norm() / 6
    assert float(ratio) == pytest.approx(task.input_lipschitz)


def test_a_crop_is_a_window_of_the_padded_image_mirrored_or_not():
    x = torch.arange(1, 1 + 200 * 2 * 4 * 5).view(200, 2, 4, 5)
    out = crop_and_flip(x, 1, torch.Generator().manual_seed(0))
    assert out.shape == x.shape
    assert out.dtype == x.dtype
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    places = []
    for image, cut in zip(padded, out, strict=True):
        for u in range(3):
            for v in range(3):
                window = image[:, u : u + 4, v : v + 5]
                places += [(u, v, False)] if window.equal(cut) else []
                places += [(u, v, True)] if window.flip(2).equal(cut) else []
    assert len(places) == 200
    assert len(set(places)) == 18  # every place and both sides occur


def test_no_padding_only_mirrors():
    x = torch.rand(50, 1, 3, 3)
    out = crop_and_flip(x, 0, torch.Generator().manual_seed(0))
    same = (out == x).flatten(1).all(1)
    assert (same | (out == x.flip(3)).flatten(1).all(1)).all()
    assert 10 < same.sum() < 40


def test_only_training_images_are_augmented(one_of):
    plain = torch.cat(shown(Colours(16, augment=False), one_of(0, 1, training=True)))
    assert torch.cat(shown(Colours(16), one_of(0, 1))).equal(plain)
    assert not torch.cat(shown(Colours(16), one_of(0, 1, training=True))).equal(plain)
    alone = Colours(16)
    alone.setup()
    assert torch.cat([alone.on_after_batch_transfer(b, 0)[0] for b in alone.train_dataloader()]).equal(plain)


def test_augmentation_repeats_by_seed_and_differs_by_batch_and_epoch(one_of):
    def drawn(seed: int, epoch: int, position: int, rank: int = 0) -> list[int]:
        task = Colours(16, seed)
        task.trainer = one_of(rank, 2, training=True)
        task.setup("fit")
        loader = task.train_dataloader()
        loader.epoch, loader.position = epoch, position
        return torch.randint(2**40, (3,), generator=task._generator(torch.device("cpu"))).tolist()

    keys = [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2), (0, 0, 1, 1)]
    assert len({tuple(drawn(*key)) for key in keys}) == len(keys)
    torch.manual_seed(0)
    first = drawn(0, 0, 1)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert drawn(0, 0, 1) == first
    assert torch.get_rng_state().equal(state)


def test_the_validation_split_follows_the_seed():
    parts = []
    for seed in (0, 0, 1):
        task = Colours(8, seed, val_fraction=0.25)
        task.setup("fit")
        assert len(task.train_set[0]) == 48
        assert task.val_set[1].bincount().tolist() == [4] * 4
        parts.append(task.val_set[0])
    assert parts[0].equal(parts[1])
    assert not parts[0].equal(parts[2])


def test_the_training_set_can_be_limited():
    task = Colours(8, train_samples=20, val_fraction=0.25)
    task.setup("fit")
    assert task.train_set[1].bincount().tolist() == [5] * 4
    assert len(task.val_set[0]) == 16
    whole = Colours(8, train_samples=48, val_fraction=0.25)
    whole.setup("fit")
    assert len(whole.train_set[0]) == 48
    with pytest.raises(ValueError, match=r"^train_samples must be at most 48, got 49$"):
        Colours(8, train_samples=49, val_fraction=0.25).setup("fit")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"val_fraction": 0.0}, r"val_fraction must lie between 0 and 1, got 0\.0"),
        ({"val_fraction": 1.0}, r"val_fraction must lie between 0 and 1, got 1\.0"),
        ({"train_samples": 0}, "train_samples must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Colours(**arguments)


def test_a_batch_that_ranks_cannot_share_is_refused_at_setup(one_of):
    task = Colours(9)
    task.trainer = one_of(0, 2)
    with pytest.raises(
        ValueError, match=r"^batch_size must be divisible by the number of ranks \(2\), got 9$"
    ):
        task.setup("fit")


def test_loaders_need_the_data():
    with pytest.raises(RuntimeError, match=r"call prepare_data\(\) and setup\('fit'\) first$"):
        Colours().train_dataloader()
