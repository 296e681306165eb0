"""Training on several ranks is training on one, with larger steps."""

import copy
import dataclasses
from itertools import chain, product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training_cases import DATA, MODELS, SAMPLERS, Seen, on_ranks, one_epoch  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.comm import Recorder, run_threads  # noqa: E402
from spsample.distributed import PartitionedGraph, ProcessGrid  # noqa: E402
from spsample.errors import InputError, SpSampleError  # noqa: E402
from spsample.features import score  # noqa: E402
from spsample.pipelines import StepLoss  # noqa: E402
from spsample.pipelines.gradients import CommunicatorGradients  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer  # noqa: E402

TIMEOUT = 60.0
SAMPLER = sp.GraphSAGE([5, 3])
SHAPES = [(p, c) for p in (1, 2, 3, 4) for c in range(1, p + 1) if p % c == 0]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer_of(data, seen=(), sampler=None, model=None, parts=None, **settings):
    config = TrainConfig(**{"epochs": 2, "batch_size": 32, "learning_rate": 0.02, "bulk_size": 8, **settings})
    model = model or ModelConfig(hidden=16, dropout=0.0)
    return Trainer(data, sampler or sp.GraphSAGE([5, 3]), model, config, list(seen), parts=parts)


def gradient_of(weights, batches, model=None, sampler=None):
    """Of the mean loss over the seeds of these batches, on one rank."""
    alone = trainer_of(DATA, model=model, sampler=sampler)
    alone.model.load_state_dict(weights)
    loader = alone.loader
    total, seeds = 0.0, 0
    for batch in list(loader)[:batches]:
        logits = alone.model(torch.from_numpy(batch.x), [alone.pipeline.setup.blocks(layer) for layer in batch.layers])
        total = total + torch.nn.functional.cross_entropy(
            logits, torch.from_numpy(DATA.y[batch.seeds]), reduction="sum"
        )
        seeds += len(batch.seeds)
    (total / seeds).backward()
    return [parameter.grad for parameter in alone.model.parameters()]


def test_no_batch_of_any_epoch_has_the_numbers_of_another():
    def body(comm):
        trainer, drawn = trainer_of(on_ranks(comm), model=ModelConfig(hidden=16, dropout=0.5)), []
        trainer.model.register_forward_pre_hook(lambda *_: drawn.append(torch.initial_seed()))
        trainer.fit()
        return drawn

    drawn = list(chain.from_iterable(run_threads(2, body, TIMEOUT)))
    assert len(drawn) == 2 * 8  # 240 seeds in batches of 32, twice
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(("p", "c"), SHAPES)
@pytest.mark.parametrize("architecture", ["sage", "gcn", "residual"])
def test_the_gradient_of_a_step_is_that_of_its_batches_on_one_rank(p, c, architecture):
    model = ModelConfig(architecture, hidden=16, dropout=0.0)

    def body(comm):
        seen = Seen()
        trainer_of(on_ranks(comm, c), [seen], model=model, epochs=1).fit()
        return seen

    runs = run_threads(p, body, TIMEOUT)
    for run in runs:
        for mine, first in zip(run.gradient, runs[0].gradient, strict=True):
            assert torch.equal(mine, first)
        assert run.losses == runs[0].losses
    for mine, expected in zip(runs[0].gradient, gradient_of(runs[0].weights, p, model), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)


REPLICATED = [(p, c) for p in range(2, 9) for c in range(2, p + 1) if p % c == 0]  # as many as models and samplers


