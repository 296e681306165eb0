"""PaGraph's ladder (Lin et al., SoCC 2020, figures 15, 16, 18): what a cache, parts and overlap each spare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spsample.comm import Recorder
from spsample.data import part_dataset, partition_vertices
from spsample.features import CachedFeatures, FeatureStore, score

from .. import aligraph  # noqa: F401  # registers its score
from ..case import Case, Plot, Side, Work
from ..inputs import Inputs
from ..ours import comm_of, graph_of, sampler_of
from ..traced import dataset_of


def plain(inputs: Inputs) -> Work:
    """Rows that other ranks hold are fetched batch by batch."""
    from ..trainer import Epochs

    inputs = _recorded(inputs)
    return Epochs(inputs, _placed(inputs))


def cache(inputs: Inputs) -> Work:
    """A share of the rows is cached, those of the highest scores, but for rows that are here anyway."""
    from ..trainer import Epochs

    inputs = _recorded(inputs)
    placed = _placed(inputs)
    scores = _scores(inputs, placed.seeds)
    scores[placed.features.block_vertices()] = 0.0
    budget = int(inputs["share"] * inputs.x.nbytes)
    return Epochs(inputs, placed._replace(features=CachedFeatures(placed.features, budget, scores)))


def parts(inputs: Inputs) -> Work:
    """Each rank trains on its part, which holds all that its batches can reach."""
    from ..trainer import Epochs, Placed

    comm, data = comm_of(inputs), dataset_of(inputs)
    hops, whole = len(inputs.fanouts), data.graph
    split = partition_vertices(whole, comm.size, "pagraph", seeds=data.train_idx, hops=hops)
    mine, _ = part_dataset(data, split, comm.size, comm.rank, hops=hops)
    seeds = mine.train_idx[: inputs["batches"] * inputs["batch_size"] // comm.size]
    return Epochs(inputs, Placed(mine.graph, FeatureStore(mine.x), seeds, mine.y))


def _placed(inputs: Inputs) -> Any:
    """The whole graph on the ranks; seeds are train vertices, as those of parts are."""
    from ..trainer import placed_on

    seeds = dataset_of(inputs).train_idx[: inputs["batches"] * inputs["batch_size"]]
    return placed_on(inputs.comm, inputs)._replace(seeds=seeds)


def _recorded(inputs: Inputs) -> Inputs:
    return replace(inputs, comm=Recorder(comm_of(inputs)))


def _scores(inputs: Inputs, seeds: Any) -> Any:
    return score(inputs["score"], graph_of(inputs), seeds, sampler_of(inputs), inputs["batch_size"]).copy()


CASE = Case(
    about="Training of PaGraph's ladder on ranks: features fetched, cached, in parts of one's own, and ahead.",
    claim="A cache spares fetching, parts spare all of it, and overlap hides what is left.",
    parameters={
        "graph": ("rmat:16,16",),
        "placement": ("replicated",),
        "replication": (1,),
        "share": (0.2,),
        "bulk_size": (8,),
        "threads": (1,),
        "batches": (24,),
        "batch_size": (256,),
        "fanouts": ("10,10",),
        "dim": (128,),
        "hidden": (64,),
    },
    quick={"graph": ("rmat:13,16",), "batches": (8,), "batch_size": (64,), "bulk_size": (4,)},
    sides=(
        Side("plain", plain),
        Side("cache", cache, {"score": "out-degree"}),
        Side("cache by AliGraph's ratio", cache, {"score": "aligraph"}),
        Side("parts", parts),
        Side("parts, overlap", parts, {"prefetch": 1}),
    ),
    baselines=("plain",),
    plots=(
        Plot("ms", x="ranks", title="ms a step of p batches"),
        Plot(
            ("sampling_ms", "features_ms", "propagation_ms"),
            x=("ranks", "side"),
            title="ms a step of p batches, by phase",
        ),
        Plot("sent_bytes", x="ranks", title="bytes that ranks send in an epoch"),
    ),
    ranks=True,
)
