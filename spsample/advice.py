"""Ways to move fewer rows of features: `cache_report` measures caches, bulks, copies and partitions on trial epochs.

`advise` says in sentences what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_choice, require_int, require_iterable, require_number, require_type
from spsample.data import partition_quality, partition_vertices
from spsample.errors import BackendError, CapacityError, InputError, MissingDependencyError
from spsample.features import score, score_names
from spsample.features.copies import METHODS, plan_copies
from spsample.features.lookahead import Lookahead
from spsample.features.scores import usual_score
from spsample.features.scores.order import hottest
from spsample.loading import BulkLoader
from spsample.sampling.workload import Workload
from spsample.sparse import keys
from spsample.store import Graph

__all__ = ["CacheReport", "advise", "cache_report"]

Ids = NDArray[np.int64]
Scores = NDArray[np.float64]

BUDGETS = (0.01, 0.05, 0.1, 0.2, 0.25, 0.5)
SCORES = ("posterior", "inclusion", "presc", "reverse-pagerank", "out-degree", "random")
BEST = "the trial's own best set"
"""Stands for a score where hits are those of the vertices that the trial needed most: no set that stays has more."""

PARTITIONS = {
    "ranges": "",
    "metis-seeds": "pymetis is not installed (spsample[metis])",
    "pagraph": "the in-neighbourhoods of all seeds are too large to search, or the compiled core is missing",
}
"""Partitions that are compared, which spread the seeds evenly; and why a report may have none by a method."""

MAX_SEARCHED = 1 << 31
"""Entries of the graph that PaGraph's search of in-neighbourhoods may look at: seconds."""

MAX_IDS = 1 << 27
"""Vertices that a trial keeps, of all batches together; it ends after the epoch that passes it."""

MANY_ROWS = 0.5
"""Share of all rows in one batch from which on no cache of a part of them can have many hits."""
GOOD_HITS = 0.4
WORTH = 0.9
"""Share of the bytes that is left where something pays."""


class Hits(NamedTuple):
    """Share of the needed rows that a cache of `budget`, rows over all rows, has."""

    score: str
    replacement: str
    budget: float
    hits: float


class Union(NamedTuple):
    """Distinct rows of k batches, the mean over the bulks of a trial; and that over k."""

    k: int
    rows: float
    rows_per_batch: float


class Moved(NamedTuple):
    """Bytes of an epoch under a plan of copies, of all devices together: from the host, and from other devices."""

    method: str
    budget: float
    host_bytes: float
    peer_bytes: float


class PartitionBytes(NamedTuple):
    """Bytes of features that ranks receive: of a step on average, on the rank that has most, and of an epoch of all.

    `batches` are "shuffled" or "local"; `cache` is "none", "static" or "lookahead".
    """

    method: str
    batches: str
    cache: str
    mean: float
    largest: float
    epoch: float


class FirstAggregation(NamedTuple):
    """A batch's needs with features aggregated once, over those without: rows, edges, and bytes of rows.

    Rows of "mean" are twice as wide, those of "gcn" as wide as before.
    """

    rows: float
    edges: float
    mean_bytes: float
    gcn_bytes: float


@dataclass(frozen=True)
class CacheReport:
    """Findings of a trial of a workload.

    Attributes
    ----------
    num_nodes, num_batches, bulk_size, row_bytes : int
        Of the graph, of an epoch, of a bulk, of a row.
    rows_per_batch : float
        Rows that a batch needs, the mean.
    bytes_per_epoch : float
        Without any cache, batch by batch.
    hits : list of Hits
        For each score and budget; ``"the trial's own best set"`` is the most that a set which stays can have.
    unions : list of Union
    copies : list of Moved
    partitions : list of PartitionBytes
    ranks : int
        Devices of `copies`, ranks of `partitions`.
    alpha, budget : float
        Of these: cost of a row from a peer over that from the host, rows of each cache over all rows.
    first_aggregation : FirstAggregation or None
        None for a sampler of one layer.
    """

    num_nodes: int
    num_batches: int
    bulk_size: int
    row_bytes: int
    rows_per_batch: float
    bytes_per_epoch: float
    hits: list[Hits]
    unions: list[Union]
    copies: list[Moved]
    partitions: list[PartitionBytes]
    ranks: int
    alpha: float
    budget: float
    first_aggregation: FirstAggregation | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        lists = "hits", "unions", "copies", "partitions"
        plain = {name: [entry._asdict() for entry in getattr(self, name)] for name in lists}
        once = self.first_aggregation
        return {**asdict(self), **plain, "first_aggregation": None if once is None else once._asdict()}

    def hit(self, name: str, replacement: str, budget: float) -> float:
        """Return the share of hits of one cell.

        Raises
        ------
        KeyError
            If it was not measured.
        """
        return {(cell.score, cell.replacement, cell.budget): cell.hits for cell in self.hits}[name, replacement, budget]


