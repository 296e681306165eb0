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
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from spsample.backends.tensors import on_this_stream
from spsample.common.locks import renewed
from spsample.errors import BackendError
from spsample.sparse import get_num_threads, set_num_threads
from spsample.timeline import Phases, waiting_for

__all__ = ["Ahead", "ClosableIterator", "Pipeline", "Prefetcher"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LONGEST_GOODBYE = 10.0
"""Seconds that a pipeline which does not wait for its threads gives them when it is garbage, or Python exits."""


class ClosableIterator(Protocol[T_co]):
    """A generator, or what is used as one."""

    def __next__(self) -> T_co:
        """The next item."""
        ...

    def close(self) -> None:
        """Make no more."""
        ...


class _End:
    """There are no more items, or making one failed."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _PassLeftError(BackendError):
    """What a thread that reads from another one gets when the pass is left: no failure, and told to nobody."""


class Ahead(NamedTuple):
    """How far a thread may be ahead of its consumer. What the consumer waits for is always made.

    Attributes
    ----------
    items : int
        That are begun and not yet released, at most; 0: each is begun when it is asked for.
    nbytes : int or None
        Of these items: another one is begun only where one as large as the largest so far still fits. None: no bound.
    size_of : function
        Gives the bytes of an item.
    """

    items: int
    nbytes: int | None = None
    size_of: Callable[[Any], int] = lambda item: 0


class _Word(enum.Enum):
    """What a prefetcher's consumer tells its thread."""

    ASKED = enum.auto()
    RELEASED = enum.auto()
    LOOK = enum.auto()  # the buffer is closed, or `most` has changed


class _Room:
    """Whether a thread may begin another item; kept by that thread alone, from what its consumer tells.

    Examples
    --------
    >>> room = _Room(Ahead(items=2, nbytes=100, size_of=len))
    >>> room.is_free(2)
    True
    >>> room.made(b"." * 60), room.is_free(2)  # another one of 60 bytes would not fit
    (None, False)
    >>> room.hear(_Word.ASKED), room.hear(_Word.ASKED), room.is_free(2)  # the second is waited for
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

    def is_free(self, most: int) -> bool:
        if self._num_asked > self._num_made:
            return True
        held = self._num_made - self._num_released
        limit = self._ahead.nbytes
        return held < most and (limit is None or held <= 0 or self._nbytes + self._largest <= limit)


class _Buffer:
    """What a prefetcher's thread and its consumer share.

    Both queues are `SimpleQueue`, whose `put` may be called anywhere: closing can happen during garbage collection.
    """

    def __init__(
        self, ahead: Ahead, failures: list[Exception], waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.failures = failures
        self.waiting = waiting
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.words: SimpleQueue[_Word] = SimpleQueue()
        self.ended = renewed(threading.Event())
        self.is_closed = False
        self.process = os.getpid()
        self.most = ahead.items
        self._room = _Room(ahead)  # of the thread

    def may_begin(self) -> bool:
        """Wait until the thread may begin another item; False where it should end."""
        while True:
            while not self.words.empty():
                self._room.hear(self.words.get())
            if self.is_closed:
                return False
            if self._room.is_free(self.most):
                return True
            with self.waiting():
                word = self.words.get()
            self._room.hear(word)

    def put(self, item: Any) -> None:
        """The thread has made an item."""
        self._room.made(item)
        self.items.put(item)

    def close(self) -> None:
        self.is_closed = True
        self.words.put(_Word.LOOK)


class Prefetcher(Generic[T]):
    """The items of a generator, made by a thread that is `ahead` of their use: of those that were `release`d.

    Whether there is another item is found out by beginning it, so that every item has to be released. An item that the
    consumer waits for is begun in any case.

    The thread uses as many threads in the kernels as the one that starts it, and works on the stream of a GPU that is
    torch's current one there: what is made on another could be read before it is done, and its memory be given away
    while it is read. An exception of the generator is raised in the consumer, as it is and with its traceback. Made by
    `Pipeline.prefetch`.
    """

    def __init__(self, items: ClosableIterator[T], buffer: _Buffer, name: str, keep_alive: object) -> None:
        self._buffer = buffer
        self._thread = threading.Thread(
            target=_work,
            args=(items, buffer, get_num_threads(), on_this_stream(), keep_alive),
            name=f"spsample {name}",
            daemon=True,
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def __iter__(self) -> Prefetcher[T]:
        """Itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next item."""
        if self._buffer.process != os.getpid():
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

    def set_ahead(self, items: int) -> None:
        """Change how many items may be begun and not yet released, from the next one that is begun on."""
        self._buffer.most = items
        self._buffer.words.put(_Word.LOOK)

    def close(self) -> None:
        """Begin nothing more. What is under way is finished; see `join`."""
        self._buffer.close()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end, after `close`; at most so long.

        The wait is for a word of the thread, not `Thread.join`, which a Ctrl-C that comes meanwhile can leave with a
        lock that it does not hold. A thread that a Ctrl-C kept from starting, or that has only just begun to, finds
        its buffer closed and touches nothing.
        """
        if self._buffer.process != os.getpid() or self._thread is threading.current_thread():
            return
        if self._thread.ident is None:
            return
        if self._buffer.ended.wait(seconds):
            self._thread.join()


class _KeepAlive:
    """Held by a pipeline and by each of its threads, so that it lives as long as one of them runs.

    What ends a pipeline that is garbage may itself be broken off by a Ctrl-C. Then this is still there when Python
    exits, and its finalizer ends the threads: one that is in a kernel at that time would abort the process.
    """


class Pipeline:
    """Prefetchers, each of which may read from those before it; they end together.

    They end when the `with` block is left, when the pipeline is garbage, or when the interpreter exits, whichever comes
    first; no thread is left behind.

    Parameters
    ----------
    waits
        Whether leaving the `with` block waits for the threads. Threads that communicate end once those of the other
        ranks do: whoever leaves must be free to tell them, so that it waits later, by `join`.
    phases
        Count how long each thread waits for room; None for nobody.

    Examples
    --------
    >>> with Pipeline() as pipeline:
    ...     squares = pipeline.prefetch((i * i for i in range(3)), ahead=1, name="squares")
    ...     for square in squares:
    ...         squares.release()
    ...         print(square)
    0
    1
    4
    """

    def __init__(self, *, waits: bool = True, phases: Phases | None = None) -> None:
        self.failures: list[Exception] = []
        self._phases = Phases() if phases is None else phases
        self._prefetchers: list[Prefetcher[Any]] = []
        self._waits = waits
        seconds = None if waits else LONGEST_GOODBYE
        self._keep_alive = _KeepAlive()
        weakref.finalize(self, _end, self._prefetchers, seconds)
        weakref.finalize(self._keep_alive, _end, self._prefetchers, seconds)

    def prefetch(self, items: ClosableIterator[T], ahead: int | Ahead, name: str) -> Prefetcher[T]:
        """A thread that runs through `items`."""
        bounds = ahead if isinstance(ahead, Ahead) else Ahead(ahead)
        waiting = partial(self._phases.timed, waiting_for("room", name))
        prefetcher = Prefetcher(items, _Buffer(bounds, self.failures, waiting), name, self._keep_alive)
        self._prefetchers.append(prefetcher)  # first: a Ctrl-C may come as soon as the thread runs
        prefetcher.start()
        return prefetcher

    def __enter__(self) -> Pipeline:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all prefetchers."""
        if self._waits:
            _end(self._prefetchers, None)
        else:
            _close(self._prefetchers)

    def join(self) -> None:
        """End all prefetchers, and wait for them as long as it takes."""
        _end(self._prefetchers, None)


def _close(prefetchers: list[Prefetcher[Any]]) -> None:
    """Tell all to end: first those who read from others, so that none takes their end for an error of the pass."""
    for prefetcher in reversed(prefetchers):
        prefetcher.close()


def _end(prefetchers: list[Prefetcher[Any]], seconds: float | None) -> None:
    """Tell all to end, then wait for them in order: one that waits for an item of an earlier one gets its end.

    A Ctrl-C that comes meanwhile is kept until they have ended: a thread must not be in a kernel when Python exits.
    Both finalizers of a pipeline may be here at a time, one of them called by garbage collection within the other.
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
    """Drop the frames of an error that nobody will see, and of its causes: they would keep what was not used."""
    behind: BaseException | None = error
    while behind is not None and behind.__traceback__ is not None:
        behind.__traceback__ = None
        behind = behind.__context__ or behind.__cause__


def _work(
    items: ClosableIterator[Any],
    buffer: _Buffer,
    threads: int,
    on_stream: AbstractContextManager[Any],
    keep_alive: object,
) -> None:
    """Run through the items until they end or the buffer is closed; what the thread runs."""
    end = _End()
    try:
        set_num_threads(threads)
        with on_stream:
            while buffer.may_begin():
                buffer.put(next(items))
            end = _End(_PassLeftError("this pass over the batches was left"))
    except StopIteration:
        pass
    except BaseException as error:  # whatever it is, it belongs to the consumer
        if buffer.is_closed:
            _drop_frames(error)
        end = _End(error)
        if isinstance(error, Exception) and not isinstance(error, _PassLeftError):
            buffer.failures.append(error)
    finally:
        buffer.items.put(end)  # first: closing may wait for other ranks, which wait for this one's consumer
        try:
            items.close()
        finally:  # whatever it raises: others wait for this thread
            buffer.ended.set()
