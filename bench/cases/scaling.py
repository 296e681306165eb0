"""Sampling on ranks over p, c and k: time, and bytes and messages beside the model of `spsample plan`."""

from __future__ import annotations

import itertools

import spsample as sp
from spsample.comm import Recorder

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, comm_of, graph_of, sampler_of


def sample(inputs: Inputs) -> Work:
    """All batches, ``bulk_size`` a rank to a call, from the graph as ``placement`` and ``algorithm`` say."""
    comm = Recorder(comm_of(inputs))
    batches = inputs["batches"] * (comm.size if inputs["grow"] == "weak" else 1)
    inputs = Inputs(
        inputs.store, {**inputs.values, "batches": batches, "bulk_size": inputs["bulk_size"] * comm.size}, comm
    )
    calls = Calls(inputs, sampler_of(inputs), _placed(inputs, comm))
    warm = itertools.count()

    def work() -> Figures:
        if not next(warm):
            for _ in range(3):  # "auto" has chosen an algorithm then
                list(calls())
        comm.traffic.clear()
        edges = sum(bulk.num_edges for bulk in calls())
        sent = comm.traffic.total()
        counts = {"sent_bytes": sent.bytes_sent, "messages": sent.messages_sent, "edges": edges}
        return {"batches": calls.batches / comm.size, **counts}

    return work


def _placed(inputs: Inputs, comm: Recorder) -> sp.Graph:
    if comm.size == 1:
        return graph_of(inputs)
    if inputs["placement"] == "replicated":
        return sp.ReplicatedGraph(graph_of(inputs), comm)
    grid = sp.ProcessGrid(comm, replication=inputs["replication"])
    return sp.PartitionedGraph.open(inputs.store, grid, algorithm=inputs["algorithm"])


CASE = Case(
    about="Bulk sampling on ranks, strong and weak, over p, c and k: time, bytes, messages.",
    claim="Owners that draw move a part of the bytes of the published algorithm, and sampling scales with p.",
    parameters={
        "graph": ("rmat:18,16",),
        "sampler": ("sage",),
        "placement": ("replicated", "partitioned"),
        "algorithm": ("column", "stages"),
        "replication": (1,),
        "grow": ("strong",),
        "bulk_size": (8,),
        "threads": (1,),
        "batches": (64,),
        "batch_size": (512,),
        "fanouts": ("15,10,5",),
    },
    quick={"graph": ("rmat:14,16",), "batches": (16,), "batch_size": (128,), "bulk_size": (4,)},
    sides=(Side("spsample", sample),),
    plots=(
        Plot("ms", x="ranks", color=("placement", "algorithm", "replication"), facet="sampler", kind="line"),
        Plot("sent_bytes", x="ranks", color=("placement", "algorithm", "replication"), facet="sampler", kind="line"),
    ),
    ranks=True,
    simulation="simulation",
    valid=lambda cell: (
        int(cell["ranks"]) % int(cell["replication"]) == 0
        and (cell["placement"] == "partitioned" or (cell["replication"], cell["algorithm"]) == (1, "column"))
    ),
)