class NeededRows(NamedTuple):
    """Vertices whose rows each batch of some epochs needs, in their order, and the sampled edges of all batches."""

    batches: list[Ids]
    epochs: int
    num_edges: int

    @property
    def num_rows(self) -> int:
        """Rows that all batches need, one by one."""
        return sum(map(len, self.batches))

    def counts(self, num_nodes: int) -> Ids:
        """(num_nodes,) how many batches need each vertex."""
        counts = np.zeros(num_nodes, np.int64)
        for batch in self.batches:
            counts[batch] += 1
        return counts


@dataclass(frozen=True, eq=False)
class Loaded:
    """A workload as a loader samples it.

    Attributes
    ----------
    workload : Workload
    row_bytes, bulk_size, random_seed : int
        Bytes of a row; batches that lookahead knows; the random seed of training: trials draw by seeds of their own.
    """

    workload: Workload
    row_bytes: int
    bulk_size: int = 64
    random_seed: int = 0

    def needed(self, epochs: int, **changes: Any) -> NeededRows:
        """Sample some epochs, fewer where they have very many vertices, and keep what their batches need.

        `changes` are other seeds, or another sampler, than those of the workload.

        The epochs are others than those of training, and than those that the scores `presc` and `posterior` count by
        themselves: what is forecast is not measured on what chose the cache.

        Examples
        --------
        >>> import spsample as sp
        >>> work = Workload(sp.Graph([0, 1, 2], [1, 0]), np.array([0, 1]), sp.GraphSAGE([-1]), batch_size=1)
        >>> needed = Loaded(work, row_bytes=4).needed(epochs=2)
        >>> needed.epochs, len(needed.batches), needed.num_rows, needed.counts(2).tolist()
        (2, 4, 8, [4, 4])
        """
        work, seed = replace(self.workload, **changes), keys.trial_seed(keys.trial_seed(self.random_seed))
        sizes: dict[str, Any] = {"batch_size": work.batch_size, "bulk_size": self.bulk_size, "prefetch": 0}
        loader = BulkLoader(work.graph, work.seeds, work.sampler, **sizes, random_seed=seed)
        batches: list[Ids] = []
        num_edges = epoch = rows = 0
        while epoch < epochs and rows < MAX_IDS:
            for bulk in loader.bulks(epoch):
                num_edges += bulk.num_edges
                batches += [np.array(batch.src_nodes, np.int64) for batch in bulk]
            rows, epoch = sum(map(len, batches)), epoch + 1
        return NeededRows(batches, epoch, num_edges)


# ---------------------------------------------------------------------------------------------------------- the report


