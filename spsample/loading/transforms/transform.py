"""A function that is called on each batch: where, and what has to be so for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spsample.common.checks import short
from spsample.errors import DTypeError, InputError
from spsample.loading.transforms.workers import AHEAD_OF_EACH, TransformWorkers

if TYPE_CHECKING:
    from spsample.loading.order import Delivered
    from spsample.loading.prefetch import ClosableIterator

__all__ = ["MOST_WORKERS", "Transform", "require_processes", "transform_of"]

MOST_WORKERS = 1024
_BLOCKS = 2
"""Blocks of shared memory of each process: a batch in one, a result in the other."""

_Collate = Callable[..., Any]


class Transform(Protocol):
    """Where a function is called on batches.

    Attributes
    ----------
    batches : int
        Batches that exist for it, beside those of a loader without one.
    keeps_size : bool
        Whether batches are as large as without it.
    """

    batches: int
    keeps_size: bool

    def after(self, collate: _Collate) -> _Collate:
        """What makes a batch, and calls the function where it is called in the same thread."""
        ...

    def over(self, items: ClosableIterator[Delivered]) -> ClosableIterator[Delivered]:
        """The items, transformed where that is done by processes."""
        ...

    def close(self) -> None:
        """End what it has started."""
        ...


class NoTransform:
    """Batches as they are."""

    batches = 0
    keeps_size = True

    def after(self, collate: _Collate) -> _Collate:
        """What makes a batch."""
        return collate

    def over(self, items: ClosableIterator[Delivered]) -> ClosableIterator[Delivered]:
        """The items."""
        return items

    def close(self) -> None:
        """Nothing was started."""


class InThread(NoTransform):
    """A function that is called where batches are made."""

    keeps_size = False

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def after(self, collate: _Collate) -> _Collate:
        """What makes a batch and transforms it."""
        return lambda *arguments: self._function(collate(*arguments))


class InProcesses(NoTransform):
    """A function that processes call."""

    keeps_size = False

    def __init__(self, function: Callable[[Any], Any], count: int) -> None:
        self._workers = TransformWorkers(function, count)
        self.batches = (AHEAD_OF_EACH + _BLOCKS) * count

    def over(self, items: ClosableIterator[Delivered]) -> ClosableIterator[Delivered]:
        """The items, transformed."""
        return self._workers.transformed(items)

    def close(self) -> None:
        """End the processes."""
        self._workers.close()


def transform_of(transform: Any, workers: int) -> Transform:
    """Where `transform` is called on batches, with that number of processes.

    Raises
    ------
    DTypeError, InputError
        If it cannot be called, cannot be pickled and has to be, or processes have nothing to call.

    Examples
    --------
    >>> transform_of(abs, 0).after(lambda: -3)()
    3
    """
    if transform is None:
        if workers:
            expected = "0, or a transform that they can call"
            raise InputError(argument="transform_workers", given=f"{workers} without a transform", expected=expected)
        return NoTransform()
    if not callable(transform):
        raise DTypeError(argument="transform", given=short(transform), expected="a function of a batch, or None")
    return InProcesses(transform, workers) if workers else InThread(transform)


def require_processes(workers: int, against: Sequence[str]) -> None:
    """Refuse processes where batches cannot travel to them, or nothing is done ahead.

    Raises
    ------
    InputError
    """
    if against:
        raise InputError(
            argument="transform_workers",
            given=f"{workers} with {' and '.join(against)}",
            expected="0: the transform is then called in the thread that makes batches",
        )
