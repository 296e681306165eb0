"""Who writes where: buckets that are merged learn their place from those before them."""

from __future__ import annotations

from threading import Condition
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["KnownPlaces", "Places", "StoppedError", "Turns"]


class StoppedError(Exception):
    """Another thread failed; its error is the one to report."""


class Places(Protocol):
    """Tells each bucket where its entries begin."""

    def begin(self, bucket: int) -> int:
        """Return the first entry of a bucket."""
        ...

    def done(self, bucket: int, end: int) -> None:
        """Take note of where a bucket ends."""
        ...

    def stop(self) -> None:
        """Let nobody wait any longer."""
        ...


class KnownPlaces:
    """Every bucket writes as many entries as were counted."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._starts = np.concatenate([[0], np.cumsum(counts)])

    def begin(self, bucket: int) -> int:
        """Return the first entry of a bucket."""
        return int(self._starts[bucket])

    def done(self, bucket: int, end: int) -> None:
        """Nobody waits for this."""

    def stop(self) -> None:
        """Nobody waits."""

    @property
    def end(self) -> int:
        """Behind the last entry."""
        return int(self._starts[-1])


class Turns:
    """A bucket writes behind the one before it. Buckets must be begun in order, or they would wait for ever."""

    def __init__(self) -> None:
        self.end = 0
        self._next = 0
        self._stopped = False
        self._change = Condition()

    def begin(self, bucket: int) -> int:
        """Wait for the bucket before, and return the first entry."""
        with self._change:
            self._change.wait_for(lambda: self._next == bucket or self._stopped)
            if self._stopped:
                raise StoppedError
            return self.end

    def done(self, bucket: int, end: int) -> None:
        """Take note of where a bucket ends."""
        with self._change:
            self._next, self.end = bucket + 1, end
            self._change.notify_all()

    def stop(self) -> None:
        """Let nobody wait any longer."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
