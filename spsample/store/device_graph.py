"""`DeviceGraph`: a graph in the memory of a GPU, in host memory that the GPU reads, or split between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Matrix, get_backend
from spsample.common.checks import require_share
from spsample.common.units import format_bytes
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.sparse.device import DeviceOperand
from spsample.store.base_graph import BaseGraph, require_local
from spsample.store.construction import row_entries, sums_of_rows

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels
    from spsample.backends.cuda.device import Device
    from spsample.sparse.probability import Weighting

DRAWN_OF_A_ROW = 16
"""s: of a shorter row all entries are read, of a longer one a fanout's worth."""

DRAWS_OF_A_BATCH = 1 << 17
"""Seeds and neighbours for the farthest frontier: about 1024 seeds, 15 neighbours of each and 10 of each of those."""

ENTRIES_AT_ONCE = 1 << 24


def hottest_rows(graph: Any, share: float) -> NDArray[np.int64]:
    """Vertices, ascending, whose rows have at most `share` of all entries, chosen for the reads that they save.

    O(entries) time; some 50 bytes a vertex, and 8 bytes an entry of 2^24, or as many as there are vertices, at a time.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 0, 0, 1, 2], [1, 2, 3, 0, 0]], num_nodes=4)
    >>> hottest_rows(graph, 0.5).tolist()    # vertex 0: three vertices have it as an in-neighbour
    [0]
    """
    degrees = np.diff(graph.indptr)
    drawn = np.minimum(degrees, DRAWN_OF_A_ROW) / np.maximum(degrees, 1)
    visits = expected_visits(graph)
    in_frontier = -np.expm1(-visits * (DRAWS_OF_A_BATCH / max(float(visits.sum()), 1.0)))  # of a batch, at least once
    saved_per_entry = in_frontier * drawn
    order = np.argsort(-saved_per_entry, kind="stable")
    fitting = np.cumsum(degrees[order]) <= share * graph.num_edges
    return np.sort(order[fitting])


def expected_visits(graph: Any) -> NDArray[np.float64]:
    """(n,) how often each vertex is drawn as an in-neighbour, if every vertex draws up to 16 entries of its row once.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 0, 0, 1, 2], [1, 2, 3, 0, 0]], num_nodes=4)
    >>> expected_visits(graph).tolist()
    [3.0, 1.0, 1.0, 0.0]
    """
    degrees = np.diff(graph.indptr)
    drawn = np.minimum(degrees, DRAWN_OF_A_ROW) / np.maximum(degrees, 1)
    visits = np.zeros(graph.num_nodes)
    step = max(ENTRIES_AT_ONCE, graph.num_nodes)
    for first in range(0, graph.num_edges, step):
        last = min(first + step, graph.num_edges)
        begin, end = np.searchsorted(graph.indptr, [first, last - 1], side="right") - 1
        lengths: NDArray[np.int64] = np.diff(np.clip(graph.indptr[begin : end + 2], first, last)).astype(np.int64)
        weights = np.repeat(drawn[begin : end + 1], lengths)
        visits += np.bincount(graph.indices[first:last], weights=weights, minlength=graph.num_nodes)
    return visits


def split_rows(
    device: Device, indptr: NDArray[np.int64], values: NDArray[Any], cold: Any, hot: NDArray[np.int64]
) -> tuple[Any, Any]:
    """(n,) uint64 on the device: the address of each row's first value; and the copy of the hot rows that is meant.

    Parameters
    ----------
    values : array (nnz,)
        Columns or weights on the host.
    cold : device array (nnz,)
        The same where kernels read them over the bus.
    hot : int64 array
        Rows, ascending.
    """
    lengths = np.diff(indptr)[hot]
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    copied = device.to_device(values[row_entries(indptr, hot)])
    places = device.address(cold) + indptr[:-1].astype(np.uint64) * np.uint64(values.itemsize)
    places[hot] = device.address(copied) + begins[:-1].astype(np.uint64) * np.uint64(values.itemsize)
    return device.to_device(places), copied


RESERVED_SHARE = 0.5
"""With ``entries="auto"`` the graph takes at most this share of the free memory: bulks and features need the rest."""


