"""The contract of communicators, with ranks as threads."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest
from communicator_contract import CommunicatorContract
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.comm import Channel, LocalCommunicator, collective, run_threads
from spsample.errors import CommunicationError, InputError


class ThreadContract(CommunicatorContract):
    names_the_lost = True


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("case", ThreadContract.cases())
def test_threads(case, size):
    run_threads(size, getattr(ThreadContract(), case), timeout=60)


@pytest.mark.parametrize("case", CommunicatorContract.cases())
def test_local(case):
    getattr(CommunicatorContract(), case)(LocalCommunicator())


def test_what_a_rank_that_is_alone_raises_is_left_as_it_is():
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as raised, collective(LocalCommunicator()):
        raise error
    assert raised.value is error


def test_groups_that_nobody_uses_are_forgotten():
    def body(comm):
        room = weakref.ref(comm.duplicate()._rendezvous)
        comm.barrier()
        gc.collect()
        return room() is None

    assert run_threads(3, body) == [True] * 3


@st.composite
def exchanges(draw):
    """A matrix of counts, a dtype and the width of a row; None is one dimension."""
    p = draw(st.integers(1, 5))
    counts = draw(st.lists(st.lists(st.integers(0, 6), min_size=p, max_size=p), min_size=p, max_size=p))
    return (
        np.array(counts),
        draw(st.sampled_from(["?", "u2", "i8", "f2", "S3"])),
        draw(st.sampled_from([None, 0, 1, 3])),
    )


@settings(max_examples=60)
@given(exchanges())
def test_all_to_all_v_is_the_model(exchange):
    """Row i of rank a for rank b goes to the place that a transposition of the blocks gives it."""
    counts, dtype, width = exchange
    p = len(counts)
    shape = () if width is None else (width,)
    generator = np.random.default_rng(0)
    blocks = [[generator.integers(0, 99, (counts[a, b], *shape)).astype(dtype) for b in range(p)] for a in range(p)]

    def body(comm):
        send = np.concatenate(blocks[comm.rank])
        return comm.all_to_all_v(send, counts[comm.rank], counts[:, comm.rank])

    for b, received in enumerate(run_threads(p, body)):
        expected = np.concatenate([blocks[a][b] for a in range(p)])
        assert received.dtype == expected.dtype
        assert received.tobytes() == expected.tobytes()
        assert received.shape == expected.shape


def test_a_failure_that_nobody_tells_is_an_error():
    """A header with the status word of a rank that goes on: the ranks are out of step."""

    def body(comm):
        channel = Channel(comm)
        with collective(comm):
            if comm.rank == 1:
                channel.fail()
            else:
                channel.exchange([], phase="example")
        return "went on"

    with pytest.raises(
        CommunicationError, match="rank 0 of a group of 2: another rank said that it failed, and none has"
    ):
        run_threads(2, body)


# ------------------------------------------------------------------------------------------------------------- waiting


def test_the_time_out_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("SPSAMPLE_TIMEOUT", "0.3")
    timed_out = threading.Event()

    def body(comm):
        assert comm.timeout == 0.3
        if comm.rank == 1:
            return timed_out.wait(30)
        try:
            return comm.all_gather(np.zeros(1), phase="rows")
        finally:
            timed_out.set()

    said = r"rank 0 of a group of 2: all_gather .*'rows'.*time-out 0.3 s.*; nothing was heard of rank 1"
    with pytest.raises(CommunicationError, match=said):
        run_threads(2, body)


def test_a_time_out_that_is_none(monkeypatch):
    for bad in (-1, 0, "soon", float("nan"), float("inf"), 1e300, 2**70):  # the last three: OverflowError by clocks
        with pytest.raises(InputError, match=r"timeout: got .*a positive number of seconds"):
            run_threads(2, lambda comm: comm.rank, bad)
    monkeypatch.setenv("SPSAMPLE_TIMEOUT", "soon")
    with pytest.raises(InputError, match="SPSAMPLE_TIMEOUT: got 'soon'"):
        run_threads(2, lambda comm: comm.rank)


@pytest.mark.parametrize("early", [False, True], ids=["others wait", "others come later"])
@pytest.mark.parametrize("group", ["all", "a duplicate", "a part"])
def test_a_rank_that_returns_wakes_the_others(group, early):
    """Before the time-out, and by name; those who do not need it go on."""

    def body(comm):
        part = comm.split(int(comm.rank == 3)) if group == "a part" else comm.duplicate()
        waited_in = comm if group == "all" else part
        if comm.rank == 1:
            return time.sleep(0 if early else 0.2)
        if comm.rank == 3 and group == "a part":
            return time.sleep(0.5)
        time.sleep(0.2 if early else 0)
        return waited_in.all_gather(np.zeros(1), phase="rows")

    with pytest.raises(CommunicationError, match=r"rank 0 of a group of [34]: all_gather .*'rows'.*: rank 1 returned"):
        run_threads(4, body, 30)


def test_a_rank_that_returns_holds_up_nobody_who_does_not_need_it():
    def body(comm):
        part = comm.split(int(comm.rank == 1))
        if comm.rank != 1:
            time.sleep(0.2)
            return part.all_gather(np.array(comm.rank)).tolist()
        return None

    assert run_threads(3, body, 30) == [[0, 2], None, [0, 2]]


def test_the_last_call_counts_although_a_rank_returns_after_it():
    for _ in range(200):
        assert run_threads(3, lambda comm: comm.all_gather(np.array(comm.rank)).tolist(), 30) == [[0, 1, 2]] * 3
