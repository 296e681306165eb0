"""The queue of a sampler: minibatches that wait for a trainer, bounded in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spsample.common.locks import renewed
from spsample.errors import CapacityError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BatchQueue:
    """Packed minibatches by batch id, in at most `most_bytes`, until they are sent to a rank.

    Parameters
    ----------
    most_bytes : int
    send : function
        Called with a rank, a batch id and the packed minibatch, once both the batch and the rank are known.

    Attributes
    ----------
    nbytes, peak : int
        Bytes in the queue now, and at most so far.

    Examples
    --------
    >>> import numpy as np
    >>> queue = BatchQueue(64, lambda rank, batch, packed: print(f"batch {batch}, {len(packed)} bytes, to rank {rank}"))
    >>> queue.put(3, np.zeros(40, np.uint8))
    True
    >>> queue.give(3, rank=1)
    batch 3, 40 bytes, to rank 1
    >>> queue.nbytes, queue.peak
    (0, 40)
    """

    def __init__(self, most_bytes: int, send: Callable[[int, int, NDArray[Any]], None]) -> None:
        self.most_bytes = most_bytes
        self.nbytes = self.peak = 0
        self._send = send
        self._batches: dict[int, NDArray[Any]] = {}
        self._owed: dict[int, int] = {}
        self._changed = renewed(threading.Condition())
        self._is_closed = False

    def put(self, batch: int, packed: NDArray[Any]) -> bool:
        """Add a minibatch, or send it where a rank waits for it; waits for room. False where the queue was closed.

        Raises
        ------
        CapacityError
            If the queue could never hold it.
        """
        if len(packed) > self.most_bytes:
            raise CapacityError(
                argument="queue_memory",
                given=f"{self.most_bytes} bytes",
                expected=f"room for batch {batch}: {len(packed)} bytes",
                hint="Give more memory, or use smaller batches, fanouts or layer sizes.",
            )
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or batch in self._owed or self._has_room(packed))
            if self._is_closed:
                return False
            rank = self._owed.pop(batch, None)
            if rank is None:
                self._batches[batch] = packed
                self.nbytes += len(packed)
                self.peak = max(self.peak, self.nbytes)
        if rank is not None:
            self._send(rank, batch, packed)
        return True

    def give(self, batch: int, rank: int) -> None:
        """Send a minibatch to a rank: now, or as soon as it is there."""
        with self._changed:
            packed = self._batches.pop(batch, None)
            if packed is None:
                self._owed[batch] = rank
            else:
                self.nbytes -= len(packed)
            self._changed.notify_all()
        if packed is not None:
            self._send(rank, batch, packed)

    def close(self) -> None:
        """Let all waiting calls return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, packed: NDArray[Any]) -> bool:
        return self.nbytes + len(packed) <= self.most_bytes
