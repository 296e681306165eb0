"""An epoch of a factored loader on one rank: its threads, and the messages between them and those of other ranks."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.comm import Communicator
from spsample.comm.message_thread import EVERYONE, Message, MessageThread
from spsample.common.locks import renewed
from spsample.common.packing import pack, unframed
from spsample.errors import BackendError, CommunicationError, RankError, SpSampleError, on_rank
from spsample.loading.factored.assignments import AHEAD, Assignment, Assignments, StepEnd
from spsample.loading.factored.queue import BatchQueue
from spsample.loading.factored.roles import Roles
from spsample.loading.prefetch import MAX_JOIN_SECONDS, BackgroundThread
from spsample.timeline import waiting_for

if TYPE_CHECKING:
    from spsample.loading.factored.loader import EpochWork

_ASK, _TRAINED, _STANDBY = 0, 1, 2
"""Kinds of messages to the rank that assigns batches."""
_GIVE, _BATCH = 3, 4
"""Kinds of messages to the sampler of a batch (whose number is batch * ranks + rank), and from there."""
_ASSIGNED, _STEP_END = 5, 6
"""Kinds of messages from the rank that assigns batches."""
_PHASE = "messages of samplers and trainers"
_MICROSECOND = 1e-6


class Plan(NamedTuple):
    """The sizes and roles of an epoch, the same on all ranks.

    Attributes
    ----------
    roles : Roles
    first, num_batches, per_step, bulk_size, queue_bytes : int
    switches : bool
        True where samplers that have sampled all their batches may train.
    """

    roles: Roles
    first: int
    num_batches: int
    per_step: int
    bulk_size: int
    queue_bytes: int
    switches: bool

    @property
    def first_step(self) -> int:
        """The step that begins with the first batch, or the one after the last step."""
        return -(-self.first // self.per_step)

    @property
    def num_steps(self) -> int:
        """Steps of the epoch."""
        return -(-self.num_batches // self.per_step)


class FactoredEpoch:
    """The steps of an epoch, each an iterator over the batches that this rank trains.

    Parameters
    ----------
    plan : Plan
    comm : Communicator
        Used by the thread that delivers messages alone.
    work : EpochWork

    Attributes
    ----------
    queue : BatchQueue
        Of a sampler; empty on other ranks.
    """

    def __init__(self, plan: Plan, comm: Communicator, work: EpochWork) -> None:
        self._plan, self._rank, self._work = plan, comm.rank, work
        self._roles = plan.roles
        call = f"{_PHASE} ({self._roles})"
        self._messages = MessageThread(comm, self._deliver, self._ended, phase=_PHASE, call=call)
        self.queue = BatchQueue(plan.queue_bytes, self._send)
        self._stream: SimpleQueue[Any] = SimpleQueue()  # assigned batches and ends of steps, in order
        self._ready: SimpleQueue[Any] = SimpleQueue()  # batches and ends of steps, in order
        self._arrived: dict[int, Any] = {}
        self._arrival = renewed(threading.Condition())
        self._failure: Exception | None = None
        self._samplers = {
            batch: sampler
            for sampler, begin, end in self._roles.shares(plan.first, plan.num_batches, plan.bulk_size)
            for batch in range(begin, end)
        }
        self._assignments = Assignments(plan.first, plan.num_batches, plan.per_step, self._roles.trainers)
        self._threads = [BackgroundThread(self._fetch, self._thread_failed, "features")]
        if self._roles.samples(self._rank):
            self._threads.append(BackgroundThread(self._sample, self._thread_failed, "sampling"))

    def steps(self) -> Iterator[Iterator[Any]]:
        """Yield the steps from the first one on; leaving them ends the epoch on all ranks."""
        if self._plan.first_step == self._plan.num_steps:
            return
        token = _Token()
        weakref.finalize(token, _leave, self._messages, self.queue, self._threads)
        self._messages.start()
        for thread in self._threads:
            thread.start()
        if not self._roles.samples(self._rank):
            self._ask()
        try:
            for step in range(self._plan.first_step, self._plan.num_steps):
                batches = self._of_step()
                yield batches
                for _ in batches:
                    raise RankError(self._rank, f"it left step {step} of an epoch before its batches were trained")
            self._finish()
        except BaseException as error:  # that of a generator which is closed, too
            self.leave(error if isinstance(error, SpSampleError) else _left(self._rank))
            raise

    def leave(self, reason: Exception | None = None) -> None:
        """End the epoch on all ranks, unless it is over, and wait for the threads of this one."""
        self.fail(_left(self._rank) if reason is None else reason)
        self._join()

    def fail(self, error: Exception) -> None:
        """Report to all ranks that this one has failed, wherever they wait."""
        self._messages.fail(error)

    # ------------------------------------------------------------------------------------------ the loop's thread

    def _of_step(self) -> Iterator[Any]:
        while True:
            if not self._messages.is_here:
                raise BackendError("a pass of a factored loader cannot go on in a forked process")
            with self._work.phases.timed("waiting"):
                item = self._ready.get()
            if isinstance(item, Exception):
                self._ready.put(item)
                raise item
            if isinstance(item, StepEnd):
                return
            begin = time.perf_counter()
            yield self._work.arrived(item)
            del item
            micros = int((time.perf_counter() - begin) / _MICROSECOND)
            self._messages.post(self._roles.coordinator, _TRAINED, micros)

    def _ask(self) -> None:
        for _ in range(AHEAD):
            self._messages.post(self._roles.coordinator, _ASK)

    def _finish(self) -> None:
        """Wait until all ranks are here."""
        for thread in self._threads:
            thread.join()
        self._messages.finish()
        self._messages.join()
        if self._failure is not None:
            raise self._failure

    def _join(self) -> None:
        self._messages.join()
        self.queue.close()
        for thread in self._threads:
            thread.join()

    # -------------------------------------------------------------------------------------- threads of this rank

    def _thread_failed(self, error: BaseException) -> None:
        """Report any exception to all ranks."""
        self.fail(error if isinstance(error, Exception) else on_rank(error, self._rank))

    def _sample(self) -> None:
        """Sample this rank's bulks; the queue may have to wait for room."""
        for sampler, begin, end in self._roles.shares(self._plan.first, self._plan.num_batches, self._plan.bulk_size):
            if sampler != self._rank:
                continue
            for minibatch in self._work.sampled(begin, end):
                batch = pack(minibatch).framed()
                with self._work.phases.timed(waiting_for("room", "sampling")):
                    is_open = self.queue.put(minibatch.batch_id, batch)
                if not is_open:
                    return
        if self._plan.switches:
            self._messages.post(self._roles.coordinator, _STANDBY)
            self._ask()

    def _fetch(self) -> None:
        """Make batches of the minibatches that are assigned to this rank."""
        input_ = waiting_for("input", "features")
        while True:
            with self._work.phases.timed(input_):
                item = self._stream.get()
                packed_batch = self._awaited(item) if isinstance(item, int) else None
            if isinstance(item, int):
                if packed_batch is None:
                    return
                item = self._work.collated(unframed(packed_batch))
            self._ready.put(item)
            if isinstance(item, StepEnd) and item.step + 1 == self._plan.num_steps:
                return
            if isinstance(item, Exception):
                return
            del item

    def _awaited(self, batch: int) -> Any:
        """Wait for a batch that is sent here; None where a rank has failed."""
        with self._arrival:
            self._arrival.wait_for(lambda: batch in self._arrived or self._failure is not None)
            return self._arrived.pop(batch, None)

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
        else:
            self._assign(message)

    def _assign(self, message: Message) -> None:
        """Assign batches, on the rank that does."""
        if message.kind == _STANDBY:
            self._assignments.stand_by(message.source)
            return
        ask = self._assignments.ask
        assigned = (
            ask(message.source)
            if message.kind == _ASK
            else self._assignments.trained(message.source, message.number * _MICROSECOND)
        )
        for item in assigned:
            if isinstance(item, Assignment):
                self._messages.post(item.rank, _ASSIGNED, item.batch)
                self._let_give(self._samplers[item.batch], item)
            else:
                self._messages.post(EVERYONE, _STEP_END, item.step)

    def _let_give(self, sampler: int, assignment: Assignment) -> None:
        """Let the sampler of a batch send it: by a message without payload, unless it is this rank."""
        if sampler == self._rank:
            self.queue.give(*assignment)
        else:
            self._messages.post(sampler, _GIVE, assignment.batch * self._roles.ranks + assignment.rank)

    def _send(self, rank: int, batch: int, minibatch: Any) -> None:
        self._messages.post(rank, _BATCH, batch, minibatch)

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


def _leave(messages: MessageThread, queue: BatchQueue, threads: list[BackgroundThread]) -> None:
    """End the threads of a loop that was freed, or of an interpreter that exits: none may be in a kernel then."""
    messages.fail(_left(messages.rank))
    queue.close()
    messages.join(MAX_JOIN_SECONDS)
    for thread in threads:
        thread.join(MAX_JOIN_SECONDS)
