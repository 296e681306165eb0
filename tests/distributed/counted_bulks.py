"""`count_bulk`: counts of a given bulk on a grid, to which the traffic model and predictions are held."""

from __future__ import annotations

import numpy as np

from spsample.distributed.placement import balanced
from spsample.planning.cluster.counting import (
    LayerCounting,
    RankCounts,
    count_by_owner,
    count_sources,
    distinct,
    hop_counts,
    layer_rows,
    longest_rows,
)
from spsample.planning.cluster.exchanges import BlockRows


class CountedRanks:
    """The batches of a bulk go to ranks by their position."""

    def __init__(self, shape):
        self._shape = shape

    def by_rank(self, per_batch):
        p = self._shape.ranks
        return np.stack([per_batch[rank::p].sum(axis=0) for rank in range(p)])

    def most_by_rank(self, per_batch):
        p = self._shape.ranks
        return np.stack([per_batch[rank::p].max(axis=0, initial=0.0) for rank in range(p)])

    def distinct_rows(self, frontier, blocks, *, grouped):
        groups = frontier.batch % self._shape.ranks // (self._shape.replication if grouped else 1)
        size = self._shape.num_blocks if grouped else self._shape.ranks
        group, vertices, degrees = distinct(groups, frontier)
        owners, cells = blocks.owners(vertices), (size, blocks.num_blocks)
        return count_by_owner(group, owners, cells), count_by_owner(group, owners, cells, degrees)


def count_bulk(graph, bulk, shape, blocks=None, *, with_stages=True):
    """Counts of a given bulk on a grid, exact but for the draws of layer-wise samplers, which a bulk does not tell.

    Parameters
    ----------
    graph : Graph
        The whole A.
    bulk : BulkSample
        All its batches, in one process: the rank of a batch is its position modulo p.
    shape : GridShape
    blocks : BlockRows, optional
        Block rows of A; by default those with about the same number of entries.
    with_stages : bool
        Also count what only the algorithms in stages need.

    """
    blocks = BlockRows(balanced(graph.indptr, shape.num_blocks).bounds) if blocks is None else blocks
    to_ranks, hops, layers = CountedRanks(shape), [], layer_rows(graph, bulk)
    for frontier, s in zip(layers, bulk.sampler.sizes, strict=True):
        counts = LayerCounting(graph, bulk.sampler, frontier, s, shape, blocks).counts(with_stages=with_stages)
        hops.append(hop_counts(to_ranks, counts, frontier, blocks, shape, int(frontier.sources.max(initial=0))))
    return RankCounts(
        shape=shape,
        batches=shape.batches(len(bulk)),
        hops=tuple(hops),
        inputs=to_ranks.by_rank(count_sources(layers[-1], graph.num_nodes, shape)),
        block_rows=np.diff(blocks.starts).astype(np.float64),
        block_entries=np.diff(graph.indptr[blocks.starts]).astype(np.float64),
        block_longest=longest_rows(graph, blocks),
    )
