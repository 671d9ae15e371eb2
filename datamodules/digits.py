"""The handwritten digits that scikit-learn carries: real images, no download."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from datamodules.batches import Tensors
from datamodules.images import InMemoryImages
from datamodules.splits import fraction_of, stratified_split

TEST_IMAGES = 359  # a fifth of 1,797, and odd: two ranks cannot share them evenly
SPLIT_SEED = 0


class Digits(InMemoryImages):
    """1,797 images of 8 × 8 pixels with values 0 … 16, in ten classes.

    The split into training, validation and test is stratified and always the same, whatever the seed: there
    is no official one, and runs with different seeds are compared on the same images.

    Args:
        batch_size: images an optimizer step over all ranks together; a multiple of their number, ≥ 1.
        seed: of the order of training images, ≥ 0.
        val_fraction: share of the 1,438 images beside the test set held back for validation, in (0, 1).
        train_samples: train on no more than so many images, drawn in the proportions of the classes.
        normalise: subtract mean 0.3052 and divide by the standard deviation 0.3760 of all pixels.

    Raises:
        ValueError: an argument is out of range.

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998 (its test part).
    """

    input_shape = (1, 8, 8)
    num_outputs = 10
    pixel_max = 16
    mean = (0.3052,)
    std = (0.3760,)

    def __init__(
        self,
        batch_size: int = 128,
        seed: int = 0,
        val_fraction: float = 0.1,
        train_samples: int | None = None,
        normalise: bool = True,
    ) -> None:
        super().__init__(batch_size, seed, val_fraction, train_samples, normalise)

    def training_images(self) -> tuple[Tensor, Tensor]:
        """Returns the 1,438 images that are not test images."""
        x, y = _images()
        rest, _ = stratified_split(y, TEST_IMAGES, SPLIT_SEED)
        return x[rest], y[rest]

    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Splits the training images without regard to the seed."""
        x, y = self.training_images()
        train, val = stratified_split(y, fraction_of(len(y), self.val_fraction), SPLIT_SEED)
        return self.limited(x[train], y[train]), (x[val], y[val])

    def test_data(self) -> Tensors:
        """Returns the 359 test images."""
        x, y = _images()
        _, test = stratified_split(y, TEST_IMAGES, SPLIT_SEED)
        return x[test], y[test]


@cache
def _images() -> tuple[Tensor, Tensor]:
    digits = load_digits()
    return torch.from_numpy(digits.images).to(torch.uint8)[:, None], torch.from_numpy(digits.target).long()
