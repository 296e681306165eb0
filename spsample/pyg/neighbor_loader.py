"""`NeighborLoader`: PyG's loader, sampled in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric import loader as pyg_loader
from torch_geometric.data import Data

from spsample.loading import BulkLoader
from spsample.loading.order import require_state
from spsample.pyg import arguments
from spsample.pyg.arguments import SamplerOrder
from spsample.pyg.neighbor_sampler import Attributes, NeighborSampler, drawn_seed, with_hops
from spsample.sampling import MiniBatch
from spsample.sampling.arguments import require_word
from spsample.sampling.sampler import require_bool
from spsample.store import Graph

_Step = Callable[[Any], Any]


class NeighborLoader(pyg_loader.NeighborLoader):  # type: ignore[misc]  # torch_geometric has no types
    """PyG's ``NeighborLoader``, sampled in bulk by `spsample.BulkLoader`; needs neither pyg-lib nor torch-sparse.

    It is one of PyG's and takes its arguments. Batches have the attributes that PyG's have: all those of ``data``, rows
    of the sampled vertices and edges where an attribute has one for each, and ``n_id``, ``e_id``, ``input_id``,
    ``batch_size``, ``num_sampled_nodes``, ``num_sampled_edges``. Lists with an entry per vertex or edge are cut too.

    Every pass has new samples and, with ``shuffle=True``, a new order, also after one that was left early.
    `random_seed` decides both; without one it is drawn from ``generator``, or from torch's own, when the loader is
    made: after ``torch.manual_seed`` a program samples the same again.

    Parameters
    ----------
    data
        ``torch_geometric.data.Data`` with ``edge_index`` or ``adj_t``.
    num_neighbors
        As many neighbours per vertex at each hop, nearest to the seeds first; -1 takes all.
    input_nodes
        Vertex ids, or a mask over the vertices; None: all of them.
    replace
        With replacement.
    subgraph_type
        ``"directional"`` or ``"bidirectional"``.
    weight_attr
        Name of the edge weights to draw in proportion to; None draws uniformly.
    transform
        Called on each batch, in the loop's thread.
    transform_sampler_output
        Called on each ``SamplerOutput`` before attributes are joined, in the loop's thread.
    is_sorted
        Without effect: the graph is sorted once, and quickly where it was sorted.
    filter_per_worker
        None: attributes are joined ahead, in a thread, and transforms run in the loop's. True: transforms too run in
        that thread, and then should draw no random numbers from torch's own generator. False: all in the loop's.
    input_time, disjoint, temporal_strategy, time_attr, neighbor_sampler, directed
        Refused unless they have their defaults.
    input_id
        What a batch has as ``input_id`` for each of ``input_nodes``, a tensor; None: their positions.
    graph
        What ``Graph.from_pyg(data, weight_attr)`` made; None: it is made here, once for all loaders of the same edges
        that are there together. Edges that were replaced, or changed in place by torch, make another one.
    trim
        True: the layers of `spsample.nn`, and those of a model that `spsample.pyg.trim` was called of, compute the rows
        that later layers read. False: all rows.
    random_seed
        Of `BulkLoader`; None: drawn from torch.
    bulk_size, memory_budget, prefetch, backend
        Of `BulkLoader`. The budget is that of the bulks; attributes of up to four batches come on top.
    options
        Those of torch's ``DataLoader``: ``batch_size``, ``shuffle``, ``drop_last``, ``generator``. ``num_workers``,
        ``persistent_workers``, ``prefetch_factor``, ``pin_memory`` and their like have no effect but a warning.
        ``sampler`` (``DistributedSampler``, ``WeightedRandomSampler``, one's own) gives the positions among
        ``input_nodes`` that an epoch visits; it is asked once, at the epoch's start. So is ``batch_sampler``: torch's
        ``BatchSampler`` or its like, with batches of one size, but for the last.

    Attributes
    ----------
    bulk_loader : BulkLoader
        Loader of the minibatches; its ``seconds`` are the times of its stages.

    Raises
    ------
    DTypeError
        For anything but `Data`, as ``HeteroData``, and arguments of other types.
    InputError, CapacityError
        If an argument has a value that is not taken here, or as of `Graph.from_pyg` and `BulkLoader`.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> edge_index = torch.tensor([[1, 2, 3, 0], [0, 0, 1, 3]])
    >>> data = Data(edge_index=edge_index, y=torch.tensor([0, 1, 0, 1]), edge_attr=torch.arange(4), num_nodes=4)
    >>> loader = NeighborLoader(data, [-1, -1], input_nodes=[0], random_seed=0)
    >>> [(batch.n_id.tolist(), batch.y.tolist(), batch.edge_attr.tolist()) for batch in loader]
    [([0, 1, 2, 3], [0, 1, 0, 1], [0, 1, 2])]
    """

    def __init__(  # noqa: PLR0913  (PyG's)
        self,
        data: Data,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: _Step | None = None,
        transform_sampler_output: _Step | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        input_id: Any = None,
        graph: Graph | None = None,
        trim: bool = True,
        random_seed: int | None = None,
        bulk_size: int | str = "auto",
        memory_budget: int | str | None = None,
        prefetch: int = 1,
        backend: str | None = None,
        **options: Any,
    ) -> None:
        data = arguments.checked_data(data)
        fixed = {"input_time": input_time, "disjoint": disjoint, "temporal_strategy": temporal_strategy}
        fixed |= {"time_attr": time_attr, "neighbor_sampler": neighbor_sampler, "directed": directed}
        options = arguments.taken(fixed | options)
        inputs = arguments.checked_inputs(data, input_nodes)
        seed = drawn_seed(options.get("generator")) if random_seed is None else random_seed
        how = (num_neighbors, replace, subgraph_type, weight_attr)
        node_sampler = NeighborSampler(data, *how, graph=graph, random_seed=seed, backend=backend)
        super().__init__(
            data,
            list(node_sampler.num_neighbors),
            inputs,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            neighbor_sampler=node_sampler,
            input_id=input_id,
            **options,
        )
        # Lightning makes the loader anew, with a sampler, of attributes that are named as arguments
        self.num_neighbors, self.replace, self.subgraph_type = num_neighbors, replace, subgraph_type
        self.weight_attr, self.filter_per_worker, self.graph = weight_attr, filter_per_worker, node_sampler.graph
        self.trim, self.random_seed, self.backend = require_bool("trim", trim), random_seed, backend
        self.bulk_size, self.memory_budget, self.prefetch = bulk_size, memory_budget, prefetch
        self._attributes = Attributes(self.graph)
        batches = options.get("batch_sampler")
        sampler = options.get("sampler") if batches is None else batches.sampler
        order = bool(options.get("shuffle")) if sampler is None else SamplerOrder(sampler, len(self.dataset), batches)
        # each rank of a DistributedSampler draws its own, unless a random seed was given
        self._rank = order.rank if random_seed is None and isinstance(order, SamplerOrder) else 0
        self.bulk_loader = BulkLoader(
            self.graph,
            self.input_data.node.numpy(),
            node_sampler.sampler,
            batch_size=options.get("batch_size", 1) if batches is None else batches.batch_size,
            bulk_size=bulk_size,
            memory_budget=memory_budget,
            prefetch=prefetch,
            edge_ids=True,
            shuffle=order,
            drop_last=self.drop_last,
            random_seed=(node_sampler.random_seed + self._rank) % 2**64,
            backend=backend,
        )

    def __iter__(self) -> Iterator[Any]:
        """One pass, of the epoch after the last one's, whether that was complete or left."""
        ahead, here = self._arranged()

        def collate(minibatch: MiniBatch, positions: NDArray[np.int64], x: Any) -> Any:
            inputs = self.input_data[torch.from_numpy(positions)]
            return _after(ahead, self.node_sampler.output_of(minibatch, inputs))

        with closing(self.bulk_loader.batches(collate, advance=True)) as made:
            yield from map(partial(_after, here), made)

    def filter_fn(self, out: Any) -> Any:
        """A sampler's output, with the attributes of its vertices and edges, and transformed."""
        ahead, here = self._arranged()
        return _after([*ahead, *here], out)

    @contextmanager
    def enable_cpu_affinity(self, loader_cores: Any = None) -> Iterator[None]:
        """PyG's, for workers; nothing but a warning here."""
        arguments.warn_needless()
        yield

    @contextmanager
    def enable_multithreading(self, worker_threads: int | None = None) -> Iterator[None]:
        """PyG's, for workers; nothing but a warning here: `spsample.set_num_threads` sets the number of threads."""
        arguments.warn_needless()
        yield

    def set_epoch(self, epoch: int) -> None:
        """`BulkLoader.set_epoch`."""
        self.bulk_loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """`BulkLoader.state_dict`, and what `sampler` has drawn for this epoch."""
        return {**self.bulk_loader.state_dict(), "random_seed": self.node_sampler.random_seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """`BulkLoader.load_state_dict`; a loader that was made without `random_seed` goes on with that of the state.

        A state taken with the last batch of an epoch, as Lightning's checkpoints are, goes on with the next epoch.
        """
        drawn = self.bulk_loader.random_seed
        takes_over = self.random_seed is None and "random_seed" in require_state(state)
        self.bulk_loader.load_state_dict({**state, "random_seed": drawn} if takes_over else state)
        seed = require_word("random_seed", state["random_seed"])
        self.node_sampler.random_seed, self.bulk_loader.random_seed = seed, (seed + self._rank) % 2**64
        if state["next_batch"] == len(self) > 0:
            self.bulk_loader.end_epoch()

    def _arranged(self) -> tuple[list[_Step], list[_Step]]:
        """Steps that a sampler's output goes through: ahead, in a thread, and then in the loop's."""
        are_as_sampled = self.transform_sampler_output is None and self.node_sampler.subgraph_type == "directional"
        marked = with_hops if self.trim and are_as_sampled else None
        steps = (self.transform_sampler_output, partial(self._attributes.joined, self.data), marked, self.transform)
        ahead = {True: 4, False: 0, None: 0 if self.transform_sampler_output else 3}[self.filter_per_worker]
        first, then = ([step for step in some if step is not None] for some in (steps[:ahead], steps[ahead:]))
        return first, then


def _after(steps: list[_Step], value: Any) -> Any:
    for step in steps:
        value = step(value)
    return value
