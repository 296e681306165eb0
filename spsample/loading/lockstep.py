"""Threads of several ranks that do collective work in the same order, and stop at the same place."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Generic, TypeVar

from spsample.comm import Communicator, collective
from spsample.errors import CommunicationError, RankError, SpSampleError

__all__ = ["Lockstep"]

T = TypeVar("T")


class Lockstep(Generic[T]):
    """The items of a generator whose work is collective; one on each rank, each run by a thread of its own.

    Before each piece of collective work, and once after the last, the generator calls `synchronize`, which waits for
    the other ranks. A rank that stops earlier leaves nobody waiting: when it is closed it joins the others' next
    `synchronize` and says what it failed with, or that it left, and they raise there. An error reaches its own rank's
    consumer before that, so that telling the others never holds it up.

    Parameters
    ----------
    comm
        The ranks; used by the thread that runs this one alone.
    failures
        What has failed on this rank, first of all: in this generator, or in another one of the same pass.
    timed
        Gives a context manager that counts the time for which it waits for the others.
    """

    def __init__(
        self,
        comm: Communicator,
        failures: Sequence[Exception],
        timed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._comm = comm
        self._timed = timed
        self._failures = failures
        self._generator: Generator[T, None, None] | None = None
        self._is_over = False

    def over(self, generator: Generator[T, None, None]) -> Lockstep[T]:
        """Itself, with a generator that calls its `synchronize`."""
        self._generator = generator
        return self

    def synchronize(self) -> None:
        """Wait until all ranks are here.

        Raises
        ------
        SpSampleError
            What another rank failed with, or that it left.
        """
        try:
            with self._timed():
                self._agree(None)
        except BaseException:
            self._is_over = True
            raise

    def __iter__(self) -> Lockstep[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """The next item."""
        if self._generator is None:
            raise StopIteration
        try:
            return next(self._generator)
        except (StopIteration, CommunicationError):
            self._is_over = True
            raise

    def close(self) -> None:
        """Make no more items, and tell the others so, unless they know."""
        if self._generator is not None:
            self._generator.close()
        if self._is_over:
            return
        self._is_over = True
        left = RankError(self._comm.rank, "it left the loop over the batches, which all ranks go through together")
        with suppress(SpSampleError):  # those who go on raise it
            self._agree(self._failures[0] if self._failures else left)

    def _agree(self, failure: Exception | None) -> None:
        with collective(self._comm, call="the next batches of a loader"):
            if failure is not None:
                raise failure
