"""Min, Wu, Hidayetoglu, Xiong, Song, Hwu: Graph neural network training with data tiering (KDD 2022)."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

_SCORES = ("best set", "weighted reverse PageRank", "in-degree", "out-degree", "random")

PAPER = Paper(
    "Data Tiering (KDD 2022)",
    (
        Figure(
            title="Figure 7: share of accesses that hot rows get, by score",
            text="Weighted reverse PageRank puts more accesses on the same rows than degrees do.",
            case="caches",
            parameters={"share": (0.01, 0.05, 0.1, 0.25, 0.5)},
            sides=_SCORES,
            plots=(Plot("hits", x="share", kind="line", title="share of accesses over share of rows"),),
        ),
        Figure(
            title="Figure 9: against fanout and depth",
            text="With more layers and larger fanouts a batch touches more of the graph, and hot rows get a "
            "smaller share. "
            "In the paper the graph is Papers, whose batches touch little of it: shares there stay higher.",
            case="caches",
            parameters={
                "share": (0.1,),
                "fanouts": ("10,10", "10,10,10", "10,10,10,10", "10,10,10,10,10", "5,5,5", "20,20,20"),
                "epochs": (2,),
            },
            quick={"fanouts": ("10,10", "10,10,10"), "share": (0.1,)},
            sides=_SCORES,
            plots=(Plot("hits", x="fanouts", title="share of accesses of a tenth of the rows"),),
        ),
        Figure(
            title="Tiers: copies over devices",
            text="Rows that every device keeps beside rows dealt out over them, by the cost of a peer (alpha).",
            case="copies",
            sides=("best-copies", "replicated", "interleaved"),
        ),
    ),
)
