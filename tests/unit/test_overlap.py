"""Stages side by side: the choice of threads, its changes while a loader runs, and queues bounded in bytes."""

from __future__ import annotations

import math
import random
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.comm import run_threads
from spsample.common.stage_threads import StageThreads, require_stage_threads
from spsample.common.threads import kernel_threads
from spsample.data import planted
from spsample.distributed import ReplicatedGraph
from spsample.errors import DTypeError, InputError
from spsample.features import CachedFeatures, FeatureStore
from spsample.loading.overlap import tuning as tuning_module
from spsample.loading.overlap.adjusting import Adjuster, Window
from spsample.loading.overlap.choice import NEARLY, Choice, Curve, Loads, choose
from spsample.loading.overlap.cores import share_of
from spsample.loading.prefetch import Ahead, Pipeline
from spsample.sparse import get_num_threads

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)
X = np.tile(DATA.x, (1, 8))

seconds = st.floats(0.0, 1.0, allow_nan=False)
curves = st.builds(Curve, seconds, seconds)
loads = st.builds(Loads, curves, curves, seconds, st.integers(1, 8), st.integers(1, 8))


# ---- as it is given


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("auto", StageThreads()),
        (" 2, 1", StageThreads(2, 1)),
        ("auto,1,2", StageThreads(None, 1, 2)),
        (("auto", 3), StageThreads(None, 3)),
        (StageThreads(None, 2, 1), StageThreads(None, 2, 1)),
        (StageThreads(), StageThreads()),
    ],
)
def test_numbers_of_threads_as_text_and_as_numbers(given: Any, expected: StageThreads) -> None:
    assert require_stage_threads("stage_threads", given) == expected


@pytest.mark.parametrize(
    "given", ["", "2", "1,2,3,4", "0,1", "1,-1", "a,b", "auto,auto,auto", [1.5, 2], [True, 1], 3, {}]
)
def test_other_numbers_of_threads_are_refused(given: Any) -> None:
    with pytest.raises((InputError, DTypeError), match="stage_threads"):
        require_stage_threads("stage_threads", given)


# ---- the choice


@given(loads)
def test_the_choice_is_nearly_the_best_of_all(loads: Loads) -> None:
    best = min(loads.overlapped(s, f) for s in range(1, loads.cores + 1) for f in range(1, loads.cores + 1))
    made = choose(loads)
    assert loads.of(made) <= NEARLY * best
    assert not made.in_turn


@given(loads, st.integers(1, 9), st.integers(1, 9))
def test_numbers_that_are_given_stay(loads: Loads, sampling: int, features: int) -> None:
    assert choose(loads, StageThreads(sampling, None)).sampling == sampling
    assert choose(loads, StageThreads(None, features)).features == features
    assert choose(loads, StageThreads(sampling, features)) == Choice(sampling, features)


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.integers(2, 64))
def test_a_curve_goes_through_what_was_measured(one: float, many: float, threads: int) -> None:
    curve = Curve.through({1: one, threads: many})
    assert curve.serial >= 0
    assert curve.parallel >= 0
    if one / threads <= many <= one:
        assert math.isclose(curve.seconds(1), one)
        assert math.isclose(curve.seconds(threads), many)


def test_the_longest_stage_gets_the_cores() -> None:
    heavy, light = Curve(0.0, 6.0), Curve(0.1, 0.0)
    assert choose(Loads(heavy, light, training=1.0, training_threads=1, cores=8)) == Choice(6, 1)
    assert choose(Loads(light, heavy, training=1.0, training_threads=1, cores=8)) == Choice(1, 6)
    assert choose(Loads(light, light, training=1.0, training_threads=1, cores=8)) == Choice(1, 1)


def test_ranks_of_a_machine_share_its_cores() -> None:
    assert share_of(range(4), [tuple(range(4))] * 4) == 1
    assert share_of(range(4), [tuple(range(4))] * 3) == 1
    assert share_of(range(8), [tuple(range(8)), tuple(range(4))]) == 6
    assert share_of([0], [(0,)] * 5) == 1


# ---- changes


