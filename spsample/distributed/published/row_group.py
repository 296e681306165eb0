"""What the ranks of a row group found in the parts of A that are theirs, put together on all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.comm import Channel, Received
from spsample.comm.communicator import Array
from spsample.distributed.row_arrays import RowArrays
from spsample.distributed.wire_format import packed, unpack

PHASE = "reduction"


class RowGroup:
    """All-gathers over the row group: of what its ranks have of different rows, a sum is what stands side by side.

    Nothing is exchanged where c = 1.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.size = channel.group.size
        self.rank = channel.group.rank

    def gather(self, arrays: Sequence[Array]) -> list[Received]:
        """Arrays of all columns, one column after the other."""
        if self.size == 1:
            return [Received(rows, np.array([len(rows)], np.int64)) for rows in arrays]
        return self.channel.gather(arrays, phase=PHASE)

    def numbers(self, values: NDArray[np.integer], counts: Int64Array) -> Int64Array:
        """Numbers of at least 0, `counts[j]` of them of column j."""
        return unpack(self.gather([packed(values)])[0], counts)

    def rows(self, rows: RowArrays, counts: Int64Array) -> RowArrays:
        """Entries of rows, `counts[j]` of them of column j."""
        return rows.received(self.gather([packed(rows.lengths), *rows.entries]), counts)


__all__ = ["PHASE", "RowGroup"]
