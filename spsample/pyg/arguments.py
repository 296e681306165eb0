"""PyG's and torch's arguments: taken, not needed, or refused with what to do instead; samplers as orders of epochs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from spsample.common.checks import check_range, require_int, require_type, short
from spsample.errors import DTypeError, InputError
from spsample.loading.order import Order, as_seeds
from spsample.store import Graph
from spsample.store.base_graph import require_graph, require_local

_NO_TIME = "Sampling by time is not there: remove edges that are too late from the data before."
_REFUSED: dict[str, tuple[Any, str]] = {
    "input_time": (None, _NO_TIME),
    "time_attr": (None, _NO_TIME),
    "temporal_strategy": ("uniform", _NO_TIME),
    "disjoint": (False, "A graph of its own for each seed is what batch_size=1 gives."),
    "neighbor_sampler": (None, "graph= shares a graph between loaders; other samplers: spsample.BulkLoader."),
    "directed": (True, "Leave it out: directed=False is PyG's old name of subgraph_type='induced'."),
    "custom_cls": (None, "Batches have the class of data."),
}
"""Arguments of which only the default is taken, with it and what to do instead."""

_THREADS = "threads of this process sample whole bulks ahead of the loop, so there are no workers to start"
_IN_MEMORY = "batches are ready in this process's memory before they are asked for"
_NEEDLESS: dict[str, tuple[Any, str]] = {
    "num_workers": (0, _THREADS),
    "persistent_workers": (False, _THREADS),
    "multiprocessing_context": (None, _THREADS),
    "worker_init_fn": (None, _THREADS),
    "timeout": (0, _THREADS),
    "prefetch_factor": (None, "prefetch=1 says how many bulks are sampled ahead"),
    "pin_memory": (False, _IN_MEMORY),
    "pin_memory_device": ("", _IN_MEMORY),
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
    num_edges, adj_t = data.num_edges, data.get("adj_t")
    if adj_t is not None:  # PyG does not count its entries
        num_edges = adj_t._nnz() if isinstance(adj_t, torch.Tensor) else adj_t.nnz()
    is_another = (graph.num_nodes, graph.num_edges) != (data.num_nodes, num_edges)
    if is_another or (weight_attr is not None and graph.weighting != "weighted"):
        raise InputError(argument="graph", given=repr(graph), expected=expected)
    return graph


def checked_inputs(data: Data, input_nodes: Any) -> torch.Tensor | None:
    """Vertex ids or a mask as a tensor; None stands for all vertices.

    Raises
    ------
    DTypeError, InputError
        If it is neither, or does not belong to the data's vertices.
    """
    if input_nodes is None:
        return None
    first = next(iter(input_nodes), 0) if isinstance(input_nodes, tuple) else input_nodes
    if isinstance(first, str):
        expected = "vertex ids, or a mask over the vertices: the data have no types"
        raise DTypeError(argument="input_nodes", given=repr(input_nodes), expected=expected)
    held = input_nodes.detach().cpu() if isinstance(input_nodes, torch.Tensor) else input_nodes
    ids = as_seeds(data, held, "input_nodes")
    is_mask = np.asarray(held).dtype == bool
    if len(ids) == 0:
        given = "a mask that is true nowhere" if is_mask else "no vertices"
        raise InputError(argument="input_nodes", given=given, expected="at least one vertex to sample from")
    return torch.as_tensor(held) if is_mask else torch.tensor(ids)


def checked_type(subgraph_type: Any) -> str:
    """Return the type of subgraph: a batch has the sampled edges, or the reverse of each of them too.

    Raises
    ------
    InputError
        If it is a type of subgraph that is not taken here.
    """
    word = str(getattr(subgraph_type, "value", subgraph_type))
    if word not in _SUBGRAPH_TYPES:
        expected = " or ".join(map(repr, _SUBGRAPH_TYPES))
        hint = "The edges between all vertices of a batch: torch_geometric.utils.subgraph(batch.n_id, ...)."
        raise InputError(argument="subgraph_type", given=repr(word), expected=expected, hint=hint)
    return word


def taken(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of torch's DataLoader that are used; one warning names those that are set and needless.

    Raises
    ------
    InputError
        If an argument has a value that is not taken here.
    """
    batches = options.get("batch_sampler")
    has_parts = all(hasattr(batches, name) for name in ("sampler", "batch_size", "drop_last"))
    if batches is not None and not has_parts:
        expected = "torch's BatchSampler: batches of one size, or loader(positions) for each batch of your own"
        raise InputError(argument="batch_sampler", given=short(batches), expected=expected)
    needless: dict[str, list[str]] = {}
    for name, (default, instead) in {**_REFUSED, **_NEEDLESS}.items():
        value = options.get(name, default)
        if value is default or (default is not None and value == default):
            continue
        if name in _REFUSED:
            expected = f"{default!r}, which is the default"
            raise InputError(argument=name, given=short(value), expected=expected, hint=instead)
        needless.setdefault(instead, []).append(name)
    if needless:
        warn_needless("; ".join(f"{', '.join(names)}: {reason}" for reason, names in needless.items()))
    return {name: value for name, value in options.items() if name not in _REFUSED and name not in _NEEDLESS}