def cache_report(
    workload: Workload,
    row_bytes: int,
    *,
    bulk_size: int = 64,
    random_seed: int = 0,
    epochs: int = 3,
    scores: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    ranks: int = 4,
    alpha: float = 0.5,
    budget: float = 0.05,
) -> CacheReport:
    """Measure on a trial what would move fewer rows of features.

    Parameters
    ----------
    workload : Workload
        The batches: graph, seeds, sampler and batch size are looked at.
    row_bytes : int
        Bytes of a row of features.
    bulk_size : int
        Batches that are sampled at once: what lookahead knows.
    random_seed : int
        Of training, whose epochs are not those of the trial.
    epochs : int
        Epochs of the trial.
    scores : sequence of str, optional
        Names of scores. None: those of `SCORES` that the sampler allows.
    budgets : sequence of float
        Rows of a cache over all rows, above 0 and at most 1.
    ranks : int
        Devices or ranks that copies and partitions are compared for; at most as many as seeds. 1 leaves both out.
    alpha : float
        Cost of a row from another device over that of one from the host.
    budget : float
        Rows of each of these over all rows.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> work = Workload(sp.load_dataset("rmat:8,4").graph, np.arange(64), sp.GraphSAGE([3, 3]), batch_size=16)
    >>> report = cache_report(work, row_bytes=64, bulk_size=4, budgets=[0.1], ranks=2)
    >>> report.num_batches, report.hit("posterior", "lookahead", 0.1) > report.hit("random", "static", 0.1)
    (4, True)
    """
    work = _checked(workload)
    loaded = Loaded(
        work,
        require_int("row_bytes", row_bytes, minimum=1),
        require_int("bulk_size", bulk_size, minimum=1),
        random_seed,
    )
    best = usual_score(work.graph, work.sampler)
    names, shares = _checked_choices(scores, budgets, budget)
    if not names:
        names = [name for name in SCORES if best == "posterior" or name not in ("posterior", "inclusion")]
    distinct = len(np.unique(work.seeds))
    if require_int("ranks", ranks, minimum=1) > distinct:
        expected = f"at most as many as there are seeds: {distinct}"
        raise InputError(argument="ranks", given=str(ranks), expected=expected, hint="ranks=1 leaves partitions out.")
    require_number("alpha", alpha, lambda x: x > 0, "a number above 0")
    needed = loaded.needed(require_int("epochs", epochs, minimum=1))
    n = work.graph.num_nodes
    made = {
        name: score(name, work.graph, work.seeds, work.sampler, work.batch_size)
        for name in dict.fromkeys([best, *names])
    }
    counts = needed.counts(n)
    bytes_of_epoch = counts / needed.epochs * float(row_bytes)
    return CacheReport(
        num_nodes=n,
        num_batches=len(needed.batches) // needed.epochs,
        bulk_size=bulk_size,
        row_bytes=row_bytes,
        rows_per_batch=needed.num_rows / max(len(needed.batches), 1),
        bytes_per_epoch=float(bytes_of_epoch.sum()),
        hits=[
            *(hits for name, values in made.items() for hits in static_hits(name, values, counts, shares)),
            *lookahead_hits(best, made[best], needed, shares, bulk_size),
            *static_hits(BEST, counts.astype(np.float64), counts, shares),
        ],
        unions=unions(needed, n),
        copies=copies_moved(made[best], bytes_of_epoch, ranks, budget, alpha) if ranks > 1 else [],
        partitions=list(partition_bytes(loaded, needed, made[best], ranks, budget)) if ranks > 1 else [],
        ranks=ranks,
        alpha=alpha,
        budget=budget,
        first_aggregation=_first_aggregation(loaded, needed),
    )


def _first_aggregation(loaded: Loaded, needed: NeededRows) -> FirstAggregation | None:
    sampler = loaded.workload.sampler
    if len(sampler.sizes) < 2 or not needed.num_rows:
        return None
    shorter = loaded.needed(needed.epochs, sampler=sampler.with_sizes(sampler.sizes[:-1]))
    rows = shorter.num_rows / needed.num_rows
    return FirstAggregation(rows, shorter.num_edges / max(needed.num_edges, 1), 2 * rows, rows)


def _checked(workload: Workload) -> Workload:
    """The workload with its seeds as an array, once it is known to be one that can be sampled."""
    require_type("workload", workload, Workload, "a Workload")
    require_type("graph", workload.graph, Graph, "a Graph in memory, or a memory map")
    work = Workload.checked(workload.graph, workload.seeds, workload.sampler, batch_size=workload.batch_size)
    if len(work.seeds) == 0:
        raise InputError(argument="seeds", given="none", expected="at least one seed")
    return work


def _checked_choices(
    scores: Sequence[str] | None, budgets: Sequence[float], budget: float
) -> tuple[list[str], list[float]]:
    """Scores and budgets as lists."""
    names = list(require_iterable("scores", () if scores is None else scores, "names of scores"))
    for name in names:
        require_choice("scores", name, tuple(known for known in score_names() if known != "replay"))
    shares = list(require_iterable("budgets", budgets, "shares of the rows"))
    if not shares:
        raise InputError(argument="budgets", given="none", expected="at least one share of the rows")
    for argument, share in (*(("budgets", share) for share in shares), ("budget", budget)):
        require_number(argument, share, lambda x: 0 < x <= 1, "a share of the rows, above 0 and at most 1")
    return names, shares


# ------------------------------------------------------------------------------------------------ caches, bulks, copies


def static_hits(name: str, scores: Scores, counts: Ids, budgets: list[float]) -> list[Hits]:
    """Hits of the set of largest score, for each budget.

    Examples
    --------
    >>> static_hits("own", np.array([3.0, 2.0, 1.0]), np.array([1, 2, 1]), [0.34, 0.67])[1].hits
    0.75
    """
    gained = np.concatenate([[0], np.cumsum(counts[hottest(scores, len(scores))])])
    total = max(int(gained[-1]), 1)
    return [Hits(name, "static", budget, float(gained[int(budget * len(counts))]) / total) for budget in budgets]


