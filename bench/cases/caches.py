"""Which rows a cache should keep: hits by score, against size, trial epochs, fanouts and depth."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .. import aligraph  # noqa: F401  # registers its score
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
    about="Hits of caches by the score that chooses their rows; counts, no times.",
    claim="The posterior is near the best set of the very run for every sampler.",
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
    ),
    plots=(Plot("hits", x="share", color=("side", "trial_epochs"), kind="line", facet="fanouts", title="hits"),),
    exact=True,
)
