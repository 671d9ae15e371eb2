"""A causal transformer on continuous vectors whose residual mixing is injected, and its plainest forms.

B: batch, T: time, D: width of the residual, L: depth.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from app.layers.attention import CausalAttention, FeedForward, normal_linear_
from app.layers.mixing import Additive, Delta, Mixer, MixerFactory
from app.networks.checks import check_sizes


class Trunk(nn.Module):
    """Everything between the vectors: input map, positions, 2L residual steps, LayerNorm, output map.

    Returns prediction and penalty together, so that one compiled graph gives both.
    """

    def __init__(
        self, time: int, features: int, outputs: int, width: int, streams: int, steps: Sequence[Mixer]
    ) -> None:
        super().__init__()
        self.streams = streams
        self.input = normal_linear_(nn.Linear(features, width, bias=False))
        self.positions = nn.Parameter(0.02 * torch.randn(time, width))
        self.steps = nn.ModuleList(steps)
        self.norm = nn.LayerNorm(width)
        self.output = normal_linear_(nn.Linear(width, outputs, bias=False))

    def enter(self, x: Tensor) -> Tensor:
        """The residual's first state ``[B, T, D]``, or ``[B, T, n, D]`` with n equal streams."""
        state: Tensor = self.input(x) + self.positions[: x.shape[-2]]
        return state.unsqueeze(-2).expand(-1, -1, self.streams, -1) if self.streams > 1 else state

    def leave(self, state: Tensor) -> Tensor:
        """The prediction from the last state; streams are summed."""
        out: Tensor = self.output(self.norm(state.sum(-2) if self.streams > 1 else state))
        return out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction ``[B, T, outputs]`` and the penalty, 0-d."""
        state, penalty = self.enter(x), x.new_zeros(())
        for step in self.steps:
            penalty = penalty + as_mixer(step).penalty(state)
            state = step(state)
        return self.leave(state), penalty


class Transformer(nn.Module):
    """A pre-norm transformer without biases in its linear maps; position t predicts from inputs up to t.

    Args:
        input_shape: (T, features): the longest sequence, and the size of a vector.
        num_outputs: size of a predicted vector.
        mixer: makes the residual step around each branch, attention and feed-forward in turn.
        depth: L, blocks of one attention and one feed-forward step each.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 times its width by default.
        branch_width: width that the branches work at; D by default.
        expand: n streams that the residual is replicated into; 1 for none.

    Shape: ``[B, t, features] → [B, t, num_outputs]`` for t ≤ T.

    Raises:
        ValueError: a size below 1, an ``input_shape`` that is not (T, features), heads that do not divide the
            branches' width; at the call, a longer sequence than T.
    """

    METRICS: ClassVar[Mapping[str, str]] = {
        "shortcut_energy": "share of the first state's energy that the product of all skip paths lets "
        "through, also up to block _01, _02, …; healthy near 1; towards 0: only the branches carry the "
        "signal, bias the gate",
        "shortcut_condition": "condition number of that product at the last position, at most 1e8; healthy "
        "below 10; large: the skip path is losing directions",
        "norm_drift": "norm of the state over that of the first state, also after block _01, _02, …; "
        "healthy .3 to 30; growing or falling geometrically over depth: the residual is not kept in balance",
        "rollout_norm": "norm of the predictions that the network makes of its own predictions, over that of "
        "the last vector it was given, a line a sequence; healthy: level, .5 to 2; drifting: errors "
        "feed themselves, train longer or clip the gradient",
    }

    _PROMPT: ClassVar[int] = 16
    _ROLLOUT: ClassVar[int] = 8

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        mixer: MixerFactory,
        depth: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        branch_width: int | None = None,
        expand: int = 1,
    ) -> None:
        super().__init__()
        check_sizes(input_shape, num_outputs, depth, width)
        if len(input_shape) != 2:
            raise ValueError(f"input_shape must be (T, features), got {tuple(input_shape)}")
        inner = width if branch_width is None else branch_width
        branches: list[Callable[[], nn.Module]] = [
            lambda: CausalAttention(inner, heads, depth),
            lambda: FeedForward(inner, 4 * inner if hidden is None else hidden, depth),
        ]
        steps = [mixer(branches[i % 2](), i) for i in range(2 * depth)]
        self.longest = input_shape[0]
        self.trunk = Trunk(input_shape[0], input_shape[1], num_outputs, width, expand, steps)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the prediction at every position."""
        return self.run(x)[0]

    def run(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns prediction and penalty.

        Raises:
            ValueError: a sequence longer than T.
        """
        if x.shape[-2] > self.longest:
            raise ValueError(f"a sequence must have at most {self.longest} vectors, got {x.shape[-2]}")
        prediction, penalty = self.trunk(x)
        return prediction, penalty

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles what ``forward`` and ``with_penalty`` have in common, in place."""
        self.trunk.compile(*args, **kwargs)

    @torch.no_grad()
    def diagnostics(self, *inputs: Tensor) -> Mapping[str, Tensor]:
        """What only the whole can say, for up to four of the sequences; names as in ``METRICS``."""
        state = self.trunk.enter(inputs[0][:4])
        start = state.float()
        product: Tensor | None = None
        found: dict[str, Tensor] = {}
        for i, step in enumerate(self.trunk.steps):
            matrix = as_mixer(step).shortcut(state).float()
            product = matrix if product is None else matrix @ product
            state = step(state)
            if i % 2:
                values = torch.linalg.svdvals(product[:, -1].double())
                condition = values[:, 0] / values[:, -1].clamp(min=1e-8 * values[:, 0].amax())
                carried = product @ start.reshape(*product.shape[:-1], -1)
                measured = {
                    "shortcut_energy": carried.square().sum() / start.square().sum(),
                    "shortcut_condition": condition.mean(),
                    "norm_drift": state.float().norm() / start.norm(),
                }
                found |= measured | {f"{name}_{i // 2 + 1:02d}": value for name, value in measured.items()}
        return found | self._rolled_out(inputs[0][:4])

    def _rolled_out(self, x: Tensor) -> dict[str, Tensor]:
        """Norms ``[B, steps]`` of predictions fed back, where one can be an input and there is room."""
        start = min(self._PROMPT, x.shape[-2] // 2)
        steps = min(self._ROLLOUT, self.longest - start)
        if self.trunk.output.out_features != x.shape[-1] or start < 1 or steps < 3:
            return {}
        sequence = x[:, :start]
        for _ in range(steps):
            prediction = self.trunk(sequence)[0][:, -1:]
            sequence = torch.cat((sequence, prediction.to(sequence.dtype)), 1)
        norms = sequence[:, start - 1 :].float().norm(dim=-1)
        return {"rollout_norm": norms[:, 1:] / norms[:, :1]}


class GatedTransformer(Transformer):
    """A transformer whose mixers have gates, and with them a penalty on being undecided."""

    def with_penalty(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the prediction for ``x`` and the sum of the penalties of all residual steps, 0-d."""
        return self.run(x)


def as_mixer(module: nn.Module) -> Mixer:
    """The module, which a ModuleList has lost the type of."""
    assert isinstance(module, Mixer)
    return module


class GPT(Transformer):
    """The plain residual: x⁺ = x + F(LN x).

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 9,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
    ) -> None:
        super().__init__(
            input_shape, num_outputs, lambda branch, _: Additive(branch, width), depth, width, heads, hidden
        )


class DDL(Transformer):
    """Deep delta learning: what is written replaces what was there along one direction, per token.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.

    Source: arXiv:2601.00417.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 9,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
    ) -> None:
        super().__init__(
            input_shape, num_outputs, lambda branch, _: Delta(branch, width), depth, width, heads, hidden
        )
