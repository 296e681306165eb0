"""Treatment of PyG's arguments: taken, not needed, or refused with what to do instead."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.sampler import NumNeighbors

from spsample.common.checks import short
from spsample.errors import DTypeError, InputError
from spsample.loading.order import as_seeds
from spsample.sampling.sampler import require_sizes
from spsample.store import Graph
from spsample.store.base_graph import require_graph, require_local

_TAKEN = ("batch_size", "shuffle", "drop_last", "generator", "sampler", "batch_sampler")
_INSTEAD_OF = {"sampler": ("shuffle",), "batch_sampler": ("sampler", "shuffle", "drop_last", "batch_size")}
_UNSET = {"sampler": None, "shuffle": False, "drop_last": False, "batch_size": 1}
"""Arguments that exclude others, as in torch, where these have other values."""

_PASSED_OVER = ("dataset", "collate_fn")
"""Arguments that PyG's loader replaces by its own without a word."""


_REFUSED: dict[str, tuple[Any, str]] = {
    "input_time": (None, "Sampling by time is not there: remove edges that are too late from the data before."),
    "disjoint": (False, "A graph of its own for each seed is what batch_size=1 gives."),
    "temporal_strategy": ("uniform", "Sampling by time is not there."),
    "time_attr": (None, "Sampling by time is not there: remove edges that are too late from the data before."),
    "neighbor_sampler": (None, "graph= shares a graph between loaders; other samplers: spsample.BulkLoader."),
    "directed": (True, "Leave it out: directed=False is PyG's old name of subgraph_type='induced'."),
    "custom_cls": (None, "Batches have the class of data."),
}
"""Arguments of which only the default is taken, with it and what to do instead."""

_THREADS = "threads of this process sample whole bulks ahead of the loop, so there are no workers to start"
_NEEDLESS: dict[str, tuple[Any, str]] = {
    "num_workers": (0, _THREADS),
    "persistent_workers": (False, _THREADS),
    "multiprocessing_context": (None, _THREADS),
    "worker_init_fn": (None, _THREADS),
    "timeout": (0, _THREADS),
    "prefetch_factor": (None, "prefetch=1 says how many bulks are sampled ahead"),
    "pin_memory": (False, "batches are ready in this process's memory before they are asked for"),
    "pin_memory_device": ("", "batches are ready in this process's memory before they are asked for"),
    "in_order": (True, "batches come in order anyway"),
}
"""Arguments that change nothing here, with their defaults and why."""

_SUBGRAPH_TYPES = ("directional", "bidirectional")


def checked_data(data: Any) -> Data:
    """`data`, where it is PyG's homogeneous `Data`.

    Raises
    ------
    DTypeError
        For anything else, saying what to do.
    """
    if isinstance(data, Data):
        return data
    kind = type(data).__name__
    hint = "Pass the data of a data set: dataset[0]."
    if kind == "HeteroData":
        hint = "Typed graphs cannot be sampled yet: data.to_homogeneous() makes one graph of all types."
    elif isinstance(data, (tuple, list)):
        hint = "Graphs and features that are on disk: spsample.Graph.open, FeatureStore.open and BulkLoader(...).pyg()."
    raise DTypeError(argument="data", given=f"a {kind}", expected="torch_geometric.data.Data", hint=hint)


def checked_graph(data: Data, graph: Graph, weight_attr: str | None) -> Graph:
    """The graph that was given, where it is that of the data.

    Raises
    ------
    InputError, DTypeError
        If it is another's, or has no weights where they are asked for.
    """
    expected = "Graph.from_pyg(data)" if weight_attr is None else f"Graph.from_pyg(data, {weight_attr!r})"
    require_graph(graph)
    require_local(graph, expected)
    is_another = (graph.num_nodes, graph.num_edges) != (data.num_nodes, _num_edges(data))
    if is_another or (weight_attr is not None and graph.weighting != "weighted"):
        raise InputError(argument="graph", given=repr(graph), expected=expected)
    return graph


def _num_edges(data: Data) -> int:
    """Return the number of edges of the data; of a sparse tensor that of its entries, which PyG does not count."""
    adj_t = data.get("adj_t")
    if adj_t is None:
        return int(data.num_edges)
    return int(adj_t._nnz() if isinstance(adj_t, torch.Tensor) else adj_t.nnz())


