"""The words the samplers are written in: NORM, SAMPLE and EXTRACT, and the general product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np

from spsample.backends import ColumnMatrix, ColumnSample, Draw, get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import Int64Array, IntArray
from spsample.backends.reference.quantisation import row_rule_numerators
from spsample.common.arrays import as_array
from spsample.common.checks import check_draw, check_range, require_array, require_type
from spsample.errors import DTypeError, InputError
from spsample.sparse.csr import CSRMatrix
from spsample.sparse.operand import GraphOperand
from spsample.sparse.row_sample import RowSample
from spsample.sparse.selector import BatchProduct, ColumnNorms, Pattern, RowSelector, RowView, Squared

PRODUCT_DTYPES = ("float32", "float64", "int64", "uint64")


@overload
def square(matrix: GraphOperand) -> Squared: ...
@overload
def square(matrix: BatchProduct) -> BatchProduct: ...
def square(matrix: GraphOperand | BatchProduct) -> Squared | BatchProduct:
    """Entrywise square, lazily: `Q @ square(A)` is the law of LADIES, `square(Q @ A)` that of the paper's text."""
    if isinstance(matrix, BatchProduct):
        return BatchProduct(matrix.Q, matrix.A, matrix.power, 2)
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
    return ColumnNorms(Q, A)


@dataclass(frozen=True, eq=False)
class ProbabilityMatrix:
    """P: each row a distribution over the columns, as integer numerators over a total.

    `numerators` are what is drawn from; `to_scipy()` shows the probabilities as floats.
    """

    matrix: ColumnMatrix
    num_columns: int

    def to_scipy(self) -> Any:
        """Probabilities (float64) as a SciPy CSR array: for people, never for drawing."""
        from scipy.sparse import csr_array

        P = self.matrix
        totals = np.repeat(P.totals, np.diff(P.indptr)).astype(np.float64)
        return csr_array((P.numerators / totals, P.columns, P.indptr), shape=(len(P.totals), self.num_columns))


View = TypeVar("View", RowView, BatchProduct, ColumnNorms)