class DeviceGraph(BaseGraph):
    """A graph that is sampled on a GPU, by `spsample.bulk_sample`, a `BulkLoader` and samplers as any other graph.

    It does not change: a copy (`copy.copy`, `copy.deepcopy`) is itself. Pickled, it is the `Graph` it was made of, and
    placed on the device again where it is read.

    The samples are those of the host, bit for bit; their arrays with an element per vertex or edge are CuPy arrays,
    which torch takes without a copy (``torch.from_dlpack``), those with an element per batch are NumPy's.

    Parameters
    ----------
    graph : Graph
        The graph; it is copied.
    entries : "auto", "device", "host" or float
        Where the columns and weights of the rows lie. "device": in the GPU's memory. "host": in pinned memory of the
        host, which kernels read over the bus, entry by entry (zero copy). A number in (0, 1): that share of the entries
        on the device, of the rows that are most often drawn from (see `spsample.store.device_graph`), the others on the
        host. "auto": on the device as far as half of its free memory allows. Row pointers, 8 bytes a vertex, are always
        on the device; edge ids, 8 bytes an entry, where all entries are and half of what is then free holds them.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.
    CapacityError
        If what shall lie on the device does not fit there.
    BackendError
        If there is no GPU.
    """

    is_on_device = True

    def __init__(self, graph: Any, entries: str | float = "auto") -> None:
        hint = "DeviceGraph.from_arrays takes arrays that lie on the device."
        require_local(graph, expected="a Graph", hint=hint)
        kernels = _kernels()
        self._graph: Any = graph
        self._entries = entries
        with kernels.session():
            share = _share(kernels, graph, entries)
            matrix, hot = _matrix_on_device(kernels, graph, share)
            ids = None if graph.edge_ids is None else _ids_on_device(kernels, graph.edge_ids, share)
            self._operand = DeviceOperand(matrix, ids, kernels, hot)
        self.device_share = share

    @classmethod
    def from_arrays(cls, indptr: Any, indices: Any, data: Any = None, *, row_normalized: bool = False) -> DeviceGraph:
        """A graph of arrays that lie on the device already; they are not copied and not checked.

        Parameters
        ----------
        indptr : int64 device array (n + 1,)
        indices : int32 or int64 device array (nnz,)
            In-neighbours of each vertex, ascending.
        data : float32 or float64 device array (nnz,), optional
            Weights, finite and not negative.
        row_normalized : bool
            Every entry of a row of d entries is 1/d.

        Raises
        ------
        DTypeError
            If an array is not on the device, or of another type.
        """
        kernels = _kernels()
        _require_types(kernels, indptr, indices, data)
        made = cls.__new__(cls)
        made._graph, made._entries = None, "device"
        with kernels.session():  # those of other streams wait for what makes the arrays on this one
            pass
        made._operand = DeviceOperand(Matrix(indptr, indices, data, row_normalized), None, kernels)
        made.device_share = 1.0
        return made

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return self._operand.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of stored entries."""
        return self._operand.num_edges

    @property
    def weighting(self) -> Weighting:
        """As of `Graph.weighting`."""
        return self._operand.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Type of vertex ids in samples."""
        return self._operand.index_dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of values computed from this graph."""
        data = self._operand.matrix.data
        return np.dtype(np.float32) if data is None else data.dtype

    @property
    def digest(self) -> str | None:
        """Digest of the graph it was made of, if it has one."""
        return None if self._graph is None else self._graph.digest

    @property
    def host(self) -> Any:
        """The graph it was made of; None where it was made of device arrays."""
        return self._graph

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays, wherever they lie."""
        A = self._operand.matrix
        arrays = (A.indptr, A.indices, A.data, A.row_places, A.weight_places, self._operand.edge_ids)
        return sum(int(array.nbytes) for array in (*arrays, *self._operand.hot) if array is not None)

    @property
    def kept_nbytes(self) -> int:
        """Bytes on the device kept for samplers beyond the arrays of the graph, made on first use."""
        return self._operand.kept_nbytes

    def in_degrees(self) -> NDArray[np.int64]:
        """Count the entries of each row: int64 on the host, shape (n,)."""
        return np.diff(self._indptr_on_host())

    def _indptr_on_host(self) -> NDArray[np.int64]:
        backend = self._operand.backend
        with backend.session():
            indptr: NDArray[np.int64] = backend.on_host(backend.to_device(self._operand.matrix.indptr))
            return indptr

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row: float32 on the host, shape (n,).

        Raises
        ------
        InputError
            If the graph has weights that lie on the device only.
        """
        if self._graph is not None:
            sums: NDArray[np.float32] = self._graph.row_sums()
            return sums
        if self.weighting == "weighted":
            given = "a weighted graph of device arrays"
            raise InputError(
                argument="graph", given=given, expected="a DeviceGraph made of a Graph, which has its row sums"
            )
        return sums_of_rows(self.weighting, self._indptr_on_host(), None)

    def free_bytes(self) -> int:
        """Memory of the device that can still be had."""
        return _kernels().device.free_bytes()

    def operand(self, backend: str | None = None) -> DeviceOperand:
        """Return A as the sampling algebra sees it; the backend is "cuda"."""
        if backend not in (None, "cuda"):
            raise InputError(argument="backend", given=repr(backend), expected="'cuda' or None for a graph on a device")
        return self._operand

    def __copy__(self) -> DeviceGraph:
        return self

    def __deepcopy__(self, memo: Any) -> DeviceGraph:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._graph is None:
            raise InputError(
                argument="graph",
                given="a DeviceGraph of device arrays, to be pickled",
                expected="one made of a Graph, which can be read again",
            )
        return DeviceGraph, (self._graph, self._entries)

    def __repr__(self) -> str:
        facts = f"num_nodes={self.num_nodes}, num_edges={self.num_edges}, weighting={self.weighting!r}"
        return f"DeviceGraph({facts}, {self.device_share:.0%} of the entries on the device)"


def _kernels() -> CudaKernels:
    kernels: Any = get_backend("cuda")
    return kernels  # type: ignore[no-any-return]


def _share(kernels: CudaKernels, graph: Any, entries: Any) -> float:
    """The share of the entries that shall lie on the device."""
    if isinstance(entries, str) and entries in ("device", "host", "auto"):
        if entries != "auto":
            return 1.0 if entries == "device" else 0.0
        budget = RESERVED_SHARE * kernels.device.free_bytes() - graph.indptr.nbytes
        return float(min(max(budget / max(_entry_bytes(graph) * graph.num_edges, 1), 0.0), 1.0))
    expected = "'auto', 'device', 'host', or the share of the entries on the device, from 0 to 1"
    return require_share("entries", entries, expected)


def _entry_bytes(graph: Any) -> int:
    return int(graph.indices.itemsize + (0 if graph.data is None else graph.data.itemsize))


def _matrix_on_device(kernels: CudaKernels, graph: Any, share: float) -> tuple[Matrix, tuple[Any, ...]]:
    """A's arrays, and the copies of hot rows that they lead to."""
    needed = int(share * _entry_bytes(graph) * graph.num_edges) + graph.indptr.nbytes
    free = kernels.device.free_bytes()
    if needed > free:
        raise CapacityError(
            argument="entries",
            given=f"{format_bytes(needed)} of the graph on a device with {format_bytes(free)} free",
            expected="a graph that fits",
            hint="entries='auto' keeps a part of it in the memory of the host.",
        )
    device, row_normalized = kernels.device, graph.weighting == "row"
    indptr = device.to_device(graph.indptr)
    indices: Any = _put(kernels, graph.indices, share)
    data: Any = None if graph.data is None else _put(kernels, graph.data, share)
    if not 0.0 < share < 1.0:
        return Matrix(indptr, indices, data, row_normalized), ()
    hot = hottest_rows(graph, share)
    row_places, hot_indices = split_rows(device, graph.indptr, graph.indices, indices, hot)
    weight_places, hot_data = None, None
    if graph.data is not None:
        weight_places, hot_data = split_rows(device, graph.indptr, graph.data, data, hot)
    matrix = Matrix(indptr, indices, data, row_normalized, row_places=row_places, weight_places=weight_places)
    return matrix, (hot_indices, hot_data)


def _put(kernels: CudaKernels, array: NDArray[Any], share: float) -> Any:
    """On the device, or pinned on the host where a part of it is to be read from there."""
    return kernels.device.to_device(array) if share == 1.0 else kernels.device.pinned(array)


def _ids_on_device(kernels: CudaKernels, edge_ids: NDArray[np.int64], share: float) -> Any:
    fits = edge_ids.nbytes <= RESERVED_SHARE * kernels.device.free_bytes()
    return _put(kernels, edge_ids, share if fits else 0.0)


def _require_types(kernels: CudaKernels, indptr: Any, indices: Any, data: Any) -> None:
    for name, array, kinds in (
        ("indptr", indptr, ("int64",)),
        ("indices", indices, ("int32", "int64")),
        ("data", data, ("float32", "float64")),
    ):
        if name == "data" and array is None:
            continue
        if not kernels.device.owns(array) or array.dtype.name not in kinds:
            given = f"{type(array).__name__} of {getattr(array, 'dtype', 'no dtype')}"
            raise DTypeError(argument=name, given=given, expected=f"a device array of {' or '.join(kinds)}")
