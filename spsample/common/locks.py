"""Locks that a forked process finds free: the thread that held one is not there to release it."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

T = TypeVar("T")

_OF_PROCESS: WeakSet[Any] = WeakSet()
"""Locks that are renewed."""
_HELD: WeakSet[Any] = WeakSet()
"""Locks among them that were held when this process was forked."""


def renewed(lock: T) -> T:
    """Return a lock, an event or a condition of `threading` which each process that is forked finds new.

    The data that it guards are copied as they are: a count may lack a pending addition. Where half a change would do
    harm, ask `was_held`. Every lock of the package is made so; `tests/unit/test_locks.py` lists the few exceptions.

    Examples
    --------
    >>> from threading import Lock
    >>> lock = renewed(Lock())
    >>> with lock:
    ...     print(lock.locked(), was_held(lock))
    True False
    """
    _ = lock._at_fork_reinit  # type: ignore[attr-defined]  # semaphores and barriers have none
    _OF_PROCESS.add(lock)
    return lock


def was_held(lock: Any) -> bool:
    """Return whether a `Lock` was held when this process was forked; False in a process that was not."""
    return lock in _HELD


class MendedInForks:
    """An object under a lock, which mends itself in a forked process before it is first used there.

    Examples
    --------
    >>> class Counts(MendedInForks):
    ...     def _renew(self) -> None:
    ...         self.count = 0
    >>> with Counts()._lock() as is_held:
    ...     print(is_held)
    True
    """

    def __init__(self) -> None:
        self._changing, self._process = renewed(Lock()), os.getpid()

    def _lock(self) -> Lock:
        """Return the lock that is held while anything is changed or read."""
        if self._process != os.getpid():
            with self._changing:
                if self._process != os.getpid():
                    self._renew()
                    self._process = os.getpid()
        return self._changing

    def _renew(self) -> None:
        """Mend data that a thread of the other process may have left half changed; under the lock."""
        raise NotImplementedError


def _renew_all() -> None:
    """Renew all locks in a forked process, before anything else."""
    for lock in _OF_PROCESS:
        if getattr(lock, "locked", bool)():
            _HELD.add(lock)
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
