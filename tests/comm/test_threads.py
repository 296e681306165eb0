"""The contract of communicators, with ranks as threads."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from communicator_contract import CommunicatorContract
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.comm import Channel, LocalCommunicator, run_threads, together
from spsample.errors import CommunicationError


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("case", CommunicatorContract.cases())
def test_threads(case, size):
    run_threads(size, getattr(CommunicatorContract(), case), timeout=60)


@pytest.mark.parametrize("case", CommunicatorContract.cases())
def test_local(case):
    getattr(CommunicatorContract(), case)(LocalCommunicator())


def test_groups_that_nobody_uses_are_forgotten():
    def body(comm):
        room = weakref.ref(comm.duplicate()._room)
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
        with together(comm):
            if comm.rank == 1:
                channel.fail()
            else:
                channel.exchange([], phase="example")
        return "went on"

    with pytest.raises(
        CommunicationError, match="rank 0 of a group of 2: another rank said that it failed, and none has"
    ):
        run_threads(2, body)
