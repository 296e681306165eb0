"""`NeighborSampler`: PyG's interface of samplers; from minibatches to what they return, with attributes of the data."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch.utils.data import get_worker_info
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_edge_store_, index_select
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, NumNeighbors, SamplerOutput

from spsample.common.lazily import lazily
from spsample.errors import InputError
from spsample.planning.bulk_sampling import sample_within
from spsample.pyg import arguments
from spsample.sampling import GraphSAGE, MiniBatch
from spsample.sampling.adapters import subgraph_tensors
from spsample.sampling.arguments import require_word
from spsample.sampling.bulk import empty_minibatch
from spsample.sampling.hops import Hops
from spsample.sampling.sampled_data import SampledData
from spsample.sampling.sampler import require_bool, require_sizes
from spsample.store import Graph


class _Plan(NamedTuple):
    """Treatment of the attributes that data had when it was made; `rows` has key, whether of edges, and dimension."""

    data: Data
    held: dict[str, Any]
    rows: list[tuple[str, bool, int]]
    bare: Data

    def fits(self, data: Data) -> bool:
        """Return whether data still have the same attributes."""
        now = data._store._mapping
        has_keys = data is self.data and now.keys() == self.held.keys()
        return has_keys and all(now[key] is value for key, value in self.held.items())


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
            ends: Any = getattr(output, "ends", (None, None, None))
            row, col, edge_index = ends
            if row is not output.row or col is not output.col:  # a transform has replaced them
                edge_index = torch.stack([output.row, output.col])
            held["edge_index"] = edge_index.to(held["edge_index"].device)
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
        made = copy.copy(plan.bare)  # PyG sets one attribute at a time, which takes as long as a sample of some seeds
        made._store._mapping.update((key, value) for key, value in held.items() if value is not None)
        return made

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
                rows.append((key, not whole.is_node_attr(key), data.__cat_dim__(key, value, data._store)))
        return _Plan(data, held, rows, bare)


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


class SharedGraphs:
    """Graphs of data that loaders have now: they live as long as a loader does.

    Examples
    --------
    >>> from torch_geometric.data import Data
    >>> data, graphs = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2), SharedGraphs()
    >>> graph = graphs.of(data)
    >>> graphs.of(data) is graph
    True
    >>> data.edge_index[0, 0] = 1
    >>> graphs.of(data) is graph
    False
    """

    def __init__(self) -> None:
        self._made: Any = WeakTensorKeyDictionary()  # by edges, then by weights (or edges), then by their versions

    def of(self, data: Data, weight_attr: str | None = None) -> Graph:
        """The graph of the edges and weights that data have now; errors as of `Graph.from_pyg`."""
        names = ["edge_index"] if weight_attr is None else ["edge_index", str(weight_attr)]
        tensors = [data.get(name) for name in names]
        are_counted = all(isinstance(tensor, torch.Tensor) and not tensor.is_inference() for tensor in tensors)
        if not are_counted or "adj_t" in data:  # nobody knows whether they were changed
            return Graph.from_pyg(data, weight_attr)
        of_edges = self._made.setdefault(tensors[0], WeakTensorKeyDictionary())
        graphs = of_edges.setdefault(tensors[-1], WeakValueDictionary())
        now = (data.num_nodes, *(tensor._version for tensor in tensors))
        graph: Graph | None = graphs.get(now)
        if graph is None:
            graph = graphs[now] = Graph.from_pyg(data, weight_attr)
        return graph


EPOCH_OF_CALLS = 2**64 - 1
"""Under which single batches are drawn: no pass over the data has this number."""


class NeighborSampler(BaseSampler):  # type: ignore[misc]  # torch_geometric has no types
    """PyG's interface of samplers, one batch at a time: a ``node_sampler`` of PyG's ``NodeLoader`` and its like.

    ``LightningNodeData(data, node_sampler=NeighborSampler(data, [10, 10]))`` samples with it. `NeighborLoader` samples
    many batches at once, which takes less time.

    Each call draws anew; the calls of a program are the same whenever it runs with the same random seed, and number of
    workers. ``num_neighbors``, ``replace`` and ``subgraph_type`` can be set later, as by ``eval_loader_kwargs``.

    Parameters
    ----------
    data, num_neighbors, replace, subgraph_type, weight_attr, graph, random_seed, backend
        As of `NeighborLoader`.

    Raises
    ------
    InputError, DTypeError
        As of `NeighborLoader`.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.loader import NodeLoader
    >>> data = Data(edge_index=torch.tensor([[1, 2, 3, 0], [0, 0, 1, 3]]), num_nodes=4)
    >>> loader = NodeLoader(data, NeighborSampler(data, [-1], random_seed=0), input_nodes=[0, 1], batch_size=2)
    >>> [batch.n_id.tolist() for batch in loader]
    [[0, 1, 2, 3]]
    """

    _graphs: ClassVar = SharedGraphs()

    def __init__(
        self,
        data: Data,
        num_neighbors: Any,
        replace: bool = False,
        subgraph_type: Any = "directional",
        weight_attr: str | None = None,
        *,
        graph: Graph | None = None,
        random_seed: int | None = None,
        backend: str | None = None,
    ) -> None:
        self.num_neighbors, self.replace, self.subgraph_type = num_neighbors, replace, subgraph_type
        data = arguments.checked_data(data)
        self.graph = (
            self._graphs.of(data, weight_attr) if graph is None else arguments.checked_graph(data, graph, weight_attr)
        )
        self.weight_attr = weight_attr
        self.random_seed = drawn_seed() if random_seed is None else require_word("random_seed", random_seed)
        self.backend = backend
        self._calls = 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Check what PyG sets for an evaluation, too."""
        if name == "num_neighbors":
            sizes = value.values if isinstance(value, NumNeighbors) else value
            value = list(require_sizes("num_neighbors", sizes, whole_rows=True))
        elif name == "replace":
            value = require_bool("replace", value)
        elif name == "subgraph_type":
            value = arguments.checked_type(value)
        elif name == "weight_attr" and value != vars(self).get(name, value):
            expected = "that of the graph that was made: another one needs a sampler of its own"
            raise InputError(argument="weight_attr", given=repr(value), expected=expected)
        super().__setattr__(name, value)
        if name != "_calls":
            self.__dict__.pop("sampler", None)

    @lazily
    def sampler(self) -> GraphSAGE:
        """The sampler of the graph."""
        weighted = self.weight_attr is not None
        return GraphSAGE(self.num_neighbors, replace=self.replace, weighted=weighted, layout="subgraph")

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput:
        """Sample one batch."""
        worker, call = get_worker_info(), self._calls
        self._calls += 1
        options = {
            "batch_size": max(len(inputs.node), 1),
            "random_seed": self.random_seed if worker is None else (self.random_seed + worker.seed) % 2**64,
            "epoch": EPOCH_OF_CALLS,
            "first_batch": call % 2**32,
            "edge_ids": True,
            "backend": self.backend,
        }
        (bulk,) = sample_within(None, self.graph, inputs.node.numpy(), self.sampler, **options)
        return self.output_of(bulk[0] if len(bulk) else empty_minibatch(bulk, 0), inputs)

    def output_of(self, minibatch: MiniBatch, inputs: NodeSamplerInput) -> SamplerOutput:
        """The output of PyG's samplers for a minibatch; `inputs` are its seeds."""
        edge_index, node, edge = subgraph_tensors(minibatch)
        output = SamplerOutput(
            node=node,
            row=edge_index[0],
            col=edge_index[1],
            edge=edge,
            num_sampled_nodes=minibatch.num_sampled_nodes,
            num_sampled_edges=minibatch.num_sampled_edges,
            metadata=(inputs.input_id, inputs.time),
        )
        output.ends = output.row, output.col, edge_index  # the rows of one tensor, which need not be put together again
        if len(inputs.node) != minibatch.num_seeds:
            _repeat_seeds(output, minibatch)
        return output.to_bidirectional() if self.subgraph_type == "bidirectional" else output

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None) -> None:
        """Refused."""
        expected = "vertices: batches of edges are not sampled yet"
        raise InputError(argument="inputs", given="edges", expected=expected, hint="Use PyG's LinkNeighborLoader.")