class World:
    """A machine on which stages take what their curves say, and wait for each other."""

    def __init__(self, loads: Loads, noise: float = 0.0, seed: int = 0) -> None:
        self.loads, self.noise, self.random = loads, noise, random.Random(seed)

    def window(self, choice: Choice) -> Window:
        one = self.loads
        around = lambda x: x * (1 + self.noise * (2 * self.random.random() - 1))  # noqa: E731
        waiting = one.of(choice) - one.training
        features = one.features.seconds(choice.features)
        return Window(
            around(one.sampling.seconds(choice.sampling)), around(features), around(one.training), around(waiting)
        )


CALM = Loads(Curve(0.0, 1.0), Curve(0.2, 0.0), training=1.0, training_threads=1, cores=4)


def run(adjuster: Adjuster, world: World, windows: int) -> int:
    return sum(bool(adjuster.observe(world.window(adjuster.choice))) for _ in range(windows))


def test_nothing_changes_while_nobody_starves() -> None:
    adjuster = Adjuster(CALM, choose(CALM))
    assert run(adjuster, World(CALM, noise=0.04), 1000) == 0


def test_a_stage_that_starves_gets_threads_once() -> None:
    slow = Loads(Curve(0.0, 3.0), Curve(0.2, 0.0), training=1.0, training_threads=1, cores=8)
    expected = Loads(Curve(0.0, 1.0), Curve(0.2, 0.0), training=1.0, training_threads=1, cores=8)
    first = choose(expected)
    assert first == Choice(1, 1)
    adjuster = Adjuster(Loads(Curve(0.0, 1.0), Curve(2.2, 0.0), 1.0, 1, 8), first)  # in turn is no better here
    assert run(adjuster, World(slow), 1000) == 1
    assert adjuster.choice == choose(slow) == Choice(3, 1)


def test_stages_in_each_others_way_go_on_in_turn() -> None:
    class InTheWay(World):
        def window(self, choice: Choice) -> Window:
            return Window(1.0, 0.2, 1.0, 0.45) if choice.in_turn else Window(3.0, 1.0, 3.0, 0.1)

    adjuster = Adjuster(CALM, choose(CALM))
    world = InTheWay(CALM)
    settled = []
    for _ in range(20):
        adjuster.observe(world.window(adjuster.choice))
        settled.append((adjuster.choice.in_turn, adjuster.is_settled))
    assert settled[0] == (False, True)
    assert settled.count((True, False)) == 3  # it waits to be judged
    assert settled[-1] == (True, True)
    assert run(adjuster, world, 1000) == 0
    assert adjuster.choice == Choice(4, 4, in_turn=True)


@pytest.mark.parametrize(("waiting", "is_kept"), [(0.3, True), (0.6, False)])
def test_where_threads_outnumber_cores_in_turn_is_tried_once(waiting: float, is_kept: bool) -> None:
    class Full(World):
        def window(self, choice: Choice) -> Window:
            return Window(0.3, 0.2, 1.0, waiting if choice.in_turn else 0.5)

    full = Loads(Curve(0.0, 1.2), Curve(0.2, 0.0), training=1.0, training_threads=4, cores=4)
    adjuster = Adjuster(full, Choice(1, 1), saves_threads=True)
    world = Full(full)
    choices = []
    for _ in range(40):
        choices.append(adjuster.choice)
        adjuster.observe(world.window(adjuster.choice))
    tried = [i for i, one in enumerate(choices) if one.in_turn]
    assert tried[0] == 3
    assert len(tried) == (37 if is_kept else 2)
    assert adjuster.choice.in_turn == is_kept
    assert adjuster.is_settled


def test_a_slow_window_alone_does_not_lead_to_working_in_turn() -> None:
    """Were it kept, nothing would be looked at any more."""

    class Full(World):
        def window(self, choice: Choice) -> Window:
            self.number = getattr(self, "number", 0) + 1
            slow = 3.0 if self.number == at else 0.0
            return Window(0.3, 0.2, 1.0, slow + (0.9 if choice.in_turn else 0.5))

    full = Loads(Curve(0.0, 1.2), Curve(0.2, 0.0), training=1.0, training_threads=4, cores=4)
    for at in range(1, 40):
        adjuster = Adjuster(full, Choice(1, 1), saves_threads=True)
        run(adjuster, Full(full), 300)
        assert not adjuster.choice.in_turn, at


