"""Attributes of sampled vertices and edges: from what a sampler returns to PyG's data."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_edge_store_, index_select
from torch_geometric.sampler import SamplerOutput

from spsample.sampling.hops import Hops
from spsample.sampling.sampled_data import SampledData
from spsample.store import Graph


class _RowAttribute(NamedTuple):
    """An attribute with a row for each vertex, or for each edge."""

    key: str
    of_edges: bool
    dim: int


class _Plan(NamedTuple):
    """Treatment of the attributes that data had when it was made."""

    data: Data
    held: dict[str, Any]
    rows: list[_RowAttribute]
    bare: Data

    def fits(self, data: Data) -> bool:
        """Return whether data still have the same attributes."""
        now = data._store._mapping
        return (
            data is self.data
            and now.keys() == self.held.keys()
            and all(now[key] is value for key, value in self.held.items())
        )


class Attributes:
    """Cuts the attributes of data to samples: what PyG's NeighborLoader makes of a sampler's output.

    Attributes with rows of vertices and of edges are listed once, and again where one was replaced.

    Parameters
    ----------
    graph
        That of the data: an attribute with as many rows as it has vertices or edges has one for each.
    """

    def __init__(self, graph: Graph) -> None:
        self._counts = {"num_nodes": graph.num_nodes, "num_edges": graph.num_edges}
        self._plan: _Plan | None = None

    def joined(self, data: Data, output: SamplerOutput) -> Data:
        """The sampled vertices and edges with their attributes."""
        plan = self._plan
        if plan is None or not plan.fits(data):
            plan = self._plan = self._planned(data)
        held = plan.held.copy()
        for key, of_edges, dim in plan.rows:
            held[key] = _selected(held[key], output.edge if of_edges else output.node, dim)
        if "edge_index" in held:
            held["edge_index"] = _edge_index(output).to(held["edge_index"].device)
        if "adj_t" in held:
            held["adj_t"] = _sampled_entries(held["adj_t"], output)
        if "num_nodes" in held:
            held["num_nodes"] = len(output.node)
        held.setdefault("n_id", output.node)
        held.setdefault("e_id", output.edge)
        input_id, time = output.metadata
        held |= {
            "batch": output.batch,
            "num_sampled_nodes": output.num_sampled_nodes,
            "num_sampled_edges": output.num_sampled_edges,
            "input_id": input_id,
            "seed_time": time,
            "batch_size": input_id.size(0),
        }
        return _made(plan.bare, held)

    def _planned(self, data: Data) -> _Plan:
        """Ask PyG which attributes have rows of vertices or edges; `adj_t` has neither."""
        whole, bare, held = copy.copy(data), copy.copy(data), dict(data._store._mapping)
        for key, count in self._counts.items():
            whole[key] = count
        rows = []
        for key, value in held.items():
            del bare[key]
            is_cut = key not in ("edge_index", "adj_t", "num_nodes")
            if is_cut and (whole.is_node_attr(key) or whole.is_edge_attr(key)):
                rows.append(_RowAttribute(key, not whole.is_node_attr(key), data.__cat_dim__(key, value, data._store)))
        return _Plan(data, held, rows, bare)


def keep_edge_index(output: SamplerOutput, edge_index: torch.Tensor) -> None:
    """Note of which tensor (2, E) `row` and `col` are the rows, so that it need not be put together again."""
    output.ends = output.row, output.col, edge_index


def _edge_index(output: SamplerOutput) -> torch.Tensor:
    """Rows and columns in one tensor: the one that was kept, unless a transform has replaced them."""
    row, col, edge_index = getattr(output, "ends", (None, None, None))
    is_kept = row is output.row and col is output.col
    return edge_index if is_kept and edge_index is not None else torch.stack([output.row, output.col])


def _made(bare: Data, attributes: dict[str, Any]) -> Data:
    """Data with these attributes, and the class and all else of `bare`, which has none; None stands for no attribute.

    PyG sets one attribute at a time, which takes as long as a sample of some seeds.
    """
    made = copy.copy(bare)
    made._store._mapping.update((key, value) for key, value in attributes.items() if value is not None)
    return made


def _selected(value: Any, index: torch.Tensor | None, dim: int) -> Any:
    """Rows of an attribute, in any form that PyG has; None without an index."""
    if index is None:
        return None
    if type(value) is torch.Tensor and value.device == index.device:
        return value.index_select(dim, index)
    if isinstance(value, (list, tuple)):
        return [value[i] for i in index.tolist()]
    return index_select(value, index.cpu() if isinstance(value, np.ndarray) else index.to(value.device), dim)


def _sampled_entries(adj_t: Any, output: SamplerOutput) -> Any:
    """A sparse matrix of the sampled edges, rows = targets: in torch entries ascend, and repeats are summed."""
    n = len(output.node)
    if not isinstance(adj_t, torch.Tensor):  # torch_sparse's
        sampled = Data(num_nodes=n)
        filter_edge_store_(Data(adj_t=adj_t)._store, sampled._store, output.row, output.col, output.edge)
        return sampled.adj_t
    is_csr = adj_t.layout == torch.sparse_csr
    values = adj_t.values() if is_csr else adj_t._values()
    place = torch.stack([output.col, output.row]).to(values.device)
    taken = values[output.edge.to(values.device)]
    entries = torch.sparse_coo_tensor(place, taken, (n, n, *values.shape[1:])).coalesce()
    return entries.to_sparse_csr() if is_csr else entries


def with_hops(batch: Data) -> Data:
    """The batch with the `Hops` of its edges, for layers that leave out rows; `Data` itself keeps them when moved."""
    edge_index = batch.get("edge_index")
    if edge_index is not None:
        batch.edge_index = Hops.put_on(edge_index, batch.num_sampled_nodes, batch.num_sampled_edges)
        if type(batch) is Data:
            object.__setattr__(batch, "__class__", SampledData)  # Data takes an assignment for one of an attribute
    return batch
