"""Locality-aware sampling (Song and Jiang, ICS 2022): rows that are fetched, time and accuracy against the factor."""

from __future__ import annotations

import spsample as sp
from spsample.features import draw_shift

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import sampler_of
from ..traced import Run, dataset_of, hottest, scores_of


def train(inputs: Inputs) -> Work:
    """With a share of the rows cached, those of the highest posterior, which draws prefer by the factor."""
    from ..trained import trained

    data, run = dataset_of(inputs), Run.of(inputs)
    cached = hottest(scores_of(run, "posterior")[0], int(inputs["share"] * data.graph.num_nodes))
    sampler = sp.Biased(sampler_of(inputs), cached, inputs["factor"], importance_weights=bool(inputs["weights"]))
    shift = draw_shift(data.graph, data.train_idx, sampler, inputs["batch_size"], epochs=2)
    fetched = {"fetched": shift.biased_rows, "fetched_over_plain": shift.biased_rows / max(shift.rows, 1)}

    def work() -> Figures:
        figures = trained(inputs, data, sampler, pipeline="sync")
        figures.pop("stalest")
        return {**figures, **fetched, "total_variation": shift.total_variation}

    return work


CASE = Case(
    about="Training where draws prefer cached vertices: rows of a batch that are fetched, ms of an epoch, accuracy.",
    claim="The larger the factor, the fewer rows are fetched; up to 4 it costs hardly any accuracy.",
    parameters={
        "graph": ("planted:20000",),
        "fanouts": ("15,5",),
        "batch_size": (512,),
        "bulk_size": (16,),
        "hidden": (64,),
        "epochs": (10,),
        "share": (0.1,),
        "random_seed": (0,),
        "factor": (1.0, 2.0, 4.0, 8.0, 16.0),
    },
    quick={"graph": ("planted:3000",), "batch_size": (128,), "epochs": (2,), "factor": (1.0, 4.0)},
    sides=(
        Side("preferred", train, {"weights": 0}),
        Side("preferred, with importance weights", train, {"weights": 1}),
    ),
    plots=(
        Plot("fetched", x="factor", kind="line", title="rows of a batch that are fetched"),
        Plot("accuracy", x="factor", kind="line", facet="random_seed", title="accuracy"),
        Plot("ms", x="factor", kind="line", title="ms of an epoch"),
    ),
)
