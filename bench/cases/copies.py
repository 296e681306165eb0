"""Copies of rows over devices: what each placement costs by the formula of Song and Jiang (ICS 2022), and its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
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
    """Made of the scores by a method of `plan_copies`; ``head``: of the budget, what every device keeps.

    Where seeds differ by device, methods that know one score get the mean.
    """
    scores, _ = _scores(inputs, inputs.get("score", "posterior"))
    if inputs["method"] in ("interleaved", "song-jiang") and scores.ndim == 2:
        scores = scores.mean(axis=0)
    budget = _budget(inputs)
    how = {"method": inputs["method"], "objective": inputs.get("objective", "mean")}
    how["head"] = int(inputs.get("head", 0) * budget)
    return _paid(inputs, lambda: plan_copies(scores, inputs["devices"], budget, inputs["alpha"], **how))


def parts(inputs: Inputs) -> Work:
    """Each device keeps the hottest rows of its own part: of PaGraph's, of all that its train vertices reach."""
    run, devices = Run.of(inputs), inputs["devices"]
    scores = _scores(inputs, "posterior")[0]
    each = np.broadcast_to(scores, (devices, scores.shape[-1]))
    hops, method = len(run.sampler.sizes), inputs["method"]

    def made() -> CopyPlan:
        split = partition_vertices(run.graph, devices, method, seeds=run.seeds, hops=hops)
        members = [np.flatnonzero(split == device) for device in range(devices)]
        if method == "pagraph":
            members = [part_dataset(run.dataset, split, devices, part, hops=hops)[1] for part in range(devices)]
        kept = [one[hottest(own[one], _budget(inputs))] for own, one in zip(each, members, strict=True)]
        return CopyPlan.of(kept, scores.shape[-1])

    return _paid(inputs, made)


def _paid(inputs: Inputs, make: Callable[[], CopyPlan]) -> Work:
    """The time is that of placing; costs are rows from the host over the rows that are needed.

    `mean` and `largest` device are by the scores that placements are made of, `mean_in_run` by what a batch of a run
    needed. Where all devices have the same score no placement has a mean below that of ``best-copies``.
    """
    (scores, seconds), alpha, devices = _scores(inputs, "posterior"), inputs["alpha"], inputs["devices"]
    least = copy_cost(plan_copies(scores, devices, _budget(inputs), alpha), scores, alpha).mean
    needed = _of_each([counts_of(run, inputs["epochs"]) / len(run.loader()) for run in _runs(inputs)])
    rows, rows_in_run = (np.broadcast_to(one, (devices, one.shape[-1])).sum() / devices for one in (scores, needed))

    def work() -> Figures:
        begin = time.perf_counter()
        placed = make()
        taken, by_score = time.perf_counter() - begin, copy_cost(placed, scores, alpha)
        figures = {"mean": by_score.mean / rows, "largest": by_score.largest / rows}
        in_run = copy_cost(placed, needed, alpha).mean / rows_in_run
        ratios = {"mean_over_best": by_score.mean / least, "largest_over_mean": by_score.largest / by_score.mean}
        return {"seconds": taken, **figures, "mean_in_run": in_run, **ratios, "score_ms": 1e3 * seconds}

    return work


def _scores(inputs: Inputs, name: str) -> tuple[Scores, float]:
    """(n,) scores for all devices, or (devices, n), and the seconds that they took."""
    scores, seconds = zip(*(scores_of(run, name) for run in _runs(inputs)), strict=True)
    return _of_each(scores), sum(seconds)


def _of_each(vectors: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.stack(vectors) if len(vectors) > 1 else vectors[0]


def _runs(inputs: Inputs) -> tuple[Run, ...]:
    """One for all devices; or one for each, with the seeds of its own part."""
    run = Run.of(inputs)
    return (run,) if inputs["seeds"] == "any" else _runs_of_parts(run, inputs["devices"])


@lru_cache(maxsize=4)
def _runs_of_parts(run: Run, devices: int) -> tuple[Run, ...]:
    of_seeds = partition_vertices(run.graph, devices, "metis")[run.seeds]
    return tuple(replace(run, seeds=run.seeds[of_seeds == device]) for device in range(devices))


def _budget(inputs: Inputs) -> int:
    return max(1, int(inputs["share"] * (len(inputs.indptr) - 1)))


CASE = Case(
    about="Placements of feature rows over devices that reach each other at alpha times the cost of the host.",
    claim="Best-copies has the least mean cost; its largest device is near the mean where all need the same.",
    parameters={
        "graph": ("rmat:16,16",),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "devices": (2, 4, 8),
        "share": (0.05, 0.2),
        "alpha": (0.1, 0.3, 0.8),
        "seeds": ("any",),  # or "own part": each device has those of its part by METIS
        "epochs": (2,),
    },
    quick={"graph": ("rmat:14,16",), "fanouts": ("10,5",), "devices": (4,), "share": (0.1,), "alpha": (0.3,)},
    sides=(
        Side("best-copies", plan, {"method": "best-copies"}),
        Side("best-copies, max", plan, {"method": "best-copies", "objective": "max"}),
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