def test_a_change_that_does_not_pay_is_undone_and_seldom_tried_again() -> None:
    class Stubborn(World):
        def window(self, choice: Choice) -> Window:
            return Window(2.0, 0.2, 1.0, 1.1 if choice.in_turn else 1.0)  # whatever else is done

    first = choose(CALM)
    adjuster = Adjuster(CALM, first)
    changes = run(adjuster, Stubborn(CALM), 1 << 10)
    assert 2 <= changes <= 2 * 10 + 2
    assert adjuster.choice in (first, Choice(4, 4, in_turn=True), Choice(2, 1))


@settings(deadline=None)
@given(loads, st.lists(st.builds(Window, st.none() | seconds, st.none() | seconds, seconds, seconds), min_size=1))
def test_changes_are_few_whatever_is_measured(loads: Loads, windows: list[Window]) -> None:
    adjuster = Adjuster(loads, choose(loads))
    windows = windows * 8
    changes = sum(bool(adjuster.observe(window)) for window in windows)
    assert changes <= 2 * math.log2(len(windows)) + 2


@settings(deadline=None)
@given(loads, st.integers(0, 2**16))
def test_no_oscillation_in_noise(loads: Loads, seed: int) -> None:
    adjuster, world = Adjuster(loads, choose(loads)), World(loads, noise=0.3, seed=seed)
    assert run(adjuster, world, 512) <= 20


# ---- queues in bytes


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 100), max_size=30),
    bound=st.integers(0, 150),
    items=st.integers(0, 4),
    late=st.integers(0, 3),
)
def test_bytes_ahead_are_bounded_and_nothing_is_waited_for_in_vain(
    sizes: list[int], bound: int, items: int, late: int
) -> None:
    """The consumer releases each item `late` items after it got it: a bound must not keep it from what it asks for."""
    begun: list[tuple[int, int, int]] = []  # at each beginning: items asked for, released, and begun before
    asked, released = [0], [0]

    def source() -> Any:
        for number, size in enumerate(sizes):
            begun.append((asked[0], released[0], number))
            yield size

    got = []
    with Pipeline() as pipeline:
        stage = pipeline.prefetch(source(), Ahead(items, bound, size_of=lambda size: size), "sizes")
        while True:
            asked[0] += 1
            item = next(stage, None)
            if item is None:
                break
            got.append(item)
            if len(got) > late:
                released[0] += 1
                stage.release()
    assert got == sizes
    for asked_then, released_then, number in begun:
        held = sizes[released_then:number]
        fits = len(held) < max(items, 1) and (not held or sum(held) + max(sizes[:number]) <= bound)
        assert number < asked_then or fits


def make(**changes: Any) -> sp.BulkLoader:
    options: dict[str, Any] = {"batch_size": 16, "bulk_size": 3, "features": X, "labels": DATA.y}
    options.update(changes)
    return sp.BulkLoader(DATA.graph, SEEDS, sp.GraphSAGE([3, 2]), **options)


def rows_of(batches: Any) -> list[Any]:
    return [(batch.batch_id, batch.src_nodes.tolist(), batch.x.tobytes()) for batch in batches]


@pytest.mark.parametrize("fetch", ["batch", "bulk"])
@pytest.mark.parametrize("budget", [1, 3000, "1GiB"])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_budget_of_what_is_ahead_changes_no_batch(fetch: str, budget: Any, prefetch: int) -> None:
    cached = CachedFeatures(FeatureStore(X), 20_000, np.arange(600)[::-1].astype(float), replacement="lookahead")
    for features in (X, cached):
        ahead = make(fetch=fetch, prefetch_budget=budget, prefetch=prefetch, features=features)
        assert [rows_of(ahead) for _ in range(2)] == _epochs(2)


def _epochs(count: int) -> list[Any]:
    loader = make(prefetch=0)
    return [rows_of(loader) for _ in range(count)]


