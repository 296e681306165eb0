"""Work that is done ahead, in background threads with bounded memory."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from spsample.backends.tensors import on_this_stream
from spsample.common.locks import renewed
from spsample.errors import BackendError
from spsample.sparse import get_num_threads, set_num_threads
from spsample.timeline import Phases, waiting_for

if TYPE_CHECKING:
    from spsample.loading.order import Delivered

T = TypeVar("T")

MAX_JOIN_SECONDS = 10.0
"""Seconds for which a chain that does not wait for its threads waits for them once it is freed, or Python exits."""

MAX_BATCHES = 8
"""Small batches that are handed over at once, at most: to wake a thread takes as long as to gather their features."""

MAX_BYTES, MAX_SECONDS = 1 << 20, 2e-3
"""A batch joins a chunk only while one as large as the last still fits, and while they took less time. A batch of
unknown size goes alone."""


class BackgroundThread:
    """A thread beside the loop, which works on the stream of a GPU that is torch's current one where it is made.

    Results of another stream could be read before they are done, and their memory be reused while it is read.

    Parameters
    ----------
    work, failed, last : function
        The work of the thread, the function called with an exception of it, and the one called last in any case.
    name : str
    threads : int, optional
        Kernel threads; as many as those of the thread that makes this one where None.
    """

    def __init__(
        self,
        work: Callable[[], None],
        failed: Callable[[BaseException], None],
        name: str,
        threads: int | None = None,
        last: Callable[[], None] = lambda: None,
    ) -> None:
        self._ended = renewed(threading.Event())
        self._process = os.getpid()
        threads = get_num_threads() if threads is None else threads
        arguments = (work, failed, last, self._ended, threads, on_this_stream())
        self._thread = threading.Thread(target=_run, args=arguments, name=f"spsample {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """False in a forked process, which has no such thread."""
        return self._process == os.getpid()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end, at most so long.

        The wait is for an event of the thread, not `Thread.join`, which a Ctrl-C that comes meanwhile can leave with a
        lock that it does not hold. A thread that a Ctrl-C kept from starting is not waited for.
        """
        if not self.is_here or self._thread is threading.current_thread() or self._thread.ident is None:
            return
        if self._ended.wait(seconds):
            self._thread.join()


def _run(
    work: Callable[[], None],
    failed: Callable[[BaseException], None],
    last: Callable[[], None],
    ended: threading.Event,
    threads: int,
    on_stream: AbstractContextManager[Any],
) -> None:
    """Run in a background thread, which holds no other objects."""
    try:
        set_num_threads(threads)
        with on_stream:
            work()
    except BaseException as error:  # others wait for the thread
        failed(error)
    finally:
        try:
            last()
        finally:  # others wait for the thread
            ended.set()


class _End:
    """The end of the items, or the error of making one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _PassLeftError(BackendError):
    """Raised in a thread that reads from another one when the pass is left: no failure, and not reported."""


class Ahead(NamedTuple):
    """Limits of a thread that is ahead of its consumer. An item that the consumer waits for is always made.

    Attributes
    ----------
    items : int
        Items that are begun and not yet released, at most; 0: each is begun when it is asked for.
    nbytes : int or None
        Bytes of these items: another one is begun only where one as large as the largest so far still fits. None: any.
    size_of : function
        Returns the bytes of an item.
    """

    items: int
    nbytes: int | None = None
    size_of: Callable[[Any], int] = lambda item: 0


_ASKED, _RELEASED, _CLOSED = "asked", "released", "closed"
"""Words of a prefetcher's consumer to its thread."""


