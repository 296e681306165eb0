"""Yang et al.: GNNLab, a factored system for sample-based GNN training (EuroSys 2022)."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

_SCORES = ("best set", "trial epochs", "out-degree", "random")

PAPER = Paper(
    "GNNLab (EuroSys 2022)",
    (
        Figure(
            title="Hits by score against the size of the cache",
            text="PreSC keeps what trial epochs visited most, and is near the best set, where degree is not. Here too; "
            "counts that are shrunk towards inclusion probabilities (posterior) are nearer still.",
            case="caches",
            sides=(*_SCORES, "posterior"),
            plots=(Plot("hits", x="share", kind="line", title="hits over the share of the rows that are kept"),),
        ),
        Figure(
            title="Hits against trial epochs",
            text="One trial epoch is nearly enough in the paper, where a third of the vertices are train vertices.",
            case="caches",
            parameters={"share": (0.1,), "trial_epochs": (1, 2, 3, 5)},
            quick={"share": (0.1,), "trial_epochs": (1, 3)},
            sides=("best set", "trial epochs", "posterior"),
            plots=(Plot("hits", x="trial_epochs", kind="line", title="hits over trial epochs"),),
        ),
        Figure(
            title="Factored against time-shared, over samplers and trainers",
            text="A factored system gives some ranks the graph and the others the cache. In the paper it gains by the "
            "memory of the GPU that it frees; ranks that are processes of one machine share its cores and gain less.",
            case="pipelines",
        ),
    ),
)
