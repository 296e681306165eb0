"""Processes that transform batches, fed and emptied through shared memory; batches come out in their order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.checks import short
from spsample.common.packing import pack, unpack
from spsample.errors import BackendError, InputError
from spsample.loading.transforms.blocks import Block
from spsample.loading.transforms.process import Done, Failed, NeedsRoom, Room, Task, run_process

if TYPE_CHECKING:
    from spsample.loading.order import Delivered
    from spsample.loading.prefetch import ClosableIterator

__all__ = ["AHEAD_OF_EACH", "TransformWorkers", "Transformed"]

AHEAD_OF_EACH = 2
"""Batches for each process that are sent, or have come back and wait for one before them."""
SECONDS_TO_END = 5.0
"""That a process has to end by itself, before it is ended."""


class _RemoteTraceback(Exception):  # noqa: N818  (as in concurrent.futures)
    """Where something was raised in another process."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class _Worker:
    """A process, the connection to it, and the blocks that batches and results travel in."""

    def __init__(self, number: int, transform: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.connection, theirs = context.Pipe()
        self.batch, self.result = Block(), Block()
        self.busy_with: _Sent | None = None
        self.is_lost = False
        self.process = context.Process(
            target=run_process, args=(theirs, transform), name=f"spsample transform {number}", daemon=True
        )
        self._owner = os.getpid()
        resource_tracker.ensure_running()  # of shared memory; it would let Ctrl-C through again
        with _without_ctrl_c():
            self.process.start()
        theirs.close()

    def end(self) -> None:
        """End the process, and remove its shared memory; in a forked process, which has neither, nothing is done."""
        self.connection.close()
        if os.getpid() != self._owner:
            return
        self.process.join(SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()
        self.batch.close()
        self.result.close()


class _Sent(NamedTuple):
    """Which item it was, but for its batch, the batch's number, and what has come back of it: a batch, or an error."""

    item: Delivered
    batch_id: int
    back: list[Any]


class _Raised(NamedTuple):
    """What is raised in the place of a batch."""

    error: BackendError


class TransformWorkers:
    """Processes that call a function on each batch.

    They are started when the first pass begins, and last until `close`, the end of the interpreter, or until one of
    them is lost: then all end, and the next pass starts others.

    Parameters
    ----------
    transform : function
        Called with a batch, as ``transform(batch)``; what it returns is delivered.
    count : int
        How many processes.

    Raises
    ------
    InputError
        If the function cannot be pickled.
    """

    def __init__(self, transform: Callable[[Any], Any], count: int) -> None:
        self._transform = _pickled(transform)
        self._count = count
        self._workers: list[_Worker] = []
        self._is_lent = False  # to a pass
        self.is_closed = False
        weakref.finalize(self, _end, self._workers)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has processes of its own."""
        return TransformWorkers, (pickle.loads(self._transform), self._count)

    def start(self) -> list[_Worker]:
        """The processes, started where they are not; each of them free."""
        if not self._workers:
            for number in range(self._count):
                self._workers.append(_Worker(number, self._transform))
        return self._workers

    def close(self) -> None:
        """End all; a pass that is under way ends its own, once it is asked for another batch, or left."""
        self.is_closed = True
        if not self._is_lent:
            self.end()

    def end(self) -> None:
        """End all; the next pass starts others."""
        _end(self._workers)

    def transformed(self, items: ClosableIterator[Delivered]) -> Transformed:
        """The items, each with what the function makes of its batch. A second pass at a time has its own processes."""
        if self._is_lent:
            others = TransformWorkers(pickle.loads(self._transform), self._count)
            return Transformed(others, items, others.close)
        self._is_lent = True
        return Transformed(self, items, self._give_back)

    def _give_back(self) -> None:
        self._is_lent = False
        if self.is_closed:
            self.end()


class Transformed:
    """The items of a pass, transformed by processes; in their order.

    Up to `AHEAD_OF_EACH` items for each process are taken before the first of them is given.
    """

    def __init__(
        self, workers: TransformWorkers, items: ClosableIterator[Delivered], ended: Callable[[], None]
    ) -> None:
        self._workers = workers
        self._processes = workers.start()  # none are left in it once they have ended
        self._items = items
        self._ended = ended
        self._sent: deque[_Sent] = deque()
        self._is_over = False

    def __iter__(self) -> Transformed:
        """Itself."""
        return self

    def __next__(self) -> Delivered:
        """The next item."""
        while True:
            if self._workers.is_closed:
                raise BackendError("the loader was closed, and this pass over its batches cannot go on")
            self._feed()
            if not self._sent:
                raise StopIteration
            if self._sent[0].back:
                return self._given(self._sent.popleft())
            self._receive()

    def _given(self, sent: _Sent) -> Delivered:
        back = sent.back[0]
        if not isinstance(back, _Raised):
            return sent.item._replace(batch=back)
        if any(worker.is_lost for worker in self._processes):
            self._give_up()
        raise back.error

    def close(self) -> None:
        """Take no more items; what processes still work on is waited for and thrown away."""
        try:
            while any(worker.busy_with is not None for worker in self._processes):
                self._receive()
            if any(worker.is_lost for worker in self._processes):
                self._give_up()
        finally:
            self._ended()
            self._items.close()

    def _feed(self) -> None:
        """Send items to the processes that are free."""
        for worker in self._processes:
            if self._is_over or len(self._sent) >= AHEAD_OF_EACH * len(self._processes):
                return
            if worker.busy_with is None and not worker.is_lost:
                item = next(self._items, None)
                if item is None:
                    self._is_over = True
                    return
                self._send(worker, item)

    def _send(self, worker: _Worker, item: Delivered) -> None:
        packed = pack(item.batch)
        if packed.nbytes:
            packed.write(worker.batch.view(packed.nbytes))
        sent = _Sent(item._replace(batch=None), _id_of(item), [])
        worker.busy_with = sent
        self._sent.append(sent)
        task = Task(packed.head, worker.batch.name, packed.spans, worker.result.name, worker.result.nbytes)
        try:
            worker.connection.send(task)
        except (BrokenPipeError, ConnectionResetError):
            _lose(worker, sent)

    def _receive(self) -> None:
        """Wait until a process has something to say, or is gone."""
        busy = [worker for worker in self._processes if worker.busy_with is not None]
        ready = wait([*(one.connection for one in busy), *(one.process.sentinel for one in busy)])
        for worker in busy:
            if worker.connection in ready or worker.process.sentinel in ready:
                self._hear(worker)

    def _hear(self, worker: _Worker) -> None:
        sent = worker.busy_with
        if sent is None:
            return
        word = _word(worker.connection)
        if word is None:
            _lose(worker, sent)
            return
        if isinstance(word, NeedsRoom):
            _give_room(worker, sent, word.nbytes)
            return
        worker.busy_with = None
        if isinstance(word, Failed):
            sent.back.append(_Raised(_failure(word, sent, worker)))
            return
        view = worker.result.view(0) if word.spans else memoryview(b"")
        sent.back.append(_loaded(word, view))

    def _give_up(self) -> None:
        """End the processes: others are started by the next pass."""
        self._workers.end()
        self._sent.clear()
        self._is_over = True


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Around the start of a process: a Ctrl-C comes to this one afterwards, and to that one never."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _word(connection: Connection) -> Any:
    """What a process says; None where it is gone."""
    try:
        return connection.recv() if connection.poll() else None
    except (EOFError, ConnectionResetError):
        return None


def _lose(worker: _Worker, sent: _Sent) -> None:
    """A process is gone: say so in the place of the batch that it had."""
    sent.back.append(_Raised(_lost(worker)))
    worker.busy_with, worker.is_lost = None, True


def _give_room(worker: _Worker, sent: _Sent, nbytes: int) -> None:
    """Let a process have a larger block for what it has made; where there is none, it goes."""
    try:
        worker.result.view(nbytes)
        worker.connection.send(Room(worker.result.name))
    except BackendError as error:
        worker.process.kill()
        worker.busy_with, worker.is_lost = None, True
        sent.back.append(_Raised(error))
    except (BrokenPipeError, ConnectionResetError):
        _lose(worker, sent)


def _loaded(word: Done, view: memoryview) -> Any:
    return unpack(word.head, view, word.spans)


def _id_of(item: Delivered) -> int:
    """Number of a batch; of one that has none, the one before the next step's first."""
    found = getattr(item.batch, "batch_id", None)
    return found if isinstance(found, int) else item.next_batch - 1


def _failure(word: Failed, sent: _Sent, worker: _Worker) -> BackendError:
    error = BackendError(f"the transform failed on batch {sent.batch_id}, in worker {worker.number}: {word.words}")
    cause: BaseException = _RemoteTraceback(word.trace)
    if word.error:
        with suppress(Exception):
            original = pickle.loads(word.error)
            original.__cause__ = cause
            cause = original
    error.__cause__ = cause
    return error


def _lost(worker: _Worker) -> BackendError:
    worker.process.join(1.0)
    code = worker.process.exitcode
    how = f"code {code}"
    if code is not None and code < 0:
        how = f"signal {signal.Signals(-code).name}"
    at = "" if worker.busy_with is None else f", which had batch {worker.busy_with.batch_id} to transform"
    hint = ""
    if code == 1:
        hint = " (a program that starts processes needs `if __name__ == '__main__':` around what it does)"
    return BackendError(f"worker {worker.number}{at}, has ended with {how}{hint}")


def _pickled(transform: Callable[[Any], Any]) -> bytes:
    try:
        return pickle.dumps(transform)
    except Exception as error:
        raise InputError(
            argument="transform",
            given=f"{short(transform)}, which cannot be pickled ({error})",
            expected="a function of a module, or an object of such a class, with transform_workers",
            hint="transform_workers=0 calls it in the thread that gathers features.",
        ) from error


def _end(workers: list[_Worker]) -> None:
    """End processes; they are told at once, and waited for in turn."""
    for worker in workers:
        worker.connection.close()
    while workers:
        workers.pop().end()
