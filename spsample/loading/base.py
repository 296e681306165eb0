"""The base of all loaders: epochs, features and labels, and bulks within a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from spsample.backends import get_backend
from spsample.errors import InputError
from spsample.features import CacheCounts
from spsample.loading.local_order import Batches, ShuffledBatches
from spsample.loading.order import Delivered, Order, checked_place
from spsample.planning.bulk_sampling import sample_within
from spsample.sampling.arguments import require_word
from spsample.sampling.sampler import require_bool
from spsample.sampling.workload import Workload
from spsample.sparse import keys
from spsample.timeline import Phases

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.features import FeatureSource
    from spsample.loading.batch import Collate
    from spsample.loading.copies import Copies
    from spsample.planning.budget import BudgetedPlan
    from spsample.sampling import BulkSample, Sampler
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Timeline


@dataclass(frozen=True)
class SamplingGroup:
    """Options of loaders: order of the seeds, and sampling."""

    shuffle: bool | Order = True
    drop_last: bool = False
    random_seed: int = 0
    edge_ids: bool = False
    backend: str | None = None

    def __post_init__(self) -> None:
        require_bool("drop_last", self.drop_last)
        require_bool("edge_ids", self.edge_ids)
        loaded = get_backend(self.backend)  # now: in a process forked while a thread loads it, it could never be loaded
        if self.backend is not None:
            object.__setattr__(self, "backend", loaded.name)


class Loader:
    """Seeds in batches, epoch by epoch, which are sampled in bulk and get features and labels; and a place among them.

    Parameters
    ----------
    graph, seeds, sampler, batch_size
        Checked by `check_arguments`.
    sampling
        Order of the seeds, and options of sampling.
    cut
        The cut of an epoch's order into batches; None: into runs of it.

    Attributes
    ----------
    comm : Communicator
        The ranks of the graph.
    collate : Collate
        Makes batches of minibatches.
    edge_ids : bool
        True where each entry has its position in the edges the user gave.
    backend : str or None
        The backend that samples.
    phases : Phases
        The counts of `seconds`.
    plan
        The plan of memory; None where any bulk fits.
    """

    collate: Collate
    phases: Phases
    plan: BudgetedPlan | None
    _is_closed = False
    _copies: Copies

    def __init__(
        self,
        graph: BaseGraph,
        seeds: NDArray[np.int64],
        sampler: Sampler,
        batch_size: int,
        sampling: SamplingGroup,
        cut: Batches | None = None,
    ) -> None:
        self.graph, self.sampler, self.batch_size, self.comm = graph, sampler, batch_size, graph.comm
        self.seeds = seeds.copy()
        self.seeds.flags.writeable = False
        self.seeds_sha256 = sha256(self.seeds.astype("<i8", copy=False).tobytes()).hexdigest()
        shuffle = sampling.shuffle
        self._order = (
            shuffle if isinstance(shuffle, Order) else Order(len(seeds), shuffle=require_bool("shuffle", shuffle))
        )
        self.shuffle, self.drop_last = bool(shuffle), sampling.drop_last
        self.random_seed = require_word("random_seed", sampling.random_seed)
        self.edge_ids, self.backend = sampling.edge_ids, sampling.backend
        self._cut = ShuffledBatches(self._order.num_positions, batch_size, self.drop_last) if cut is None else cut
        self.epoch = 0
        self._next_batch = 0
        self._resume = False
        self._pass = 0  # number of the newest pass: only that one moves the loader on, unless another place was chosen

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Keep the seeds read-only after pickling or copying."""
        self.__dict__.update(state)
        self.seeds.flags.writeable = False

    @property
    def num_batches(self) -> int:
        """Minibatches per epoch, of all ranks together."""
        return self._cut.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, in [0, 2^64), which starts at its first batch.

        A pass that is under way goes on, and no longer moves the loader.
        """
        self.epoch = require_word("epoch", epoch)
        self._pass += 1
        self._next_batch = 0
        self._resume = False

    def end_epoch(self) -> None:
        """Make the next pass one of the next epoch; a sampler that draws the order has drawn that of this one."""
        self._order.end(self.epoch)
        self.set_epoch(_after(self.epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader, after the batch that was delivered last, and facts that decide its batches.

        Batches that threads have prepared beyond it are not part of it. ``next_batch`` counts the batches of all ranks,
        so that a loader on other ranks can go on.
        """
        return {
            "next_batch": self._next_batch,
            "epoch": self.epoch,
            **self._identity(),
            **self._order.state(self.epoch),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where ``state`` was taken.

        Raises
        ------
        DTypeError
            If ``state`` is no mapping.
        InputError
            If it lacks a key, or is of a loader with another graph (by digest where both are known, else by size and
            weighting), another sampler, random seed or batch size, other seeds or another version of the law.
        """
        epoch, next_batch = checked_place(state, self._identity(), self.num_batches)
        self.set_epoch(epoch)
        self._order.load_state(state)
        self._next_batch = next_batch
        self._resume = True

    def _positions(self, epoch: int) -> NDArray[np.int64]:
        """Return the positions among the seeds in the order of an epoch's batches."""
        return self._cut.ordered(self._order.positions(self.random_seed, epoch))

    def _one_pass(
        self, deliver: Callable[[int, int], Iterator[Delivered]], advance: bool
    ) -> Generator[Any, None, None]:
        """Yield the batches of ``deliver(epoch, first)``: from the first on, or from where a state was taken.

        After a pass that was left, this one is of the next epoch where ``advance`` says so.
        """
        if advance and self._next_batch and not self._resume:
            self.set_epoch(_after(self.epoch))
        epoch, first = self.epoch, self._next_batch if self._resume else 0
        self._next_batch, self._resume = first, False
        self._pass += 1
        this_pass = self._pass
        for delivered in deliver(epoch, first):
            if self._pass == this_pass:
                self._next_batch = delivered.next_batch
            yield delivered.batch
        if self._pass == this_pass:
            self.set_epoch(_after(epoch))

    def _identity(self) -> dict[str, Any]:
        """Return all that decides the batches; of the graph its digest where known, else its size and weighting."""
        return {
            "law_version": keys.LAW_VERSION,
            "sampler": repr(self.sampler),
            "num_nodes": self.graph.num_nodes,
            "num_edges": self.graph.num_edges,
            "weighting": self.graph.weighting,
            "graph_digest": self.graph.digest,
            "num_seeds": len(self.seeds),
            "seeds_sha256": self.seeds_sha256,
            "batch_size": self.batch_size,
            "random_seed": self.random_seed,
            **self._order.identity(),
            "drop_last": self.drop_last,
            **self._cut.identity(),
        }

    def _workload_of(self, graph: BaseGraph) -> Workload:
        """Return the batches of an epoch, for the plan."""
        bounds = self._cut.bounds(0, self.num_batches)
        return Workload(
            graph=graph,
            seeds=self.seeds if bounds is None else self.seeds[self._positions(0)],
            batch_ptr=bounds,
            sampler=self.sampler,
            batch_size=self.batch_size,
            edge_ids=self.edge_ids,
            backend=self.backend,
            shuffle=self.shuffle,
        )

    def _deliver_by(self, copies: Copies, timeline: Timeline | None) -> None:
        self._copies = copies
        self.phases = Phases(("sampling", "features", *copies.phases, "waiting"), timeline)

    def _seeds_of(self, epoch: int, positions: NDArray[np.int64], first: int, end: int) -> NDArray[np.int64]:
        """Return the seeds of the batches from ``first`` to ``end`` of an epoch, from the positions in its order.

        All that is sampled is sampled for these: a loader of other seeds than vertices has its own here.
        """
        return self.seeds[positions[self._cut.places(first, end)]]

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent ``sampling`` and gathering ``features``, in any thread, and ``waiting`` for them in the loop.

        With `device` also ``copies``: the host's work for them, while a GPU copies. With prefetch the threads' own
        waiting follows, as `stage_times` reads it: ``"sampling waiting for room"``,
        ``"features waiting for input"`` (bulks), ``"features waiting for room"``; on several ranks
        ``"sampling waiting for ranks"`` and ``"features waiting for ranks"``; with `device`
        ``"copies waiting for input"`` and ``"copies waiting for room"``.
        """
        return self.phases.seconds

    @property
    def device(self) -> Any:
        """The ``torch.device`` to which batches are copied; None where they stay."""
        return self._copies.device

    @property
    def features(self) -> FeatureSource | None:
        """The source of features."""
        return self.collate.features

    @property
    def labels(self) -> NDArray[Any] | None:
        """Labels of all vertices."""
        return self.collate.labels

    @property
    def cache_counts(self) -> CacheCounts | None:
        """Hits and misses of the features so far, beside `seconds`; None where they are not cached."""
        counts = getattr(self.features, "counts", None)
        return counts if isinstance(counts, CacheCounts) else None

    def _require_open(self) -> None:
        if self._is_closed:
            raise InputError(argument="loader", given="one that was closed", expected="one that is open: make another")

    def _sampled_bulks(
        self, graph: BaseGraph, positions: NDArray[np.int64], epoch: int, first: int, end: int
    ) -> Generator[BulkSample, None, None]:
        """Sample the batches from ``first`` to ``end`` of an epoch: a bulk, or several within the plan."""
        return sample_within(
            self.plan,
            graph,
            self._seeds_of(epoch, positions, first, end),
            self.sampler,
            batch_size=self.batch_size,
            random_seed=self.random_seed,
            epoch=epoch,
            first_batch=first,
            edge_ids=self.edge_ids,
            backend=self.backend,
            batch_ptr=self._cut.bounds(first, end),
        )


def _after(epoch: int) -> int:
    return min(epoch + 1, 2**64 - 1)
