"""`bulk_sample` and what it returns: `BulkSample`, a stack of minibatches, and `MiniBatch`, a view of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from math import prod
from operator import index
from traceback import clear_frames
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from spsample.backends import backend_for, get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import Int64Array, IntArray
from spsample.errors import CapacityError, InputError
from spsample.sampling import adapters
from spsample.sampling.arguments import SupportsSampling, check_arguments
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.capped import CappedGraph
from spsample.sampling.graphsage import makes_subgraphs
from spsample.sampling.sampler import Sampler, require_bool
from spsample.sampling.seeds import SeedBatches, make_batches
from spsample.sampling.sharing import SharedGraph, checking, require_same, sampling
from spsample.sparse import LAW_VERSION, derive_key
from spsample.sparse.keys import SAMPLING
from spsample.store import Graph
from spsample.store.device_graph import DeviceGraph, placed_graph
from spsample.store.validation import require_choice, require_int

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FEW_ENTRIES = 1 << 20  # some megabytes


@dataclass(frozen=True, eq=False)
class Adjacency:
    """A^l of one minibatch as CSR: `indices` are local src ids, `shape` is (n_dst, n_src), `data` may be None."""

    indptr: Int64Array
    indices: IntArray
    data: NDArray[Any] | None
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return len(self.indices)

    def to_scipy(self) -> csr_array:
        """As `scipy.sparse.csr_array`; entries 1.0 where there is no data. Repeated entries stay separate.

        Arrays on a device are copied to the host.
        """
        from scipy.sparse import csr_array

        A = self.on_host()
        data = np.ones(A.nnz, np.float32) if A.data is None else A.data
        return csr_array((data, A.indices, A.indptr), shape=A.shape)

    def on_host(self) -> Adjacency:
        """The same with NumPy arrays: itself, or a copy of one on a device."""
        indices: Any = self.indices
        if isinstance(indices, np.ndarray):
            return self
        copy_of = backend_for(indices).on_host
        data = None if self.data is None else copy_of(self.data)
        return Adjacency(copy_of(self.indptr), copy_of(indices), data, self.shape)


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a minibatch: rows `dst_nodes`, columns `src_nodes` (global ids); `edge_ids` where asked."""

    adj: Adjacency
    dst_nodes: IntArray
    src_nodes: IntArray
    edge_ids: Int64Array | None


