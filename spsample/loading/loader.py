"""The loader: shuffled seeds, sampled in bulk ahead of their use, delivered one minibatch at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import comm_of, require_same
from spsample.common.checks import refuse_removed, require_choice, require_int, short
from spsample.common.stage_threads import StageThreads
from spsample.common.threads import kernel_threads
from spsample.errors import DTypeError, InputError
from spsample.features import score
from spsample.features.scores import usual_score
from spsample.loading.base import Loader, SamplingGroup
from spsample.loading.batch import Batch, Collate
from spsample.loading.copies import copies_to, samples_on_device
from spsample.loading.fetching import FETCHES, features_ahead
from spsample.loading.local_order import LocalBatches, batches_of
from spsample.loading.order import Order, as_seeds
from spsample.loading.passes import AheadGroup, Pass
from spsample.loading.ranks import Duplicates, Lockstep, assignment_of
from spsample.loading.serial import SerialChoice
from spsample.planning.budget import Buffers
from spsample.planning.loader_plan import FEATURE_BATCHES, USUAL_BULK_SIZE, plan_loader
from spsample.sampling.arguments import check_arguments, require_word
from spsample.store.base_graph import BaseGraph, require_graph
from spsample.timeline import Timeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.loading.prefetch import StageChain
    from spsample.loading.views import DglLoader, PygLoader
    from spsample.sampling import BulkSample, MiniBatch, Sampler

CollateFn = Callable[["MiniBatch", "NDArray[np.int64]", "NDArray[np.float32] | None"], Any]
SizeOf = Callable[[Any], "int | None"]


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
    bulk; without it the others wait for it until their time-out, unless a collective call reports it.

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
        `spsample.planning.loader_plan.RankPlan`, and with a number of batches and no budget nothing is planned.
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
        alone; see `spsample.distributed.cooperative` for owners, and for the exchange of rows. A
        `LocalBatches` is taken as it is.
    parts
        For local or cooperative batches of a graph that every rank has: the part of each vertex, int, shape (n,). As
        many parts as divide p evenly: of g parts, part i is that of the ranks i p/g to (i + 1) p/g - 1.
    fetch
        ``"batch"``: each batch fetches the rows of features that it needs. ``"bulk"``: all rows that a bulk needs are
        fetched once, in one exchange and in the order of the vertices, and kept while the bulk is in use. Features that
        look ahead (`CachedFeatures`) then decide once a bulk. Where they do, a further bulk is sampled ahead.
    stage_threads
        With prefetch: how many threads the kernels use for sampling and for features, ``(2, 1)`` or ``"2,1"``. None:
        both as many as the thread that starts the pass. A third number, that of torch, is for trainers.
    prefetch_budget
        With prefetch: bytes, or text such as ``"1GiB"``, for what is finished and not yet in use, half of it bulks and
        half of it batches with features; on ``device`` as many bytes of batches once more. One that is larger is made
        when it is waited for. None: ``memory_budget``, and where that is None too, a number of bulks and batches is all
        that bounds them.
    transform
        Called with each batch, in the order of the batches; what it returns is delivered, by `pyg` too. With prefetch
        it is called in the thread that gathers features, where there is one.
    device
        ``"cuda"`` (of several ranks each its own GPU), ``"cuda:1"`` or ``"cpu"``: batches that the host makes are
        copied there ahead of their use, with prefetch in a thread of its own, after `transform`. Their arrays are then
        torch's tensors; ``input_id`` and `MiniBatch.seed_inverse` stay NumPy's. A transform may return a batch, PyG's
        data, or tuples, lists and dictionaries of arrays and tensors. None: batches stay where they are made.
    timeline
        The timeline of the threads' work; None for none.

    Attributes
    ----------
    plan : BulkPlan, RankPlan or None
        The plan of memory; None where any bulk fits.
    bulk_size : int
        Batches of a bulk, at most.
    num_batches : int
        Batches of an epoch, of all ranks.
    comm : Communicator
        The ranks of the graph.
    ahead : AheadGroup
        The arguments of the amounts of work at once and ahead, and of threads.
    phases : Phases
        The counts of `seconds`.

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
        batches: str | LocalBatches = "shuffled",
        parts: ArrayLike | None = None,
        fetch: str = "batch",
        stage_threads: StageThreads | str | Sequence[int] | None = None,
        prefetch_budget: int | str | None = None,
        transform: Callable[[Any], Any] | None = None,
        device: Any = None,
        timeline: Timeline | None = None,
        **removed: NoReturn,
    ) -> None:
        hint = "Leave it out: transform= runs in the thread that gathers features."
        refuse_removed("BulkLoader", removed, transform_workers=hint)
        require_graph(graph)
        with collective(graph.comm, call="the checks of BulkLoader"):
            ids, batch_size = check_arguments(graph, as_seeds(graph, seeds), sampler, batch_size)
            sampling = SamplingGroup(shuffle, drop_last, random_seed, edge_ids, backend)
            self.ahead = AheadGroup(bulk_size, memory_budget, prefetch, prefetch_budget, stage_threads)
            require_choice("fetch", fetch, FETCHES)
            function: Any = transform
            if function is not None and not callable(function):
                raise DTypeError(argument="transform", given=short(function), expected="a function of a batch, or None")
            cut = batches_of(batches, parts, graph, ids, batch_size, drop_last)
            super().__init__(graph, ids, sampler, batch_size, sampling, cut)
            self.graph = graph.to_device(self.backend)
            host, ranking = self.graph.host, None
            if host is not None:  # scores of the vertices, by which features are split on a device
                name = usual_score(host, sampler)
                ranking = partial(score, name, host, self.seeds, sampler, batch_size)
            self.collate = Collate(features, labels, self.graph, ranking)
            copies = copies_to(device, from_host=not samples_on_device(self.graph, self.backend))
            self._deliver_by(copies, timeline)
            ranks = comm_of(self.features).size
            if self.comm.size > 1 and ranks not in (1, self.comm.size):
                given, expected = f"features on {ranks} ranks", f"on those of the graph: {self.comm.size}"
                raise InputError(argument="features", given=given, expected=expected)
            assignment = assignment_of(batches, parts, graph, sampler)
        self._transform, self._fetch, self._assignment = transform, fetch, assignment
        self._require_same()
        is_hinted = self.features is not None and self.features.looks_ahead
        if self.comm.size > 1 and self.features is not None:
            is_hinted = bool(self.comm.all_reduce(np.array([is_hinted], np.int64), "max", phase="set-up")[0])
        self._looks_ahead = is_hinted  # on any rank
        with kernel_threads(self.ahead.threads_of("sampling")):  # each has scratch
            self.plan, self.bulk_size = plan_loader(
                self._workload_of(self.graph),
                self._buffers(),
                num_batches=self.num_batches,
                bulk_size=self.ahead.most_batches,
                memory_budget=memory_budget,
            )
        self._prepare_passes(graph)

    def _prepare_passes(self, graph: BaseGraph) -> None:
        """Get all that passes share; collective."""
        is_alone, has_threads = self.comm.size == 1, self.ahead.prefetch > 0
        self._duplicates = Duplicates(graph, self.features) if has_threads and not is_alone else None
        self._left: StageChain | None = None  # of the last pass: its threads end once those of the other ranks do
        may_choose = is_alone and has_threads and self.ahead.stage_threads is None
        has_choice = may_choose and not self._looks_ahead and self.device is None
        self._serial_choice = SerialChoice() if has_choice else None  # None where passes always have threads, or never

    @property
    def batches_per_step(self) -> int:
        """Batches of all ranks together that a step takes: one of each rank, or one that they share."""
        return self._assignment.stride

    def __len__(self) -> int:
        """Steps per epoch: minibatches, or on p ranks a p-th of them, rounded up."""
        return self._assignment.steps(self.num_batches)

    def __iter__(self) -> Generator[Batch, None, None]:
        """Sample the current epoch; the class describes what follows a complete pass."""
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
        from spsample.loading.views import PygLoader

        self._require_whole_batches("pyg()", "PyG's")
        return PygLoader(self)

    def dgl(self, feature_name: str = "feat", label_name: str = "label") -> DglLoader:
        """Batches as DGL's DataLoader gives them: ``(input_nodes, output_nodes, blocks)``.

        Parameters
        ----------
        feature_name
            Name of features: ``blocks[0].srcdata[feature_name]``.
        label_name
            Name of labels: ``blocks[-1].dstdata[label_name]``.

        Raises
        ------
        InputError
            If the sampler leaves the targets out, or ranks share each batch.
        MissingDependencyError
            If torch or dgl is not installed.
        """
        from spsample.loading.views import DglLoader

        self._require_whole_batches("dgl()", "DGL's")
        return DglLoader(self, feature_name, label_name)

    def _require_whole_batches(self, view: str, whose: str) -> None:
        if not self._assignment.gives_whole_batches:
            expected = f"'shuffled' or 'local': a rank has some rows of a cooperative batch, {whose} models need all"
            raise InputError(argument="batches", given=f"'cooperative' with {view}", expected=expected)

    def bulks(self, epoch: int, first: int = 0) -> Iterator[BulkSample]:
        """Yield the bulks of an epoch from batch ``first`` on, without features; nothing is sampled ahead.

        On several ranks: this rank's part of each, a bulk without batches where it has none.
        """
        self._require_open()
        first = require_int("first", first, minimum=0, maximum=self.num_batches)
        for bulk in Pass(self, require_word("epoch", epoch)).bulks(first, 1, Lockstep()):
            yield bulk.bulk

    def close(self) -> None:
        """End the threads of the last pass on several ranks, and free communicators; collective, and the last call."""
        if self._left is not None:
            self._left.join()
        if self._duplicates is not None:
            self._duplicates.close()
            self._duplicates = None
        if self.features is not None:
            self.features.prefetch_hint(None)
        self._is_closed = True

    def batches(
        self, collate: CollateFn, *, advance: bool = False, size_of: SizeOf | None = None
    ) -> Generator[Any, None, None]:
        """Yield the batches of one pass, which ``collate(minibatch, positions, x)`` makes.

        ``positions`` (int64) are those of the batch's seeds among all seeds, ``x`` the features of its sources.
        `__iter__` and `pyg` are made of it. With prefetch, ``collate`` runs in another thread. After a pass that was
        left, this one is of the next epoch where ``advance`` says so. ``size_of`` gives the bytes that are held for
        a batch: small ones are handed over several at a time.
        """
        self._require_open()

        def make(minibatch: MiniBatch, positions: NDArray[np.int64], x: Any) -> tuple[Any, int | None]:
            batch = collate(minibatch, positions, x)
            if self._transform is not None:
                return self._transform(batch), None
            return batch, None if size_of is None else size_of(batch)

        yield from self._one_pass(lambda epoch, first: Pass(self, epoch).batches(first, make), advance)

    def _require_same(self) -> None:
        """Refuse ranks that were given different arguments; collective."""
        if self.comm.size == 1:
            return
        ahead, cut = self.ahead, self._cut.identity()
        sizes = {"batch_size": self.batch_size, "bulk_size": ahead.bulk_size, "prefetch": ahead.prefetch}
        budgets = {"memory_budget": ahead.memory_budget is None, "stage_threads": ahead.stage_threads is None}
        order = {"shuffle": self.shuffle, "drop_last": self.drop_last, "batches": cut["batches"], "parts": repr(cut)}
        require_same(self.comm, seeds=self.seeds_sha256, fetch=self._fetch, **sizes, **budgets, **order)
        require_same(self.comm, ranks=self._assignment.identity, **self.collate.contents(self.seeds))

    def _buffers(self) -> Buffers:
        """Return the buffers beside a bulk, for the plan."""
        features, prefetch = self.features, self.ahead.prefetch
        whole = self._assignment.gives_whole_batches
        share = None if whole else partial(self._assignment.of_rank, comm=self.comm)
        if features is None:
            return Buffers(prefetch, share=share)
        ahead = features_ahead(features, self._fetch, self._looks_ahead)
        return Buffers(prefetch, FEATURE_BATCHES + self._copies.batches, 4 * features.dim, ahead, share)


def _bytes_of(batch: Batch) -> int:
    """Return the bytes of features and labels; all else belongs to the bulk."""
    return sum(0 if array is None else int(array.nbytes) for array in (batch.x, batch.y))
