"""`PartitionedOperand`: the base of the algorithms on a partitioned A; requests to the ranks that hold its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm import Channel, Received, Sent
from spsample.common.lazily import lazily
from spsample.distributed.blocks import HeldRows
from spsample.distributed.column_ranges import ColumnRanges
from spsample.distributed.grid import ProcessGrid
from spsample.sparse import GraphOperand, LocalOperand

Serve = Callable[[LocalOperand, Sequence[Received]], Sequence[Sent]]
"""A function that answers requests to a part: it returns what goes to each rank that sent one."""


class PartitionedOperand(GraphOperand):
    """A in block rows over a process grid. An algorithm brings its rows to those of Q, and assigns batches to ranks.

    Columns of FastGCN are drawn in the column group, whose ranks have ranges of them.

    Parameters
    ----------
    grid : ProcessGrid
    held : HeldRows

    Attributes
    ----------
    channel : Channel
        Over the column group, block row i on rank i of it; the ranks of its scope learn of a failure by the next
        exchange.
    held : HeldRows
    num_parts : int
        Block rows, and the hub rows, where there are any.
    """

    draws_here = False

    def __init__(self, grid: ProcessGrid, held: HeldRows) -> None:
        self.channel = self.column_channel(grid)
        self.held, self.num_parts = held, held.placement.num_blocks
        self.num_nodes = held.rows.num_nodes
        self.num_edges = held.rows.num_edges
        self.weighting = held.rows.weighting
        self.index_dtype = held.rows.index_dtype
        self.backend = held.block.backend

    @staticmethod
    def column_channel(grid: ProcessGrid) -> Channel:
        """Return a channel over the column group, which is its scope, too: ranks of other columns do not take part."""
        return Channel(grid.column_group)

    @staticmethod
    def sampled_batches(grid: ProcessGrid, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that a rank samples: those that it gets."""
        return np.arange(grid.comm.rank, num_batches, grid.comm.size, dtype=np.int64)

    @lazily
    def column_norms(self) -> ColumnRanges:
        """Squared column norms of the whole A, in ranges of columns over the column group."""
        return ColumnRanges(self.channel, self.held.block, self.num_edges)

    def any_reduce(self, *here: bool) -> list[bool]:
        return self.channel.any_reduce(*here)

    def ask(self, sends: Sequence[Sent], serve: Serve, *, phase: str) -> list[Received]:
        """Send rows of several arrays to each part and return the answers, part by part: two all-to-allv.

        Every rank of the column group asks and serves at once. `serve` is called with this rank's block and what all
        ranks sent for it (and again with the hub rows and this rank's requests to them). Requests are counted under the
        phase "`phase` requests", answers under `phase`.
        """
        remote = self.channel.group.size
        ends = [int(sent.counts[:remote].sum()) for sent in sends]
        to_blocks = [Sent(sent.rows[:end], sent.counts[:remote]) for sent, end in zip(sends, ends, strict=True)]
        asked = self.channel.exchange(to_blocks, phase=f"{phase} requests")
        answers = self.channel.exchange(serve(self.held.block, asked), phase=phase)
        if self.held.hubs is None:
            return answers
        mine = [Received(sent.rows[end:], sent.counts[remote:]) for sent, end in zip(sends, ends, strict=True)]
        return [
            Received(np.concatenate([answer.rows, here.rows]), np.concatenate([answer.counts, here.counts]))
            for answer, here in zip(answers, serve(self.held.hubs, mine), strict=True)
        ]
