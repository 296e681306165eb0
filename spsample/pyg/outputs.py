"""From minibatches to what PyG's samplers return, and from there to PyG's data."""

from __future__ import annotations

import copy
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_data
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from spsample.errors import InputError
from spsample.planning import bulk_sample
from spsample.sampling import GraphSAGE
from spsample.sampling.adapters import subgraph_tensors
from spsample.sampling.bulk import empty_minibatch

if TYPE_CHECKING:
    from spsample.sampling import MiniBatch
    from spsample.store import Graph

__all__ = ["BulkNeighborSampler", "joined"]

EPOCH_OF_CALLS = 2**64 - 1
"""Under which single batches are drawn: no pass over the data has this number."""


class BulkNeighborSampler(BaseSampler):  # type: ignore[misc]  # torch_geometric has no types
    """PyG's interface of samplers: one batch at a time. `NeighborLoader` uses it for ``loader(positions)`` alone.

    Each call draws anew; the calls of a program are the same whenever it runs with the same random seed.
    """

    def __init__(
        self, graph: Graph, sampler: GraphSAGE, random_seed: int, is_bidirectional: bool, backend: str | None
    ) -> None:
        self.graph = graph
        self.sampler = sampler
        self.random_seed = random_seed
        self.is_bidirectional = is_bidirectional
        self.backend = backend
        self.num_neighbors = list(sampler.sizes)
        self._calls = count()

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput:
        """Sample one batch."""
        bulk = bulk_sample(
            self.graph,
            inputs.node.numpy(),
            self.sampler,
            batch_size=max(len(inputs.node), 1),
            random_seed=self.random_seed,
            epoch=EPOCH_OF_CALLS,
            first_batch=next(self._calls),
            edge_ids=True,
            backend=self.backend,
        )
        return self.output_of(bulk[0] if len(bulk) else empty_minibatch(bulk, 0), inputs)

    def output_of(self, minibatch: MiniBatch, inputs: NodeSamplerInput) -> SamplerOutput:
        """What PyG's samplers return for a minibatch; `inputs` are its seeds."""
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
        if len(minibatch.seed_inverse) != len(minibatch.seeds):
            _repeat_seeds(output, minibatch)
        return output.to_bidirectional() if self.is_bidirectional else output

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None) -> None:
        """Refused."""
        expected = "vertices: batches of edges are not sampled yet"
        raise InputError(argument="inputs", given="edges", expected=expected, hint="Use PyG's LinkNeighborLoader.")

    @property
    def edge_permutation(self) -> None:
        """None: edges are numbered as in the data."""
        return None


def _repeat_seeds(output: SamplerOutput, minibatch: MiniBatch) -> None:
    """Put merged seeds apart again: PyG has a vertex for each seed given, and its edges with each of them.

    As in PyG, edges that lead out of a repeated seed leave its first place.
    """
    place = torch.from_numpy(np.ascontiguousarray(minibatch.seed_inverse)).to(output.node.device)
    distinct, given = len(minibatch.seeds), len(place)
    first = np.unique(minibatch.seed_inverse, return_index=True)[1]
    moved = torch.arange(given - distinct, given - distinct + len(output.node), device=place.device)
    moved[:distinct] = torch.from_numpy(first).to(place.device)
    hop_edges = output.num_sampled_edges[0]
    counts = torch.bincount(output.col[:hop_edges], minlength=distinct)
    starts, repeats = counts.cumsum(0) - counts, counts[place]
    ends = repeats.cumsum(0)
    copied = torch.arange(int(repeats.sum()), device=place.device)
    copied += torch.repeat_interleave(starts[place] - (ends - repeats), repeats)
    order = torch.cat([copied, torch.arange(hop_edges, len(output.col), device=place.device)])
    target = torch.repeat_interleave(torch.arange(given, device=place.device), repeats)
    output.node = torch.cat([output.node[place], output.node[distinct:]])
    output.row = moved[output.row[order]]
    output.col = torch.cat([target, moved[output.col[hop_edges:]]])
    output.edge = output.edge[order]
    output.num_sampled_nodes[0], output.num_sampled_edges[0] = given, len(copied)


def joined(data: Data, output: SamplerOutput) -> Data:
    """The sampled vertices and edges with their attributes: what PyG's NeighborLoader makes of a sampler's output."""
    lists = {key: value for key, value in data.to_dict().items() if isinstance(value, (list, tuple))}
    rows = {key: output.node for key in lists if data.is_node_attr(key)}
    rows |= {key: output.edge for key in lists if data.is_edge_attr(key)}
    batch = filter_data(_without(data, rows), output.node, output.row, output.col, output.edge)
    for key, index in rows.items():
        batch[key] = [lists[key][i] for i in index.tolist()]
    if "n_id" not in batch:
        batch.n_id = output.node
    if "e_id" not in batch:
        batch.e_id = output.edge
    input_id, time = output.metadata
    added: dict[str, Any] = {
        "batch": output.batch,
        "num_sampled_nodes": output.num_sampled_nodes,
        "num_sampled_edges": output.num_sampled_edges,
        "input_id": input_id,
        "seed_time": time,
        "batch_size": input_id.size(0),
    }
    for key, value in added.items():
        batch[key] = value
    return batch


def _without(data: Data, keys: dict[str, Any]) -> Data:
    """The data without some attributes; themselves where there is nothing to leave out."""
    if not keys:
        return data
    rest = copy.copy(data)
    for key in keys:
        del rest[key]
    return rest
