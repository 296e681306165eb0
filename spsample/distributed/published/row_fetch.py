"""How the ranks of a column group come by rows of the block of a stage: ask for them, or have the block broadcast."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from spsample.backends.protocol import IntArray
from spsample.comm import Channel, Received, Sent
from spsample.distributed.placement import Placement
from spsample.distributed.row_arrays import RowArrays
from spsample.distributed.wire_format import packed, unpack
from spsample.sparse import LocalOperand

ROWS, REQUESTS = "rows", "rows requests"
"""Phases."""


class RowFetch(ABC):
    """Fetches rows of one block row of A after the other; one of each stage.

    Parameters
    ----------
    channel : Channel
        Over the column group; rank k of it holds block row k.
    block : LocalOperand
        This rank's.
    placement : Placement
    """

    def __init__(self, channel: Channel, block: LocalOperand, placement: Placement) -> None:
        self.channel = channel
        self.block = block
        self.placement = placement

    @abstractmethod
    def rows(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """The rows with the numbers `wanted` of a block row, the same one on all ranks of the column group.

        None, where there is none left for this column, still is a stage, for the ranks of other columns.
        """


class RequestedRows(RowFetch):
    """Sparsity-aware, as in the published algorithm 2: row numbers go to the one rank that has the block, rows back."""

    def rows(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """Two exchanges; in the second only the block's rank sends."""
        counts = np.zeros(self.channel.group.size, np.int64)
        if block is not None:
            counts[block] = len(wanted)
        (asked,) = self.channel.exchange([Sent(wanted, counts)], phase=REQUESTS)
        taken = RowArrays.taken(self.block, asked.rows, edge_ids)
        return taken.received(self.channel.exchange(taken.sends(asked.counts), phase=ROWS), counts)


class BroadcastRows(RowFetch):
    """Sparsity-oblivious: the whole block is broadcast in the column group, and each rank keeps the rows it wants."""

    def rows(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """One broadcast of each array."""
        own = self._whole(edge_ids)
        lengths, *entries = self.channel.broadcast([packed(own.lengths), *own.entries], block, phase=ROWS)
        rows = 0 if block is None else int(self.placement.bounds[block + 1] - self.placement.bounds[block])
        whole = own.replaced(unpack(Received(lengths, np.array([len(lengths)])), np.array([rows])), entries)
        return whole.picked(self.block, wanted)

    def _whole(self, edge_ids: bool) -> RowArrays:
        """Its own block, of each rank."""
        A = self.block.matrix
        ids = self.block.edge_ids_at(np.arange(len(A.indices))) if edge_ids else None
        return RowArrays(np.diff(A.indptr), A.indices, A.data, ids)


__all__ = ["BroadcastRows", "RequestedRows", "RowFetch"]
