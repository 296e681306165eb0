"""GNNLab: Yang, Tang, Song, Wang, Yin, Chen, Yu, Zhou, EuroSys 2022."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

_SCORES = ("best", "posterior", "trial", "out-degree", "in-degree", "random")
PAPER = Paper(
    "GNNLab: a factored system for sample-based GNN training over GPUs",
    (
        Figure(
            "Hits by caching policy against the size of the cache",
            "As in the paper, a few trial epochs come near the best set for neighbour sampling, and degrees do so on "
            "graphs whose hubs are drawn most. On web graphs degrees are far below. The posterior adds what the graph "
            "says to the trial.",
            "caches",
            {"share": (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)},
            {"share": (0.05, 0.2)},
            sides=_SCORES,
            plots=(Plot("hits", x="share", kind="line", title="hits over the share of the rows that is cached"),),
        ),
        Figure(
            "Hits against epochs of pre-sampling",
            "As in the paper, one to three epochs are enough for neighbour sampling.",
            "caches",
            {"share": (0.05, 0.1), "trial_epochs": (1, 2, 3, 5)},
            {"share": (0.1,), "trial_epochs": (1, 3)},
            sides=("best", "posterior", "trial"),
            plots=(Plot("hits", x="trial_epochs", kind="line", facet="share", title="hits over trial epochs"),),
        ),
        Figure(
            "The same for layers of a fixed size",
            "The paper does not sample layer-wise. There a trial sees most vertices too rarely to rank them, and stays "
            "points below the best set; the posterior does not.",
            "caches",
            {"sampler": ("ladies",), "fanouts": ("512,512,512",), "batch_size": (512,), "trial_epochs": (1, 2, 3, 5)},
            {"fanouts": ("128,128",), "batch_size": (128,), "trial_epochs": (1, 3)},
            sides=("best", "posterior", "trial"),
            plots=(Plot("hits", x="trial_epochs", kind="line", facet="share", title="hits over trial epochs"),),
        ),
        Figure(
            "Factored against time-shared, by numbers of samplers; with and without switching",
            "The paper's ranks are GPUs, and those that train win room for a cache, as they hold no graph. Ranks here "
            "share the cores of a machine: one that waits leaves its core to others, so less is won. As in the paper, "
            "switching matters where few ranks train.",
            "pipelines",
            {"graph": ("planted:20000",), "sampler_ranks": (1, 2, 3)},
            {"graph": ("planted:3000",), "sampler_ranks": (1,)},
            ranks=(4,),
            sides=("in turn", "overlap", "factored"),
            plots=(
                Plot("ms", x=("sampler_ranks", "ranks"), title="ms of an epoch by ranks that sample"),
                Plot(
                    ("sampling_ms", "features_ms", "training_ms", "waiting_ms"),
                    x=("sampler_ranks", "ranks", "side"),
                    title="stages of the slowest rank",
                ),
            ),
        ),
        Figure(
            "Accuracy against the bound on staleness",
            "In turn, ranks take each step together. With as many epochs, a bound of 0 or 1 has its accuracy, and from 4 on "
            "some points are lost: the paper trains until it converges, which takes more updates (its figure 16).",
            "pipelines",
            {"sampler_ranks": (1,), "staleness": (0, 1, 4, 16), "random_seed": (0, 1, 2), "epochs": (8,)},
            {"staleness": (0, 4), "random_seed": (0,)},
            ranks=(4,),
            sides=("in turn", "factored, asynchronous"),
            plots=(Plot("accuracy", x="staleness", kind="line", facet="random_seed", title="accuracy over staleness"),),
        ),
    ),
)
