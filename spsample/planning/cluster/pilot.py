"""`Pilot`: a few batches that are sampled on one machine, and the counts of bulks on any grid that they promise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, log, log2, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.common.lazily import lazily
from spsample.distributed.placement import balanced
from spsample.distributed.rounds import SPARE_DRAWS
from spsample.errors import InputError
from spsample.planning.bulk_counts import GraphProfile, Trial
from spsample.planning.cluster.counting import (
    LayerCounting,
    LayerRows,
    RankCounts,
    count_by_owner,
    count_sources,
    distinct,
    hop_counts,
    layer_rows,
    longest_rows,
)
from spsample.planning.cluster.exchanges import BlockRows, FloatArray, GridShape, hub_rows
from spsample.sampling import BulkSample, Sampler
from spsample.sampling.arguments import check_arguments
from spsample.sampling.workload import Workload
from spsample.store import Graph


class Visits:
    """Distinct things that batches visit, from m of them: vertices, or entries of their rows, by block row.

    Up to m batches the expected number of distinct things is that of choosing some of the m batches (rarefaction, exact
    in the mean). Beyond, it grows as a power of the number of batches whose exponent falls from doubling to doubling as
    it did before. On R-MAT graphs that was within 2.5 % up to eight times as many batches as 16 to 64.

    Parameters
    ----------
    histogram : array (m + 1, p/c)
        Things of each block row by the number of batches that visited them; `histogram[0]` is not used.
    unvisited : float
        Things that no batch visited, of all block rows.

    Examples
    --------
    >>> visits = Visits(np.array([[0.0], [8.0], [1.0]]), unvisited=90)  # eight in one of two batches, one in both
    >>> [visits.distinct(j).tolist() for j in (1, 2)], visits.distinct(3) > 9
    ([[5.0], [9.0]], array([ True]))
    """

    def __init__(self, histogram: FloatArray, unvisited: float) -> None:
        self._histogram, self._batches = histogram[1:], len(histogram) - 1
        self._all = float(self._histogram.sum()) + max(unvisited, 0.0)

    def distinct(self, batches: int) -> FloatArray:
        """(p/c,): expected number of distinct things of each block row that `batches` batches visit."""
        m = self._batches
        known: FloatArray = seen(m, min(batches, m)) @ self._histogram
        if batches <= m:
            return known
        return known * min(self._growth(log2(batches / m)), self._all / max(float(known.sum()), 1e-300))

    def _growth(self, doublings: float) -> float:
        """Distinct things over those of m batches, after a number of doublings of the batches."""
        m = self._batches
        last, before = self._exponent(m), self._exponent(m // 2)
        fall = max(before - last, 0.0)
        if fall > 0:
            doublings = min(doublings, max(last / fall - 0.5, 0.0))
        return float(2.0 ** (doublings * last - fall * doublings * (doublings + 1) / 2))

    def _exponent(self, batches: int) -> float:
        """The power with which distinct things grew from half of the batches; 1 where there is no half."""
        half = batches // 2
        if half == 0:
            return 1.0
        more, fewer = (max(float((seen(self._batches, j) @ self._histogram).sum()), 1e-300) for j in (batches, half))
        return log(more / fewer) / log(batches / half)


def seen(pilots: int, batches: int) -> FloatArray:
    """For f = 1 .. m, the probability that something visited by f of m batches is visited by some of j chosen ones.

    It is missed with probability C(m - f, j) / C(m, j).

    Examples
    --------
    >>> seen(4, 2).round(3).tolist()
    [0.5, 0.833, 1.0, 1.0]
    """
    left = pilots - np.arange(1, pilots + 1)
    missed = np.exp(_choose(np.maximum(left, batches), batches) - _choose(pilots, batches))
    return 1.0 - np.where(left >= batches, missed, 0.0)


def _choose(n: NDArray[Any] | int, k: NDArray[Any] | int) -> FloatArray:
    """log C(n, k)."""
    n, k = np.asarray(n, np.float64), np.asarray(k, np.float64)
    logs: FloatArray = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs


FIRST_PILOTS, MAX_PILOTS = 2, 64
MERGED_BATCHES = 8  # pilots whose columns are merged, which takes longer
MAX_EDGES, MAX_ENTRIES = 1 << 24, 1 << 25  # edges of the pilots; and entries of the rows they come from (layer-wise)


class _Layer(NamedTuple):
    """A frontier of the pilots and s of it; its distinct vertices, their degrees, how many batches have each."""

    frontier: LayerRows
    size: int
    vertices: Int64Array
    degrees: Int64Array
    times: Int64Array


@dataclass(frozen=True, eq=False)
class Pilot:
    """Batches sampled here, and how bulks on a cluster follow from them.

    Where the graph is not here, the pilots come from a smaller one of the same kind (`scaled_pilot`): every number of
    vertices, seeds and edges is `scale` times as large in the graph that is planned for.

    Attributes
    ----------
    profile : GraphProfile
        The graph that is planned for.
    sampler : Sampler
        The sampler that is planned for.
    batch_size, num_batches : int
        b, and the batches of an epoch.
    graph : Graph
        What the pilots were sampled from.
    bulk : BulkSample
        The pilots.
    scale : float
    seconds : float
        Time that they took.
    seeds : int64 array
        Seeds of an epoch on the graph that the pilots were sampled from.
    """

    profile: GraphProfile
    sampler: Sampler
    batch_size: int
    num_batches: int
    graph: Graph
    bulk: BulkSample
    scale: float = 1.0
    seconds: float = 0.0
    seeds: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @lazily
    def layers(self) -> list[_Layer]:
        """Frontiers of the pilots, nearest the seeds first."""
        sizes = self.bulk.sampler.sizes
        layers = []
        for frontier, s in zip(layer_rows(self.graph, self.bulk), sizes, strict=True):
            _, vertices, degrees = distinct(np.zeros_like(frontier.batch), frontier)
            times = np.unique(frontier.vertices, return_counts=True)[1]
            layers.append(_Layer(frontier, s, vertices, degrees, times))
        return layers


def _visits(graph: Graph, layer: _Layer, blocks: BlockRows) -> tuple[Visits, Visits]:
    """Count the visits of batches to vertices, and to entries of their rows, that are no hubs, by block row."""
    owners, shape = blocks.owners(layer.vertices), (len(layer.frontier.sources) + 1, blocks.num_blocks)
    rows = count_by_owner(layer.times, owners, shape)
    entries = count_by_owner(layer.times, owners, shape, layer.degrees)
    hub_entries = int((graph.indptr[blocks.hubs + 1] - graph.indptr[blocks.hubs]).sum())
    return (
        Visits(rows, graph.num_nodes - len(blocks.hubs) - rows.sum()),
        Visits(entries, graph.num_edges - hub_entries - entries.sum()),
    )


class GridPilot:
    """The pilots' counts on one grid.

    Ranks differ as the pilots do that stand for their batches: where owners choose what they send, it is not what they
    would choose for the mean batch.

    Parameters
    ----------
    pilot : Pilot
    shape : GridShape
    hub_budget : int
        Bytes of hub rows that every rank holds. The rest are block rows with about the same number of entries.
    with_stages : bool
        Also count what only the algorithms in stages need.
    """

    def __init__(self, pilot: Pilot, shape: GridShape, hub_budget: int = 0, *, with_stages: bool = True) -> None:
        hubs = hub_rows(pilot.graph, int(hub_budget / pilot.scale), pilot.profile.entry_bytes)
        blocks = BlockRows(balanced(pilot.graph.indptr, shape.num_blocks).bounds, hubs)
        self._pilot, self._shape, self._blocks = pilot, shape, blocks
        graph, sampler = pilot.graph, pilot.bulk.sampler
        spare = SPARE_DRAWS / pilot.scale
        layers = (
            LayerCounting(graph, sampler, layer.frontier, layer.size, shape, blocks, MERGED_BATCHES, spare)
            for layer in pilot.layers
        )
        self._counts = [layer.counts(with_stages=with_stages) for layer in layers]
        self._visits = [_visits(graph, layer, blocks) for layer in pilot.layers]
        self._inputs = count_sources(pilot.layers[-1].frontier, graph.num_nodes, shape)

    def counts(self, bulk_size: int) -> RankCounts:
        """Predicted counts of a bulk of `bulk_size` batches over all ranks."""
        pilot, shape, blocks = self._pilot, self._shape, self._blocks
        hops = []
        for hop, (counts, layer) in enumerate(zip(self._counts, pilot.layers, strict=True)):
            to_ranks = _PredictedRanks(pilot, shape, bulk_size, self._visits[hop], all_distinct=hop == 0)
            most = ceil(pilot.scale * int(layer.frontier.sources.max(initial=0)))
            hops.append(hop_counts(to_ranks, counts, layer.frontier, blocks, shape, most))
        rows, entries = np.diff(blocks.starts), np.diff(pilot.graph.indptr[blocks.starts])
        return RankCounts(
            shape=shape,
            batches=shape.batches(bulk_size),
            hops=tuple(hops),
            inputs=_PredictedRanks(pilot, shape, bulk_size, self._visits[0], all_distinct=True).by_rank(self._inputs),
            block_rows=rows * (pilot.profile.num_nodes / pilot.graph.num_nodes),
            block_entries=entries * (pilot.profile.num_edges / max(pilot.graph.num_edges, 1)),
            block_longest=longest_rows(pilot.graph, blocks),
        )


class _PredictedRanks:
    """The batches of ranks are like the pilots that are assigned to them; in the mean, like all pilots."""

    def __init__(
        self,
        pilot: Pilot,
        shape: GridShape,
        bulk_size: int,
        visits: tuple[Visits, Visits],
        *,
        all_distinct: bool,
    ) -> None:
        self._scale, self._visits, self._all_distinct = pilot.scale, visits, all_distinct
        self._batches = shape.batches(bulk_size)
        self._groups = shape.group_batches(bulk_size)

    def by_rank(self, per_batch: FloatArray) -> FloatArray:
        means = np.multiply.outer(self._batches, self._scale * per_batch.mean(axis=0))
        varied: FloatArray = means * self._shares(per_batch, self._batches)
        return varied

    def most_by_rank(self, per_batch: FloatArray) -> FloatArray:
        most = per_batch.max(axis=0, initial=0.0)
        return np.broadcast_to(most, (len(self._batches), *most.shape))

    def distinct_rows(self, frontier: LayerRows, blocks: BlockRows, *, grouped: bool) -> tuple[FloatArray, FloatArray]:
        batches = self._groups if grouped else self._batches
        owners, cells = blocks.owners(frontier.vertices), (len(frontier.sources), blocks.num_blocks)
        weights = (1.0, frontier.degrees)
        per_batch = (count_by_owner(frontier.batch, owners, cells, values) for values in weights)
        rows, entries = (
            self._shares(counted, batches) * self._united(visits, batches)
            for counted, visits in zip(per_batch, self._visits, strict=True)
        )
        return rows, entries

    def _shares(self, per_batch: FloatArray, batches: Int64Array) -> FloatArray:
        """Shares of the pilots that stand for a rank's, or a row group's, batches, over the mean; 1 in the mean."""
        n, mean = len(per_batch), per_batch.mean(axis=0)
        own = np.stack([per_batch[pilots].sum(axis=0) for pilots in assigned(n, batches)])
        expected = np.multiply.outer(batches, mean)
        own = expected + (own - expected) / sqrt(self._scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = own / expected * (expected.sum(axis=0) / own.sum(axis=0))
        return np.where(np.isfinite(shares), shares, 1.0)

    def _united(self, visits: Visits, batches: Int64Array) -> FloatArray:
        """Distinct things that each number of batches visits, by block row. Seeds of different batches differ."""
        sizes = {j: visits.distinct(1) * j if self._all_distinct else visits.distinct(j) for j in set(batches.tolist())}
        return np.stack([sizes[j] for j in batches.tolist()]) * self._scale


def assigned(pilots: int, batches: Int64Array) -> list[Int64Array]:
    """Return the pilots that stand for the batches of each rank, in turn, the next time shifted by one.

    Examples
    --------
    >>> [places.tolist() for places in assigned(4, np.array([2, 2, 1]))]
    [[0, 3], [1, 1], [2]]
    >>> [places.tolist() for places in assigned(2, np.array([2, 2]))]
    [[0, 1], [1, 0]]
    """
    ranks = len(batches)
    places = [rank + ranks * np.arange(m) for rank, m in enumerate(batches.tolist())]
    return [(place + place // pilots) % pilots for place in places]


def sample_pilot(graph: Graph, seeds: Any, sampler: Sampler, *, batch_size: int, feature_bytes: int = 0) -> Pilot:
    """Sample a pilot on a graph that is here: the first batches of a fixed order, at most 64.

    Parameters
    ----------
    graph : Graph
    seeds : array-like of int
        Seeds of an epoch.
    sampler : Sampler
    batch_size : int
    feature_bytes : int
        Bytes of a vertex's features.

    Raises
    ------
    InputError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> pilot = sample_pilot(graph, range(1024), sp.GraphSAGE([5, 5]), batch_size=32)
    >>> len(pilot.bulk), GridPilot(pilot, GridShape(4)).counts(8).hops[0].pairs.sum().round().item()
    (32, 256.0)
    """
    ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
    if len(ids) == 0:
        raise InputError(argument="seeds", given="none", expected="at least one seed")
    trial = _cheap_trial(graph, Workload(graph, ids, sampler, batch_size, shuffle=True).pilots(MAX_PILOTS))
    return Pilot(
        profile=GraphProfile.of(graph, feature_bytes),
        sampler=sampler,
        batch_size=batch_size,
        num_batches=-(-len(ids) // batch_size),
        graph=graph,
        bulk=trial.bulk,
        seconds=trial.seconds,
        seeds=ids,
    )


def _cheap_trial(graph: Graph, pilots: Workload) -> Trial:
    """Sample as many of the first pilots as are cheap, judged by the first two."""
    first = Trial.of(pilots.part(0, FIRST_PILOTS)).bulk
    batches = max(len(first), 1)
    cheap = MAX_EDGES * batches // max(first.num_edges, 1)
    if pilots.sampler.kind == "layer-wise":
        entries = sum(int(frontier.degrees.sum()) for frontier in layer_rows(graph, first))
        cheap = min(cheap, MAX_ENTRIES * batches // max(entries, 1))
    return Trial.of(pilots.part(0, max(cheap, FIRST_PILOTS)))


def scaled_pilot(
    smaller: Graph,
    sampler: Sampler,
    *,
    num_nodes: int,
    num_edges: int,
    num_seeds: int,
    batch_size: int,
    feature_bytes: int = 0,
) -> Pilot:
    """A pilot for a graph that is not here, on a smaller one like it.

    Assumed: the smaller graph has the degrees of the other one, and seeds are spread evenly over the vertices that have
    in-neighbours. What a batch of b seeds on n vertices visits is then, with every number divided by `scale`, what a
    batch of b / scale seeds visits on n / scale vertices (fanouts stay, layer sizes are divided too): whether a vertex
    is visited depends on the share of its neighbours that are. The longest rows of a real graph grow with it; those of
    the smaller one do not.

    Parameters
    ----------
    smaller : Graph
        With about the same average degree, weighted or not as the other one is.
    sampler : Sampler
    num_nodes, num_edges : int
        Size of the graph that is planned for.
    num_seeds, batch_size : int
        Seeds of an epoch, and of a batch.
    feature_bytes : int
        Bytes of a vertex's features.

    Raises
    ------
    InputError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> smaller = sp.load_dataset("rmat:12,8").graph
    >>> size = {"num_nodes": 10**6, "num_edges": 15 * 10**6}
    >>> pilot = scaled_pilot(smaller, sp.GraphSAGE([5]), **size, num_seeds=10**5, batch_size=1024)
    >>> pilot.num_batches, pilot.scale, GridPilot(pilot, GridShape(4)).counts(8).hops[0].pairs.sum().round().item()
    (98, 256.0, 8192.0)
    """
    scale = max(require_int("num_nodes", num_nodes, minimum=1) / smaller.num_nodes, 1.0)
    batch_size = require_int("batch_size", batch_size, minimum=1)
    few = max(round(batch_size / scale), 1)
    scale = batch_size / few
    seeds = np.flatnonzero(np.diff(smaller.indptr))
    fewer = sampler
    if sampler.kind != "node-wise":  # layer sizes are divided, fanouts stay
        fewer = sampler.with_sizes([max(round(s / scale), 1) for s in sampler.sizes])
    pilot = sample_pilot(smaller, seeds, fewer, batch_size=few)
    profile = replace(
        pilot.profile,
        num_nodes=num_nodes,
        num_edges=require_int("num_edges", num_edges, minimum=0),
        id_bytes=4 if num_nodes < 2**31 else 8,
        feature_bytes=feature_bytes,
    )
    num_batches = -(-require_int("num_seeds", num_seeds, minimum=1) // batch_size)
    return replace(pilot, profile=profile, sampler=sampler, batch_size=batch_size, num_batches=num_batches, scale=scale)
