"""Transformers with an exact operator on the sliced residual: E∆, its two halves, and two reflections."""

from collections.abc import Sequence

from torch import nn

from app.layers.mixing import Cayley, CayleyHouseholder, Reflection, TwoReflections
from app.networks.transformer import GatedTransformer, Transformer


class EDelta(GatedTransformer):
    """E∆-MHC-Geo made causal: a gate blends a Cayley rotation and a Householder reflection of n streams.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, divides D.
        operator_hidden: hidden units of each operator's fused map; D by default, which makes it as large as
            the published separate networks together.
        source: where an operator reads its parameters: ``Token()`` (default) or ``PrefixMean()``.
        gate_bias: the gate's bias at the start; 0 is γ = ½, above it towards the rotation.
        penalty_weight: λ of the penalty on undecided gates, at least 0.

    Source: arXiv:2605.06729; causal parameters, and H_pre and H_post starting as identities, are ours.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
        operator_hidden: int | None = None,
        source: nn.Module | None = None,
        gate_bias: float = 0.0,
        penalty_weight: float = 0.1,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, _: CayleyHouseholder(
                branch, width, streams, operator_hidden, source, gate_bias, penalty_weight
            ),
            depth,
            width,
            heads,
            hidden,
        )


class EDeltaCayley(Transformer):
    """E∆ with its gates fixed at 1: rotations alone, without reflection and without gate.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, divides D.
        operator_hidden: hidden units of each operator's fused map; D by default, which makes it as large as
            the published separate networks together.
        source: where an operator reads its parameters: ``Token()`` (default) or ``PrefixMean()``.

    Source: an ablation of arXiv:2605.06729.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
        operator_hidden: int | None = None,
        source: nn.Module | None = None,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, _: Cayley(branch, width, streams, operator_hidden, source),
            depth,
            width,
            heads,
            hidden,
        )


class EDeltaReflection(Transformer):
    """E∆ with its gates fixed at 0: reflections alone.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, divides D.
        operator_hidden: hidden units of each operator's fused map; D by default, which makes it as large as
            the published separate networks together.
        source: where an operator reads its parameters: ``Token()`` (default) or ``PrefixMean()``.

    Source: an ablation of arXiv:2605.06729.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
        operator_hidden: int | None = None,
        source: nn.Module | None = None,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, _: Reflection(branch, width, streams, operator_hidden, source),
            depth,
            width,
            heads,
            hidden,
        )


class EDeltaTwoReflections(Transformer):
    """Two reflections in a row: every rotation of one plane, π included, without a gate.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, divides D.
        operator_hidden: hidden units of each operator's fused map; D by default, which makes it as large as
            the published separate networks together.
        source: where an operator reads its parameters: ``Token()`` (default) or ``PrefixMean()``.

    Source: the idea of arXiv:2502.10297 on the residual.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 6,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
        operator_hidden: int | None = None,
        source: nn.Module | None = None,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, _: TwoReflections(branch, width, streams, operator_hidden, source),
            depth,
            width,
            heads,
            hidden,
        )