def checked_inputs(data: Data, input_nodes: Any) -> torch.Tensor | None:
    """Vertex ids or a mask as a tensor; None stands for all vertices.

    Raises
    ------
    DTypeError, InputError
        If it is neither, or does not belong to the data's vertices.
    """
    if input_nodes is None:
        return None
    if isinstance(input_nodes, str) or (isinstance(input_nodes, tuple) and isinstance(next(iter(input_nodes), 0), str)):
        expected = "vertex ids, or a mask over the vertices: the data have no types"
        raise DTypeError(argument="input_nodes", given=repr(input_nodes), expected=expected)
    held = input_nodes.detach().cpu() if isinstance(input_nodes, torch.Tensor) else input_nodes
    ids = as_seeds(data, held, "input_nodes")
    is_mask = np.asarray(held).dtype == bool
    if len(ids) == 0:
        given = "a mask that is true nowhere" if is_mask else "no vertices"
        raise InputError(argument="input_nodes", given=given, expected="at least one vertex to sample from")
    return torch.as_tensor(held) if is_mask else torch.tensor(ids)


def checked_sizes(num_neighbors: Any) -> tuple[int, ...]:
    """Neighbours per hop.

    Raises
    ------
    InputError, DTypeError
        If they are no list of integers of at least 1, or -1.
    """
    sizes = num_neighbors.values if isinstance(num_neighbors, NumNeighbors) else num_neighbors
    return require_sizes("num_neighbors", sizes, whole_rows=True)


def refuse(arguments: dict[str, Any]) -> None:
    """Refuse what cannot be sampled.

    Raises
    ------
    InputError
        If an argument has a value that is not taken here.
    """
    for name, (default, instead) in _REFUSED.items():
        value = arguments.get(name, default)
        if value is not default and (default is None or value != default):
            raise InputError(
                argument=name, given=short(value), expected=f"{default!r}, which is the default", hint=instead
            )


def checked_type(subgraph_type: Any) -> str:
    """Return the type of subgraph: a batch has the sampled edges, or the reverse of each of them too.

    Raises
    ------
    InputError
        If it is a type of subgraph that is not taken here.
    """
    word = str(getattr(subgraph_type, "value", subgraph_type))
    if word not in _SUBGRAPH_TYPES:
        raise InputError(
            argument="subgraph_type",
            given=repr(word),
            expected=" or ".join(map(repr, _SUBGRAPH_TYPES)),
            hint="The edges between all vertices of a batch: torch_geometric.utils.subgraph(batch.n_id, ...).",
        )
    return word


def taken(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of torch's DataLoader that are used; one warning names those that are set and needless.

    Raises
    ------
    DTypeError
        For a name that PyG's loader would not take either.
    InputError
        For two that exclude each other.
    """
    unknown = options.keys() - {*_TAKEN, *_PASSED_OVER, *_REFUSED, *_NEEDLESS}
    if unknown:
        expected = "arguments of torch_geometric.loader.NeighborLoader, or of spsample.BulkLoader"
        raise DTypeError(argument=min(unknown), given="an argument of that name", expected=expected)
    needless: dict[str, list[str]] = {}
    for name, (default, reason) in _NEEDLESS.items():
        if name in options and options[name] != default:
            needless.setdefault(reason, []).append(name)
    if needless:
        warn_needless("; ".join(f"{', '.join(names)}: {reason}" for reason, names in needless.items()))
    for name, others in _INSTEAD_OF.items():
        both = [other for other in others if _is_set(other, options.get(other))]
        if options.get(name) is not None and both:
            given = f"{name} with {both[0]}={short(options[both[0]])}"
            raise InputError(argument=name, given=given, expected="one of them: each decides the batches")
    return {name: options[name] for name in _TAKEN if name in options}


def _is_set(name: str, value: Any) -> bool:
    if value is None or _UNSET[name] is None:
        return value is not None
    return bool(value != _UNSET[name])


def warn_needless(what: str = f"workers: {_THREADS}") -> None:
    """Warn the caller of the loader of what it does not need, with the reason."""
    warnings.warn(f"NeighborLoader of spsample needs no {what}.", UserWarning, stacklevel=4)
