"""Song, Jiang: rethinking graph data placement for graph neural network training on multiple GPUs (ICS 2022)."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

PAPER = Paper(
    "Song and Jiang (ICS 2022)",
    (
        Figure(
            title="Costs of placements",
            text="By the paper's cost: rows from the host, and alpha for rows of a peer. Mean of the devices, and the "
            "largest (min-max). The algorithm as printed is near the best copies; where alpha >= 1 replication "
            "is best.",
            case="copies",
        ),
        Figure(
            title="Preprocessing",
            text="Seconds of placing, beside those of the scores (score ms). The paper counts in hours what "
            "METIS takes.",
            case="copies",
            parameters={"alpha": (0.3,), "share": (0.1,)},
            plots=(Plot("ms", x="devices", kind="line", logarithmic=True, title="ms of placing"),),
        ),
        Figure(
            title="Training with copies: where rows come from, and what they cost",
            text="The paper places rows so that few come from the host: peers are nearer. Here costs are those that "
            "the plan expects, the least with best copies, and all sides have the same loss. Ranks are threads of one "
            "process, whose peers are as far as the host: no time is won.",
            case="placed",
            parameters={"thread_ranks": (2, 4)},
            quick={"thread_ranks": (2,)},
        ),
        Figure(
            title="Locality-aware sampling: time, fetched rows and accuracy against the factor",
            text="Neighbours that a rank has weigh more, by a factor: fewer rows are fetched, and samples are "
            "biased. Importance weights take the bias of sums back, at the price of variance.",
            case="locality",
            parameters={"graph": ("planted:20000",), "random_seed": (0, 1)},
            quick={"graph": ("planted:3000",), "random_seed": (0,)},
        ),
        Figure(
            title="The device that pays most, where devices need different rows",
            text="Each device has the seeds of its own part by METIS. Of the largest device over the mean, and of the "
            "mean over that of the best copies: the plan for the mean, and the one whose largest device pays less.",
            case="copies",
            parameters={"seeds": ("own part",), "devices": (4, 8), "alpha": (0.3,)},
            sides=("best-copies",),
            plots=(
                Plot("largest_over_mean", x="devices", facet="share", title="largest device over the mean"),
                Plot("mean_over_best", x="devices", facet="share", title="mean over that of best-copies"),
                Plot("ms", x="devices", facet="share", logarithmic=True, title="ms of placing"),
            ),
        ),
    ),
)
