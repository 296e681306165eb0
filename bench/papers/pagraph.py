"""Lin, Li, Miao, Liu, Xu: PaGraph, scaling GNN training on large graphs via computation-aware caching (SoCC 2020)."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

PAPER = Paper(
    "PaGraph (SoCC 2020)",
    (
        Figure(
            title="Figure 13: hits by policy against the cached share",
            text="In the paper out-degree is near the best set on its graphs; on R-MAT and web graphs it is not "
            "everywhere.",
            case="caches",
            parameters={"share": (0.05, 0.1, 0.2, 0.4, 0.6)},
            sides=("best set", "out-degree", "AliGraph", "random"),
            plots=(Plot("hits", x="share", kind="line", title="hits over the cached share"),),
        ),
        Figure(
            title="Figure 17a: hits against trainers",
            text="Each trainer keeps the vertices of its part with the most edges within the part: hits rise "
            "with trainers. "
            "With degrees of the whole graph they rise less, and without parts not at all.",
            case="caches_of_parts",
            parameters={"method": ("pagraph",)},
            plots=(Plot("hits", x="trainers", kind="line", title="hits over trainers"),),
        ),
        Figure(
            title="Figure 17b: what parts hold twice",
            text="A part holds all that its train vertices reach in L hops: on small-world graphs soon most of "
            "the graph.",
            case="caches_of_parts",
            parameters={"method": ("pagraph", "metis-seeds")},
            sides=("parts, out-degree within",),
            plots=(Plot("vertices", x="trainers", kind="line", facet="method", title="share of vertices in a part"),),
        ),
        Figure(
            title="Partitions",
            text="PaGraph's beside METIS, LDG, ranges and random ones.",
            case="partitions",
        ),
        Figure(
            title="Figures 14, 15, 16 and 18: the ladder",
            text="Features of other ranks fetched batch by batch, a cache of the highest out-degree or of AliGraph's "
            "ratio, parts of one's own, and stages side by side. Ranks are processes of one machine.",
            case="ladder",
            ranks=(1, 2, 4),
        ),
        Figure(
            title="Trainers on parts: accuracy, bytes and hits",
            text="In the paper trainers exchange gradients alone, and reach the accuracy of batches of the whole "
            "graph. Here too, within what random seeds differ by. Parts of the planted graph hold nearly all of it: "
            "hits hardly rise. Ranks are threads of one process.",
            case="trainers",
            parameters={"graph": ("planted:20000",), "thread_ranks": (2, 4), "random_seed": (0, 1)},
            quick={"graph": ("planted:3000",), "thread_ranks": (2,), "random_seed": (0,)},
        ),
    ),
)
