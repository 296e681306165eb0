"""Threads and kept memory of the compiled kernels; neither changes any result."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from spsample.backends import available_backends
from spsample.common.checks import require_int
from spsample.errors import BackendError

MAX_THREADS = 4096

Result = TypeVar("Result")


def set_num_threads(threads: int) -> None:
    """Set the number of threads that calls from this thread may use in the compiled kernels.

    Without it the environment variable `OMP_NUM_THREADS` decides, read at the first call, or else there is one thread
    per processor. Other threads of the program keep their own number. The `reference` backend is
    single-threaded: where the compiled core is missing this checks its argument and changes nothing. No sample depends
    on the number of threads.

    Raises
    ------
    DTypeError, InputError
        If it is not an integer from 1 to 4096.

    Examples
    --------
    >>> set_num_threads(2)
    """
    count = require_int("threads", threads, minimum=1, maximum=MAX_THREADS)
    core = compiled_core()
    if core is not None:
        core.set_num_threads(count)


def get_num_threads() -> int:
    """Return the threads that calls from this thread may use in the compiled kernels; 1 without the core.

    Examples
    --------
    >>> set_num_threads(2)
    >>> get_num_threads() in (1, 2)
    True
    """
    core = compiled_core()
    return 1 if core is None else int(core.get_num_threads())


@contextmanager
def kernel_threads(threads: int) -> Iterator[None]:
    """Let calls from this thread use that number of threads in the compiled kernels.

    Examples
    --------
    >>> before = get_num_threads()
    >>> with kernel_threads(1):
    ...     get_num_threads()
    1
    >>> get_num_threads() == before
    True
    """
    before = get_num_threads()
    set_num_threads(threads)
    try:
        yield
    finally:
        set_num_threads(before)


def in_order(
    tasks: Iterable[Callable[[], Result]], threads: int, waiting: int | None = None, name: str = ""
) -> Iterator[Result]:
    """Run functions on threads and yield what they return, in their order.

    A function's exception is raised when its turn comes; those not begun by then are left out. Each thread uses one
    thread of the compiled kernels.

    Parameters
    ----------
    tasks : iterable of callable
    threads : int
        With 1 the functions run in this thread, each when it is asked for.
    waiting : int, optional
        Functions that are submitted at a time; by default as many as there are threads.
    name : str, optional
        Prefix of the threads' names.

    Examples
    --------
    >>> list(in_order([lambda: 1, lambda: 2], threads=2))
    [1, 2]
    """
    if threads == 1:
        for task in tasks:
            yield task()
        return
    submitted: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, name, initializer=set_num_threads, initargs=(1,)) as executor:
        try:
            for task in tasks:
                submitted.append(executor.submit(task))
                del task
                if len(submitted) >= (waiting or threads):
                    yield submitted.popleft().result()
            while submitted:
                yield submitted.popleft().result()
        finally:
            for future in submitted:
                future.cancel()


def usable_cores() -> int:
    """Return the number of processors that this process may use.

    Examples
    --------
    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def clear_pool() -> None:
    """Return memory that the compiled kernels keep for their next results to the system.

    Arrays in use are not touched. Where the compiled core is missing there is none to return.

    Examples
    --------
    >>> clear_pool()
    """
    core = compiled_core()
    if core is not None:
        core.clear_pool()


def pool_bytes() -> int:
    """Return the bytes of large results and scratch in use, and of memory kept for the next ones; 0 without the core.

    Examples
    --------
    >>> pool_bytes() >= 0
    True
    """
    core = compiled_core()
    return 0 if core is None else int(core.pool_use()[0])


@contextmanager
def measured_pool() -> Iterator[PoolMeasure]:
    """Measure the most memory that the compiled kernels held, in use and kept, beyond the amount before.

    Blocks of less than 64 KiB are not counted. One at a time: a nested measurement sets the mark of the outer one back.

    Examples
    --------
    >>> with measured_pool() as memory:
    ...     pass
    >>> memory.peak_bytes
    0
    """
    core, measure = compiled_core(), PoolMeasure()
    before = pool_bytes()
    if core is not None:
        core.reset_pool_peak()
    try:
        yield measure
    finally:
        measure.peak_bytes = 0 if core is None else int(core.pool_use()[1]) - before


@dataclass
class PoolMeasure:
    """`peak_bytes` is set when the measurement ends."""

    peak_bytes: int = 0


def compiled_core() -> Any:
    """Return the compiled core, or None where it is missing."""
    return _core() if "cpu" in available_backends() else None


def require_core(needed_for: str) -> Any:
    """Return the compiled core.

    Raises
    ------
    BackendError
        If it is missing; it names what it is needed for.
    """
    core = compiled_core()
    if core is None:
        given = f"{needed_for} needs the compiled core of spsample, which is missing here: install the package"
        raise BackendError(given)
    return core


@cache
def _core() -> Any:
    return import_module("spsample._core")
