"""`Owners`: ask the ranks that hold rows of A to do something with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from spsample.comm import Channel, Received, Sent
from spsample.distributed.placement import Placement
from spsample.sparse import LocalOperand

Serve = Callable[[LocalOperand, Sequence[Received]], Sequence[Sent]]
"""A function that answers requests to a block: it returns what goes to each rank that sent one."""


class Owners(NamedTuple):
    """The parts of A: block rows on the ranks of a column group, and after them the hub rows, which every rank holds.

    Attributes
    ----------
    channel : Channel
        Over the column group; block i is on rank i of it.
    placement : Placement
        The part of each row: one block per rank, and one more for the hub rows, where there are any.
    block : LocalOperand
        This rank's block row.
    hubs : LocalOperand or None
        The hub rows.
    """

    channel: Channel
    placement: Placement
    block: LocalOperand
    hubs: LocalOperand | None = None

    @property
    def num_parts(self) -> int:
        """Block rows, and the hub rows."""
        return self.placement.num_blocks

    def ask(self, sends: Sequence[Sent], serve: Serve, *, phase: str) -> list[Received]:
        """Send rows of several arrays to each part and return the answers, part by part: two all-to-allv.

        Every rank of the column group asks and serves at once. `serve` is called with this rank's block and what all
        ranks sent for it (and again with the hub rows and this rank's requests to them). Requests are counted under the
        phase "`phase` requests", answers under `phase`.
        """
        remote = self.channel.group.size
        asked = self.channel.exchange([_first(sent, remote) for sent in sends], phase=f"{phase} requests")
        answers = self.channel.exchange(serve(self.block, asked), phase=phase)
        if self.hubs is None:
            return answers
        own = serve(self.hubs, [_rest(sent, remote) for sent in sends])
        return [
            Received(np.concatenate([answer.rows, here.rows]), np.concatenate([answer.counts, here.counts]))
            for answer, here in zip(answers, own, strict=True)
        ]


def _first(sent: Sent, parts: int) -> Sent:
    """Return the rows for other ranks."""
    counts = sent.counts[:parts]
    return Sent(sent.rows[: int(counts.sum())], counts)


def _rest(sent: Sent, parts: int) -> Received:
    """Return the rows that this rank has for itself."""
    counts = sent.counts[parts:]
    return Received(sent.rows[len(sent.rows) - int(counts.sum()) :], counts)
