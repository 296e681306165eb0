"""Arrays of graphs: from what users hand in, checked and in the order (target, source, input position); normalised."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix
from spsample.backends.arithmetic import default_float_environment
from spsample.common.checks import check_indptr, check_length, first_bad, is_scipy_sparse, require_type
from spsample.common.contents import Contents
from spsample.common.threads import clear_pool, compiled_core
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.sparse.local import LocalOperand
from spsample.sparse.probability import Weighting
from spsample.store import validation

ARRAYS = ("indptr", "indices", "data", "edge_ids")
"""The arrays that identify a graph, by their names in a store."""


class StoreOrigin(NamedTuple):
    """The store that a graph's arrays are maps of: its absolute path, and the digest of its graph."""

    path: str
    digest: str


class GraphArrays:
    """The arrays of a graph, which are known to be right: CSR, weights or None, edge ids or None; read-only.

    Parameters
    ----------
    indptr, indices, data, edge_ids : array, the last two or None
        As of `Graph`.
    weighting : Weighting, optional
        By default "weighted" where there are data.
    origin : StoreOrigin, optional
        Where they are maps of a store's.
    """

    def __init__(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        data: NDArray[Any] | None = None,
        edge_ids: NDArray[Any] | None = None,
        weighting: Weighting | None = None,
        origin: StoreOrigin | None = None,
    ) -> None:
        self.indptr: NDArray[np.int64] = frozen(indptr.astype(np.int64, copy=False))
        self.indices = frozen(indices)
        self.data = None if data is None else frozen(data)
        self.edge_ids = None if edge_ids is None else frozen(edge_ids.astype(np.int64, copy=False))
        self.weighting: Weighting = weighting or ("unweighted" if data is None else "weighted")
        self.origin = origin
        self.contents = Contents({name: getattr(self, name) for name in ARRAYS})

    def lying(self, name: str) -> NDArray[Any] | None:
        """Return indices, data or edge_ids in any order: nothing is read."""
        return cast("NDArray[Any] | None", getattr(self, name))

    def operand(self, backend: Backend) -> LocalOperand:
        """Return A as the sampling algebra sees it."""
        matrix = Matrix(self.indptr, self.indices, self.data, self.weighting == "row")
        return LocalOperand(matrix, self.edge_ids, backend)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make a contiguous, aligned, read-only view; copies only what is not, once: kernels would at every call."""
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view


def from_csr(
    indptr: Any, indices: Any, data: Any, edge_ids: Any, *, validate: bool = True, prefix: str = ""
) -> GraphArrays:
    """Return the four arrays of a CSR matrix, checked and in order; `prefix` goes before their names."""
    require_type("validate", validate, (bool, np.bool_), "True or False")
    starts = validation.as_id_vector(f"{prefix}indptr", indptr)
    columns = validation.as_id_vector(f"{prefix}indices", indices)
    weights = None if data is None else validation.as_weights(f"{prefix}data", data)
    ids = None if edge_ids is None else validation.as_id_vector(f"{prefix}edge_ids", edge_ids)
    n = len(starts) - 1
    if n < 1:
        raise InputError(
            argument=f"{prefix}indptr",
            given=f"length {n + 1}",
            expected="length n + 1 with n at least 1: a graph needs at least one vertex",
        )
    if columns.dtype == np.int32 and n > validation.INT32_NODES:
        given = f"int32 for {n} vertices"
        raise CapacityError(argument=f"{prefix}indices", given=given, expected="int64 from 2**31 vertices on")
    for name, array in (("data", weights), ("edge_ids", ids)):
        if array is not None:
            check_length(f"{prefix}{name}", array, len(columns), "entry of indices")
    if not validate:
        return GraphArrays(starts, columns, weights, ids)
    check_indptr(f"{prefix}indptr", starts, len(columns))
    validation.check_ids(f"{prefix}indices", columns, len(starts) - 1)
    if weights is not None:
        validation.check_weights(f"{prefix}data", weights)
    if ids is not None:
        validation.check_not_negative(f"{prefix}edge_ids", ids)
    if rows_sorted(starts, columns):
        return GraphArrays(starts, columns, weights, ids)
    starts, ordered, order = sort_entries(columns, targets(starts, columns.dtype), len(starts) - 1)
    weights = None if weights is None else weights[order]
    return GraphArrays(starts, ordered.astype(columns.dtype, copy=False), weights, order if ids is None else ids[order])


def from_edges(
    edge_index: Any,
    num_nodes: int | None,
    edge_weight: Any,
    names: tuple[str, str] = ("edge_index", "edge_weight"),
    count: str = "num_nodes={} was given.",
) -> GraphArrays:
    """Sort and check a list of edges in PyG's convention.

    `names` are those of edges and weights in errors; `count` is a sentence about the origin of the number of vertices.
    """
    edges = validation.as_edge_index(names[0], edge_index)
    n = _num_nodes(edges, num_nodes)
    hint = "" if num_nodes is None else count.format(n)
    validation.check_ids(names[0], edges, n, hint)
    weights = None
    if edge_weight is not None:
        weights = validation.as_weights(names[1], edge_weight)
        check_length(names[1], weights, edges.shape[1], "edge")
        validation.check_weights(names[1], weights)
    indptr, indices, order = sort_entries(edges[0], edges[1], n)
    ordered = weights if weights is None or order is None else weights[order]
    return GraphArrays(indptr, indices, ordered, order)  # no edge ids where they were in order already


def from_matrix(matrix: Any) -> GraphArrays:
    """Sort and check a square ``scipy.sparse`` matrix; entries stay unmerged."""
    if not is_scipy_sparse(matrix):
        given = f"an object of type {type(matrix).__name__}"
        raise DTypeError(argument="matrix", given=given, expected="a scipy.sparse matrix or array")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        given = f"shape {matrix.shape}"
        raise InputError(argument="matrix", given=given, expected="a square matrix, one row per vertex")
    n = validation.check_num_nodes("matrix", int(matrix.shape[0]))
    if matrix.format == "csr":
        starts = validation.as_id_vector("matrix.indptr", matrix.indptr)
        end = int(starts[-1]) if len(starts) else 0  # scipy allows room behind the last entry
        return from_csr(starts, matrix.indices[:end], matrix.data[:end], None, prefix="matrix.")
    try:
        if matrix.format in ("csc", "bsr"):
            matrix.check_format(full_check=True)
        triplets = matrix.tocoo()
        edges = np.stack([triplets.col, triplets.row])
    except (ValueError, TypeError, IndexError) as error:
        given = f"a broken {matrix.format} matrix ({error})"
        raise InputError(argument="matrix", given=given, expected="a sound scipy.sparse matrix") from error
    return from_edges(edges, n, triplets.data, ("matrix", "matrix.data"), "The matrix has {} rows.")


def _num_nodes(edges: NDArray[Any], num_nodes: int | None) -> int:
    """Return the number of vertices given, or else the largest id plus 1."""
    if num_nodes is not None:
        return validation.check_num_nodes("num_nodes", num_nodes)
    if edges.size == 0:
        raise InputError(
            argument="edge_index",
            given="no edges",
            expected="at least one edge where num_nodes is not given",
            hint="A graph needs at least one vertex: pass num_nodes.",
        )
    n = max(int(edges.max()) + 1, 1)  # ids below 0 are refused next, with their position
    if n > validation.MAX_NODES:
        given = first_bad(edges == n - 1, edges)
        raise CapacityError(argument="edge_index", given=given, expected="vertex ids below 2**48")
    return n


# ------------------------------------------------------------------------------------ the order of the entries


def rows_sorted(indptr: NDArray[Any], indices: NDArray[Any]) -> bool:
    """Return whether sources ascend within each row. O(n + num_edges) time, one bool per edge."""
    falls = indices[1:] < indices[:-1]
    inner = indptr[(indptr > 0) & (indptr < len(indices))]
    falls[inner - 1] = False
    return not falls.any()


def targets(indptr: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the row of each entry."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=dtype), np.diff(indptr))


def row_entries(indptr: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the entries of some rows, row after row.

    Examples
    --------
    >>> row_entries(np.array([0, 2, 3, 5]), np.array([2, 0]))
    array([3, 4, 0, 1])
    """
    sizes = indptr[rows + 1] - indptr[rows]
    begins = np.cumsum(sizes) - sizes
    return np.repeat(indptr[rows] - begins, sizes) + np.arange(int(sizes.sum()))


