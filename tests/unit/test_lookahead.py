"""Lookahead: Belady's rule at the grain of batches."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.backends import available_backends
from spsample.errors import DTypeError, InputError
from spsample.features import Lookahead
from spsample.features.keeper import USE_BYTES
from spsample.features.lookahead import lookahead_bytes
from spsample.features.scores.order import highest
from tests.unit.lookahead_model import ReferenceLookahead

has_core = pytest.mark.skipif("cpu" not in available_backends(), reason="the compiled core is missing")

Trace = list[list[int]]


@st.composite
def traces(draw: Any, most_items: int = 6, most_batches: int = 7) -> tuple[int, int, list[float], Trace]:
    """Number of items, places, scores, and the items of batches."""
    items = draw(st.integers(1, most_items))
    batch = st.lists(st.integers(0, items - 1), max_size=items, unique=True)
    scores = draw(st.lists(st.integers(0, 3).map(float), min_size=items, max_size=items))
    return items, draw(st.integers(0, items)), scores, draw(st.lists(batch, max_size=most_batches))


def specified(scores: Any, capacity: int) -> Lookahead:
    """The same by the model."""
    model = SimpleNamespace(Lookahead=ReferenceLookahead)
    with mock.patch("spsample.features.gathering.compiled_core", return_value=model):
        return Lookahead(scores, capacity)


def emptied(lookahead: Lookahead) -> Lookahead:
    """The same with nothing held."""
    lookahead.forget(np.arange(lookahead.capacity))
    return lookahead


def misses_of(lookahead: Lookahead, batches: Trace, ahead: int) -> int:
    """Misses of a run in which so many batches beyond the current one are known; every decision is checked."""
    held, misses = lookahead.items, 0
    told = 0
    for number, batch in enumerate(batches):
        upto = min(number + 1 + ahead, len(batches))
        lookahead.announce([np.array(one, np.int64) for one in batches[told:upto]])
        told = max(told, upto)
        ids = np.array(batch, np.int64)
        assert lookahead.is_next(ids)
        found = lookahead.find(ids)
        decision = lookahead.step()
        for mine, its in zip(decision, found, strict=False):
            np.testing.assert_array_equal(mine, its)
        np.testing.assert_array_equal(held[decision.places], ids[decision.hits])
        assert sorted([*decision.hits, *decision.misses]) == list(range(len(ids)))
        assert set(decision.kept) <= set(decision.misses)
        held[decision.kept_places] = ids[decision.kept]
        held[lookahead.items < 0] = -1  # after its last known use an item that is none of the first is given up
        np.testing.assert_array_equal(held, lookahead.items)
        full = held[held >= 0]
        assert len(set(full.tolist())) == len(full)
        misses += len(decision.misses)
    return misses


def fewest_misses(capacity: int, held: frozenset[int], batches: Trace) -> int:
    """By exhaustive search over all that could be kept after each batch; what is held may be dropped at any time."""
    best = {held: 0}
    for batch in batches:
        after: dict[frozenset[int], int] = {}
        for had, misses in best.items():
            total = misses + len(set(batch) - had)
            present = sorted(had | set(batch))
            for kept in combinations(present, min(capacity, len(present))):
                key = frozenset(kept)
                after[key] = min(after.get(key, total), total)
        best = after
    return min(best.values())


@given(traces())
@settings(max_examples=300, deadline=None)
def test_no_cache_misses_less_where_everything_is_known(case: tuple[int, int, list[float], Trace]) -> None:
    _, capacity, scores, batches = case
    held = highest(np.array(scores), capacity)
    lookahead = Lookahead(scores, capacity)
    assert misses_of(lookahead, batches, len(batches)) == fewest_misses(capacity, frozenset(held.tolist()), batches)
    empty = emptied(Lookahead(scores, capacity))
    assert misses_of(empty, batches, len(batches)) == fewest_misses(capacity, frozenset(), batches)


@given(traces(most_items=12, most_batches=20), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_it_hits_at_least_what_a_static_set_of_the_same_score_hits(
    case: tuple[int, int, list[float], Trace], ahead: int
) -> None:
    _, capacity, scores, batches = case
    held = highest(np.array(scores), capacity)
    static = sum(len(set(batch) - set(held.tolist())) for batch in batches)
    assert misses_of(Lookahead(scores, capacity), batches, ahead) <= static


@has_core
@given(traces(most_items=12, most_batches=12), st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_the_core_misses_as_often_as_its_specification(case: tuple[int, int, list[float], Trace], ahead: int) -> None:
    items, capacity, _, batches = case
    scores = np.arange(items, 0, -1)  # distinct, so that only uses in the same batch are equally good
    mine, specification = Lookahead(scores, capacity), specified(scores, capacity)
    assert misses_of(mine, batches, ahead) == misses_of(specification, batches, ahead)


@pytest.mark.parametrize("seed", range(3))
def test_long_runs_with_several_batches_announced_at_once(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.random(300)
    batches = [np.flatnonzero(generator.random(300) < scores * generator.random()).tolist()[:200] for _ in range(60)]
    held = highest(scores, 40)
    static = sum(len(set(batch) - set(held.tolist())) for batch in batches)
    by_window = [misses_of(Lookahead(scores, 40), batches, ahead) for ahead in (0, 4, 60)]
    assert by_window[2] <= min(by_window) <= max(by_window) <= static


@has_core
@pytest.mark.parametrize("seed", range(6))
def test_the_core_misses_as_its_specification_in_long_runs_with_repeats_and_forgetting(seed: int) -> None:
    generator = np.random.default_rng(seed)
    items, capacity = 400, (0, 1, 15, 60, 150, 400)[seed]
    popularity = generator.random(items) ** 3
    scores = generator.permutation(items)
    mine, specification = Lookahead(scores, capacity), specified(scores, capacity)
    announced: list[Any] = []
    for bulk in range(12):
        batches = [np.flatnonzero(generator.random(items) < popularity) for _ in range(int(generator.integers(1, 9)))]
        batches = [generator.permutation(np.concatenate([batch, batch[: bulk % 3]])) for batch in batches]
        announced += batches
        mine.announce(batches)
        specification.announce(batches)
        while mine.known > bulk % 5:
            batch = announced[-mine.known]
            missed = [np.unique(batch[one.step().misses]) for one in (mine, specification)]
            assert len(missed[0]) == len(missed[1])
        if bulk % 4 == 3:
            mine.forget(np.arange(capacity))
            specification.forget(np.arange(capacity))
            assert (mine.items == -1).all()


def test_an_item_that_comes_twice_in_a_batch_is_kept_once() -> None:
    lookahead = emptied(Lookahead([1, 1, 1], 2))
    lookahead.announce([[2, 2, 0, 2], [2, 0], [2]])
    decision = lookahead.step()
    assert decision.misses.tolist() == [0, 1, 2, 3]
    assert sorted(decision.kept.tolist()) == [0, 2]
    assert lookahead.step().hits.tolist() == [0, 1]
    assert lookahead.step().hits.tolist() == [0]


def test_what_is_held_stays_where_another_is_as_good() -> None:
    lookahead = Lookahead([0, 1, 2, 3, 4, 5], 2)
    lookahead.announce([[0, 1, 4], [5], [0, 1, 4, 5]])
    assert lookahead.step().kept.tolist() == []
    assert sorted(lookahead.items.tolist()) == [4, 5]


def test_what_is_forgotten_no_longer_decides() -> None:
    lookahead = Lookahead([3, 2, 1, 0], 2)
    lookahead.announce([[3], [3], [3]])
    assert lookahead.step().kept.tolist() == [0]
    assert 3 in lookahead.items
    lookahead.forget()
    assert lookahead.known == 0
    lookahead.announce([[0], [1]])
    lookahead.step()
    lookahead.step()
    assert sorted(lookahead.items.tolist()) == [0, 1]


def test_places_that_were_emptied_are_filled_again() -> None:
    lookahead = Lookahead([3, 2, 1, 0], 2)
    lookahead.forget(emptied=[1])
    assert lookahead.items.tolist() == [0, -1]
    assert lookahead.find(np.array([1, 0])).misses.tolist() == [0]
    lookahead.announce([[3], [3]])
    assert lookahead.step().kept_places.tolist() == [1]
    lookahead.forget(emptied=[1, 1])
    lookahead.announce([[2], [2]])
    assert lookahead.step().kept_places.tolist() == [1]
    lookahead.step()
    assert lookahead.items.tolist() == [0, -1]


def test_a_wrong_batch_is_not_the_next_one() -> None:
    lookahead = Lookahead([1, 1, 1], 1)
    assert not lookahead.is_next(np.array([], np.int64))
    lookahead.announce([np.array([1, 2], np.int32)])
    assert lookahead.is_next(np.array([1, 2]))
    assert lookahead.is_next(np.array([1, 2], np.int32))
    assert not lookahead.is_next(np.array([2, 1]))
    assert not lookahead.is_next(np.array([1]))


def test_memory_is_what_is_said() -> None:
    lookahead = Lookahead(np.ones(100_000), 1000)
    assert lookahead.nbytes <= lookahead_bytes(100_000, 1000) <= 1.05 * lookahead.nbytes
    lookahead.announce([np.arange(100), np.arange(900)])
    assert lookahead._planner.known_bytes <= USE_BYTES * 1000  # as a loader plans


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([1, 1], 3), "capacity"),
        (([1, 1], -1), "capacity"),
        (([[1, 2], [3]], 1), "scores"),
    ],
)
def test_bad_caches_are_refused(arguments: tuple[Any, ...], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Lookahead(*arguments)


def test_bad_announcements_are_refused_whole() -> None:
    lookahead = Lookahead([1, 1, 1], 1)
    with pytest.raises(InputError, match="batches"):
        lookahead.announce([[0], [3]])
    with pytest.raises(DTypeError, match="batches"):
        lookahead.announce([[0.5]])
    assert lookahead.known == 0
    with pytest.raises(InputError, match="batches"):
        lookahead.step()
    with pytest.raises(InputError, match="emptied"):
        lookahead.forget([1])


def test_arrays_are_announced_all_or_none() -> None:
    lookahead = Lookahead([1, 1, 1], 1)
    specification = ReferenceLookahead(np.arange(3, dtype=np.int32).clip(max=1), 3, 1)
    for bad in (np.array([3], np.int32), np.array([0, -1]), np.array([[0]])):
        with pytest.raises(InputError, match="batches"):
            lookahead.announce([np.array([0]), bad])
        assert not specification.announce([np.array([0]), bad])
    assert lookahead.known == specification.known == 0
    lookahead.announce([np.array([0, 1], np.int32), np.arange(3)[::2], np.array([2], np.uint8), [1]])
    assert lookahead.known == 4
    assert [len(lookahead.step().misses) for _ in range(4)] == [1, 1, 0, 1]


@has_core
def test_what_is_used_again_in_one_batch_more_often_than_there_is_room_for() -> None:
    for capacity in (0, 1, 30, 400):
        scores = np.arange(600, 0, -1)
        batches = [np.arange(600), np.arange(100, 600), np.arange(0, 600, 2), np.arange(300)]
        misses = misses_of(Lookahead(scores, capacity), [batch.tolist() for batch in batches], 4)
        specification = specified(scores, capacity)
        assert misses == misses_of(specification, [batch.tolist() for batch in batches], 4)