@pytest.mark.parametrize(("at", "model", "sampler"), [(i, m, s) for i, (m, s) in enumerate(product(MODELS, SAMPLERS))])
def test_an_algorithm_changes_no_loss(at, model, sampler):
    p, c = REPLICATED[at]

    def body(comm):
        return [one_epoch(comm, c, algorithm, model, sampler) for algorithm in ("column", "stages", "oblivious")]

    for column, *others in run_threads(p, body, TIMEOUT):
        assert others == [column, column]
        assert len(column[0]) == -(-154 // 16 // p)
        assert np.isfinite(column[0]).all()


@pytest.mark.parametrize("name", ["posterior", "replay"])
def test_a_cache_changes_no_loss(name):
    def body(comm, **settings):
        result = trainer_of(on_ranks(comm), batch_size=32, **settings).fit()
        return [record.loss for record in result.history], result.cache

    plain = run_threads(2, body, TIMEOUT)
    cached = run_threads(2, lambda comm: body(comm, cache_budget="6KiB", cache_score=name), TIMEOUT)
    auto = run_threads(2, lambda comm: body(comm, cache_budget="auto", cache_score=name), TIMEOUT)
    for one, mine, all_rows in zip(plain, cached, auto, strict=True):
        assert one[0] == mine[0] == all_rows[0]
        assert one[1] is None
        assert mine[1]["hits"] > 0 < mine[1]["misses"]
        assert all_rows[1]["hits"] == mine[1]["hits"] + mine[1]["misses"]


@pytest.mark.parametrize("name", ["posterior", "replay", "out-degree"])
@pytest.mark.parametrize("kind", ["replicated", "partitioned"])
def test_the_cache_of_a_rank_has_what_its_own_seeds_need(kind, name):
    """The rows of the largest scores for the seeds of its part, of those it has not; losses do not change."""
    settings = {"epochs": 1, "batches": "local"}
    options = {"epochs": range(1), "random_seed": 0} if name == "replay" else {}
    scores = [
        score(name, DATA.graph, DATA.train_idx[UNEVEN[DATA.train_idx] == part], SAMPLER, 32, **options)
        for part in range(3)
    ]

    def body(comm, **cache):
        data, parts = local_data(comm, kind)
        trainer = trainer_of(data, sampler=SAMPLER, parts=parts, **settings, **cache)
        if not cache:
            return trainer.fit().history
        features = trainer.loader.features
        features.gather(np.arange(DATA.graph.num_nodes))
        hits, misses = features.counts[:2]
        assert 0 < hits < misses
        wanted = scores[comm.rank].copy()
        wanted[features.source.block_vertices()] = 0
        features.gather(np.argsort(-wanted, kind="stable")[:hits])
        assert features.counts[:2] == (2 * hits, misses)
        return trainer.fit().history

    cached = run_threads(3, lambda comm: body(comm, cache_budget="1KiB", cache_score=name), TIMEOUT)
    every = run_threads(3, lambda comm: body(comm), TIMEOUT)
    assert cached == every


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"cache_score": "best"}, "^score: got 'best'"),
        ({"cache_budget": 3}, "^budget: got 3 B"),
        ({"parts": np.zeros(7, int)}, "^parts: "),
    ],
)
def test_caches_for_local_seeds_that_cannot_be(settings, match):
    def body(comm):
        data, parts = local_data(comm, "replicated")
        with pytest.raises(InputError, match=match):
            trainer_of(data, **{"parts": parts, "batches": "local", "cache_budget": "4KiB", **settings})
        return True

    assert run_threads(3, body, TIMEOUT) == [True] * 3


def test_an_uneven_last_step_weighs_seeds():
    """240 train vertices in batches of 64: 64, 64, 64, 48 on 3 ranks: the second step has one batch of 48."""

    def body(comm):
        seen = Seen()
        result = trainer_of(on_ranks(comm), [seen], batch_size=64, epochs=1).fit()
        return seen.losses, result.history[0].loss

    losses, mean = run_threads(3, body, TIMEOUT)[0]
    assert len(losses) == 2
    assert mean == pytest.approx((192 * losses[0] + 48 * losses[1]) / 240, rel=1e-6)


UNEVEN = np.minimum(np.random.default_rng(1).geometric(0.4, DATA.graph.num_nodes) - 1, 2)
"""Three parts, each about half as large as the one before it."""


