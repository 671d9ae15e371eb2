"""Synthetic tasks with a known answer: products, tasks without one, and two that are neither."""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.base import InMemory
from datamodules.batches import Tensors

SELECTION_ERROR = 1e-5  # stable-nalu's: how far off a selection of inputs may be in a success


class AnswerTask(InMemory):
    """y = answer(x) of inputs drawn from U(low, high), float32: x [N, dimension], y [N, 1].

    Validation is on fresh samples of the training range, the test on another range: extrapolation. Answers of
    both are exact; noise is added to training answers alone.

    Args:
        dimension: inputs, of which a task may use a few.
        low, high: the range of training and validation inputs; negative to positive is signed.
        test_low, test_high: the range of test inputs.
        zero_fraction: share of the inputs that are set to zero, in [0, 1).
        noise: standard deviation of what is added to training answers, ≥ 0.
        train_samples, val_samples, test_samples: ≥ 1.
        batch_size: as in ``InMemory``.
        seed: of the samples and of their order.

    Raises:
        ValueError: an argument is out of range, or the answer is not defined on a range.
    """

    least_dimension = 2

    def __init__(
        self,
        dimension: int = 4,
        low: float = 0.5,
        high: float = 2.0,
        test_low: float = 2.0,
        test_high: float = 6.0,
        zero_fraction: float = 0.0,
        noise: float = 0.0,
        train_samples: int = 4000,
        val_samples: int = 1000,
        test_samples: int = 1000,
        batch_size: int = 250,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size, seed)
        if dimension < self.least_dimension:
            raise ValueError(f"dimension must be at least {self.least_dimension}, got {dimension}")
        for name, lower, upper in (("high", low, high), ("test_high", test_low, test_high)):
            if lower >= upper:
                raise ValueError(f"{name} must be above the lower end {lower}, got {upper}")
        if not 0 <= zero_fraction < 1:
            raise ValueError(f"zero_fraction must be in [0, 1), got {zero_fraction}")
        if noise < 0:
            raise ValueError(f"noise must be at least 0, got {noise}")
        counts = {"train_samples": train_samples, "val_samples": val_samples, "test_samples": test_samples}
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        self.dimension = dimension
        self.range, self.test_range = (low, high), (test_low, test_high)
        self.zero_fraction = zero_fraction
        self.check_range(low, high)
        self.check_range(test_low, test_high)
        self.noise = noise
        self.train_samples, self.val_samples, self.test_samples = train_samples, val_samples, test_samples
        self.input_shape = (dimension,)
        self.num_outputs = 1

    def check_range(self, low: float, high: float) -> None:
        """Raises ValueError where the answer is not defined between low and high."""

    @abstractmethod
    def answer(self, x: Tensor) -> Tensor:
        """[N, dimension] → [N]."""

    def draw(self, samples: int, limits: tuple[float, float], generator: torch.Generator) -> Tensor:
        """Inputs [samples, dimension] between two limits."""
        return limits[0] + (limits[1] - limits[0]) * torch.rand(samples, self.dimension, generator=generator)

    def _set(self, samples: int, limits: tuple[float, float], which: int, noise: float = 0.0) -> Tensors:
        # Each set has a stream of its own, so that the size of one does not change another.
        generator = torch.Generator().manual_seed(3 * self.seed + which)
        x = self.draw(samples, limits, generator)
        if self.zero_fraction:
            x = torch.where(torch.rand(x.shape, generator=generator) < self.zero_fraction, 0.0, x)
        y = self.answer(x).unsqueeze(1)
        if noise:
            y = y + noise * torch.randn(y.shape, generator=generator)
        return x, y

    def fit_data(self) -> tuple[Tensors, Tensors]:
        """Training samples, noisy, and validation samples, exact, of one range."""
        train = self._set(self.train_samples, self.range, 0, self.noise)
        return train, self._set(self.val_samples, self.range, 1)

    def test_data(self) -> Tensors:
        """Test samples of the other range, exact."""
        return self._set(self.test_samples, self.test_range, 2)

    def floors(self) -> Mapping[str, float]:
        """Mean squared validation error of the training mean, of the best affine map and of the answer."""
        (x, y), (val_x, val_y) = self.fit_data()
        design, val_design = _affine(x), _affine(val_x)
        affine = val_design @ torch.linalg.lstsq(design, y.double()).solution
        return {
            "mean": (val_y - y.mean()).square().mean().item(),
            "affine": (val_y - affine).square().mean().item(),
            "answer": 0.0,
        }

    def success_error(self) -> float:
        """Mean squared test error of the answer to inputs mixed by 1e-5: below it is a success.

        xᵢ becomes xᵢ + 1e-5 Σⱼ xⱼ: what a selection of inputs makes whose weights are all off by 1e-5.
        """
        x = self.test_data()[0].double()
        mixed = x + SELECTION_ERROR * x.sum(dim=1, keepdim=True)
        return (self.answer(mixed) - self.answer(x)).square().mean().item()


