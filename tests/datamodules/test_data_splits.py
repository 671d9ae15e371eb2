import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.splits import fraction_of, stratified_split


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 6), min_size=2, max_size=150), st.floats(0.01, 0.99), st.integers(0, 2**40))
def test_a_split_is_a_partition_in_the_proportions_of_the_classes(classes, fraction, seed):
    labels = torch.tensor(classes)
    size = fraction_of(len(labels), fraction)
    rest, drawn = stratified_split(labels, size, seed)
    assert len(drawn) == size
    assert torch.cat([rest, drawn]).sort().values.tolist() == list(range(len(labels)))
    expected = labels.bincount() * size / len(labels)
    assert ((labels[drawn].bincount(minlength=len(expected)) - expected).abs() <= 1).all()


def test_the_seed_decides():
    labels = torch.arange(100) % 5
    _, first = stratified_split(labels, 20, 0)
    assert stratified_split(labels, 20, 0)[1].equal(first)
    assert not stratified_split(labels, 20, 1)[1].equal(first)
    assert labels[first].bincount().tolist() == [4] * 5


def test_every_sample_can_be_drawn():
    labels = torch.arange(20) % 4
    drawn = torch.cat([stratified_split(labels, 4, seed)[1] for seed in range(200)])
    assert drawn.bincount(minlength=20).min() > 15  # 40 on average


@pytest.mark.parametrize("size", [0, 10, 11])
def test_no_part_is_empty(size):
    with pytest.raises(
        ValueError, match=rf"^the size of a split of 10 samples must lie in 1 … 9, got {size}$"
    ):
        stratified_split(torch.zeros(10, dtype=torch.int64), size, 0)
