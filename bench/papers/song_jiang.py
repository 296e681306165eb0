"""Song and Jiang, ICS 2022."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

PAPER = Paper(
    "Rethinking graph data placement for graph neural network training on multiple GPUs",
    (
        Figure(
            "Cost of placements by the paper's formula, and what the device that pays most pays",
            "The paper minimises the largest device (`largest`); no placement's is below the mean of best-copies "
            "(`largest_over_bound` 1). Algorithm 1 stops replacing copies early; it is near where links are fast or "
            "slow, and up to tens of percent above between. Parts cost as their cut lets them.",
            "copies",
            {"alpha": (0.1, 0.3, 0.5, 0.8, 1.0)},
            {"alpha": (0.1, 0.5)},
        ),
        Figure(
            "Preprocessing: placing beside partitioning",
            "As in the paper: placing is a sort, and partitioning takes hundreds of times as long. `score_ms` is the "
            "time of the probabilities that both need.",
            "copies",
            {"devices": (8,), "share": (0.05,), "alpha": (0.3,)},
            {"devices": (4,), "share": (0.1,)},
            plots=(Plot("ms", logarithmic=True, title="ms of a placement"),),
        ),
        Figure(
            "Locality-aware sampling: fetched rows, time and accuracy against the factor",
            "Fewer rows are fetched with each doubling of the factor, and accuracy falls slowly. Rows lie in memory "
            "here, so an epoch does not gain the time that they take: weighted draws make it longer.",
            "locality",
        ),
    ),
)