def lookahead_hits(name: str, scores: Scores, needed: NeededRows, budgets: list[float], bulk_size: int) -> list[Hits]:
    """Hits of a cache that knows the batches of this bulk and of the next, and begins with the set of largest score."""
    total = max(needed.num_rows, 1)
    missed = [lookahead_misses(needed.batches, scores, int(budget * len(scores)), bulk_size) for budget in budgets]
    shares = [sum(map(len, misses)) / total for misses in missed]
    return [Hits(name, "lookahead", budget, 1.0 - share) for budget, share in zip(budgets, shares, strict=True)]


def lookahead_misses(batches: Sequence[Ids], scores: Scores, capacity: int, bulk_size: int) -> list[Ids]:
    """The vertices of each batch that a cache misses which knows the batches of this bulk and of the next.

    Examples
    --------
    >>> batches = [np.array([1]), np.array([1]), np.array([0, 1])]
    >>> [misses.tolist() for misses in lookahead_misses(batches, np.array([1.0, 0.0, 0.0]), capacity=1, bulk_size=1)]
    [[1], [], [0]]
    """
    lookahead = Lookahead(scores, capacity)
    lookahead.announce(batches[:bulk_size])
    missed = []
    for first in range(0, len(batches), bulk_size):
        lookahead.announce(batches[first + bulk_size : first + 2 * bulk_size])
        missed += [batch[lookahead.step().misses] for batch in batches[first : first + bulk_size]]
    return missed


def unions(needed: NeededRows, num_nodes: int) -> list[Union]:
    """For k = 1, 2, 4, ... up to the number of batches of the trial; a last bulk of fewer batches is left out.

    Examples
    --------
    >>> unions(NeededRows([np.array([0, 1]), np.array([1, 2])], 1, 0), 3)
    [Union(k=1, rows=2.0, rows_per_batch=2.0), Union(k=2, rows=3.0, rows_per_batch=1.5)]
    """
    batches = needed.batches
    sizes = [1 << i for i in range(len(batches).bit_length())]
    means = []
    for k in sizes:
        bulks = [batches[start : start + k] for start in range(0, len(batches) - k + 1, k)]
        means.append(float(np.mean([np.count_nonzero(NeededRows(bulk, 1, 0).counts(num_nodes)) for bulk in bulks])))
    return [Union(k, mean, mean / k) for k, mean in zip(sizes, means, strict=True)]


def copies_moved(scores: Scores, bytes_of_epoch: Scores, devices: int, budget: float, alpha: float) -> list[Moved]:
    """Bytes under every method, planned by scores and paid by what an epoch needs.

    Parameters
    ----------
    scores : (n,)
    bytes_of_epoch : (n,)
        Bytes of each row that an epoch needs; each device has an equal share of them.
    devices : int
    budget : float
        Rows of a device over all rows.
    alpha : float
        Cost of a row from another device over that of one from the host.

    Examples
    --------
    >>> moved = copies_moved(np.array([2.0, 1.0]), np.array([20.0, 10.0]), devices=2, budget=0.5, alpha=0.5)
    >>> {copies.method: (copies.host_bytes, copies.peer_bytes) for copies in moved}["interleaved"]
    (0.0, 15.0)
    """
    moved = []
    for method in METHODS:
        plan = plan_copies(scores, devices, int(budget * len(scores)), alpha, method=method)
        holders = plan.copies()
        host = float(bytes_of_epoch[holders == 0].sum())
        elsewhere = bytes_of_epoch * (devices - holders) / devices
        moved.append(Moved(method, budget, host, float(elsewhere[holders > 0].sum())))
    return moved


# ---------------------------------------------------------------------------------------------------------- partitions


