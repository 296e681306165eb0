"""`MessageThread`: messages between ranks that work at their own pace, over a communicator of collective calls."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.comm.communicator import Communicator
from spsample.comm.headers import pickled_error
from spsample.common.locks import renewed
from spsample.errors import on_rank, raised_by

MAX_MESSAGES, MAX_BYTES = 16, 32 << 20
"""Messages that a rank sends in one round, and their bytes; a longer message goes alone."""

EVERYONE = -1
"""The address of a message to all ranks, its sender too."""

_NOBODY = -2
_MIN_PAUSE, _MAX_PAUSE = 2e-4, 1e-2
"""Seconds between two rounds: the shortest after one that moved a message, then twice as long each time."""

_FAILED, _ENDED = -1, -2
_NOTHING = np.zeros(0, np.uint8)


class Message(NamedTuple):
    """A message of one rank to another.

    Attributes
    ----------
    source : int
        The rank that sent it.
    kind, number : int
        Their meaning is the users' own; `kind` is at least 0.
    payload : uint8 array
        Bytes; a view of those that came in a round.
    """

    source: int
    kind: int
    number: int
    payload: NDArray[np.uint8]


class MessageThread:
    """Messages that are posted at any time by any thread, and delivered in the order of posting.

    A thread on each rank goes through rounds, each an exchange of messages posted meanwhile. Between two rounds it
    sleeps, at most 10 ms. So no rank waits for one that computes, as in a collective call, and the ranks need only the
    calls of every `Communicator`.

    Parameters
    ----------
    comm : Communicator
        Used by this thread alone.
    deliver : function
        Called with each `Message`, by that thread. An exception of it ends the message threads of all ranks.
    ended : function
        Called last of all by that thread: with None once all ranks have finished, else with the error of one.
    phase : str
        Phase of the messages, for a `Recorder`.
    call : str, optional
        Call that errors name of a rank that is lost meanwhile, or ended; None: the phase.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> def body(comm):
    ...     came, over = [], threading.Event()
    ...     thread = MessageThread(comm, came.append, lambda failure: over.set())
    ...     thread.start()
    ...     thread.post(1 - comm.rank, kind=0, number=7)
    ...     thread.finish()
    ...     thread.join()
    ...     return [(message.source, message.number) for message in came]
    >>> run_threads(2, body)
    [[(1, 7)], [(0, 7)]]
    """

    def __init__(
        self,
        comm: Communicator,
        deliver: Callable[[Message], None],
        ended: Callable[[Exception | None], None],
        *,
        phase: str = "messages",
        call: str | None = None,
    ) -> None:
        self._comm, self.rank = comm, comm.rank
        self._deliver, self._ended = deliver, ended
        self._phase, self._call = phase, phase if call is None else call
        # Reentrant: a pass may end during garbage collection, in this thread too.
        self._lock = renewed(threading.RLock())
        self._process = os.getpid()
        self._posted: deque[tuple[int, Message]] = deque()  # with their addresses
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name=f"spsample {phase}", daemon=True)

    @property
    def is_here(self) -> bool:
        """True in the process that made it: a forked one has no thread of it."""
        return os.getpid() == self._process

    def start(self) -> None:
        """Begin the rounds."""
        self._thread.start()

    def post(self, to: int, kind: int, number: int = 0, payload: NDArray[np.uint8] = _NOTHING) -> None:
        """Send a message to a rank, which may be this one, or to `EVERYONE`."""
        with self._lock:
            if not self._is_failing:
                self._posted.append((to, Message(self.rank, kind, number, payload)))

    def finish(self) -> None:
        """Post no more; messages of others are delivered until all have finished."""
        self.post(EVERYONE, _ENDED)

    def fail(self, error: Exception) -> None:
        """End the message threads of all ranks with an error of this one; the first error counts."""
        with self._lock:
            if self._is_failing:
                return
            self._is_failing = True
            report = np.frombuffer(pickled_error(error, self.rank), np.uint8)
            self._posted = deque([(EVERYONE, Message(self.rank, _FAILED, 0, report))])

    def join(self, seconds: float | None = None) -> None:
        """Wait until all ranks have finished, or one has failed."""
        if self.is_here and self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    # ---------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            failure = self._rounds()
        except BaseException as error:
            failure = error if isinstance(error, Exception) else on_rank(error, self.rank)
        finally:
            with self._lock:
                self._is_failing = True  # no message is posted any more
                self._posted.clear()
            self._ended(failure)

    def _rounds(self) -> Exception | None:
        """Go through rounds until all have finished (None), or one has failed."""
        over: set[int] = set()
        pause = _MIN_PAUSE
        while True:
            sent = self._taken()
            came = self._exchanged(sent)
            for message in came:
                if message.kind == _FAILED:
                    error = on_rank(pickle.loads(message.payload.tobytes()), message.source)
                    raised_by(error, message.source)
                    return error
                if message.kind == _ENDED:
                    over.add(message.source)
                    continue
                try:
                    self._deliver(message)
                except BaseException as error:  # the next round reports it to all
                    self.fail(error if isinstance(error, Exception) else on_rank(error, self.rank))
            if len(over) == self._comm.size:
                return None
            pause = _MIN_PAUSE if sent or came else min(2 * pause, _MAX_PAUSE)
            time.sleep(pause)

    def _taken(self) -> list[tuple[int, Message]]:
        """Take the messages of a round: the first ones posted."""
        taken: list[tuple[int, Message]] = []
        nbytes = 0
        with self._lock:
            while self._posted and len(taken) < MAX_MESSAGES:
                nbytes += len(self._posted[0][1].payload)
                if taken and nbytes > MAX_BYTES:
                    break
                taken.append(self._posted.popleft())
        return taken

    def _exchanged(self, messages: Sequence[tuple[int, Message]]) -> list[Message]:
        """Exchange the messages of a round, and return those that came, those of one rank in their order.

        All ranks get all heads. Where no message of a round has a payload, nothing else is exchanged.
        """
        heads = np.zeros((MAX_MESSAGES, 4), np.int64)
        heads[:, 0] = _NOBODY
        for row, (to, message) in zip(heads, messages, strict=False):
            row[:] = to, message.kind, message.number, len(message.payload)
        size, rank = self._comm.size, self._comm.rank
        with self._comm.agreed(self._call):
            everyone = self._comm.all_gather(heads, phase=self._phase)
            came = (everyone[..., 0] == rank) | (everyone[..., 0] == EVERYONE)
            counts = (everyone[..., 3] * came).sum(axis=1)
            received = _NOTHING
            if everyone[..., 3].any():
                sent = [[message.payload for to, message in messages if to in (q, EVERYONE)] for q in range(size)]
                send_counts = np.array([sum(map(len, payloads)) for payloads in sent], np.int64)
                parts = [payload for payloads in sent for payload in payloads if len(payload)]
                send = parts[0] if len(parts) == 1 else np.concatenate([_NOTHING, *parts])
                received = self._comm.all_to_all_v(send, send_counts, counts, phase=self._phase)
        sources, places = np.nonzero(came)
        arrived = everyone[sources, places]
        ends = np.cumsum(arrived[:, 3]).tolist()
        return [
            Message(source, kind, number, received[end - nbytes : end])
            for source, (_, kind, number, nbytes), end in zip(sources.tolist(), arrived.tolist(), ends, strict=True)
        ]
