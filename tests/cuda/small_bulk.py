"""A small bulk of every sampler on the GPU, equal to that of `cpu`; `make gpu-sanitize` lets compute-sanitizer look on.

Every array has an allocation of its own, so that memcheck sees an access outside of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from equality import assert_bulks_same, every_sampler

import spsample as sp

FORMS = ("unweighted", "row", "weighted", "weighted float32", "wide")


def small_graph(form: str) -> sp.Graph:
    """300 vertices: a hub of 9,000 entries, parallel edges, empty rows; weights over 12 orders of magnitude."""
    rng = np.random.default_rng(5)
    sources = rng.integers(0, 300, 12000)
    targets = np.concatenate([np.zeros(9000, np.int64), rng.integers(0, 280, 3000)])
    weights = rng.exponential(size=12000) * 10.0 ** rng.integers(-12, 1, 12000)
    kind = {"weighted": np.float64, "weighted float32": np.float32}.get(form)
    edge_weight = None if kind is None else weights.astype(kind)
    graph = sp.Graph.from_edge_index(np.stack([sources, targets]), num_nodes=300, edge_weight=edge_weight)
    if form == "wide":
        return sp.Graph(graph.indptr, graph.indices.astype(np.int64))
    return graph.normalized("row") if form == "row" else graph


def samplers() -> list[sp.Sampler]:
    """One for each law, layout and path: narrow and wide rows, whole rows, few and many columns."""
    return [*every_sampler(16), sp.GraphSAGE([40, -1]), sp.GraphSAGE([-1], layout="subgraph")]


def check(backend: str) -> int:
    """Compare all bulks with those of `cpu`; how many there were."""
    seeds = np.random.default_rng(0).integers(0, 300, 5 * 24)
    count = 0
    for form in FORMS:
        graph = small_graph(form)
        for sampler in samplers():
            options = {"batch_size": 24, "random_seed": 7, "edge_ids": True}
            expected = sp.bulk_sample(graph, seeds, sampler, backend="cpu", **options)
            bulk = sp.bulk_sample(graph, seeds, sampler, backend=backend, **options)
            assert_bulks_same(expected, bulk.to_host() if backend == "cuda" else bulk)
            count += 1
    return count


def main() -> None:
    import cupy

    cupy.cuda.set_allocator(None)
    print(f"{check('cuda')} bulks, each equal to that of the backend cpu")


if __name__ == "__main__":
    main()