def partition_bytes(
    loaded: Loaded, needed: NeededRows, scores: Scores, ranks: int, budget: float
) -> Iterator[PartitionBytes]:
    """For each partition and order of batches: without a cache, with one of the largest scores, with lookahead.

    Every rank holds a block row of its own. With local seeds it caches by a score of its own. METIS is left out where
    it is not installed, PaGraph where the search takes too much, or the compiled core is missing; so are local seeds
    where a part has none.
    """
    work = loaded.workload
    how: dict[str, Any] = {"seeds": work.seeds, "hops": len(work.sampler.sizes), "random_seed": loaded.random_seed}
    for method in PARTITIONS:
        if method == "pagraph" and entries_searched(work) > MAX_SEARCHED:
            continue
        try:
            parts = partition_vertices(work.graph.host, ranks, method, **how)
        except (MissingDependencyError, CapacityError, BackendError):
            continue
        orders = {"shuffled": ([needed.batches[rank::ranks] for rank in range(ranks)], [scores] * ranks)}
        own = [work.seeds[parts[work.seeds] == part] for part in range(ranks)]
        if all(len(seeds) for seeds in own):
            name, law = usual_score(work.graph, work.sampler), (work.sampler, work.batch_size)
            own_scores = [score(name, work.graph, seeds, *law, random_seed=loaded.random_seed) for seeds in own]
            orders["local"] = ([loaded.needed(needed.epochs, seeds=seeds).batches for seeds in own], own_scores)
        for order, (batches, scores_of) in orders.items():
            steps = min(map(len, batches))
            for cache, missed in _misses(loaded, batches, scores_of, budget).items():
                received = received_bytes(parts, loaded.row_bytes, [misses[:steps] for misses in missed])
                total = float(received.sum()) * steps / needed.epochs
                yield PartitionBytes(method, order, cache, float(received.mean()), float(received.max()), total)


