"""A cache that looks ahead beside rows that stay, in the same memory: hits, and what deciding takes."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.features import CachedFeatures, FeatureStore, Lookahead

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run, scores_of

BULK = 16
"""Batches of a bulk: this one and the next are known."""


def gathered(inputs: Inputs) -> Work:
    """Batches go through a cache twice, in front of rows in memory; in the second pass decisions are timed apart.

    ``bookkeeping`` is the time of announcing and deciding over that of all else in the calls; 0 where rows stay.
    """
    run = Run.of(inputs)
    source = FeatureStore(np.ones((run.graph.num_nodes, inputs["values"]), np.float32))
    scores, budget = scores_of(run, "posterior")[0], int(inputs["share"] * source.num_rows) * 4 * inputs["values"]
    batches = list(islice(run.batches(-(-inputs["batches"] * run.batch_size // len(run.seeds)) + 1), inputs["batches"]))
    out = np.empty((max(map(len, batches)), source.dim), np.float32)

    def work() -> Figures:
        cached = CachedFeatures(source, budget, scores, replacement=inputs["replacement"])
        rows = cached.cached_rows
        _gather(cached, None, batches, out)
        rule = Lookahead(scores, cached.cached_rows) if cached.cached_rows < rows else None
        seconds, apart = _gather(cached, rule, batches, out)
        return {
            "seconds": seconds,
            "batches": len(batches),
            "hits": cached.counts.hit_share,
            "bookkeeping": apart / (seconds - apart),
        }

    return work


def _gather(
    cached: CachedFeatures, rule: Lookahead | None, batches: list[NDArray[Any]], out: NDArray[Any]
) -> tuple[float, float]:
    """Seconds of a pass through the cache, and of the decisions of the same rule, in turn."""
    seconds = apart = 0.0
    for i, ids in enumerate(batches):
        told = batches[i + BULK if i else 0 : i + 2 * BULK] if i % BULK == 0 else []
        begin = time.thread_time()
        if rule is not None:
            rule.announce(told)
            rule.step()
            apart += time.thread_time() - begin
        begin = time.thread_time()
        if told:
            cached.prefetch_hint(told)
        cached.gather(ids, out=out[: len(ids)])
        seconds += time.thread_time() - begin
    return seconds, apart


CASE = Case(
    about="Hits of a cache that looks ahead, and of rows that stay in as many bytes; processor time of deciding.",
    claim="Looking ahead never has fewer hits than rows that stay, by more than a point.",
    parameters={
        "graph": ("planted:100000", "rmat:17,16"),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "batches": (64,),
        "share": (0.01, 0.03, 0.05, 0.1, 0.2),
        "values": (64, 100, 512),
        "threads": (1,),
    },
    quick={"graph": ("rmat:14,16",), "fanouts": ("10,5",), "batches": (32,), "share": (0.1,), "values": (100,)},
    sides=(
        Side("rows that stay", gathered, {"replacement": "static"}),
        Side("lookahead", gathered, {"replacement": "lookahead"}),
    ),
    plots=(
        Plot("hits", x="share", color="side", kind="line", facet="values", title="hits"),
        Plot(
            "bookkeeping", x="share", kind="line", color="graph", facet="values", only="lookahead", title="bookkeeping"
        ),
    ),
)
