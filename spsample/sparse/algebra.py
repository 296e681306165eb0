"""The words the samplers are written in: NORM, SAMPLE and EXTRACT."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from spsample.backends import ColumnSample, Draw
from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_type
from spsample.errors import DTypeError
from spsample.sparse.column_law import ColumnLaw, GraphLaw
from spsample.sparse.csr import CSRMatrix
from spsample.sparse.entry_law import EntryLaw
from spsample.sparse.extraction import ExtractOptions, SourceWeights, StackedLayer
from spsample.sparse.layer_law import LayerLaw, LayerSample
from spsample.sparse.operand import GraphOperand
from spsample.sparse.probability_matrix import ProbabilityMatrix
from spsample.sparse.row_law import RowLaw, RowSample
from spsample.sparse.selector import BatchProduct, ColumnNorms, Pattern, RowProduct, RowSelector, Squared


@overload
def square(matrix: GraphOperand) -> Squared: ...
@overload
def square(matrix: BatchProduct) -> BatchProduct: ...
def square(matrix: GraphOperand | BatchProduct) -> Squared | BatchProduct:
    """Entrywise square, lazily: `Q @ square(A)` is the law of LADIES, `square(Q @ A)` that of the paper's text."""
    if isinstance(matrix, BatchProduct):
        return matrix._replace(column_power=2)
    if not hasattr(matrix, "frontier"):
        require_type("matrix", matrix, GraphOperand, "a graph's operand, or `Q.per_batch() @ A`")
    return Squared(matrix)


def pattern(A: GraphOperand) -> Pattern:
    """A's entries counted as 1, lazily: `Q @ pattern(A)` draws uniformly whatever the weights."""
    require_type("A", A, GraphOperand, "a graph's operand")
    return Pattern(A)


def column_norms(Q: RowSelector, A: GraphOperand) -> ColumnNorms:
    """Squared norms of A's columns as one row of weights for each batch of Q (FastGCN), lazily."""
    require_type("Q", Q, RowSelector, "a RowSelector")
    require_type("A", A, GraphOperand, "a graph's operand")
    return ColumnNorms.of(A, Q)


@overload
def normalize_rows(matrix: RowProduct) -> RowLaw: ...
@overload
def normalize_rows(matrix: BatchProduct) -> EntryLaw | ColumnLaw: ...
@overload
def normalize_rows(matrix: ColumnNorms) -> GraphLaw: ...
@overload
def normalize_rows(matrix: CSRMatrix) -> ProbabilityMatrix: ...
def normalize_rows(matrix: Any) -> Any:
    """NORM: P, which knows the law that is drawn by. Only a P can be sampled.

    Probabilities are integer numerators over a total (law, section 2). Of lazy products they are not written; the law
    follows from the product and from what the graph's entries weigh (law, section 3):

    ======================================== ========================= ============================
    product                                  entries of A              P
    ======================================== ========================= ============================
    `Q @ A`                                  weighted                  `RowLaw`, weighted
    `Q @ A`                                  unweighted or normalised  `RowLaw`, uniform
    `Q @ pattern(A)`                         any                       `RowLaw`, uniform
    `Q.per_batch() @ A`, `... @ square(A)`   unweighted or normalised  `EntryLaw`
    `Q.per_batch() @ A`, `... @ square(A)`   weighted                  `ColumnLaw`
    `square(Q.per_batch() @ A)`              any                       `ColumnLaw`, column power 2
    `column_norms(Q, A)`                     any                       `GraphLaw`
    a `CSRMatrix` of weights                                           `ProbabilityMatrix`
    ======================================== ========================= ============================

    Raises
    ------
    InputError
        If a weight of a `CSRMatrix` is negative or not finite.

    Examples
    --------
    >>> W = CSRMatrix(np.array([0, 2]), np.array([1, 0], np.int32), np.array([3.0, 1.0]), (1, 2))
    >>> normalize_rows(W).to_scipy().toarray().tolist()
    [[0.25, 0.75]]
    """
    if isinstance(matrix, RowProduct):
        Q, F, as_pattern = matrix
        return RowLaw(Q, F, "weighted" if F.A.weighting == "weighted" and not as_pattern else "uniform")
    if isinstance(matrix, BatchProduct):
        Q, F, power, column_power = matrix
        if column_power == 1 and F.A.weighting != "weighted":
            return EntryLaw(Q, F, power)
        return ColumnLaw(Q, F, power, column_power)
    if isinstance(matrix, ColumnNorms):
        return GraphLaw(*matrix)
    if isinstance(matrix, CSRMatrix):
        return ProbabilityMatrix.of(matrix)
    raise DTypeError(
        argument="matrix", given=type(matrix).__name__, expected="a CSRMatrix, or a lazy product such as `Q @ A`"
    )


