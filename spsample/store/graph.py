"""`Graph`: a square sparse matrix A, row = target vertex, columns = its in-neighbours; `GraphStore`: one on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import get_backend
from spsample.common.checks import refuse_removed, require_choice, require_type, short
from spsample.common.lazily import lazily
from spsample.errors import DataError, DTypeError, InputError
from spsample.sparse.local import LocalOperand
from spsample.sparse.probability import Weighting
from spsample.store import construction
from spsample.store.base_graph import BaseGraph, require_local
from spsample.store.construction import ARRAYS, GraphArrays
from spsample.store.folder import file_error
from spsample.store.layout import META_FILE
from spsample.store.mapped_store import MappedStore, VertexIds, read_meta
from spsample.store.row_order import ReorderedRows
from spsample.store.verification import record_path, verify_checksums, verify_structure

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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

    __slots__ = ("__weakref__", "_arrays", "kept")

    _arrays: GraphArrays
    kept: dict[Hashable, Any]
    """Results that are computed once and stay with the graph: by backend, A on it; what plans measured."""

    def __init__(
        self, indptr: Any, indices: Any, data: Any = None, *, edge_ids: Any = None, validate: bool = True
    ) -> None:
        self._arrays = construction.from_csr(indptr, indices, data, edge_ids, validate=validate)
        self.kept = {}

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
        return graph_of(construction.from_edges(edge_index, num_nodes, edge_weight))

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
        name, edges = _edges_of(data)
        num_nodes = getattr(data, "num_nodes", None)
        if name == "adj_t":
            _refuse_merged(data, edges.shape[1])
        weights = None
        if weight_attr is not None:
            held = getattr(data, weight_attr, None) if isinstance(cast("object", weight_attr), str) else None
            if held is None:
                expected = "an attribute of the data with a weight per edge"
                raise InputError(argument="weight_attr", given=repr(weight_attr), expected=expected)
            weights = host_array(held)
        names = (f"data.{name}", f"data.{weight_attr}")
        count = None if num_nodes is None else int(num_nodes)
        return graph_of(construction.from_edges(edges, count, weights, names, _COUNT))

    @classmethod
    def from_scipy(cls, matrix: Any) -> Graph:
        """Make a weighted graph from a square ``scipy.sparse`` matrix: row = target, column = source.

        Every stored entry becomes an edge: duplicates (as of a COO matrix) are neither summed nor
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
        return graph_of(construction.from_matrix(matrix))

    @classmethod
    def open(cls, path: str | os.PathLike[str], **removed: NoReturn) -> Graph:
        """Open the graph of a store by memory maps: nothing is read but headers, whatever its size.

        Pages are read from the disk when samplers touch them, and the system may drop them again. Such a graph pickles
        as the path of its store: where it is unpickled the store is opened again, and refused if its graph is another
        one by then. The files must not be changed while they are open; replacing the whole store is safe.

        Parameters
        ----------
        path : path-like
            The folder of a store, as `save`, `spsample.store.StoreWriter` or ``spsample convert`` make it.

        Raises
        ------
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
        refuse_removed("Graph.open", removed, access="Leave it out: pages are read as the system sees fit.")
        return graph_of(MappedStore.read(path, lambda store: store.graph_arrays()))

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
            writer.write_graph(self)

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = self._arrays
        if arrays.origin is not None:
            return _reopened, (*arrays.origin, arrays.weighting)
        return _graph_of_parts, (*(getattr(arrays, name) for name in ARRAYS), arrays.weighting)

    @property
    def num_nodes(self) -> int:
        """Number of vertices n."""
        return len(self._arrays.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of A, parallel edges counted each."""
        return self._arrays.indptr.item(-1)

    @property
    def indptr(self) -> NDArray[np.int64]:
        """Row starts: int64, shape (n + 1,), read-only."""
        return self._arrays.indptr

    @property
    def indices(self) -> NDArray[Any]:
        """Source vertices, ascending within a row: int32 or int64, shape (num_edges,), read-only."""
        return self._arrays.indices

    @property
    def data(self) -> NDArray[Any] | None:
        """Edge weights: float32 or float64, shape (num_edges,), read-only; None where none are stored."""
        return self._arrays.data

    @property
    def edge_ids(self) -> NDArray[np.int64] | None:
        """Position of each entry in the user's input: int64, read-only; None means the entry's own."""
        return self._arrays.edge_ids

    @property
    def weighting(self) -> Weighting:
        """Kind of values: "unweighted" (1), "row" (1 / entries of the row) or "weighted" (``data``)."""
        return self._arrays.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Dtype of ``indices``, and of vertex ids in samples."""
        return self._arrays.lying("indices").dtype  # type: ignore[union-attr]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of values computed from this graph: that of ``data``, and float32 where there is none."""
        return construction.value_dtype(self._arrays)

    @property
    def digest(self) -> str | None:
        """A SHA-256 that identifies the arrays of this graph where they are a store's, else None.

        Two graphs with one digest and one `weighting` give the same samples. It comes from the checksums in
        ``meta.json``, not from the contents.

        Examples
        --------
        >>> Graph([0, 1], [0]).digest is None
        True
        """
        return None if self._arrays.origin is None else self._arrays.origin.digest

    def fingerprint(self) -> dict[str, int]:
        """Return a number for each array, which identifies its contents; made on first use and kept.

        The whole graph is read for it once, by all threads. Graphs with equal numbers and one `weighting` give the same
        samples: `ReplicatedGraph` and `PartitionedGraph.from_graph` compare them between ranks.

        Examples
        --------
        >>> graph, other = Graph([0, 1, 2], [1, 0]), Graph([0, 1, 2], [1, 1])
        >>> [name for name, number in graph.fingerprint().items() if number != other.fingerprint()[name]]
        ['indices']
        """
        return self._arrays.contents.numbers()

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays of this graph (some may be shared with other graphs).

        Examples
        --------
        >>> Graph(indptr=[0, 1, 2], indices=np.array([1, 0], dtype=np.int32)).nbytes
        32
        """
        arrays = (self.indptr, *map(self._arrays.lying, ARRAYS[1:]))
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def kept_nbytes(self) -> int:
        """Bytes kept for samplers beyond the arrays of the graph, made on first use.

        FastGCN keeps prefix sums and a guide table, 12 bytes per vertex (16 from 2**31 vertices on); LADIES and FastGCN
        keep 4 bytes per vertex where weights or squared counts ask for them; weighted GraphSAGE keeps 2. `Biased` keeps
        a byte for 4 edges where they are drawn from uniformly otherwise.

        Examples
        --------
        >>> import spsample
        >>> graph = Graph(indptr=[0, 1, 2], indices=[1, 0])
        >>> bulk = spsample.bulk_sample(graph, [0], spsample.FastGCN([1]), batch_size=1)
        >>> graph.kept_nbytes
        36
        """
        return sum(value.kept_nbytes for value in self.kept.values() if isinstance(value, LocalOperand))

    def operand(self, backend: str | None = None) -> LocalOperand:
        """Return A as the sampling algebra sees it, on the backend of that name (None: the fastest).

        One operand per backend is kept, with what it derives from the whole graph (as for FastGCN).

        Examples
        --------
        >>> Graph(indptr=[0, 1, 2], indices=[1, 0]).operand("reference").num_nodes
        2
        """
        chosen = get_backend(backend)
        if chosen.name == "cuda":
            return cast("LocalOperand", self.to_device("cuda").operand())
        operand: LocalOperand | None = self.kept.get(chosen.name)
        if operand is None:
            operand = self.kept[chosen.name] = self._arrays.operand(chosen)
        return operand

    @property
    def host(self) -> Graph:
        """Itself: it is in the memory of the host."""
        return self

    def to_device(self, backend: str | None) -> Any:
        """Return the graph where that backend reads it: with "cuda" a `DeviceGraph`, made once and kept; else itself.

        Raises
        ------
        BackendError, MissingDependencyError
            If there is no GPU, or CuPy is missing.
        CapacityError
            If its row pointers do not fit there.

        Examples
        --------
        >>> graph = Graph(indptr=[0, 1, 2], indices=[1, 0])
        >>> graph.to_device("cpu") is graph
        True
        """
        if backend != "cuda":
            return self
        if "cuda" not in self.kept:
            from spsample.store.device_graph import DeviceGraph

            self.kept["cuda"] = DeviceGraph(self)
        return self.kept["cuda"]

    def __repr__(self) -> str:
        weights = "" if self._arrays.lying("data") is None else f", data={self.dtype}"
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"weighting={self.weighting!r}, indices={self.index_dtype}{weights})"
        )

    def in_degrees(self) -> NDArray[np.int64]:
        """Count the entries of each row, parallel edges each: int64, shape (n,).

        Examples
        --------
        >>> Graph(indptr=[0, 2, 2], indices=[0, 1]).in_degrees()
        array([2, 0])
        """
        return np.diff(self.indptr)

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row: float32, shape (n,).

        Examples
        --------
        >>> graph = Graph(indptr=[0, 2, 3], indices=[0, 1, 0])
        >>> graph.row_sums(), graph.normalized("row").row_sums()
        (array([2., 1.], dtype=float32), array([1., 1.], dtype=float32))
        """
        return construction.sums_of_rows(self.weighting, self.indptr, self.data)

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
        return graph_of(construction.normalized(self._arrays, require_choice("kind", kind, ("row", "sym"))))

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
        arrays = construction.with_self_loops(self._arrays)
        return self if arrays is self._arrays else graph_of(arrays)


