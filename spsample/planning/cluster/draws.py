"""How many draws a layer-wise sampler sends to the owners of what is drawn, in the mean."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.backends.reference.random import ROUND_DRAWS
from spsample.distributed.placement import equal_bounds
from spsample.distributed.rounds import SPARE_DRAWS, piece_of_draws
from spsample.planning.cluster.grid_shape import FloatArray
from spsample.planning.cluster.layer_rows import SPARSE, LayerRows, columns_of
from spsample.sampling import Sampler
from spsample.store import Graph


def expected_draws(
    graph: Graph, frontier: LayerRows, sampler: Sampler, s: int, spare: float = SPARE_DRAWS
) -> FloatArray:
    """(k,): draws that each batch sends to the rows' owners under the entry law.

    All entries where there are no more than s; s with replacement; else pieces of draws (`piece_of_draws`, with
    `spare`), at most `ROUND_DRAWS` s of them, until the expected number of distinct columns is s.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> from spsample.planning.cluster.layer_rows import layer_rows
    >>> sampler = sp.LADIES([8, 200])
    >>> rows = layer_rows(graph, sp.bulk_sample(graph, range(64), sampler, batch_size=32))
    >>> [expected_draws(graph, one, sampler, s).tolist() for one, s in zip(rows, sampler.sizes)]
    [[25.0, 25.0], [482.0, 482.0]]
    """
    if sampler.replace:
        return np.minimum(np.bincount(frontier.batch, frontier.degrees, len(frontier.sources)), float(s))
    cuts = np.searchsorted(frontier.batch, np.arange(len(frontier.sources) + 1))
    return np.array(
        [_draws_of_batch(graph, frontier, np.arange(*cut), sampler, (s, spare)) for cut in pairwise(cuts)], np.float64
    )


def _draws_of_batch(
    graph: Graph, frontier: LayerRows, rows: Int64Array, sampler: Sampler, size: tuple[int, float]
) -> float:
    columns, degrees = columns_of(graph, frontier, rows), frontier.degrees[rows]
    weights = entry_weights(graph.weighting, sampler.power, degrees)
    each = None if graph.weighting == "unweighted" else np.repeat(weights, degrees)
    return _draws_of(columns, each, graph.num_nodes, *size)


def entry_weights(weighting: str, power: int, degrees: Int64Array) -> FloatArray:
    """What an entry of rows of `degrees` entries is drawn in proportion to: its value, to a power; equal in a row.

    Examples
    --------
    >>> entry_weights("row", 2, np.array([1, 2])).tolist(), entry_weights("unweighted", 2, np.array([1, 2])).tolist()
    ([1.0, 0.25], [1.0, 1.0])
    """
    if weighting == "unweighted":
        return np.ones(len(degrees))
    weights: FloatArray = 1.0 / np.maximum(degrees, 1).astype(np.float64) ** power
    return weights


def graph_draws(graph: Graph, sampler: Sampler, s: int, num_ranges: int, spare: float = SPARE_DRAWS) -> FloatArray:
    """(p/c,): draws of a batch by the range of columns that they go to, where all batches draw columns by their norms.

    At most 2^20 evenly spaced entries tell the distribution; weights are taken for those of a row-normalised graph.
    """
    places = np.arange(0, graph.num_edges, max(graph.num_edges >> 20, 1))
    if len(places) == 0:
        return np.zeros(num_ranges)
    columns, rows = graph.indices[places], np.searchsorted(graph.indptr, places, side="right") - 1
    weights = entry_weights(graph.weighting, sampler.power, graph.indptr[rows + 1] - graph.indptr[rows])
    drawn = min(s, len(columns)) if sampler.replace else _draws_of(columns, weights, graph.num_nodes, s, spare)
    ranges = np.searchsorted(equal_bounds(graph.num_nodes, num_ranges), columns, side="right") - 1
    shares: FloatArray = np.bincount(ranges, weights, num_ranges) / weights.sum()
    return drawn * shares


def _draws_of(columns: Int64Array, weights: FloatArray | None, num_nodes: int, s: int, spare: float) -> float:
    if len(columns) <= s:
        return len(columns)
    shares = _sums_by_column(columns, weights, num_nodes)
    shares /= shares.sum()
    piece = piece_of_draws(s, spare)
    for count in np.arange(piece, ROUND_DRAWS * s, piece).tolist():
        if float(-np.expm1(count * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()) >= s:
            return float(count)
    return float(ROUND_DRAWS * s)


def _sums_by_column(columns: Int64Array, weights: FloatArray | None, num_nodes: int) -> FloatArray:
    """Sums of weights, or how often each column that is there appears."""
    if num_nodes > SPARSE * len(columns):
        columns = np.unique(columns, return_inverse=True)[1]
    counted = np.bincount(columns, weights).astype(np.float64)
    return counted[counted > 0]


__all__ = ["entry_weights", "expected_draws", "graph_draws"]
