"""Sampled layers as torch operators: one weighted sum over the in-neighbours of each target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.store import Graph

__all__ = ["BLOCK_MAKERS", "Block", "full_rows", "mean_block", "value_block"]


@dataclass(frozen=True)
class Block:
    """One layer's sampled adjacency as the linear operator ``h -> A h``.

    Attributes
    ----------
    indptr
        int64, shape ``(num_dst + 1,)``.
    indices
        int64, shape ``(nnz,)``, rows of the input of `aggregate`.
    values
        float32, shape ``(nnz,)``.
    num_src
        Number of rows that `aggregate` expects.

    Examples
    --------
    >>> import torch
    >>> block = Block(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([0.5, 0.5]), 2)
    >>> block.aggregate(torch.tensor([[1.0], [3.0]]))
    tensor([[2.],
            [0.]])
    """

    indptr: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor
    num_src: int

    @property
    def num_dst(self) -> int:
        """Number of target rows."""
        return len(self.indptr) - 1

    def aggregate(self, h: torch.Tensor) -> torch.Tensor:
        """Return ``A h``: shape ``(num_src, dim)`` to ``(num_dst, dim)``; rows without entries are 0.

        ``embedding_bag`` is torch's row-segment sum: differentiable, free of an ``nnz x dim`` temporary,
        and the same call on every device.
        """
        if len(self.indices) == 0:
            return h.new_zeros((self.num_dst, h.shape[1]))
        return functional.embedding_bag(
            self.indices,
            h,
            self.indptr,
            mode="sum",
            per_sample_weights=self.values,
            include_last_offset=True,
        )


def mean_block(adj: Any) -> Block:
    """Block that takes the mean over each row's entries (weighted by ``adj.data`` where there is one).

    For GraphSAGE. ``adj`` needs ``indptr, indices, data, shape`` as in ``mb.layers[l].adj``.
    """
    counts = np.diff(adj.indptr)
    if adj.data is None:
        values = np.repeat(_inverse(counts), counts)
    else:
        totals = _row_sums(adj.indptr, adj.data)
        values = adj.data * np.repeat(_inverse(totals), counts)
    return _block(adj, values)


def value_block(adj: Any) -> Block:
    """Block that sums with the values the sampler gave: LADIES' and FastGCN's estimate of ``A h``."""
    return _block(adj, adj.data if adj.data is not None else np.ones(len(adj.indices)))


BLOCK_MAKERS: dict[str, Callable[[Any], Block]] = {"mean": mean_block, "values": value_block}


@dataclass(frozen=True)
class _Rows:
    """A slice of the rows of a graph, with global column ids."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    data: NDArray[Any] | None
    shape: tuple[int, int]


def full_rows(graph: Graph, start: int, stop: int, aggregation: str) -> Block:
    """Return the full neighbourhoods of the vertices ``start <= v < stop`` as a block over all vertices.

    The exact counterpart of what a sampled layer estimates: the mean, or the row's own values
    (``1 / degree`` on a row-normalised graph).
    """
    low, high = int(graph.indptr[start]), int(graph.indptr[stop])
    data = None if graph.data is None else graph.data[low:high]
    rows = _Rows(
        indptr=graph.indptr[start : stop + 1] - low,
        indices=graph.indices[low:high],
        data=data,
        shape=(stop - start, graph.num_nodes),
    )
    if graph.weighting == "row":
        return mean_block(rows)
    return BLOCK_MAKERS[aggregation](rows)


def _block(adj: Any, values: NDArray[Any]) -> Block:
    return Block(
        indptr=_tensor(adj.indptr, np.int64),
        indices=_tensor(adj.indices, np.int64),
        values=_tensor(values, np.float32),
        num_src=int(adj.shape[1]),
    )


def _tensor(array: NDArray[Any], dtype: Any) -> torch.Tensor:
    converted = np.ascontiguousarray(array, dtype=dtype)
    # torch warns about read-only memory (a shared graph, a view of a bulk); the copy is small.
    return torch.from_numpy(converted if converted.flags.writeable else converted.copy())


def _row_sums(indptr: NDArray[np.int64], data: NDArray[Any]) -> NDArray[np.float64]:
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.bincount(rows, weights=data, minlength=len(indptr) - 1).astype(np.float64)


def _inverse(totals: NDArray[Any]) -> NDArray[np.float64]:
    """``1 / totals``, and 0 where the total is 0."""
    result: NDArray[np.float64] = np.zeros(len(totals), dtype=np.float64)
    np.divide(1.0, totals, out=result, where=totals > 0)
    return result
