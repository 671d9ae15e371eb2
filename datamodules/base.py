"""The base of every task whose data fit into memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from lightning.pytorch import LightningDataModule

from datamodules.batches import Batches, ShuffledBatches, Tensors


class InMemory(LightningDataModule, ABC):
    """Three sets of tensors and their loaders: training shuffled and cut, the others in order and whole.

    A task says how its data come into being: ``fit_data`` and ``test_data``. The test set is made or opened
    only for ``test`` and ``predict``. Batches are tuples as the sets are, ``(x, y)``.

    Args:
        batch_size: samples an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training samples (and of whatever the task draws), ≥ 0.

    Attributes:
        input_shape: shape of one ``x`` without the batch dimension, known after construction.
        num_outputs: number of classes, or dimension of the output, known after construction.

    Raises:
        ValueError: an argument is out of range.
    """

    input_shape: Sequence[int]
    num_outputs: int

    def __init__(self, batch_size: int = 128, seed: int = 0) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        self.batch_size = batch_size
        self.seed = seed
        self.train_set: Tensors | None = None
        self.val_set: Tensors | None = None
        self.test_set: Tensors | None = None
        self._training: ShuffledBatches | None = None

    @abstractmethod
    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Returns the training and the validation set, tensors ``[N, ...]`` on the CPU."""

    @abstractmethod
    def test_data(self) -> Tensors:
        """Returns the test set, tensors ``[N, ...]`` on the CPU."""

    def setup(self, stage: str | None = None) -> None:
        """Loads what the stage needs and is not yet there; ``None`` loads everything."""
        _, world_size = self._share()
        if self.batch_size % world_size:
            raise ValueError(
                f"batch_size must be divisible by the number of ranks ({world_size}), got {self.batch_size}"
            )
        if stage in ("fit", "validate", None) and self.train_set is None:
            self.train_set, self.val_set = self.fit_data()
        if stage in ("test", "predict", None) and self.test_set is None:
            self.test_set = self.test_data()

    def train_dataloader(self) -> Batches:
        """Returns this rank's part of the shuffled training set."""
        tensors = _loaded(self.train_set, "fit")
        # Lightning sets this attribute at run time only, where mypy cannot see it.
        if self.trainer is not None and self.trainer.overfit_batches > 0:  # type: ignore[attr-defined]
            # The same few batches again and again; Lightning can take the shuffling from a DataLoader only.
            return Batches(tensors, self.batch_size, *self._share())
        trained = None if self.trainer is None else self._batches_trained
        self._training = self.training_batches(tensors, trained)
        return self._training

    def training_batches(self, tensors: Tensors, trained: Callable[[], int] | None) -> ShuffledBatches:
        """Makes the loader of the training set; ``trained`` as in ``ShuffledBatches``."""
        return ShuffledBatches(tensors, self.batch_size, *self._share(), self.seed, trained)

    def val_dataloader(self) -> Batches:
        """Returns this rank's part of the validation set."""
        return Batches(_loaded(self.val_set, "validate"), self.batch_size, *self._share())

    def test_dataloader(self) -> Batches:
        """Returns this rank's part of the test set."""
        return Batches(_loaded(self.test_set, "test"), self.batch_size, *self._share())

    def predict_dataloader(self) -> Batches:
        """Returns this rank's part of the test set, in order."""
        return Batches(_loaded(self.test_set, "predict"), self.batch_size, *self._share())

    def _share(self) -> tuple[int, int]:
        return (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)

    def _batches_trained(self) -> int:
        assert self.trainer is not None  # asked by the loader of a running fit only
        progress = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return int(progress.processed)  # type: ignore[attr-defined]  # declared as its base class


def _loaded(tensors: Tensors | None, stage: str) -> Tensors:
    if tensors is None:
        raise RuntimeError(f"the data are not loaded: call prepare_data() and setup({stage!r}) first")
    return tensors
