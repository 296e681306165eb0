"""The words the samplers are written in: NORM, SAMPLE and EXTRACT."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from spsample.backends import ColumnSample, Draw
from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_type, short
from spsample.errors import DTypeError, InputError
from spsample.sparse.column_law import ColumnLaw, GraphLaw
from spsample.sparse.csr import CSRMatrix
from spsample.sparse.entry_law import EntryLaw
from spsample.sparse.extraction import ExtractOptions, SourceWeights, StackedLayer
from spsample.sparse.layer_law import LayerLaw
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
def its_sample(P: LayerLaw, draw: Draw) -> ColumnSample: ...
@overload
def its_sample(P: ProbabilityMatrix, draw: Draw, *, batch_ids: Int64Array | None = None) -> ColumnSample: ...
def its_sample(P: Any, draw: Draw, **options: Any) -> Any:
    """SAMPLE: inverse transform sampling, `draw.size` distinct outcomes per row, by the law of P.

    Parameters
    ----------
    P : what normalize_rows returns
        Of `Q @ A`: entries of each selected row (a `RowSample`; option `edge_ids`). Of `Q.per_batch() @ A` and
        `column_norms`: columns for each batch (a `ColumnSample`). Of a `CSRMatrix`: columns of each row (option
        `batch_ids`, what keys each row's draws).
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


def extract_rows(
    P: RowLaw, sample: RowSample, options: ExtractOptions, known: RowSelector | None = None
) -> StackedLayer:
    """EXTRACT for node-wise samplers: the sampled rows without empty columns. It consumes the sample.

    Parameters
    ----------
    P : RowLaw
        What normalize_rows returns of `Q @ A`.
    sample : RowSample
        What its_sample gave of this P. What is refused leaves it as it is. It is consumed once its columns are
        numbered, which is done in place: also where that fails, or what comes after it, as for want of memory.
    options : ExtractOptions
    known : RowSelector, optional
        Each batch's vertices that have a number already, distinct vertices of A: columns are numbered after them. By
        default the rows of P.

    Raises
    ------
    ConsumedError
        If the sample was consumed before.
    InputError
        If the sample was drawn from another P, or `known` is of other batches.
    DTypeError
        If an argument has the wrong type.

    Examples
    --------
    >>> import spsample
    >>> A = spsample.Graph([0, 2, 3, 3], [1, 2, 0]).operand()
    >>> P = normalize_rows(RowSelector(np.array([0, 1]), np.array([0]), np.array([0])) @ A)
    >>> extract_rows(P, its_sample(P, Draw((1, 2), 0, 2)), ExtractOptions()).src.tolist()
    [0, 1, 2]
    """
    _check(P, RowLaw, sample, RowSample, options)
    if sample.F is not P.F:
        raise InputError(
            argument="sample",
            given="a sample of another P",
            expected="what its_sample drew from this P",
            hint="Keep the P that was sampled: each product Q @ A is another one, also of the same Q and A.",
        )
    if known is not None:
        _check_known(P, known)
    return P.extract(sample, options, known)


def _check_known(P: RowLaw, known: RowSelector) -> None:
    """Refuse known vertices that are of other batches than the rows of P."""
    require_type("known", known, RowSelector, "a RowSelector, or None for the rows of P")
    batch_ids = P.Q.batch_ids
    if known.batch_ids is not batch_ids and not np.array_equal(known.batch_ids, batch_ids):
        raise InputError(
            argument="known",
            given=f"batches {short(known.batch_ids)}",
            expected=f"{short(batch_ids)}, those of the rows of P",
        )


def extract_columns(
    P: LayerLaw, draw: Draw, sample: ColumnSample, options: ExtractOptions, weights: SourceWeights
) -> StackedLayer:
    """EXTRACT for layer-wise samplers: rows Q of A restricted to each batch's columns, with values.

    The sample stays as it is. It is a tuple of arrays, which does not know the P that it was drawn from: values are
    right only with that P, and with the `draw` that was given to its_sample.
    """
    _check(P, LayerLaw, sample, ColumnSample, options)
    if not (hasattr(weights, "normalize") and hasattr(weights, "values")):
        raise DTypeError(argument="weights", given=short(weights), expected="UnbiasedWeights() or ReferenceWeights()")
    return P.extract(draw, sample, options, weights)


def _check(P: Any, law: type[Any], sample: Any, kind: type[Any], options: Any) -> None:
    """Refuse what cannot be extracted from."""
    if isinstance(P, law) and isinstance(sample, kind) and isinstance(options, ExtractOptions):
        return
    require_type("P", P, law, "what normalize_rows returns of a lazy product of this kind")
    require_type("sample", sample, kind, "what its_sample gives of P")
    require_type("options", options, ExtractOptions, "ExtractOptions")
