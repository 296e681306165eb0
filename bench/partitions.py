"""What a partition by METIS saves: bytes of sampling and of features, beside ranges of vertices.

    python bench/partitions.py --graph cnr2000 --ranks 8

Two kinds of batches: seeds drawn from all vertices, as training does, and each rank's batches drawn from those of its
own block row. Ranks are threads of one process; docs/distributed.md has the results.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import graph_folder
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import metis_partition, partition_quality
from spsample.distributed.placement import balanced
from spsample.features import PartitionedFeatures
from traffic import mib
from traffic_cells import FEATURES, load


def seeds_from_anywhere(parts: NDArray[Any], ranks: int, steps: int, batch_size: int) -> NDArray[np.int64]:
    """Batches in the order of a call, each of vertices of any part."""
    return np.random.default_rng(1).integers(0, len(parts), ranks * steps * batch_size)


def seeds_from_own_block(parts: NDArray[Any], ranks: int, steps: int, batch_size: int) -> NDArray[np.int64]:
    """Batch t goes to rank t mod p; here all its seeds are of that rank's part."""
    rng = np.random.default_rng(1)
    blocks = [np.flatnonzero(parts == block) for block in range(ranks)]
    return np.concatenate([rng.choice(blocks[t % ranks], batch_size) for t in range(ranks * steps)])


SEEDS = {"any": seeds_from_anywhere, "own block": seeds_from_own_block}


def moved(graph: sp.Graph, parts: NDArray[Any], seeds: NDArray[np.int64], ranks: int, b: int) -> tuple[float, float]:
    """Bytes that a rank receives in sampling and for features, mean of the ranks."""
    x = np.zeros((graph.num_nodes, FEATURES), np.float32)

    def body(comm: Communicator) -> tuple[int, int]:
        recorder = Recorder(comm)
        grid = sp.ProcessGrid(recorder)
        shared = sp.PartitionedGraph.from_graph(graph, grid, partition=parts)
        features = PartitionedFeatures.of(x, grid, partition=parts)
        recorder.traffic.clear()
        bulk = sp.bulk_sample(shared, seeds, sp.GraphSAGE([15, 10, 5]), batch_size=b)
        sampling = recorder.traffic.total().bytes_received
        for minibatch in bulk:
            features.gather(minibatch.src_nodes)
        return sampling, recorder.traffic.total().bytes_received - sampling

    everyone = np.array(run_threads(ranks, body))
    return float(everyone[:, 0].mean()), float(everyone[:, 1].mean())


def main(
    graph: Annotated[list[str], typer.Option(help="A data set or rmat:SCALE,EDGE_FACTOR; may be repeated.")],
    ranks: Annotated[int, typer.Option(help="p; c = 1.")] = 8,
    steps: Annotated[int, typer.Option(help="Batches of each rank.")] = 4,
    batch_size: Annotated[int, typer.Option(help="b")] = 256,
    graph_cache: Annotated[Path, typer.Option(help="Folder for the graphs.")] = Path("build/graphs"),
) -> None:
    """Print a table."""
    shown = Table(
        "graph", "partition", "largest / mean", "edges between parts", "seeds", "sampling MiB", "features MiB"
    )
    for name in graph:
        A = load(graph_folder(name, graph_cache))
        sizes = np.diff(balanced(A.indptr, ranks).bounds)
        ranges = np.repeat(np.arange(ranks, dtype=np.int32), sizes)
        partitions = {"ranges": ranges, "METIS": metis_partition(A, ranks)}
        for (kind, parts), (which, seeds_of) in product(partitions.items(), SEEDS.items()):
            quality = partition_quality(A, parts, ranks)
            sampling, features = moved(A, parts, seeds_of(parts, ranks, steps, batch_size), ranks, batch_size)
            shown.add_row(
                *(name, kind, f"{quality.largest:.3f}", f"{quality.cut:.2%}", which),
                *(mib(sampling), mib(features)),
            )
    Console(width=120).print(shown)


if __name__ == "__main__":
    typer.run(main)