@overload
def normalize_rows(matrix: View) -> View: ...
@overload
def normalize_rows(matrix: CSRMatrix) -> ProbabilityMatrix: ...
def normalize_rows(matrix: Any) -> Any:
    """NORM: divide each row by its sum.

    Lazy products keep integer numerators whose total is the denominator, so they are normalised already and come back
    as they are. A `CSRMatrix` of weights becomes a `ProbabilityMatrix`: each row's weights are quantised under the row
    rule (law, section 2).

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
    if isinstance(matrix, (RowView, BatchProduct, ColumnNorms)):
        return matrix
    if isinstance(matrix, CSRMatrix):
        return _normalize_csr(matrix)
    raise DTypeError(
        argument="matrix", given=type(matrix).__name__, expected="a CSRMatrix, or a lazy product such as `Q @ A`"
    )


@default_float_environment()
def _normalize_csr(matrix: CSRMatrix) -> ProbabilityMatrix:
    given = np.ones(matrix.nnz) if matrix.data is None else matrix.data
    require_array("matrix.data", given, ("b", "i", "u", "f"), "real numbers")
    weights = given.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise InputError(
            argument="matrix.data", given=f"{weights[bad[0]]} at position {bad[0]}", expected="finite weights >= 0"
        )
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, row))
    columns, weights = matrix.indices[order], weights[order]
    parts = [row_rule_numerators(weights[lo:hi]) for lo, hi in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)]
    numerators = np.concatenate([*parts, np.zeros(0, np.uint64)])
    keep = numerators > 0
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[keep], minlength=matrix.shape[0]))]).astype(np.int64)
    totals = np.array([p.sum(dtype=np.uint64) for p in parts], np.uint64)
    return ProbabilityMatrix(ColumnMatrix(indptr, columns[keep], numerators[keep], totals), matrix.shape[1])


@overload
def its_sample(P: RowView, draw: Draw, *, edge_ids: bool = False) -> RowSample: ...
@overload
def its_sample(P: BatchProduct | ColumnNorms, draw: Draw) -> ColumnSample: ...
@overload
def its_sample(P: ProbabilityMatrix, draw: Draw, *, batch_ids: Int64Array | None = None) -> ColumnSample: ...
def its_sample(P: Any, draw: Draw, **options: Any) -> Any:
    """SAMPLE: inverse transform sampling, `draw.size` distinct outcomes per row, by the law that fits P.

    Parameters
    ----------
    P : lazy product or ProbabilityMatrix
        `Q @ A`: entries of each selected row (row law; a lazy `RowSample`; option `edge_ids`). `Q.per_batch() @ A` and
        `column_norms`: columns for each batch (entry law or column law; returns `ColumnSample`). An explicit
        `ProbabilityMatrix`: columns of each row (column law; option `batch_ids`, what keys each row's draws).
    draw : Draw
        Size, replacement and the counter's key and hop.

    Examples
    --------
    >>> W = CSRMatrix(np.array([0, 3]), np.array([0, 1, 2], np.int32), np.array([1.0, 0.0, 2.0]), (1, 3))
    >>> its_sample(normalize_rows(W), Draw(key=(1, 2), hop=0, size=2)).columns.tolist()
    [0, 2]
    """
    if type(options.get("edge_ids", False)) is not bool:
        require_type("edge_ids", options["edge_ids"], (bool, np.bool_), "True or False")
    if isinstance(P, RowView):
        return RowSample(P, draw, **options)
    if isinstance(P, (BatchProduct, ColumnNorms)):
        return P.sample(draw, **options)
    if isinstance(P, ProbabilityMatrix):
        return _sample_matrix(P, draw, **options)
    raise DTypeError(argument="P", given=type(P).__name__, expected="what normalize_rows returns")


def _sample_matrix(P: ProbabilityMatrix, draw: Draw, *, batch_ids: Int64Array | None = None) -> ColumnSample:
    ids = np.arange(len(P.matrix.totals), dtype=np.int64) if batch_ids is None else batch_ids
    check_draw(draw, ids, len(P.matrix.totals))
    return get_backend().draw_columns(P.matrix, ids, draw)


def spgemm(A: CSRMatrix, B: CSRMatrix, *, backend: str | None = None) -> CSRMatrix:
    """C = A B: general sparse product by rows (Gustavson 1978).

    Parameters
    ----------
    A, B : CSRMatrix
        Values float32, float64, int64 or uint64, the same in both; a missing `data` counts as ones of the other's type.

    Returns
    -------
    CSRMatrix
        Columns ascend within each row; entries that sum to 0 are kept; the order of sums is fixed, so that every
        backend returns the same bits.

    Raises
    ------
    InputError
        If the shapes or the types do not fit.

    Examples
    --------
    >>> A = CSRMatrix(np.array([0, 2]), np.array([0, 1], np.int32), np.array([1.0, 2.0]), (1, 2))
    >>> B = CSRMatrix(np.array([0, 1, 2]), np.array([1, 1], np.int32), np.array([5.0, 7.0]), (2, 3))
    >>> spgemm(A, B).data.tolist()
    [19.0]
    """
    _require_matrix("A", A)
    _require_matrix("B", B)
    if A.shape[1] != B.shape[0]:
        raise InputError(
            argument="B",
            given=f"shape {B.shape}",
            expected=f"{A.shape[1]} rows, as many as A (shape {A.shape}) has columns",
        )
    _require_product_dtype(A, B)
    indices = np.result_type(A.indices.dtype, B.indices.dtype)
    left, right = ((M.indptr, M.indices.astype(indices, copy=False), M.data) for M in (A, B))
    product = get_backend(backend).spgemm(left, right, B.shape[1])
    return CSRMatrix.from_parts(*product, (A.shape[0], B.shape[1]))


def _require_matrix(argument: str, value: Any) -> None:
    if not isinstance(value, CSRMatrix):
        raise DTypeError(argument=argument, given=f"a {type(value).__name__}", expected="a CSRMatrix")


def _require_product_dtype(A: CSRMatrix, B: CSRMatrix) -> None:
    given = [M.data.dtype for M in (A, B) if M.data is not None] or [np.dtype(np.float32)]
    if given[0] != given[-1] or given[0].name not in PRODUCT_DTYPES:
        raise DTypeError(
            argument="data",
            given=" and ".join(d.name for d in given),
            expected=f"the same type in A and B, one of {', '.join(PRODUCT_DTYPES)}",
        )


def select_rows(A: CSRMatrix, rows: IntArray, *, backend: str | None = None) -> CSRMatrix:
    """A[rows], each row's entries in their order: what a `RowSelector` times A is when written out.

    Examples
    --------
    >>> A = CSRMatrix(np.array([0, 1, 3]), np.array([1, 0, 1], np.int32), None, (2, 2))
    >>> select_rows(A, np.array([1, 1])).indices.tolist()
    [0, 1, 0, 1]
    """
    _require_matrix("A", A)
    rows = as_array("rows", rows)
    require_array("rows", rows, ("i", "u"), "integers")
    check_range("rows", rows, A.shape[0], "rows")
    triple = get_backend(backend).select_rows((A.indptr, A.indices, A.data), rows.astype(np.int64, copy=False))
    return CSRMatrix.from_parts(*triple, (len(rows), A.shape[1]))
