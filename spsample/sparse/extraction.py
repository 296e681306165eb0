"""EXTRACT: from what was drawn to the sampled adjacency matrices A^l, compacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, ColumnSample, Compaction, Draw, StackedRows
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.common.checks import require_type, short
from spsample.errors import DTypeError
from spsample.sparse.operand import Entries, GraphOperand
from spsample.sparse.row_sample import RowSample
from spsample.sparse.selector import BatchProduct, ColumnNorms, RowSelector, RowView

Float64Array = NDArray[np.float64]


class StackedLayer(NamedTuple):
    """A^l of k stacked minibatches.

    `rows.columns` are local: indices into the batch's part of `src`. `data` and `edge_ids` match them, or are None.
    """

    dst: RowSelector
    src_ptr: Int64Array
    src: IntArray
    rows: StackedRows
    data: np.ndarray[Any, Any] | None
    edge_ids: Int64Array | None

    def next_selector(self) -> RowSelector:
        """Q^(l-1): the selector of the src vertices, which are the rows of the next layer."""
        return RowSelector(self.src_ptr, self.src, self.dst.batch_ids)


@dataclass(frozen=True)
class Extraction:
    """What EXTRACT is asked for: keep targets among the columns, and give edge ids."""

    include_targets: bool = True
    edge_ids: bool = False


def _check(P: Any, laws: Any, sample: Any, kind: type[Any], want: Any) -> None:
    """Refuse what cannot be extracted from."""
    if isinstance(P, laws) and isinstance(sample, kind) and isinstance(want, Extraction):
        return
    require_type("P", P, laws, "what normalize_rows returns of a lazy product of this kind")
    require_type("sample", sample, kind, "what its_sample gives of P")
    require_type("want", want, Extraction, "an Extraction")


def extract_rows(P: RowView, sample: RowSample, want: Extraction, known: RowSelector | None = None) -> StackedLayer:
    """EXTRACT for node-wise samplers: the sampled rows without empty columns.

    Columns are numbered after `known`, each batch's vertices that have a number already: by default the rows of P.
    """
    _check(P, RowView, sample, RowSample, want)
    entries, sources = sample.compact(known or P.Q, want.include_targets)
    drawn = entries.rows
    rows = StackedRows(drawn.batch_ptr, drawn.entry_ptr, drawn.indptr, sources.local, drawn.positions, drawn.weights)
    return StackedLayer(P.Q, sources.src_ptr, sources.src, rows, own_weights(P.A, entries), entries.edge_ids)


def own_weights(A: GraphOperand, sample: Entries) -> np.ndarray[Any, Any] | None:
    """A_iv of drawn entries: weights, `1/d` in float32, or None where the graph has none."""
    if A.weighting == "unweighted":
        return None
    if sample.rows.weights is not None:
        return sample.rows.weights
    return A.backend.own_weights(sample.matrix, sample.selector, sample.rows)


class Sources(NamedTuple):
    """The src columns of a layer-wise sample: the first `num_targets` (k,) of each batch are targets; N of each."""

    columns: Compaction
    num_targets: Int64Array
    numerators: UInt64Array


class SourceWeights(Protocol):
    """How the values of a layer-wise sample weigh its columns: c_v of the law's section 6."""

    @property
    def normalize(self) -> bool:
        """Whether rows are rescaled to sum 1 afterwards."""
        ...

    def __call__(self, kernels: Backend, draw: Draw, sample: ColumnSample, sources: Sources) -> Float64Array:
        """(len(src),) float64 weights."""
        ...


@dataclass(frozen=True)
class UnbiasedWeights:
    """The mean of `values @ x` over all draws is the full sum `A x`; targets count exactly, with weight 1.

    With `normalize` the rows are rescaled to sum 1 afterwards (a ratio estimator, no longer unbiased).
    """

    normalize: bool = False

    def __post_init__(self) -> None:
        require_type("normalize", self.normalize, (bool, np.bool_), "True or False")

    def __call__(self, kernels: Backend, draw: Draw, sample: ColumnSample, sources: Sources) -> Float64Array:
        """c of every src column."""
        if draw.replace:
            return kernels.replacement_weights(sample, *sources, draw.size)
        return kernels.des_raj_weights(sample, *sources)


@dataclass(frozen=True)
class ReferenceWeights:
    """`1 / (s p_v)` for every column and normalised rows, as the authors of LADIES compute them; biased."""

    normalize: bool = True

    def __post_init__(self) -> None:
        require_type("normalize", self.normalize, (bool, np.bool_), "True or False")

    def __call__(self, kernels: Backend, draw: Draw, sample: ColumnSample, sources: Sources) -> Float64Array:
        """c of every src column."""
        return kernels.reference_weights(sample, sources.columns, sources.numerators)


_COLUMN_LAWS = (BatchProduct, ColumnNorms)


def extract_columns(
    P: BatchProduct | ColumnNorms, draw: Draw, sample: ColumnSample, want: Extraction, weights: SourceWeights
) -> StackedLayer:
    """EXTRACT for layer-wise samplers: rows Q of A restricted to each batch's columns, with values.

    Columns are found by a membership lookup; the published system multiplies by a block-diagonal column selector
    instead, in many small products (section 4.2.4).
    """
    _check(P, _COLUMN_LAWS, sample, ColumnSample, want)
    if not hasattr(weights, "normalize"):
        raise DTypeError(argument="weights", given=short(weights), expected="UnbiasedWeights() or ReferenceWeights()")
    A, Q = P.A, P.Q
    sources = A.backend.merge_targets(Q.arrays, sample, want.include_targets, A.num_vertices)
    entries = A.extract(Q.arrays, sources.src_ptr, sources.src, want.edge_ids)
    num_targets = Q.batch_ptr[1:] - Q.batch_ptr[:-1] if want.include_targets else np.zeros(len(Q.batch_ids), np.int64)
    numerators = P.source_numerators(sources, entries)
    c = weights(A.backend, draw, sample, Sources(sources, num_targets, numerators))
    data = A.backend.entry_values(entries.matrix, entries.selector, entries.rows, sources.src_ptr, c, weights.normalize)
    return StackedLayer(Q, sources.src_ptr, sources.src, entries.rows, data, entries.edge_ids)