class MiniBatch:
    """One minibatch: zero-copy views into its bulk. A forward pass walks `layers` in order.

    A view keeps the arrays of its whole bulk alive; `copy()` does not, and neither does what pickle makes of it: both
    hold the slices of this minibatch only.

    Attributes
    ----------
    batch_id : int
        Global id, which keys the batch's draws.
    """

    def __init__(self, bulk: BulkSample, position: int) -> None:
        self._bulk = bulk
        self._position = position

    @property
    def batch_id(self) -> int:
        """Global batch id."""
        return int(self._bulk.batch_ids[self._position])

    @property
    def seeds(self) -> IntArray:
        """Distinct seeds in order of first appearance: the dst vertices of the last layer (global ids)."""
        return self.layers[-1].dst_nodes

    @property
    def seed_inverse(self) -> Int64Array:
        """For each seed given for this batch, its row among `seeds` (int64)."""
        return self._bulk.seed_batches.inverse_of(self._position)

    @property
    def src_nodes(self) -> IntArray:
        """Vertices whose features layer 1 needs (global ids)."""
        return self.layers[0].src_nodes

    @cached_property
    def layers(self) -> list[Layer]:
        """A^1 .. A^L: `layers[0]` is layer 1, farthest from the seeds."""
        return [_slice_layer(layer, self._position) for layer in self._bulk.layers]

    @property
    def num_sampled_nodes(self) -> list[int]:
        """New vertices per hop, the seeds first, as PyG counts them (subgraph layout)."""
        layers = self._subgraph_layers("num_sampled_nodes")
        known = [len(layers[-1].dst_nodes), *(len(layer.src_nodes) for layer in reversed(layers))]
        return [known[0], *np.diff(known).tolist()]

    @property
    def num_sampled_edges(self) -> list[int]:
        """Edges drawn per hop, as PyG counts them (subgraph layout)."""
        edges = [layer.adj.nnz for layer in reversed(self._subgraph_layers("num_sampled_edges"))]
        return [edges[0], *np.diff(edges).tolist()]

    def _subgraph_layers(self, name: str) -> list[Layer]:
        sampler = self._bulk.sampler
        if makes_subgraphs(sampler):
            return self.layers
        raise InputError(argument=name, given=f"a batch of {sampler!r}", expected="GraphSAGE(..., layout='subgraph')")

    def copy(self) -> MiniBatch:
        """The same minibatch in arrays of its own, which keep no bulk alive.

        Examples
        --------
        >>> import spsample
        >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
        >>> minibatch = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=2)[1].copy()
        >>> minibatch.batch_id, minibatch.src_nodes.tolist()
        (1, [3, 0])
        """
        return MiniBatch(self._bulk.alone(self._position), 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return MiniBatch, (self._bulk.alone(self._position), 0)

    def _require_targets(self, method: str) -> None:
        """Refuse what has to find the dst vertices at the front of the src vertices."""
        sampler = self._bulk.sampler
        if not sampler.include_targets:
            raise InputError(
                argument="include_targets",
                given=f"False, in a minibatch of {sampler!r}",
                expected=f"include_targets=True for {method}(), whose blocks begin with their dst vertices",
            )

    def to_pyg(self) -> Any:
        """Blocks: `(batch_size, n_id, adjs)`, one `EdgeIndex(edge_index, e_id, size)` a layer. Subgraph: a `Data`.

        Raises
        ------
        InputError
            If it was drawn with `include_targets=False`: PyG takes the first src vertices for the dst vertices.
        """
        self._require_targets("to_pyg")
        sampler = self._bulk.sampler
        if makes_subgraphs(sampler):
            return adapters.to_pyg_data(self)
        return adapters.to_pyg_blocks(self)

    def to_torch_csr(self) -> list[Any]:
        """One `torch.sparse_csr_tensor` per layer, layer 1 first; columns ascend in each row, repeats are summed.

        Made on the host, and copied to the device where the minibatch is on one; so is what `to_torch_sparse` gives.
        """
        return adapters.to_torch_csr(self)

    def to_torch_sparse(self) -> list[Any]:
        """One `torch_sparse.SparseTensor` per layer, layer 1 first; columns ascend in each row, repeats are kept."""
        return adapters.to_torch_sparse(self)

    def to_dgl(self) -> list[Any]:
        """One DGL block (message flow graph) per layer, layer 1 first.

        Raises
        ------
        InputError
            If it was drawn with `include_targets=False`: the first src vertices of a DGL block are its dst vertices.
        """
        self._require_targets("to_dgl")
        return adapters.to_dgl(self)

    def to_scipy(self) -> list[csr_array]:
        """One `scipy.sparse.csr_array` per layer, layer 1 first."""
        return [layer.adj.to_scipy() for layer in self.layers]

    def __repr__(self) -> str:
        shapes = " ".join("x".join(map(str, layer.adj.shape)) for layer in self.layers)
        return f"MiniBatch(batch_id={self.batch_id}, seeds={len(self.seeds)}, layers=[{shapes}])"


class BulkSample:
    """k minibatches, stacked; `bulk[i]` is a view of one, `bulk[i:j]` a list of views.

    Attributes
    ----------
    batch_ids : int64 array (k,)
        Global batch ids.
    layers : list of BulkLayer
        The stacked arrays, layer 1 first.
    sampler : Sampler
        What drew it.
    law_version : int
        Version of the law that it was drawn under.
    """

    def __init__(self, sampler: Sampler, seed_batches: SeedBatches, layers: list[BulkLayer]) -> None:
        self.sampler = sampler
        self.seed_batches = seed_batches
        self.layers = layers
        self.batch_ids = seed_batches.selector.batch_ids
        self.law_version = LAW_VERSION

    def __len__(self) -> int:
        return len(self.batch_ids)

    @overload
    def __getitem__(self, i: int) -> MiniBatch: ...
    @overload
    def __getitem__(self, i: slice) -> list[MiniBatch]: ...
    def __getitem__(self, i: int | slice) -> MiniBatch | list[MiniBatch]:
        if isinstance(i, slice):
            return [self[position] for position in range(*i.indices(len(self)))]
        position = index(i) + (len(self) if index(i) < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"minibatch {i} of a bulk of {len(self)}")
        return MiniBatch(self, position)

    def __iter__(self) -> Iterator[MiniBatch]:
        return (self[i] for i in range(len(self)))

    def alone(self, position: int) -> BulkSample:
        """A bulk of one of the minibatches, in arrays of its own."""
        with backend_for(self.seed_batches.selector.vertices).session():
            batches = self.seed_batches.alone(position)
            alone = BulkSample(self.sampler, batches, [layer.alone(position) for layer in self.layers])
        alone.law_version = self.law_version
        return alone

    def chosen(self, positions: Int64Array) -> BulkSample:
        """A bulk of some of the minibatches, which shares the arrays of this one."""
        with backend_for(self.seed_batches.selector.vertices).session():
            batches = self.seed_batches.chosen(positions)
        return BulkSample(self.sampler, batches, [layer.chosen(positions) for layer in self.layers])

    def to_host(self) -> BulkSample:
        """The same bulk with NumPy arrays: itself, or a copy of one on a device."""
        layers = [layer.on_host() for layer in self.layers]
        if all(one is other for one, other in zip(layers, self.layers, strict=True)):
            return self
        bulk = BulkSample(self.sampler, self.seed_batches.on_host(), layers)
        bulk.law_version = self.law_version
        return bulk

    @property
    def num_edges(self) -> int:
        """Sampled edges of all batches, each once: in the subgraph layout, layer 1 has those of all hops."""
        layers = self.layers[:1] if makes_subgraphs(self.sampler) else self.layers
        return sum(layer.entry_ranges.total for layer in layers)

    def __repr__(self) -> str:
        return f"BulkSample({len(self)} minibatches, {self.num_edges} edges, {self.sampler!r})"


@default_float_environment()
def bulk_sample(  # the public face: design, section 5
    graph: SupportsSampling,
    seeds: Any,
    sampler: Sampler,
    *,
    batch_size: int,
    random_seed: int = 0,
    epoch: int = 0,
    first_batch: int = 0,
    edge_ids: bool = False,
    duplicates: str = "merge",
    backend: str | None = None,
) -> BulkSample:
    """Sample all minibatches of `seeds` at once.

    A minibatch depends on the graph, the sampler, `random_seed`, `epoch`, its batch id and its seeds only
    (`docs/law.md`): how many are sampled at once, on how many threads and by which backend never changes it.

    Parameters
    ----------
    graph : Graph
    seeds : array-like of int (any length, empty too)
        Vertex ids. Consecutive runs of `batch_size` make the batches; the last one may be shorter.
    sampler : Sampler
        `GraphSAGE`, `LADIES`, `FastGCN` or your own.
    batch_size : int
        b, seeds per batch.
    random_seed, epoch : int
        In [0, 2^64).
    first_batch : int
        Global id of the first batch, so that an epoch may be sampled in several calls.
    edge_ids : bool
        Also return each entry's position in the edges the user gave (8 bytes an entry).
    duplicates : {"merge", "error"}
        What to do with a seed repeated within one batch: sample it once (`MiniBatch.seed_inverse` leads to it), or
        refuse.
    backend : {None, "cpu", "reference", "cuda"}
        None is the fastest one of the host, and of a `DeviceGraph` "cuda". "cuda" makes a `DeviceGraph` of a `Graph`
        once, and the arrays of the bulk are then on the device (`BulkSample.to_host`).

    Returns
    -------
    BulkSample

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used; the message names it and the first bad entry.
    CapacityError
        If the bulk does not fit in memory (it then says how many of its batches do), or a value of a layer-wise sample
        is too large for its type.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2, 2]), batch_size=2)
    >>> len(bulk), bulk[0].seeds.tolist(), bulk[0].src_nodes.tolist()
    (2, [0, 1], [0, 1, 2, 3])
    """
    with checking(graph, "bulk_sample"):
        ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
        key = derive_key(random_seed, epoch, SAMPLING)
        num_batches = -(-len(ids) // batch_size)
        first_batch = require_int("first_batch", first_batch, minimum=0, maximum=2**32 - max(num_batches, 1))
        require_choice("duplicates", duplicates, ("merge", "error"))
        edge_ids = require_bool("edge_ids", edge_ids)
        backend = None if backend is None else get_backend(backend).name
        graph = placed_graph(graph, backend)
    if isinstance(graph, Graph) and not _is_small(graph, len(ids), num_batches, sampler):
        _require_room(graph, ids, sampler, batch_size=batch_size, edge_ids=edge_ids, backend=backend)
    options = {"first_batch": first_batch, "edge_ids": edge_ids, "duplicates": duplicates, "backend": backend}
    require_same(graph, seeds=ids, sampler=sampler, batch_size=batch_size, random_seed=key, **options)
    A = graph.operand(backend)
    with sampling(graph), A.backend.session():
        try:
            batches = make_batches(ids, min(batch_size, len(ids) + 1), first_batch, A.index_dtype, duplicates)
            share = _share_of(graph, batches).placed(A.backend)
            layers = sampler.run(A, share.selector, key, edge_ids)
            return _own_of(graph, BulkSample(sampler, share, layers), num_batches)
        except MemoryError as error:
            clear_frames(error.__traceback__)  # of what was being made: advice needs the memory
            raise _no_memory_for(graph, ids, batch_size, sampler) from error


def _share_of(graph: SupportsSampling, batches: SeedBatches) -> SeedBatches:
    """The batches of a call that are sampled here."""
    if not isinstance(graph, SharedGraph):
        return batches
    return batches.chosen(graph.sampled_here(len(batches.selector.batch_ids)))


def _own_of(graph: SupportsSampling, bulk: BulkSample, num_batches: int) -> BulkSample:
    """Of those sampled here, the batches that the caller gets."""
    if not isinstance(graph, SharedGraph):
        return bulk
    here, own = graph.sampled_here(num_batches), graph.own(num_batches)
    return bulk if len(here) == len(own) else bulk.chosen(np.searchsorted(here, own))


def _is_small(graph: Graph, seeds: int, batches: int, sampler: Sampler) -> bool:
    """Whether a bulk surely has few entries, told in a microsecond: a call for one small batch takes a hundred."""
    sizes = sampler.sizes
    most = batches * len(sizes) * graph.num_edges
    if sampler.aggregation == "mean" and min(sizes) > 0:
        most = min(most, len(sizes) * seeds * prod([size + 1 for size in sizes]))
    return most <= FEW_ENTRIES


def _require_room(graph: Graph, ids: Int64Array, sampler: Sampler, **options: Any) -> None:
    """Refuse a bulk that does not fit in memory; the system may kill a process that takes more than there is."""
    from spsample.sampling.planner import require_room

    require_room(graph, ids, sampler, **options)


def _no_memory_for(graph: Any, ids: Int64Array, batch_size: int, sampler: Sampler) -> CapacityError:
    """Says how large the bulk was that found no memory, and on a device how large one may be."""
    num_batches = -(-len(ids) // batch_size)
    fitting = _fitting_on_device(graph, ids, batch_size, sampler)
    return CapacityError(
        argument="seeds",
        given=f"{num_batches} batches of up to {batch_size} seeds for {sampler!r}",
        expected="a bulk that fits in memory" + fitting,
        hint="Sample fewer batches in a call (bulk_size of BulkLoader), or with smaller fanouts or layer sizes.",
    )


_advising: ContextVar[bool] = ContextVar("advising", default=False)
"""Whether batches are sampled to find out how many fit: what finds no memory then has been asked already."""


def _fitting_on_device(graph: Any, ids: Int64Array, batch_size: int, sampler: Sampler) -> str:
    """How many of the batches fit on the graph's device, in words; nothing where that is not known."""
    graph = graph.inner if isinstance(graph, CappedGraph) else graph
    if not isinstance(graph, DeviceGraph) or _advising.get():
        return ""
    token = _advising.set(True)
    try:
        fitting = _most_on_device(graph, ids, batch_size, sampler)
    finally:
        _advising.reset(token)
    words = {0: "not even a single batch does", 1: "1 of these batches does"}
    return ": " + words.get(fitting, f"{fitting} of these batches do")


def _most_on_device(graph: DeviceGraph, ids: Int64Array, batch_size: int, sampler: Sampler) -> int:
    """How many batches fit by a plan, or 1 where the pilots of a plan do not; fewer than there are, which did not."""
    from spsample.sampling.planner import plan_bulk

    fewer = -(-len(ids) // batch_size) - 1
    try:
        plan = plan_bulk(graph, ids, sampler, batch_size=batch_size, memory_budget=graph.free_bytes())
        return min(plan.bulk_size, fewer)
    except CapacityError:
        pass
    try:
        bulk_sample(graph, ids[:batch_size], sampler, batch_size=batch_size)
    except CapacityError:
        return 0
    return min(1, fewer)


def _slice_layer(layer: BulkLayer, i: int) -> Layer:
    dst, src = layer.dst[layer.dst_ranges[i]], layer.src[layer.src_ranges[i]]
    entries = layer.entry_ranges[i]
    return Layer(
        Adjacency(
            layer.indptr[layer.indptr_ranges[i]],
            layer.indices[entries],
            None if layer.data is None else layer.data[entries],
            (len(dst), len(src)),
        ),
        dst,
        src,
        None if layer.edge_ids is None else layer.edge_ids[entries],
    )
