"""Models of the bytes that a GPU's memory must move for a sample, counted from what was sampled.

They are lower limits for a sampler that works row by row: A is read from memory in sectors of 32 bytes, each once for
every row that needs it, and what the second-level cache saves between rows is not counted. A bulk that visits A in its
own order could read less than the model where many draws fall into one sector. Sets of columns (bits, hash tables), a
part of which lies in that cache, are not counted at all.

**Node-wise** (GraphSAGE, blocks), for each layer of a batch:

- row: its vertex id read; the sectors of `indptr` with its two ends; a row pointer of 8 bytes written;
- drawn entry: the distinct sectors of `indices` that hold the row's drawn entries, so 32 bytes for an entry of a long
  row; the column written by the draw, read for its place among the sources, and the place written (3 ids);
- weighted rows: the sectors of the weights that hold the drawn entries, whose weights are written, too (sums of weights
  that a sampler keeps, and searches, are not counted);
- source: its id written.

**Layer-wise** (LADIES by the entry law), for each layer of a batch:

- row: as above, twice the sectors of `indptr`, once for the draws and once for the extraction;
- drawn column: a sector of `indices` and its id written;
- extraction: all entries of the frontier's rows read (the sectors that hold them);
- kept entry: its place written, and its value;
- source: its id written.

Redraws are not counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lines import indices_lines, indptr_lines

SECTOR = 32
POINTER = 8


def bytes_of_minibatch(minibatch: Any, indptr: NDArray[np.int64], options: dict[str, Any]) -> int:
    """Of all layers; `options` are those of the task: `method` and `graph` ("exponential": weights of 4 bytes)."""
    if options.get("method", "GraphSAGE") == "GraphSAGE":
        weight_bytes = 4 if options.get("graph") == "exponential" else 0
        return sum(node_wise_bytes(layer, weight_bytes) for layer in minibatch.layers)
    return sum(layer_wise_bytes(layer, indptr) for layer in minibatch.layers)


def node_wise_bytes(layer: Any, weight_bytes: int = 0) -> int:
    """Of one layer of a batch whose `edge_ids` are positions in A."""
    itemsize = layer.src_nodes.dtype.itemsize
    rows = layer.dst_nodes
    read = (itemsize, weight_bytes) if weight_bytes else (itemsize,)
    drawn = sum(indices_lines(layer.adj.indptr, layer.edge_ids, size, SECTOR).per_row for size in read)
    sectors = indptr_lines(rows, POINTER, SECTOR).per_row + drawn
    ids = len(rows) + 3 * layer.adj.nnz + len(layer.src_nodes)
    written = weight_bytes * layer.adj.nnz + POINTER * (len(rows) + 1)
    return SECTOR * sectors + itemsize * ids + written


def layer_wise_bytes(layer: Any, indptr: NDArray[np.int64]) -> int:
    """Of one layer of a batch that keeps its targets."""
    itemsize = layer.src_nodes.dtype.itemsize
    rows, sources = layer.dst_nodes, len(layer.src_nodes)
    new = sources - len(rows)
    sectors = 2 * indptr_lines(rows, POINTER, SECTOR).per_row + new + whole_row_sectors(rows, indptr, itemsize)
    value_bytes = 0 if layer.adj.data is None else layer.adj.data.dtype.itemsize
    ids = len(rows) + new + sources
    entries = layer.adj.nnz * (itemsize + value_bytes)
    return SECTOR * sectors + itemsize * ids + entries + POINTER * (len(rows) + 1)


def whole_row_sectors(rows: NDArray[Any], indptr: NDArray[np.int64], itemsize: int) -> int:
    """Sectors that hold all entries of each row; the array is taken to begin on a sector."""
    begin, end = indptr[rows] * itemsize, indptr[rows.astype(np.int64) + 1] * itemsize
    return int(np.where(end > begin, (end - 1) // SECTOR - begin // SECTOR + 1, 0).sum())
