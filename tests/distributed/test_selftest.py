"""The self-test of ranks passes, and finds what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler

from spsample.comm import run_threads
from spsample.distributed import selftest as module
from spsample.distributed.selftest import SelfTestError, selftest
from spsample.errors import BackendError, RankError

__all__ = ["emulated"]


def test_all_ranks_count_the_same():
    told = []
    counts = run_threads(3, lambda comm: selftest(comm, told.append))
    assert len(set(counts)) == 1
    assert told[0].startswith("devices: NOT checked")
    assert told[1].startswith("exchanges of the host's arrays: 30")
    assert any("grid 3 x 1" in line for line in told)


def test_what_differs_is_told(monkeypatch):
    def wrong(graph, seeds, sampler, **call):
        bulk = sample(graph, seeds, sampler, **call)
        if hasattr(graph, "comm") and graph.comm.rank == 1:
            bulk.layers[0].indices = bulk.layers[0].indices[::-1].copy()
        return bulk

    sample = module.sample_batches
    monkeypatch.setattr(module, "sample_batches", wrong)
    with pytest.raises((SelfTestError, RankError), match=r"indices of layer 1 of batch 1 is not that of one process"):
        run_threads(2, selftest)


def test_what_comes_wrong_is_told():
    with pytest.raises(SelfTestError, match="all-gather"):
        module._require(np.arange(3), np.arange(3) + 1, "all-gather")


@needs_compiler
def test_devices_are_checked_where_every_rank_has_one(emulated, monkeypatch):
    monkeypatch.setattr(module, "_samplers", lambda: [module.GraphSAGE([3, 2])])
    told = []
    run_threads(2, lambda comm: selftest(comm, told.append, needs_device=True))
    assert not any("NOT checked" in line for line in told)
    assert sum("on the device" in line for line in told) == 2 * 3


def test_devices_that_are_needed_have_to_be_there(monkeypatch):
    monkeypatch.setattr(module, "_cuda", lambda: (None, "no GPU here"))
    with pytest.raises(BackendError, match="no GPU here"):
        run_threads(2, lambda comm: selftest(comm, needs_device=True))
