"""Work shared by threads: results in order, never more in flight than there are threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from spsample.common.threads import set_num_threads

__all__ = ["in_order"]

Result = TypeVar("Result")


def in_order(tasks: Iterable[Callable[[], Result]], threads: int) -> Iterator[Result]:
    """Run functions on `threads` threads and yield what they return, in their order.

    A function's exception is raised when its turn comes; those not begun by then are left out.
    """
    if threads == 1:
        for task in tasks:
            yield task()
        return
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads, initializer=set_num_threads, initargs=(1,)) as executor:
        try:
            for task in tasks:
                waiting.append(executor.submit(task))
                del task
                if len(waiting) >= threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