def test_a_budget_without_prefetch_is_refused() -> None:
    with pytest.raises(InputError, match="prefetch_budget"):
        make(prefetch=0, prefetch_budget="1MiB")
    with pytest.raises(InputError, match="prefetch_budget"):
        make(prefetch_budget="much")


# ---- the loader


class Counting(FeatureStore):
    """Keeps how many threads its kernels may use, and where."""

    def __init__(self, x: Any) -> None:
        super().__init__(x)
        self.threads: list[int] = []

    def _read(self, ids: Any, out: Any, at: Any = None) -> None:
        self.threads.append(get_num_threads())
        super()._read(ids, out, at)


@pytest.mark.parametrize("given", ["auto", "2,1", "auto,1,2", (1, "auto")])
@pytest.mark.parametrize("fetch", ["batch", "bulk"])
def test_threads_of_stages_change_no_batch(given: Any, fetch: str) -> None:
    for bulk_size in (1, 3, 100):
        loader = make(stage_threads=given, fetch=fetch, bulk_size=bulk_size)
        assert [rows_of(loader) for _ in range(3)] == _epochs(3)
        report = loader.stage_report
        assert report is not None
        assert (report.sampling, report.features) >= (1, 1)


def test_a_state_is_exact_in_the_trial_and_after_it() -> None:
    expected = [row for epoch in _epochs(2) for row in epoch]
    for delivered in range(1, 19):
        loader = make(stage_threads="auto")
        batches = iter(loader)
        seen = rows_of(next(batches) for _ in range(delivered))
        other = make(bulk_size=2, stage_threads="auto")
        other.load_state_dict(loader.state_dict())
        assert seen + [row for _ in range(2) for row in rows_of(other)] == expected
        batches.close()


def test_the_trial_works_with_all_cores_with_one_thread_and_then_with_what_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning_module, "cores_of_rank", lambda comm: 4)
    source = Counting(X)
    loader = make(features=source, bulk_size=8, stage_threads="auto,auto,1")
    mine = get_num_threads()
    assert loader.stage_report is None
    rows_of(loader)
    report = loader.stage_report
    assert report is not None
    assert "in turn" in report.reason
    assert get_num_threads() == mine  # of the loop
    assert source.threads[:4] == [4, 1, 1, 4]  # bulks of 1, 2 and 4 batches, then of 8
    del source.threads[:]
    report = loader.stage_report
    rows_of(loader)
    if loader.stage_report == report:
        assert set(source.threads) == {report.features}


def test_the_stages_of_the_trial_work_in_turn() -> None:
    """While the loop has a batch of the trial nothing else is done."""
    working = threading.Lock()
    in_trial = [True]

    class Alone(FeatureStore):
        def _read(self, ids: Any, out: Any, at: Any = None) -> None:
            if in_trial[0]:
                assert working.acquire(blocking=False)
                working.release()
            super()._read(ids, out, at)

    loader = make(features=Alone(X), bulk_size=8, stage_threads="auto")
    for batch in loader:
        if loader.stage_report is None:
            with working:
                threading.Event().wait(0.01)
        else:
            in_trial[0] = False
        assert batch.x is not None


@pytest.mark.parametrize(("more", "names"), [(0, []), (1, ["spsample features", "spsample sampling"])])
def test_a_pass_in_turn_has_no_threads_unless_stages_need_other_numbers_of_them(more: int, names: list[str]) -> None:
    loader = make(stage_threads="auto")
    threads = get_num_threads() + more
    assert loader._tuning is not None
    loader._tuning.choice = Choice(threads, threads, in_turn=True)
    assert rows_of(loader) == _epochs(1)[0]
    loader.set_epoch(0)
    batches = iter(loader)
    next(batches)
    assert sorted(one.name for one in threading.enumerate() if one.name.startswith("spsample ")) == names
    batches.close()


def test_memory_is_planned_for_the_most_threads_that_sampling_can_have() -> None:
    budget = {"memory_budget": "64MiB", "bulk_size": 2}
    with kernel_threads(1):
        few, many = (make(stage_threads=(threads, 1), **budget).plan for threads in (1, 4))
        plain = make(**budget).plan
        assert get_num_threads() == 1
    assert few.peak(2) == plain.peak(2)
    assert many.peak(2) > few.peak(2)