def sort_entries(
    sources: NDArray[Any], targets: NDArray[Any], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64] | None]:
    """Sort edges by (target, source, position); return indptr, indices and the position of each entry.

    Positions are None where the edges were in that order already. ``indices`` are int32 where num_nodes < 2**31, else
    int64. O(num_nodes + E) time for each 12 bits of a vertex id, by the compiled core's threads.
    """
    core, dtype, count = compiled_core(), np.result_type(sources, targets), len(sources)
    try:
        ends = sources.astype(dtype, copy=False), targets.astype(dtype, copy=False)
        indptr, order = np.empty(num_nodes + 1, np.int64), np.empty(count, np.int64)
        indices = np.empty(count, np.int64 if num_nodes > validation.INT32_NODES else np.int32)
        is_ordered = (edge_order if core is None else core.edge_order)(*ends, indptr, indices, order)
    except MemoryError as error:
        given = f"{num_nodes} vertices and {count} edges"
        hint = "A vertex id may be far too large: ids need not all be used, but each takes 8 bytes."
        raise CapacityError(
            argument="num_nodes", given=given, expected="a graph that fits in memory", hint=hint
        ) from error
    clear_pool()  # a graph is made once: what sorting took need not be kept for other calls
    return indptr, indices, None if is_ordered else order


