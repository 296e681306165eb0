"""Stages side by side: their threads, and queues bounded in bytes."""

from __future__ import annotations

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
from spsample.loading.prefetch import Ahead, StageChain
from spsample.sparse import get_num_threads

DATA = planted(600, degree=6, random_seed=1)
SEEDS = np.arange(0, 600, 2)
X = np.tile(DATA.x, (1, 8))

# ---- as it is given


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (" 2, 1", StageThreads(2, 1)),
        ("2,1,3", StageThreads(2, 1, 3)),
        ((1, 3), StageThreads(1, 3)),
        (StageThreads(1, 2, 1), StageThreads(1, 2, 1)),
        (StageThreads(1, 2), StageThreads(1, 2)),
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


@pytest.mark.parametrize("given", ["auto", "auto,1", (1, "auto")])
def test_a_choice_of_threads_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(InputError, match=r"stage_threads: got .*auto.*give numbers, or nothing"):
        require_stage_threads("stage_threads", given)


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
    with StageChain() as chain:
        stage = chain.prefetch(source(), Ahead(items, bound, size_of=lambda size: size), "sizes")
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


@pytest.mark.parametrize("given", ["2,1", "1,1,2", (1, 2)])
@pytest.mark.parametrize("fetch", ["batch", "bulk"])
def test_threads_of_stages_change_no_batch(given: Any, fetch: str) -> None:
    for bulk_size in (1, 3, 100):
        loader = make(stage_threads=given, fetch=fetch, bulk_size=bulk_size)
        assert [rows_of(loader) for _ in range(3)] == _epochs(3)


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
    rows_of(loader)
    assert set(source.threads) == {2}


def test_stage_threads_without_stages_are_refused() -> None:
    with pytest.raises(InputError, match="prefetch=0"):
        make(prefetch=0, stage_threads="1,2")


@pytest.mark.parametrize("ranks", [2, 4])
def test_threads_of_ranks_change_no_batch(ranks: int) -> None:
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
    assert run_threads(ranks, lambda comm: epochs(comm, stage_threads="1,2", prefetch_budget=1)) == expected


def test_a_rank_without_stage_threads_is_told() -> None:
    def make_one(comm: Any) -> None:
        threads = "1,1" if comm.rank else None
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
    trainer = run_of(stage_threads=f"2,1,{before}", prefetch_budget="1KiB")
    assert [record.loss for record in trainer.fit().history] == expected
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

    stopped = run_of(stage_threads="1,2")
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

    value = "1,1" if name == "stage_threads" else "1MiB"
    with pytest.raises(InputError, match=name):
        TrainConfig(**changes, **{name: value})
