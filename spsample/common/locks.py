"""Locks that a forked process finds free: the thread that held one is not there to let go of it."""

from __future__ import annotations

import os
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["renewed", "was_held"]

T = TypeVar("T")

_OF_PROCESS: WeakSet[Any] = WeakSet()
_HELD: WeakSet[Any] = WeakSet()
"""Those that are renewed, and of them those that were held when this process was forked."""


def renewed(lock: T) -> T:
    """Return a lock, an event or a condition of `threading` which each process that is forked finds new.

    What it guards is copied as it is: a count may lack what was about to be added. Where half a change would do harm,
    ask `was_held`. Every lock of the package is made so; `tests/unit/test_locks.py` lists the few that need not be.

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
    """Whether a `Lock` was held when this process was forked; False in a process that was not."""
    return lock in _HELD


def _renew_all() -> None:
    """In a forked process, before anything else; as the standard library renews its own."""
    for lock in _OF_PROCESS:
        if getattr(lock, "locked", bool)():
            _HELD.add(lock)
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