def local_data(comm, kind):
    """On ranks that hold a part each, or all of the graph; and the parts, where the graph does not know them."""
    if kind == "replicated":
        return on_ranks(comm, kind=kind), UNEVEN
    graph = PartitionedGraph.from_graph(DATA.graph, ProcessGrid(comm), partition=UNEVEN)
    return dataclasses.replace(on_ranks(comm), graph=graph), None


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 3]), sp.LADIES([64, 64])], ids=repr)
@pytest.mark.parametrize("kind", ["replicated", "partitioned"])
def test_local_batches_weigh_each_seed_as_much_as_any_other(sampler, kind):
    """A step's gradient is that of the mean loss over the seeds of all ranks, though their batches differ in size."""
    model = ModelConfig(hidden=16, dropout=0.0)

    def body(comm):
        data, parts = local_data(comm, kind)
        config = TrainConfig(epochs=1, batch_size=32, learning_rate=0.02, batches="local")
        trainer = Trainer(data, sampler, model, config, [seen := Seen()], parts=parts)
        first = next(iter(trainer.loader))
        trainer.loader.set_epoch(0)
        result = trainer.fit()
        return first, seen, result

    ranks = run_threads(3, body, TIMEOUT)
    batches = [first for first, _, _ in ranks]
    assert len({len(batch.seeds) for batch in batches}) == 3
    alone = trainer_of(DATA, model=model, sampler=sampler)
    alone.model.load_state_dict(ranks[0][1].weights)
    total = 0.0
    for batch in batches:
        logits = alone.model(torch.from_numpy(batch.x), [alone.pipeline.setup.blocks(layer) for layer in batch.layers])
        total = total + torch.nn.functional.cross_entropy(
            logits, torch.from_numpy(DATA.y[batch.seeds]), reduction="sum"
        )
    mean = total / sum(len(batch.seeds) for batch in batches)
    mean.backward()
    assert ranks[0][1].losses[0] == pytest.approx(mean.item(), rel=1e-5)
    for _, seen, result in ranks:
        assert outcome(result) == outcome(ranks[0][2])
        for mine, parameter in zip(seen.gradient, alone.model.parameters(), strict=True):
            torch.testing.assert_close(mine, parameter.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["replicated", "partitioned"])
def test_a_run_of_local_batches_goes_on_bit_for_bit_and_on_as_many_ranks_only(kind):
    """From every step, those in the middle of an epoch too."""
    settings = {"batch_size": 16, "batches": "local", "model": ModelConfig(hidden=16, dropout=0.2)}

    def whole(comm):
        data, parts = local_data(comm, kind)
        seen = Seen(save_at="every step")
        return outcome(trainer_of(data, [seen], parts=parts, **settings).fit()), seen

    def rest(comm, state):
        data, parts = local_data(comm, kind)
        trainer = trainer_of(data, [seen := Seen()], parts=parts, **settings)
        trainer.load_state_dict(copy.deepcopy(state))
        return outcome(trainer.fit()), seen.losses

    def on_others(comm, changes):
        data = on_ranks(comm) if comm.size > 1 else DATA
        trainer_of(data, **{**settings, **changes}).load_state_dict(copy.deepcopy(seen.states[2]))

    expected, seen = run_threads(3, whole, TIMEOUT)[0]
    for step, state in enumerate(seen.states, 1):
        for result, losses in run_threads(3, lambda comm, state=state: rest(comm, state), TIMEOUT):
            assert result == expected
            assert losses == seen.losses[step:]
    with pytest.raises(SpSampleError, match="'ranks': 3"):
        run_threads(2, lambda comm: on_others(comm, {}), TIMEOUT)
    with pytest.raises(SpSampleError, match=r"batches 'local' \(here 'shuffled'\)"):
        run_threads(3, lambda comm: on_others(comm, {"batches": "shuffled"}), TIMEOUT)


