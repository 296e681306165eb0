"""Minibatches as other libraries' objects; each library is imported on use."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import backend_for
from spsample.common.threads import compiled_core
from spsample.errors import require_module
from spsample.sampling.hops import Hops

if TYPE_CHECKING:
    from spsample.sampling.bulk import Adjacency, Layer, MiniBatch

_INSTALL = {"torch_sparse": "--no-build-isolation torch-scatter torch-sparse"}
"""Packages that have to be compiled against the torch that is installed."""


class EdgeIndex(NamedTuple):
    """The tuple that PyG's bipartite examples unpack for a block.

    `edge_index` (2, E) holds local (source, target); `e_id` is None unless edge ids were asked for;
    `size = (n_src, n_dst)`.

    Examples
    --------
    >>> edge_index, e_id, size = EdgeIndex("edges", None, (3, 2))
    >>> size
    (3, 2)
    """

    edge_index: Any
    e_id: Any
    size: tuple[int, int]

    def to(self, *args: Any, **kwargs: Any) -> EdgeIndex:
        """A copy on another device."""
        e_id = None if self.e_id is None else self.e_id.to(*args, **kwargs)
        return EdgeIndex(self.edge_index.to(*args, **kwargs), e_id, self.size)


def to_pyg_blocks(batch: MiniBatch) -> tuple[int, Any, list[Any]]:
    """`(batch_size, n_id, adjs)` as PyG's NeighborSampler returned it: an `EdgeIndex` a layer, layer 1 first.

    Ids are int64.
    """
    torch = _require("torch", "to_pyg", "pyg")
    layers = batch.layers
    edges, n_id = _coordinates(layers)
    adjs = [
        EdgeIndex(
            as_tensor(torch, edge_index),
            None if layer.edge_ids is None else as_tensor(torch, layer.edge_ids),
            (layer.adj.shape[1], layer.adj.shape[0]),
        )
        for layer, edge_index in zip(layers, edges, strict=True)
    ]
    return batch.num_seeds, as_tensor(torch, n_id), adjs


def to_pyg_data(batch: MiniBatch) -> Any:
    """Subgraph layout: a `torch_geometric.data.Data` with what NeighborLoader puts there.

    That is `edge_index, n_id, e_id, batch_size, num_sampled_nodes, num_sampled_edges`, and `edge_weight` if any.
    """
    _require("torch_geometric", "to_pyg", "pyg")
    from spsample.sampling.sampled_data import SampledData

    torch = _require("torch", "to_pyg", "pyg")
    layer = batch.layer(0)
    edge_index, n_id, e_id = _subgraph_tensors(torch, layer)
    edge_index = Hops.put_on(edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
    result = SampledData(edge_index=edge_index, num_nodes=len(n_id))
    result["n_id"] = n_id  # as items: a third of the time of attributes
    if e_id is not None:
        result["e_id"] = e_id
    if layer.adj.data is not None:
        result["edge_weight"] = as_tensor(torch, layer.adj.data)
    result["batch_size"] = batch.num_seeds
    result["num_sampled_nodes"] = batch.num_sampled_nodes
    result["num_sampled_edges"] = batch.num_sampled_edges
    return result


def subgraph_tensors(batch: MiniBatch) -> tuple[Any, Any, Any]:
    """Subgraph layout: `edge_index` (2, E) of local (source, target), `n_id`, and `e_id` or None, as int64 tensors."""
    return _subgraph_tensors(_require("torch", "to_pyg", "pyg"), batch.layer(0))


def _subgraph_tensors(torch: Any, layer: Layer) -> tuple[Any, Any, Any]:
    """Those of layer 1, which has the edges of all hops."""
    e_id = None if layer.edge_ids is None else as_tensor(torch, layer.edge_ids)
    (edge_index,), n_id = _coordinates([layer])
    return as_tensor(torch, edge_index), as_tensor(torch, n_id), e_id


def to_torch_csr(batch: MiniBatch) -> list[Any]:
    """One `torch.sparse_csr_tensor` per layer (int64 indices; an entry counts 1.0 where the layer has no data).

    torch requires distinct, ascending columns in each row: entries are sorted, and repeated ones (parallel edges, draws
    with replacement) summed, in binary64 and in their order, then rounded once.
    """
    torch = _require("torch", "to_torch_csr", "pyg")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return [
            torch.sparse_csr_tensor(
                *(torch.from_numpy(one).to(device) for one in _ascending(layer.adj.on_host(), merge=True)),
                size=layer.adj.shape,
                check_invariants=False,
            )
            for layer, device in zip(batch.layers, _devices(torch, batch), strict=True)
        ]


def to_torch_sparse(batch: MiniBatch) -> list[Any]:
    """One `torch_sparse.SparseTensor` per layer; no values where the layer has no data.

    A SparseTensor is sorted by row and column, so columns ascend in each row. Repeated entries stay apart, as it
    allows; its `coalesce()` merges them.
    """
    torch = _require("torch", "to_torch_sparse", "pyg")
    sparse = _require("torch_sparse", "to_torch_sparse", None)
    return [
        _sparse_tensor(torch, sparse, layer.adj.on_host(), device)
        for layer, device in zip(batch.layers, _devices(torch, batch), strict=True)
    ]


def _devices(torch: Any, batch: MiniBatch) -> list[Any]:
    """The device where torch has to put each layer of what is made on the host."""
    return [as_tensor(torch, layer.adj.indices).device for layer in batch.layers]


def _sparse_tensor(torch: Any, sparse: Any, A: Adjacency, device: Any) -> Any:
    indptr, source, values = _ascending(A, merge=False)
    return sparse.SparseTensor(
        rowptr=torch.from_numpy(indptr).to(device),
        col=torch.from_numpy(source).to(device),
        value=None if values is None else torch.from_numpy(values).to(device),
        sparse_sizes=A.shape,
        is_sorted=True,
        trust_data=True,
    )


def to_dgl(batch: MiniBatch) -> list[Any]:
    """One DGL block per layer, layer 1 first, with `srcdata[NID]`, `dstdata[NID]`, `edata[EID]` and `edata["w"]`.

    DGL requires dst vertices to be the first src vertices of a block, so `include_targets=True`. Note that DGL's own
    samplers list fanouts the other way round (farthest from the seeds first).
    """
    torch = _require("torch", "to_dgl", "pyg")
    dgl = _require("dgl", "to_dgl", None)
    blocks = []
    for layer in batch.layers:
        source, target = as_tensor(torch, _edge_index(layer.adj))
        block = dgl.create_block((source, target), num_src_nodes=layer.adj.shape[1], num_dst_nodes=layer.adj.shape[0])
        block.srcdata[dgl.NID] = as_tensor(torch, _widened(layer.src_nodes))
        block.dstdata[dgl.NID] = as_tensor(torch, _widened(layer.dst_nodes))
        if layer.edge_ids is not None:
            block.edata[dgl.EID] = as_tensor(torch, layer.edge_ids)
        if layer.adj.data is not None:
            block.edata["w"] = as_tensor(torch, layer.adj.data)
        blocks.append(block)
    return blocks


def _edge_index(A: Adjacency) -> NDArray[np.int64]:
    """(2, E) local (source, target)."""
    return backend_for(A.indices).edge_index(A.indptr, A.indices)


def _coordinates(layers: list[Layer]) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """(2, E) local (source, target) of each layer, and the src ids of the first as int64."""
    matrices = [(layer.adj.indptr, layer.adj.indices) for layer in layers]
    return backend_for(layers[0].src_nodes).coordinates(matrices, layers[0].src_nodes)


def _widened(ids: Any) -> Any:
    """The ids as int64, in memory of their own."""
    return backend_for(ids).widened(ids)


def as_tensor(torch: Any, array: Any) -> Any:
    """A tensor over the same memory: of the host, or of a device, to be used on torch's current stream there.

    That stream waits for what makes the array, and the memory is kept until it is done with it. A tensor is itself.
    """
    if isinstance(array, np.ndarray):
        return torch.from_numpy(array)
    if isinstance(array, torch.Tensor):
        return array
    backend = backend_for(array)
    with backend.session():
        return torch.from_dlpack(backend.to_device(array))


def _ascending(A: Adjacency, merge: bool) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """CSR with ascending columns (int64) in each row; repeats are summed where they are merged, and count 1.0 each."""
    core = compiled_core()
    if core is None or (A.data is not None and A.data.dtype not in (np.float32, np.float64)):
        return _merged(A) if merge else _sorted(A)
    data = None if A.data is None else np.ascontiguousarray(A.data)
    indptr, columns, values = core.ascending_rows(A.indptr, np.ascontiguousarray(A.indices), data, merge)
    return indptr, columns, values


def _sorted(A: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """CSR with ascending columns in each row; repeats stay apart, in their order."""
    edges, order = _by_row_and_column(A)
    return A.indptr, edges[0], None if A.data is None else A.data[order]


def _merged(A: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """CSR with ascending, distinct columns in each row, values of repeats summed."""
    edges, order = _by_row_and_column(A)
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (edges[:, 1:] != edges[:, :-1]).any(axis=0)
    source, target = (ends[is_first] for ends in edges)
    data = np.ones(len(order), np.float32) if A.data is None else A.data[order]
    sums = np.bincount(np.cumsum(is_first) - 1, data, len(source)).astype(data.dtype)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=A.shape[0]))]).astype(np.int64)
    return indptr, source, sums


def _by_row_and_column(A: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(2, E) local (source, target) sorted by target, then source, and the place of each entry before; stable."""
    edges = _edge_index(A)
    order = np.lexsort(edges)
    return np.ascontiguousarray(edges[:, order]), order


def _require(module: str, used_by: str, extra: str | None) -> Any:
    """The module, or an error that says how to get it."""
    return require_module(module, needed_for=f"MiniBatch.{used_by}()", extra=extra, install=_INSTALL.get(module))
