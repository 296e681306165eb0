"""An epoch of a factored loader on one rank: its threads, and the messages between them and those of other ranks."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from spsample.comm.message_thread import EVERYONE, Message, MessageThread
from spsample.common.locks import renewed
from spsample.common.packing import pack, unframed
from spsample.errors import BackendError, CapacityError, CommunicationError, RankError, SpSampleError, on_rank
from spsample.loading.factored.roles import AHEAD, Assignment, Assignments, StepEnd
from spsample.loading.prefetch import MAX_JOIN_SECONDS, BackgroundThread
from spsample.timeline import waiting_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.loading.factored.loader import FactoredLoader

_ASK, _TRAINED, _STANDBY = 0, 1, 2
"""Kinds of messages to the rank that assigns batches."""
_GIVE, _BATCH = 3, 4
"""Kinds of messages to the sampler of a batch (whose number is batch * ranks + rank), and from there."""
_ASSIGNED, _STEP_END = 5, 6
"""Kinds of messages from the rank that assigns batches."""
_PHASE = "messages of samplers and trainers"
_MICROSECOND = 1e-6


class BatchQueue:
    """Packed minibatches by batch id, in at most `most_bytes`, until they are sent to a rank.

    Parameters
    ----------
    most_bytes : int
    send : function
        Called with a rank, a batch id and the packed minibatch, once both the batch and the rank are known.

    Attributes
    ----------
    nbytes, peak : int
        Bytes in the queue now, and at most so far.

    Examples
    --------
    >>> import numpy as np
    >>> queue = BatchQueue(64, lambda rank, batch, packed: print(f"batch {batch}, {len(packed)} bytes, to rank {rank}"))
    >>> queue.put(3, np.zeros(40, np.uint8))
    True
    >>> queue.give(3, rank=1)
    batch 3, 40 bytes, to rank 1
    >>> queue.nbytes, queue.peak
    (0, 40)
    """

    def __init__(self, most_bytes: int, send: Callable[[int, int, NDArray[Any]], None]) -> None:
        self.most_bytes = most_bytes
        self.nbytes = self.peak = 0
        self._send = send
        self._batches: dict[int, NDArray[Any]] = {}
        self._owed: dict[int, int] = {}
        self._changed = renewed(threading.Condition())
        self._is_closed = False

    def put(self, batch: int, packed: NDArray[Any]) -> bool:
        """Add a minibatch, or send it where a rank waits for it; waits for room. False where the queue was closed.

        Raises
        ------
        CapacityError
            If the queue could never hold it.
        """
        if len(packed) > self.most_bytes:
            expected = f"room for batch {batch}: {len(packed)} bytes"
            hint = "Give more memory, or use smaller batches, fanouts or layer sizes."
            raise CapacityError(argument="queue_memory", given=f"{self.most_bytes} bytes", expected=expected, hint=hint)
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or batch in self._owed or self.nbytes + len(packed) <= self.most_bytes
            )
            if self._is_closed:
                return False
            rank = self._owed.pop(batch, None)
            if rank is None:
                self._batches[batch] = packed
                self.nbytes += len(packed)
                self.peak = max(self.peak, self.nbytes)
        if rank is not None:
            self._send(rank, batch, packed)
        return True

    def give(self, batch: int, rank: int) -> None:
        """Send a minibatch to a rank: now, or as soon as it is there."""
        with self._changed:
            packed = self._batches.pop(batch, None)
            if packed is None:
                self._owed[batch] = rank
            else:
                self.nbytes -= len(packed)
            self._changed.notify_all()
        if packed is not None:
            self._send(rank, batch, packed)

    def close(self) -> None:
        """Let all waiting calls return."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class FactoredEpoch:
    """The steps of an epoch, each an iterator over the batches that this rank trains.

    Parameters
    ----------
    loader : FactoredLoader
    epoch, first : int
        The epoch, and its first batch.

    Attributes
    ----------
    first_step, num_steps : int
        The step that begins with the first batch, or the one after the last step; and the steps of the epoch.
    queue : BatchQueue
        Of a sampler; empty on other ranks.
    """

    def __init__(self, loader: FactoredLoader, epoch: int, first: int) -> None:
        self._loader, self._epoch, self._positions = loader, epoch, loader._positions(epoch)
        self._rank, self._roles, self._phases = loader.comm.rank, loader.roles, loader.phases
        self.first_step, self.num_steps = -(-first // loader.step_batches), len(loader)
        call = f"{_PHASE} ({self._roles})"
        comm = loader._message_comm
        self._messages = MessageThread(comm, self._deliver, self._ended, phase=_PHASE, call=call)
        self.queue = BatchQueue(
            loader.queue_memory, lambda rank, batch, packed: self._messages.post(rank, _BATCH, batch, packed)
        )
        self._stream: SimpleQueue[Any] = SimpleQueue()  # assigned batches and ends of steps, in order
        self._ready: SimpleQueue[Any] = SimpleQueue()  # batches and ends of steps, in order
        self._arrived: dict[int, Any] = {}
        self._arrival = renewed(threading.Condition())
        self._failure: Exception | None = None
        self._shares = list(self._roles.shares(first, loader.num_batches, loader.bulk_size))
        self._samplers = {batch: sampler for sampler, begin, end in self._shares for batch in range(begin, end)}
        self._assignments = Assignments(first, loader.num_batches, loader.step_batches, self._roles.trainers)
        self._threads = [BackgroundThread(self._fetch, self._thread_failed, "features")]
        if self._roles.samples(self._rank):
            self._threads.append(BackgroundThread(self._sample, self._thread_failed, "sampling"))

    def steps(self) -> Iterator[Iterator[Any]]:
        """Yield the steps from the first one on; leaving them ends the epoch on all ranks."""
        if self.first_step == self.num_steps:
            return
        token = _Token()
        weakref.finalize(token, _leave, self._messages, self.queue, self._threads, MAX_JOIN_SECONDS)
        self._messages.start()
        for thread in self._threads:
            thread.start()
        if not self._roles.samples(self._rank):
            self._ask()
        try:
            for step in range(self.first_step, self.num_steps):
                batches = self._of_step()
                yield batches
                for _ in batches:
                    raise RankError(self._rank, f"it left step {step} of an epoch before its batches were trained")
            for thread in self._threads:
                thread.join()
            self._messages.finish()  # and wait until all ranks are here
            self._messages.join()
            if self._failure is not None:
                raise self._failure
        except BaseException as error:  # that of a generator which is closed, too
            self.leave(error if isinstance(error, SpSampleError) else _left(self._rank))
            raise

    def leave(self, reason: Exception | None = None) -> None:
        """End the epoch on all ranks, unless it is over, and wait for the threads of this one."""
        self.fail(_left(self._rank) if reason is None else reason)
        _leave(self._messages, self.queue, self._threads, None)

    def fail(self, error: Exception) -> None:
        """Report to all ranks that this one has failed, wherever they wait."""
        self._messages.fail(error)

    # ------------------------------------------------------------------------------------------ the loop's thread

    def _of_step(self) -> Iterator[Any]:
        while True:
            if not self._messages.is_here:
                raise BackendError("a pass of a factored loader cannot go on in a forked process")
            with self._phases.timed("waiting"):
                item = self._ready.get()
            if isinstance(item, Exception):
                self._ready.put(item)
                raise item
            if isinstance(item, StepEnd):
                return
            begin = time.perf_counter()
            yield self._loader._copies.arrived(item)
            del item
            micros = int((time.perf_counter() - begin) / _MICROSECOND)
            self._messages.post(self._roles.coordinator, _TRAINED, micros)

    def _ask(self) -> None:
        for _ in range(AHEAD):
            self._messages.post(self._roles.coordinator, _ASK)

    # -------------------------------------------------------------------------------------- threads of this rank

    def _thread_failed(self, error: BaseException) -> None:
        """Report any exception to all ranks."""
        self.fail(error if isinstance(error, Exception) else on_rank(error, self._rank))

    def _sample(self) -> None:
        """Sample this rank's bulks; the queue may have to wait for room."""
        for sampler, begin, end in self._shares:
            if sampler != self._rank:
                continue
            for minibatch in self._loader._sampled(self._epoch, self._positions, begin, end):
                batch = pack(minibatch).framed()
                with self._phases.timed(waiting_for("room", "sampling")):
                    is_open = self.queue.put(minibatch.batch_id, batch)
                if not is_open:
                    return
        if self._loader.switches:
            self._messages.post(self._roles.coordinator, _STANDBY)
            self._ask()

    def _fetch(self) -> None:
        """Make batches of the minibatches that are assigned to this rank."""
        input_ = waiting_for("input", "features")
        while True:
            with self._phases.timed(input_):
                item = self._stream.get()
                if isinstance(item, int):
                    with self._arrival:
                        while item not in self._arrived and self._failure is None:
                            self._arrival.wait()
                        item = self._arrived.pop(item, self._failure)
            if not isinstance(item, (StepEnd, Exception)):
                item = self._loader._collated(self._positions, unframed(item))
            self._ready.put(item)
            if isinstance(item, Exception) or (isinstance(item, StepEnd) and item.step + 1 == self.num_steps):
                return
            del item

    # ------------------------------------------------------------------------ the thread that delivers messages

    def _deliver(self, message: Message) -> None:
        if message.kind == _BATCH:
            with self._arrival:
                self._arrived[message.number] = message.payload
                self._arrival.notify_all()
        elif message.kind == _ASSIGNED:
            self._stream.put(message.number)
        elif message.kind == _STEP_END:
            self._stream.put(StepEnd(message.number))
        elif message.kind == _GIVE:
            self.queue.give(*divmod(message.number, self._roles.ranks))
        elif message.kind == _STANDBY:
            self._assignments.stand_by(message.source)
        elif message.kind == _ASK:
            self._tell(self._assignments.ask(message.source))
        else:
            self._tell(self._assignments.trained(message.source, message.number * _MICROSECOND))

    def _tell(self, assigned: list[Assignment | StepEnd]) -> None:
        """Tell trainers of their batches, and samplers where to send these; on the rank that assigns."""
        for item in assigned:
            if isinstance(item, StepEnd):
                self._messages.post(EVERYONE, _STEP_END, item.step)
                continue
            self._messages.post(item.rank, _ASSIGNED, item.batch)
            sampler = self._samplers[item.batch]
            if sampler == self._rank:
                self.queue.give(*item)
            else:
                self._messages.post(sampler, _GIVE, item.batch * self._roles.ranks + item.rank)

    def _ended(self, failure: Exception | None) -> None:
        if failure is None:
            return
        if isinstance(failure, (CommunicationError, RankError)):
            self._roles.explain(failure)
        with self._arrival:
            self._failure = failure
            self._arrival.notify_all()
        self.queue.close()
        self._stream.put(failure)
        self._ready.put(failure)


def _left(rank: int) -> RankError:
    return RankError(rank, "it left the loop over the steps, which all ranks go through together")


class _Token:
    """An object that the loop holds: once it is freed, batches are taken no more."""


def _leave(messages: MessageThread, queue: BatchQueue, threads: list[BackgroundThread], seconds: float | None) -> None:
    """End the threads, also of a loop that was freed, or of an interpreter that exits: none may be in a kernel then."""
    messages.fail(_left(messages.rank))  # unless a reason was given
    queue.close()
    messages.join(seconds)
    for thread in threads:
        thread.join(seconds)
