"""Training with copies of rows over ranks (Song and Jiang, ICS 2022): where rows come from, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import spsample as sp
from spsample.comm import Communicator, Recorder
from spsample.features import RoutedFeatures

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import sampler_of
from ..traced import Run, dataset_of, scores_of

if TYPE_CHECKING:
    from spsample.training import Trainer


def train(inputs: Inputs) -> Work:
    """From the beginning, all rows in each rank's memory; beside them copies by a ``method``, or a cache of its own."""
    from ..trained import cache_bytes, on_ranks, trained

    data, sampler, method = dataset_of(inputs), sampler_of(inputs), inputs["method"]
    how = {} if method == "none" else {"cache_budget": cache_bytes(inputs, data)}
    if method not in ("none", "cache"):
        how |= {"copies": method, "alpha": inputs["alpha"]}

    def expected(trainer: Trainer) -> Figures:
        """By the scores that the plan is made of."""
        scores, features = scores_of(Run.of(inputs), "posterior")[0], trainer.loader.features
        if not isinstance(features, RoutedFeatures):
            return {}
        return {"expected_cost": features.expected_counts(scores).cost / float(scores.sum())}

    def on_rank(comm: Communicator) -> Figures:
        shared = replace(data, graph=sp.ReplicatedGraph(data.graph, Recorder(comm)))
        figures = trained(inputs, shared, sampler, look=expected, pipeline="sync", **how)
        return {"hits": 0.0, "peer_hits": 0.0, "misses": 1.0, "cost": 1.0, **figures}

    return on_ranks(inputs, on_rank)


_RANKS = ("ranks", "thread_ranks")

CASE = Case(
    about="Training with copies of rows over ranks: rows from here, from peers and from the source, cost and time.",
    claim="A run costs what its plan expects, the least with best-copies, and no copy changes its loss.",
    parameters={
        "graph": ("rmat:14,16",),
        "thread_ranks": (4,),
        "share": (0.1,),
        "alpha": (0.3,),
        "fanouts": ("10,5",),
        "batch_size": (64,),
        "bulk_size": (8,),
        "dim": (64,),
        "hidden": (64,),
        "epochs": (5,),
        "random_seed": (0,),
    },
    quick={"graph": ("rmat:11,16",), "thread_ranks": (2,), "epochs": (2,)},
    sides=(
        Side("no copies", train, {"method": "none"}),
        Side("a cache for each rank", train, {"method": "cache"}),
        Side("best-copies", train, {"method": "best-copies"}),
        Side("Song and Jiang, algorithm 1", train, {"method": "song-jiang"}),
        Side("replicated", train, {"method": "replicated"}),
        Side("interleaved (Data Tiering)", train, {"method": "interleaved"}),
    ),
    baselines=("no copies",),
    plots=(
        Plot("ms", x=_RANKS, title="ms of an epoch"),
        Plot(
            ("hits", "peer_hits", "misses"),
            x=(*_RANKS, "alpha", "share", "side"),
            title="share of rows that are here, on peers and at the source",
        ),
        Plot("cost", x=(*_RANKS, "alpha", "share"), title="cost over that of all rows from the source"),
        Plot("expected_cost", x=(*_RANKS, "alpha", "share"), title="cost that the plan expects"),
    ),
    ranks=True,
)
