"""The graph: a square sparse matrix A, row = target vertex, columns = its in-neighbours."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.backends import Matrix, get_backend
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.sparse.csr import CSRMatrix
from spsample.sparse.local import LocalOperand
from spsample.store import validation

__all__ = ["Graph", "Weighting"]

Weighting = Literal["unweighted", "row", "weighted"]
"""What the values of A are: all 1; all 1 / (entries of the row); or those in ``data``."""


class Graph:
    """A directed graph in CSR form: row = target vertex, columns = the vertices it aggregates from.

    The order of the entries is fixed here, once: (target, source, position in the input). Rows that are
    given in another order are sorted stably, and ``edge_ids`` leads from an entry to its position in the
    input. Parallel edges are kept, unmerged. int32 and int64 ``indices``, and float32 and float64 ``data``,
    keep their dtype; arrays that are already valid, contiguous and in order are shared with the caller, not
    copied, and must not be changed afterwards. A graph itself never changes: its arrays are read-only.

    Parameters
    ----------
    indptr : array_like of integers, shape (n + 1,)
        Row v holds the entries ``indptr[v]`` to ``indptr[v + 1]``. Stored as int64.
    indices : array_like of integers, shape (num_edges,)
        The source vertex of each entry. int32 only where n < 2**31.
    data : array_like of real numbers, shape (num_edges,), optional
        Edge weights, finite and at least 0; without them every edge weighs 1.
    edge_ids : array_like of integers, shape (num_edges,), optional
        An id of at least 0 for each entry, instead of its position in the input.
    validate : bool, optional
        False skips every check of contents; `indptr` must then be right, and every row in order.

    Raises
    ------
    DTypeError
        If an array has the wrong dtype, or is sparse, masked, or not in host memory.
    InputError
        If shapes or contents are wrong: the message names the argument and its first bad entry.
    CapacityError
        If there are more vertices than the dtype of `indices` (or 48 bits) can number.

    Notes
    -----
    Arrays may be NumPy arrays, lists, torch CPU tensors, or anything else with ``__array__`` or DLPack in
    host memory. Checks take O(n + num_edges) time and, apart from a sort where one is needed, one bool per
    edge.

    Examples
    --------
    >>> graph = Graph(indptr=[0, 2, 3, 3], indices=[2, 1, 0])
    >>> graph
    Graph(num_nodes=3, num_edges=3, weighting='unweighted', indices=int64)
    >>> graph.indices, graph.edge_ids
    (array([1, 2, 0]), array([1, 0, 2]))
    """

    __slots__ = ("__weakref__", "_data", "_edge_ids", "_indices", "_indptr", "_operands", "_weighting")

    _indptr: NDArray[np.int64]
    _indices: NDArray[Any]
    _data: NDArray[Any] | None
    _edge_ids: NDArray[np.int64] | None
    _weighting: Weighting

    def __init__(
        self, indptr: Any, indices: Any, data: Any = None, *, edge_ids: Any = None, validate: bool = True
    ) -> None:
        starts, columns, weights, ids = _checked(indptr, indices, data, edge_ids, validate=validate)
        self._set(starts, columns, weights, ids, "unweighted" if weights is None else "weighted")

    # ------------------------------------------------------------------------------------------- construction

    @classmethod
    def from_edge_index(cls, edge_index: Any, *, num_nodes: int | None = None, edge_weight: Any = None) -> Graph:
        """Make a graph from a list of edges, in PyG's convention: row 0 = source, row 1 = target.

        The edges are reordered to (target, source, input position); ``edge_ids`` holds their positions in
        `edge_index`, so that ``edge_index[:, graph.edge_ids]`` are the entries in the order of the graph
        (None where the order given was that already).

        Parameters
        ----------
        edge_index : array_like of integers, shape (2, E)
            Parallel edges are kept.
        num_nodes : int, optional
            Number of vertices; by default the largest id plus 1.
        edge_weight : array_like of real numbers, shape (E,), optional
            Finite and at least 0.

        Returns
        -------
        Graph
            Its ``indices`` are int32 where num_nodes < 2**31, else int64.

        Raises
        ------
        DTypeError, InputError, CapacityError
            As :class:`Graph`; also where `edge_index` has no edges and `num_nodes` is not given.

        Notes
        -----
        Two stable counting sorts (by source, then by target), as the conversions CSR -> CSC -> CSR of
        ``scipy.sparse``: O(num_nodes + E) time; at the peak about 35 bytes per edge, the result included.

        Examples
        --------
        >>> graph = Graph.from_edge_index([[2, 0, 1], [0, 1, 0]], num_nodes=3)
        >>> graph.indptr, graph.indices, graph.edge_ids
        (array([0, 2, 3, 3]), array([1, 2, 0], dtype=int32), array([2, 0, 1]))
        """
        edges = validation.as_edge_index("edge_index", edge_index)
        n = _num_nodes(edges, num_nodes)
        hint = "" if num_nodes is None else f"num_nodes={n} was given."
        validation.check_ids("edge_index", edges, n, hint)
        weights = None
        if edge_weight is not None:
            weights = validation.as_weights("edge_weight", edge_weight)
            validation.check_length("edge_weight", weights, edges.shape[1], "edge")
            validation.check_weights("edge_weight", weights)
        indptr, indices, order = _sort_entries(edges[0], edges[1], n)
        moved = not _is_identity(order)
        if weights is not None and moved:
            weights = weights[order]
        weighting: Weighting = "unweighted" if weights is None else "weighted"
        return cls._from_parts(indptr, indices, weights, order if moved else None, weighting)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """Make a weighted graph from a square ``scipy.sparse`` matrix: row = target, column = source.

        Every stored entry becomes an edge: duplicates (of a COO matrix, say) are neither summed nor
        dropped, and stored zeros stay. ``edge_ids`` are positions in ``matrix.tocoo()``, which for CSR and
        COO are positions in ``matrix.data``. For an unweighted graph of the same pattern use
        ``Graph(m.indptr, m.indices)``.

        Parameters
        ----------
        matrix : scipy.sparse matrix or array of shape (n, n)
            Values real, finite and at least 0. The arrays of a CSR matrix in order are shared, not copied.

        Raises
        ------
        DTypeError
            If it is not a scipy.sparse matrix, or is complex.
        InputError
            If it is not square, or a value is negative or not finite.

        Examples
        --------
        >>> import scipy.sparse
        >>> matrix = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([1, 0, 1], [0, 1, 0])), shape=(2, 2))
        >>> graph = Graph.from_scipy(matrix)
        >>> graph.indptr, graph.data, graph.edge_ids
        (array([0, 1, 3]), array([2., 1., 4.]), array([1, 0, 2]))
        """
        if not scipy.sparse.issparse(matrix):
            given = f"an object of type {type(matrix).__name__}"
            raise DTypeError(argument="matrix", given=given, expected="a scipy.sparse matrix or array")
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            given = f"shape {matrix.shape}"
            raise InputError(argument="matrix", given=given, expected="a square matrix, one row per vertex")
        n = validation.check_num_nodes("matrix", int(matrix.shape[0]))
        if matrix.format == "csr":
            end = int(matrix.indptr[-1])  # scipy allows room behind the last entry
            parts = (matrix.indptr, matrix.indices[:end], matrix.data[:end], None)
            return cls._from_parts(*_checked(*parts, prefix="matrix."), "weighted")
        triplets = _triplets(matrix)
        weights = validation.as_weights("matrix.data", triplets.data)
        validation.check_length("matrix.data", weights, len(triplets.row), "entry of matrix.row")
        validation.check_length("matrix.col", triplets.col, len(triplets.row), "entry of matrix.row")
        validation.check_weights("matrix.data", weights)
        validation.check_ids("matrix.row", triplets.row, n)
        validation.check_ids("matrix.col", triplets.col, n)
        indptr, indices, order = _sort_entries(triplets.col, triplets.row, n)
        edge_ids = None if _is_identity(order) else order
        return cls._from_parts(indptr, indices, weights[order], edge_ids, "weighted")

    @classmethod
    def _from_parts(
        cls,
        indptr: NDArray[np.int64],
        indices: NDArray[Any],
        data: NDArray[Any] | None,
        edge_ids: NDArray[np.int64] | None,
        weighting: Weighting,
    ) -> Graph:
        """Make a graph of arrays that are known to be right."""
        graph = cls.__new__(cls)
        graph._set(indptr, indices, data, edge_ids, weighting)
        return graph

    def _set(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[Any],
        data: NDArray[Any] | None,
        edge_ids: NDArray[np.int64] | None,
        weighting: Weighting,
    ) -> None:
        self._indptr = _frozen(indptr.astype(np.int64, copy=False))
        self._indices = _frozen(indices)
        self._data = None if data is None else _frozen(data)
        self._edge_ids = None if edge_ids is None else _frozen(edge_ids.astype(np.int64, copy=False))
        self._weighting = weighting
        self._operands: dict[str, LocalOperand] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Graph._from_parts, (self._indptr, self._indices, self._data, self._edge_ids, self._weighting)

    # --------------------------------------------------------------------------------------------- properties

    @property
    def num_nodes(self) -> int:
        """Number of vertices n."""
        return len(self._indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of A, parallel edges counted each."""
        return len(self._indices)

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Row starts: int64, shape (n + 1,), read-only."""
        return self._indptr

    @property
    def indices(self) -> NDArray[Any]:
        """Source vertices, ascending within a row: int32 or int64, shape (num_edges,), read-only."""
        return self._indices

    @property
    def data(self) -> NDArray[Any] | None:
        """Edge weights: float32 or float64, shape (num_edges,), read-only; None where none are stored."""
        return self._data

    @property
    def edge_ids(self) -> NDArray[np.int64] | None:
        """Position of each entry in the user's input: int64, read-only; None means the entry's own."""
        return self._edge_ids

    @property
    def weighting(self) -> Weighting:
        """What the values are: "unweighted" (1), "row" (1 / entries of the row) or "weighted" (``data``)."""
        return self._weighting

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of values computed from this graph: that of ``data``, and float32 where there is none."""
        return np.dtype(np.float32) if self._data is None else self._data.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of this graph (some may be shared with other graphs).

        Examples
        --------
        >>> Graph(indptr=[0, 1, 2], indices=np.array([1, 0], dtype=np.int32)).nbytes
        32
        """
        arrays = (self._indptr, self._indices, self._data, self._edge_ids)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def csr(self) -> CSRMatrix:
        """A as a :class:`spsample.sparse.CSRMatrix` over the same arrays.

        Its ``data`` are None where none are stored, also where ``weighting`` is "row".
        """
        return CSRMatrix(self._indptr, self._indices, self._data, (self.num_nodes, self.num_nodes))

    def operand(self, backend: str | None = None) -> LocalOperand:
        """Return A as the sampling algebra sees it, on the backend of that name (None: the fastest).

        One operand per backend is kept, with what it derives from the whole graph (as for FastGCN).

        Examples
        --------
        >>> Graph(indptr=[0, 1, 2], indices=[1, 0]).operand("reference").num_nodes
        2
        """
        chosen = get_backend(backend)
        if chosen.name not in self._operands:
            matrix = Matrix(self._indptr, self._indices, self._data, self._weighting == "row")
            self._operands[chosen.name] = LocalOperand(matrix, self._edge_ids, chosen)
        return self._operands[chosen.name]

    def __repr__(self) -> str:
        weights = "" if self._data is None else f", data={self._data.dtype}"
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"weighting={self._weighting!r}, indices={self._indices.dtype}{weights})"
        )

    # ----------------------------------------------------------------------------------------- derived graphs

    def in_degrees(self) -> NDArray[np.int64]:
        """Count the entries of each row, parallel edges each: int64, shape (n,).

        Examples
        --------
        >>> Graph(indptr=[0, 2, 2], indices=[0, 1]).in_degrees()
        array([2, 0])
        """
        return np.diff(self._indptr)

    def normalized(self, kind: str) -> Graph:
        """Return A normalised by rows or symmetrically; edge ids and the order of entries stay.

        Parameters
        ----------
        kind : "row" or "sym"
            "row" is A_iv / d_i, where d_i is the sum of row i. For an unweighted graph nothing is computed:
            the result shares all arrays and is marked ``weighting="row"``, its values being
            1 / (entries of the row), so that samplers can use the law of rows whose entries weigh the same.
            Rows that sum to 0 stay 0.

            "sym" is A_iv / sqrt(d_i d_v), where d_v is the sum of row v, as in graph convolutions (Kipf and
            Welling, 2017). Where d_v is 0 the value is 0, as in PyG's ``gcn_norm``; add self loops first to
            avoid it.

        Returns
        -------
        Graph
            Stored values have the dtype ``graph.dtype``.

        Raises
        ------
        InputError
            If `kind` is neither.
        CapacityError
            If a row sum overflows float64, or a positive value would become 0 or infinite in ``graph.dtype``.

        Notes
        -----
        Row sums are float64 sums in the order of the entries, one addition after the other; each value is
        computed in float64 and rounded once to ``graph.dtype``. The result is therefore the same on every
        machine.

        Examples
        --------
        >>> graph = Graph(indptr=[0, 2, 3], indices=[0, 1, 0], data=[1.0, 3.0, 5.0])
        >>> graph.normalized("row").data
        array([0.25, 0.75, 1.  ])
        >>> Graph(indptr=[0, 2, 3], indices=[0, 1, 0]).normalized("row")
        Graph(num_nodes=2, num_edges=3, weighting='row', indices=int64)
        """
        if validation.require_choice("kind", kind, ("row", "sym")) == "sym":
            return self._normalized_sym()
        if self._data is None:  # rows of a "row" graph sum to 1 already
            return self._from_parts(self._indptr, self._indices, None, self._edge_ids, "row")
        divisor = self._spread(self._row_sums(self._data))
        return self._with_values(self._data, divisor)

    def _normalized_sym(self) -> Graph:
        values = self._values()
        root = np.sqrt(self._row_sums(values))
        divisor = self._spread(root)
        divisor *= root[self._indices]
        return self._with_values(values, divisor)

    def _values(self) -> NDArray[Any]:
        """Return the value of every entry: ``data``, or else float64."""
        if self._data is not None:
            return self._data
        if self._weighting == "unweighted":
            return np.ones(self.num_edges)
        with np.errstate(divide="ignore"):
            return self._spread(1.0 / self.in_degrees())

    def _spread(self, per_row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Repeat a value of each row for every entry of that row."""
        return np.repeat(per_row, self.in_degrees())

    def _row_sums(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Sum each row in float64, in entry order: scipy's CSR times a vector of ones is a plain loop."""
        shape = (self.num_nodes, self.num_nodes)
        matrix = scipy.sparse.csr_array(
            (values.astype(np.float64, copy=False), self._indices, self._indptr), shape=shape
        )
        sums = np.asarray(matrix @ np.ones(self.num_nodes))
        if not np.isfinite(sums).all():
            row = int(np.argmax(~np.isfinite(sums)))
            given = f"a sum above {np.finfo(np.float64).max:.3g} in row {row}"
            raise CapacityError(argument="data", given=given, expected="row sums that float64 can hold")
        return sums

    def _with_values(self, values: NDArray[Any], divisor: NDArray[np.float64]) -> Graph:
        """Return a graph with data = values / divisor (0 where that is 0), rounded once to ``dtype``."""
        quotient = np.zeros(self.num_edges)
        kept = divisor > 0
        with np.errstate(over="ignore", under="ignore"):
            np.divide(values, divisor, out=quotient, where=kept)
            data = quotient.astype(self.dtype, copy=False)
        bad = kept & (values > 0) & ((data == 0) | ~np.isfinite(data))
        if bad.any():
            at = int(np.argmax(bad))
            given = f"{values[at]} at entry {at}, to be divided by {divisor[at]}"
            raise CapacityError(argument="data", given=given, expected=f"a quotient that {self.dtype} can hold")
        return self._from_parts(self._indptr, self._indices, data, self._edge_ids, "weighted")

    def with_self_loops(self) -> Graph:
        """Return A with an edge (v, v) for every vertex that has none.

        Its weight is 1 where values are stored. An added loop of vertex v has the edge id ``num_edges + v``,
        num_edges being that of this graph; all other edges keep theirs. A graph with ``weighting="row"``
        becomes a weighted one, with its values stored: add self loops first and normalise then, to normalise
        A + I.

        Examples
        --------
        >>> graph = Graph(indptr=[0, 2, 3], indices=[0, 1, 0]).with_self_loops()
        >>> graph.indptr, graph.indices, graph.edge_ids
        (array([0, 2, 4]), array([0, 1, 0, 1]), array([0, 1, 2, 4]))
        """
        rows = _targets(self._indptr, self._indices.dtype)
        missing = np.ones(self.num_nodes, dtype=bool)
        missing[rows[self._indices == rows]] = False
        if not missing.any() and self._weighting != "row":
            return self
        added = np.flatnonzero(missing)
        before = np.bincount(rows[self._indices < rows], minlength=self.num_nodes)
        at = (self._indptr[:-1] + before)[added]
        indptr = self._indptr.copy()
        indptr[1:] += np.cumsum(missing)
        indices = np.insert(self._indices, at, added)
        data = None
        if self._weighting != "unweighted":
            data = np.insert(self._values().astype(self.dtype, copy=False), at, 1)
        ids = np.arange(self.num_edges, dtype=np.int64) if self._edge_ids is None else self._edge_ids
        edge_ids = np.insert(ids, at, self.num_edges + added)
        return self._from_parts(indptr, indices, data, edge_ids, "unweighted" if data is None else "weighted")

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Return A as a ``scipy.sparse.csr_array`` of shape (n, n); parallel edges stay apart.

        Values that are not stored are float64. The arrays are copies, which may be changed.

        Examples
        --------
        >>> Graph(indptr=[0, 2, 3], indices=[0, 1, 0]).normalized("row").to_scipy().toarray()
        array([[0.5, 0.5],
               [1. , 0. ]])
        """
        arrays = (self._values(), self._indices, self._indptr)
        return scipy.sparse.csr_array(arrays, shape=(self.num_nodes, self.num_nodes), copy=True)


# ---------------------------------------------------------------------------------------------------- helpers


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make a contiguous, read-only view; copies only what is not contiguous."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _checked(
    indptr: Any, indices: Any, data: Any, edge_ids: Any, *, validate: bool = True, prefix: str = ""
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    """Return the four arrays of a CSR matrix, checked and in order; `prefix` goes before their names."""
    starts = validation.as_id_vector(f"{prefix}indptr", indptr)
    columns = validation.as_id_vector(f"{prefix}indices", indices)
    weights = None if data is None else validation.as_weights(f"{prefix}data", data)
    ids = None if edge_ids is None else validation.as_id_vector(f"{prefix}edge_ids", edge_ids)
    _check_vertices(prefix, len(starts) - 1, columns.dtype)
    for name, array in (("data", weights), ("edge_ids", ids)):
        if array is not None:
            validation.check_length(f"{prefix}{name}", array, len(columns), "entry of indices")
    if not validate:
        return starts, columns, weights, ids
    validation.check_indptr(f"{prefix}indptr", starts, len(columns))
    validation.check_ids(f"{prefix}indices", columns, len(starts) - 1)
    if weights is not None:
        validation.check_weights(f"{prefix}data", weights)
    if ids is not None:
        validation.check_not_negative(f"{prefix}edge_ids", ids)
    if _rows_sorted(starts, columns):
        return starts, columns, weights, ids
    starts, ordered, order = _sort_entries(columns, _targets(starts, columns.dtype), len(starts) - 1)
    weights = None if weights is None else weights[order]
    return starts, ordered.astype(columns.dtype, copy=False), weights, order if ids is None else ids[order]


def _check_vertices(prefix: str, n: int, dtype: np.dtype[Any]) -> None:
    """Check that there are vertices, and that ids of `dtype` can number them."""
    if n < 1:
        raise InputError(
            argument=f"{prefix}indptr",
            given=f"length {n + 1}",
            expected="length n + 1 with n at least 1: a graph needs at least one vertex",
        )
    if n > validation.MAX_NODES:
        raise CapacityError(argument=f"{prefix}indptr", given=f"{n} vertices", expected="at most 2**48 vertices")
    if dtype == np.int32 and n > validation.INT32_NODES:
        given = f"int32 for {n} vertices"
        raise CapacityError(argument=f"{prefix}indices", given=given, expected="int64 from 2**31 vertices on")


def _triplets(matrix: Any) -> Any:
    """Convert a scipy.sparse matrix to COO, once its own structure is known to be sound."""
    try:
        if matrix.format in ("csc", "bsr"):
            matrix.check_format(full_check=True)
        return matrix.tocoo()
    except ValueError as error:
        given = f"a broken {matrix.format} matrix ({error})"
        raise InputError(argument="matrix", given=given, expected="a sound scipy.sparse matrix") from error


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
        at = np.unravel_index(int(np.argmax(edges)), edges.shape)
        given = f"{n - 1} at position {tuple(int(i) for i in at)}"
        raise CapacityError(argument="edge_index", given=given, expected="vertex ids below 2**48")
    return n


def _rows_sorted(indptr: NDArray[Any], indices: NDArray[Any]) -> bool:
    """Whether sources ascend within each row. O(n + num_edges) time, one bool per edge."""
    falls = indices[1:] < indices[:-1]
    inner = indptr[(indptr > 0) & (indptr < len(indices))]
    falls[inner - 1] = False
    return not falls.any()


def _targets(indptr: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the row of each entry."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=dtype), np.diff(indptr))


def _is_identity(order: NDArray[Any]) -> bool:
    return np.array_equal(order, np.arange(len(order)))


def _sort_entries(
    sources: NDArray[Any], targets: NDArray[Any], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Sort edges by (target, source, position); return indptr, indices and the position of each entry.

    Two counting sorts, each stable, O(num_nodes + E): scipy's change of compressed axis lists the entries
    of every new row in the order in which it meets them. First E x n, one entry per row, to columns; then n
    x n, which holds the positions as values, to rows. ``indices`` are int32 where num_nodes < 2**31, else
    int64.
    """
    count, n = len(sources), num_nodes
    dtype = np.int32 if n <= validation.INT32_NODES else np.int64
    small = np.int32 if max(n, count) < validation.INT32_NODES else np.int64
    try:
        rows = (
            np.zeros(count, np.int8),
            sources.astype(small, copy=False),
            np.arange(count + 1, dtype=small),
        )
        by_source = scipy.sparse.csr_array(rows, shape=(count, n)).tocsc()
        position = by_source.indices
        columns = (position, targets.astype(small, copy=False)[position], by_source.indptr)
        matrix = scipy.sparse.csc_array(columns, shape=(n, n)).tocsr()
    except MemoryError as error:
        given = f"{n} vertices and {count} edges"
        hint = "A vertex id may be far too large: ids need not all be used, but each takes 8 bytes."
        raise CapacityError(
            argument="num_nodes", given=given, expected="a graph that fits in memory", hint=hint
        ) from error
    indptr, order = matrix.indptr.astype(np.int64, copy=False), matrix.data.astype(np.int64, copy=False)
    return indptr, matrix.indices.astype(dtype, copy=False), order
