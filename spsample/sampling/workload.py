"""`Workload`: the batches that are to be sampled; `run` samples them as one bulk."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spsample.backends import get_backend
from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import Int64Array
from spsample.comm import collective
from spsample.comm.objects import require_same
from spsample.common.checks import require_choice, require_int
from spsample.common.units import count
from spsample.errors import CapacityError, InputError
from spsample.sampling.arguments import require_sampler
from spsample.sampling.bulk import BulkSample
from spsample.sampling.sampler import Sampler, require_bool
from spsample.sampling.seeds import SeedBatches, make_batches, make_uneven_batches
from spsample.sparse import derive_key, keys
from spsample.sparse.keys import SAMPLING
from spsample.sparse.operand import EntryLimit
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.store.validation import validate_ids


@dataclass(eq=False, slots=True)
class Workload:
    """Batches of a graph that are to be sampled: those of a call of `bulk_sample`, or of every epoch of a loader.

    `checked` makes one of arguments that a user gave.

    Attributes
    ----------
    graph : BaseGraph
    seeds : int64 array
        Consecutive runs of `batch_size` make the batches, in this order or shuffled.
    sampler, batch_size, edge_ids, backend, first_batch, duplicates
        As of `bulk_sample`.
    batch_ptr : int64 array (num_batches + 1,) or None
        Where batches of several sizes begin among the seeds, and the last ends; None: runs of `batch_size`.
    shuffle : bool
        Whether every epoch draws a new order.
    key : (int, int)
        Of the draws; `checked` makes it of the random seed and the epoch.
    """

    graph: BaseGraph
    seeds: Int64Array
    sampler: Sampler
    batch_size: int
    edge_ids: bool = False
    backend: str | None = None
    batch_ptr: Int64Array | None = None
    shuffle: bool = False
    first_batch: int = 0
    duplicates: str = "merge"
    key: tuple[int, int] = (0, 0)

    @classmethod
    def checked(  # noqa: PLR0913  (the public face of bulk_sample)
        cls,
        graph: BaseGraph,
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
        batch_ptr: Int64Array | None = None,
        as_ids: Callable[[Any, int], Int64Array] = validate_ids,
    ) -> Workload:
        """Arguments and errors as of `bulk_sample`; collective on a graph of several ranks.

        `as_ids` makes ids of the seeds and the number of vertices. A part of a loader's seeds may be 0 and 1 alone,
        which `validate_seeds` takes for a mask.

        `batch_ptr` (num_batches + 1,), if given, says where each batch begins among the seeds, and the last ends; a
        batch may then have any number of seeds, also none.
        """
        require_graph(graph)
        with collective(graph.comm, call="the checks of bulk_sample"):
            require_sampler(sampler)
            ids = as_ids(seeds, graph.num_nodes)
            batch_size = require_int("batch_size", batch_size, minimum=1)
            key = derive_key(random_seed, epoch, SAMPLING)
            num_batches = -(-len(ids) // batch_size) if batch_ptr is None else len(batch_ptr) - 1
            first_batch = require_int("first_batch", first_batch, minimum=0, maximum=2**32 - max(num_batches, 1))
            require_choice("duplicates", duplicates, ("merge", "error"))
            edge_ids = require_bool("edge_ids", edge_ids)
            backend = None if backend is None else get_backend(backend).name
            graph = graph.to_device(backend)
            if graph.comm.size > 1:
                repr(sampler)  # which ranks compare; where one's own fails there, all learn of it here
            return cls(
                graph,
                ids,
                sampler,
                batch_size,
                edge_ids,
                backend,
                batch_ptr,
                first_batch=first_batch,
                duplicates=duplicates,
                key=key,
            )

    @property
    def num_batches(self) -> int:
        """Batches of all seeds, on all ranks; the last one perhaps smaller."""
        return -(-len(self.seeds) // self.batch_size) if self.batch_ptr is None else len(self.batch_ptr) - 1

    @property
    def largest_batch(self) -> int:
        """Seeds of a full batch: of fewer seeds all of them, and at least 1."""
        return min(self.batch_size, max(len(self.seeds), 1))

    def part(self, begin: int, end: int) -> Workload:
        """The batches from `begin` to `end`, in the order of the seeds."""
        first = self.first_batch + begin
        if self.batch_ptr is None:
            seeds = self.seeds[begin * self.batch_size : end * self.batch_size]
            return replace(self, seeds=seeds, first_batch=first)
        ptr = self.batch_ptr[begin : end + 1]
        return replace(self, seeds=self.seeds[ptr[0] : ptr[-1]], batch_ptr=ptr - ptr[0], first_batch=first)

    def pilots(self, most: int) -> Workload:
        """Up to `most` full batches that stand for all; collective on a graph of several ranks.

        Where epochs are shuffled, they are the first ones of a fixed order, else evenly spaced ones; of batches of
        several sizes the first. They decide nothing but sizes, and are the same ones every time.

        Examples
        --------
        >>> import spsample
        >>> graph = spsample.Graph([0] * 10, [])
        >>> Workload(graph, np.arange(9), spsample.GraphSAGE([2]), batch_size=2).pilots(2).seeds.tolist()
        [0, 1, 6, 7]
        """
        size, some = self.largest_batch, self.part(0, most)
        if self.batch_ptr is None:
            full = len(self.seeds) // size
            if self.shuffle:
                positions = keys.shuffle(len(self.seeds), 0, 0)[: min(most, full) * size]
            else:
                starts = np.linspace(0, max(full - 1, 0), min(most, full)).astype(np.int64) * size
                positions = (starts[:, None] + np.arange(size)).ravel()
            some = replace(self, seeds=self.seeds[positions])
        options: dict[str, Any] = {"edge_ids": self.edge_ids, "backend": self.backend, "batch_ptr": some.batch_ptr}
        return Workload.checked(self.graph, some.seeds, self.sampler, batch_size=size, **options)

    @default_float_environment()
    def run(self, limit: EntryLimit | None = None) -> BulkSample:
        """Sample the bulk; collective on a graph of several ranks, which compare their arguments first.

        Parameters
        ----------
        limit : EntryLimit, optional
            What stops it where it would have too many entries; of a graph on one rank only.

        Raises
        ------
        InputError
            If a limit is given on several ranks: one that stops would leave the others waiting for it.
        CapacityError
            If memory runs out, or a value of a layer-wise sample is too large for its type.
        """
        graph = self.graph.for_bulks(self.sampler, (self.batch_size, self.edge_ids, self.backend), self.num_batches)
        if graph is not self.graph:
            return replace(self, graph=graph).run(limit)
        if self.graph.comm.size > 1:
            given: dict[str, Any] = {name: getattr(self, name) for name in _COMPARED}
            require_same(self.graph.comm, **given, random_seed=self.key)
        A = self.graph.operand(self.backend)
        if limit is not None:
            if self.graph.comm.size > 1:
                raise InputError(
                    argument="limit",
                    given=f"a limit of entries for {self.graph.comm.size} ranks",
                    expected="none: a rank that stops would leave the others waiting in a collective call",
                    hint="Plan a bulk on ranks by a RankPlan, which limits no entries.",
                )
            A = copy.copy(A)
            A.limit = limit
        with self.graph.sampling(), A.backend.session():
            try:
                batches = self._sampled(self._batches(A.index_dtype)).to_device(A.backend)
                layers = self.sampler.run(A, batches.selector, self.key, self.edge_ids)
                return self._local(BulkSample(self.sampler, batches, layers))
            except MemoryError as error:
                raise self._no_memory() from error

    def _batches(self, dtype: np.dtype[np.signedinteger]) -> SeedBatches:
        """All batches of the call, their ids of that type."""
        if self.batch_ptr is not None:
            return make_uneven_batches(self.seeds, self.batch_ptr, self.first_batch, dtype, self.duplicates)
        size = min(self.batch_size, len(self.seeds) + 1)
        return make_batches(self.seeds, size, self.first_batch, dtype, self.duplicates)

    def _sampled(self, batches: SeedBatches) -> SeedBatches:
        """Those that this rank samples."""
        if self.graph.comm.size == 1:
            return batches
        return batches.take(self.graph.sampled_batches(self.num_batches))

    def _local(self, bulk: BulkSample) -> BulkSample:
        """The batches that the caller gets, of those that this rank has sampled."""
        if self.graph.comm.size == 1:
            return bulk
        local = self.graph.local_batches(self.num_batches)
        if len(bulk) == len(local):
            return bulk
        return bulk.take(np.searchsorted(self.graph.sampled_batches(self.num_batches), local))

    def _no_memory(self) -> CapacityError:
        batches = count(self.num_batches, "batch", "batches")
        return CapacityError(
            argument="seeds",
            given=f"{batches} of up to {self.batch_size} seeds for {self.sampler!r}",
            expected="a bulk that fits in memory",
            hint="Sample fewer batches in a call (bulk_size of BulkLoader), or with smaller fanouts or layer sizes.",
        )


_COMPARED = ("seeds", "sampler", "batch_size", "first_batch", "edge_ids", "duplicates", "backend", "batch_ptr")


def sample_batches(
    graph: BaseGraph,
    seeds: Any,
    sampler: Sampler,
    *,
    limit: EntryLimit | None = None,
    **options: Any,
) -> BulkSample:
    """All minibatches of `seeds` at once, without a look at the memory: `bulk_sample` asks before whether they fit.

    Arguments and errors as of `bulk_sample`; `limit` is that of `Workload.run`, `batch_ptr` of its `checked`.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> len(sample_batches(graph, [0, 1, 3], spsample.GraphSAGE([2, 2]), batch_size=2))
    2
    """
    return Workload.checked(graph, seeds, sampler, **options).run(limit)