def edge_order(
    sources: NDArray[Any],
    targets: NDArray[Any],
    indptr: NDArray[np.int64],
    indices: NDArray[Any],
    positions: NDArray[np.int64],
) -> bool:
    """`edge_order` of the compiled core, in NumPy.

    Examples
    --------
    >>> indptr, indices, positions = np.empty(4, np.int64), np.empty(3, np.int32), np.empty(3, np.int64)
    >>> edge_order(np.array([2, 0, 1]), np.array([0, 1, 0]), indptr, indices, positions)
    False
    >>> indptr.tolist(), indices.tolist(), positions.tolist()
    ([0, 2, 3, 3], [1, 2, 0], [2, 0, 1])
    """
    positions[:] = np.lexsort((sources, targets))
    indptr[0] = 0
    np.cumsum(np.bincount(targets, minlength=len(indptr) - 1), out=indptr[1:])
    indices[:] = sources[positions]
    return np.array_equal(positions, np.arange(len(positions)))


ROWS_AT_ONCE = 1 << 16
"""Whose entries are numbered by row, where rows are summed."""


@default_float_environment()
def normalized(arrays: GraphArrays, kind: str) -> GraphArrays:
    """Return the arrays of A normalised: `kind` is "row" or "sym", as of `Graph.normalized`."""
    if kind == "row" and arrays.lying("data") is None:  # rows of a "row" graph sum to 1 already
        made = copy(arrays)
        made.weighting = "row"
        return made
    values, per_row = entry_values(arrays), np.diff(arrays.indptr)
    sums = sums_by_row(arrays.indptr, values)
    if not np.isfinite(sums).all():
        row = int(np.argmax(~np.isfinite(sums)))
        given = f"a sum above {np.finfo(np.float64).max:.3g} in row {row}"
        raise CapacityError(argument="data", given=given, expected="row sums that float64 can hold")
    if kind == "row":
        divisor = np.repeat(sums, per_row)
    else:
        root = np.sqrt(sums)
        divisor = np.repeat(root, per_row)
        divisor *= root[arrays.indices]
    return GraphArrays(arrays.indptr, arrays.indices, divided(values, divisor, value_dtype(arrays)), arrays.edge_ids)