def test_given_numbers_are_used() -> None:
    source = Counting(X)
    loader = make(features=source, stage_threads=(1, 2))
    assert loader.stage_report is not None
    rows_of(loader)
    assert set(source.threads) == {2}


def test_stage_threads_without_stages_are_refused() -> None:
    with pytest.raises(InputError, match="prefetch=0"):
        make(prefetch=0, stage_threads="auto")


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_choose_each_for_themselves(ranks: int) -> None:
    def epochs(comm: Any, **options: Any) -> Any:
        loader = sp.BulkLoader(
            ReplicatedGraph(DATA.graph, comm),
            SEEDS,
            sp.GraphSAGE([3, 2]),
            batch_size=8,
            bulk_size=8,
            features=DATA.x,
            **options,
        )
        made = [rows_of(loader) for _ in range(2)]
        loader.close()
        return made

    expected = run_threads(ranks, lambda comm: epochs(comm, prefetch=0))
    assert run_threads(ranks, lambda comm: epochs(comm, stage_threads="auto", prefetch_budget=1)) == expected


def test_a_rank_without_stage_threads_is_told() -> None:
    def make_one(comm: Any) -> None:
        threads = "auto" if comm.rank else None
        sp.BulkLoader(ReplicatedGraph(DATA.graph, comm), SEEDS, sp.GraphSAGE([2]), batch_size=8, stage_threads=threads)

    with pytest.raises(InputError, match="stage_threads"):
        run_threads(2, make_one)


# ---- training


def run_of(folder: Any = None, **changes: Any) -> Any:
    pytest.importorskip("torch_geometric")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    config = TrainConfig(epochs=3, batch_size=20, bulk_size=4, **changes)
    return Trainer(planted(400, random_seed=2), sp.GraphSAGE([3, 2]), ModelConfig(hidden=8), config)


def test_losses_in_turn_and_side_by_side_are_the_same_bits_and_so_are_those_of_a_resumed_run() -> None:
    import torch

    before = torch.get_num_threads()
    expected = [record.loss for record in run_of(pipeline="sync").fit().history]
    trainer = run_of(stage_threads=f"auto,auto,{before}", prefetch_budget="1KiB")
    result = trainer.fit()
    assert [record.loss for record in result.history] == expected
    assert result.threads is not None
    assert result.threads["training"] == before
    assert type(result).from_dict(result.as_dict()) == result
    assert torch.get_num_threads() == before

    states = []

    class StoppedError(RuntimeError):
        pass

    from spsample.training import Callback

    class Stop(Callback):
        def on_step(self, trainer: Any, loss: float) -> None:
            if trainer.progress.step == 13:
                states.append(trainer.state_dict())
                raise StoppedError

    stopped = run_of(stage_threads="auto")
    stopped.callbacks.append(Stop())
    with pytest.raises(StoppedError):
        stopped.fit()
    resumed = run_of(stage_threads="2,1")
    resumed.load_state_dict(states[0])
    assert [record.loss for record in resumed.fit().history] == expected


def test_torch_has_the_threads_that_are_given_while_it_trains() -> None:
    import torch

    before, seen = torch.get_num_threads(), set()
    from spsample.training import Callback

    class Look(Callback):
        def on_step(self, trainer: Any, loss: float) -> None:
            seen.add(torch.get_num_threads())

    trainer = run_of(stage_threads="1,1,1")
    trainer.callbacks.append(Look())
    trainer.fit()
    assert seen == {1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("changes", [{"pipeline": "sync"}, {"prefetch": 0}])
@pytest.mark.parametrize("name", ["stage_threads", "prefetch_budget"])
def test_settings_of_stages_without_stages_are_refused(changes: Any, name: str) -> None:
    from spsample.training import TrainConfig

    value = "auto" if name == "stage_threads" else "1MiB"
    with pytest.raises(InputError, match=name):
        TrainConfig(**changes, **{name: value})
