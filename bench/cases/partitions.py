"""Parts of a graph by every method: how even, what they hold twice, and what ranks receive with such block rows."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import partition_quality, partition_vertices
from spsample.features import PartitionedFeatures

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run

STEPS = 2
"""Batches of each rank."""


def divide(inputs: Inputs) -> Work:
    """The time is that of the partition; bytes are those that all ranks receive in a step, as threads of a process."""
    run, ranks, method = Run.of(inputs), inputs["parts"], inputs["method"]
    parts, seconds = _parts(run, ranks, method)

    def work() -> Figures:
        hops = len(run.sampler.sizes)
        quality = partition_quality(run.graph, parts, ranks, seeds=run.seeds, hops=hops)._asdict()
        seeds = _seeds(run, parts, ranks, own=inputs["seeds"] == "own block")
        received = np.sum(run_threads(ranks, lambda comm: _received(comm, run, parts, seeds, inputs["dim"])), axis=0)
        sums = dict(zip(("sampling_bytes", "features_bytes"), (received // STEPS).tolist(), strict=True))
        return {"seconds": seconds, **quality, **sums}

    return work


@lru_cache(maxsize=8)
def _parts(run: Run, count: int, method: str) -> tuple[NDArray[np.int32], float]:
    begin = time.perf_counter()
    parts = partition_vertices(run.graph, count, method, seeds=run.seeds, hops=len(run.sampler.sizes))
    return parts, time.perf_counter() - begin


def _seeds(run: Run, parts: NDArray[np.int32], ranks: int, *, own: bool) -> NDArray[np.int64]:
    """Batch t goes to rank t mod p: of any train vertices, or of those of its own block row."""
    rng, b = np.random.default_rng(1), run.batch_size
    of_rank = [run.seeds[parts[run.seeds] == rank] if own else run.seeds for rank in range(ranks)]
    return np.concatenate([rng.choice(of_rank[t % ranks], b) for t in range(STEPS * ranks)])


def _received(comm: Communicator, run: Run, parts: Any, seeds: Any, dim: int) -> tuple[int, int]:
    """Bytes of sampling, and of features."""
    recorder = Recorder(comm)
    grid = sp.ProcessGrid(recorder)
    graph = sp.PartitionedGraph.from_graph(run.graph, grid, partition=parts)
    features = PartitionedFeatures.of(np.zeros((run.graph.num_nodes, dim), np.float32), grid, partition=parts)
    before = recorder.traffic.total().bytes_received
    bulk = sp.bulk_sample(graph, seeds, run.sampler, batch_size=run.batch_size)
    between = recorder.traffic.total().bytes_received
    for minibatch in bulk:
        features.gather(minibatch.src_nodes)
    return between - before, recorder.traffic.total().bytes_received - between


METHODS = ("metis", "metis-seeds", "pagraph", "ldg", "ranges", "random")
CASE = Case(
    about="Partitions: train vertices and rows of the largest part, copies, and bytes of ranks with them in a step.",
    claim="Where a graph has parts and batches keep to them, METIS spares most bytes; PaGraph's needs no exchange.",
    parameters={
        "graph": ("rmat:14,16",),
        "fanouts": ("15,10,5",),
        "batch_size": (256,),
        "dim": (100,),
        "parts": (2, 4, 8),
        "seeds": ("any", "own block"),
    },
    quick={"graph": ("rmat:12,16",), "fanouts": ("10,5",), "batch_size": (128,), "parts": (4,)},
    sides=tuple(Side(method, divide, {"method": method}) for method in METHODS),
    baselines=("metis",),
    plots=(
        Plot("features_bytes", x="parts", kind="line", facet="seeds", title="bytes of features that ranks receive"),
        Plot("replication", x="parts", kind="line", title="parts that need a vertex"),
        Plot("ms", x="parts", kind="line", logarithmic=True, title="ms of the partition"),
    ),
    exact=True,
)
