"""What all loaders have: epochs, features and labels, and bulks within a memory budget."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from spsample.errors import InputError
from spsample.features import CacheCounts
from spsample.loading.order import Epochs
from spsample.planning.bulk_sampling import sample_within

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource
    from spsample.loading.batch import Collate
    from spsample.loading.copies import Copies
    from spsample.planning.budget import BudgetedPlan
    from spsample.sampling import BulkSample
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Phases

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
        Whether each entry has its position in the edges the user gave.
    backend : str or None
        What samples.
    phases : Phases
        What counts `seconds`.
    plan
        What memory was planned with; None where any bulk fits.
    """

    comm: Communicator
    collate: Collate
    edge_ids: bool
    backend: str | None
    phases: Phases
    plan: BudgetedPlan | None
    _is_closed = False
    _copies: Copies

    @property
    def device(self) -> Any:
        """Where batches are copied, a ``torch.device``; None where they stay."""
        return self._copies.device

    @property
    def features(self) -> FeatureSource | None:
        """Where features come from."""
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
        """The batches from ``first`` to ``end`` of an epoch: a bulk, or several within the plan."""
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