class GraphStore(MappedStore):
    """A graph store: a folder with ``meta.json`` and ``.npy`` files, which are mapped, not read.

    `GraphStore.open` makes one. Opening reads ``meta.json`` and the headers of the files: names, dtypes, shapes and
    sizes are checked, contents are not, so that it takes the same time whatever the size of the graph. `verify` reads
    everything; use it on stores that others made, or that were copied: what is sampled from damaged contents is
    undefined. ``meta.json`` is compared with its checksum on opening already.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> Graph([0, 1, 2], [1, 0]).save(f"{folder.name}/pair")
    >>> store = GraphStore.open(f"{folder.name}/pair")
    >>> store.names, store.meta["num_edges"]
    (('indptr', 'indices'), 2)
    >>> store.verify()
    ()
    >>> store.graph()
    Graph(num_nodes=2, num_edges=2, weighting='unweighted', indices=int64)
    >>> folder.cleanup()
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GraphStore:
        """Open the store at `path`.

        Raises
        ------
        DataError
            If there is none, it was written by a newer release, ``meta.json`` is damaged, or a file is missing,
            truncated, exchanged for another one or not readable. The message names the file.
        """
        return cls.read(path, lambda store: store)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names that `features` takes: ``"x"``, and those that ``meta.json`` lists."""
        own = ["x"] if "x" in self or "x_data" in self else []
        listed = [*self._meta.get("node_features", []), *self._meta.get("edge_features", [])]
        return tuple(dict.fromkeys(own + listed))

    def features(self, name: str = "x") -> Any:
        """Return a feature array of two dimensions as a read-only map; ``"x"`` may also be a SciPy CSR matrix.

        Rows are by vertex, or by edge id: where rows of vertices were moved, what is returned is a
        `spsample.store.row_order.ReorderedRows`, which reads as an array does.

        Raises
        ------
        InputError
            If the store has no features of that name.
        DataError
            As `array`, and if a sparse matrix is broken.
        """
        require_type("name", name, str, "the name of an array")
        if name not in self.feature_names:
            have = ", ".join(map(repr, self.feature_names))
            expected = f"one of {have}" if have else "a store with features, which this one has not"
            raise InputError(argument="name", given=repr(name), expected=expected)
        if name not in self._specs:
            return self._sparse_features()
        array = self.array(name)
        array = array[:, None] if array.ndim == 1 else array
        rows = None if name in self._meta.get("edge_features", []) else self.row_of_vertex()
        return array if rows is None else ReorderedRows(array, rows)

    def _sparse_features(self) -> csr_array:
        from scipy.sparse import csr_array

        try:
            data, indices, indptr = (self.array(f"x_{part}") for part in ("data", "indices", "indptr"))
            matrix = csr_array((data, indices, indptr), shape=tuple(self._meta["x_shape"]))
            matrix.check_format(full_check=True)
            if matrix.shape[0] != self._meta["num_nodes"]:
                raise ValueError(f"{matrix.shape[0]} rows for {self._meta['num_nodes']} vertices")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            expected = "x_indptr, x_indices, x_data and the fact x_shape of a CSR matrix"
            raise file_error(self.path, f"broken features x ({error})", expected) from error
        return matrix

    @lazily
    def vertices(self) -> VertexIds:
        """The ids of the vertices in the input, and the way back: ``vertices.names(ids)``, ``vertices.ids(names)``.

        They are strings or integers where they were converted so, else the vertices 0 to n - 1 themselves.
        """
        return VertexIds(self)

    def graph(self) -> Graph:
        """Return the graph over the maps: nothing is read, copied or checked."""
        return graph_of(self.graph_arrays())

    def verify(self, progress: Callable[[int, int], None] | None = None) -> tuple[str, ...]:
        """Read everything, piece by piece in bounded memory: checksums first, then what a graph must satisfy.

        The rows' starts never fall and end at the number of edges; ids are in range; sources ascend within each row;
        weights are finite and at least 0; edge ids are at least 0 and lead to rows of the edge features; splits hold
        vertices.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done, total)`` with bytes; checksums and structure are half of the total each.

        Returns
        -------
        tuple of str
            Names of the files that no checksum covers: ``("meta.json",)`` for a store that was written before there
            was one, else empty.

        Raises
        ------
        DataError
            Naming the file, and the piece of 64 MiB or the position.
        """
        read_meta(self.path, self.path / META_FILE)
        half, report = self.nbytes, progress or (lambda done, total: None)
        arrays = {name: self.array(name) for name in self._specs}
        verify_checksums(self.path, arrays, self._specs, lambda done: report(done, 2 * half))
        verify_structure(self.path, arrays, self._meta, lambda done: report(half + done, 2 * half))
        if "x" in self.feature_names and "x" not in self:
            self._sparse_features()
        report(2 * half, 2 * half)
        return () if record_path(self.path / META_FILE).is_file() else (META_FILE,)

    def __repr__(self) -> str:
        return f"GraphStore({str(self.path)!r}, arrays={', '.join(self._specs)})"


