import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from datamodules.batches import Batches, ShuffledBatches


def numbered(count: int) -> tuple[Tensor, Tensor]:
    return torch.arange(count).float()[:, None], torch.arange(count)


@st.composite
def evaluations(draw) -> tuple[int, int, int]:
    world = draw(st.integers(1, 5))
    return draw(st.integers(world, 200)), world * draw(st.integers(1, 40)), world


@settings(deadline=None, max_examples=100)
@given(evaluations())
def test_every_sample_once_in_equal_numbers_of_batches(case):
    count, batch_size, world = case
    loaders = [Batches(numbered(count), batch_size, rank, world) for rank in range(world)]
    parts = [list(loader) for loader in loaders]
    assert {len(part) for part in parts} == {len(loader) for loader in loaders} == {len(loaders[0])}
    sizes = [len(y) for part in parts for _, y in part]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 2
    seen = torch.cat([y for part in parts for _, y in part])
    assert seen.sort().values.tolist() == list(range(count))
    assert all(torch.equal(x[:, 0].long(), y) for part in parts for x, y in part)
    if batch_size >= 2 * world:
        assert max(sizes) <= batch_size // world + 1


def test_one_process_evaluates_in_order_and_within_the_batch_size():
    batches = list(Batches(numbered(33), 8))
    assert torch.cat([y for _, y in batches]).tolist() == list(range(33))
    assert [len(y) for _, y in batches] == [7, 7, 7, 6, 6]


@st.composite
def trainings(draw) -> tuple[int, int, int, int, int]:
    world = draw(st.integers(1, 4))
    batch_size = world * draw(st.integers(1, 8))
    return (
        draw(st.integers(batch_size, 120)),
        batch_size,
        world,
        draw(st.integers(0, 9)),
        draw(st.integers(0, 9)),
    )


@settings(deadline=None, max_examples=100)
@given(trainings())
def test_ranks_share_each_global_batch_of_one_permutation(case):
    count, batch_size, world, seed, epoch = case
    alone = ShuffledBatches(numbered(count), batch_size, seed=seed)
    ranks = [ShuffledBatches(numbered(count), batch_size, rank, world, seed) for rank in range(world)]
    for loader in (alone, *ranks):
        loader.sampler.set_epoch(epoch)
        assert len(loader) == count // batch_size
    whole = [y for _, y in alone]
    assert len(whole) == len(alone)
    assert len(torch.cat(whole).unique()) == len(alone) * batch_size
    for position, parts in enumerate(zip(*ranks, strict=True)):
        shares = [y for _, y in parts]
        assert {len(y) for y in shares} == {batch_size // world}
        assert torch.cat(shares).sort().values.equal(whole[position].sort().values)


def order(seed: int, epoch: int) -> list[int]:
    loader = ShuffledBatches(numbered(50), 10, seed=seed)
    loader.set_epoch(epoch)
    return torch.cat([y for _, y in loader]).tolist()


def test_epochs_and_seeds_differ_and_repeat():
    assert order(0, 0) == order(0, 0)
    orders = [order(seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({tuple(o) for o in orders}) == 9
    assert all(sorted(o) == list(range(50)) for o in orders)


def test_the_order_ignores_and_leaves_alone_the_global_random_state():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = order(0, 0)
    assert torch.get_rng_state().equal(state)
    torch.manual_seed(2)
    assert order(0, 0) == first


def test_the_epoch_may_be_set_after_the_iterator_is_made():
    loader = ShuffledBatches(numbered(50), 10)
    iterator = iter(loader)
    loader.set_epoch(3)
    assert torch.cat([y for _, y in iterator]).tolist() == order(0, 3)


def resumed(state: dict[str, int], epoch: int) -> list[int]:
    loader = ShuffledBatches(numbered(50), 10)
    loader.load_state_dict(state)
    loader.set_epoch(epoch)
    return [y for _, batch in loader for y in batch.tolist()]


def test_a_resumed_epoch_goes_on_at_the_next_batch():
    loader = ShuffledBatches(numbered(50), 10)
    loader.set_epoch(2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    assert loader.state_dict()["position"] == 2
    assert resumed(loader.state_dict(), 2) == order(0, 2)[20:]
    assert resumed(loader.state_dict(), 3) == order(0, 3)
    again = ShuffledBatches(numbered(50), 10)
    again.load_state_dict(loader.state_dict())
    again.set_epoch(2)
    assert len(list(again)) == 3
    assert len(list(again)) == len(again) == 5  # only the first iteration is short


def test_the_state_of_a_finished_epoch_starts_a_whole_one():
    loader = ShuffledBatches(numbered(50), 10)
    list(loader)
    assert resumed(loader.state_dict(), 0) == order(0, 0)
    loader.set_epoch(1)
    assert loader.state_dict()["position"] == 0


def test_a_batch_interrupted_in_its_step_is_repeated():
    loader = ShuffledBatches(numbered(50), 10, trained=lambda: 1)
    iterator = iter(loader)
    next(iterator), next(iterator)
    assert loader.state_dict()["position"] == 1


@pytest.mark.parametrize(("name", "value"), [("seed", 4), ("batch_size", 5), ("num_samples", 49)])
def test_a_changed_loader_does_not_resume_inside_an_epoch(name, value):
    loader = ShuffledBatches(numbered(50), 10)
    next(iter(loader))
    with pytest.raises(ValueError, match=rf"^{name} must stay \d+ to resume a run inside an epoch, got \d+$"):
        resumed({**loader.state_dict(), name: value}, 0)
    assert resumed({**loader.state_dict(), name: value}, 1) == order(0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (
            {"batch_size": 3, "world_size": 2},
            r"batch_size must be divisible by the number of ranks \(2\), got 3",
        ),
        ({"batch_size": 12, "world_size": 12}, "every rank needs a sample: 12 ranks, got 9 samples"),
        ({"batch_size": 2, "world_size": 2, "rank": 2}, "rank must lie in 0 … 1, got 2"),
        ({"batch_size": 10}, "batch_size must be at most 9, the training samples, got 10"),
    ],
)
def test_bad_sizes_are_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        ShuffledBatches(numbered(9), **arguments)


def test_tensors_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^tensors must be of one length, got \[3, 4\]$"):
        Batches((torch.zeros(3), torch.zeros(4)), 2)
