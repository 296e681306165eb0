"""Ranks that each sample a part of their own: one model, no hang, nothing asked of others but gradients."""

import copy
import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training_cases import DATA, Seen, on_ranks  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.comm import Recorder, run_threads  # noqa: E402
from spsample.data import part_dataset, read_part, write_part_stores  # noqa: E402
from spsample.errors import InputError, SpSampleError  # noqa: E402
from spsample.training import BlockMaker, ModelConfig, TrainConfig, Trainer  # noqa: E402

TIMEOUT, RANKS = 60.0, 3
UNEVEN = np.minimum(np.random.default_rng(1).geometric(0.4, DATA.graph.num_nodes) - 1, 2)
"""Three parts, each about half as large as the one before it."""
NEARLY_ALL = np.zeros(DATA.graph.num_nodes, int)
NEARLY_ALL[DATA.train_idx[:2]] = 1, 2
"""Parts of which two have one train vertex each."""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer_of(comm, seen=(), parts=UNEVEN, sampler=None, model=None, part=None, **settings):
    config = TrainConfig(**{"epochs": 2, "batch_size": 32, "learning_rate": 0.02, "bulk_size": 2, **settings})
    part = part_dataset(DATA, parts, RANKS, comm.rank, hops=2) if part is None else part
    model = model or ModelConfig(hidden=16, dropout=0.2)
    return Trainer(on_ranks(comm), sampler or sp.GraphSAGE([5, 3]), model, config, list(seen), part=part)


def outcome(result):
    return [dataclasses.astuple(record) for record in result.history], result.val, result.test, result.sampled


