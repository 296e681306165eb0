"""The loader: shuffled seeds, sampled in bulk ahead of their use, delivered one minibatch at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends import get_backend
from spsample.comm import collective
from spsample.comm.objects import comm_of, require_same
from spsample.common.checks import require_bulk_size, require_choice, require_int
from spsample.common.stage_threads import StageThreads, require_stage_threads
from spsample.common.threads import get_num_threads, kernel_threads
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.features import score
from spsample.features.scores import usual_score
from spsample.loading.base import Loader
from spsample.loading.batch import Batch, Collate
from spsample.loading.cooperative import deal_of
from spsample.loading.fetching import FETCHES, Fetch, Telling, Work, features_ahead, known_ahead
from spsample.loading.handfuls import MOST_BATCHES, Handful, handfuls, one_by_one
from spsample.loading.local_order import batches_of
from spsample.loading.lockstep import Lockstep
from spsample.loading.next_epoch import NextEpoch, Start
from spsample.loading.order import Delivered, Order, as_seeds
from spsample.loading.overlap.bounds import QueueBytes
from spsample.loading.overlap.stage_pass import StagePass, new_pass
from spsample.loading.overlap.tuning import StageReport, StageTuning
from spsample.loading.overlap.turns import Turns, followed
from spsample.loading.prefetch import Ahead, Pipeline, Prefetcher
from spsample.loading.ranks import Duplicates
from spsample.loading.to_device.stage import COPIES, COPIES_AHEAD, copies_to, samples_on_device
from spsample.loading.transforms.transform import MOST_WORKERS, Transform, require_processes, transform_of
from spsample.planning.bulk_plan import warm_up_divisor
from spsample.planning.loader_plan import FEATURE_BATCHES, MOST_AHEAD, USUAL_BULK_SIZE, plan_loader
from spsample.planning.workload import Workload
from spsample.sampling.arguments import check_arguments, require_word
from spsample.sampling.sampler import require_bool
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.timeline import Phases, Timeline
from spsample.timeline.stages import waiting_for

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource
    from spsample.loading.dgl import DglLoader
    from spsample.loading.pyg import PygLoader
    from spsample.sampling import BulkSample, MiniBatch, Sampler

__all__ = ["BulkLoader"]

FEATURES_AHEAD = 2
"""Batches, or handfuls of small ones, whose features may be gathered before they are asked for."""

_CollateFn = Callable[["MiniBatch", "NDArray[np.int64]", "NDArray[np.float32] | None"], Any]
_SizeOf = Callable[[Any], int | None]


class BulkLoader(Loader):
    """Iterate over minibatches that are sampled ``bulk_size`` at a time.

    Batch ``i`` of an epoch holds the seeds at positions ``i * batch_size`` and following of the epoch's
    order, and its sample depends on the random seed, the epoch, ``i`` and its seeds alone: ``bulk_size``,
    ``memory_budget``, ``prefetch``, the backend and where an epoch was resumed change nothing.

    Every complete pass advances the epoch by one, so that a plain loop sees a new order and new samples each
    time; `set_epoch` chooses one. A pass that is left early starts again from its beginning, unless a
    state is loaded.

    On a distributed graph (`spsample.distributed`) the ranks go through the epoch together, p batches in each *step*:
    step t gives rank r batch ``t * p + r``, and where the last step has fewer batches than there are ranks, the others
    get a batch without seeds, so that every rank takes the same number of steps. Making a loader is collective then,
    and so is every step. A rank that fails or leaves early ends the pass on all ranks: with prefetch at their next
    bulk; without it the others wait for it until their time-out, unless what they do together tells them.

    Parameters
    ----------
    graph
        The graph to sample from; local, replicated or partitioned.
    seeds
        Vertex ids to train on, copied, or a mask over the vertices; duplicates within a batch are merged.
    sampler
        ``GraphSAGE``, ``LADIES``, ``FastGCN``, ...
    batch_size
        Seeds per minibatch; the last one of an epoch may be smaller.
    bulk_size
        Minibatches per call of `bulk_sample`, at least 1, and fewer in the first calls of a pass with prefetch;
        ``"auto"``: as many as the memory budget allows, and with prefetch no more than an eighth of an epoch. On
        several ranks: of all ranks together, rounded up to a multiple of p.
    memory_budget
        Bytes, or text such as ``"2GiB"``, for all bulks and prefetched features at a time, the graph and the store of
        features left out; a bulk that would pass it is sampled in parts. None: with ``"auto"`` half of the memory that
        is available now, or all of it where half is too little for bulks of 64; with a number all of it, and nothing is
        planned where the largest bulk that could be drawn fits. On several ranks: of each rank; see
        `spsample.planning.rank_plan.RankPlan`, and with a number of batches and no budget nothing is planned.
    prefetch
        Bulks that are sampled ahead, in a thread beside the loop; another thread gathers features. 0 does everything
        when it is asked for, and so does a loader on one rank that finds this faster, but for `stage_threads`.
    features
        A `FeatureSource`, or a two-dimensional array or SciPy sparse matrix. `PartitionedFeatures` of the same ranks
        are gathered by all of them at once.
    labels
        One per vertex, or a row of them.
    edge_ids
        Also give each entry's position in the edges the user gave.
    shuffle
        Draw a new order each epoch; otherwise seeds come in the order given.
    drop_last
        Leave out the last batch of an epoch where it has fewer seeds than the others; nothing else changes.
    random_seed
        Decides orders and samples.
    backend
        Passed on to `bulk_sample`.
    batches
        ``"shuffled"``: a batch holds seeds from anywhere. ``"local"``: on several ranks, a rank's batches hold seeds of
        its own block row, so that it fetches less from others and a cache of its own pays; see
        `spsample.loading.local_order.LocalBatches` for order, sizes and batch ids. ``"cooperative"``: all ranks share
        each batch of ``batch_size`` seeds. Each has the rows of the vertices that it owns, and fetches their features
        alone; `spsample.distributed.cooperative` says who owns what, and how rows reach those who need them.
    parts
        For local or cooperative batches of a graph that every rank has: the part of each vertex, int, shape (n,). As
        many parts as divide p evenly: of g parts, part i is that of the ranks i p/g to (i + 1) p/g - 1.
    fetch
        ``"batch"``: each batch fetches the rows of features that it needs. ``"bulk"``: all rows that a bulk needs are
        fetched once, in one exchange and in the order of the vertices, and kept while the bulk is in use. Features that
        look ahead (`CachedFeatures`) then decide once a bulk. Where they do, a further bulk is sampled ahead; from the
        second of successive epochs on also the first bulk of the next one.
    stage_threads
        With prefetch: how many threads the kernels use for sampling and for features. None: both as many as the thread
        that starts the pass. Two numbers, ``(2, 1)`` or ``"2,1"``, each of which can be ``"auto"``; ``"auto"``: both
        are chosen from a trial, which is the first three bulks of the first pass, and changed where the loop starves.
        A third number says how many threads the loop uses; by default, those of torch. It is used for the choice
        alone. See `spsample.loading.overlap`.
    prefetch_budget
        With prefetch: bytes, or text such as ``"1GiB"``, for what is finished and not yet in use, half of it bulks and
        half of it batches with features; on ``device`` as many bytes of batches once more. One that is larger is made
        when it is waited for. None: ``memory_budget``, and where that is None too, a number of bulks and batches is all
        that bounds them.
    transform
        Called with each batch, in the order of the batches; what it returns is delivered, by `pyg` too. With prefetch
        it is called in the thread that gathers features, where there is one.
    transform_workers
        With prefetch: call it in that many processes instead, which pays where Python's lock would make it wait for the
        loop. It has to be one that can be pickled, and so have batches and what it returns. Arrays and tensors travel
        in shared memory. See `spsample.loading.transforms.workers.TransformWorkers`.
    device
        ``"cuda"`` (of several ranks each its own GPU), ``"cuda:1"`` or ``"cpu"``: batches that the host makes are
        copied there ahead of their use, with prefetch in a thread of its own, after `transform`. Their arrays are then
        torch's tensors; ``input_id`` and `MiniBatch.seed_inverse` stay NumPy's. A transform may return a batch, PyG's
        data, or tuples, lists and dictionaries of arrays and tensors. None: batches stay where they are made.
    timeline
        Where the threads note what they do and when; None for nowhere.

    Attributes
    ----------
    plan : BulkPlan, RankPlan or None
        What memory was planned with; None where any bulk fits.
    num_batches : int
        Batches of an epoch, of all ranks.
    comm : Communicator
        The ranks of the graph.
    stage_threads : StageThreads or None
        As given.
    phases : Phases
        What counts `seconds`.

    Raises
    ------
    InputError, DTypeError
        If an argument is out of range or does not fit the graph.
    CapacityError
        If ``bulk_size`` minibatches, or a single one, do not fit in ``memory_budget``, or in the memory there is.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    >>> loader = BulkLoader(graph, [0, 1, 2, 3], sp.GraphSAGE([2]), batch_size=3, shuffle=False)
    >>> [(batch.batch_id, batch.seeds.tolist()) for batch in loader]
    [(0, [0, 1, 2]), (1, [3])]
    """

    def __init__(  # noqa: PLR0913  (the public face)
        self,
        graph: BaseGraph,
        seeds: ArrayLike,
        sampler: Sampler,
        *,
        batch_size: int,
        bulk_size: int | str = USUAL_BULK_SIZE,
        memory_budget: int | str | None = None,
        prefetch: int = 1,
        features: Any = None,
        labels: ArrayLike | None = None,
        edge_ids: bool = False,
        shuffle: bool | Order = True,
        drop_last: bool = False,
        random_seed: int = 0,
        backend: str | None = None,
        batches: str = "shuffled",
        parts: ArrayLike | None = None,
        fetch: str = "batch",
        stage_threads: str | Sequence[int | str] | None = None,
        prefetch_budget: int | str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_workers: int = 0,
        device: Any = None,
        timeline: Timeline | None = None,
    ) -> None:
        require_graph(graph)
        with collective(graph.comm, call="the checks of BulkLoader"):
            ids, batch_size = check_arguments(graph, as_seeds(graph, seeds), sampler, batch_size)
            cut = batches_of(batches, parts, graph, ids, batch_size, require_bool("drop_last", drop_last))
            super().__init__(
                graph, ids, sampler, batch_size, shuffle=shuffle, drop_last=drop_last, random_seed=random_seed, cut=cut
            )
            self.comm = graph.comm
            self.prefetch = require_int("prefetch", prefetch, minimum=0, maximum=MOST_AHEAD)
            self.edge_ids = require_bool("edge_ids", edge_ids)
            loaded = get_backend(backend)  # now: a process forked while a thread does so could never load it
            self.backend = None if backend is None else loaded.name
            self.graph = graph.to_device(self.backend)
            self.collate = Collate(features, labels, self.graph, self._ranking)
            self.fetch = require_choice("fetch", fetch, tuple(FETCHES))
            most_batches = require_bulk_size("bulk_size", bulk_size)
            if memory_budget is not None:
                require_bytes("memory_budget", memory_budget)
            self.stage_threads = self._checked_stage_threads(stage_threads)
            self._queues = QueueBytes.of(prefetch_budget, memory_budget, self.prefetch)
            self._copies = copies_to(device, from_host=not samples_on_device(self.graph, self.backend))
            self.phases = Phases(("sampling", "features", *self._copies.phases, "waiting"), timeline)
            self._check_ranks()
            self._deal = deal_of(batches, parts, graph, sampler)
            self._transform = self._checked_transform(transform, transform_workers)
        self._require_same(
            bulk_size=bulk_size,
            memory_budget=memory_budget is None,
            fetch=fetch,
            ranks=self._deal.identity,
            stage_threads=self.stage_threads is None,
        )
        self._looks_ahead = self._any_rank(self.features is not None and self.features.looks_ahead)
        self._tuning = (
            None
            if self.stage_threads is None
            else StageTuning(self.stage_threads, self.comm, self._steps_of, self._is_alone)
        )
        with kernel_threads(self._most_threads):  # each has scratch
            self.plan, self.bulk_size = plan_loader(
                self._workload, num_batches=self.num_batches, bulk_size=most_batches, memory_budget=memory_budget
            )
        has_threads = self.comm.size > 1 and self.prefetch > 0
        self._duplicates = Duplicates(graph, self.features) if has_threads else None
        self._left: Pipeline | None = None  # of the last pass: its threads end once the other ranks' do
        self._next_epoch = NextEpoch(self.comm)
        self._turns = Turns() if self.prefetch > 0 and self._tuning is None else None

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent ``sampling`` and gathering ``features``, in any thread, and ``waiting`` for them in the loop.

        With `device` also ``copies``: what the host does for them, while a GPU copies. With prefetch the threads' own
        waiting follows, as `stage_times` reads it: ``"sampling waiting for room"``,
        ``"features waiting for input"`` (bulks), ``"features waiting for room"``; on several ranks
        ``"sampling waiting for ranks"`` and ``"features waiting for ranks"``; with `device`
        ``"copies waiting for input"`` and ``"copies waiting for room"``.
        """
        return self.phases.seconds

    @property
    def stage_report(self) -> StageReport | None:
        """How many threads each stage has now, and why; None before the trial is over, or without `stage_threads`."""
        return None if self._tuning is None else self._tuning.report

    @property
    def batches_per_step(self) -> int:
        """Batches of all ranks together that a step takes: one of each rank, or one that they share."""
        return self._deal.stride

    def __len__(self) -> int:
        """Steps per epoch: minibatches, or on p ranks a p-th of them, rounded up."""
        return self._deal.steps(self.num_batches)

    def __iter__(self) -> Generator[Batch, None, None]:
        """Sample the current epoch; see the class for what follows a complete pass."""
        return self.batches(self.collate, size_of=_bytes_of)

    def pyg(self) -> PygLoader:
        """Batches as PyG's NeighborLoader gives them, of ``GraphSAGE(..., layout="subgraph")``.

        Raises
        ------
        InputError
            If the sampler does not make subgraphs, or ranks share each batch.
        MissingDependencyError
            If torch or torch_geometric is not installed.
        """
        from spsample.loading.pyg import PygLoader

        self._require_whole_batches("pyg()", "PyG's")
        return PygLoader(self)

    def dgl(self, feature_name: str = "feat", label_name: str = "label") -> DglLoader:
        """Batches as DGL's DataLoader gives them: ``(input_nodes, output_nodes, blocks)``.

        Parameters
        ----------
        feature_name
            Where features are: ``blocks[0].srcdata[feature_name]``.
        label_name
            Where labels are: ``blocks[-1].dstdata[label_name]``.

        Raises
        ------
        InputError
            If the sampler leaves the targets out, or ranks share each batch.
        MissingDependencyError
            If torch or dgl is not installed.
        """
        from spsample.loading.dgl import DglLoader

        self._require_whole_batches("dgl()", "DGL's")
        return DglLoader(self, feature_name, label_name)

    def _require_whole_batches(self, view: str, whose: str) -> None:
        if not self._deal.gives_whole_batches:
            raise InputError(
                argument="batches",
                given=f"'cooperative' with {view}",
                expected=f"'shuffled' or 'local': a rank has some rows of a cooperative batch, {whose} models need all",
            )

    def bulks(self, epoch: int, first: int = 0) -> Iterator[BulkSample]:
        """The bulks of an epoch from batch ``first`` on, without features; nothing is sampled ahead.

        On several ranks: what this rank has of them, a bulk without batches where it has none.
        """
        self._require_open()
        first = require_int("first", first, minimum=0, maximum=self.num_batches)
        positions = self._positions(require_word("epoch", epoch))
        for one in self._bulks(positions, epoch, first, 1):
            yield one.bulk

    def close(self) -> None:
        """End what a pass on several ranks left behind, and free its communicators; collective, and the last call."""
        if self._left is not None:
            self._left.join()
        if self._duplicates is not None:
            self._duplicates.close()
            self._duplicates = None
        self._transform.close()
        self._next_epoch.drop()
        if self.features is not None:
            self.features.prefetch_hint(None)
        self._is_closed = True

    def batches(
        self, collate: _CollateFn, *, advance: bool = False, size_of: _SizeOf | None = None
    ) -> Generator[Any, None, None]:
        """One pass, in which ``collate(minibatch, positions, x)`` makes what is delivered.

        ``positions`` (int64) are those of the batch's seeds among all seeds, ``x`` the features of its sources.
        `__iter__` and `pyg` are made of it. With prefetch, ``collate`` runs in another thread. After a pass that was
        left, this one is of the next epoch where ``advance`` says so. ``size_of`` gives the bytes that are held for
        what is made: small ones are handed over several at a time.
        """
        self._require_open()
        made = _Made(self._transform.after(collate), size_of if self._transform.keeps_size and size_of else _unknown)
        yield from self._one_pass(partial(self._delivered, made), advance)

    def _delivered(self, made: _Made, epoch: int, first: int) -> Generator[Delivered, None, None]:
        """Batches from ``first`` on, made here or by threads. At most ``prefetch`` bulks and the one in use exist."""
        drawn_by = (self.random_seed, self.shuffle, self.edge_ids, repr(self.sampler))
        start = self._next_epoch.begin(epoch, first, drawn_by) if self._looks_ahead else Start(None, goes_on=False)
        place = _Place(epoch, first, self._positions(epoch), start)
        if self._turns is None or not self._may_take_turns:
            yield from self._ahead(place, made) if self._works_ahead else self._in_turn(place, made)
            return
        turns = self._turns

        def deliver(begin: int) -> Generator[Delivered, None, None]:
            return (self._in_turn if turns.in_turn else self._ahead)(place._replace(first=begin), made)

        yield from followed(turns, deliver, first, self.num_batches)

    def _in_turn(self, place: _Place, made: _Made) -> Generator[Delivered, None, None]:
        """Batches from ``place.first`` on, each made when it is asked for."""
        warm_up = warm_up_divisor(self.prefetch) if self._looks else 1
        collated = self._collated(self._all_bulks(place, warm_up), place, made, self.features)
        with closing(self._copies.over(collated, self.phases)) as items:
            while (one := next(items, None)) is not None:
                yield self._copies.received(one)
                del one

    def _ahead(self, place: _Place, made: _Made) -> Generator[Delivered, None, None]:
        """Batches from ``place.first`` on, made by threads."""
        if self._left is not None:
            self._left.join()
        with Pipeline(waits=self._duplicates is None, phases=self.phases) as pipeline:
            self._left = pipeline if self._duplicates is not None else None
            stages = new_pass(self._tuning)
            sampled, last = self._prefetchers(pipeline, place, made, stages)
            batches = one_by_one(last)
            while True:
                stages.asks()
                with self.phases.timed("waiting"):
                    item = next(batches, None)
                if item is None:
                    return
                if item.begins_bulk:
                    sampled.release()
                stages.delivered(item.begins_bulk)
                yield self._copies.received(item)
                del item

    def _prefetchers(
        self, pipeline: Pipeline, place: _Place, made: _Made, stages: StagePass
    ) -> tuple[Prefetcher[_RankBulk], Prefetcher[Handful]]:
        """The threads that sample bulks, and that make batches; on several ranks each in step with its like."""
        comms = (None, None) if self._duplicates is None else self._duplicates.comms
        waiting = [partial(self.phases.timed, waiting_for("ranks", stage)) for stage in ("sampling", "features")]
        sampling, gathering = (
            None if comm is None else Lockstep[Any](comm, pipeline.failures, timed)
            for comm, timed in zip(comms, waiting, strict=True)
        )
        features = self.features if self._duplicates is None else self._duplicates.features
        bulks = self._all_bulks(place, (1 + self._looks) * warm_up_divisor(self.prefetch), sampling)
        most = self.prefetch + self._looks_ahead, FEATURES_AHEAD
        of_bulks, of_items = (Ahead(stages.ahead(one), *bound) for one, bound in zip(most, self._queues, strict=True))
        is_kept = place.start.kept is not None
        in_step = stages.sampled(bulks if sampling is None else sampling.over(bulks), is_kept)
        sampled = pipeline.prefetch(in_step, of_bulks, "sampling")
        bulks_to_come = self.phases.over(waiting_for("input", "features"), stages.read(sampled))
        collated = self._collated(bulks_to_come, place, made, features, gathering)
        fetched = stages.fetched(collated if gathering is None else gathering.over(collated))
        is_bounded = self._duplicates is not None or self._queues.batches.nbytes is not None
        in_hand = 1 if is_bounded else MOST_BATCHES  # ranks in step make as many of them
        by_handfuls = handfuls(self._transform.over(fetched), lambda: stages.ahead(in_hand))
        items = pipeline.prefetch(by_handfuls, of_items, "features")
        free_running = list(zip((sampled, items), most, strict=True))
        if self._copies.device is not None:
            batches = self.phases.over(waiting_for("input", COPIES), one_by_one(items))
            copied = handfuls(self._copies.over(batches, self.phases), lambda: stages.ahead(in_hand))
            items = pipeline.prefetch(copied, Ahead(stages.ahead(COPIES_AHEAD), *self._queues.batches), COPIES)
            free_running.append((items, COPIES_AHEAD))
        stages.runs(free_running)
        return sampled, items

    def _collated(
        self,
        bulks: Iterator[_RankBulk],
        place: _Place,
        made: _Made,
        features: FeatureSource | None,
        lockstep: Lockstep[Any] | None = None,
    ) -> Generator[Delivered, None, None]:
        """The batches of bulks, with features; those of distributed features are gathered in step."""
        fetch = FETCHES[self.fetch]
        copies = self._copies if self._transform.batches == 0 else copies_to(None)  # processes get copies of their own
        work = Work(partial(_synchronize, lockstep), partial(self.phases.timed, "features"), copies.rows)
        for one in self._known_ahead(bulks, features, fetch, place):
            next_batch = one.first
            for minibatch, x in fetch.rows(features, self._minibatches(one), work):
                places = self._cut.places(minibatch.batch_id, minibatch.batch_id + 1)
                with self.phases.timed("features", minibatch.batch_id), self.phases.part("collate"):
                    batch = made.collate(minibatch, place.positions[places], x)
                begins, next_batch = next_batch == one.first, next_batch + self._deal.stride
                nbytes, ends = 0 if x is None else int(x.nbytes), next_batch >= one.first + one.batches
                known = {"size": made.size_of(batch), "batch_id": minibatch.batch_id}
                yield Delivered(min(next_batch, self.num_batches), begins, batch, nbytes, ends, **known)
                del batch, minibatch, x
            del one
        _synchronize(lockstep)

    def _known_ahead(
        self, bulks: Iterator[_RankBulk], features: FeatureSource | None, fetch: Fetch, place: _Place
    ) -> Iterator[_RankBulk]:
        """The bulks; where the features of a rank look ahead, on all ranks in the same order, each after the next."""
        if not self._looks_ahead:
            return bulks
        told = Telling(
            features,
            calls_of=lambda one: fetch.calls(self._minibatches(one)),
            ended=partial(self._next_epoch.end, place.epoch),
        )
        return known_ahead(bulks, told)

    def _all_bulks(
        self, place: _Place, warm_up: int, lockstep: Lockstep[Any] | None = None
    ) -> Generator[_RankBulk, None, None]:
        """The bulks of a pass, the first one perhaps kept from the pass before, and that of the next pass."""
        kept, first = place.start.kept, place.first
        if kept is not None:
            first, warm_up = kept.first + kept.batches, 1
            yield kept._replace(opens_next=False)
            del kept
        yield from self._bulks(place.positions, place.epoch, first, warm_up, lockstep)
        if place.start.goes_on and place.epoch + 1 < 2**64:
            following = self._positions(place.epoch + 1)
            for one in self._bulks(following, place.epoch + 1, 0, 1, lockstep):
                yield one._replace(opens_next=True)
                break
            _synchronize(lockstep)

    def _steps_of(self, one: _RankBulk) -> int:
        """Batches of this rank in a bulk, perhaps without seeds."""
        return max(self._deal.steps(one.batches), 1)

    def _minibatches(self, one: _RankBulk) -> Iterator[MiniBatch]:
        """Minibatches that this rank has of a bulk, one for each step."""
        return self._deal.minibatches(one.bulk, one.first, one.batches)

    def _bulks(
        self,
        positions: NDArray[np.int64],
        epoch: int,
        first: int,
        warm_up: int,
        lockstep: Lockstep[Any] | None = None,
    ) -> Generator[_RankBulk, None, None]:
        """Bulks from batch ``first`` on; two or more in place of one that would pass the memory budget."""
        graph = self.graph if lockstep is None or self._duplicates is None else self._duplicates.graph
        for begin, end in self._deal.bulk_ranges(first, self.num_batches, self.bulk_size, warm_up):
            _synchronize(lockstep)
            bulks = self._sampled_bulks(graph, positions, epoch, begin, end)
            while True:
                with self.phases.timed("sampling", begin):
                    sampled = next(bulks, None)
                    bulk = None if sampled is None else self._of_rank(sampled, graph.comm)
                    del sampled
                if bulk is None:
                    break
                batches = len(bulk) if self.comm.size == 1 else end - begin
                yield _RankBulk(bulk, begin, batches)
                begin += batches
                del bulk
        _synchronize(lockstep)

    def _require_same(self, **settings: Any) -> None:
        """Refuse ranks that were given different arguments; collective."""
        cut = self._cut.identity()
        order = {"shuffle": self.shuffle, "drop_last": self.drop_last, "batches": cut["batches"], "parts": repr(cut)}
        require_same(self.comm, seeds=self.seeds_sha256, batch_size=self.batch_size, prefetch=self.prefetch)
        require_same(self.comm, **settings, **order)
        if self.comm.size > 1:
            require_same(self.comm, **self.collate.contents(self.seeds))

    def _any_rank(self, here: bool) -> bool:
        """Whether it is so on any rank; collective."""
        if self.comm.size == 1 or self.features is None:
            return here
        return bool(self.comm.all_reduce(np.array([here], np.int64), "max", phase="set-up")[0])

    def _checked_stage_threads(self, given: Any) -> StageThreads | None:
        """What is given, where there are stages to have threads."""
        threads = None if given is None else require_stage_threads("stage_threads", given)
        if threads is not None and self.prefetch == 0:
            raise InputError(
                argument="stage_threads",
                given=f"{given!r} with prefetch=0",
                expected="None: all is done in the thread of the loop, with its own number of threads",
                hint="spsample.set_num_threads sets that number.",
            )
        return threads

    def _checked_transform(self, transform: Any, workers: Any) -> Transform:
        """Where a function is called on batches, if any is."""
        count = require_int("transform_workers", workers, minimum=0, maximum=MOST_WORKERS)
        if count:
            whose = (
                ("prefetch=0", self.prefetch == 0),
                ("batches='cooperative'", not self._deal.gives_whole_batches),
                ("a graph or features on a device", self._are_on_device),
            )
            require_processes(count, [name for name, is_so in whose if is_so])
        return transform_of(transform, count)

    @property
    def _works_ahead(self) -> bool:
        """Whether the next pass has threads: not where stages have been found to be faster in turn on this rank."""
        in_turn = self._is_alone and self._tuning is not None and self._tuning.is_in_turn_on(get_num_threads())
        return self.prefetch > 0 and not in_turn

    @property
    def _may_take_turns(self) -> bool:
        """Whether threads may give way to turns where these are faster, without a word of anybody else's."""
        return self._is_alone and not self._looks_ahead and self._copies.device is None

    @property
    def _looks(self) -> bool:
        """Whether the next bulks are looked at: with threads a small one, and in both ways one of twice its size."""
        return self._turns is not None and self._may_take_turns and not self._turns.is_settled

    @property
    def _is_alone(self) -> bool:
        """Whether no other ranks and no processes go on beside a pass: these keep what they have begun with."""
        return self.comm.size == 1 and self._transform.batches == 0

    @property
    def _most_threads(self) -> int:
        """That sampling can have."""
        return get_num_threads() if self._tuning is None else self._tuning.most_sampling

    @property
    def _are_on_device(self) -> bool:
        return self.graph.is_on_device or (self.features is not None and self.features.device is not None)

    def _check_ranks(self) -> None:
        """Refuse features of other ranks than the graph's."""
        ranks = comm_of(self.features)
        if self.comm.size > 1 and ranks.size not in (1, self.comm.size):
            given, expected = f"features on {ranks.size} ranks", f"on those of the graph: {self.comm.size}"
            raise InputError(argument="features", given=given, expected=expected)

    @property
    def _ranking(self) -> Callable[[], Any] | None:
        """Scores of the vertices, by which features are split on a device; None where their graph is nowhere else."""
        host = self.graph.host
        if host is None:
            return None
        name = usual_score(host, self.sampler)
        return partial(score, name, host, self.seeds, self.sampler, self.batch_size)

    @property
    def _feature_batches(self) -> int:
        """Batches with features that the host has at a time."""
        return FEATURE_BATCHES + self._transform.batches + self._copies.batches

    @property
    def _workload(self) -> Workload:
        """What is sampled, for its plan."""
        bounds = self._cut.bounds(0, self.num_batches)
        return Workload(
            graph=self.graph,
            seeds=self.seeds if bounds is None else self.seeds[self._positions(0)],
            batch_ptr=bounds,
            sampler=self.sampler,
            batch_size=self.batch_size,
            edge_ids=self.edge_ids,
            backend=self.backend,
            shuffle=self.shuffle,
            prefetch=self.prefetch,
            feature_batches=0 if self.features is None else self._feature_batches,
            feature_bytes=0 if self.features is None else 4 * self.features.dim,
            ahead=features_ahead(self.features, self.fetch, self._looks_ahead),
            share=None if self._deal.gives_whole_batches else partial(self._deal.of_rank, comm=self.comm),
        )

    def _of_rank(self, sampled: BulkSample, comm: Communicator) -> Any:
        """What this rank has of a bulk."""
        if self._deal.gives_whole_batches:
            return self._deal.of_rank(sampled, comm)
        with self.phases.part("sharing out"):
            return self._deal.of_rank(sampled, comm)


class _RankBulk(NamedTuple):
    """What this rank has of a bulk, or of a part of one; whether it is the first one of the next epoch."""

    bulk: Any
    first: int
    batches: int
    opens_next: bool = False


class _Place(NamedTuple):
    """Where a pass begins, the order of its epoch, and how it follows the pass before."""

    epoch: int
    first: int
    positions: NDArray[np.int64]
    start: Start


class _Made(NamedTuple):
    """How batches are made, and how many bytes are held for one."""

    collate: _CollateFn
    size_of: _SizeOf


def _bytes_of(batch: Batch) -> int:
    """Bytes of features and labels; all else belongs to the bulk."""
    return sum(0 if one is None else int(one.nbytes) for one in (batch.x, batch.y))


def _unknown(batch: Any) -> None:
    """Nobody knows."""


def _synchronize(lockstep: Lockstep[Any] | None) -> None:
    """Wait for the other ranks, where there are any that work in step."""
    if lockstep is not None:
        lockstep.synchronize()
