"""Copies of rows over devices: what each placement costs by the formula of Song and Jiang (ICS 2022), and its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.data import part_dataset, partition_vertices
from spsample.features import CopyPlan, copy_cost, plan_copies

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run, counts_of, hottest, scores_of

Scores = NDArray[Any]


def plan(inputs: Inputs) -> Work:
    """Made of the scores by a method of `plan_copies`; ``head``: of the budget, what every device keeps."""
    run = Run.of(inputs)
    scores, _ = scores_of(run, inputs.get("score", "posterior"))
    budget = _budget(inputs)
    how = {"method": inputs["method"], "head": int(inputs.get("head", 0) * budget)}
    return _paid(inputs, run, lambda: plan_copies(scores, inputs["devices"], budget, inputs["alpha"], **how))


def parts(inputs: Inputs) -> Work:
    """Each device keeps the hottest rows of its own part: of PaGraph's, of all that its train vertices reach."""
    run, devices = Run.of(inputs), inputs["devices"]
    scores, _ = scores_of(run, "posterior")
    hops, method = len(run.sampler.sizes), inputs["method"]

    def made() -> CopyPlan:
        split = partition_vertices(run.graph, devices, method, seeds=run.seeds, hops=hops)
        members = [np.flatnonzero(split == device) for device in range(devices)]
        if method == "pagraph":
            members = [part_dataset(run.dataset, split, devices, part, hops=hops)[1] for part in range(devices)]
        return CopyPlan.of([one[hottest(scores[one], _budget(inputs))] for one in members], len(scores))

    return _paid(inputs, run, made)


def _paid(inputs: Inputs, run: Run, make: Callable[[], CopyPlan]) -> Work:
    """The time is that of placing; costs are rows from the host over the rows that are needed.

    `mean` and `largest` device are by the scores that placements are made of, `mean_in_run` by what the batches of a
    run needed. No placement has a mean below that of ``best-copies``, and so no largest device either: `over_bound`.
    """
    (scores, seconds), alpha, devices = scores_of(run, "posterior"), inputs["alpha"], inputs["devices"]
    least = copy_cost(plan_copies(scores, devices, _budget(inputs), alpha), scores, alpha).mean
    needed, total = counts_of(run, inputs["epochs"]), float(scores.sum())

    def work() -> Figures:
        begin = time.perf_counter()
        placed = make()
        taken, by_score = time.perf_counter() - begin, copy_cost(placed, scores, alpha)
        figures = {"mean": by_score.mean / total, "largest": by_score.largest / total}
        in_run = copy_cost(placed, needed, alpha).mean / needed.sum()
        bounds = {"mean_over_best": by_score.mean / least, "largest_over_bound": by_score.largest / least}
        return {"seconds": taken, **figures, "mean_in_run": in_run, **bounds, "score_ms": 1e3 * seconds}

    return work


def _budget(inputs: Inputs) -> int:
    return max(1, int(inputs["share"] * (len(inputs.indptr) - 1)))


CASE = Case(
    about="Placements of feature rows over devices that reach each other at alpha times the cost of the host.",
    claim="Best-copies has the least mean cost; its largest device is near the bound that no placement passes.",
    parameters={
        "graph": ("rmat:16,16",),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "devices": (2, 4, 8),
        "share": (0.05, 0.2),
        "alpha": (0.1, 0.3, 0.8),
        "epochs": (2,),
    },
    quick={"graph": ("rmat:14,16",), "fanouts": ("10,5",), "devices": (4,), "share": (0.1,), "alpha": (0.3,)},
    sides=(
        Side("best-copies", plan, {"method": "best-copies"}),
        Side("Song and Jiang, algorithm 1", plan, {"method": "song-jiang"}),
        Side("replicated", plan, {"method": "replicated"}),
        Side("replicated by degree", plan, {"method": "replicated", "score": "out-degree"}),
        Side("interleaved (Data Tiering)", plan, {"method": "interleaved"}),
        Side("interleaved, half as head", plan, {"method": "interleaved", "head": 0.5}),
        Side("parts: PaGraph", parts, {"method": "pagraph"}),
        Side("parts: METIS", parts, {"method": "metis"}),
        Side("parts: random", parts, {"method": "random"}),
    ),
    baselines=("best-copies",),
    plots=(
        Plot("mean", x="alpha", color=("side", "share"), kind="line", facet="devices", title="mean cost"),
        Plot("largest", x="alpha", color=("side", "share"), kind="line", facet="devices", title="cost of the largest"),
    ),
    exact=True,
)
