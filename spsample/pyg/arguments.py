"""PyG's and torch's arguments: taken, not needed, or refused with what to do instead; samplers as orders of epochs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import index
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.sampler import NumNeighbors

from spsample.common.checks import check_range, require_int, require_type, short
from spsample.errors import DTypeError, InputError
from spsample.loading.order import Order, as_seeds
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
    argument
        What errors call it.

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

    def __init__(self, sampler: Any, num_seeds: int, argument: str = "sampler") -> None:
        expected = "a sampler as of torch's DataLoader: iterable over positions, with a length"
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):  # to ask for it may draw
            lacks = "a length" if hasattr(sampler, "__iter__") else "__iter__"
            raise DTypeError(
                argument=argument,
                given=f"an object of type {type(sampler).__name__} without {lacks}",
                expected=expected,
            )
        super().__init__(len(sampler), shuffle=True)
        rank = getattr(sampler, "rank", None)
        self.rank = rank if isinstance(rank, int) else 0
        self._has_share = isinstance(rank, int) and getattr(sampler, "num_replicas", 2) > 1
        self._sampler, self._num_seeds, self._argument = sampler, num_seeds, argument
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
        return self._checked(islice(self._sampler, self.num_positions + 1))

    def _checked(self, drawn: Iterable[Any]) -> NDArray[np.int64]:
        positions = np.fromiter(map(self._position, drawn), np.int64)
        if len(positions) != self.num_positions:
            more = f"{len(positions)}" if len(positions) < self.num_positions else "more"
            expected = f"{self.num_positions}, the length that the sampler had when the loader was made"
            raise InputError(argument=self._argument, given=f"{more} positions in an epoch", expected=expected)
        check_range(self._argument, positions, self._num_seeds, "positions among input_nodes")
        return positions

    def _position(self, position: Any) -> int:
        try:
            return index(position)
        except TypeError:
            expected = "positions among input_nodes, one at a time"
            raise DTypeError(argument=self._argument, given=short(position), expected=expected) from None


class _Flat:
    """The positions of a batch sampler whose batches are all of one size, but for the last."""

    def __init__(self, batch_sampler: Any) -> None:
        missing = [name for name in ("sampler", "batch_size", "drop_last") if not hasattr(batch_sampler, name)]
        if missing:
            raise InputError(
                argument="batch_sampler",
                given=f"a {type(batch_sampler).__name__} without {', '.join(missing)}",
                expected="torch's BatchSampler: batches of one size",
                hint="Call loader(positions) for each batch of your own.",
            )
        self.batches, self.batch_size = batch_sampler, batch_sampler.batch_size
        self.rank = getattr(batch_sampler.sampler, "rank", None)
        self.num_replicas = getattr(batch_sampler.sampler, "num_replicas", 2)

    def __len__(self) -> int:
        positions = len(self.batches.sampler)
        return positions - positions % self.batch_size if self.batches.drop_last else positions

    def __iter__(self) -> Iterator[Any]:
        batches = [list(batch) for batch in self.batches]
        wrong = [len(batch) for batch in batches[:-1] if len(batch) != self.batch_size]
        if wrong:
            expected = f"{self.batch_size} in each but the last"
            raise InputError(argument="batch_sampler", given=f"a batch of {wrong[0]} positions", expected=expected)
        return chain.from_iterable(batches)


def order_of(options: dict[str, Any], num_seeds: int) -> tuple[bool | SamplerOrder, int]:
    """The order of epochs, and their batch size, by the options of torch's ``DataLoader``.

    Raises
    ------
    InputError, DTypeError
        If a sampler is none.
    """
    sampler, batch_sampler = options.get("sampler"), options.get("batch_sampler")
    if batch_sampler is not None:
        flat = _Flat(batch_sampler)
        return SamplerOrder(flat, num_seeds, "batch_sampler"), flat.batch_size
    order = bool(options.get("shuffle")) if sampler is None else SamplerOrder(sampler, num_seeds)
    return order, options.get("batch_size", 1)
