"""`PartLoader`: batches of a rank's own part, in as many steps as on the other ranks."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import Communicator, collective
from spsample.comm.objects import all_gather_object
from spsample.loading.loader import BulkLoader
from spsample.loading.local_order import LocalBatches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.sampling import Sampler
    from spsample.store.base_graph import BaseGraph


class PartLoader(BulkLoader):
    """A loader of one rank, which samples its own graph without the others, and takes as many steps as they.

    All ranks take T steps: those that the rank with the most seeds needs. A rank with m seeds has T batches of
    floor(m / T) or one more, so that only a rank with fewer seeds than steps has a batch without seeds. Making one is
    collective; iterating is not.

    Parameters
    ----------
    comm : Communicator
        The ranks.
    graph, seeds, sampler, batch_size
        Of this rank, as of `BulkLoader`.
    **options
        As of `BulkLoader`.

    Raises
    ------
    InputError, DTypeError, CapacityError
        On every rank, if an argument cannot be used on one.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.comm import run_threads
    >>> graph = sp.load_dataset("planted:60").graph
    >>> def sizes(comm):
    ...     seeds = np.arange(9 if comm.rank else 4)
    ...     loader = PartLoader(comm, graph, seeds, sp.GraphSAGE([2]), batch_size=4)
    ...     return [len(batch.seeds) for batch in loader]
    >>> run_threads(2, sizes)
    [[1, 1, 2], [3, 3, 3]]
    """

    def __init__(
        self,
        comm: Communicator,
        graph: BaseGraph,
        seeds: NDArray[np.int64],
        sampler: Sampler,
        *,
        batch_size: int,
        **options: Any,
    ) -> None:
        need = np.array([-(-len(seeds) // batch_size)], np.int64)
        steps = int(comm.all_reduce(need, "max", phase="set-up")[0])
        with collective(comm, call="the checks of PartLoader"):
            cut = LocalBatches(np.zeros(len(seeds), np.int64), 1, 1, batch_size, least_steps=steps)
            super().__init__(graph, seeds, sampler, batch_size=batch_size, batches=cut, **options)
        parts = all_gather_object(comm, super()._identity())
        self._parts_sha256 = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _identity(self) -> dict[str, Any]:
        """Return a digest of what decides the batches of all ranks, so that each can read the state of another."""
        return {"batches": "parts", "parts_sha256": self._parts_sha256}
