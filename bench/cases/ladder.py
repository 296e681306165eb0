"""PaGraph's ladder (Lin et al., SoCC 2020): a cache, parts of one's own, and loading beside training, step by step."""

from __future__ import annotations

from ..case import Case, Plot, Side, Values, Work
from ..inputs import Inputs


def train(inputs: Inputs) -> Work:
    """An epoch; every rank is a trainer, with a batch of its own in each step."""
    from ..trainer import Epochs

    return Epochs(inputs)


_CACHE: Values = {"placement": "replicated", "cached": 0.2}
CASE = Case(
    about="An epoch of trainers that fetch rows of each other, cache them, have parts of their own, and overlap.",
    claim="A cache spares most bytes of features, parts spare all of them, and overlap hides what is left.",
    parameters={
        "graph": ("rmat:16,16",),
        "sampler": ("sage",),
        "model": ("sage",),
        "bulk_size": (16,),
        "threads": (1,),
        "batches": (24,),
        "batch_size": (256,),
        "fanouts": ("10,10",),
        "dim": (128,),
        "hidden": (64,),
    },
    quick={"graph": ("rmat:13,16",), "batches": (8,), "batch_size": (128,), "bulk_size": (4,)},
    sides=(
        Side("plain", train, {"placement": "replicated"}),
        Side("cache by out-degree", train, {**_CACHE, "score": "out-degree"}),
        Side("cache by AliGraph's ratio", train, {**_CACHE, "score": "aligraph"}),
        Side("cache by posterior", train, {**_CACHE, "score": "posterior"}),
        Side("parts", train, {"placement": "parts"}),
        Side("parts, overlap", train, {"placement": "parts", "prefetch": 1}),
    ),
    baselines=("plain",),
    plots=(
        Plot(("sampling_ms", "features_ms", "propagation_ms"), x=("ranks", "side"), title="ms a step"),
        Plot("ms", x="ranks", kind="line", title="ms a step by trainers"),
        Plot("features_bytes", x=("ranks", "model"), title="bytes of features that the ranks receive in an epoch"),
    ),
    ranks=True,
)
