"""Tripathy, Yelick, Buluc: distributed matrix-based sampling for graph neural network training (MLSys 2024)."""

from __future__ import annotations

from ..case import Plot
from ..paper import Figure, Paper

_PHASES = ("sampling_ms", "features_ms", "propagation_ms")
_RANKS = (1, 2, 4, 8)
_SMALL = {"graph": ("rmat:13,16",), "batches": (16,), "batch_size": (128,), "hidden": (64,)}
_IN_TURN = ("spsample, in turn",)
_PARTITIONED = (
    "A in 1.5D block rows. In the paper most of the time is the SpGEMM that makes probabilities, and falls with "
    "c; here "
    "owners of rows draw, which needs neither."
)
_BYTES = (
    "The time of stages falls with c, as in the paper, until the all-reduce over the row group dominates; their "
    "bytes rise "
    "with c: each rank adds c k b d / p of P to what it fetches."
)
_HERE = (
    "Between ranks of one machine time follows bytes, so that of stages rises with c: each rank adds c k b d / p of P "
    "to what it fetches. Over a network, as in the paper and in the next figure, it falls with c first."
)
_SAMPLERS = {"sage": ("15,10,5", 1024), "ladies": ("512", 512)}


def _epoch(figure: str, sampler: str, placement: str, text: str, **more: tuple) -> Figure:
    fanouts, batch_size = _SAMPLERS[sampler]
    name = {"sage": "GraphSAGE", "ladies": "LADIES"}[sampler]
    shared = {"sampler": (sampler,), "placement": (placement,), "fanouts": (fanouts,), "bulk_size": (8,)}
    return Figure(
        title=f"{figure}: an epoch by phase, {name}, graph {placement}",
        text=text,
        case="epoch",
        parameters={**shared, "batches": (16,), "batch_size": (batch_size,), "hidden": (256,), **more},
        quick=_SMALL,
        ranks=_RANKS,
        sides=_IN_TURN,
        plots=(Plot(_PHASES, x=("ranks", "replication", "bulk_size"), title="ms a step of p batches"),),
    )


def _sampling(title: str, text: str, **more: tuple) -> Figure:
    return Figure(
        title=title,
        text=text,
        case="scaling",
        parameters={"sampler": ("sage",), "batches": (64,), "bulk_size": (8,), **more},
        quick={"graph": ("rmat:13,16",), "batches": (16,), "batch_size": (64,), "bulk_size": (2,)},
        ranks=_RANKS,
    )


PAPER = Paper(
    "Tripathy, Yelick, Buluc (MLSys 2024)",
    (
        _epoch(
            "Figure 4",
            "sage",
            "replicated",
            "With A on every rank nobody communicates to sample: in the paper sampling falls almost with 1/p, "
            "and an epoch "
            "with it. Here ranks are processes of one machine; beyond its cores they share them, so look at the "
            "shares.",
        ),
        _sampling(
            "Figure 4: sampling alone", "With A on every rank.", placement=("replicated",), algorithm=("column",)
        ),
        Figure(
            title="Bulk size: sampling over k",
            text="Why bulks: a batch takes less time in larger ones, until matrices leave the caches.",
            case="sampling",
            parameters={"bulk_size": (1, 4, 16, 64), "threads": (1,), "batches": (64,)},
            quick={"graph": ("rmat:13,16",), "batches": (16,), "bulk_size": (1, 4, 16), "batch_size": (128,)},
            sides=("spsample",),
            plots=(Plot("ms", x="bulk_size", kind="line", title="ms a batch over k"),),
        ),
        _epoch(
            "Figure 6",
            "sage",
            "replicated",
            "Features replicated c times come from nearer: in the paper training is faster with c > 1 than "
            "without. On one "
            "machine a copy from another rank costs no network, so only the bytes show it.",
            replication=(1, 2, 4),
        ),
        _epoch("Figure 7", "sage", "partitioned", _PARTITIONED, replication=(1, 2)),
        _epoch(
            "Figure 7", "ladies", "partitioned", "One layer of 512, as published. " + _PARTITIONED, replication=(1, 2)
        ),
        _sampling(
            "Figure 7: sampling alone, by algorithm",
            "Time and bytes of the published algorithm (stages) beside owners that draw (column). " + _HERE,
            placement=("partitioned",),
            replication=(1, 2, 4),
        ),
        Figure(
            title="Figure 7 to 256 ranks, simulated",
            text="Messages recorded to 16 ranks and predicted from real samples beyond. " + _BYTES,
            case="simulation",
            parameters={
                "like": ("products", "protein", "papers"),
                "batch_size": (1024,),
                "ranks": (4, 16, 64, 128, 256),
            },
            quick={"like": ("products",), "ranks": (16, 64, 256), "replication": (1, 4)},
        ),
    ),
)
