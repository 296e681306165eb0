"""The graph: a square sparse matrix A, row = target vertex, columns = its in-neighbours."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix, get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.common.checks import require_choice
from spsample.common.contents import Contents
from spsample.errors import DataError
from spsample.sparse.csr import CSRMatrix
from spsample.sparse.local import LocalOperand
from spsample.sparse.operand import Weighting
from spsample.store import construction
from spsample.store.base_graph import BaseGraph
from spsample.store.mapped_store import MappedStore
from spsample.store.normalization import divided, row_sums, sums_of_rows
from spsample.store.row_order import ReorderedArrays

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from spsample.store.device_graph import DeviceGraph
    from spsample.store.writer import StoreWriter

__all__ = ["Graph", "StoreOrigin"]

_Known = TypeVar("_Known")
_ARRAYS = ("indptr", "indices", "data", "edge_ids")


class StoreOrigin(NamedTuple):
    """The store that a graph's arrays are maps of: its absolute path, the digest of its graph, how it is accessed."""

    path: str
    digest: str
    access: str


class Graph(BaseGraph):
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

    __slots__ = (
        "__weakref__",
        "_contents",
        "_data",
        "_device_graph",
        "_edge_ids",
        "_indices",
        "_indptr",
        "_known",
        "_operands",
        "_origin",
        "_reordered",
        "_weighting",
    )

    _indptr: NDArray[np.int64]
    _indices: NDArray[Any]
    _data: NDArray[Any] | None
    _edge_ids: NDArray[np.int64] | None
    _weighting: Weighting
    _origin: StoreOrigin | None
    _reordered: ReorderedArrays | None
    """What a store has whose rows were moved; `_indices`, `_data` and `_edge_ids` are then made of it on first use."""

    def __init__(
        self, indptr: Any, indices: Any, data: Any = None, *, edge_ids: Any = None, validate: bool = True
    ) -> None:
        arrays = construction.from_csr(indptr, indices, data, edge_ids, validate=validate)
        self._set(*arrays, weighting=arrays.weighting)

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
            As `Graph`; also where `edge_index` has no edges and `num_nodes` is not given.

        Notes
        -----
        Counting sorts by threads of the compiled core, O(num_nodes + E) time; at the peak about 36 bytes per edge, the
        result included. Edges that are in order need no sort, and those that ascend by source half of it.

        Examples
        --------
        >>> graph = Graph.from_edge_index([[2, 0, 1], [0, 1, 0]], num_nodes=3)
        >>> graph.indptr, graph.indices, graph.edge_ids
        (array([0, 2, 3, 3]), array([1, 2, 0], dtype=int32), array([2, 0, 1]))
        """
        arrays = construction.from_edges(edge_index, num_nodes, edge_weight)
        return cls._from_parts(*arrays, weighting=arrays.weighting)

    @classmethod
    def from_pyg(cls, data: Any, weight_attr: str | None = None) -> Graph:
        """Make a graph of a ``torch_geometric.data.Data``; ``edge_ids`` are columns of ``data.edge_index``.

        Where the data have ``adj_t``, a ``torch_sparse.SparseTensor`` or a tensor of layout ``torch.sparse_csr`` or
        ``torch.sparse_coo``, its entries are the edges, in its order, as in PyG's loaders.

        Parameters
        ----------
        data : torch_geometric.data.Data
            With ``edge_index`` or ``adj_t``; ``data.num_nodes`` vertices.
        weight_attr : str, optional
            Name of the attribute that holds edge weights, one per edge, finite and at least 0. Without it the graph is
            unweighted, whatever the data hold.

        Returns
        -------
        Graph
            As of `from_edge_index`.

        Raises
        ------
        DTypeError, InputError, CapacityError
            As `from_edge_index`; also for typed graphs (``HeteroData``), and where the data lack what is asked for.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> data = SimpleNamespace(edge_index=[[2, 0, 1], [0, 1, 0]], num_nodes=3, w=[0.5, 1.0, 2.0])
        >>> graph = Graph.from_pyg(data, weight_attr="w")
        >>> graph.edge_ids, graph.data
        (array([2, 0, 1]), array([2. , 0.5, 1. ]))
        """
        from spsample.store.pyg_data import graph_arrays

        arrays = graph_arrays(data, weight_attr)
        return cls._from_parts(*arrays, weighting=arrays.weighting)

    @classmethod
    def from_dgl(cls, graph: Any, weight_name: str | None = None) -> Graph:
        """Make a graph of a ``dgl.DGLGraph``; ``edge_ids`` are those of DGL.

        Parameters
        ----------
        graph : dgl.DGLGraph
            Of one type of vertices and one of edges.
        weight_name : str, optional
            Name of the edge weights in ``graph.edata``, one per edge, finite and at least 0. Without it the graph is
            unweighted.

        Returns
        -------
        Graph
            As of `from_edge_index`.

        Raises
        ------
        DTypeError, InputError, CapacityError
            As `from_edge_index`; also for graphs of several types and blocks, and where weights are missing.

        Examples
        --------
        >>> import dgl  # doctest: +SKIP
        >>> graph = Graph.from_dgl(dgl.graph(([2, 0, 1], [0, 1, 0])))  # doctest: +SKIP
        >>> graph.edge_ids  # doctest: +SKIP
        array([2, 0, 1])
        """
        from spsample.store.dgl_data import dgl_graph_arrays

        arrays = dgl_graph_arrays(graph, weight_name)
        return cls._from_parts(*arrays, weighting=arrays.weighting)

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
        arrays = construction.from_matrix(matrix)
        return cls._from_parts(*arrays, weighting=arrays.weighting)

    @classmethod
    def _from_parts(
        cls,
        indptr: NDArray[np.int64],
        indices: NDArray[Any],
        data: NDArray[Any] | None,
        edge_ids: NDArray[np.int64] | None,
        weighting: Weighting,
        origin: StoreOrigin | None = None,
    ) -> Graph:
        """Make a graph of arrays that are known to be right; `origin` where they are maps of a store's."""
        graph = cls.__new__(cls)
        graph._set(indptr, indices, data, edge_ids, weighting)
        graph._origin = origin
        return graph

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, access: str = "normal") -> Graph:
        """Open the graph of a store by memory maps: nothing is read but headers, whatever its size.

        Pages are read from the disk when samplers touch them, and the system may drop them again. Such a graph pickles
        as the path of its store: where it is unpickled the store is opened again, and refused if its graph is another
        one by then. The files must not be changed while they are open; replacing the whole store is safe.

        Parameters
        ----------
        path : path-like
            The folder of a store, as `save`, `spsample.store.StoreWriter` or ``spsample convert`` make it.
        access : "normal", "random", "sequential" or "willneed", optional
            What the system is told about pages that are not in memory: to read ahead as it does by default; to read
            only pages that are touched; to read far ahead; to read the whole files now, in the background. The default
            was the fastest where it was measured.

        Raises
        ------
        InputError
            If `access` is none of these.
        DataError
            As `spsample.store.GraphStore.open`.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> Graph([0, 2, 3], [0, 1, 0]).save(f"{folder.name}/small")
        >>> Graph.open(f"{folder.name}/small").indices
        array([0, 1, 0])
        >>> folder.cleanup()
        """
        return MappedStore.read(path, lambda store: cls.of_store(store, access))

    @classmethod
    def of_store(cls, store: MappedStore, access: str = "normal") -> Graph:
        """Return the graph of a store that is open, over its maps: nothing is read, copied or checked.

        Parameters
        ----------
        store : GraphStore
        access : str, optional
            As of `open`.
        """
        indptr, indices = store.array("indptr", access), store.array("indices", access)
        data = store.array("data", access) if "data" in store else None
        ids = store.array("edge_ids", access) if "edge_ids" in store else None
        origin = StoreOrigin(str(store.path), store.digest, access)
        order = store.row_order(access)
        if order is not None:
            return cls._from_reordered(ReorderedArrays(order, indices, data, ids), store.weighting, origin)
        return cls._from_parts(indptr, indices, data, ids, store.weighting, origin)

    @classmethod
    def _from_reordered(cls, arrays: ReorderedArrays, weighting: Weighting, origin: StoreOrigin | None) -> Graph:
        """Make a graph over the maps of a store whose rows were moved: rows are sampled where they lie."""
        graph = cls.__new__(cls)
        graph._indptr, graph._weighting, graph._origin = arrays.order.vertex_indptr, weighting, origin
        graph._reordered = arrays
        graph._operands, graph._known, graph._device_graph = {}, {}, None
        return graph

    def __getattr__(self, name: str) -> Any:
        """Fill an empty slot: entries by vertex of a store whose rows were moved, read into memory on first use."""
        if name == "_contents":
            self._contents = Contents({array: getattr(self, f"_{array}") for array in _ARRAYS})
        elif name in ("_indices", "_data", "_edge_ids") and self._reordered is not None:
            array = self._reordered.by_vertex(name.removeprefix("_"))
            setattr(self, name, None if array is None else _frozen(array))
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self, name)

    def _as_stored(self, name: str) -> NDArray[Any] | None:
        """Return indices, data or edge_ids in any order: nothing is read."""
        array: NDArray[Any] | None
        array = getattr(self, f"_{name}") if self._reordered is None else getattr(self._reordered, name)
        return array

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a store with the arrays of this graph: all of it or nothing.

        Parameters
        ----------
        path : path-like
            The folder to make.
        overwrite : bool, optional
            Replace a store that is there.

        Raises
        ------
        DataError
            As `spsample.store.StoreWriter`.
        """
        from spsample.store.writer import StoreWriter

        with StoreWriter(path, overwrite=overwrite) as writer:
            self.write_to(writer)

    def write_to(self, writer: StoreWriter) -> None:
        """Hand the arrays of this graph to a `spsample.store.StoreWriter`, which other arrays may go to as well."""
        arrays = {"indptr": self._indptr, "indices": self._indices, "data": self._data, "edge_ids": self._edge_ids}
        for name, array in arrays.items():
            if array is not None:
                writer.write(name, array)
        writer.set(weighting=self._weighting)

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
        self._origin = self._reordered = None
        arrays = {name: getattr(self, f"_{name}") for name in _ARRAYS}
        self._contents = Contents(arrays)
        self._operands: dict[str, LocalOperand] = {}
        self._known: dict[Hashable, Any] = {}
        self._device_graph: DeviceGraph | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            return _reopened, (*self._origin, self._weighting)
        return Graph._from_parts, (self._indptr, self._indices, self._data, self._edge_ids, self._weighting)

    # --------------------------------------------------------------------------------------------- properties

    @property
    def num_nodes(self) -> int:
        """Number of vertices n."""
        return len(self._indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of A, parallel edges counted each."""
        return self._indptr.item(-1)

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
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Dtype of ``indices``, and of vertex ids in samples."""
        return self._as_stored("indices").dtype  # type: ignore[union-attr]

    @property
    def digest(self) -> str | None:
        """What tells the arrays of this graph from others: a SHA-256 where they are a store's, else None.

        Two graphs with one digest and one `weighting` give the same samples. It comes from the checksums in
        ``meta.json``, not from the contents.

        Examples
        --------
        >>> Graph([0, 1], [0]).digest is None
        True
        """
        return None if self._origin is None else self._origin.digest

    def contents(self) -> dict[str, int]:
        """Return a number for each array, which tells its contents from others; made on first use and kept.

        The whole graph is read for it once, by all threads. Graphs with equal numbers and one `weighting` give the same
        samples: `ReplicatedGraph` and `PartitionedGraph.from_graph` compare them between ranks.

        Examples
        --------
        >>> graph, other = Graph([0, 1, 2], [1, 0]), Graph([0, 1, 2], [1, 1])
        >>> [name for name, number in graph.contents().items() if number != other.contents()[name]]
        ['indices']
        """
        return self._contents.numbers()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of values computed from this graph: that of ``data``, and float32 where there is none."""
        data = self._as_stored("data")
        return np.dtype(np.float32) if data is None else data.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of this graph (some may be shared with other graphs).

        Examples
        --------
        >>> Graph(indptr=[0, 1, 2], indices=np.array([1, 0], dtype=np.int32)).nbytes
        32
        """
        arrays = (self._indptr, *map(self._as_stored, _ARRAYS[1:]))
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def kept_nbytes(self) -> int:
        """Bytes kept for samplers beyond the arrays of the graph, made on first use.

        FastGCN keeps prefix sums and a guide table, 12 bytes per vertex (16 from 2**31 vertices on); LADIES and FastGCN
        keep 4 bytes per vertex where weights or squared counts ask for them; weighted GraphSAGE keeps 2.

        Examples
        --------
        >>> import spsample
        >>> graph = Graph(indptr=[0, 1, 2], indices=[1, 0])
        >>> bulk = spsample.bulk_sample(graph, [0], spsample.FastGCN([1]), batch_size=1)
        >>> graph.kept_nbytes
        36
        """
        return sum(operand.kept_nbytes for operand in self._operands.values())

    @property
    def csr(self) -> CSRMatrix:
        """A as a `spsample.sparse.CSRMatrix` over the same arrays.

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
        name = chosen.name
        if name == "cuda":
            return self.on_device().operand()
        if name not in self._operands:
            self._operands[name] = self._operand(chosen)
        return self._operands[name]

    def _operand(self, backend: Backend) -> LocalOperand:
        is_normalized = self._weighting == "row"
        if self._reordered is not None:
            return self._reordered.operand(backend, row_normalized=is_normalized)
        return LocalOperand(Matrix(self._indptr, self._indices, self._data, is_normalized), self._edge_ids, backend)

    def known(self, key: Hashable, find: Callable[[], _Known]) -> _Known:
        """Return what ``find`` gives: something small about this graph, found out once for a key and kept.

        Examples
        --------
        >>> graph = Graph(indptr=[0, 2, 2], indices=[0, 1])
        >>> graph.known("longest row", lambda: int(graph.in_degrees().max()))
        2
        """
        if key not in self._known:
            self._known[key] = find()
        found: _Known = self._known[key]
        return found

    @property
    def host(self) -> Graph:
        """Itself: it is in the memory of the host."""
        return self

    def to_device(self, backend: str | None) -> BaseGraph:
        """Return the graph where that backend's kernels read it: `on_device` for "cuda", else itself.

        Examples
        --------
        >>> graph = Graph(indptr=[0, 1, 2], indices=[1, 0])
        >>> graph.to_device("cpu") is graph
        True
        """
        return self.on_device() if backend == "cuda" else self

    def on_device(self) -> DeviceGraph:
        """Return the graph on the GPU: a `DeviceGraph` with ``entries="auto"``, made once and kept.

        Raises
        ------
        BackendError, MissingDependencyError
            If there is no GPU, or CuPy is missing.
        CapacityError
            If its row pointers do not fit there.
        """
        if self._device_graph is None:
            from spsample.store.device_graph import DeviceGraph

            self._device_graph = DeviceGraph(self)
        return self._device_graph

    def __repr__(self) -> str:
        weights = "" if self._as_stored("data") is None else f", data={self.dtype}"
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"weighting={self._weighting!r}, indices={self.index_dtype}{weights})"
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

    def longest_row(self) -> int:
        """Return the number of entries of the longest row: found on first use, and kept.

        Examples
        --------
        >>> Graph(indptr=[0, 2, 2], indices=[0, 1]).longest_row()
        2
        """
        return self.known("longest row", lambda: int(self.in_degrees().max(initial=0)))

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row: float32, shape (n,).

        Examples
        --------
        >>> graph = Graph(indptr=[0, 2, 3], indices=[0, 1, 0])
        >>> graph.row_sums(), graph.normalized("row").row_sums()
        (array([2., 1.], dtype=float32), array([1., 1.], dtype=float32))
        """
        return sums_of_rows(self._weighting, self._indptr, self._data)

    @default_float_environment()
    def normalized(self, kind: str) -> Graph:
        """Return A normalised by rows or symmetrically; edge ids and the order of entries stay.

        Parameters
        ----------
        kind : "row" or "sym"
            "row" is A_iv / d_i, where d_i is the sum of row i. For an unweighted graph nothing is computed: the result
            shares all arrays and is marked ``weighting="row"``, its values being 1 / (entries of the row), so that
            samplers can use the law of rows whose entries weigh the same. Rows that sum to 0 stay 0.

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
        if require_choice("kind", kind, ("row", "sym")) == "sym":
            return self._normalized_sym()
        if self._reordered is not None and self._reordered.data is None:
            return self._from_reordered(self._reordered, "row", self._origin)
        if self._data is None:  # rows of a "row" graph sum to 1 already
            graph = self._from_parts(self._indptr, self._indices, None, self._edge_ids, "row", self._origin)
            graph._contents = self._contents
            return graph
        divisor = self._spread(row_sums(self._indptr, self._data))
        return self._divided(self._data, divisor)

    def _normalized_sym(self) -> Graph:
        values = self._values()
        root = np.sqrt(row_sums(self._indptr, values))
        divisor = self._spread(root)
        divisor *= root[self._indices]
        return self._divided(values, divisor)

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

    def _divided(self, values: NDArray[Any], divisor: NDArray[np.float64]) -> Graph:
        """Return a graph with data = values / divisor (0 where that is 0), rounded once to ``dtype``."""
        data = divided(values, divisor, self.dtype)
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
        rows = construction.targets(self._indptr, self._indices.dtype)
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

    def to_scipy(self) -> csr_array:
        """Return A as a ``scipy.sparse.csr_array`` of shape (n, n); parallel edges stay apart.

        Values that are not stored are float64. The arrays are copies, which may be changed.

        Examples
        --------
        >>> Graph(indptr=[0, 2, 3], indices=[0, 1, 0]).normalized("row").to_scipy().toarray()
        array([[0.5, 0.5],
               [1. , 0. ]])
        """
        from scipy.sparse import csr_array

        arrays = (self._values(), self._indices, self._indptr)
        return csr_array(arrays, shape=(self.num_nodes, self.num_nodes), copy=True)


def _reopened(path: str, digest: str, access: str, weighting: Weighting) -> Graph:
    """Open the store of a pickled graph, if it still holds the same one."""
    graph = Graph.open(path, access=access)
    if graph.digest != digest:
        given = f"a graph with digest {graph.digest}"
        expected = f"the one that was pickled, with digest {digest}"
        raise DataError(argument=path, given=given, expected=expected, hint="The store was replaced since.")
    return graph.normalized("row") if weighting == "row" and graph.weighting == "unweighted" else graph


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make a contiguous, aligned, read-only view; copies only what is not, once: kernels would at every call."""
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view
