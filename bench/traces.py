"""Traced runs: which vertices each batch of a run needs. All measurements of caches and copies take theirs from here.

A cell is a graph and a sampler. A random tenth of the vertices that have in-neighbours are its seeds, shuffled anew in
each epoch, as a loader does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from graphs import dataset_graph

EPOCHS = 20
"""Epochs over which hits are counted."""
GRAPHS = ("cnr2000", "ego_twitter", "tolokers", "rmat:20,16")
SAMPLERS: dict[str, tuple[sp.Sampler, int]] = {
    "GraphSAGE": (sp.GraphSAGE([15, 10, 5]), 1024),
    "LADIES": (sp.LADIES([512, 512, 512]), 512),
    "FastGCN": (sp.FastGCN([512, 512, 512]), 512),
}
"""Sampler, and its batch size."""
_SEEDS_OF_RUNS = 1
"""The random seed of the runs: none of those that scores take for their trials by default."""


@dataclass(frozen=True)
class Cell:
    """What is sampled how."""

    graph: sp.Graph
    seeds: NDArray[np.int64]
    sampler: sp.Sampler
    batch_size: int

    def loader(self, bulk_size: int = 16, **options: Any) -> sp.BulkLoader:
        """The loader of the run that is traced."""
        wanted: dict[str, Any] = {"shuffle": True, "random_seed": _SEEDS_OF_RUNS, **options}
        return sp.BulkLoader(
            self.graph, self.seeds, self.sampler, batch_size=self.batch_size, bulk_size=bulk_size, **wanted
        )

    def epochs(self, count: int = EPOCHS, first: int = 0) -> Iterator[list[NDArray[np.int64]]]:
        """For each epoch, the src vertices of each of its batches, in order."""
        loader = self.loader(prefetch=0)
        for epoch in range(first, first + count):
            yield [np.array(batch.src_nodes) for bulk in loader.bulks(epoch) for batch in bulk]

    def batches(self, count: int = EPOCHS, first: int = 0) -> Iterator[NDArray[np.int64]]:
        """The src vertices of the batches of all those epochs."""
        for epoch in self.epochs(count, first):
            yield from epoch

    def counts(self, count: int = EPOCHS, first: int = 0) -> NDArray[np.int64]:
        """(n,) how many batches of those epochs need each vertex: the trace's own best set has the most."""
        counts = np.zeros(self.graph.num_nodes, np.int64)
        for vertices in self.batches(count, first):
            counts[vertices] += 1
        return counts


def cell(graph: str | sp.Graph, sampler: str) -> Cell:
    """The cell of a graph, by name or itself, and a sampler by name."""
    made = dataset_graph(graph) if isinstance(graph, str) else graph
    with_neighbours = np.flatnonzero(np.diff(made.indptr))
    seeds = np.random.default_rng(0).choice(with_neighbours, len(with_neighbours) // 10, replace=False)
    chosen, batch_size = SAMPLERS[sampler]
    return Cell(made, np.sort(seeds), chosen, batch_size)