def with_self_loops(arrays: GraphArrays) -> GraphArrays:
    """Return the arrays of A with an edge (v, v) for every vertex that has none, as `Graph.with_self_loops`."""
    indptr, indices, num_nodes = arrays.indptr, arrays.indices, len(arrays.indptr) - 1
    rows = targets(indptr, indices.dtype)
    missing = np.ones(num_nodes, dtype=bool)
    missing[rows[indices == rows]] = False
    if not missing.any() and arrays.weighting != "row":
        return arrays
    added = np.flatnonzero(missing)
    before = np.bincount(rows[indices < rows], minlength=num_nodes)
    at = (indptr[:-1] + before)[added]
    moved = indptr.copy()
    moved[1:] += np.cumsum(missing)
    data = None
    if arrays.weighting != "unweighted":
        data = np.insert(entry_values(arrays).astype(value_dtype(arrays), copy=False), at, 1)
    ids = np.arange(len(indices), dtype=np.int64) if arrays.edge_ids is None else arrays.edge_ids
    return GraphArrays(moved, np.insert(indices, at, added), data, np.insert(ids, at, len(indices) + added))


def entry_values(arrays: GraphArrays) -> NDArray[Any]:
    """Return the value of every entry: ``data``, or else float64."""
    if arrays.data is not None:
        return arrays.data
    if arrays.weighting == "unweighted":
        return np.ones(len(arrays.indices))
    per_row = np.diff(arrays.indptr)
    with np.errstate(divide="ignore"):
        return np.repeat(1.0 / per_row, per_row)


def value_dtype(arrays: GraphArrays) -> np.dtype[Any]:
    """Return the dtype of values computed from a graph: that of ``data``, and float32 where there is none."""
    data = arrays.lying("data")
    return np.dtype(np.float32) if data is None else data.dtype


def sums_by_row(indptr: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum the values of each row of a CSR matrix in float64, one addition after the other.

    Examples
    --------
    >>> sums_by_row(np.array([0, 2, 2, 3]), np.array([0.5, 1.0, 2.0]))
    array([1.5, 0. , 2. ])
    """
    sums = np.zeros(len(indptr) - 1)
    for first in range(0, len(sums), ROWS_AT_ONCE):
        counts = np.diff(indptr[first : first + ROWS_AT_ONCE + 1])
        begin, end = indptr[[first, first + len(counts)]]
        rows = np.repeat(np.arange(len(counts)), counts)
        sums[first : first + len(counts)] = np.bincount(rows, values[begin:end], len(counts))
    return sums


def sums_of_rows(weighting: str, indptr: NDArray[np.int64], values: NDArray[Any] | None) -> NDArray[np.float32]:
    """Sum rows of a graph, which stores weights only where it is "weighted": of ones else, or of one over their number.

    Examples
    --------
    >>> indptr = np.array([0, 2, 2])
    >>> sums_of_rows("weighted", indptr, np.array([0.5, 1.0])), sums_of_rows("row", indptr, None)
    (array([1.5, 0. ], dtype=float32), array([1., 0.], dtype=float32))
    """
    if values is not None:
        return sums_by_row(indptr, values).astype(np.float32)
    degrees = np.diff(indptr)
    return (np.minimum(degrees, 1) if weighting == "row" else degrees).astype(np.float32)


def divided(values: NDArray[Any], divisor: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values / divisor, 0 where the divisor is 0, rounded once to `dtype`.

    Raises
    ------
    CapacityError
        If a positive value would become 0 or infinite.

    Examples
    --------
    >>> divided(np.array([1.0, 3.0, 2.0]), np.array([4.0, 4.0, 0.0]), np.dtype(np.float32))
    array([0.25, 0.75, 0.  ], dtype=float32)
    """
    quotient = np.zeros(len(values))
    kept = divisor > 0
    with np.errstate(over="ignore", under="ignore"):
        np.divide(values, divisor, out=quotient, where=kept)
        data = quotient.astype(dtype, copy=False)
    bad = kept & (values > 0) & ((data == 0) | ~np.isfinite(data))
    if bad.any():
        at = int(np.argmax(bad))
        given = f"{values[at]} at entry {at}, to be divided by {divisor[at]}"
        raise CapacityError(argument="data", given=given, expected=f"a quotient that {dtype} can hold")
    return data
