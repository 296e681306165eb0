"""The first layer's sum over the rows of a feature source, where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spsample.common.checks import require_type
from spsample.common.threads import compiled_core
from spsample.errors import DTypeError, InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.nn.blocks import Block
from spsample.nn.sums import Sums, is_differentiated, summed
from spsample.nn.tensors import as_array, as_tensor

_REUSE = 5
"""Entries per source from which on rows are gathered first: they are read from memory once then."""


def aggregate(block: Block, source: Any) -> Tensor:
    """Return ``A x`` of a block and the rows x of its sources, read where they lie: shape ``(num_dst, dim)``, float32.

    Where the block has at most five times as many entries as sources, and the rows lie in memory as float32, they are
    added up on the way, and the rows of the sources are never written out. Else they are gathered first. The result is
    the same to the bit.

    Parameters
    ----------
    block
        Made by a `BlockMaker` of a layer whose sources are known: of a batch of one's own, not a cooperative one.
    source
        A row for each vertex of the graph: a `FeatureSource`, an array or SciPy CSR matrix of features; or a torch
        tensor, such as the weight of an embedding, through which gradients flow where it asks for them (``A^T g``). No
        gradient flows to the rows of a feature source.

    Raises
    ------
    InputError
        If the block does not know its sources, a source has too few rows, or a tensor does not have two dimensions.

    Examples
    --------
    >>> import numpy as np, spsample as sp
    >>> from spsample.training import BlockMaker
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 0, 2]], num_nodes=4)
    >>> sampler = sp.GraphSAGE([-1])
    >>> block = BlockMaker(graph, sampler)(sp.bulk_sample(graph, [0, 2], sampler, batch_size=2)[0].layers[0])
    >>> aggregate(block, np.array([[1.0], [2.0], [3.0], [7.0]], np.float32))
    tensor([[4.],
            [1.]])
    """
    vertices = _sources_of(block)
    if isinstance(source, Tensor):
        return block.aggregate(_rows_of(source, vertices))
    features = source if isinstance(source, FeatureSource) else FeatureStore(source)
    rows = _rows_as_they_lie(features)
    is_reused = len(block.indices) > _REUSE * block.num_src
    is_for_core = block.indices.is_cpu and not is_differentiated(block.values) and compiled_core() is not None
    if rows is None or is_reused or not is_for_core:
        return block.aggregate(as_tensor(features.gather(vertices)).to(block.indices.device))
    if len(vertices) and int(vertices.max()) >= len(rows):
        raise InputError(argument="source", given=f"{len(rows)} rows", expected="one row per vertex")
    columns = vertices[as_array(block.indices)].astype(np.int64, copy=False)
    values = as_array(block.values).astype(np.float32, copy=False)
    return summed(Sums(as_array(block.indptr), columns, values, len(rows)), rows)


def _rows_as_they_lie(features: FeatureSource) -> NDArray[np.float32] | None:
    """The rows of a source in memory, where they are float32 in C order; else None."""
    reader = features.rows_in_memory
    rows = None if reader is None else reader.rows
    if type(rows) is not np.ndarray or rows.dtype != np.float32 or not (rows.flags.c_contiguous and rows.flags.aligned):
        return None
    return rows


def _sources_of(block: Block) -> NDArray[Any]:
    require_type("block", block, Block, "a block of a BlockMaker")
    if block.vertices is None or block.exchange is not None:
        raise InputError(
            argument="block", given="one that does not know its sources", expected="one of a BlockMaker, of one rank"
        )
    return block.vertices if isinstance(block.vertices, np.ndarray) else as_array(as_tensor(block.vertices).cpu())


def _rows_of(table: Tensor, vertices: NDArray[Any]) -> Tensor:
    if table.ndim != 2:
        raise InputError(argument="source", given=f"{table.ndim} dimensions", expected="two: a row per vertex")
    if not table.is_floating_point():
        raise DTypeError(argument="source", given=f"dtype {table.dtype}", expected="a tensor of floating-point numbers")
    if len(vertices) and int(vertices.max()) >= len(table):
        raise InputError(argument="source", given=f"{len(table)} rows", expected="one row per vertex")
    return table.index_select(0, torch.from_numpy(vertices.astype(np.int64)).to(table.device))
