"""Trainers of PaGraph (Lin et al., SoCC 2020): each on its own part, beside batches of the whole graph."""

from __future__ import annotations

from dataclasses import replace

import spsample as sp
from spsample.comm import Communicator, Recorder
from spsample.data import part_dataset, partition_vertices
from spsample.features import PartitionedFeatures

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import sampler_of
from ..traced import dataset_of


def train(inputs: Inputs) -> Work:
    """From the beginning; without a ``method`` of partitioning all ranks sample from the whole graph.

    Each rank caches a share of all rows, those of the highest out-degree in what it has. Rows of the whole graph lie
    dealt out over the ranks; parts have all rows that they need.
    """
    from ..trained import cache_bytes, on_ranks, trained

    data, sampler, hops = dataset_of(inputs), sampler_of(inputs), len(inputs.fanouts)
    ranks = inputs["thread_ranks"] if inputs.comm is None else inputs.comm.size
    how = {"pipeline": "sync", "cache_budget": cache_bytes(inputs, data), "cache_score": "out-degree"}
    split = None
    if "method" in inputs.values:
        split = partition_vertices(data.graph, ranks, inputs["method"], seeds=data.train_idx, hops=hops)

    def on_rank(comm: Communicator) -> Figures:
        comm = Recorder(comm)
        x = PartitionedFeatures.of(data.x, sp.ProcessGrid(comm))
        whole = replace(data, graph=sp.ReplicatedGraph(data.graph, comm), x=x)
        if split is None:
            return {**trained(inputs, whole, sampler, **how), "vertices": 1.0}
        part = part_dataset(data, split, comm.size, comm.rank, hops=hops)
        vertices = len(part.original_ids) / data.graph.num_nodes
        return {**trained(inputs, whole, sampler, part=part, **how), "vertices": vertices}

    return on_ranks(inputs, on_rank)


_RANKS = ("ranks", "thread_ranks")

CASE = Case(
    about="Training on ranks that each have a part of the graph, and on the whole graph: time, bytes, hits, accuracy.",
    claim="Trainers on parts exchange gradients alone, and lose no accuracy.",
    parameters={
        "graph": ("planted:20000",),
        "thread_ranks": (4,),
        "share": (0.2,),
        "fanouts": ("15,5",),
        "batch_size": (128,),
        "bulk_size": (8,),
        "hidden": (64,),
        "epochs": (8,),
        "random_seed": (0,),
    },
    quick={"graph": ("planted:3000",), "thread_ranks": (2,), "epochs": (2,)},
    sides=(
        Side("whole graph, shuffled", train),
        Side("parts: PaGraph", train, {"method": "pagraph"}),
        Side("parts: METIS by train vertices", train, {"method": "metis-seeds"}),
    ),
    baselines=("whole graph",),
    plots=(
        Plot("ms", x=_RANKS, title="ms of an epoch"),
        Plot("accuracy", x=_RANKS, facet="random_seed", title="accuracy in the end"),
        Plot(("features_bytes", "other_bytes"), x=(*_RANKS, "side"), title="bytes of an epoch that are no gradients"),
        Plot("hits", x=_RANKS, title="hits of each rank's cache"),
        Plot("vertices", x=_RANKS, title="share of the vertices that a rank has"),
    ),
    ranks=True,
)
