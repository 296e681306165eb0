"""Pipelines of training: stages in turn, side by side, on ranks of their own, on shared batches, and asynchronously."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import spsample as sp
from spsample.comm import Communicator

from ..case import Case, Figures, Plot, Side, Values, Work
from ..inputs import Inputs
from ..ours import sampler_of
from ..traced import dataset_of

if TYPE_CHECKING:
    from spsample.training import Trainer


def train(inputs: Inputs) -> Work:
    """From the beginning, on the ranks of the launcher, or on threads of one process as ranks."""
    from ..trained import on_ranks, trained

    data, config = dataset_of(inputs), {"pipeline": inputs["pipeline"]}
    if inputs["pipeline"] == "factored":
        config |= {"sampler_ranks": inputs["sampler_ranks"], "switches": bool(inputs.get("switches", True))}
        config |= {"staleness": inputs["staleness"]} if inputs.get("asynchronous") else {}

    def stalest(trainer: Trainer) -> Figures:
        return {"stalest": getattr(trainer.pipeline, "largest_staleness", None) or 0}

    def on_rank(comm: Communicator) -> Figures:
        shared = replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
        return trained(inputs, shared, sampler_of(inputs), look=stalest, **config)

    return on_ranks(inputs, on_rank)


def is_cell(cell: Values) -> bool:
    """Whether a rank is left that trains."""
    ranks = int(cell["ranks"])
    return int(cell["sampler_ranks"]) < (ranks if ranks > 1 else int(cell["thread_ranks"]))


CASE = Case(
    about="Training by every pipeline on ranks: ms of an epoch, stages of the slowest rank, accuracy in the end.",
    claim="Pipelines change when things are done and no sample; asynchronous steps cost accuracy by their staleness.",
    parameters={
        "graph": ("planted:20000",),
        "thread_ranks": (4,),
        "sampler_ranks": (1, 2, 3),
        "staleness": (4,),
        "fanouts": ("15,5",),
        "batch_size": (128,),
        "bulk_size": (8,),
        "hidden": (64,),
        "epochs": (5,),
        "random_seed": (0,),
    },
    quick={"graph": ("planted:3000",), "thread_ranks": (2,), "sampler_ranks": (1,), "epochs": (2,)},
    sides=(
        Side("in turn", train, {"pipeline": "sync"}),
        Side("overlap", train, {"pipeline": "overlap"}),
        Side("cooperative", train, {"pipeline": "cooperative"}),
        Side("factored", train, {"pipeline": "factored"}),
        Side("factored, no switching", train, {"pipeline": "factored", "switches": 0}),
        Side("factored, asynchronous", train, {"pipeline": "factored", "asynchronous": 1}),
    ),
    baselines=("in turn",),
    plots=(
        Plot("ms", x=("ranks", "thread_ranks", "sampler_ranks"), title="ms of an epoch"),
        Plot(
            ("sampling_ms", "features_ms", "training_ms", "waiting_ms"),
            x=("ranks", "thread_ranks", "sampler_ranks", "side"),
            title="stages of the slowest rank",
        ),
        Plot("accuracy", x="staleness", kind="line", facet="random_seed", title="accuracy by staleness"),
    ),
    ranks=True,
    valid=is_cell,
)