def test_a_state_of_a_release_without_local_batches():
    """Its settings do not say what the batches are: they were shuffled."""
    trainer = trainer_of(DATA)
    state = copy.deepcopy(trainer.state_dict())
    del state["settings"]["batches"], state["loader"]["batches"]
    trainer.load_state_dict(state)
    with pytest.raises(InputError, match="batches 'shuffled'"):
        trainer_of(DATA, batches="local").load_state_dict(state)


def outcome(result):
    return [dataclasses.astuple(record) for record in result.history], result.val, result.test, result.sampled


@pytest.mark.parametrize("p", [2, 4])
def test_every_grid_and_graph_trains_the_same_model(p):
    def body(comm, c, kind):
        return outcome(trainer_of(on_ranks(comm, c, kind), evaluation="both").fit())

    outcomes = []
    for kind in ("partitioned", "replicated"):
        for c in (c for c in (1, 2, 4) if p % c == 0):
            results = run_threads(p, lambda comm, c=c, kind=kind: body(comm, c, kind), TIMEOUT)
            assert all(result == results[0] for result in results)
            outcomes.append(results[0])
    assert all(one == outcomes[0] for one in outcomes)


@pytest.mark.parametrize("evaluation", ["full", "sampled"])
@pytest.mark.parametrize("memory", ["64MiB", "20kB"])
@pytest.mark.parametrize("architecture", ["sage", "gat"])
def test_evaluation_is_that_of_one_rank(evaluation, memory, architecture):
    model = ModelConfig(architecture, hidden=16, dropout=0.0)
    settings = {"evaluation": evaluation, "evaluation_memory": memory, "model": model}
    alone = trainer_of(DATA, **settings)
    weights = alone.model.state_dict()
    ids = np.concatenate([DATA.val_idx, DATA.test_idx])
    expected = alone.evaluator.logits(alone.model, alone.pipeline, evaluation, ids)

    def body(comm):
        trainer = trainer_of(on_ranks(comm), **settings)
        trainer.model.load_state_dict(weights)
        return trainer.evaluator.logits(trainer.model, trainer.pipeline, evaluation, ids), trainer.evaluate()

    for logits, scores in run_threads(3, body, TIMEOUT):
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
        assert scores == pytest.approx(alone.evaluate(), abs=0.02)


@pytest.mark.parametrize("sampler", [sp.LADIES([64, 64]), sp.FastGCN([64, 64])])
@pytest.mark.parametrize("kind", ["replicated", "partitioned"])
def test_layerwise_samplers(sampler, kind):
    def body(comm):
        seen = Seen()
        trainer_of(on_ranks(comm, kind=kind), [seen], sampler=sampler).fit()
        return seen

    runs = run_threads(3, body, TIMEOUT)
    for mine, expected in zip(runs[0].gradient, gradient_of(runs[0].weights, 3, sampler=sampler), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-6)


def test_a_run_goes_on_on_another_grid_bit_for_bit():
    def whole(comm):
        seen = Seen(save_at=3)
        return outcome(trainer_of(on_ranks(comm, 1), [seen]).fit()), seen

    def rest(comm):
        seen = Seen()
        trainer = trainer_of(on_ranks(comm, 2), [seen])
        trainer.load_state_dict(copy.deepcopy(state))  # torch's optimizers keep the tensors
        return outcome(trainer.fit()), seen.losses

    (expected, seen), *_ = run_threads(4, whole, TIMEOUT)
    state = seen.state
    assert state["progress"]["next_batch"] == state["loader"]["next_batch"]
    for result, losses in run_threads(4, rest, TIMEOUT):
        assert result == expected
        assert losses == seen.losses[3:]


