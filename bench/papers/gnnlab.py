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
            parameters={"graph": ("planted:20000",)},
            quick={"graph": ("planted:3000",)},
            sides=("in turn", "overlap", "factored"),
            plots=(
                Plot("ms", x="sampler_ranks", title="ms of an epoch by ranks that sample, of four"),
                Plot(
                    ("sampling_ms", "features_ms", "training_ms", "waiting_ms"),
                    x=("sampler_ranks", "side"),
                    title="stages of the slowest rank",
                ),
            ),
        ),
        Figure(
            title="Accuracy against the bound on staleness",
            text="With as many epochs a bound of 0 has the accuracy of steps that ranks take together (in turn), and "
            "some points are lost from 4 on. The paper trains until it converges, in more updates (its figure 16).",
            case="pipelines",
            parameters={
                "graph": ("planted:20000",),
                "sampler_ranks": (1,),
                "staleness": (0, 4, 16),
                "random_seed": (0, 1),
                "epochs": (8,),
            },
            quick={"graph": ("planted:3000",), "staleness": (0, 4), "random_seed": (0,), "epochs": (2,)},
            sides=("in turn", "factored, asynchronous"),
            plots=(Plot("accuracy", x="staleness", kind="line", facet="random_seed", title="accuracy over staleness"),),
        ),
    ),
)
