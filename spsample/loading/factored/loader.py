"""`FactoredLoader`: some ranks sample, the others train the minibatches of these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import all_gather_object, comm_of, require_same
from spsample.common.checks import require_bulk_size, require_int
from spsample.common.units import count, format_bytes, require_bytes
from spsample.errors import CapacityError, InputError, SpSampleError
from spsample.features import FeatureSource
from spsample.loading.base import Loader, SamplingGroup
from spsample.loading.batch import Batch, Collate, gather_features
from spsample.loading.copies import COPIES, copies_to
from spsample.loading.factored.epoch import FactoredEpoch
from spsample.loading.factored.roles import require_roles
from spsample.loading.order import Delivered, as_seeds
from spsample.loading.ranks import duplicated
from spsample.planning.budget import Buffers, largest_fitting
from spsample.planning.bulk_plan import BulkPlan, default_budget
from spsample.planning.loader_plan import plan_epochs
from spsample.sampling.arguments import check_arguments
from spsample.sampling.sampler import require_bool
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.sampling import MiniBatch, Sampler

_TRIAL = 2**64 - 1
"""The epoch of trials."""

PACKING_BYTES, PACKING_BYTES_OF_LAYER = 2048, 1024
"""Bytes of a packed minibatch beside its arrays, at most: their types, and up to 63 bytes before each."""


class FactoredLoader(Loader):
    """Iterate over minibatches that other ranks sample: the last ranks sample, the others train.

    Samplers need the graph, trainers features and labels, and so do samplers that may train (``switches``). A sampler
    keeps its minibatches in a queue, until a trainer is free. A *step* is a fixed list of B batches, for any number of
    trainers: step t has the batches t B to (t + 1) B - 1. Each is trained by a rank that is free, and all ranks go
    through the steps together. So a rank may have several batches of a step, or none; gradients that are added in the
    order of the batches do not depend on it (`spsample.training.FactoredGradients`).

    Batches are those of `BulkLoader` with the same arguments. Making a loader is collective, and so is every step. A
    rank that fails or leaves early ends the pass on all ranks.

    Parameters
    ----------
    graph : ReplicatedGraph
        A trainer that never becomes a sampler reads no edge of it: the graph of a store stays on the disk there.
    seeds, sampler, batch_size, features, labels, shuffle, drop_last, random_seed, edge_ids, backend, device
        As of `BulkLoader`, but that the thread which gathers features also copies batches to a device. Features that
        ranks gather together (`PartitionedFeatures`) do not work: each trainer is in a batch of its own. ``features``
        may also be a function of a bool, which is True where this rank samples, called again where that changes: so the
        cache of a standby trainer, which keeps the graph too, can be a smaller one.
    sampler_ranks
        Ranks that sample, at most p - 1; `samplers_for` chooses by measured times.
    step_batches
        B; None: p.
    bulk_size
        Minibatches that a sampler samples at once, at most; ``"auto"``: as many as ``queue_memory`` allows. A sampler
        gets at least four bulks in an epoch.
    queue_memory
        Bytes, or text such as ``"1GiB"``, of a sampler's queue, which has to have room for a bulk.
    memory_budget
        Bytes, or text, for the bulk that a sampler makes; None: half of what is available.
    switches
        Let a sampler that has sampled all its batches of an epoch train, too, where that ends the epoch sooner.
    timeline
        The timeline of the threads' work; None for none.

    Attributes
    ----------
    roles : Roles
        The ranks that sample; `set_sampler_ranks` changes them.
    comm : Communicator
    num_batches : int
        Batches of an epoch.
    trained : int
        Batches that this rank has trained.
    queue_peak : int
        Bytes in this rank's queue, at most so far.
    phases : Phases
        The counts of `seconds`.

    Raises
    ------
    InputError, DTypeError
        If an argument is out of range or does not fit the graph, or if there is one rank.
    CapacityError
        If a queue cannot hold one bulk.
    BackendError
        If only one thread of a rank may communicate.

    References
    ----------
    J. Yang et al., GNNLab: a factored system for sample-based GNN training over GPUs, EuroSys 2022.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.comm import run_threads
    >>> graph = sp.Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    >>> def body(comm):
    ...     shared = sp.ReplicatedGraph(graph, comm)
    ...     loader = FactoredLoader(shared, [0, 1, 2, 3], sp.GraphSAGE([2]), batch_size=1, sampler_ranks=1)
    ...     return [batch.batch_id for batch in loader]
    >>> sorted(sum(run_threads(3, body), []))
    [0, 1, 2, 3]
    """

    def __init__(  # noqa: PLR0913  (the public face)
        self,
        graph: BaseGraph,
        seeds: ArrayLike,
        sampler: Sampler,
        *,
        batch_size: int,
        sampler_ranks: int = 1,
        step_batches: int | None = None,
        bulk_size: int | str = 16,
        queue_memory: int | str = "1GiB",
        memory_budget: int | str | None = None,
        switches: bool = True,
        features: Any = None,
        labels: ArrayLike | None = None,
        edge_ids: bool = False,
        shuffle: bool = True,
        drop_last: bool = False,
        random_seed: int = 0,
        backend: str | None = None,
        device: Any = None,
        timeline: Timeline | None = None,
    ) -> None:
        require_graph(graph)
        with collective(graph.comm, call="the checks of FactoredLoader"):
            self.roles = require_roles(graph.comm.size, sampler_ranks)
            local = _local(graph)
            ids, batch_size = check_arguments(local, as_seeds(local, seeds), sampler, batch_size)
            sampling = SamplingGroup(require_bool("shuffle", shuffle), drop_last, random_seed, edge_ids, backend)
            super().__init__(graph, ids, sampler, batch_size, sampling)
            batches = graph.comm.size if step_batches is None else step_batches
            self.step_batches = require_int("step_batches", batches, minimum=1)
            self.queue_memory = require_bytes("queue_memory", queue_memory)
            self.switches = require_bool("switches", switches)
            self._deliver_by(copies_to(device), timeline)
            self._local_graph = local.to_device(self.backend)
            is_function = callable(features) and not isinstance(features, FeatureSource)
            self._features_of = features if is_function else None
            self.collate = Collate(None if self._features_of else features, labels, local)
            self._place_features()
            self._most_batches = require_bulk_size("bulk_size", bulk_size)
            self.memory_budget = None if memory_budget is None else require_bytes("memory_budget", memory_budget)
        cut = {"batch_size": batch_size, "bulk_size": bulk_size, "step_batches": batches, "drop_last": drop_last}
        drawn = {"edge_ids": edge_ids, "shuffle": shuffle, "random_seed": random_seed, "sampler": repr(sampler)}
        ranks = {"sampler_ranks": sampler_ranks, "switches": switches, "queue_memory": queue_memory}
        require_same(self.comm, seeds=self.seeds_sha256, **cut, **drawn, **ranks)
        self.plan: BulkPlan | None = None
        self.bulk_size = 1
        self._plan_bulks()
        self._require_same_data()
        self._message_comm = duplicated(self.comm, "Pipelines without threads: sync.")
        self._under_way: FactoredEpoch | None = None
        self.trained = self.queue_peak = 0

    @property
    def batches_per_step(self) -> int:
        """Batches of all ranks together that a step takes: B."""
        return self.step_batches

    def __len__(self) -> int:
        """Steps per epoch."""
        return -(-self.num_batches // self.step_batches)

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches that this rank trains in the current epoch, one of `steps` after the other."""
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[Iterator[Batch]]:
        """Yield the steps of the current epoch, each an iterator over the batches that this rank trains.

        All of them are taken, in order, before the next step. `state_dict` between two steps is exact; within a step it
        is that of the step's beginning.
        """
        self._require_open()
        yield from self._one_pass(self._delivered, advance=False)

    def fail(self, error: Exception) -> None:
        """Report the error of this rank's loop to all ranks: they raise it where they wait for batches."""
        if self._under_way is not None:
            self._under_way.fail(error)

    def set_sampler_ranks(self, sampler_ranks: int) -> None:
        """Let another number of ranks sample, from the next pass on; collective.

        Where a rank cannot have its new role, all raise the error, and the loader is closed.
        """
        with collective(self.comm, call="another number of samplers"):
            roles = require_roles(self.comm.size, sampler_ranks)
        require_same(self.comm, sampler_ranks=sampler_ranks)
        before, self.roles = self.roles, roles
        try:
            with collective(self.comm, call="features of another role"):
                if before.samples(self.comm.rank) != roles.samples(self.comm.rank):
                    self._place_features()
            self._plan_bulks()
            self._require_same_data()
        except SpSampleError:  # on all ranks
            self.close()
            raise

    def trial_bulk(self) -> list[MiniBatch]:
        """Sample the first bulk of the last possible epoch, to measure on; within the memory of samplers."""
        if self.plan is None:
            self.plan = self._planned()
        end = min(self.bulk_size, self.num_batches)
        return list(self._sampled(_TRIAL, self._positions(_TRIAL), 0, end))

    def trial_batch(self, minibatch: MiniBatch) -> Batch:
        """Make the batch of a minibatch of `trial_bulk`."""
        return self._copies.arrived(self._collated(self._positions(_TRIAL), minibatch))  # type: ignore[no-any-return]

    def close(self) -> None:
        """End a pass that is under way, and free the communicator of the messages; collective, and the last call."""
        self._leave_pass()
        if not self._is_closed:
            self._message_comm.close()
        self._is_closed = True

    # --------------------------------------------------------------------------------------------------- a pass

    def _delivered(self, epoch: int, first: int) -> Iterator[Delivered]:
        with collective(self.comm, call="the start of an epoch"):
            if first % self.step_batches and first < self.num_batches:
                given = f"batch {first} of an epoch, within a step of {count(self.step_batches, 'batch', 'batches')}"
                raise InputError(argument="state", given=given, expected="a state between two steps of as many batches")
        require_same(self.comm, epoch=epoch, next_batch=first)
        self._leave_pass()  # passes share the communicator of the messages
        self._under_way = under_way = FactoredEpoch(self, epoch, first)
        this_pass = self._pass
        try:
            for number, step in enumerate(under_way.steps(), under_way.first_step):
                begin = number * self.step_batches
                yield Delivered(begin, begins_bulk=False, batch=self._counted(step, begin, this_pass))
        finally:
            self.queue_peak = max(self.queue_peak, under_way.queue.peak)
            if self._under_way is under_way:
                self._under_way = None

    def _leave_pass(self) -> None:
        """End a pass that is under way, as in the loop of an exception that is still being handled."""
        if self._under_way is not None:
            self._under_way.leave()
            self._under_way = None

    def _counted(self, batches: Iterator[Batch], begin: int, this_pass: int) -> Iterator[Batch]:
        """Yield the batches of a step; once none is left, a state goes on with the next step."""
        for batch in batches:
            self.trained += 1
            yield batch
            del batch
        if self._pass == this_pass:
            self._next_batch = min(begin + self.step_batches, self.num_batches)

    def _sampled(self, epoch: int, positions: NDArray[np.int64], first: int, end: int) -> Iterator[MiniBatch]:
        """Sample a bulk, in a thread."""
        bulks = self._sampled_bulks(self._local_graph, positions, epoch, first, end)
        while True:
            with self.phases.timed("sampling", first):
                bulk = next(bulks, None)
                bulk = None if bulk is None else bulk.to_host()
            if bulk is None:
                return
            yield from bulk
            del bulk

    def _collated(self, positions: NDArray[np.int64], minibatch: MiniBatch) -> Any:
        """Gather features, add labels, and begin to copy the batch where it has to go to a device; in a thread."""
        places = self._cut.places(minibatch.batch_id, minibatch.batch_id + 1)
        with self.phases.timed("features", minibatch.batch_id):
            x = gather_features(self.features, minibatch.src_nodes, self._copies.rows)
            batch = self.collate(minibatch, positions[places], x)
        if self.device is None:
            return batch
        with self.phases.timed(COPIES, minibatch.batch_id):
            return self._copies.sent(batch)

    # --------------------------------------------------------------------------------------------- roles and plans

    def _place_features(self) -> None:
        """Make the features for the role of this rank."""
        if self._features_of is not None:
            self.collate = Collate(None, self.labels, self._local_graph)  # one cache at a time
            features = self._features_of(self.roles.samples(self.comm.rank))
            self.collate = Collate(features, self.labels, self._local_graph)
        if comm_of(self.features).size > 1:
            given = f"{type(self.features).__name__}, which all ranks gather at once"
            expected = "features that each rank reads by itself: an array, or those of a store"
            hint = "Each trainer is in a batch of its own."
            raise InputError(argument="features", given=given, expected=expected, hint=hint)

    def _plan_bulks(self) -> None:
        """Plan the bulks of samplers, which have the graph; collective."""
        with collective(self.comm, call="the plan of FactoredLoader"):
            mine = 2**62
            if self.roles.samples(self.comm.rank):
                self.plan = self.plan or self._planned()
                mine = self._size_within(self.plan)
        self.bulk_size = int(self.comm.all_reduce(np.array([mine]), "min", phase="set-up")[0])

    def _planned(self) -> BulkPlan:
        workload = self._workload_of(self._local_graph)
        return plan_epochs(workload, Buffers(prefetch=0), self.memory_budget or default_budget(self._local_graph))

    def _require_same_data(self) -> None:
        """Refuse trainers that have other features or labels than others; collective."""
        x, y = self.features, self.labels
        mine = "no features" if x is None else f"features of {x.dim} columns", "no labels" if y is None else "labels"
        trains = [self.switches or not self.roles.samples(rank) for rank in range(self.comm.size)]
        everyone = all_gather_object(self.comm, ", ".join(mine))
        first = everyone[0]  # rank 0 trains
        other = [rank for rank, data in enumerate(everyone) if trains[rank] and data != first]
        if other:
            given = f"{everyone[other[0]]} on {self.comm.named(other)}, {first} on rank 0"
            expected = "the same on all ranks that may train"
            hint = "With switches=False samplers need neither features nor labels."
            raise InputError(argument="features", given=given, expected=expected, hint=hint)

    def _size_within(self, plan: BulkPlan) -> int:
        """Return the batches of a bulk, in the memory for sampling and in the queue; the same on all samplers."""
        batches = max(self.num_batches, 1)
        packing = PACKING_BYTES + PACKING_BYTES_OF_LAYER * len(self.sampler.sizes)

        def queued(size: int) -> int:
            return plan.result_bytes(size) + size * packing

        room = largest_fitting(batches, lambda size: queued(size) <= self.queue_memory)
        size = min(plan.bulk_size, max(room, 1)) if self._most_batches is None else self._most_batches
        plan.require(min(size, batches))
        if room < min(size, batches):
            bulk = count(size, "minibatch", "minibatches")
            given = format_bytes(self.queue_memory)
            expected = f"room for one bulk: {format_bytes(queued(size))} for {bulk}"
            hint = f"At most {room} fit; or use smaller batches, fanouts or layer sizes."
            raise CapacityError(argument="queue_memory", given=given, expected=expected, hint=hint)
        return size


def _local(graph: BaseGraph) -> Any:
    """Return the whole graph, which every rank has."""
    local = getattr(graph, "graph", None)
    if graph.host is None or local is None:
        expected = "a ReplicatedGraph: a sampler has all of it"
        hint = "Of a partitioned graph choose another pipeline."
        raise InputError(argument="graph", given=repr(graph), expected=expected, hint=hint)
    return local