@pytest.mark.parametrize("parts", [UNEVEN, NEARLY_ALL], ids=["uneven", "nearly all in one"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 3]), sp.LADIES([64, 64])], ids=repr)
def test_each_seed_weighs_as_much_as_any_other(sampler, parts):
    """The gradient is that of the mean loss over the seeds of all ranks; a rank may have none in a step."""
    model = ModelConfig(hidden=16, dropout=0.0)

    def body(comm):
        seen = Seen()
        trainer = trainer_of(comm, [seen], parts, sampler, model, epochs=1)
        batches = list(trainer.loader)
        trainer.loader.set_epoch(0)
        trainer.fit()
        alone, own = copy.deepcopy(trainer.model), trainer.pipeline.setup
        alone.load_state_dict(seen.weights)
        loss = torch.zeros(())
        if len(batches[0].seeds):
            logits = alone(*own.blocks.inputs(batches[0], alone))
            y = torch.from_numpy(own.dataset.y[batches[0].seeds])
            loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
            loss.backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in alone.parameters()]
        original = np.concatenate([ids_of(comm, parts)[batch.seeds] for batch in batches])
        trainer.close()
        return seen, [len(batch.seeds) for batch in batches], original, gradients, loss.item()

    ranks = run_threads(RANKS, body, TIMEOUT)
    sizes = [sizes for _, sizes, *_ in ranks]
    assert len({len(of_rank) for of_rank in sizes}) == 1
    assert max(map(max, sizes)) <= 32
    np.testing.assert_array_equal(np.sort(np.concatenate([ids for _, _, ids, *_ in ranks])), DATA.train_idx)
    first = sum(of_rank[0] for of_rank in sizes)
    assert ranks[0][0].losses[0] == pytest.approx(sum(loss for *_, loss in ranks) / first, rel=1e-5)
    expected = [
        sum(of_parameter) / first for of_parameter in zip(*(gradients for *_, gradients, _ in ranks), strict=True)
    ]
    for seen, *_ in ranks:
        assert seen.losses == ranks[0][0].losses
        for mine, theirs in zip(seen.gradient, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def ids_of(comm, parts):
    return part_dataset(DATA, parts, RANKS, comm.rank, hops=2).original_ids


@pytest.mark.parametrize("pipeline", ["sync", "overlap"])
def test_only_gradients_travel_in_an_epoch(pipeline):
    class Marks(Seen):
        def on_start(self, trainer):
            super().on_start(trainer)
            self.begin = copy.deepcopy(trainer.comm.traffic.phases)

        def on_step(self, trainer, loss):
            super().on_step(trainer, loss)
            self.end = copy.deepcopy(trainer.comm.traffic.phases)

    def body(comm, make):
        trainer = make(Recorder(comm), [marks := Marks()], epochs=1, pipeline=pipeline)
        trainer.fit()
        before, after = marks.begin, marks.end
        return {phase for phase, counts in after.items() if phase not in before or counts != before[phase]} - {"status"}

    assert run_threads(RANKS, lambda comm: body(comm, trainer_of), TIMEOUT) == [{"gradients"}] * RANKS
    on_one_graph = run_threads(RANKS, lambda comm: body(comm, on_whole), TIMEOUT)
    assert all({"features", "rows", "gradients"} <= phases for phases in on_one_graph)


def test_degrees_are_those_of_the_whole_graph():
    """The outermost vertices of a part have no rows in it; the symmetric normalisation needs their degrees."""
    part = part_dataset(DATA, UNEVEN, RANKS, 0, hops=2)
    whole = BlockMaker(DATA.graph, sp.GraphSAGE([5, 3]))
    batch = sp.bulk_sample(part.dataset.graph, part.dataset.train_idx, sp.GraphSAGE([5, 3]), batch_size=32)[0]
    layer = batch.layers[0]
    expected = np.diff(DATA.graph.indptr)[part.original_ids[layer.src_nodes]]
    assert whole.of_part(part.original_ids)(layer).degrees.tolist() == expected.tolist()
    assert BlockMaker(part.dataset.graph, sp.GraphSAGE([5, 3]))(layer).degrees.tolist() != expected.tolist()


@pytest.mark.parametrize("cached", [{}, {"cache_budget": "2KiB", "cache_score": "out-degree"}], ids=["plain", "cached"])
def test_a_run_goes_on_bit_for_bit_and_on_the_same_parts_only(cached):
    def whole(comm):
        seen = Seen(save_at="every step")
        return outcome(trainer_of(comm, [seen], batch_size=16, evaluation="both", **cached).fit()), seen

    def rest(comm, state, **changes):
        seen = Seen()
        trainer = trainer_of(comm, [seen], **{"batch_size": 16, "evaluation": "both", **cached, **changes})
        trainer.load_state_dict(copy.deepcopy(state))
        return outcome(trainer.fit()), seen.losses

    expected, seen = run_threads(RANKS, whole, TIMEOUT)[0]
    for step, state in enumerate(seen.states, 1):
        for result, losses in run_threads(RANKS, lambda comm, state=state: rest(comm, state), TIMEOUT):
            assert result == expected
            assert losses == seen.losses[step:]
    with pytest.raises(SpSampleError, match="parts_sha256"):
        run_threads(RANKS, lambda comm: rest(comm, seen.states[1], parts=(UNEVEN + 1) % RANKS), TIMEOUT)
    with pytest.raises(SpSampleError, match="the state of parts batches; expected the state of shuffled batches"):
        run_threads(
            RANKS,
            lambda comm: on_whole(comm, evaluation="both").load_state_dict(copy.deepcopy(seen.states[1])),
            TIMEOUT,
        )


def on_whole(comm, seen=(), **settings):
    config = TrainConfig(**{"epochs": 2, "batch_size": 16, "learning_rate": 0.02, "bulk_size": 2, **settings})
    return Trainer(on_ranks(comm), sp.GraphSAGE([5, 3]), ModelConfig(hidden=16, dropout=0.2), config, list(seen))


def cut(**changes):
    """Part 1 of a data set that differs."""
    return part_dataset(dataclasses.replace(DATA, **changes), UNEVEN, RANKS, 1, hops=2)


SOME = DATA.train_idx[UNEVEN[DATA.train_idx] == 1][:9]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"sampler": sp.GraphSAGE([3, 3, 3])}, "^sampler: got 3 layers .*; expected at most 2, the hops of part"),
        ({"pipeline": "cooperative"}, "^pipeline: got 'cooperative' with a part for each rank; expected 'sync'"),
        ({"batches": "local"}, "^batches: got 'local'"),
        ({"part": 3}, "^part: got 3"),
        ({"part": part_dataset(sp.load_dataset("planted:60"), np.arange(60) % 3, 3, 1, hops=2)}, "with 60 vertices"),
        ({"part": cut(train_idx=np.setdiff1d(DATA.train_idx, SOME))}, "train vertices, not those 240"),
        ({"part": cut(train_idx=DATA.test_idx, test_idx=DATA.train_idx)}, "other train vertices"),
        ({"part": cut(y=DATA.y[::-1])}, "other labels"),
        ({"part": cut(x=DATA.x + 1)}, "part 1 with other features"),
        ({"part": cut(x=None)}, "no features"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_on_all_ranks(changes, match):
    """It is wrong on rank 1 alone."""

    def body(comm):
        mine = changes if comm.rank == 1 or "part" not in changes else {}
        with pytest.raises(InputError, match=match):
            trainer_of(comm, **mine)
        return True

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda ids: ids[:-5], r"^original_ids: got \d+ ids"),
        (lambda ids: ids.astype(float) + 0.5, "^original_ids"),
    ],
)
def test_ids_of_a_part_that_cannot_be(change, match):
    def body(comm):
        part = part_dataset(DATA, UNEVEN, RANKS, comm.rank, hops=2)
        bad = part._replace(original_ids=change(part.original_ids))
        with pytest.raises(SpSampleError, match=match):
            trainer_of(comm, part=bad if comm.rank == 1 else part)
        return True

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS


