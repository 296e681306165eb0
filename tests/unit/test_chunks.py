"""Batches that are handed over together: all of them, in order, with what ends them."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spsample as sp
from spsample.data import planted
from spsample.loading import prefetch as module
from spsample.loading.order import Delivered
from spsample.loading.prefetch import MAX_BATCHES, MAX_BYTES, chunks

DATA = planted(2000, degree=6, random_seed=1)


def batches_of(sizes: list[int], ends: Any = ()) -> Iterator[Delivered]:
    for number, size in enumerate(sizes):
        yield Delivered(number + 1, begins_bulk=False, batch=number, nbytes=size, ends_bulk=number in ends, size=size)


@given(st.lists(st.integers(0, MAX_BYTES), max_size=60), st.sets(st.integers(0, 59)), st.integers(1, 20))
def test_every_batch_comes_once_in_order_and_chunks_keep_their_bounds(sizes: Any, ends: Any, most: int) -> None:
    found = list(chunks(batches_of(sizes, ends), most))
    assert [item.batch for one in found for item in one.batches] == list(range(len(sizes)))
    for one in found:
        assert 1 <= len(one.batches) <= min(most, MAX_BATCHES)
        assert one.nbytes == sum(item.nbytes for item in one.batches)
        assert one.nbytes - one.batches[-1].nbytes <= MAX_BYTES
        assert not any(item.ends_bulk for item in list(one.batches)[:-1])


def test_they_grow_and_follow_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SECONDS", 60)
    sizes = [len(chunk.batches) for chunk in chunks(batches_of([1] * 25), 99)]
    assert sizes == [1, 2, 4, 8, 8, 2]
    assert [len(chunk.batches) for chunk in chunks(batches_of([1] * 4), 1)] == [1] * 4


def test_what_nobody_knows_the_size_of_goes_alone() -> None:
    items = (Delivered(i, begins_bulk=False, batch=i) for i in range(4))
    assert [len(chunk.batches) for chunk in chunks(items, 8)] == [1] * 4


def test_no_more_of_what_a_transform_makes_than_two_batches_wait() -> None:
    """It may be far larger than the features that it is made of."""
    options: Any = {"batch_size": 4, "bulk_size": 16, "features": DATA.x, "stage_threads": (1, 1)}
    loader = sp.BulkLoader(DATA.graph, np.arange(256), sp.GraphSAGE([2]), transform=Weighed, **options)
    most = 0
    for _ in loader:
        time.sleep(1e-3)
        most = max(most, len(gc_objects(Weighed)))
    loader.close()
    assert most <= 4


class Weighed:
    """Stands for something large that a batch is made into."""

    def __init__(self, batch: Any) -> None:
        self.batch_id = batch.batch_id


def gc_objects(kind: type) -> list[Any]:
    return [one for one in gc.get_objects() if type(one) is kind]


def test_what_takes_long_goes_alone() -> None:
    def slow() -> Iterator[Delivered]:
        for item in batches_of([1] * 6):
            time.sleep(0.003)
            yield item

    assert [len(chunk.batches) for chunk in chunks(slow(), 8)] == [1] * 6


@pytest.mark.parametrize("after", range(6))
def test_what_fails_comes_after_the_batches_before_it(after: int) -> None:
    closed = []

    def failing() -> Iterator[Delivered]:
        try:
            yield from batches_of([1] * after)
            raise ValueError("the next one")
        finally:
            closed.append(after)

    found: list[int] = []
    with pytest.raises(ValueError, match="the next one"):
        found.extend(item.batch for chunk in chunks(failing(), 8) for item in chunk.batches)
    assert found == list(range(after))
    assert closed == [after]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_a_loader_stands_after_each_batch_of_a_chunk(batch_size: int) -> None:
    """What was made and not yet delivered is no part of a state."""
    options: Any = {"batch_size": batch_size, "bulk_size": 16, "features": DATA.x, "random_seed": 4}
    seeds = np.arange(150)
    loader = sp.BulkLoader(DATA.graph, seeds, sp.GraphSAGE([3, 2]), **options)
    whole = [(batch.batch_id, batch.x) for batch in sp.BulkLoader(DATA.graph, seeds, loader.sampler, **options)]
    for stop in range(0, len(whole), 5):
        loader.set_epoch(0)
        for batch in loader:
            if batch.batch_id == stop:
                break
        state = loader.state_dict()
        assert state["next_batch"] == stop + 1
        other = sp.BulkLoader(DATA.graph, seeds, loader.sampler, **options)
        other.load_state_dict(state)
        rest = [(batch.batch_id, batch.x) for batch in other]
        if stop + 1 < len(whole):
            assert [number for number, _ in rest] == [number for number, _ in whole[stop + 1 :]]
            for (_, mine), (_, theirs) in zip(rest, whole[stop + 1 :], strict=True):
                np.testing.assert_array_equal(mine, theirs)