def entries_searched(work: Workload) -> float:
    """Estimate the entries of the in-neighbourhoods of all seeds, one by one, from those of at most 32.

    Examples
    --------
    >>> import spsample as sp
    >>> ring = sp.Graph(range(7), [5, 0, 1, 2, 3, 4])
    >>> entries_searched(Workload(ring, np.arange(6), sp.GraphSAGE([1, 1]), batch_size=2))
    12.0
    """
    graph, seeds = work.graph.host, np.unique(work.seeds)
    some = seeds[:: -(-len(seeds) // 32)]
    alone = partition_vertices(graph, len(some), "ranges", seeds=some)
    kept = partition_quality(graph, alone, len(some), seeds=some, hops=len(work.sampler.sizes)).edges_kept
    return float(len(seeds) * graph.num_edges * (kept or 0.0))


def _misses(
    loaded: Loaded, batches: list[list[Ids]], scores: list[Scores], budget: float
) -> dict[str, list[list[Ids]]]:
    """By cache: the vertices of each batch of each rank that are not in the rank's own."""
    capacity = int(budget * loaded.workload.graph.num_nodes)
    missed = {"none": batches}
    if capacity:
        per_rank = max(loaded.bulk_size // len(batches), 1)
        ranks = list(zip(batches, scores, strict=True))
        missed["static"] = [static_misses(own, values, capacity) for own, values in ranks]
        missed["lookahead"] = [lookahead_misses(own, values, capacity, per_rank) for own, values in ranks]
    return missed


def static_misses(batches: Sequence[Ids], scores: Scores, capacity: int) -> list[Ids]:
    """The vertices of each batch that are not among those of the largest scores."""
    is_cached = np.zeros(len(scores), np.bool_)
    is_cached[hottest(scores, capacity)] = True
    return [batch[~is_cached[batch]] for batch in batches]


def received_bytes(parts: NDArray[np.integer], row_bytes: int, missed: Sequence[Sequence[Ids]]) -> Scores:
    """(p,) bytes of features that each rank receives in a step, the mean over its steps.

    A rank receives the rows that it has neither in its cache nor in its block, once each, and the requests of others
    for rows of its block.

    Parameters
    ----------
    parts : int array (n,)
        The rank that has each vertex.
    row_bytes : int
        Bytes of a row on its way.
    missed : for each rank the vertices of each of its batches that are not in its cache
        Of as many batches on all ranks.

    Examples
    --------
    >>> parts = np.array([0, 0, 1, 1])
    >>> received_bytes(parts, 8, [[np.array([0, 2, 3])], [np.array([0, 3])]]).tolist()
    [20.0, 16.0]
    """
    id_bytes = 4 if len(parts) < 2**31 else 8
    received = np.zeros(len(missed))
    for rank, batches in enumerate(missed):
        for batch in batches:
            asked = np.bincount(parts[batch], minlength=len(missed))
            asked[rank] = 0
            received[rank] += int(asked.sum()) * row_bytes
            received += asked * id_bytes
    return received / max(len(missed[0]), 1)


# -------------------------------------------------------------------------------------------------------- the sentences


def advise(report: CacheReport) -> list[str]:
    """Return what to do, the first sentence first.

    Raises
    ------
    DTypeError
        If it is no report.

    Examples
    --------
    >>> report = CacheReport(100, 2, 64, 8, 72.0, 1e6, [], [], [], [], 1, 0.5, 0.05, None)
    >>> print(advise(report)[0])
    Rows per batch are 72% of all: no cache of a part helps much; larger batches do.
    """
    require_type("report", report, CacheReport, "a CacheReport")
    parts = (_on_caches, _on_bulks, _on_partitions, _on_copies, _on_first_aggregation)
    return [sentence for part in parts if (sentence := part(report))]


def _on_caches(report: CacheReport) -> str:
    share = report.rows_per_batch / report.num_nodes
    if share >= MANY_ROWS:
        helps = "larger batches or local seeds do" if _local_seeds_pay(report) else "larger batches do"
        return f"Rows per batch are {share:.0%} of all: no cache of a part helps much; {helps}."
    first = report.hits[0].score
    budgets = sorted({hits.budget for hits in report.hits})
    for budget in budgets:
        static, known = report.hit(first, "static", budget), report.hit(first, "lookahead", budget)
        if max(static, known) >= GOOD_HITS:
            how = f"a set that stays ({static:.0%})"
            if known > static + 0.05:
                how = f'replacement="lookahead" ({known:.0%})'
            return f'Cache {budget:.0%} of the rows by score="{first}", with {how} of the rows hit.'
    budget = budgets[-1]
    return (
        f"A cache pays little: with {budget:.0%} of the rows {report.hit(first, 'lookahead', budget):.0%} are hit,"
        f" at best {report.hit(BEST, 'static', budget):.0%} by a set that stays."
    )


def _local_seeds_pay(report: CacheReport) -> bool:
    """Return whether local seeds without a cache receive much less than shuffled batches under the same partition."""
    epochs = {(part.method, part.batches): part.epoch for part in report.partitions if part.cache == "none"}
    local = [method for method, batches in epochs if batches == "local"]
    return any(epochs[method, "local"] <= WORTH * epochs[method, "shuffled"] for method in local)


def _on_bulks(report: CacheReport) -> str | None:
    known = [union for union in report.unions if union.k <= report.bulk_size]
    if len(known) < 2 or not known[0].rows_per_batch or known[-1].rows_per_batch > WORTH * known[0].rows_per_batch:
        return None
    k, share = known[-1].k, known[-1].rows_per_batch / known[0].rows_per_batch
    return f'Fetch rows once for a bulk (fetch="bulk"): {k} batches together need {share:.0%} of their rows.'


def _on_partitions(report: CacheReport) -> str | None:
    plain = [part for part in report.partitions if part[:3] == ("ranges", "shuffled", "none")]
    if not plain or not plain[0].epoch:  # nothing is received
        return None
    best = min(report.partitions, key=lambda part: part.epoch)
    if best.epoch > WORTH * plain[0].epoch:
        return f"On {report.ranks} ranks neither local seeds nor a cache saves much."
    cache = "no cache" if best.cache == "none" else f"a {best.cache} cache of {report.budget:.0%}"
    return (
        f"On {report.ranks} ranks {best.batches} batches, the partition {best.method} and {cache} receive "
        f"{best.epoch / plain[0].epoch:.0%} of the bytes of shuffled batches over ranges."
    )


def _on_copies(report: CacheReport) -> str | None:
    costs = {moved.method: moved.host_bytes + report.alpha * moved.peer_bytes for moved in report.copies}
    if "best-copies" not in costs:
        return None
    share = costs["best-copies"] / max(report.bytes_per_epoch, 1.0)
    return (
        f"Over {report.ranks} devices that each keep {report.budget:.0%}, best-copies costs {share:.0%} of fetching"
        f" all rows from the host (a row from a peer at {report.alpha:g} of one from the host)."
    )


def _on_first_aggregation(report: CacheReport) -> str | None:
    once = report.first_aggregation
    if once is None or once.gcn_bytes > WORTH:
        return None
    if once.mean_bytes <= WORTH:
        return f"Aggregate features once (spsample precompute): {once.mean_bytes:.0%} of the bytes of rows."
    gcn, sage = f"pay for GCN ({once.gcn_bytes:.0%} of the bytes of rows)", f"not for GraphSAGE ({once.mean_bytes:.0%})"
    return f"Features aggregated once {gcn}, {sage}."
