"""LADIES and FastGCN in bulk, beside the authors' methods in SciPy."""

from __future__ import annotations

from ..case import Case, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, sampler_of


def bulk(inputs: Inputs) -> Work:
    """Batches as they are in a bulk, unbiased values included; SciPy's are those of its authors."""
    calls = Calls(inputs, sampler_of(inputs, include_targets=bool(inputs["targets"])))
    return lambda: {"batches": calls.batches, "edges": sum(bulk.num_edges for bulk in calls())}


CASE = Case(
    about="LADIES (laws norm and squared_count) and FastGCN, beside the authors' methods in SciPy.",
    claim="Drawn in bulk, layer-wise batches are many times as fast as by a product for each batch.",
    parameters={
        "graph": ("rmat:18,16",),
        "threads": (1, 2),
        "sampler": ("ladies", "ladies-squared-count", "fastgcn"),
        "batches": (64,),
        "batch_size": (512,),
        "bulk_size": (64,),
        "fanouts": ("512,512,512",),
    },
    quick={"graph": ("rmat:14,16",), "threads": (1,), "batches": (16,)},
    sides=(
        Side("spsample", bulk, {"targets": 0}),
        Side("spsample, with targets", bulk, {"targets": 1}),
    ),
    job="{sampler}",
    baselines=("SciPy", "spsample"),
    few={"SciPy": 4},
    plots=(Plot("ms", x="sampler", facet="threads", logarithmic=True, title="ms a batch"),),
)
