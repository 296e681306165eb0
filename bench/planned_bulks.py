"""One case of the planner in a process of its own: prints a line of JSON. Started by `planning.py`.

Measured are a plan and the bulks of a loader of that size, one in use while the next is made: the most that the kernels
hold (the pool), and what the system counts as resident beyond what was there before.
"""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import spsample as sp
from peers.memory_use import peak_beyond
from spsample.sparse import measured_pool

BULKS = 5


def samplers(name: str, *, edge_ids: bool) -> tuple[sp.Sampler, bool]:
    """The sampler of that name."""
    made = {
        "blocks": sp.GraphSAGE([15, 10, 5]),
        "subgraph": sp.GraphSAGE([15, 10, 5], layout="subgraph"),
        "weighted": sp.GraphSAGE([15, 10, 5], weighted=True),
        "replaced": sp.GraphSAGE([15, 10, 5], replace=True),
        "whole rows": sp.GraphSAGE([-1, 10]),
        "LADIES norm": sp.LADIES([512, 512]),
        "LADIES squared": sp.LADIES([512, 512], law="squared_count"),
        "FastGCN": sp.FastGCN([400, 400]),
    }
    return made[name], edge_ids


def load(folder: Path, weighted: bool) -> sp.Graph:
    """The graph of a folder, in memory, with weights where they are wanted."""
    indptr, indices = np.load(folder / "indptr.npy"), np.load(folder / "indices.npy")
    data = np.random.default_rng(0).random(len(indices), np.float32) + np.float32(0.1) if weighted else None
    return sp.Graph(indptr, indices, data, validate=False)


def measure(folder: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Predicted and measured bytes of one case."""
    graph = load(folder, name == "weighted")
    sampler, edge_ids = samplers(name, edge_ids=options["edge_ids"])
    seeds = np.flatnonzero(np.diff(graph.indptr))
    k, made = options["bulk_size"], {}

    def run() -> int:
        loader = sp.BulkLoader(
            graph,
            seeds,
            sampler,
            batch_size=options["batch_size"],
            bulk_size=k,
            memory_budget="64GiB",
            edge_ids=edge_ids,
        )
        made["plan"] = loader.plan
        return sum(1 for _ in islice(loader, BULKS * k))

    with measured_pool() as memory:
        resident, batches = peak_beyond(run)
    plan = made["plan"]
    facts = {"predicted": plan.peak(k), "pool": memory.peak_bytes, "resident": resident, "batches": batches}
    return {**facts, "pilots": plan.counts.batches, "of": plan.num_batches, "spread": plan.spread}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