def test_a_part_that_two_ranks_have_is_refused():
    """Though there are as many train vertices as in the data set."""
    parts = np.arange(DATA.graph.num_nodes) % 2
    parts[DATA.train_idx] = np.arange(len(DATA.train_idx)) % 2

    def body(comm):
        twice = part_dataset(DATA, parts, 2, 0, hops=2)
        with pytest.raises(InputError, match="not those 240"):
            trainer_of(comm, part=twice)
        return True

    assert run_threads(2, body, TIMEOUT) == [True] * 2


def test_a_cache_that_one_rank_cannot_have_is_refused_on_all():
    """The budget has room for the map of a small part, not for that of a large one."""

    def body(comm):
        size = len(part_dataset(DATA, UNEVEN, RANKS, comm.rank, hops=2).original_ids)
        sizes = comm.all_gather(np.array([size]))[:, 0]
        budget = int(sizes.max() // 4 + 16)
        with pytest.raises(InputError, match=r"^budget: got .*\(on rank \d\)"):
            trainer_of(comm, cache_budget=budget)
        return sizes.max() > sizes.min()

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS


def test_a_rank_without_a_part_is_refused():
    def body(comm):
        with pytest.raises(SpSampleError, match="part"):
            on_whole(comm) if comm.rank == 0 else trainer_of(comm)
        return True

    assert run_threads(RANKS, body, TIMEOUT) == [True] * RANKS


def test_stores_are_parts(tmp_path):
    """Training on what is written is training on what is cut out in memory."""
    write_part_stores(DATA, UNEVEN, RANKS, tmp_path / "parts", hops=2)

    def body(comm, part):
        return outcome(trainer_of(comm, part=part(comm.rank), epochs=1).fit())

    stored = run_threads(
        RANKS, lambda comm: body(comm, lambda rank: read_part(tmp_path / "parts", rank, RANKS)), TIMEOUT
    )
    assert stored == run_threads(RANKS, lambda comm: body(comm, lambda rank: None), TIMEOUT)
