"""An epoch of training by phase: the stacked bars of Tripathy, Yelick, Buluc (MLSys 2024), figures 4, 6 and 7."""

from __future__ import annotations

from ..case import Case, Plot, Side, Work
from ..inputs import Inputs


def train(inputs: Inputs) -> Work:
    """Sampling in bulk, feature fetch, forward, backward and step."""
    from ..trainer import Epochs

    return Epochs(inputs)


CASE = Case(
    about="An epoch by phase: sampling, feature fetch, propagation; over p, c and k, and beside PyG and DGL.",
    claim="With bulk sampling, propagation is what an epoch takes its time for.",
    parameters={
        "graph": ("rmat:18,16",),
        "sampler": ("sage",),
        "placement": ("partitioned",),
        "replication": (1,),
        "algorithm": ("auto",),
        "bulk_size": (16,),
        "threads": (1,),
        "batches": (48,),
        "batch_size": (1024,),
        "fanouts": ("15,10,5",),
        "dim": (100,),
        "hidden": (128,),
    },
    quick={"graph": ("rmat:14,16",), "batches": (8,), "batch_size": (256,), "bulk_size": (4,), "hidden": (64,)},
    sides=(
        Side("spsample, in turn", train),
        Side("spsample, prefetch", train, {"prefetch": 1}),
    ),
    job="epoch",
    baselines=("PyG", "DGL", "spsample, in turn"),
    few={"PyG": 12, "DGL": 12},
    plots=(
        Plot(
            ("sampling_ms", "features_ms", "propagation_ms"),
            x=("sampler", "placement", "ranks", "replication", "bulk_size"),
            title="ms a step, by phase (in turn)",
            only="spsample, in turn",
        ),
        Plot("ms", x=("ranks", "replication", "bulk_size"), title="ms a step"),
    ),
    ranks=True,
    valid=lambda cell: int(cell["ranks"]) % int(cell["replication"]) == 0,
)
