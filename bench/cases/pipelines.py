"""Pipelines of training: stages in turn, side by side, on ranks of their own, on shared batches, and asynchronously."""

from __future__ import annotations

from dataclasses import replace

import spsample as sp
from spsample.comm import Communicator, run_threads

from ..case import Case, Figures, Plot, Side, Values, Work
from ..inputs import Inputs
from ..ours import sampler_of
from ..ranks import together
from ..traced import dataset_of


def train(inputs: Inputs) -> Work:
    """From the beginning, on the ranks of the launcher, or on threads of one process as ranks."""
    from ..trained import trained

    data, config = dataset_of(inputs), {"pipeline": inputs["pipeline"]}
    if inputs["pipeline"] == "factored":
        config |= {"sampler_ranks": inputs["sampler_ranks"], "switches": bool(inputs.get("switches", True))}
        config |= {"staleness": inputs["staleness"]} if inputs.get("asynchronous") else {}

    def on_rank(comm: Communicator) -> Figures:
        shared = replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
        return trained(inputs, shared, sampler_of(inputs), **config)

    def on_threads() -> Figures:
        ranks = run_threads(inputs["thread_ranks"], on_rank, timeout=3600.0)
        done = together([{"seconds": one["seconds"], "cpu_seconds": 0.0, "figures": one} for one in ranks])
        return {**done["figures"], "seconds": done["seconds"]}

    return on_threads if inputs.comm is None else lambda: on_rank(inputs.comm)


def is_cell(cell: Values) -> bool:
    """Whether a rank is left that trains."""
    ranks = int(cell["ranks"])
    return int(cell["sampler_ranks"]) < (ranks if ranks > 1 else int(cell["thread_ranks"]))


CASE = Case(
    about="Training by every pipeline on ranks: ms of an epoch, stages of the slowest rank, accuracy in the end.",
    claim="Pipelines change when things are done and no sample; staleness up to a bound costs no accuracy.",
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
        Plot(("sampling_ms", "features_ms", "training_ms", "waiting_ms"), x="side", title="stages of the slowest rank"),
        Plot("accuracy", x="staleness", kind="line", facet="random_seed", title="accuracy by staleness"),
    ),
    ranks=True,
    valid=is_cell,
)
