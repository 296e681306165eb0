"""Threads ahead of the loop or serial work in it: what is chosen, when, and that batches stay the same."""

import itertools
import threading

import numpy as np
import pytest

import spsample as sp
from spsample.loading.serial import LOOK_SECONDS, MAX_PAIRS, PATIENCE, SerialChoice


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def go_through(choice, clock, took, batches):
    """Batches that take ``took(in_turn)`` seconds: (to be made, of the loop); the ways that they came in."""
    ways = []
    choice.begin()
    for _ in range(batches):
        made, loop = took(choice.is_serial)
        ways.append(choice.is_serial)
        clock.now += made
        choice.delivered(ends_bulk=True)
        clock.now += loop
        if choice.asks():
            choice.begin()
    return ways


def made():
    clock = Clock()
    return SerialChoice(clock), clock


@pytest.mark.parametrize(
    ("took", "in_turn"),
    [
        (lambda in_turn: (1e-3 if in_turn else 2e-3, 0.0), True),
        (lambda in_turn: (1e-3 if in_turn else 0.98e-3, 0.0), True),  # nothing to overlap: no clear gain
        (lambda in_turn: (1e-3 if in_turn else 0.7e-3, 0.0), False),  # two stages that overlap
        (lambda in_turn: (1e-3 if in_turn else 1e-5, 1e-3), False),
        (lambda in_turn: (1e-3 if in_turn else 1e-5, 8e-3), False),
        (lambda in_turn: (1e-3 if in_turn else 1e-4, 1e-3 if in_turn else 3e-3), True),  # threads slow the loop down
        (lambda in_turn: (0.3 if in_turn else 0.6, 0.0), True),  # long looks
    ],
)
def test_the_faster_way_is_kept(took, in_turn):
    choice, clock = made()
    go_through(choice, clock, took, 2000)
    assert choice.is_settled
    assert choice.is_serial == in_turn


def test_a_pass_begins_with_threads_and_looks_are_short():
    choice, clock = made()
    ways = go_through(choice, clock, lambda in_turn: (1e-3 if in_turn else 2e-3, 0.0), 2000)
    looks = [(way, len(list(some))) for way, some in itertools.groupby(ways)]
    assert [way for way, _ in looks] == [False, True, False, True]
    assert sum(count for _, count in looks[:3]) <= 3 * LOOK_SECONDS / 1e-3


@pytest.mark.parametrize("random_seed", range(5))
def test_noise_does_not_hide_a_clear_difference(random_seed):
    rng = np.random.default_rng(random_seed)
    choice, clock = made()

    def took(in_turn):
        pause = 0.5 if rng.random() < 0.002 else 0.0
        return (1e-3 if in_turn else 2e-3) * rng.uniform(0.7, 1.4) + pause, 0.0

    go_through(choice, clock, took, 4000)
    assert choice.is_settled
    assert choice.is_serial


def test_without_a_clear_difference_looks_come_to_an_end():
    choice, clock = made()
    ways = go_through(choice, clock, lambda in_turn: (1e-3, 1e-3), 5000)
    assert choice.is_settled
    assert choice.is_serial
    assert len(list(itertools.groupby(ways))) == 2 * MAX_PAIRS


def test_another_loop_is_looked_at_anew():
    choice, clock = made()
    go_through(choice, clock, lambda in_turn: (1e-3 if in_turn else 2e-3, 0.0), 2000)
    assert choice.is_serial
    go_through(choice, clock, lambda in_turn: (1e-3 if in_turn else 1e-5, 2e-3), 4 * PATIENCE * 100)
    assert choice.is_settled
    assert not choice.is_serial


def test_a_little_more_work_is_no_other_loop():
    choice, clock = made()
    go_through(choice, clock, lambda in_turn: (1e-3 if in_turn else 2e-3, 1e-6), 2000)
    ways = go_through(choice, clock, lambda in_turn: (1e-3 if in_turn else 2e-3, 3e-5), 4 * PATIENCE * 100)
    assert all(ways)


