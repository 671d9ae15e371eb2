import torch
from sklearn.datasets import load_digits

from datamodules import Digits


def loaded(**arguments) -> Digits:
    task = Digits(**arguments)
    task.prepare_data()
    task.setup()
    return task


def test_the_split_is_stratified_odd_and_the_same_for_every_seed():
    first, second = loaded(seed=0), loaded(seed=7)
    for part in ("train_set", "val_set", "test_set"):
        assert all(a.equal(b) for a, b in zip(getattr(first, part), getattr(second, part), strict=True))
    sizes = [len(part[0]) for part in (first.train_set, first.val_set, first.test_set)]
    assert sizes == [1294, 144, 359]
    counts = torch.from_numpy(load_digits().target).bincount()
    for _, y in (first.train_set, first.val_set, first.test_set):
        # Two splits after each other round twice.
        assert (y.bincount() - counts * len(y) / 1797).abs().max() <= 2
    assert not torch.cat([y for _, y in first.train_dataloader()]).equal(
        torch.cat([y for _, y in second.train_dataloader()])
    )


def test_the_parts_together_are_the_data():
    task = loaded()
    images = torch.cat([part[0] for part in (task.train_set, task.val_set, task.test_set)])
    assert images.dtype == torch.uint8
    assert images.shape == (1797, *Digits.input_shape)

    def rows(x: torch.Tensor) -> list[tuple[int, ...]]:
        return sorted(tuple(row) for row in x.flatten(1).tolist())

    assert rows(images) == rows(torch.from_numpy(load_digits().images).to(torch.uint8))


def test_the_constants_are_those_of_the_pixels():
    pixels = torch.from_numpy(load_digits().images) / 16
    assert abs(float(pixels.mean()) - Digits.mean[0]) < 1e-4
    assert abs(float(pixels.std()) - Digits.std[0]) < 2e-4
    task = loaded(batch_size=1294)
    x, _ = task.on_after_batch_transfer(next(iter(task.train_dataloader())), 0)
    assert abs(float(x.mean())) < 0.01
    assert abs(float(x.std()) - 1) < 0.01
    unscaled, _ = loaded(normalise=False).on_after_batch_transfer(task.test_set, 0)
    assert unscaled.aminmax() == (0, 1)


def test_each_test_image_once_on_1_2_and_3_ranks(one_of):
    for world in (1, 2, 3):
        seen = []
        for rank in range(world):
            task = Digits(batch_size=60)
            task.trainer = one_of(rank, world)
            task.setup("test")
            seen += list(task.test_dataloader())
        assert sum(len(y) for _, y in seen) == 359
        everything = torch.cat([x for x, _ in seen]).flatten(1).double()
        assert everything.sum(0).equal(task.test_set[0].flatten(1).double().sum(0))


def test_a_stage_loads_what_it_needs_only():
    task = Digits()
    task.setup("fit")
    assert task.test_set is None
    other = Digits()
    other.setup("predict")
    assert other.train_set is None
    assert torch.cat([y for _, y in other.predict_dataloader()]).equal(other.test_set[1])