@pytest.mark.parametrize("p", [2, 4])
def test_a_run_goes_on_from_every_step_bit_for_bit(p):
    """Of two epochs, with dropout, whose generator the threads share."""
    model = ModelConfig(hidden=16, dropout=0.2)

    def whole(comm):
        seen = Seen(save_at="every step")
        return outcome(trainer_of(on_ranks(comm), [seen], batch_size=16, model=model).fit()), seen

    def rest(comm, state):
        trainer = trainer_of(on_ranks(comm), [seen := Seen()], batch_size=16, model=model)
        trainer.load_state_dict(copy.deepcopy(state))
        return outcome(trainer.fit()), seen.losses

    expected, seen = run_threads(p, whole, TIMEOUT)[0]
    assert len(seen.states) == 2 * -(-15 // p)
    for step, state in enumerate(seen.states, 1):
        for result, losses in run_threads(p, lambda comm, state=state: rest(comm, state), TIMEOUT):
            assert result == expected
            assert losses == seen.losses[step:]


@pytest.mark.parametrize(("before", "after"), [(4, 1), (1, 3), (2, 4)])
def test_a_run_goes_on_on_another_number_of_ranks(before, after):
    """The next batches are the ones that are left."""

    def begun(comm):
        seen = Seen(save_at=1, fail_at=1)
        data = on_ranks(comm) if before > 1 else DATA
        with pytest.raises((SpSampleError, ZeroDivisionError)):
            trainer_of(data, [seen]).fit()
        return seen.state

    def rest(comm):
        trainer = trainer_of(on_ranks(comm) if after > 1 else DATA, [seen := Seen()])
        trainer.load_state_dict(copy.deepcopy(state))
        trainer.fit()
        return trainer.progress, len(seen.losses), trainer.loader.num_batches

    state = run_threads(before, begun, TIMEOUT)[0]
    assert state["progress"]["next_batch"] == before
    for progress, steps, batches in run_threads(after, rest, TIMEOUT):
        assert progress.epoch == 2
        assert steps == -(-(batches - before) // after) + -(-batches // after)


@pytest.mark.parametrize("fail_at", [1, 2])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_rank_that_fails_ends_training_on_all(fail_at, prefetch):
    def body(comm):
        seen = Seen(fail_at=fail_at if comm.rank == 1 else None)
        with pytest.raises(SpSampleError, match="rank 1 failed: ZeroDivisionError: no more"):
            trainer_of(on_ranks(comm), [seen], prefetch=prefetch).fit()
        return seen.losses

    losses = run_threads(3, body, TIMEOUT)
    assert len(losses[0]) == len(losses[1])


def test_gradients_are_one_sum_a_step():
    def body(comm):
        recorder = Recorder(comm)
        trainer = trainer_of(on_ranks(recorder), epochs=1, prefetch=0)
        trainer.fit()
        phase = recorder.traffic.phases["gradients"]
        numbers = sum(parameter.numel() for parameter in trainer.model.parameters())
        return phase.calls, trainer.progress.step, phase.bytes_sent, numbers

    for calls, steps, sent, numbers in run_threads(4, body, TIMEOUT):
        assert calls == steps
        assert sent == steps * (2 * 3 * 4 * (numbers + 2) // 4)


def test_it_learns():
    def body(comm):
        return trainer_of(on_ranks(comm, 2), epochs=8, learning_rate=0.02, batch_size=32).fit()

    result = run_threads(4, body, TIMEOUT)[0]
    alone = trainer_of(DATA, epochs=8, batch_size=128).fit()
    assert result.test == pytest.approx(alone.test, abs=0.1)
    assert result.history[-1].loss < 0.8 * result.history[0].loss


def test_a_mean_over_no_seeds_counts_for_nothing():
    def body(comm):
        gradients = CommunicatorGradients(torch.nn.Linear(1, 1), comm)
        return gradients.finish(torch.tensor(float("nan") if comm.rank else 2.0), 0 if comm.rank else 3)

    assert run_threads(2, body, TIMEOUT) == [StepLoss(2.0, 3)] * 2