def from_dgl(graph: Any, weight_name: str | None = None) -> Graph:
    """Make a graph of a ``dgl.DGLGraph``; ``edge_ids`` are those of DGL.

    Parameters
    ----------
    graph : dgl.DGLGraph
        Of one type of vertices and one of edges.
    weight_name : str, optional
        Name of the edge weights in ``graph.edata``, one per edge, finite and at least 0. Without it the graph is
        unweighted.

    Raises
    ------
    DTypeError, InputError, CapacityError
        As `Graph.from_edge_index`; also for graphs of several types and blocks, and where weights are missing.

    Examples
    --------
    >>> import dgl  # doctest: +SKIP
    >>> from_dgl(dgl.graph(([2, 0, 1], [0, 1, 0]))).edge_ids  # doctest: +SKIP
    array([2, 0, 1])
    """
    expected = "a dgl.DGLGraph of one type of vertices and edges"
    if not all(hasattr(graph, name) for name in ("is_homogeneous", "edges", "num_nodes", "edata")):
        raise DTypeError(argument="graph", given=f"{short(graph)} of type {type(graph).__name__}", expected=expected)
    if getattr(graph, "is_block", False):
        raise DTypeError(argument="graph", given="a block, which is a sample already", expected=expected)
    if not graph.is_homogeneous:
        hint = "dgl.to_homogeneous(graph) makes one."
        raise DTypeError(argument="graph", given="a graph of several types", expected=expected, hint=hint)
    source, target = (host_array(ends) for ends in graph.edges(order="eid"))
    weights = None
    if weight_name is not None:
        if not isinstance(cast("object", weight_name), str) or weight_name not in graph.edata:
            expected = f"the name of weights in graph.edata: {', '.join(map(repr, graph.edata)) or 'it has none'}"
            raise InputError(argument="weight_name", given=short(weight_name), expected=expected)
        weights = host_array(graph.edata[weight_name])
    names = ("graph.edges()", f"graph.edata[{weight_name!r}]")
    return graph_of(construction.from_edges(np.stack([source, target]), int(graph.num_nodes()), weights, names))


