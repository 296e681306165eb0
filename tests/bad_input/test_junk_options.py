"""Junk in settings, paths and time-outs is refused by name, not by whatever trips over it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import spsample as sp
from spsample.comm import run_threads
from spsample.convert import ConvertOptions, convert
from spsample.data import partition_quality, planted, rewire, save_dataset, scale_features
from spsample.data.generators import rmat
from spsample.errors import DTypeError, InputError, SpSampleError
from spsample.features import DiskFeatures, FeatureStore
from spsample.loading import BulkFiles, PygLoader, bulk_arrays, load_bulk
from spsample.sparse import derive_key, pattern, split, square, stack
from spsample.store import GraphStore, StoreWriter

GRAPH = sp.Graph([0, 2, 3, 4], [1, 2, 0, 1])
HUGE = 10**400


def refused(argument: str, call: object, *arguments: object, **options: object) -> SpSampleError:
    """The error of a call, which names the argument."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    assert caught.value.argument == argument
    assert str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("argument", "junk"),
    [
        ("columns", (1.0, 1.0)),
        ("columns", ("a", 3)),
        ("weights", 2.0),
        ("header", "yes"),
        ("symmetrise", np.array([True, False])),
        ("overwrite", 3),
        ("features", 3),
        ("labels", "nul\0byte"),
        ("memory_budget", HUGE),
        ("memory_budget", "9" * 400),
        ("threads", [1]),
    ],
)
def test_convert_options(argument: str, junk: object) -> None:
    refused(argument, ConvertOptions, **{argument: junk})


@pytest.mark.parametrize(
    ("argument", "junk"),
    [
        ("learning_rate", [0.1]),
        ("learning_rate", HUGE),
        ("learning_rate", None),
        ("weight_decay", "0"),
        ("momentum", np.zeros(2)),
        ("decay_factor", True),
        ("clip_norm", "much"),
        ("batch_size", 0),
        ("bulk_size", np.array([1, 2])),
        ("bulk_size", "all"),
        ("prefetch", None),
        ("memory_budget", HUGE),
        ("test_sizes", "2"),
        ("test_sizes", [0]),
        ("backend", 3),
        ("optimizer", ["adam"]),
    ],
)
def test_train_config(argument: str, junk: object) -> None:
    training = pytest.importorskip("spsample.training")
    error = refused("test_sizes[0]" if repr(junk) == "[0]" else argument, training.TrainConfig, **{argument: junk})
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    ("argument", "junk"),
    [
        ("architecture", ["sage"]),
        ("architecture", np.zeros(3)),
        ("hidden", "8"),
        ("dropout", None),
        ("dropout", "0.5"),
        ("dropout", HUGE),
        ("residual", "yes"),
        ("heads", 2.0),
    ],
)
def test_model_config(argument: str, junk: object) -> None:
    training = pytest.importorskip("spsample.training")
    refused(argument, training.ModelConfig, **{argument: junk})


@pytest.mark.parametrize("junk", [np.array([3]), np.array(3), [3], 2.0, "all", None])
def test_bulk_sizes(junk: object) -> None:
    refused("bulk_size", sp.BulkLoader, GRAPH, [0, 1], sp.GraphSAGE([1]), batch_size=1, bulk_size=junk)


def test_a_batch_size_beyond_all_bounds_is_one_batch() -> None:
    loader = sp.BulkLoader(GRAPH, [0, 1, 2], sp.GraphSAGE([1]), batch_size=HUGE, shuffle=False)
    assert [batch.seeds.tolist() for batch in loader] == [[0, 1, 2]]
    budget = sp.BulkLoader(GRAPH, [0, 1], sp.GraphSAGE([1]), batch_size=HUGE, bulk_size="auto", memory_budget="1GiB")
    assert len(budget) == 1
    assert sp.plan_bulk(GRAPH, [0, 1], sp.GraphSAGE([1]), batch_size=HUGE).bulk_size == 1


@pytest.mark.parametrize("junk", [HUGE, 1j, [5], np.zeros(2), "soon", -1, 0, float("nan")])
def test_timeouts(junk: object) -> None:
    refused("timeout", sp.init, "local", timeout=junk)


