"""Parts that the entry law and the column law share: room for what blocks draw, and the sample that is made of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import draw_limit_error
from spsample.backends.cuda.device import BLOCK, MOST_BLOCKS, DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher
from spsample.backends.cuda.sources import Variant
from spsample.backends.protocol import ColumnSample, Int64Array

CLOSE_UP = Kernel("column_law", "close_up")

SHARED_SLOTS = 2048
"""Hash tables of up to this number of slots lie in shared memory (kernels/cuda/distinct_draws.h)."""

SLOT_BYTES = 12
SHARE_OF_SCRATCH = 2
"""The blocks take at most half of what scratch may take, an eighth of the memory that is free, or one block's."""

NO_DRAW_NUMBERS = 1
WRONG_GUIDE = 2


class Drawn(NamedTuple):
    """The draws of k batches, and the room for them: batch i from `ptr[i]` on. `counts` is None without replacement.

    `state` holds, per batch, how many there are, T, whether the support was taken whole, the number of entries (entry
    law), and behind them an error.
    """

    host_ptr: Int64Array
    ptr: DeviceArray
    outcomes: DeviceArray
    counts: DeviceArray | None
    state: DeviceArray


class Tables(NamedTuple):
    """Hash tables for the blocks of a launch, or none where they fit in shared memory."""

    blocks: int
    keys: DeviceArray | None
    numbers: DeviceArray | None
    capacity: int

    @property
    def parameters(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return (self.keys, self.numbers, self.capacity)


class State(NamedTuple):
    """`Drawn.state` on the host."""

    found: Int64Array
    totals: NDArray[np.uint64]
    whole: NDArray[np.bool_]
    entries: Int64Array


class Names(NamedTuple):
    """Ids that outcomes stand for: outcome o of batch i for `ids[ptr[i] + o]`."""

    ptr: DeviceArray
    ids: DeviceArray


class DistinctDraws(KernelLauncher):
    """Base of the laws' parts."""

    def drawn_room(self, room: Int64Array, replace: bool) -> Drawn:
        """For at most room[i] outcomes of batch i."""
        pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(room, dtype=np.int64)])
        total = int(pointers[-1])
        counts = self.device.zeros(total, np.int64) if replace else None
        state = self.device.zeros(4 * len(room) + 1, np.int64)
        return Drawn(pointers, self.device.to_device(pointers), self.device.empty(total, np.int64), counts, state)

    def drawn_tables(self, batches: int, limit: int, scratch: int = 0) -> Tables:
        """For at most `limit` outcomes of a batch; each block needs `scratch` bytes more."""
        capacity = 1 << (2 * (limit + BLOCK) - 1).bit_length()
        shared = capacity <= SHARED_SLOTS
        per_block = scratch + (0 if shared else SLOT_BYTES * capacity)
        fitting = self.device.scratch_bytes() // SHARE_OF_SCRATCH // max(per_block, 1)
        blocks = max(min(batches, fitting, MOST_BLOCKS), 1)
        if shared:
            return Tables(blocks, None, None, capacity)
        keys, numbers = self.device.empty(blocks * capacity, np.int64), self.device.empty(blocks * capacity, np.uint32)
        return Tables(blocks, keys, numbers, capacity)

    def drawn_state(self, drawn: Drawn) -> State:
        """Waits. Raises what went wrong."""
        words, k = self.device.to_host(drawn.state), len(drawn.host_ptr) - 1
        if words[-1] == NO_DRAW_NUMBERS:
            raise draw_limit_error()
        if words[-1] == WRONG_GUIDE:
            raise ValueError("guide: is not the guide table of these prefix sums")
        found, totals, whole, entries = (words[i * k : (i + 1) * k] for i in range(4))
        return State(found, totals.view(np.uint64), whole != 0, entries)

    def drawn_sample(
        self, drawn: Drawn, state: State, dtype: np.dtype[Any], names: Names | None = None
    ) -> ColumnSample:
        """The outcomes, or what they stand for, as columns of the type."""
        k = len(state.found)
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(state.found, dtype=np.int64)])
        columns, counts = self.device.empty(int(indptr[-1]), dtype), self.device.empty(int(indptr[-1]), np.int64)
        named = (None, None) if names is None else names
        arguments = (k, self.uploaded(indptr), drawn.ptr, drawn.outcomes, drawn.counts, *named, columns, counts)
        self.run(CLOSE_UP, len(columns), *arguments, variant=Variant(np.dtype(dtype).name))
        return ColumnSample(indptr, columns, counts, state.totals, state.whole)