def to_scipy(graph: Graph) -> csr_array:
    """Return A as a ``scipy.sparse.csr_array`` of shape (n, n); parallel edges stay apart.

    Values that are not stored are float64. The arrays are copies, which may be changed.

    Raises
    ------
    DTypeError
        If it is no `Graph`.

    Examples
    --------
    >>> to_scipy(Graph(indptr=[0, 2, 3], indices=[0, 1, 0]).normalized("row")).toarray()
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    from scipy.sparse import csr_array

    require_local(graph)
    arrays = (construction.entry_values(graph._arrays), graph.indices, graph.indptr)
    return csr_array(arrays, shape=(graph.num_nodes, graph.num_nodes), copy=True)


def graph_of(arrays: GraphArrays) -> Graph:
    """Make a graph of arrays that are known to be right."""
    graph = Graph.__new__(Graph)
    graph._arrays, graph.kept = arrays, {}
    return graph


def _graph_of_parts(*parts: Any) -> Graph:
    return graph_of(GraphArrays(*parts))


def _reopened(path: str, digest: str, weighting: Weighting) -> Graph:
    """Open the store of a pickled graph, if it still holds the same one."""
    graph = Graph.open(path)
    if graph.digest != digest:
        expected = f"the one that was pickled, with digest {digest}"
        raise file_error(path, f"a graph with digest {graph.digest}", expected, "The store was replaced since.")
    return graph.normalized("row") if weighting == "row" and graph.weighting == "unweighted" else graph


def host_array(held: Any) -> NDArray[Any]:
    """Return an attribute of PyG's data as an array: also of a tensor that is on a GPU, needs gradients or is bfloat16.

    Examples
    --------
    >>> host_array([1, 2])
    array([1, 2])
    """
    if hasattr(held, "detach"):
        held = held.detach().cpu()
        return np.asarray(held.float() if str(held.dtype) == "torch.bfloat16" else held)
    return np.asarray(held)


def _edges_of(data: Any) -> tuple[str, NDArray[Any]]:
    """Return the attribute of the edges, and these as sources and targets; `adj_t` goes first, as in PyG."""
    adj_t = getattr(data, "adj_t", None)
    if adj_t is not None:
        return "adj_t", _entries(adj_t)
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise DTypeError(
            argument="data",
            given=f"{type(data).__name__} without edge_index",
            expected="torch_geometric.data.Data with edges",
            hint=_HINT_TYPED if hasattr(data, "edge_types") else "",
        )
    return "edge_index", host_array(edge_index)


_COUNT = "data.num_nodes is {}. Where it is not set, PyG takes it from the rows of x, or of what else there is."
_HINT_TYPED = "Graphs have one type of vertices and edges: data.to_homogeneous() makes one of all types."


def _entries(adj_t: Any) -> NDArray[Any]:
    """The entries of a sparse matrix whose rows are targets, in its order."""
    layout = str(getattr(adj_t, "layout", ""))
    if layout == "torch.sparse_csr":
        source = host_array(adj_t.col_indices())
        target = construction.targets(host_array(adj_t.crow_indices()), source.dtype)
    elif layout == "torch.sparse_coo":
        target, source = host_array(adj_t._indices())
    elif hasattr(adj_t, "coo"):
        target, source = (host_array(ends) for ends in adj_t.coo()[:2])
    else:
        given = f"{type(adj_t).__name__} of layout {layout}" if layout else f"{type(adj_t).__name__}"
        expected = "a torch_sparse.SparseTensor, or a tensor of layout torch.sparse_csr or torch.sparse_coo"
        raise DTypeError(argument="data.adj_t", given=given, expected=expected, hint="Or edges in data.edge_index.")
    return np.stack([source, target])


def _refuse_merged(data: Any, entries: int) -> None:
    """Refuse a sparse tensor of torch that has not an entry for each edge that has attributes."""
    if not hasattr(data.adj_t, "layout"):
        return
    held = (getattr(data, key, None) for key in ("edge_attr", "edge_weight", "edge_type"))
    rows = [len(attribute) for attribute in held if attribute is not None and len(attribute) != entries]
    if rows:
        hint = "torch merges parallel edges: apply torch_geometric.transforms.RemoveDuplicatedEdges() before"
        if getattr(data, "edge_index", None) is not None:
            hint += ", or del data.adj_t: data.edge_index has the edges too"
        raise InputError(
            argument="data.adj_t",
            given=f"{entries} entries, where attributes of the data have {rows[0]} edges",
            expected="an entry for each edge",
            hint=f"{hint}.",
        )