def drawn_seed(generator: torch.Generator | None = None) -> int:
    """A random seed from torch."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _repeat_seeds(output: SamplerOutput, minibatch: MiniBatch) -> None:
    """Put merged seeds apart again: PyG has a vertex for each seed given, and its edges with each of them.

    As in PyG, edges that lead out of a repeated seed leave its first place.
    """
    place = torch.from_numpy(np.ascontiguousarray(minibatch.seed_inverse)).to(output.node.device)
    distinct, seeds = len(minibatch.seeds), len(place)
    first = np.unique(minibatch.seed_inverse, return_index=True)[1]
    moved = torch.arange(seeds - distinct, seeds - distinct + len(output.node), device=place.device)
    moved[:distinct] = torch.from_numpy(first).to(place.device)
    hop_edges = output.num_sampled_edges[0]
    counts = torch.bincount(output.col[:hop_edges], minlength=distinct)
    repeats = counts[place]
    target = torch.repeat_interleave(torch.arange(seeds, device=place.device), repeats)
    starts, copied_starts = counts.cumsum(0) - counts, repeats.cumsum(0) - repeats
    copied = torch.arange(len(target), device=place.device)
    copied += torch.repeat_interleave(starts[place] - copied_starts, repeats)
    order = torch.cat([copied, torch.arange(hop_edges, len(output.col), device=place.device)])
    output.node = torch.cat([output.node[place], output.node[distinct:]])
    output.row = moved[output.row[order]]
    output.col = torch.cat([target, moved[output.col[hop_edges:]]])
    output.edge = output.edge[order]
    output.num_sampled_nodes[0], output.num_sampled_edges[0] = seeds, len(target)
