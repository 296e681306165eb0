"""Node-wise sampling in bulk, beside batch-by-batch samplers and the rate of the memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, sampler_of

_LINE = 64


def csr(inputs: Inputs) -> Work:
    """Batches as they are in a bulk."""
    calls = Calls(inputs, sampler_of(inputs))
    return lambda: {"batches": calls.batches, "edges": sum(bulk.num_edges for bulk in calls())}


def coo(inputs: Inputs) -> Work:
    """Each batch as int64 COO edges with ids of edges and vertices, tensors of torch."""
    import torch  # noqa: F401  (missing where to_pyg would miss it: said before anything is timed)

    calls = Calls(inputs, sampler_of(inputs), edge_ids=True)

    def work() -> Figures:
        layers = (layer for bulk in calls() for batch in bulk for layer in batch.to_pyg()[2])
        return {"batches": calls.batches, "edges": sum(layer.edge_index.size(1) for layer in layers)}

    return work


def count_lines(inputs: Inputs) -> Work:
    """Cache lines of `indptr` and `indices` that a batch-by-batch sampler has to touch."""
    calls = Calls(inputs, sampler_of(inputs), edge_ids=True)

    def work() -> Figures:
        itemsize = inputs.indices.itemsize
        layers = (layer for bulk in calls() for batch in bulk for layer in batch.layers)
        return {"lines": sum(lines(one.dst_nodes, one.adj.indptr, one.edge_ids, itemsize) for one in layers)}

    return work


def lines(
    rows: NDArray[np.int64], ends: NDArray[np.int64], positions: NDArray[np.int64], itemsize: int, size: int = _LINE
) -> int:
    """Those of the row pointers of each row, and the distinct ones of its drawn entries."""
    first, last = rows.astype(np.int64) * 8 // size, (rows.astype(np.int64) + 1) * 8 // size
    pointers = len(rows) + int(np.count_nonzero(first != last))
    if not len(positions):
        return pointers
    line = positions.astype(np.int64) * itemsize // size
    row = np.repeat(np.arange(len(ends) - 1, dtype=np.int64), np.diff(ends))
    keys = np.sort(row * (int(line.max()) + 1) + line)
    return pointers + 1 + int(np.count_nonzero(keys[1:] != keys[:-1]))


CASE = Case(
    about="GraphSAGE's minibatches over k, b and threads, beside DGL's, PyG's and the limit of the memory.",
    claim="Bulk sampling is several times as fast as samplers that work batch by batch, on as many threads.",
    parameters={
        "graph": ("rmat:18,16",),
        "threads": (1, 2),
        "batches": (64,),
        "batch_size": (1024,),
        "bulk_size": (1, 16, 64),
        "fanouts": ("15,10,5",),
    },
    quick={"graph": ("rmat:16,16",), "batches": (16,), "bulk_size": (1, 16)},
    sides=(Side("spsample, CSR", csr), Side("spsample, COO and edge ids", coo)),
    job="blocks",
    baselines=("DGL DataLoader", "pyg-lib", "spsample, CSR"),
    count=count_lines,
    few={"DGL": 12, "PyG": 6, "pyg-lib": 12},
    plots=(Plot("ms", x="bulk_size", kind="line", facet="threads", logarithmic=True, title="ms a batch over k"),),
)
