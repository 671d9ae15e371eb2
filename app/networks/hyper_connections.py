"""Transformers with hyper-connections: HC, mHC, KromHC, oHC on replicated streams, JPmHC on slices."""

from collections.abc import Sequence

from app.layers.mixing import CayleyIteration, Hyper, Kronecker, Quaternion, Sinkhorn
from app.networks.transformer import Transformer


class HC(Transformer):
    """Hyper-connections: an unconstrained matrix on n replicated streams, static up to a small dynamic part.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D, of each stream.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, at least 2.

    Source: arXiv:2409.19606.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 9,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, index: Hyper(branch, width, index, streams),
            depth,
            width,
            heads,
            hidden,
            expand=streams,
        )


class MHC(Transformer):
    """mHC: a doubly stochastic matrix on n replicated streams, by Sinkhorn iterations.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D, of each stream.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, at least 2.

    Source: arXiv:2512.24880.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 9,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, index: Sinkhorn(branch, width, index, streams),
            depth,
            width,
            heads,
            hidden,
            expand=streams,
        )


class KromHC(Transformer):
    """KromHC: a Kronecker product of doubly stochastic 2 × 2 matrices on n replicated streams.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D, of each stream.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.
        streams: n, a power of 2.

    Source: arXiv:2601.21579.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 9,
        width: int = 128,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, index: Kronecker(branch, width, index, streams),
            depth,
            width,
            heads,
            hidden,
            expand=streams,
        )


class OHC(Transformer):
    """oHC: a rotation of four replicated streams by two quaternions, −I included.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D, of each stream.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D by default.

    Source: arXiv:2609.02672.
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
            input_shape,
            num_outputs,
            lambda branch, index: Quaternion(branch, width, index),
            depth,
            width,
            heads,
            hidden,
            expand=4,
        )


class JPmHC(Transformer):
    """JPmHC: a nearly orthogonal matrix on n slices of a wide residual; branches work at the width of a
    slice.

    Args:
        input_shape: (T, features).
        num_outputs: size of a predicted vector.
        depth: L.
        width: D, of the whole residual.
        heads: attention heads.
        hidden: hidden units of the feed-forward branch; 4 D/n by default.
        streams: n, divides D.

    Source: arXiv:2602.18308.
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        num_outputs: int,
        depth: int = 7,
        width: int = 512,
        heads: int = 4,
        hidden: int | None = None,
        streams: int = 4,
    ) -> None:
        super().__init__(
            input_shape,
            num_outputs,
            lambda branch, _: CayleyIteration(branch, width, streams),
            depth,
            width,
            heads,
            hidden,
            branch_width=width // streams,
        )