class _ItemQueue(Generic[T]):
    """The items that a prefetcher's thread has made, and the words of its consumer; all that the thread holds.

    Both queues are `SimpleQueue`, whose `put` may be called anywhere: closing can happen during garbage collection.
    What is counted is counted by the thread alone, from the words.
    """

    def __init__(self, items: Generator[T, None, None], ahead: Ahead, shared: _Shared, name: str) -> None:
        self.source = items
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.words: SimpleQueue[str] = SimpleQueue()
        self.is_closed = False
        self._ahead, self._shared = ahead, shared
        self._waiting = partial(shared.phases.timed, waiting_for("room", name))
        self._sizes: deque[int] = deque()  # of the items that are not released, the oldest first
        self._num_made = self._num_asked = self._num_released = self._largest = 0

    def close(self) -> None:
        self.is_closed = True
        self.words.put(_CLOSED)

    def fill(self) -> None:
        """Make items until they end or the buffer is closed: the work of the thread."""
        try:
            while self._may_begin():
                item = next(self.source)
                self._num_made += 1
                self._sizes.append(int(self._ahead.size_of(item)))
                self._largest = max(self._largest, self._sizes[-1])
                self.items.put(item)
                del item
        except StopIteration:
            self.items.put(_End())
        else:
            raise _PassLeftError("this pass over the batches was left")

    def fail(self, error: BaseException) -> None:
        """Pass an error of the thread to the consumer; first, since closing may wait for ranks that wait for it."""
        if self.is_closed:
            _drop_frames(error)
        self.items.put(_End(error))
        if isinstance(error, Exception) and not isinstance(error, _PassLeftError):
            self._shared.failures.append(error)

    def _may_begin(self) -> bool:
        """Wait until the thread may begin another item; False where it should end."""
        while True:
            while not self.words.empty():
                self._hear(self.words.get())
            if self.is_closed or self._has_room:
                return not self.is_closed
            with self._waiting():
                word = self.words.get()
            self._hear(word)

    def _hear(self, word: str) -> None:
        self._num_asked += word == _ASKED
        if word == _RELEASED:
            self._num_released += 1
            if self._sizes:
                self._sizes.popleft()

    @property
    def _has_room(self) -> bool:
        if self._num_asked > self._num_made:
            return True
        held, limit = self._num_made - self._num_released, self._ahead.nbytes
        return held < self._ahead.items and (limit is None or held <= 0 or sum(self._sizes) + self._largest <= limit)


def _drop_frames(error: BaseException) -> None:
    """Take the frames from an error and from those behind it: they would keep items that nobody uses."""
    behind: BaseException | None = error
    while behind is not None and behind.__traceback__ is not None:
        behind.__traceback__ = None
        behind = behind.__context__ or behind.__cause__


