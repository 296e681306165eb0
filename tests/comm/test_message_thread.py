"""Messages: in order, however big, until all have finished or one has failed."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest

from spsample.comm import Communicator, Recorder, run_threads
from spsample.comm.message_thread import MAX_BYTES, Message, MessageThread
from spsample.errors import CommunicationError, InputError, RankError

TIMEOUT = 20.0


class Post:
    """A message thread that keeps what comes."""

    def __init__(self, comm: Communicator, deliver=None, phase: str = "messages") -> None:
        self.messages: list[Message] = []
        self.failure: list[Exception | None] = []
        self.box = MessageThread(comm, deliver or self.messages.append, self.failure.append, phase=phase)
        self.box.start()

    def end(self) -> list[Message]:
        self.box.finish()
        self.box.join()
        assert self.failure == [None]
        return self.messages


def text(word: str) -> np.ndarray:
    return np.frombuffer(word.encode(), np.uint8)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_letters_of_a_rank_come_in_their_order(size):
    """To all ranks, its own too, posted by two threads at once."""

    def body(comm):
        post = Post(comm)

        def send(kind):
            for number in range(50):
                for to in range(size):
                    post.box.post(to, kind, number, text(f"{comm.rank}>{to}: {kind} {number}"))
                if number % 10 == comm.rank:
                    time.sleep(0.001)

        other = threading.Thread(target=send, args=(1,))
        other.start()
        send(0)
        other.join()
        return post.end()

    for rank, messages in enumerate(run_threads(size, body, TIMEOUT)):
        assert len(messages) == size * 2 * 50
        for source in range(size):
            for kind in (0, 1):
                mine = [one for one in messages if (one.source, one.kind) == (source, kind)]
                assert [one.number for one in mine] == list(range(50))
                assert [one.payload.tobytes().decode() for one in mine] == [
                    f"{source}>{rank}: {kind} {number}" for number in range(50)
                ]


def test_letters_that_are_answered():
    """A message thread is used by the function that it delivers to, and ends after the answers of others."""

    def body(comm):
        def deliver(message):
            came.append(message.number)
            if message.number < 9:
                post.box.post((comm.rank + 1) % comm.size, 0, message.number + 1)
            else:
                over.set()

        came, over = [], threading.Event()
        post = Post(comm, deliver)
        if comm.rank == 0:
            post.box.post(1, 0, 1)
            assert over.wait(10)
        post.end()
        return came

    assert run_threads(3, body, TIMEOUT) == [[3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_letters_longer_than_a_round():
    """Each comes whole; a round carries what fits."""
    length = MAX_BYTES // 2 + 11

    def body(comm):
        recorder = Recorder(comm)
        post = Post(recorder, phase="long messages")
        if comm.rank == 0:
            for number in range(3):
                post.box.post(1, 0, number, np.full(length, number, np.uint8))
            post.box.post(1, 0, 3, np.full(MAX_BYTES + 5, 3, np.uint8))
        return [(one.number, len(one.payload), set(one.payload[:: 1 << 16].tolist())) for one in post.end()], recorder

    (none, sender), (messages, _) = run_threads(2, body, TIMEOUT)
    assert none == []
    assert messages == [(n, length, {n}) for n in range(3)] + [(3, MAX_BYTES + 5, {3})]
    phases = sender.traffic.phases
    assert phases["long messages"].bytes_sent >= 3 * length + MAX_BYTES
    assert set(phases) == {"long messages"}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("faulty", [0, 2])
@pytest.mark.parametrize("where", ["deliver", "fail"])
def test_a_rank_that_fails_ends_all(size, faulty, where):
    """With its error, on itself too; the communicator can be used again."""
    faulty = min(faulty, size - 1)

    def body(comm):
        def deliver(message):
            if comm.rank == faulty and where == "deliver":
                raise InputError(argument="message", given=str(message.number), expected="another")

        post = Post(comm, deliver)
        if comm.rank == faulty and where == "fail":
            post.box.fail(InputError(argument="message", given="4", expected="another"))
            post.box.fail(ZeroDivisionError("a second one"))
        post.box.post(faulty, 0, 4)
        post.box.join()
        (failure,) = post.failure
        post.box.post(0, 0, 5)  # nobody is there; nothing happens
        post.box.finish()
        again = Post(comm)
        again.box.post(0, 0, 6)
        return str(failure), type(failure), failure.raised_by, [one.number for one in again.end()]

    for rank, told in enumerate(run_threads(size, body, TIMEOUT)):
        said = f"message: got 4 (on rank {faulty}); expected another"
        assert told == (said, InputError, faulty, [6] * size if rank == 0 else [])


def test_the_first_error_counts_and_any_error_can_be_told():
    class LocalError(Exception):
        pass

    def body(comm):
        post = Post(comm)
        post.box.fail(LocalError("cannot be pickled") if comm.rank == 1 else ZeroDivisionError("zero"))
        post.box.join()
        return post.failure

    for (failure,) in run_threads(3, body, TIMEOUT):
        assert isinstance(failure, RankError)
        assert re.fullmatch(
            "rank [02] failed: ZeroDivisionError: zero|rank 1 failed: LocalError: .*pickled", str(failure)
        )


def test_who_finishes_late_still_gets_letters():
    def body(comm):
        post = Post(comm)
        if comm.rank == 0:
            time.sleep(0.05)
            post.box.post(1, 0, 1)
        return [one.number for one in post.end()]

    assert run_threads(2, body, TIMEOUT) == [[], [1]]


def test_a_rank_that_goes_without_finishing():
    """The others are told by the communicator, when no hope is left."""

    def body(comm):
        if comm.rank == 1:
            return None
        post = Post(comm)
        post.box.finish()
        post.box.join()
        return post.failure[0]

    failure = run_threads(3, body, TIMEOUT)[0]
    assert isinstance(failure, CommunicationError)
    assert "rank 1 returned" in str(failure)


def test_a_message_thread_that_never_began_is_not_waited_for():
    comm = run_threads(1, lambda comm: comm)[0]
    MessageThread(comm, print, print).join()
