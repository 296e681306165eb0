"""Training on ranks that sample and ranks that train: the losses of ranks that do both, whoever trains what."""

import copy
import dataclasses
import re
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from training_cases import DATA, Seen  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.comm import run_threads  # noqa: E402
from spsample.common.units import format_bytes  # noqa: E402
from spsample.distributed import PartitionedGraph, ProcessGrid  # noqa: E402
from spsample.errors import InputError, SpSampleError  # noqa: E402
from spsample.features import CachedFeatures, PartitionedFeatures  # noqa: E402
from spsample.features import keeper as budgets  # noqa: E402
from spsample.pipelines import factored  # noqa: E402
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer  # noqa: E402

TIMEOUT = 40.0
ROW = 4 * DATA.x.shape[1]
MULTI = dataclasses.replace(
    DATA, y=np.stack([DATA.y % 2, DATA.y // 2, DATA.y == 1], axis=1).astype(np.int64), metric="f1_micro"
)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer_of(comm, seen=(), data=DATA, sampler=None, model=None, **settings):
    data = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
    given = {"epochs": 2, "batch_size": 16, "learning_rate": 0.02, "bulk_size": 3, "pipeline": "factored", **settings}
    model = model or ModelConfig(hidden=16, dropout=0.3)
    return Trainer(data, sampler or sp.GraphSAGE([5, 3]), model, TrainConfig(**given), list(seen))


def trained(comm, state=None, seen=None, **settings):
    """Losses of the steps, metrics, how many batches this rank trained, and what there is to say."""
    seen = Seen() if seen is None else seen
    trainer = trainer_of(comm, [seen], **settings)
    if state is not None:
        trainer.load_state_dict(copy.deepcopy(state))
    result = trainer.fit()
    scores = [dataclasses.astuple(record) for record in result.history], result.val, result.test, result.sampled
    batches = getattr(trainer.loader, "trained", 0)
    trainer.close()
    return seen.losses, scores, batches, result.notes


def in_step(ranks, **settings):
    """Losses and metrics of ranks with a batch each."""
    return run_threads(ranks, lambda comm: trained(comm, pipeline="sync", **settings), TIMEOUT)[0][:2]


def assert_same(expected, runs, num_batches):
    for losses, scores, *_ in runs:
        assert losses == expected[0]
        assert scores == expected[1]
    assert sum(batches for *_, batches, _ in runs) == num_batches


SETTINGS = {
    "dropout": {},
    "decay and clipping": {"weight_decay": 0.01, "clip_norm": 0.05, "optimizer": "adamw"},
    "several labels": {"data": MULTI},
    "layer-wise": {"sampler": sp.LADIES([48, 48]), "evaluation": "both"},
    "attention, and momentum": {
        "model": ModelConfig("gat", hidden=8, heads=2, dropout=0.5),
        "optimizer": "sgd",
        "schedule": "cosine",
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_losses_and_metrics_are_those_of_ranks_with_a_batch_each(name):
    """One to three trainers, with and without switching."""
    settings = SETTINGS[name]
    expected = in_step(4, **settings)
    for ranks, samplers, switches in ((2, 1, True), (4, 1, True), (4, 2, False), (4, 3, True), (3, 2, False)):
        more = {"sampler_ranks": samplers, "step_batches": 4, "switches": switches}
        runs = run_threads(ranks, lambda comm, more=more: trained(comm, **more, **settings), TIMEOUT)
        assert_same(expected, runs, 30)
        if not switches:
            assert [run[2] for run in runs][ranks - samplers :] == [0] * samplers


@pytest.mark.parametrize("batches", [1, 2, 3, 7])
def test_steps_of_other_numbers_of_batches(batches):
    """15 batches: as many ranks in step, or one process where a step is one batch."""
    same = {"model": ModelConfig(hidden=16, dropout=0.3 if batches > 1 else 0.0)}  # alone, numbers are the run's
    expected = in_step(batches, **same)
    for ranks, samplers in ((2, 1), (4, 1), (3, 2)):
        more = {"sampler_ranks": samplers, "step_batches": batches, **same}
        runs = run_threads(ranks, lambda comm, more=more: trained(comm, **more), TIMEOUT)
        assert_same(expected, runs, 30)


def test_a_step_has_a_batch_of_each_rank_unless_that_is_said():
    runs = run_threads(3, lambda comm: trained(comm, sampler_ranks=1), TIMEOUT)
    assert_same(in_step(3), runs, 30)


def test_a_measured_trial_changes_no_loss():
    expected = in_step(3)
    runs = run_threads(3, trained, TIMEOUT)
    assert_same(expected, runs, 30)
    assert len({tuple(notes) for *_, notes in runs}) == 1
    (reason,) = runs[0][3]
    assert re.match(r"[12] of 3 ranks samples?: a minibatch takes .* ms to sample and .* ms to train, 3 / \(", reason)


def test_a_run_goes_on_from_every_step_bit_for_bit():
    """On other numbers of ranks and of samplers, with the same batches of a step."""
    settings = {"step_batches": 4, "sampler_ranks": 1}
    seen = Seen(save_at="every step")

    def whole(comm):
        return trained(comm, seen=seen if comm.rank == 0 else None, **settings)

    expected = run_threads(3, whole, TIMEOUT)[0][:2]
    assert len(seen.states) == len(seen.losses) == 8
    for step, state in enumerate(seen.states, 1):
        ranks, samplers = [(3, 1), (2, 1), (4, 2), (4, 3)][step % 4]
        more = {**settings, "sampler_ranks": samplers}
        for losses, scores, *_ in run_threads(ranks, lambda comm, s=state, m=more: trained(comm, s, **m), TIMEOUT):
            assert losses == expected[0][step:]
            assert scores == expected[1]


@pytest.mark.parametrize(
    ("switches", "left"), [(True, 40 * ROW), (True, 0), (True, 1), (True, -999), (False, 40 * ROW)]
)
def test_a_rank_that_samples_has_a_smaller_cache(switches, left):
    """What the graph leaves of the budget; none where that is no row, or it never trains. No loss changes."""
    budget = DATA.graph.nbytes + left

    def rows_within(room):
        return CachedFeatures(sp.FeatureStore(DATA.x), room, DATA.graph.in_degrees()).cached_rows

    settings = {"cache_budget": budget, "switches": switches}

    def body(comm):
        trainer = trainer_of(comm, sampler_ranks=None, **settings)
        result = trainer.fit()
        kept, samples = (
            getattr(trainer.loader.features, "cached_rows", 0),
            trainer.loader.roles.samples(comm.rank),
        )
        trainer.close()
        return samples, kept, result.notes, [record.loss for record in result.history]

    runs = run_threads(3, body, TIMEOUT)
    smaller = rows_within(left) if left >= 40 * ROW else 0
    assert smaller < rows_within(budget)
    for samples, kept, notes, _ in runs:
        assert kept == (rows_within(budget) if not samples else smaller if switches else 0)
        has = f"{format_bytes(left)} for its cache" if smaller else "no cache"
        said = f"a rank that samples has {has}: the graph takes {format_bytes(DATA.graph.nbytes)} of"
        assert any(note.startswith(said) for note in notes) == switches
    assert any(samples for samples, *_ in runs)
    plain = run_threads(3, lambda comm: trained(comm, sampler_ranks=1), TIMEOUT)[0]
    assert [one[1] for one in plain[1][0]] == runs[0][3]


def test_ranks_with_an_automatic_budget_share_the_memory_of_their_host(monkeypatch):
    """Those that sample leave room for their queue."""
    there, wide = 512 << 10, dataclasses.replace(DATA, x=np.tile(DATA.x, (1, 64)))
    monkeypatch.setattr(budgets, "available_memory", lambda: there)
    monkeypatch.setattr(budgets, "needed_by_loader", lambda work, buffers: 0)
    queue = 32 << 10

    def body(comm):
        trainer = trainer_of(comm, data=wide, sampler_ranks=1, cache_budget="auto", queue_memory=queue)
        kept = trainer.loader.features.nbytes
        notes = trainer.notes
        trainer.close()
        return kept, notes

    runs = run_threads(3, body, TIMEOUT)
    nbytes = [kept for kept, _ in runs]
    assert nbytes[0] == nbytes[1] > nbytes[2] >= nbytes[0] - queue - 64 * ROW
    assert there // 2 < sum(nbytes) <= there
    assert any("the queue takes 32" in note for note in runs[0][1])


def test_an_automatic_budget_of_less_than_a_row_is_none(monkeypatch):
    monkeypatch.setattr(budgets, "available_memory", lambda: 60)
    monkeypatch.setattr(budgets, "needed_by_loader", lambda work, buffers: 0)

    def body(comm):
        trainer = trainer_of(comm, sampler_ranks=1, cache_budget="auto")
        kept = getattr(trainer.loader.features, "cached_rows", 0)
        trainer.close()
        return kept

    assert run_threads(3, body, TIMEOUT) == [0, 0, 0]


def test_a_trial_batch_that_one_rank_cannot_read_is_the_same_error_on_all():
    def body(comm):
        class Torn(sp.FeatureStore):
            def _read(self, *arguments):
                if comm.rank == 1:
                    raise OSError("disk gone")
                super()._read(*arguments)

        with pytest.raises(Exception, match="disk gone") as caught:
            trainer_of(comm, data=dataclasses.replace(DATA, x=Torn(DATA.x)), cache_budget="auto")
        return str(caught.value)

    assert len(set(run_threads(3, body, TIMEOUT))) == 1


def test_ranks_share_the_work_of_scores(monkeypatch):
    """Epochs are sampled once in all, not once on each rank."""
    graphs = []
    found = factored.score

    def noted(name, graph, **workload):
        graphs.append(graph.comm.size)
        return found(name, graph=graph, **workload)

    monkeypatch.setattr(factored, "score", noted)

    def body(comm):
        trainer = trainer_of(comm, sampler_ranks=1, cache_budget=DATA.graph.nbytes + 40 * ROW)
        trainer.loader.set_sampler_ranks(2)
        trainer.close()

    run_threads(3, body, TIMEOUT)
    assert graphs == [3] * 3


def test_a_trial_is_not_counted_by_a_cache():
    def body(comm):
        trainer = trainer_of(comm, cache_budget=DATA.graph.nbytes + 4096)
        trainer.pipeline.begin()
        counts = trainer.loader.cache_counts
        trainer.close()
        return counts.hits + counts.misses

    assert run_threads(2, body, TIMEOUT) == [0, 0]


def test_a_run_of_another_number_of_batches_in_a_step_is_refused():
    seen = Seen(save_at=1)
    run_threads(2, lambda comm: trained(comm, seen=seen if comm.rank == 0 else None, sampler_ranks=1), TIMEOUT)
    for changed, said in (
        ({"step_batches": 3}, r"step_batches 2 \(here 3\)"),
        ({"staleness": 1, "step_batches": 2}, r"staleness None \(here 1\)"),
        ({"pipeline": "sync", "sampler_ranks": None}, "step_batches 2"),
    ):
        more = {"sampler_ranks": 1, **changed}
        with pytest.raises(InputError, match=said):
            run_threads(2, lambda comm, m=more: trained(comm, seen.state, **m), TIMEOUT)


# --------------------------------------------------------------------------------------------------- asynchronously


def late(notes, bound):
    (said,) = (note for note in notes if "stale" in note)
    found = re.fullmatch(rf"the most stale gradient was (\d+) updates late, of at most {bound}", said)
    return int(found[1])


@pytest.mark.parametrize(("ranks", "samplers"), [(3, 1), (4, 1), (3, 2)])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_asynchronous_updates_within_a_bound(bound, ranks, samplers):
    def body(comm):
        return trained(comm, sampler_ranks=samplers, staleness=bound, step_batches=6)

    runs = run_threads(ranks, body, TIMEOUT)
    for losses, scores, _, notes in runs:
        assert (losses, scores) == runs[0][:2]
        assert late(notes, bound) <= bound
    assert sum(run[2] for run in runs) == 30
    assert len(runs[0][0]) == 2 * 3
    assert np.isfinite(runs[0][0]).all()


def test_one_trainer_whose_weights_are_new_takes_steps_of_one_batch():
    """The order of the updates is that of the batches then."""
    more = {"sampler_ranks": 1, "switches": False}
    expected = run_threads(2, lambda comm: trained(comm, step_batches=1, **more), TIMEOUT)[0]
    losses, scores, *_ = run_threads(2, lambda comm: trained(comm, step_batches=5, staleness=0, **more), TIMEOUT)[0]
    means = [np.mean(expected[0][first : first + 5]) for first in range(0, 30, 5)]
    np.testing.assert_allclose(losses, means, rtol=1e-4)
    np.testing.assert_allclose(scores[1:3], expected[1][1:3], atol=0.03)


def test_asynchronous_training_learns():
    """The mean of ten steps: that of one batch varies from seed to seed, and from schedule to schedule, by a tenth."""

    def body(comm):
        return trained(comm, sampler_ranks=1, staleness=4, epochs=40, batch_size=32)

    losses = run_threads(3, body, TIMEOUT)[0][0]
    assert np.mean(losses[-10:]) < 0.8 * losses[0]


# ---------------------------------------------------------------------------------------------------------- faults


class FailingModel(Callback):
    """From the start on, one rank's backward pass fails after a number of batches."""

    def __init__(self, after):
        self._left = after
        self.is_over = False

    def on_start(self, trainer):
        next(iter(trainer.pipeline.gradients.model.parameters())).register_hook(self._count)

    def _count(self, gradient):
        self._left -= 1
        if self._left < 0 and not self.is_over:
            raise ArithmeticError("no gradient")


def no_threads_are_left():
    until = time.monotonic() + 10
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("spsample")]:
        assert time.monotonic() < until, left
        time.sleep(0.01)


@pytest.mark.parametrize("settings", [{}, {"staleness": 2}], ids=["in step", "asynchronous"])
@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_batch_that_fails_ends_training_on_all(settings, after):
    """All say which rank failed, with what, and who does what; and they can communicate afterwards."""

    def body(comm):
        callbacks = [FailingModel(after)] if comm.rank == 1 else []
        trainer = trainer_of(comm, callbacks, sampler_ranks=1, epochs=6, **settings)
        with pytest.raises(SpSampleError) as raised:
            trainer.fit()
        told = str(raised.value)
        del raised
        trainer.close()
        comm.barrier()
        return told

    for told in run_threads(4, body, TIMEOUT):
        assert "rank 1 failed: ArithmeticError: no gradient" in told
        assert "(rank 3 samples, ranks 0 to 2 train)" in told
    no_threads_are_left()


@pytest.mark.parametrize("after", [0, 3])
def test_asynchronous_training_goes_on_after_a_batch_that_failed(after):
    """The gradients that never came are waited for no more."""

    def body(comm):
        failing = FailingModel(after)
        trainer = trainer_of(comm, [failing] if comm.rank == 1 else [], sampler_ranks=1, epochs=2, staleness=1)
        with pytest.raises(SpSampleError, match="no gradient"):
            trainer.fit()
        failing.is_over = True
        history = trainer.fit().history
        trainer.close()
        return len(history)

    assert run_threads(3, body, TIMEOUT) == [2] * 3
    no_threads_are_left()


@pytest.mark.parametrize("faulty", [0, 2])
def test_a_callback_that_fails_ends_training_on_all_and_it_goes_on(faulty):
    """With the next step, as after Ctrl-C, while the error is still being handled."""
    expected = in_step(3)

    def body(comm):
        told, seen = [], Seen(fail_at=3 if comm.rank == faulty else None)
        trainer = trainer_of(comm, [seen], sampler_ranks=1)
        try:
            trainer.fit()
        except SpSampleError as error:
            told.append(str(error))
            result = trainer.fit()
        trainer.close()
        return told, seen.losses, [dataclasses.astuple(record) for record in result.history]

    for told, losses, history in run_threads(3, body, TIMEOUT):
        assert told[0].startswith(f"rank {faulty} failed: ZeroDivisionError: no more")
        assert losses == expected[0]
        assert history == expected[1][0]
    no_threads_are_left()


class BrokenFeatures(sp.features.FeatureSource):
    """Features that one rank cannot read any more."""

    num_rows, dim = DATA.x.shape

    def __init__(self, good):
        self._left = good

    def _read(self, ids, out, at=None):
        self._left -= 1
        if self._left < 0:
            raise OSError("the disk is gone")
        out[slice(None) if at is None else at] = DATA.x[ids]


@pytest.mark.parametrize("settings", [{}, {"staleness": 2}], ids=["in step", "asynchronous"])
def test_features_that_fail_on_one_rank(settings):
    def body(comm):
        data = dataclasses.replace(DATA, x=sp.FeatureStore(DATA.x))
        trainer = trainer_of(comm, data=data, sampler_ranks=1, epochs=6, **settings)
        if comm.rank == 1:
            trainer.loader.collate.features = BrokenFeatures(4)
        with pytest.raises(SpSampleError) as raised:
            trainer.fit()
        told = str(raised.value)
        del raised
        trainer.close()
        comm.barrier()
        return told

    for told in run_threads(3, body, TIMEOUT):
        assert "rank 1 failed: OSError: the disk is gone" in told
        assert "(rank 2 samples, ranks 0 to 1 train)" in told
    no_threads_are_left()


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"staleness": -1}, "staleness: got -1"),
        ({"staleness": 1, "pipeline": "sync"}, "staleness: got 1 with pipeline='sync'"),
        ({"sampler_ranks": 1, "pipeline": "overlap"}, "sampler_ranks: got 1 with pipeline='overlap'"),
        ({"step_batches": 2, "pipeline": "cooperative"}, "step_batches: got 2 with pipeline='cooperative'"),
        ({"queue_memory": "1GiB", "pipeline": "sync"}, "queue_memory: got '1GiB' with pipeline='sync'"),
        ({"switches": False, "pipeline": "sync"}, "switches: got False with pipeline='sync'"),
        ({"sampler_ranks": 0}, "sampler_ranks: got 0"),
        ({"step_batches": 0}, "step_batches: got 0"),
        ({"queue_memory": "plenty"}, "queue_memory: got 'plenty'"),
        ({"switches": 3}, "switches: got 3"),
        ({"fetch": "bulk"}, "fetch: got 'bulk' with pipeline='factored'"),
        ({"cache_replacement": "lookahead", "cache_budget": "1KiB"}, "cache_replacement: got 'lookahead' with"),
        ({"batches": "local"}, "batches: got 'local' with pipeline='factored'"),
    ],
)
def test_settings_that_do_not_go_together(settings, said):
    with pytest.raises(InputError, match=re.escape(said)):
        TrainConfig(**{"pipeline": "factored", **settings})


