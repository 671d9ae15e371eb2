"""Loaders that cut tensors in memory into batches, one indexed slice a batch, shared between ranks.

Neither class is a ``DataLoader``: there is nothing to collate and no worker to feed, and Lightning leaves the
sharding of a plain iterable alone, so ranks are told apart here and without the padding of a
``DistributedSampler``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

Tensors = tuple[Tensor, ...]


class Batches:
    """Every sample once over all ranks, in order, in equal numbers of batches on every rank.

    Rank r of R holds the samples r, r + R, r + 2R, … and cuts them into k = ⌈N / batch_size⌉ parts whose
    sizes differ by one at most. No sample is repeated, none is left out and no batch is empty, so a
    collective operation in each batch meets its partners on all ranks.

    Args:
        tensors: the samples, e.g. ``(x, y)``, each ``[N, ...]``.
        batch_size: samples a batch over all ranks together.
        rank: this process, in 0 … world_size − 1.
        world_size: how many processes share the samples.

    Raises:
        ValueError: the tensors are empty or differ in N, there are fewer samples than ranks, or
            ``batch_size`` is not a positive multiple of ``world_size``.
    """

    def __init__(
        self, tensors: Sequence[Tensor], batch_size: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self.tensors = tuple(tensors)
        sizes = [len(tensor) for tensor in self.tensors]
        if not sizes or len(set(sizes)) > 1:
            raise ValueError(f"tensors must be of one length, got {sizes}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0 … {world_size - 1}, got {rank}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if batch_size % world_size:
            raise ValueError(
                f"batch_size must be divisible by the number of ranks ({world_size}), got {batch_size}"
            )
        if sizes[0] < world_size:
            raise ValueError(f"every rank needs a sample: {world_size} ranks, got {sizes[0]} samples")
        self.num_samples = sizes[0]
        self.batch_size = batch_size
        self.rank = rank
        self.world_size = world_size

    def __len__(self) -> int:
        """The number of batches, the same on every rank."""
        # The second bound matters for batches of one sample a rank: the smallest share must fill every batch.
        return min(-(-self.num_samples // self.batch_size), self.num_samples // self.world_size)

    def __iter__(self) -> Iterator[Tensors]:
        own = torch.arange(self.rank, self.num_samples, self.world_size)
        for index in own.tensor_split(len(self)):
            yield self._slice(index)

    def _slice(self, index: Tensor) -> Tensors:
        return tuple(tensor[index] for tensor in self.tensors)


class ShuffledBatches(Batches):
    """A permutation of the samples for each epoch, from which each rank draws its part of each global batch.

    The permutation depends on ``seed`` and epoch alone: it is the same on all ranks, and the b-th global
    batch holds the same samples for every number of ranks. The last N mod ``batch_size`` samples of the
    permutation wait for the next epoch.

    Stateful: a checkpoint of Lightning that is written inside an epoch holds ``state_dict()``, and the loader
    that is given it back continues at the next batch.

    Args:
        tensors: the samples, e.g. ``(x, y)``, each ``[N, ...]``.
        batch_size: samples a batch over all ranks together, at most N.
        rank: this process, in 0 … world_size − 1.
        world_size: how many processes share the samples.
        seed: of the permutations, ≥ 0.
        trained: says how many batches of the running epoch have been trained on to the end. A batch that was
            handed out but interrupted in its step is then repeated after a resume. All of them by default.

    Raises:
        ValueError: as for ``Batches``, or ``batch_size`` exceeds N.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        trained: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(tensors, batch_size, rank, world_size)
        if batch_size > self.num_samples:
            raise ValueError(
                f"batch_size must be at most {self.num_samples}, the training samples, got {batch_size}"
            )
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._trained = trained
        self._resumed: Mapping[str, int] | None = None

    @property
    def sampler(self) -> "ShuffledBatches":
        """Itself: Lightning calls ``set_epoch`` on the ``sampler`` of a loader."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Chooses the permutation that the next iteration draws from."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.position = 0

    def __len__(self) -> int:
        """The number of whole batches in an epoch, also when a part of it is already done."""
        return self.num_samples // self.batch_size

    def permutation(self) -> Tensor:
        """Returns the order of this epoch's samples, ``[N]`` int64, the same on all ranks."""
        (state,) = np.random.SeedSequence((self.seed, self.epoch)).generate_state(1, np.uint64)
        # On the CPU whatever the default device: every rank draws the same on any hardware.
        generator = torch.Generator(device="cpu").manual_seed(int(state) >> 1)
        return torch.randperm(self.num_samples, generator=generator, device="cpu")

    def __iter__(self) -> Iterator[Tensors]:
        # A generator: Lightning makes the iterator first and only then sets the epoch and asks for a batch.
        start, self._resumed = self._start(), None
        whole = self.permutation()[: len(self) * self.batch_size].view(len(self), self.batch_size)
        own = whole[:, self.rank :: self.world_size]
        for position in range(start, len(self)):
            self.position = position + 1
            yield self._slice(own[position])

    def state_dict(self) -> dict[str, int]:
        """Returns where the running epoch is: plain integers, the same on all ranks."""
        position = self.position if self._trained is None else min(self.position, self._trained())
        return {"epoch": self.epoch, "position": position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Lets the next iteration continue there, if it is of the same epoch."""
        self._resumed = dict(state)

    def _identity(self) -> dict[str, int]:
        return {"seed": self.seed, "batch_size": self.batch_size, "num_samples": self.num_samples}

    def _start(self) -> int:
        state = self._resumed
        if state is None or state["epoch"] != self.epoch or not 0 < state["position"] < len(self):
            return 0
        for name, value in self._identity().items():
            if state[name] != value:
                raise ValueError(
                    f"{name} must stay {state[name]} to resume a run inside an epoch, got {value}"
                )
        return state["position"]


class FreshBatches(ShuffledBatches):
    """As its base, of samples that are drawn anew for every epoch.

    What an epoch holds depends on its number alone, so that a run that is resumed inside it goes on with the
    same samples.

    Args:
        draw: epoch → samples, always as many; called for epoch 0 at once, to count them, and as each begins.
        batch_size: see ``ShuffledBatches``.
        rank: see ``Batches``.
        world_size: see ``Batches``.
        seed: see ``ShuffledBatches``.
        trained: see ``ShuffledBatches``.

    Raises:
        ValueError: as for ``ShuffledBatches``.
    """

    def __init__(
        self,
        draw: Callable[[int], Tensors],
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        trained: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(draw(0), batch_size, rank, world_size, seed, trained)
        self._draw = draw

    def __iter__(self) -> Iterator[Tensors]:
        self.tensors = self._draw(self.epoch)
        yield from super().__iter__()