def warn_needless(what: str = f"workers: {_THREADS}") -> None:
    """Warn the caller of the loader of what it does not need, with the reason."""
    warnings.warn(f"NeighborLoader of spsample needs no {what}.", UserWarning, stacklevel=4)


class SamplerOrder(Order):
    """Positions that a sampler gives, drawn once for each epoch, at its start.

    Where the sampler has a rank's share of the seeds, all ranks may load the state of one. It has no order then, but
    has the number drawn before: each rank draws as many from its own sampler, so that these stay in step.

    Parameters
    ----------
    sampler
        As of torch's ``DataLoader``: iterable over positions, with a length.
    num_seeds
        Positions are in [0, num_seeds).
    batches
        The batch sampler whose ``sampler`` it is: its batches, one after another, are the order. None: there is none.

    Attributes
    ----------
    num_positions : int
        Of every epoch.
    rank : int
        That of a ``DistributedSampler`` or its like among those that share the seeds; else 0.

    Examples
    --------
    >>> order = SamplerOrder([2, 0, 2], num_seeds=3)
    >>> order.num_positions, order.positions(0, 0)
    (3, array([2, 0, 2]))
    """

    def __init__(self, sampler: Any, num_seeds: int, batches: Any = None) -> None:
        self._argument = "sampler" if batches is None else "batch_sampler"
        for name, lacks in (("__iter__", "__iter__"), ("__len__", "a length")):
            if not hasattr(sampler, name):  # to ask for it may draw
                given = f"an object of type {type(sampler).__name__} without {lacks}"
                expected = "a sampler as of torch's DataLoader: iterable over positions, with a length"
                raise DTypeError(argument=self._argument, given=given, expected=expected)
        dropped = 0 if batches is None or not batches.drop_last else len(sampler) % batches.batch_size
        super().__init__(len(sampler) - dropped, shuffle=True)
        rank = getattr(sampler, "rank", None)
        self.rank = rank if isinstance(rank, int) else 0
        self._has_share = isinstance(rank, int) and getattr(sampler, "num_replicas", 2) > 1
        self._sampler, self._num_seeds, self._batches = sampler, num_seeds, batches
        self._epoch: int | None = None  # that of the order drawn last
        self._drawn = np.empty(0, np.int64)
        self._draws = 0

    def positions(self, random_seed: int, epoch: int) -> NDArray[np.int64]:
        """Positions that the sampler gave when it was first asked in this epoch; its own random numbers decide.

        Raises
        ------
        DTypeError, InputError
            If it gives anything but as many positions as its length says.
        """
        if self._epoch != epoch:
            self._drawn, self._epoch = self._draw(), epoch
        return self._drawn

    def identity(self) -> dict[str, Any]:
        """Number of positions of an epoch."""
        return {"shuffle": "sampler", "num_positions": self.num_positions}

    def state(self, epoch: int) -> dict[str, Any]:
        """The epoch's positions, a tensor (torch loads no arrays of others); of a share how many were before."""
        is_drawn = self._epoch == epoch
        if self._has_share:
            return {"draws": self._draws - is_drawn}
        return {"order": torch.tensor(self._drawn) if is_drawn else None}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with what was drawn; where nothing was, the sampler is asked."""
        if self._has_share:
            before = require_int("draws", state.get("draws", 0), minimum=0)
            if (self._epoch, self._draws) != (state["epoch"], before + 1):
                self._epoch = None
            for _ in range(self._draws, before):
                self._draw()
            return
        self._epoch = None
        if (order := state.get("order")) is not None:
            require_type("state", order, torch.Tensor, "an order that state_dict() returned")
            self._drawn, self._epoch = self._checked(order.tolist()), state["epoch"]

    def end(self, epoch: int) -> None:
        """Draw what the sampler has given for an epoch that is over, so that its next draw is of the next one."""
        self.positions(0, epoch)

    def _draw(self) -> NDArray[np.int64]:
        self._draws += 1
        if self._batches is None:
            return self._checked(islice(self._sampler, self.num_positions + 1))
        batches, size = [list(batch) for batch in self._batches], self._batches.batch_size
        if wrong := [len(batch) for batch in batches[:-1] if len(batch) != size]:
            given, expected = f"a batch of {wrong[0]} positions", f"{size} in each but the last"
            hint = "Call loader(positions) for each batch of your own."
            raise InputError(argument=self._argument, given=given, expected=expected, hint=hint)
        return self._checked(chain.from_iterable(batches))

    def _checked(self, drawn: Iterable[Any]) -> NDArray[np.int64]:
        positions = np.fromiter(map(self._index, drawn), np.int64)
        if len(positions) != self.num_positions:
            more = f"{len(positions)}" if len(positions) < self.num_positions else "more"
            expected = f"{self.num_positions}, the length that the sampler had when the loader was made"
            raise InputError(argument=self._argument, given=f"{more} positions in an epoch", expected=expected)
        check_range(self._argument, positions, self._num_seeds, "positions among input_nodes")
        return positions

    def _index(self, position: Any) -> int:
        try:
            return index(position)
        except TypeError:
            expected = "positions among input_nodes, one at a time"
            raise DTypeError(argument=self._argument, given=short(position), expected=expected) from None
