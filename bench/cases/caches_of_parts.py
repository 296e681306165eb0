"""Hits of the caches of several trainers: on the whole graph, and each on its own part of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from spsample.data import part_dataset, partition_vertices

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run, counts_of, hottest, scores_of


def whole(inputs: Inputs) -> Work:
    """Each trainer samples from all of the graph."""
    run = Run.of(inputs)
    return lambda: _hits(inputs, run, scores_of(run, inputs["score"])[0])


def parts(inputs: Inputs) -> Work:
    """Each trainer has what its batches can reach; scores count the edges of the part, or of all."""
    run = Run.of(inputs)
    everywhere, _ = scores_of(run, inputs["score"])

    def work() -> Figures:
        found = []
        for one, ids in _parts(run, inputs["trainers"], inputs["method"]):
            scores = scores_of(one, inputs["score"])[0] if inputs["edges_of"] == "part" else everywhere[ids]
            found.append(_hits(inputs, one, scores))
        return {name: float(np.mean([one[name] for one in found])) for name in found[0]}

    return work


def _hits(inputs: Inputs, run: Run, scores: Any) -> Figures:
    """Of one trainer, which keeps its share of all rows; and the share of all vertices that it has."""
    n, counts = len(inputs.indptr) - 1, counts_of(run, inputs["epochs"])
    hits = counts[hottest(scores, int(inputs["share"] * n))].sum() / max(counts.sum(), 1)
    return {"hits": float(hits), "vertices": len(counts) / n, "edges_kept": run.graph.num_edges / len(inputs.indices)}


@lru_cache(maxsize=2)
def _parts(run: Run, count: int, method: str) -> list[tuple[Run, Any]]:
    """The run of each part, and its vertices in the whole graph."""
    hops = len(run.sampler.sizes)
    split = partition_vertices(run.graph, count, method, seeds=run.seeds, hops=hops)
    made = (part_dataset(run.dataset, split, count, part, hops=hops) for part in range(count))
    return [(Run(one.graph, one.train_idx, run.sampler, run.batch_size), ids) for one, ids in made]


def _side(name: str, score: str, edges_of: str) -> Side:
    return Side(name, parts, {"score": score, "edges_of": edges_of})


CASE = Case(
    about="Hits of trainers that each keep a share of the rows, with the whole graph and with parts, by their number.",
    claim="With parts of their own the hits of trainers rise with their number, by out-degree within the part as well.",
    parameters={
        "graph": ("rmat:16,16",),
        "sampler": ("sage",),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "method": ("pagraph", "metis-seeds"),
        "share": (0.1,),
        "epochs": (2,),
        "trainers": (1, 2, 4, 8),
    },
    quick={"graph": ("rmat:13,16",), "fanouts": ("10,5",), "method": ("pagraph",), "trainers": (1, 4)},
    sides=(
        Side("whole graph, out-degree", whole, {"score": "out-degree"}),
        Side("whole graph, posterior", whole, {"score": "posterior"}),
        _side("parts, out-degree within the part (PaGraph)", "out-degree", "part"),
        _side("parts, out-degree in the whole graph", "out-degree", "whole"),
        _side("parts, posterior within the part", "posterior", "part"),
    ),
    plots=(
        Plot("hits", x="trainers", kind="line", facet="method", title="hits over trainers"),
        Plot("vertices", x="trainers", kind="line", facet="method", title="share of the vertices that a trainer has"),
    ),
    exact=True,
)
