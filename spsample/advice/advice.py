"""What a report comes to, in sentences."""

from __future__ import annotations

from spsample.advice.cache_report import CacheReport
from spsample.advice.hits import BEST
from spsample.common.checks import require_type

__all__ = ["advise"]

MANY_ROWS = 0.5
"""Share of all rows in one batch from which on no cache of a part of them can have many hits."""
GOOD_HITS = 0.4
WORTH = 0.9
"""What is left of the bytes where something pays."""


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
    said = [_on_caches(report)]
    said += [sentence for sentence in (_on_bulks(report), _on_partitions(report), _on_copies(report)) if sentence]
    once = _on_first_aggregation(report)
    return [*said, once] if once else said


def _on_caches(report: CacheReport) -> str:
    share = report.rows_per_batch / report.num_nodes
    if share >= MANY_ROWS:
        helps = "larger batches or local seeds do" if _local_seeds_pay(report) else "larger batches do"
        return f"Rows per batch are {share:.0%} of all: no cache of a part helps much; {helps}."
    first = report.hits[0].score
    budgets = sorted({one.budget for one in report.hits})
    for budget in budgets:
        static, known = report.hit(first, "static", budget), report.hit(first, "lookahead", budget)
        if max(static, known) >= GOOD_HITS:
            how = (
                f'replacement="lookahead" ({known:.0%})'
                if known > static + 0.05
                else f"a set that stays ({static:.0%})"
            )
            return f'Cache {budget:.0%} of the rows by score="{first}", with {how} of the rows hit.'
    budget = budgets[-1]
    return (
        f"A cache pays little: with {budget:.0%} of the rows {report.hit(first, 'lookahead', budget):.0%} are hit,"
        f" at best {report.hit(BEST, 'static', budget):.0%} by a set that stays."
    )


def _local_seeds_pay(report: CacheReport) -> bool:
    """Whether local seeds without a cache receive much less than shuffled batches under the same partition."""
    shuffled = {one.method: one.epoch for one in report.partitions if (one.batches, one.cache) == ("shuffled", "none")}
    local = [one for one in report.partitions if (one.batches, one.cache) == ("local", "none")]
    return any(one.epoch <= WORTH * shuffled[one.method] for one in local)


def _on_bulks(report: CacheReport) -> str | None:
    known = [one for one in report.unions if one.k <= report.bulk_size]
    if len(known) < 2 or not known[0].rows_per_batch or known[-1].rows_per_batch > WORTH * known[0].rows_per_batch:
        return None
    k, share = known[-1].k, known[-1].rows_per_batch / known[0].rows_per_batch
    return f'Fetch rows once for a bulk (fetch="bulk"): {k} batches together need {share:.0%} of their rows.'


def _on_partitions(report: CacheReport) -> str | None:
    plain = [one for one in report.partitions if (one.batches, one.method, one.cache) == ("shuffled", "ranges", "none")]
    if not plain or not plain[0].epoch:  # nothing is received
        return None
    best = min(report.partitions, key=lambda one: one.epoch)
    if best.epoch > WORTH * plain[0].epoch:
        return f"On {report.ranks} ranks neither local seeds nor a cache saves much."
    cache = "no cache" if best.cache == "none" else f"a {best.cache} cache of {report.budget:.0%}"
    return (
        f"On {report.ranks} ranks {best.batches} batches, the partition {best.method} and {cache} receive "
        f"{best.epoch / plain[0].epoch:.0%} of the bytes of shuffled batches over ranges."
    )


def _on_copies(report: CacheReport) -> str | None:
    by_method = {one.method: one for one in report.copies}
    if "best-copies" not in by_method:
        return None
    costs = {name: one.host_bytes + report.alpha * one.peer_bytes for name, one in by_method.items()}
    share = costs["best-copies"] / max(report.bytes_per_epoch, 1.0)
    return (
        f"Over {report.ranks} devices that each keep {report.budget:.0%}, best-copies costs {share:.0%} of fetching"
        f" all rows from the host (a row from a peer at {report.alpha:g} of one from the host)."
    )


def _on_first_aggregation(report: CacheReport) -> str | None:
    once = report.first_aggregation
    if once is None:
        return None
    if once.mean_bytes <= WORTH:
        return f"Aggregate features once (spsample precompute): {once.mean_bytes:.0%} of the bytes of rows."
    if once.gcn_bytes <= WORTH:
        return (
            f"Features aggregated once pay for GCN ({once.gcn_bytes:.0%} of the bytes of rows), not for GraphSAGE"
            f" ({once.mean_bytes:.0%})."
        )
    return None
