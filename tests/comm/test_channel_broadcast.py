"""Broadcasts within groups whose headers all ranks share."""

from __future__ import annotations

import numpy as np
import pytest

from spsample.comm import Channel, collective, run_threads
from spsample.errors import InputError

TIMEOUT = 30


def rows_and_columns(comm):
    """A channel over every second rank, with all ranks as its scope."""
    group = comm.split(comm.rank % 2, comm.rank)
    return Channel(comm, group, list(range(comm.rank % 2, comm.size, 2)))


def test_each_group_has_its_root():
    def body(comm):
        channel = rows_and_columns(comm)
        mine = [np.full((comm.rank, 2), comm.rank, np.int32), np.arange(comm.rank, dtype=np.float32)]
        root = 1 - comm.rank % 2  # rank 2 for the even ones, rank 1 for the odd ones
        with collective(comm, channel):
            return channel.broadcast(mine, root, phase="example")

    for rank, (wide, long) in enumerate(run_threads(4, body, TIMEOUT)):
        root = 2 if rank % 2 == 0 else 1
        np.testing.assert_array_equal(wide, np.full((root, 2), root, np.int32), strict=True)
        np.testing.assert_array_equal(long, np.arange(root, dtype=np.float32), strict=True)


def test_a_group_without_a_root():
    def body(comm):
        channel = rows_and_columns(comm)
        with collective(comm, channel):
            return channel.broadcast([np.arange(3)], None if comm.rank % 2 else 0, phase="example")[0].tolist()

    assert run_threads(4, body, TIMEOUT) == [[0, 1, 2], [], [0, 1, 2], []]


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_that_fails_before(rank):
    def body(comm):
        channel = rows_and_columns(comm)
        with pytest.raises(InputError, match=f"on rank {rank}"):
            fails(comm, channel)
        return True

    def fails(comm, channel):
        with collective(comm, channel):
            if comm.rank == rank:
                raise InputError(argument="seeds", given="7", expected="less")
            channel.broadcast([np.arange(3)], 0, phase="example")

    assert all(run_threads(4, body, TIMEOUT))