class Prefetcher(Generic[T]):
    """The items of a generator, made by a thread that is `ahead` of their use: of those that were `release`d.

    The end is known only by beginning another item, so that every item has to be released. An item that the
    consumer waits for is begun in any case. An exception of the generator is raised in the consumer, as it is and with
    its traceback. Made by `StageChain.prefetch`.
    """

    def __init__(self, buffer: _ItemQueue[T], name: str, threads: int | None) -> None:
        self._buffer = buffer
        self._thread = BackgroundThread(buffer.fill, buffer.fail, name, threads, buffer.source.close)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end, at most so long."""
        self._thread.join(seconds)

    def __iter__(self) -> Prefetcher[T]:
        """Return itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next item."""
        if not self._thread.is_here:
            raise BackendError("a pass with prefetch cannot go on in a forked process: begin another one there")
        self._buffer.words.put(_ASKED)
        item = self._buffer.items.get()
        if not isinstance(item, _End):
            return item  # type: ignore[no-any-return]
        self._buffer.items.put(_End())
        if item.error is not None:
            raise item.error
        raise StopIteration

    def release(self) -> None:
        """Let the thread begin one more item."""
        self._buffer.words.put(_RELEASED)

    def close(self) -> None:
        """Begin no more items. One that is under way is finished; see `join`."""
        self._buffer.close()


class _Shared:
    """Held by a chain and by each of its threads, so that it lives as long as one of them runs.

    The finalizer of a chain may itself be interrupted by a Ctrl-C. Then this object is still there when Python
    exits, and its finalizer ends the threads: one that is in a kernel at that time would abort the process.
    """

    def __init__(self, phases: Phases) -> None:
        self.phases = phases
        self.failures: list[Exception] = []


class StageChain:
    """Prefetchers, each of which may read from those before it; they end together.

    They end when the `with` block is left, when the chain is freed, or when the interpreter exits, whichever comes
    first.

    Parameters
    ----------
    waits
        Wait for the threads where the `with` block is left. Threads that communicate end once those of the other ranks
        do: a rank that leaves must be free to report to them, so that it waits later, by `join`.
    phases
        Counts of the time for which each thread waits for room; None for none.

    Attributes
    ----------
    failures : list of Exception
        Errors of the threads, the first one first.

    Examples
    --------
    >>> with StageChain() as chain:
    ...     squares = chain.prefetch((i * i for i in range(3)), ahead=1, name="squares")
    ...     for square in squares:
    ...         squares.release()
    ...         print(square)
    0
    1
    4
    """

    def __init__(self, *, waits: bool = True, phases: Phases | None = None) -> None:
        self._shared = _Shared(Phases() if phases is None else phases)
        self.failures = self._shared.failures
        self._prefetchers: list[Prefetcher[Any]] = []
        self._waits = waits
        seconds = None if waits else MAX_JOIN_SECONDS
        weakref.finalize(self, _end, self._prefetchers, seconds)
        weakref.finalize(self._shared, _end, self._prefetchers, seconds)

    def prefetch(
        self, items: Generator[T, None, None], ahead: int | Ahead, name: str, threads: int | None = None
    ) -> Prefetcher[T]:
        """Start a thread that makes `items`; its kernels have `threads`, or as many as those of the caller."""
        bounds = ahead if isinstance(ahead, Ahead) else Ahead(ahead)
        prefetcher = Prefetcher(_ItemQueue(items, bounds, self._shared, name), name, threads)
        self._prefetchers.append(prefetcher)  # first: a Ctrl-C may come as soon as the thread runs
        prefetcher.start()
        return prefetcher

    def __enter__(self) -> StageChain:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """End all prefetchers."""
        if self._waits:
            _end(self._prefetchers, None)
        else:
            _close(self._prefetchers)

    def join(self) -> None:
        """End all prefetchers, and wait for them as long as it takes."""
        _end(self._prefetchers, None)


def _close(prefetchers: list[Prefetcher[Any]]) -> None:
    """Close all, first those that read from others, so that none takes their end for an error of the pass."""
    for prefetcher in reversed(prefetchers):
        prefetcher.close()


def _end(prefetchers: list[Prefetcher[Any]], seconds: float | None) -> None:
    """Close all, then wait for them in order: one that waits for an item of an earlier one gets its end.

    A Ctrl-C that comes meanwhile is raised after they have ended: a thread must not be in a kernel when Python exits.
    Both finalizers of a chain may run at a time, one of them called by garbage collection within the other.
    """
    _close(prefetchers)
    interrupt: KeyboardInterrupt | None = None
    while (first := next(iter(prefetchers), None)) is not None:
        try:
            first.join(seconds)
            if prefetchers[:1] == [first]:
                prefetchers.pop(0)
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


class Chunk(NamedTuple):
    """Batches that are handed over together.

    Attributes
    ----------
    batches : deque of Delivered
    nbytes : int
        Bytes of their features.
    """

    batches: deque[Delivered]
    nbytes: int


def chunks(items: Generator[Delivered, None, None], most: int) -> Generator[Chunk, None, None]:
    """Yield the batches in chunks: first one, then two, four and so on; none waits for another bulk, nor for long.

    An exception of `items` comes after the batches before it.

    Parameters
    ----------
    items
        Closed at the end.
    most : int
        Batches of a chunk, at most.

    Examples
    --------
    >>> from spsample.loading.order import Delivered
    >>> batches = (Delivered(i, False, i, size=0) for i in range(12))
    >>> [len(chunk.batches) for chunk in chunks(batches, 4)]
    [1, 2, 4, 4, 1]
    """
    most_now = 1
    with closing(items):
        while True:
            batches: deque[Delivered] = deque()
            nbytes, held, begin = 0, 0, time.perf_counter()
            try:
                while len(batches) < min(most_now, most):
                    item = next(items)
                    batches.append(item)
                    nbytes += item.nbytes
                    size = MAX_BYTES if item.size is None else item.size
                    held += size
                    took = time.perf_counter() - begin
                    if item.ends_bulk or held + size > MAX_BYTES or took > MAX_SECONDS:
                        break
            except BaseException as error:
                if batches:
                    yield Chunk(batches, nbytes)
                if isinstance(error, StopIteration):
                    return
                raise
            yield Chunk(batches, nbytes)
            most_now = min(2 * most_now, MAX_BATCHES)
            del batches


def one_by_one(items: Prefetcher[Any]) -> Iterator[Delivered]:
    """Yield the batches of the chunks that a thread makes, which may make another one meanwhile."""
    for chunk in items:
        items.release()
        while chunk.batches:
            yield chunk.batches.popleft()
