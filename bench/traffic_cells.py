"""One cell of `traffic.py` in a process of its own: prints a line of JSON. p ranks are threads that record.

python bench/traffic_cells.py recorded FOLDER CELL      what a variant sends and receives, by phase
python bench/traffic_cells.py modelled FOLDER CELL      what the model says of the same bulk, for every variant
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.distributed.placement import balanced
from spsample.distributed.published.variants import ComparedGraph
from spsample.features import PartitionedFeatures
from spsample.planning.cluster.block_rows import BlockRows, hub_rows
from spsample.planning.cluster.counting import count_bulk
from spsample.planning.cluster.exchanges import Algorithm
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.traffic import bulk_traffic
from spsample.planning.cluster.wire_widths import WireWidths

RANKS = 16
FEATURES = 100
MOST_BATCHES = 192
TIMEOUT = 1800.0
VARIANTS: dict[str, tuple[Algorithm, int]] = {
    "oblivious": ("oblivious", 0),
    "stages": ("stages", 0),
    "stages-distinct": ("stages-distinct", 0),
    "stages-split": ("stages-split", 0),
    "column": ("column", 0),
    "column, 8 MiB of hubs": ("column", 8 << 20),
    "column, 64 MiB of hubs": ("column", 64 << 20),
}
"""Algorithm, and bytes of hub rows on every rank."""
SAMPLERS: dict[str, tuple[sp.Sampler, int]] = {
    "GraphSAGE": (sp.GraphSAGE([15, 10, 5]), 1024),
    "LADIES norm": (sp.LADIES([512, 512, 512]), 512),
    "LADIES squared": (sp.LADIES([512, 512, 512], law="squared_count"), 512),
    "FastGCN": (sp.FastGCN([400, 400]), 512),
}
"""Sampler, and the batch size of a large graph."""


@dataclass(frozen=True)
class Cell:
    """What is sampled how: `batches` in one bulk, on a p/c x c grid of `ranks`."""

    graph: str
    sampler: str
    batches: int
    replication: int
    variant: str
    ranks: int = RANKS
    batch_size: int = 0
    """0: that of the sampler, or so few that the graph's vertices fill the largest bulk."""


def load(folder: Path) -> sp.Graph:
    """The graph of a folder, in memory."""
    return sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), validate=False)


def batch_size_of(graph: sp.Graph, cell: Cell) -> int:
    """b: a power of two where the graph is small, such that the largest bulk has all its vertices once or twice."""
    if cell.batch_size:
        return cell.batch_size
    fitting = int(np.count_nonzero(np.diff(graph.indptr))) // MOST_BATCHES
    return min(SAMPLERS[cell.sampler][1], 1 << fitting.bit_length())


def seeds_of(graph: sp.Graph, count: int) -> NDArray[np.int64]:
    """Vertices with in-neighbours in random order, and again where they are too few."""
    return np.resize(np.random.default_rng(1).permutation(np.flatnonzero(np.diff(graph.indptr))), count)


def recorded(graph: sp.Graph, cell: Cell) -> dict[str, Any]:
    """What each phase moves; with `algorithm="column"` features, too."""
    algorithm, hubs = VARIANTS[cell.variant]
    sampler, b = SAMPLERS[cell.sampler][0], batch_size_of(graph, cell)
    seeds = seeds_of(graph, cell.batches * b)
    x = np.zeros((graph.num_nodes, FEATURES), np.float32)

    def body(comm: Communicator) -> tuple[dict[str, Any], float]:
        recorder = Recorder(comm, None)
        grid = sp.ProcessGrid(recorder, cell.replication)
        parts = ComparedGraph.from_graph(graph, grid, algorithm=algorithm, replicate_hubs=hubs or None)
        warm_up(parts, sampler, seeds[: min(cell.ranks, cell.batches)])
        recorder.traffic.clear()
        start = time.perf_counter()
        bulk = sp.bulk_sample(parts, seeds, sampler, batch_size=b)
        seconds = time.perf_counter() - start
        if cell.variant == "column":
            fetch_features(grid, x, [minibatch.src_nodes for minibatch in bulk], -(-cell.batches // cell.ranks))
        return recorder.traffic.phases, seconds

    ranks = run_threads(cell.ranks, body, TIMEOUT)
    names = sorted({name for phases, _ in ranks for name in phases})
    phases = {name: _spread([_bytes(one.get(name)) for one, _ in ranks]) for name in names}
    return {"b": b, "phases": phases, "seconds": max(seconds for _, seconds in ranks), "peak": peak_bytes()}


def warm_up(parts: sp.PartitionedGraph, sampler: sp.Sampler, seeds: NDArray[np.int64]) -> None:
    """Makes what is made once: block rows, and distributions over columns."""
    sp.bulk_sample(parts, seeds, sampler, batch_size=1)


def fetch_features(grid: sp.ProcessGrid, x: NDArray[Any], inputs: list[NDArray[Any]], steps: int) -> None:
    """A batch after the other; a rank without one asks for nothing."""
    features = PartitionedFeatures.of(x, grid)
    nothing = np.zeros(0, np.int64)
    for step in range(steps):
        features.gather(inputs[step] if step < len(inputs) else nothing)


def _bytes(counts: Any) -> tuple[float, float]:
    return (counts.bytes_sent, counts.bytes_received) if counts else (0.0, 0.0)


def _spread(ranks: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Of the ranks' bytes sent and received."""
    sent, received = np.array(list(ranks), np.float64).T
    return {
        "sent_mean": sent.mean(),
        "sent_max": sent.max(),
        "received_mean": received.mean(),
        "received_max": received.max(),
    }


def modelled(graph: sp.Graph, cell: Cell) -> dict[str, Any]:
    """Exact counts of the bulk, sampled in one process, and the formulas of each variant."""
    sampler, b = SAMPLERS[cell.sampler][0], batch_size_of(graph, cell)
    bulk = sp.bulk_sample(graph, seeds_of(graph, cell.batches * b), sampler, batch_size=b)
    shape = GridShape(cell.ranks, cell.replication)
    starts = balanced(graph.indptr, shape.num_blocks).bounds
    counts = {
        hubs: count_bulk(graph, bulk, shape, BlockRows(starts, hub_rows(graph, hubs, graph.indices.itemsize)))
        for hubs in {hubs for _, hubs in VARIANTS.values()}
    }
    law, wire = sampler.draw_law(graph.weighting), WireWidths.of(graph.indices.itemsize, 0, graph.weighting)
    variants = {}
    for name, (algorithm, hubs) in VARIANTS.items():
        traffic = bulk_traffic(counts[hubs], sampler, law, wire, algorithm, feature_bytes=4 * FEATURES)
        phases: dict[str, list[Any]] = {}
        for one in traffic:
            phases.setdefault(one.recorded, []).append((one.sent, one.received))
        variants[name] = {phase: _spread(np.sum(ones, axis=0).T) for phase, ones in phases.items()}
    return {"b": b, "variants": variants, "peak": peak_bytes()}


def peak_bytes() -> int:
    """Of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(what: str, folder: str, cell: str) -> None:
    """Print the line of a cell."""
    one = Cell(**json.loads(cell))
    found = {"recorded": recorded, "modelled": modelled}[what](load(Path(folder)), one)
    print(json.dumps({"kind": what, **asdict(one), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