def test_the_way_changes_at_the_end_of_a_bulk_only():
    choice, clock = made()
    choice.begin()
    for ends_bulk in [True, *[False] * 100]:  # the first bulk fills the queues
        clock.now += 0.1
        choice.delivered(ends_bulk=ends_bulk)
        assert not choice.asks()
    clock.now += 0.1
    choice.delivered(ends_bulk=True)
    assert choice.asks()
    assert choice.is_serial


def test_a_look_at_one_batch_has_the_work_of_the_loop():
    """Each look is one bulk of one batch: 65 ms of the loop, 4 ms to be made, which threads take from the loop."""
    choice, clock = made()
    ways = go_through(choice, clock, lambda in_turn: (4e-3, 65e-3) if in_turn else (1e-3, 75e-3), 200)
    assert choice.is_settled
    assert choice.is_serial
    assert ways[:13].count(False) <= 4 + 2  # with the bulks that fill the queues
    assert all(ways[13:])


def _loader(bulk_size, **options):
    graph = sp.load_dataset("rmat:10,8").graph
    seeds = np.flatnonzero(np.diff(graph.indptr))[:500]
    features = np.arange(2 * graph.num_nodes, dtype=np.float32).reshape(-1, 2)
    return sp.BulkLoader(
        graph, seeds, sp.GraphSAGE([3, 2]), batch_size=20, bulk_size=bulk_size, features=features, **options
    )


class Alternating:
    """Changes the way after every bulk."""

    is_serial = False

    is_settled = False

    def begin(self):
        pass

    def delivered(self, *, ends_bulk):
        self.ends_bulk = ends_bulk

    def asks(self):
        self.is_serial ^= self.ends_bulk
        return self.ends_bulk


@pytest.mark.parametrize("bulk_size", [1, 3, 64])
def test_batches_are_the_same_in_any_way(bulk_size):
    loader, expected = _loader(bulk_size), _loader(bulk_size, prefetch=0)
    loader._serial_choice = Alternating()
    for _ in range(2):
        for one, other in zip(loader, expected, strict=True):
            assert one.batch_id == other.batch_id
            assert np.array_equal(one.x, other.x)
            assert np.array_equal(one.layers[0].adj.indices, other.layers[0].adj.indices)
        assert loader.epoch == expected.epoch


def test_a_pass_that_is_left_in_the_midst_goes_on_from_its_state():
    loader, expected = _loader(2), [batch.seeds.tolist() for batch in _loader(2, prefetch=0)]
    loader._serial_choice = Alternating()
    seen = []
    for batch in loader:
        seen.append(batch.seeds.tolist())
        if len(seen) == 5:
            break
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert seen + [batch.seeds.tolist() for batch in loader] == expected
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("spsample ")]


def test_a_loader_has_chosen_within_a_sixteenth_of_a_pass():
    clock = Clock()
    graph = sp.load_dataset("rmat:10,8").graph
    loader = sp.BulkLoader(graph, np.arange(512), sp.GraphSAGE([3, 2]), batch_size=1, bulk_size=64)
    loader._serial_choice = SerialChoice(clock)
    for batch in loader:
        clock.now += 0.065 if loader._serial_choice.is_serial else 0.075
        if batch.batch_id >= 512 / 16:
            break
    assert loader._serial_choice.is_settled
    assert loader._serial_choice.is_serial


def test_settled_serial_choice_need_no_threads(monkeypatch):
    loader = _loader(4)
    loader._serial_choice.is_serial = True
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread was started"))
    assert len(list(loader)) == 25


@pytest.mark.parametrize("options", [{"prefetch": 0}, {"stage_threads": "1,1"}])
def test_what_is_chosen_otherwise_is_left(options):
    assert _loader(4, **options)._serial_choice is None
