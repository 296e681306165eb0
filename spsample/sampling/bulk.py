"""The results of `bulk_sample`: `BulkSample`, a stack of minibatches, and `MiniBatch`, a view of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from spsample.backends import backend_for
from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.arrays import distinct_bytes
from spsample.common.lazily import lazily
from spsample.common.units import count
from spsample.errors import InputError
from spsample.sampling import adapters
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.sampler import Sampler
from spsample.sampling.seeds import SeedBatches
from spsample.sparse import LAW_VERSION, RowSelector

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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
        """Return this matrix with NumPy arrays: itself, or a copy of one on a device."""
        indices: Any = self.indices
        if isinstance(indices, np.ndarray):
            return self
        copy_of = backend_for(indices).on_host
        data = None if self.data is None else copy_of(self.data)
        return Adjacency(copy_of(self.indptr), copy_of(indices), data, self.shape)

    def map_arrays(self, function: Callable[[Any], Any]) -> Adjacency:
        """Return this matrix with what a function makes of each array, in a fixed order."""
        data = None if self.data is None else function(self.data)
        return Adjacency(function(self.indptr), function(self.indices), data, self.shape)

    def __repr__(self) -> str:
        data = "None" if self.data is None else str(self.data.dtype)
        return f"Adjacency(shape={self.shape}, nnz={self.nnz}, data={data})"


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a minibatch: rows `dst_nodes`, columns `src_nodes` (global ids); `edge_ids` where asked."""

    adj: Adjacency
    dst_nodes: IntArray
    src_nodes: IntArray
    edge_ids: Int64Array | None

    def map_arrays(self, function: Callable[[Any], Any]) -> Layer:
        """Return this layer with what a function makes of each array, in a fixed order."""
        edge_ids = None if self.edge_ids is None else function(self.edge_ids)
        return Layer(self.adj.map_arrays(function), function(self.dst_nodes), function(self.src_nodes), edge_ids)

    def __repr__(self) -> str:
        edge_ids = "" if self.edge_ids is None else ", edge_ids"
        return f"Layer({len(self.dst_nodes)} dst_nodes, {len(self.src_nodes)} src_nodes, {self.adj!r}{edge_ids})"


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
        last = self._bulk.layers[-1]
        return last.dst[last.dst_ranges[self._position]]

    @property
    def num_seeds(self) -> int:
        """Number of distinct seeds."""
        return self._bulk.layers[-1].dst_ranges.size_of(self._position)

    @property
    def seed_inverse(self) -> Int64Array:
        """For each seed given for this batch, its row among `seeds` (int64)."""
        return self._bulk.seed_batches.inverse_of(self._position)

    @property
    def seed_places(self) -> Int64Array:
        """For each of `seeds` its place among the seeds given for this batch, of a repeated one the first (int64)."""
        inverse = self.seed_inverse
        if len(inverse) == len(self.seeds):
            return np.arange(len(inverse))
        first: Int64Array = np.unique(inverse, return_index=True)[1]
        return first

    @property
    def src_nodes(self) -> IntArray:
        """Vertices whose features layer 1 needs (global ids)."""
        first = self._bulk.layers[0]
        return first.src[first.src_ranges[self._position]]

    @lazily
    def layers(self) -> list[Layer]:
        """A^1 .. A^L: `layers[0]` is layer 1, farthest from the seeds."""
        return [_slice_layer(layer, self._position) for layer in self._bulk.layers]

    def layer(self, number: int) -> Layer:
        """Return `layers[number]`; the others are not made for it."""
        made: list[Layer] | None = self.__dict__.get("layers")
        return _slice_layer(self._bulk.layers[number], self._position) if made is None else made[number]

    @property
    def num_sampled_nodes(self) -> list[int]:
        """New vertices per hop, the seeds first, as PyG counts them (subgraph layout)."""
        layers, i = self._subgraph_layers("num_sampled_nodes"), self._position
        known = [layers[-1].dst_ranges.size_of(i), *(layer.src_ranges.size_of(i) for layer in reversed(layers))]
        return [known[0], *(after - before for before, after in pairwise(known))]

    @property
    def num_sampled_edges(self) -> list[int]:
        """Edges drawn per hop, as PyG counts them (subgraph layout)."""
        layers = self._subgraph_layers("num_sampled_edges")
        edges = [0, *(layer.entry_ranges.size_of(self._position) for layer in reversed(layers))]
        return [after - before for before, after in pairwise(edges)]

    def _subgraph_layers(self, name: str) -> list[BulkLayer]:
        sampler = self._bulk.sampler
        if sampler.layout == "subgraph":
            return self._bulk.layers
        raise InputError(argument=name, given=f"a batch of {sampler!r}", expected="GraphSAGE(..., layout='subgraph')")

    def copy(self) -> MiniBatch:
        """Return this minibatch in arrays of its own, which keep no bulk alive.

        Examples
        --------
        >>> import spsample
        >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
        >>> minibatch = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=2)[1].copy()
        >>> minibatch.batch_id, minibatch.src_nodes.tolist()
        (1, [3, 0])
        """
        return MiniBatch(self._bulk.copy_batch(self._position), 0)

    def map_arrays(self, function: Callable[[Any], Any]) -> MiniBatch:
        """Return this minibatch with what a function makes of each array of its layers, in a fixed order.

        It keeps no bulk alive. What belongs to the seeds as they were given (`seed_inverse`) stays as it is.

        Examples
        --------
        >>> import spsample
        >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
        >>> minibatch = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=2)[1]
        >>> minibatch.map_arrays(np.copy).src_nodes.tolist()
        [3, 0]
        """
        stacked = []
        for one in self.layers:
            layer = one.map_arrays(function)
            adj = layer.adj
            arrays = layer.dst_nodes, layer.src_nodes, adj.indptr, adj.indices, adj.data, layer.edge_ids
            stacked.append(BulkLayer.of_one(*arrays))
        bulk = BulkSample(self._bulk.sampler, self._bulk.seed_batches.copy_batch(self._position), stacked)
        bulk.law_version = self._bulk.law_version
        return MiniBatch(bulk, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return MiniBatch, (self._bulk.copy_batch(self._position), 0)

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
        if self._bulk.sampler.layout == "subgraph":
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

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of all layers, each array once."""
        names = ("dst", "src", "indptr", "indices", "data", "edge_ids")
        return distinct_bytes(getattr(layer, name) for layer in self.layers for name in names)

    def copy_batch(self, position: int) -> BulkSample:
        """Return a bulk of one of the minibatches, in arrays of its own."""
        with backend_for(self.seed_batches.selector.vertices).session():
            batches = self.seed_batches.copy_batch(position)
            copied = BulkSample(self.sampler, batches, [layer.copy_batch(position) for layer in self.layers])
        copied.law_version = self.law_version
        return copied

    def take(self, positions: Int64Array) -> BulkSample:
        """Return a bulk of some of the minibatches, which shares the arrays of this one."""
        with backend_for(self.seed_batches.selector.vertices).session():
            batches = self.seed_batches.take(positions)
        return BulkSample(self.sampler, batches, [layer.take(positions) for layer in self.layers])

    def to_host(self) -> BulkSample:
        """Return this bulk with NumPy arrays: itself, or a copy of one on a device."""
        layers = [layer.on_host() for layer in self.layers]
        if all(one is other for one, other in zip(layers, self.layers, strict=True)):
            return self
        bulk = BulkSample(self.sampler, self.seed_batches.on_host(), layers)
        bulk.law_version = self.law_version
        return bulk

    @property
    def num_edges(self) -> int:
        """Sampled edges of all batches, each once: in the subgraph layout, layer 1 has those of all hops."""
        layers = self.layers[:1] if self.sampler.layout == "subgraph" else self.layers
        return sum(layer.entry_ranges.total for layer in layers)

    def __repr__(self) -> str:
        return f"BulkSample({count(len(self), 'minibatch', 'minibatches')}, {self.num_edges} edges, {self.sampler!r})"


def empty_minibatch(like: BulkSample, batch_id: int) -> MiniBatch:
    """A minibatch of no seeds, for a rank that has none left in a step that all ranks take.

    It has as many layers as those of a bulk, of the same dtypes, with 0 rows.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=2)
    >>> empty_minibatch(bulk, 7)
    MiniBatch(batch_id=7, seeds=0, layers=[0x0])
    """
    ptr = np.zeros(2, np.int64)
    selector = RowSelector(ptr, like.seed_batches.selector.vertices[:0], np.array([batch_id], np.int64))
    bulk = BulkSample(like.sampler, SeedBatches(selector, ptr), [layer.empty_batch() for layer in like.layers])
    return MiniBatch(bulk, 0)


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