def _affine(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1).double()


class PairProduct(AnswerTask):
    """x₁x₂."""

    def answer(self, x: Tensor) -> Tensor:
        """x₁x₂."""
        return x[:, 0] * x[:, 1]


class TripleProduct(AnswerTask):
    """x₁x₂x₃."""

    least_dimension = 3

    def answer(self, x: Tensor) -> Tensor:
        """x₁x₂x₃."""
        return x[:, :3].prod(dim=1)


class Ratio(AnswerTask):
    """x₁/x₂, of positive inputs."""

    def check_range(self, low: float, high: float) -> None:
        """Raises ValueError unless all inputs are positive."""
        if low <= 0 or self.zero_fraction:
            raise ValueError(
                f"low must be above 0 and zero_fraction 0 for a ratio, got {low} and {self.zero_fraction}"
            )

    def answer(self, x: Tensor) -> Tensor:
        """x₁/x₂."""
        return x[:, 0] / x[:, 1]


class RootRatio(Ratio):
    """√(x₁/x₂), of positive inputs."""

    def answer(self, x: Tensor) -> Tensor:
        """√(x₁/x₂)."""
        return super().answer(x).sqrt()


class SignedProduct(PairProduct):
    """x₁x₂ of inputs from N(m, s²), where m ± s are the limits: by default N(0, 1), tested on N(0, 9)."""

    def __init__(
        self,
        dimension: int = 4,
        low: float = -1.0,
        high: float = 1.0,
        test_low: float = -3.0,
        test_high: float = 3.0,
        zero_fraction: float = 0.0,
        noise: float = 0.0,
        train_samples: int = 4000,
        val_samples: int = 1000,
        test_samples: int = 1000,
        batch_size: int = 250,
        seed: int = 0,
    ) -> None:
        super().__init__(
            dimension,
            low,
            high,
            test_low,
            test_high,
            zero_fraction,
            noise,
            train_samples,
            val_samples,
            test_samples,
            batch_size,
            seed,
        )

    def draw(self, samples: int, limits: tuple[float, float], generator: torch.Generator) -> Tensor:
        """Normal inputs."""
        centre, spread = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2
        return centre + spread * torch.randn(samples, self.dimension, generator=generator)


class Mean(AnswerTask):
    """The mean of all inputs: no product."""

    def answer(self, x: Tensor) -> Tensor:
        """Σ xᵢ / n."""
        return x.mean(dim=1)


class LinearMap(AnswerTask):
    """Σ cᵢ xᵢ with c = 1, −2, 1/2, 1, −2, 1/2, …: no product."""

    def answer(self, x: Tensor) -> Tensor:
        """Σ cᵢ xᵢ."""
        coefficients = torch.tensor([1.0, -2.0, 0.5], dtype=x.dtype)
        return x @ coefficients.repeat(-(-self.dimension // 3))[: self.dimension]


class Sine(AnswerTask):
    """sin(3x₁): neither affine nor a product."""

    def answer(self, x: Tensor) -> Tensor:
        """sin(3x₁)."""
        return torch.sin(3 * x[:, 0])


class Parity(AnswerTask):
    """Whether an odd number of the first four bits is set, 0 or 1: neither affine nor one product of powers.

    There is no range to extrapolate to: the test is on bits as well.
    """

    least_dimension = 4

    def draw(self, samples: int, limits: tuple[float, float], generator: torch.Generator) -> Tensor:
        """0 or 1, each with probability a half; the limits do not matter."""
        return torch.randint(0, 2, (samples, self.dimension), generator=generator).float()

    def answer(self, x: Tensor) -> Tensor:
        """The parity of x₁ … x₄."""
        return x[:, :4].sum(dim=1) % 2