def test_one_rank_and_ranks_that_cannot():
    with pytest.raises(InputError, match=r"pipeline: got 'factored' on 1 rank"):
        Trainer(DATA, sp.GraphSAGE([3]), ModelConfig(hidden=8), TrainConfig(pipeline="factored"))

    def body(comm, **settings):
        trainer_of(comm, **settings)

    with pytest.raises(InputError, match=r"sampler_ranks: got 2 of 2 ranks"):
        run_threads(2, lambda comm: body(comm, sampler_ranks=2), TIMEOUT)
    with pytest.raises(SpSampleError, match=r"queue_memory: got 100 B.*; expected room for one bulk: "):
        run_threads(2, lambda comm: body(comm, sampler_ranks=1, queue_memory=100), TIMEOUT)

    def partitioned(comm):
        grid = ProcessGrid(comm)
        data = dataclasses.replace(DATA, graph=PartitionedGraph.from_graph(DATA.graph, grid))
        config = TrainConfig(pipeline="factored")
        Trainer(data, sp.GraphSAGE([3]), ModelConfig(hidden=8), config)

    with pytest.raises(InputError, match=r"graph: got .*; expected a ReplicatedGraph: a sampler has all of it"):
        run_threads(2, partitioned, TIMEOUT)

    def features_on_ranks(comm):
        data = dataclasses.replace(DATA, x=PartitionedFeatures.of(DATA.x, ProcessGrid(comm)))
        trainer_of(comm, data=data)

    with pytest.raises(InputError, match="features: got PartitionedFeatures, which all ranks gather at once"):
        run_threads(2, features_on_ranks, TIMEOUT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pipeline", "factored"), "--pipeline: got 'factored' on 1 rank"),
        (("--staleness", "2"), "--staleness: got 2 with pipeline='overlap'"),
        (("--pipeline", "factored", "--staleness", "-1"), "--staleness: got -1"),
        (("--pipeline", "sync", "--sampler-ranks", "1"), "--sampler-ranks: got 1 with pipeline='sync'"),
        (("--pipeline", "overlap", "--step-batches", "3"), "--step-batches: got 3 with pipeline='overlap'"),
        (("--pipeline", "factored", "--queue-memory", "much"), "--queue-memory: got 'much'"),
        (("--pipeline", "factored", "--batches", "local"), "--batches: got"),
    ],
)
def test_what_the_command_refuses(words, said):
    from typer.testing import CliRunner

    from spsample.cli.main import app

    result = CliRunner().invoke(app, ["train", "planted:300", *words], env={"COLUMNS": "200"})
    assert result.exit_code != 0
    assert said in result.output
    assert "no effect" not in result.output


@pytest.mark.parametrize("settings", [{}, {"staleness": 1}])
def test_a_model_with_buffers_is_refused(settings):
    """They would depend on who has trained which batch."""

    def body(comm):
        trainer = trainer_of(comm, sampler_ranks=1, **settings)
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        with pytest.raises(InputError, match=r"model: got one with a buffer, '1.running_mean'"):
            trainer.pipeline.attach(model, trainer.optimizer)
        trainer.close()

    run_threads(2, body, TIMEOUT)


def test_batches_of_a_factored_run_are_copied_to_their_device(monkeypatch):
    """Where ranks sample on a device, too: batches come to the host, to travel."""
    monkeypatch.setattr("spsample.pipelines.pipeline.samples_on_device", lambda *_: True)

    def body(comm):
        trainers = {
            name: trainer_of(comm, pipeline=name, device="cpu", sampler_ranks=1 if name == "factored" else None)
            for name in ("factored", "overlap")
        }
        devices = {name: trainer.pipeline.devices.batches for name, trainer in trainers.items()}
        for trainer in trainers.values():
            trainer.close()
        return devices

    assert run_threads(2, body, TIMEOUT)[0] == {"factored": torch.device("cpu"), "overlap": None}
