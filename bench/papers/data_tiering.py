"""Data Tiering: Min, Wu, Hidayetoglu, Xiong, Song, Hwu, KDD 2022."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

_SCORES = ("weighted reverse", "out-degree", "best", "random")
PAPER = Paper(
    "Graph neural network training with data tiering",
    (
        Figure(
            "Figure 7: share of the accesses that the hottest rows have, by score",
            "The paper's hottest 10 % have 32 to 80 % of the accesses, by weighted reverse PageRank more than by "
            "degree. Here the two are alike on R-MAT graphs, and far apart on web graphs. Scores that know the sampler "
            "have more.",
            "caches",
            {"fanouts": ("10,10,10",), "share": (0.01, 0.05, 0.1, 0.25, 0.5), "epochs": (2,)},
            {"fanouts": ("10,10",), "share": (0.1, 0.25)},
            sides=(*_SCORES, "posterior"),
            plots=(Plot("hits", x="share", kind="line", title="accesses over the share of the rows"),),
        ),
        Figure(
            "Figure 9: the same against the depth of sampling",
            "As in the paper accesses spread out with each layer: 52 % and 28 % are left there at five layers, by "
            "reverse PageRank and by degree.",
            "caches",
            {"fanouts": ("10,10", "10,10,10", "10,10,10,10", "10,10,10,10,10"), "share": (0.1,), "epochs": (2,)},
            {"fanouts": ("10,10", "10,10,10")},
            sides=_SCORES,
            plots=(Plot("hits", x="fanouts", title="accesses of the hottest tenth over depth"),),
        ),
        Figure(
            "Accesses against the fanout of three layers",
            "The larger the fanout, the flatter: where a batch touches the whole graph, hot rows are as hot as others.",
            "caches",
            {"fanouts": ("2,2,2", "4,4,4", "8,8,8", "16,16,16"), "share": (0.1,), "epochs": (2,)},
            {"fanouts": ("2,2,2", "8,8,8")},
            sides=_SCORES,
            plots=(Plot("hits", x="fanouts", title="accesses of the hottest tenth over fanouts"),),
        ),
        Figure(
            "Section 4.2: tiers over several GPUs",
            "Hot rows interleaved, with and without a replicated head, in rows from the host. Times of tiers on a GPU: "
            "the case `gpu`.",
            "copies",
            {"devices": (4,), "share": (0.01, 0.05, 0.1, 0.2), "alpha": (0.3,)},
            {"share": (0.05, 0.2)},
            sides=("best-copies", "interleaved", "replicated"),
            plots=(Plot("mean", x="share", kind="line", title="mean cost over the rows of each device"),),
        ),
    ),
)
