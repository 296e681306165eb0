"""Passes of the loader with features, beside DGL's and PyG's and the limit of the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import spsample as sp

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import graph_of, sampler_of


def arrays(inputs: Inputs) -> Work:
    """Batches as the loader gives them: CSR, and features of NumPy."""
    depth = 1 if inputs["layout"] == "subgraph" else None  # whose first layer has the edges of all
    return _passes(_loader(inputs), lambda batch: sum(layer.adj.nnz for layer in batch.layers[:depth]))


def tensors(inputs: Inputs) -> Work:
    """Batches as the peers give them: int64 COO edges as tensors, with ids in the layout "blocks", or a `Data`."""
    import torch  # noqa: F401  (missing where to_pyg would miss it)

    if inputs["layout"] == "subgraph":
        return _passes(_loader(inputs).pyg(), lambda batch: batch.edge_index.size(1))
    loader = _loader(inputs, edge_ids=True)
    return _passes(loader, lambda batch: sum(e.edge_index.size(1) for e in batch.minibatch.to_pyg()[2]))


def _passes(batches: Any, edges_of: Callable[[Any], int]) -> Work:
    def work() -> Figures:
        counts = [(edges_of(batch), len(batch.x)) for batch in batches]
        edges, rows = map(sum, zip(*counts, strict=True))
        return {"batches": len(counts), "edges": edges, "rows": rows}

    return work


def _loader(inputs: Inputs, **options: Any) -> sp.BulkLoader:
    return sp.BulkLoader(
        graph_of(inputs),
        inputs.seeds.ravel(),
        sampler_of(inputs, layout=inputs["layout"]),
        batch_size=inputs.seeds.shape[1],
        bulk_size=inputs["bulk_size"] or "auto",
        features=inputs.x,
        labels=inputs.y,
        shuffle=False,
        prefetch=inputs.get("prefetch", 0),
        **options,
    )


CASE = Case(
    about="A pass of the loader with features, over k, with and without prefetch, beside DGL's and PyG's loaders.",
    claim="The loader is several times as fast as DGL's and PyG's, and near to reading its rows at random.",
    parameters={
        "graph": ("rmat:18,16",),
        "threads": (1, 2),
        "layout": ("blocks", "subgraph"),
        "batches": (64,),
        "batch_size": (1024,),
        "bulk_size": (8, 64),
        "fanouts": ("15,10,5",),
        "dim": (100,),
    },
    quick={"graph": ("rmat:16,16",), "threads": (2,), "batches": (16,), "bulk_size": (8,)},
    sides=(
        Side("spsample, arrays", arrays),
        Side("spsample, arrays, prefetch", arrays, {"prefetch": 1}),
        Side("spsample, tensors", tensors),
        Side("spsample, tensors, prefetch", tensors, {"prefetch": 1}),
    ),
    job="loader-{layout}",
    baselines=("DGL", "PyG", "spsample, arrays"),
    count=arrays,
    few={"DGL": 12, "PyG": 12},
    plots=(Plot("ms", x="bulk_size", kind="line", facet="layout", logarithmic=True, title="ms a batch over k"),),
)
