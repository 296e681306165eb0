"""What caches would save: workloads, reports, advice."""

from __future__ import annotations

from case import Case

from spsample.advice import advise, cache_report
from spsample.sampling.workload import Workload


def workload(make):
    """Nearly right; a workload is checked where it is sampled."""
    graph = make.sound_graph()
    return Workload(
        make.either(lambda: graph, 0.03),
        make.either(lambda: make.spoilt(make.rng.integers(0, graph.num_nodes, make.integer(0, 20))), 0.05),
        make.either(make.sound_sampler, 0.03),
        make.either(lambda: make.choice([1, 4, 10**400]), 0.05),
    )


def fuzz_cache_report(make, folder):
    options = {"epochs": make.few(lambda: make.choice([1, 2, 0])), "ranks": make.few(lambda: make.integer(0, 4))}
    options |= make.options(
        0.3,
        scores=lambda: make.choice([["out-degree"], ["presc", "random"], ["replay"], []]),
        budgets=lambda: make.choice([[0.1], [0.5, 1], [0], [1.5], []]),
        alpha=lambda: make.choice([0.5, 1, 2, 0, float("nan"), 10**400]),
        budget=lambda: make.choice([0.1, 1, 0, -1]),
        bulk_size=lambda: make.choice([1, 3]),
        random_seed=lambda: make.choice([0, 2**63]),
    )
    work = make.either(lambda: workload(make), 0.05)
    report = cache_report(work, make.either(lambda: 16, 0.05), **options)
    report.as_dict(), repr(report)
    advise(make.either(lambda: report, 0.1))


CASES = {"cache_report": Case(fuzz_cache_report, (cache_report, advise))}
