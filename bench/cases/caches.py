"""Which rows a cache should keep: hits by score, against size, trial epochs, fanouts and depth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.features import CachedFeatures, FeatureStore

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run, counts_of, hottest, scores_of

TRIALS = ("posterior", "presc")
"""Scores that sample trial epochs."""


def static(inputs: Inputs) -> Work:
    """The rows of the highest scores stay; the time is that of the scores."""
    run, share = Run.of(inputs), inputs["share"]
    counts = counts_of(run, inputs["epochs"])
    scores, seconds = _scores(inputs, run)

    def work() -> Figures:
        hits, rows = int(counts[hottest(scores, int(share * len(counts)))].sum()), int(counts.sum())
        return {"seconds": seconds, "rows": rows, "hits": hits / max(rows, 1)}

    return work


def lookahead(inputs: Inputs) -> Work:
    """As many rows are kept by their next use, as a loader announces it."""
    run = Run.of(inputs)
    source = FeatureStore(np.zeros((run.graph.num_nodes, 32), np.float32))
    scores, _ = _scores(inputs, run)
    budget = _budget(source, scores, int(inputs["share"] * source.num_rows))

    def work() -> Figures:
        cached = CachedFeatures(source, budget, scores, replacement="lookahead")
        loader = run.loader(features=cached)
        for _epoch in range(inputs["epochs"]):
            for _batch in loader:
                pass
        counts = cached.counts
        return {"rows": counts.hits + counts.misses, "hits": counts.hit_share}

    return work


def _budget(source: FeatureStore, scores: NDArray[Any], rows: int) -> int:
    """Bytes of so many rows with what tells where they are, from two caches that were made."""
    sizes = (source.num_rows * 64, source.num_rows * 96)
    made = [CachedFeatures(source, size, scores, replacement="lookahead") for size in sizes]
    (few, least), (many, most) = ((one.cached_rows, one.nbytes) for one in made)
    return least + -(-(rows - few) * (most - least) // (many - few))


def _scores(inputs: Inputs, run: Run) -> tuple[NDArray[Any], float]:
    name = inputs["score"]
    if name == "best":
        return counts_of(run, inputs["epochs"]), 0.0
    if name == "in-degree":
        return run.graph.in_degrees(), 0.0
    return scores_of(run, name, **({"epochs": inputs["trial_epochs"]} if name in TRIALS else {}))


def _side(name: str, score: str) -> Side:
    return Side(name, static, {"score": score})


CASE = Case(
    about="Hits of caches by the score that chooses their rows, and of one that looks ahead; counts, no times.",
    claim="The posterior is near the best set of the very run for every sampler; looking ahead goes beyond any set.",
    parameters={
        "graph": ("rmat:18,16",),
        "sampler": ("sage",),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "share": (0.01, 0.05, 0.1, 0.2, 0.5),
        "trial_epochs": (3,),
        "epochs": (4,),
    },
    quick={"graph": ("rmat:14,16",), "fanouts": ("10,5",), "share": (0.05, 0.2), "epochs": (2,)},
    sides=(
        _side("best set of the run", "best"),
        _side("posterior", "posterior"),
        _side("inclusion", "inclusion"),
        _side("trial epochs (GNNLab)", "presc"),
        _side("weighted reverse PageRank (Data Tiering)", "reverse-pagerank"),
        _side("out-degree (PaGraph)", "out-degree"),
        _side("in-degree", "in-degree"),
        _side("AliGraph", "aligraph"),
        _side("random", "random"),
        Side("posterior, looking ahead", lookahead, {"score": "posterior"}),
    ),
    plots=(
        Plot("hits", x="share", kind="line", facet="fanouts", title="hits over the share of the rows that are kept"),
        Plot("hits", x="trial_epochs", kind="line", facet="share", title="hits over trial epochs"),
        Plot("hits", x="fanouts", title="hits over depth and fanout"),
    ),
    exact=True,
)
