"""`bench/link_probe.py`: rates and latencies from seconds, and what is timed."""

from __future__ import annotations

import numpy as np
import pytest

from link_probe import costs_of, rates_of, seconds_of
from spsample.comm import run_threads
from spsample.comm.communicator import Communicator


def test_bytes_take_what_exchanges_take_beyond_small_ones():
    assert rates_of(9e6, small=1.0, away=4.0, both=7.0) == pytest.approx((3e6, 0.5))
    assert rates_of(9e6, small=1.0, away=4.0, both=3.0) == pytest.approx((3e6, 1.0))
    assert rates_of(1e6, small=5.0, away=5.0, both=10.0) == pytest.approx((2e6, 0.1))  # no more than its latency


@pytest.mark.parametrize(
    ("among_all", "among_two", "costs"), [(5.0, 3.0, (1.0, 2.0)), (3.0, 3.0, (0.0, 3.0)), (30.0, 3.0, (3.0, 0.0))]
)
def test_a_message_is_what_each_more_rank_takes(among_all, among_two, costs):
    assert costs_of(3, among_all, among_two) == costs


def test_exchanges_are_timed_without_their_headers():
    """The header, an exchange of its own in a plan, would be counted twice."""
    counts = np.array([[0, 3], [5, 0]])

    def body(comm):
        probed = _Probed(comm)
        return seconds_of(probed, counts, rounds=2, times=4), probed.seen

    for rank, (seconds, seen) in enumerate(run_threads(2, body)):
        assert seconds > 0
        assert seen == [(True, counts[rank].tolist(), counts[:, rank].tolist())] * 3 * 4


class _Probed:
    """Notes of each exchange whether it is one that all ranks have agreed about, and its counts."""

    def __init__(self, comm: Communicator) -> None:
        self._comm, self.seen = comm, []

    def all_to_all_v(self, send, send_counts, recv_counts):
        self.seen.append((bool(self._comm._call), send_counts.tolist(), recv_counts.tolist()))
        return self._comm.all_to_all_v(send, send_counts, recv_counts)

    def __getattr__(self, name):
        return getattr(self._comm, name)
