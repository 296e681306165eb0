"""The exchanges of algorithm 2: rows of the block of a stage within a column group, results over a row group.

Rows come to the ranks of a column group by request, or the whole block is broadcast to them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spsample.backends import StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Channel, Received, Sent
from spsample.comm.communicator import Array
from spsample.common.contents import contents_of
from spsample.distributed.placement import Placement
from spsample.distributed.row_arrays import RowArrays
from spsample.distributed.wire_format import packed, unpack
from spsample.errors import InputError
from spsample.sparse import LocalOperand

ROWS, REQUESTS, REDUCTION = "rows", "rows requests", "reduction"
"""Phases."""


class RequestedRows:
    """Rows of A, of one block row in each stage; sparsity-aware, as in the published algorithm 2.

    Row numbers go to the one rank that has the block, and rows come back.

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

    def rows(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """Fetch the rows with the numbers `wanted` of a block row, the same one on all ranks of the column group.

        None, where this column has no block row left, is a stage too, for the ranks of other columns. Takes two
        exchanges; in the second only the block's rank sends.
        """
        counts = np.zeros(self.channel.group.size, np.int64)
        if block is not None:
            counts[block] = len(wanted)
        (asked,) = self.channel.exchange([Sent(wanted, counts)], phase=REQUESTS)
        taken = RowArrays.taken(self.block, asked.rows, edge_ids)
        return taken.received(self.channel.exchange(taken.sends(asked.counts), phase=ROWS), counts)


class BroadcastRows(RequestedRows):
    """Sparsity-oblivious: the whole block is broadcast in the column group, and each rank keeps the rows it wants."""

    def rows(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """Fetch by a broadcast of each array."""
        A = self.block.matrix
        ids = self.block.edge_ids_at(np.arange(len(A.indices))) if edge_ids else None
        own = RowArrays(np.diff(A.indptr), A.indices, A.data, ids)
        lengths, *entries = self.channel.broadcast([packed(own.lengths), *own.entries], block, phase=ROWS)
        rows = 0 if block is None else int(self.placement.bounds[block + 1] - self.placement.bounds[block])
        whole = own.replaced(unpack(Received(lengths, np.array([len(lengths)])), np.array([rows])), entries)
        return whole.picked(self.block, wanted)


class RowGroup(Channel):
    """All-gathers over the row group, whose ranks have different rows: their sum is a concatenation.

    All of its ranks have the same Q, which headers compare. Nothing is exchanged where c = 1.
    """

    _contents = 0
    """Number that tells Q from others."""

    def of(self, Q: StackedSelector) -> RowGroup:
        """Return this row group for rows of Q."""
        other = copy.copy(self)
        if self.group.size > 1:
            other._contents = contents_of(np.array([contents_of(array) for array in Q]))
        return other

    def gather(self, arrays: Sequence[Array], *, phase: str = REDUCTION) -> list[Received]:
        """Gather arrays of all columns, one column after the other.

        Raises
        ------
        InputError
            If ranks of the row group ask for rows of their own.
        """
        if self.group.size == 1:
            return [Received(rows, np.array([len(rows)], np.int64)) for rows in arrays]
        return super().gather(arrays, phase=phase)

    def _header(self, counts: Int64Array, call: str) -> Int64Array:
        header = super()._header(np.column_stack([counts, np.full(self.group.size, self._contents)]), call)
        if (header[:, -1] != self._contents).any():
            raise InputError(
                argument="Q",
                given="other rows than on other ranks of the row group",
                expected="the same batches of the same rows on all of them, as algorithm 2 of the paper has them",
                hint="Take algorithm='column', where each rank asks for rows of its own. Or use bulk_sample.",
            )
        return header[:, :-1]

    def numbers(self, values: NDArray[np.integer], counts: Int64Array) -> Int64Array:
        """Gather numbers of at least 0, `counts[j]` of them of column j."""
        return unpack(self.gather([packed(values)])[0], counts)

    def rows(self, rows: RowArrays, counts: Int64Array) -> RowArrays:
        """Gather entries of rows, `counts[j]` of them of column j."""
        return rows.received(self.gather([packed(rows.lengths), *rows.entries]), counts)