@pytest.mark.parametrize("junk", [3, None, b"x", [1], np.zeros(2), "", "nul\0byte", "x" * 300], ids=repr)
def test_paths(junk: object) -> None:
    calls = [
        sp.Graph.open,
        FeatureStore.open,
        GraphStore.open,
        load_bulk,
        StoreWriter,
        GRAPH.save,
        lambda path: save_dataset(planted(20), path),
        lambda path: convert("planted:20", path),
    ]
    for call in calls:
        refused("path", call, junk)
    refused("folder", BulkFiles, junk, {})


@pytest.mark.parametrize("junk", [3, None, "", "nul\0byte"], ids=repr)
def test_paths_of_training(junk: object, tmp_path: Path) -> None:
    training = pytest.importorskip("spsample.training")
    for call in (training.Checkpointer, training.Journal, training.read_checkpoint):
        refused("path", call, junk)
    refused("path", training.write_checkpoint, junk, {})
    refused("results", training.plot_curves, [], tmp_path / "plot.png")


def test_partitions() -> None:
    refused("num_parts", partition_quality, GRAPH, np.zeros(3, np.int64), HUGE)


def test_numbers_of_small_types_do_not_overflow() -> None:
    plan = sp.plan_bulk(planted(200, degree=5).graph, range(100), sp.GraphSAGE([3]), batch_size=1)
    for k in (1, 60, 100):
        assert plan.peak(np.int8(k)) == plan.peak(k)
        assert plan.result_bytes(np.int8(k)) == plan.result_bytes(k)
        assert plan.scratch_bytes(np.int8(k)) == plan.scratch_bytes(k)
    small, whole = rmat(np.int8(10), np.int8(100)), rmat(10, 100)  # type: ignore[arg-type]
    assert small.graph.num_edges == whole.graph.num_edges


def test_words_of_the_algebra() -> None:
    Q = stack([np.array([0, 1])])
    refused("A", lambda: Q @ 3)
    refused("A", lambda: Q.per_batch() @ None)
    refused("A", pattern, 3)
    refused("matrix", square, 3)
    refused("batches", stack, 3)
    refused("batches[0]", stack, [[1, 2]])
    refused("stacked", split, [1], np.array([0, 1]))
    refused("purpose", derive_key, 0, 0, "x")


def test_other_objects() -> None:
    for call, argument in ((rewire, "dataset"), (bulk_arrays, "bulk"), (PygLoader, "loader")):
        refused(argument, call, 3)
    refused("dataset", scale_features, None, "rows")
    refused("size", run_threads, 0, len)
    refused("body", run_threads, 1, 3)
    refused("options", convert, "planted:20", os.devnull, 3)
    refused("features", sp.plan_bulk, GRAPH, [0], sp.GraphSAGE([1]), batch_size=1, features=(1, 2, 3))


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("access", partial(sp.Graph.open, "store")),
        ("page_rows", partial(DiskFeatures, "store", "1MiB")),
        ("transform_workers", partial(sp.BulkLoader, GRAPH, [0], sp.GraphSAGE([2]), batch_size=1)),
    ],
)
def test_arguments_that_were_removed(argument: str, call: Callable[..., object]) -> None:
    error = refused(argument, call, **{argument: 2})
    assert str(error).startswith(f"{argument}: got 2; expected nothing: it was removed. Leave it out: ")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        call(colour=2)


def test_a_model_a_trainer_and_a_state() -> None:
    training = pytest.importorskip("spsample.training")
    model, config = training.ModelConfig(hidden=4), training.TrainConfig(epochs=1)
    data = planted(60, degree=3)
    refused("in_dim", training.build_model, "3", 2, 1, model)
    refused("config", training.build_model, 3, 2, 1, None)
    refused("dataset", training.Trainer, None, sp.GraphSAGE([2]), model, config)
    refused("sampler", training.Trainer, data, "sage", model, config)
    refused("config", training.Trainer, data, sp.GraphSAGE([2]), model, {})
    trainer = training.Trainer(data, sp.GraphSAGE([2]), model, config)
    for name in ("optimizer", "model", "progress", "rng", "schedule"):
        refused("state", trainer.load_state_dict, {**trainer.state_dict(), name: [1]})
    with pytest.raises(DTypeError):
        training.preset_for(3)
