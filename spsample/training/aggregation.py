"""Weighted sums of rows by a block: of activations, and of the rows of a feature source where they lie."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from spsample.common.threads import compiled_core
from spsample.errors import InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.training.tensors import as_tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.training.blocks import Block

__all__ = ["aggregate", "weighted_sums"]

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
    if rows is None or is_reused or not block.indices.is_cpu or compiled_core() is None:
        return block.aggregate(as_tensor(features.gather(vertices)).to(block.indices.device))
    if len(vertices) and int(vertices.max()) >= len(rows):
        raise InputError(argument="source", given=f"{len(rows)} rows", expected="one row per vertex")
    columns = vertices[block.indices.numpy()].astype(np.int64, copy=False)
    return _summed(_Sums(block.indptr.numpy(), columns, block.values.numpy(), len(rows)), as_tensor(rows))


def weighted_sums(block: Block, h: Tensor) -> Tensor:
    """``A h``, for `Block.aggregate`: by the compiled core on the processor, by torch elsewhere.

    Both add up in the order of the entries. The gradient is ``A^T g``, added up in the order of the rows.
    """
    is_here = h.is_cpu and block.indices.is_cpu and not block.values.requires_grad
    if is_here and h.ndim == 2 and h.dtype in (torch.float32, torch.float64) and compiled_core() is not None:
        values = block.values.to(h.dtype).numpy()
        sums = _Sums(block.indptr.numpy(), block.indices.numpy(), values, len(h))
        result: Tensor = _WeightedSums.apply(h, sums)  # type: ignore[no-untyped-call]
        return result
    return functional.embedding_bag(
        block.indices,
        h,
        block.indptr,
        mode="sum",
        per_sample_weights=block.values.to(h.dtype),
        include_last_offset=True,
    )


class _Sums:
    """A sparse matrix of int64 pointers and columns."""

    def __init__(
        self, indptr: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[Any], num_columns: int
    ) -> None:
        self.indptr, self.columns, self.values = indptr, columns, values
        self.num_columns = num_columns

    @cached_property
    def transposed(self) -> _Sums:
        """The same by column; entries of a column in the order of the rows."""
        shape = len(self.indptr) - 1, self.num_columns
        by_column = sparse.csr_array((self.values, self.columns, self.indptr), shape).tocsc()
        pointers, rows = (np.asarray(a, np.int64) for a in (by_column.indptr, by_column.indices))
        return _Sums(pointers, rows, by_column.data, shape[0])


class _WeightedSums(torch.autograd.Function):
    """A h; its derivative is the same of A^T."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, sums: _Sums) -> Tensor:
        ctx.sums = sums
        return _summed(sums, h.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        result: Tensor = _WeightedSums.apply(gradients[0], ctx.sums.transposed)  # type: ignore[no-untyped-call]
        return result, None


def _summed(sums: _Sums, h: Tensor) -> Tensor:
    """A h, into memory that torch allocates."""
    h = h.contiguous()
    out = torch.empty(len(sums.indptr) - 1, h.shape[1], dtype=h.dtype)
    compiled_core().aggregate_rows(
        sums.indptr, sums.columns, sums.values, h.numpy().reshape(-1), tuple(h.shape), out.numpy().reshape(-1)
    )
    return out


def _rows_as_they_lie(features: FeatureSource) -> NDArray[np.float32] | None:
    """The rows of a source in memory, where they are float32 in C order; else None."""
    reader = getattr(features, "rows_in_memory", None)
    rows = None if reader is None else reader.rows
    if type(rows) is not np.ndarray or rows.dtype != np.float32 or not rows.flags.c_contiguous:
        return None
    return rows


def _sources_of(block: Block) -> NDArray[Any]:
    if block.vertices is None or block.exchange is not None:
        raise InputError(
            argument="block", given="one that does not know its sources", expected="one of a BlockMaker, of one rank"
        )
    return np.asarray(as_tensor(block.vertices).cpu())


def _rows_of(table: Tensor, vertices: NDArray[Any]) -> Tensor:
    if table.ndim != 2:
        raise InputError(argument="source", given=f"{table.ndim} dimensions", expected="two: a row per vertex")
    if len(vertices) and int(vertices.max()) >= len(table):
        raise InputError(argument="source", given=f"{len(table)} rows", expected="one row per vertex")
    return table.index_select(0, torch.from_numpy(vertices.astype(np.int64)).to(table.device))
