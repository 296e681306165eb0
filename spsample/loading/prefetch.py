"""Work that is done ahead, in background threads with bounded memory."""

from __future__ import annotations

import enum
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from spsample.backends.tensors import on_this_stream
from spsample.common.locks import renewed
from spsample.errors import BackendError
from spsample.sparse import get_num_threads, set_num_threads
from spsample.timeline import Phases, waiting_for

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_JOIN_SECONDS = 10.0
"""Seconds for which a chain that does not wait for its threads waits for them once it is freed, or Python exits."""


class ClosableIterator(Protocol[T_co]):
    """A generator, or an object used as one."""

    def __next__(self) -> T_co:
        """Return the next item."""
        ...

    def close(self) -> None:
        """Make no more."""
        ...


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

    @property
    def is_here(self) -> bool:
        """False in a forked process, which has no such thread."""
        return self._process == os.getpid()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

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


class _Word(enum.Enum):
    """Signals of a prefetcher's consumer to its thread."""

    ASKED = enum.auto()
    RELEASED = enum.auto()
    CLOSED = enum.auto()


class _Room:
    """The room that a thread has for another item; kept by that thread alone, from its consumer's signals.

    Examples
    --------
    >>> room = _Room(Ahead(items=2, nbytes=100, size_of=len))
    >>> room.is_free
    True
    >>> room.made(b"." * 60), room.is_free  # another one of 60 bytes would not fit
    (None, False)
    >>> room.hear(_Word.ASKED), room.hear(_Word.ASKED), room.is_free  # the second is waited for
    (None, None, True)
    """

    def __init__(self, ahead: Ahead) -> None:
        self._ahead = ahead
        self._sizes: deque[int] = deque()  # of the items that are not released, the oldest first
        self._num_made = 0
        self._num_asked = 0
        self._num_released = 0
        self._nbytes = 0
        self._largest = 0

    def hear(self, word: _Word) -> None:
        if word is _Word.ASKED:
            self._num_asked += 1
        elif word is _Word.RELEASED:
            self._num_released += 1
            if self._sizes:
                self._nbytes -= self._sizes.popleft()

    def made(self, item: Any) -> None:
        self._num_made += 1
        size = int(self._ahead.size_of(item))
        self._sizes.append(size)
        self._nbytes += size
        self._largest = max(self._largest, size)

    @property
    def is_free(self) -> bool:
        if self._num_asked > self._num_made:
            return True
        held = self._num_made - self._num_released
        limit = self._ahead.nbytes
        return held < self._ahead.items and (limit is None or held <= 0 or self._nbytes + self._largest <= limit)


class _ItemQueue(Generic[T]):
    """The items that a prefetcher's thread has made, and the signals of its consumer; all that the thread holds.

    Both queues are `SimpleQueue`, whose `put` may be called anywhere: closing can happen during garbage collection.
    """

    def __init__(self, items: ClosableIterator[T], ahead: Ahead, shared: _Shared, name: str) -> None:
        self.source = items
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.words: SimpleQueue[_Word] = SimpleQueue()
        self.is_closed = False
        self._room = _Room(ahead)  # of the thread
        self._shared = shared
        self._waiting = partial(shared.phases.timed, waiting_for("room", name))

    def close(self) -> None:
        self.is_closed = True
        self.words.put(_Word.CLOSED)

    def fill(self) -> None:
        """Make items until they end or the buffer is closed: the work of the thread."""
        try:
            while self._may_begin():
                item = next(self.source)
                self._room.made(item)
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
                self._room.hear(self.words.get())
            if self.is_closed:
                return False
            if self._room.is_free:
                return True
            with self._waiting():
                word = self.words.get()
            self._room.hear(word)


class Prefetcher(Generic[T]):
    """The items of a generator, made by a thread that is `ahead` of their use: of those that were `release`d.

    The end is known only by beginning another item, so that every item has to be released. An item that the
    consumer waits for is begun in any case. An exception of the generator is raised in the consumer, as it is and with
    its traceback. Made by `StageChain.prefetch`.
    """

    def __init__(self, buffer: _ItemQueue[T], name: str, threads: int | None) -> None:
        self._buffer = buffer
        self._thread = BackgroundThread(buffer.fill, buffer.fail, name, threads, buffer.source.close)
        self.start, self.join = self._thread.start, self._thread.join

    def __iter__(self) -> Prefetcher[T]:
        """Return itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next item."""
        if not self._thread.is_here:
            raise BackendError("a pass with prefetch cannot go on in a forked process: begin another one there")
        self._buffer.words.put(_Word.ASKED)
        item = self._buffer.items.get()
        if not isinstance(item, _End):
            return item  # type: ignore[no-any-return]
        self._buffer.items.put(_End())
        if item.error is not None:
            raise item.error
        raise StopIteration

    def release(self) -> None:
        """Let the thread begin one more item."""
        self._buffer.words.put(_Word.RELEASED)

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
        self._prefetchers: list[Prefetcher[Any]] = []
        self._waits = waits
        seconds = None if waits else MAX_JOIN_SECONDS
        weakref.finalize(self, _end, self._prefetchers, seconds)
        weakref.finalize(self._shared, _end, self._prefetchers, seconds)

    @property
    def failures(self) -> list[Exception]:
        """Errors of the threads, the first one first."""
        return self._shared.failures

    def prefetch(
        self, items: ClosableIterator[T], ahead: int | Ahead, name: str, threads: int | None = None
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


def _drop_frames(error: BaseException) -> None:
    """Drop the frames of an error that is not raised, and of its causes: they would keep unused items."""
    behind: BaseException | None = error
    while behind is not None and behind.__traceback__ is not None:
        behind.__traceback__ = None
        behind = behind.__context__ or behind.__cause__