@overload
def its_sample(P: RowLaw, draw: Draw, *, edge_ids: bool = False) -> RowSample: ...
@overload
def its_sample(P: LayerLaw, draw: Draw) -> LayerSample: ...
@overload
def its_sample(P: ProbabilityMatrix, draw: Draw, *, batch_ids: Int64Array | None = None) -> ColumnSample: ...
def its_sample(P: Any, draw: Draw, **options: Any) -> Any:
    """SAMPLE: inverse transform sampling, `draw.size` distinct outcomes per row, by the law of P.

    Parameters
    ----------
    P : what normalize_rows returns
        Of `Q @ A`: entries of each selected row (a `RowSample`; option `edge_ids`). Of `Q.per_batch() @ A` and
        `column_norms`: columns for each batch (a `LayerSample`). Of a `CSRMatrix`: columns of each row (a
        `ColumnSample`; option `batch_ids`, what keys each row's draws).
    draw : Draw
        Size, replacement and the counter's key and hop.

    Raises
    ------
    DTypeError
        If P is not what normalize_rows returns.
    CapacityError
        If a draw would need more draw numbers than there are, or a frontier has too many entries for its law.

    Examples
    --------
    >>> W = CSRMatrix(np.array([0, 3]), np.array([0, 1, 2], np.int32), np.array([1.0, 0.0, 2.0]), (1, 3))
    >>> its_sample(normalize_rows(W), Draw(key=(1, 2), hop=0, size=2)).columns.tolist()
    [0, 2]
    """
    if options and type(options.get("edge_ids", False)) is not bool:
        require_type("edge_ids", options["edge_ids"], (bool, np.bool_), "True or False")
    if isinstance(P, (RowLaw, LayerLaw, ProbabilityMatrix)):
        return P.sample(draw, **options)
    raise DTypeError(
        argument="P",
        given=f"a {type(P).__name__}",
        expected="what normalize_rows returns",
        hint="Call normalize_rows(Q @ A) first: only a P can be sampled.",
    )


@overload
def extract(sample: RowSample, options: ExtractOptions, known: RowSelector | None = None) -> StackedLayer: ...
@overload
def extract(sample: LayerSample, options: ExtractOptions, weights: SourceWeights) -> StackedLayer: ...
def extract(sample: Any, options: ExtractOptions, *how: Any, **named: Any) -> StackedLayer:
    """EXTRACT: the sampled rows without empty columns, as A^l. It consumes the sample.

    Parameters
    ----------
    sample : what its_sample returns
        Of a lazy product. What is refused leaves it as it is. A `RowSample` is consumed once its columns are numbered,
        which is done in place: also where that fails, or what comes after it, as for want of memory.
    options : ExtractOptions
    known : RowSelector, optional
        Of a `RowSample`: each batch's vertices that have a number already, distinct vertices of A; columns are numbered
        after them. By default the rows of P.
    weights : SourceWeights
        Of a `LayerSample`: the values of its columns. Rows Q of A are restricted to the columns of their batch.

    Raises
    ------
    ConsumedError
        If the sample was consumed before.
    InputError
        If `known` is of other batches.
    DTypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import spsample
    >>> A = spsample.Graph([0, 2, 3, 3], [1, 2, 0]).operand()
    >>> P = normalize_rows(RowSelector(np.array([0, 1]), np.array([0]), np.array([0])) @ A)
    >>> extract(its_sample(P, Draw((1, 2), 0, 2)), ExtractOptions()).src.tolist()
    [0, 1, 2]
    """
    if not isinstance(sample, (RowSample, LayerSample)):
        require_type("sample", sample, (RowSample, LayerSample), "what its_sample gives of a lazy product")
    require_type("options", options, ExtractOptions, "ExtractOptions")
    layer: StackedLayer = sample.extract(options, *how, **named)
    return layer
