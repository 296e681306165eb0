"""PaGraph: Lin, Li, Miao, Liu, Xu, SoCC 2020."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

PAPER = Paper(
    "PaGraph: scaling GNN training on large graphs via computation-aware caching",
    (
        Figure(
            "Figure 13: hits by caching policy against the cached share",
            "The paper's out-degree is near the best set, and has twice the hits of AliGraph's ratio and random rows. "
            "It is so on R-MAT graphs; on web graphs out-degree is far below the best set.",
            "caches",
            {"fanouts": ("10,10",), "share": (0.1, 0.2, 0.3, 0.4, 0.6, 0.8), "epochs": (2,)},
            {"share": (0.1, 0.4)},
            sides=("best", "posterior", "out-degree", "AliGraph", "random"),
            plots=(Plot("hits", x="share", kind="line", title="hits over the cached share"),),
        ),
        Figure(
            "Figures 14, 15, 16 and 18: the ladder, by number of trainers",
            "Plain fetches rows of other ranks, the cache spares most of them, parts all. Figure 14's policies are the "
            "three caches. Ranks share the cores of one machine, and rows travel through its memory: bytes fall as in "
            "the paper, time by less. Sampling layer-wise (figure 20): `spsample bench ladder --sampler ladies`.",
            "ladder",
            ranks=(1, 2, 4),
        ),
        Figure(
            "Figure 17: hits and vertices of a trainer against the number of trainers",
            "As in the paper: with the whole graph hits stay as they are, with parts they rise, by out-degree within "
            "the part; a part's share of the vertices (17b) falls, more slowly where the graph has no parts.",
            "caches-of-parts",
        ),
        Figure(
            "Section 3.3 and table 5: partitions",
            "Balance of train vertices, vertices that several parts hold, and the time of partitioning, beside METIS.",
            "partitions",
            {"seeds": ("own block",)},
            plots=(
                Plot("train_balance", x="parts", color="side", title="train vertices of the largest part"),
                Plot("replication", x="parts", color="side", title="parts that need a vertex"),
                Plot("ms", x="parts", color="side", title="ms of the partition"),
            ),
        ),
    ),
)
