"""The base of all loaders: epochs, features and labels, and bulks within a memory budget."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from spsample.errors import InputError
from spsample.features import CacheCounts
from spsample.loading.order import Epochs
from spsample.planning.bulk_sampling import sample_within
from spsample.timeline import Phases

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.features import FeatureSource
    from spsample.loading.batch import Collate
    from spsample.loading.copies import Copies
    from spsample.loading.local_order import Batches
    from spsample.loading.options import SamplingOptions
    from spsample.planning.budget import BudgetedPlan
    from spsample.sampling import BulkSample, Sampler
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Timeline

__all__ = ["Loader"]


class Loader(Epochs):
    """Epochs whose minibatches are sampled in bulk, and get features and labels.

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
        sampling: SamplingOptions,
        cut: Batches | None = None,
    ) -> None:
        super().__init__(
            graph,
            seeds,
            sampler,
            batch_size,
            shuffle=sampling.shuffle,
            drop_last=sampling.drop_last,
            random_seed=sampling.random_seed,
            cut=cut,
        )
        self.comm = graph.comm
        self.edge_ids, self.backend = sampling.edge_ids, sampling.backend

    def _deliver_by(self, copies: Copies, timeline: Timeline | None) -> None:
        self._copies = copies
        self.phases = Phases(("sampling", "features", *copies.phases, "waiting"), timeline)

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
            self.seeds[positions[self._cut.places(first, end)]],
            self.sampler,
            batch_size=self.batch_size,
            random_seed=self.random_seed,
            epoch=epoch,
            first_batch=first,
            edge_ids=self.edge_ids,
            backend=self.backend,
            batch_ptr=self._cut.bounds(first, end),
        )
