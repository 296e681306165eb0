"""The trainer: reproducibility, best weights, schedules, early stopping, multi-label, evaluation."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import InputError  # noqa: E402
from spsample.timeline import work_seconds  # noqa: E402
from spsample.training import (  # noqa: E402
    Callback,
    ModelConfig,
    TrainConfig,
    Trainer,
    TrainResult,
)
from spsample.training.optimisation import Schedule, make_optimizer  # noqa: E402


def train(sampler, data=None, model=None, callbacks=(), **settings):
    config = TrainConfig(**{"epochs": 3, "batch_size": 64, "learning_rate": 0.02, **settings})
    model = model or ModelConfig(hidden=16, dropout=0.2)
    return Trainer(data or planted(400, degree=5), sampler, model, config, callbacks)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 3]), sp.LADIES([64, 64]), sp.FastGCN([64, 64])])
def test_training_is_reproducible_for_any_bulk_size(sampler):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    first, second = (train(sampler, bulk_size=size).fit() for size in (1, 8))
    assert [record.loss for record in first.history] == [record.loss for record in second.history]
    assert first.history[-1].loss < first.history[0].loss
    assert (first.val, first.test) == (second.val, second.test)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("score", ["posterior", "replay", "out-degree"])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_cache_changes_nothing_but_counts(score, prefetch):
    """Losses are equal to the bit, and every row that the loader gathers is counted."""
    cached = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB", cache_score=score, prefetch=prefetch)
    plain, mine = train(sp.GraphSAGE([5, 3])).fit(), cached.fit()
    assert [record.loss for record in plain.history] == [record.loss for record in mine.history]
    assert (plain.val, plain.test, plain.cache) == (mine.val, mine.test, None)
    kept = cached.loader.features
    assert 0 < kept.cached_rows < 400
    assert kept.nbytes <= 4096
    rows = sum(len(batch.src_nodes) for epoch in range(3) for bulk in cached.loader.bulks(epoch) for batch in bulk)
    assert mine.cache["hits"] + mine.cache["misses"] == rows
    assert mine.cache["hits"] > rows * kept.cached_rows / 400
    assert mine.cache == cached.cache_counts.as_dict() == TrainResult.from_dict(mine.as_dict()).cache


def test_replayed_epochs_are_those_of_the_training():
    """No set of that size has more hits."""
    trainer = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB", cache_score="replay", random_seed=4)
    counts = np.zeros(400, int)
    for epoch in range(3):
        for bulk in trainer.loader.bulks(epoch):
            for batch in bulk:
                counts[batch.src_nodes] += 1
    best = np.sort(counts)[::-1][: trainer.loader.features.cached_rows].sum()
    assert trainer.fit().cache["hits"] == best


def test_counts_go_on_where_a_run_is_resumed():
    whole = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB", epochs=4).fit()
    first = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB", epochs=2)
    first.fit()
    state = first.state_dict()
    second = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB", epochs=4)
    second.load_state_dict(copy.deepcopy(state))
    assert second.fit().cache == whole.cache
    other = train(sp.GraphSAGE([5, 3]), epochs=4)  # a cache is no part of what decides the result
    other.load_state_dict(state)
    assert [record.loss for record in other.fit().history] == [record.loss for record in whole.history]


def test_what_was_trained_before_a_state_is_loaded_does_not_count():
    trainer = train(sp.GraphSAGE([5, 3]), cache_budget="4KiB")
    trainer.fit()
    state = copy.deepcopy(trainer.state_dict())
    trainer.load_state_dict(state)
    assert trainer.seconds == state["seconds"]
    assert list(trainer.cache_counts) == state["cache_counts"]


def test_a_state_holds_the_best_weights_themselves():
    trainer = train(sp.GraphSAGE([5, 3]))
    trainer.fit()
    progress = trainer.state_dict()["progress"]
    assert progress["best"]["weights"] is trainer.progress.best.weights
    assert progress.keys() == {field.name for field in dataclasses.fields(trainer.progress)}


@pytest.mark.parametrize("budget", ["auto", "1GiB"])
def test_a_budget_for_all_rows(budget):
    result = train(sp.LADIES([64, 64]), cache_budget=budget).fit()
    assert result.cache["misses"] == 0 < result.cache["hits"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cache_budget": "much"}, "cache_budget: got 'much'"),
        ({"cache_budget": 0}, "cache_budget: got 0"),
        ({"cache_budget": 3}, "budget: got 3 B; expected 0, or at least one row"),
        ({"cache_budget": "4KiB", "cache_score": "best"}, "score: got 'best'; expected one of 'posterior'"),
    ],
)
def test_caches_that_are_refused(settings, words):
    with pytest.raises(InputError) as caught:
        train(sp.GraphSAGE([5, 3]), **settings)
    assert words in str(caught.value)


def test_best_weights_are_restored():
    trainer = train(sp.GraphSAGE([5]), epochs=6, eval_every=2)
    result = trainer.fit()
    evaluated = [record for record in result.history if record.val is not None]
    assert [record.epoch for record in evaluated] == [1, 3, 5]
    assert result.val == max(record.val for record in evaluated)
    assert result.val == trainer.evaluate()["val"]
    assert result.best_epoch in (1, 3, 5)
    assert set(work_seconds(result.seconds)) == {"sampling", "features", "waiting", "training", "evaluation"}
    assert result.as_dict()["history"][0]["epoch"] == 0


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"epochs": 0}, "epochs"),
        ({"eval_every": 0}, "eval_every"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"momentum": 1.0}, "momentum"),
        ({"decay_factor": 1.5}, "decay_factor"),
        ({"decay_every": 0}, "decay_every"),
        ({"warmup_epochs": -1}, "warmup_epochs"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"patience": 0}, "patience"),
        ({"optimizer": "other"}, "optimizer"),
        ({"schedule": "other"}, "schedule"),
        ({"evaluation": "other"}, "evaluation"),
        ({"evaluation_memory": "much"}, "evaluation_memory"),
    ],
)
def test_bad_settings(settings, argument):
    with pytest.raises(InputError) as caught:
        TrainConfig(**settings)
    assert caught.value.argument == argument


def test_a_sampler_without_targets_is_refused():
    with pytest.raises(InputError, match="include_targets=True"):
        train(sp.GraphSAGE([3], include_targets=False))


def test_divergence_is_an_error():
    with pytest.raises(InputError, match="learning_rate"):
        train(sp.GraphSAGE([3, 3]), learning_rate=1e30, epochs=5).fit()


def test_divergence_in_the_last_step_is_an_error():
    with pytest.raises(InputError, match="logits that are not finite"):
        train(sp.GraphSAGE([3, 3]), learning_rate=1e30, epochs=1, batch_size=1000).fit()


@pytest.mark.parametrize("part", ["val_idx", "test_idx"])
def test_a_metric_that_the_labels_do_not_allow_is_refused_before_training(part):
    data = planted(400, degree=5)
    with pytest.raises(InputError, match=r"^metric: got 'roc_auc' for 4 classes"):
        train(sp.GraphSAGE([3]), dataclasses.replace(data, metric="roc_auc"))
    two = dataclasses.replace(data, y=data.y % 2, num_classes=2, metric="roc_auc")
    ids = getattr(two, part)
    with pytest.raises(InputError, match=r"0 of \d+ vertices in class 1"):
        train(sp.GraphSAGE([3]), dataclasses.replace(two, **{part: ids[two.y[ids] == 0]}))


# ---- models and samplers together


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 3]), sp.LADIES([128, 128]), sp.FastGCN([300, 300])])
def test_every_model_learns_with_every_sampler(name, sampler):
    model = ModelConfig(name, hidden=16, dropout=0.0, residual=True, layer_norm=True)
    result = train(sampler, planted(600, degree=8), model, epochs=15).fit()
    assert result.history[-1].loss < 0.95 * result.history[0].loss
    assert result.test > 0.35  # chance is 0.25


def multi_label(dtype):
    """Class 0 or 1, and in each pair of classes the first or the second: two answers per vertex."""
    data = planted(600, degree=8)
    y = np.stack([data.y == 0, data.y == 1, data.y >= 2], axis=1).astype(dtype)
    return dataclasses.replace(data, y=y, num_classes=3, metric="roc_auc")


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64])
def test_multi_label(dtype):
    trainer = train(sp.GraphSAGE([5, 3]), multi_label(dtype), epochs=10)
    result = trainer.fit()
    assert trainer.model.convs[-1].conv.root.out_features == 3
    assert result.history[-1].loss < result.history[0].loss
    assert result.test > 0.55


# ---- evaluation


def test_sampled_and_full_evaluation():
    data = planted(3000, degree=10)
    result = train(sp.GraphSAGE([8, 8]), data, epochs=5, batch_size=256, evaluation="both").fit()
    noise = np.sqrt(0.25 / len(data.test_idx))
    assert result.sampled.keys() == {"val", "test"}
    assert abs(result.sampled["test"] - result.test) < 4 * noise


def test_sizes_of_the_evaluation_may_differ():
    trainer = train(sp.GraphSAGE([2, 2]), evaluation="sampled", test_sizes=(-1, -1))
    trainer.fit()
    assert trainer.evaluator.sampler == sp.GraphSAGE([-1, -1])
    assert trainer.evaluate("sampled") == trainer.evaluate("full")
    other = train(sp.LADIES([64, 64], normalize_rows=True), evaluation="sampled", test_sizes=(400, 400))
    assert other.evaluator.sampler == sp.LADIES([400, 400], normalize_rows=True)
    with pytest.raises(InputError, match=r"^test_sizes: got 1 sizes"):
        train(sp.GraphSAGE([2, 2]), test_sizes=(5,))


# ---- optimisation


class Rates(Callback):
    def __init__(self):
        self.rates = []

    def on_step(self, trainer, loss):
        self.rates.append(trainer.schedule.learning_rate)


def rates(**settings):
    seen = Rates()
    train(sp.GraphSAGE([3]), callbacks=[seen], batch_size=240, learning_rate=0.08, **settings).fit()
    return np.array(seen.rates) / 0.08


def test_schedules():
    assert rates(epochs=3).tolist() == [1, 1, 1]
    assert rates(epochs=5, schedule="step", decay_every=2, decay_factor=0.5).tolist() == [1, 1, 0.5, 0.5, 0.25]
    cosine = rates(epochs=6, schedule="cosine", warmup_epochs=2)
    expected = [1 / 3, 2 / 3, *((1 + np.cos(np.pi * np.arange(4) / 4)) / 2)]
    assert cosine == pytest.approx(expected)


def test_plateau():
    config = TrainConfig(schedule="plateau", decay_every=2, decay_factor=0.1, learning_rate=1.0)
    schedule = Schedule(make_optimizer([torch.nn.Parameter(torch.zeros(1))], config), config)
    seen = []
    for val in (0.5, None, 0.5, 0.4, 0.3, 0.6, 0.6):
        schedule.epoch_over(val)
        seen.append(round(schedule.learning_rate, 6))
    assert seen == [1, 1, 1, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_optimizers_decay_weights(optimizer):
    def norm(weight_decay):
        trainer = train(sp.GraphSAGE([3]), optimizer=optimizer, weight_decay=weight_decay, epochs=5)
        trainer.fit()
        return sum(float(p.detach().norm()) for p in trainer.model.parameters())

    assert norm(1.0) < norm(0.0)


def test_gradients_are_clipped():
    class Norms(Callback):
        def __init__(self):
            self.values = []

        def on_step(self, trainer, loss):
            grads = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
            self.values.append(float(grads.norm()))

    norms = Norms()
    train(sp.GraphSAGE([3]), callbacks=[norms], clip_norm=0.01).fit()
    assert max(norms.values) <= 0.0101


def test_early_stopping():
    patient = train(sp.GraphSAGE([3]), epochs=200, patience=3, learning_rate=0.05).fit()
    assert patient.stopped_early
    assert len(patient.history) == patient.best_epoch + 4
    assert not train(sp.GraphSAGE([3]), epochs=2, patience=3).fit().stopped_early


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_schedule_goes_on_where_its_state_was_taken(at):
    config = TrainConfig(epochs=7, schedule="step", warmup_epochs=3, decay_every=2, learning_rate=0.4)

    def made():
        optimizer = make_optimizer([torch.nn.Parameter(torch.zeros(1))], config)
        return optimizer, Schedule(optimizer, config)

    def rates(optimizer, schedule, epochs):
        found = []
        for _ in range(epochs):
            found.append(schedule.learning_rate)
            optimizer.step()
            schedule.epoch_over(None)
        return found

    first, resumed = made(), made()
    before = rates(*first, at)
    for mine, theirs in zip(resumed, first, strict=True):
        mine.load_state_dict(theirs.state_dict())
    assert before + rates(*resumed, 7 - at) == rates(*made(), 7)
