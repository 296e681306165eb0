"""Checkpoints, resumption and run folders."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.cli.config import write_config  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import DataError, DTypeError, InputError, MissingDependencyError  # noqa: E402
from spsample.training import (  # noqa: E402
    Callback,
    Checkpointer,
    Journal,
    ModelConfig,
    TrainConfig,
    Trainer,
    read_checkpoint,
    write_checkpoint,
)
from spsample.training.runs import Recording, RunFolder  # noqa: E402

DATA = planted(400, degree=5)  # 240 vertices to train on: 8 batches
SAMPLERS = {"graphsage": sp.GraphSAGE([4, 3]), "ladies": sp.LADIES([64, 64])}
STEPS = 4 * 8


class Losses(Callback):
    def __init__(self, stop_at=None):
        self.values, self.stop_at, self.state = [], stop_at, None

    def on_step(self, trainer, loss):
        self.values.append(loss)
        if trainer.progress.step == self.stop_at:
            self.state = trainer.state_dict()
            raise KeyboardInterrupt


def trainer(callbacks=(), sampler="graphsage", model=None, data=DATA, **changes):
    config = TrainConfig(
        **{"epochs": 4, "batch_size": 30, "bulk_size": 3, "learning_rate": 0.02, "eval_every": 2, **changes}
    )
    model = model or ModelConfig(hidden=8, dropout=0.5)
    return Trainer(data, SAMPLERS.get(sampler, sampler), model, config, callbacks)


def outcome(result):
    return {**result.as_dict(), "seconds": None}


KINDS = {
    "plain": {},
    "ladies": {"sampler": "ladies", "schedule": "cosine", "warmup_epochs": 1, "optimizer": "sgd"},
    "gat": {"model": ModelConfig("gat", hidden=8, dropout=0.5, residual=True), "schedule": "plateau", "decay_every": 1},
    "step": {"schedule": "step", "decay_every": 1, "clip_norm": 0.1, "patience": 1, "optimizer": "adamw"},
}
ALONE = {}


def alone(kind):
    """Losses and result of a run without interruption."""
    if kind not in ALONE:
        losses = Losses()
        result = trainer([losses], **KINDS[kind]).fit()
        ALONE[kind] = losses.values, outcome(result)
    return ALONE[kind]


@settings(max_examples=12)
@given(kind=st.sampled_from(sorted(KINDS)), where=st.integers(1, STEPS))
def test_a_resumed_run_is_the_run_itself(kind, where, tmp_path_factory):
    values, result = alone(kind)
    stopped = Losses(min(where, len(values)))
    with pytest.raises(KeyboardInterrupt):
        trainer([stopped], **KINDS[kind]).fit()
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint.pt"
    write_checkpoint(path, stopped.state)
    torch.manual_seed(where)
    rest = Losses()
    resumed = trainer([rest], **KINDS[kind])
    resumed.load_state_dict(read_checkpoint(path))
    assert outcome(resumed.fit()) == result
    assert stopped.values + rest.values == values


def test_a_run_that_is_over_keeps_its_last_weights():
    class Last(Callback):
        def on_epoch(self, trainer, record):
            self.weights = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}

    last = Last()
    run = trainer([last], eval_every=1, learning_rate=0.3)
    assert run.fit().best_epoch < 3
    torch.testing.assert_close(run.state_dict()["model"], last.weights, rtol=0, atol=0)


def test_two_threads_resume_to_the_same_bits():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        whole, stopped, rest = Losses(), Losses(10), Losses()
        trainer([whole]).fit()
        with pytest.raises(KeyboardInterrupt):
            trainer([stopped]).fit()
        resumed = trainer([rest])
        resumed.load_state_dict(stopped.state)
        resumed.fit()
    finally:
        torch.set_num_threads(before)
    assert stopped.values + rest.values == whole.values


def test_a_resumed_journal_has_the_lines_of_a_whole_run(tmp_path):
    def lines(name):
        return [{**json.loads(line), "seconds": None} for line in (tmp_path / name).read_text().splitlines()]

    def journal(name):
        return Journal(tmp_path / name, every_batches=3)

    trainer([journal("whole")]).fit()
    stopped = Losses(10)  # one after a line
    with pytest.raises(KeyboardInterrupt):
        trainer([journal("resumed"), stopped]).fit()
    resumed = trainer([journal("resumed")])
    resumed.load_state_dict(stopped.state)
    resumed.fit()
    assert lines("resumed") == lines("whole")


def test_bulk_size_may_change_on_resumption():
    values, result = alone("plain")
    stopped, rest = Losses(5), Losses()
    with pytest.raises(KeyboardInterrupt):
        trainer([stopped]).fit()
    resumed = trainer([rest], bulk_size=64)
    resumed.load_state_dict(stopped.state)
    assert outcome(resumed.fit()) == result
    assert stopped.values + rest.values == values


@pytest.mark.parametrize("stop", ["step", "evaluation", "sampling"])
@pytest.mark.parametrize("kind", ["plain", "step"])
def test_an_interrupted_fit_goes_on(kind, stop, monkeypatch):
    """In the same process, as in a notebook: no batch twice, none left out, the same dropout."""
    values, result = alone(kind)
    losses = Losses(9 if stop == "step" else None)
    run = trainer([losses], **KINDS[kind])
    if stop == "evaluation":
        monkeypatch.setattr(run.evaluator, "scores", raiser(KeyboardInterrupt))
    elif stop == "sampling":
        monkeypatch.setattr(run.pipeline, "backward", raiser(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    monkeypatch.undo()
    torch.rand(3)
    assert outcome(run.fit()) == result
    assert losses.values == values


def raiser(error):
    def fail(*arguments):
        raise error

    return fail


def test_callbacks_of_one_type_keep_their_own_state(tmp_path):
    class Counter(Callback):
        def __init__(self, start):
            self.state = start

        def state_dict(self):
            return {"state": self.state}

        def load_state_dict(self, state):
            self.state = state["state"]

    state = trainer([Counter(1), Counter(2)]).state_dict()
    restored = [Counter(0), Counter(0)]
    trainer(restored).load_state_dict(state)
    assert [callback.state for callback in restored] == [1, 2]


@pytest.mark.parametrize("part", ["optimizer", "schedule", "rng", "seconds", "callbacks", "loader"])
def test_an_incomplete_state_is_refused(part):
    state = trainer().state_dict()
    del state[part]
    with pytest.raises(InputError, match=f"^state: got no {part}"):
        trainer().load_state_dict(state)


def test_what_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(DTypeError, match=r"^state\['callbacks'\]\[0\]: got an object of type numpy.float64"):
        write_checkpoint(path, {"callbacks": [np.float64(1)]})
    assert not path.exists()


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer([Checkpointer(path)], epochs=1).fit()
    return path


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"learning_rate": 0.1}, ["learning_rate 0.02 (here 0.1)"]),
        ({"batch_size": 31, "patience": 7}, ["batch_size", "patience"]),
        ({"model": ModelConfig("gcn", hidden=8, dropout=0.5)}, ["architecture 'sage' (here 'gcn')"]),
        ({"sampler": "ladies"}, ["sampler 'GraphSAGE([4, 3])'"]),
        ({"data": planted(400, degree=5, random_seed=1)}, ["features"]),
        ({"data": dataclasses.replace(DATA, metric="f1_macro")}, ["metric 'accuracy' (here 'f1_macro')"]),
    ],
)
def test_other_settings_are_refused_by_name(checkpoint, changes, names):
    with pytest.raises(InputError, match=r"^resume: got a checkpoint with other settings") as caught:
        trainer(**{"epochs": 1, **changes}).load_state_dict(read_checkpoint(checkpoint))
    for name in names:
        assert name in str(caught.value)


def test_another_law_is_refused(checkpoint):
    state = {**read_checkpoint(checkpoint), "law_version": 0}
    with pytest.raises(InputError, match="law_version 0"):
        trainer(epochs=1).load_state_dict(state)


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_damage_is_noticed(where, bit):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        write_checkpoint(path, {"weights": torch.arange(50)})
        content = bytearray(path.read_bytes())
        content[int(where * len(content))] ^= 1 << bit
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"damaged|another kind"):
            read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and so on", b"spsample checkpoint 1 "])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged|another kind"):
        read_checkpoint(path)
    with pytest.raises(DataError, match="no such file"):
        read_checkpoint(tmp_path / "other.pt")
    torch.save({"a": 1}, path)
    with pytest.raises(DataError, match="another kind"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "payload",
    [b"", b"no pickle", b"\x80\x02]q\x00.", b"PK\x03\x04", pickle.dumps({"a": 1})[:-1], b"\x80\x02cos\nsystem\n."],
)
def test_a_checkpoint_with_a_bad_payload_is_refused(tmp_path, payload):
    """Under a hash that is right."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"spsample checkpoint 1 " + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
    with pytest.raises(DataError, match=r"checkpoint.pt: got .*; expected a checkpoint that spsample wrote"):
        read_checkpoint(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["write", "sync"])
def test_a_disk_that_is_full_or_read_only_is_named(tmp_path, monkeypatch, code, where):
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"a": 1})

    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    class Full(io.FileIO):
        write = fail

    monkeypatch.setattr("spsample.training.runs.plot_curves", lambda *_: None)  # results alone, without figures
    monkeypatch.setattr("spsample.training.runs.plot_phases", lambda *_: None)
    if where == "sync":
        monkeypatch.setattr("os.fsync", fail)
    else:
        monkeypatch.setattr(Path, "open", lambda self, mode, **_: Full(self, mode))
    calls = [
        lambda: write_checkpoint(path, {"a": 2}),
        lambda: RunFolder(tmp_path).finish([]),
        lambda: write_config(tmp_path / "config.toml", "train", {"lr": 1}),
    ]
    for call, name in zip(calls, ("checkpoint.pt", "results.json", "config.toml"), strict=True):
        with pytest.raises(DataError, match=os.strerror(code)) as caught:
            call()
        assert str(tmp_path) in str(caught.value)
        assert name in str(caught.value)
    if where == "write":
        with pytest.warns(UserWarning, match=rf"metrics.jsonl: got {os.strerror(code)}"):  # only a record
            Journal(tmp_path / "metrics.jsonl")._write({"step": 1})
    monkeypatch.undo()
    assert read_checkpoint(path) == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_checkpoint_that_cannot_be_read_is_named(checkpoint, monkeypatch):
    def refuse(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"checkpoint.pt: got Permission denied"):
        read_checkpoint(checkpoint)


def test_a_truncated_checkpoint_is_refused(checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged or truncated"):
        read_checkpoint(checkpoint)


def test_an_interrupted_write_leaves_the_old_checkpoint(checkpoint, monkeypatch):
    before = checkpoint.read_bytes()

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_checkpoint(checkpoint, {"a": 1})
    assert checkpoint.read_bytes() == before


def test_when_checkpoints_are_written(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("spsample.training.callbacks.write_checkpoint", lambda path, state: written.append(state))

    def steps(**options):
        written.clear()
        trainer([Checkpointer(tmp_path / "c", **options)], epochs=2).fit()
        return [state["progress"]["step"] for state in written]

    assert steps(every_epochs=1) == [8, 16, 16]
    assert steps(every_epochs=0, every_batches=5) == [5, 10, 15, 16]
    assert steps(every_epochs=0, every_minutes=1e-9) == [*range(1, 17), 16]
    assert steps(every_epochs=None) == [16]
    with pytest.raises(InputError, match="every_minutes"):
        Checkpointer(tmp_path / "c", every_minutes=-1)
    with pytest.raises(InputError, match="every_minutes"):
        Checkpointer(tmp_path / "c", every_minutes=float("nan"))


# ---- run folders


def lines(folder):
    return [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]


def test_a_run_folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    result = folder.fit(trainer(), Recording(log_every=3))
    assert {path.name for path in folder.path.iterdir()} >= {"metrics.jsonl", "checkpoint.pt", "results.json"}
    steps = [line for line in lines(folder) if line["kind"] == "steps"]
    epochs = [line for line in lines(folder) if line["kind"] == "epoch"]
    assert [line["step"] for line in steps] == list(range(3, 33, 3))
    assert [line["loss"] for line in epochs] == [record.loss for record in result.history]
    assert [line["val"] is None for line in epochs] == [True, False, True, False]
    assert folder.result() == result
    results = folder.path / "results.json"
    results.write_text(results.read_text().replace('"notes"', '"remarks"'))  # the name in files of older releases
    assert folder.result() == result
    assert outcome(folder.fit(trainer(), Recording(log_every=3))) == outcome(result)  # nothing is left to train
    with pytest.raises(InputError, match=r"--out: got .*which exists; expected a new folder"):
        folder.create()


def test_a_resumed_journal_has_every_step_once(tmp_path):
    whole, folder = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "run")
    recording = Recording(checkpoint_batches=3, log_every=2)
    whole.fit(trainer(), recording)
    for stop in (7, 20):
        with pytest.raises(KeyboardInterrupt):
            folder.fit(trainer([Losses(stop)]), recording)
    folder.fit(trainer(), recording)
    runs = [[{**line, "seconds": 0} for line in lines(each)] for each in (whole, folder)]
    assert runs[0] == runs[1]


def test_unreadable_results(tmp_path):
    folder = RunFolder(tmp_path)
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(DataError, match="the results of one run"):
        folder.result()


@pytest.mark.parametrize(
    ("name", "changed"), [("accuracy", "accurqcy"), ("waiting", "waitinf"), ("test", "tesd"), ("training", "trainino")]
)
def test_results_that_name_what_no_run_has(tmp_path, name, changed):
    folder = RunFolder(tmp_path)
    folder.finish([trainer(epochs=1, evaluation="both").fit()])
    assert folder.result() is not None
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace(f'"{name}"', f'"{changed}"'))
    with pytest.raises(DataError, match=r"results.json: got .*; expected the results of one run"):
        folder.result()


def test_tensorboard_where_installed(tmp_path):
    folder = RunFolder(tmp_path / "run")
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(MissingDependencyError, match="tensorboard"):
            folder.fit(trainer(epochs=1), Recording(tensorboard=True))
        return
    folder.fit(trainer(epochs=1), Recording(tensorboard=True))
    assert list((folder.path / "tensorboard").iterdir())


def test_without_matplotlib_there_are_no_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    folder = RunFolder(tmp_path / "run")
    folder.fit(trainer(epochs=1), Recording())
    assert not list(folder.path.glob("*.png"))
    assert (folder.path / "results.json").is_file()


def test_a_checkpoint_of_a_gpu_is_read_without_one(checkpoint, monkeypatch):
    given = []
    load = torch.load
    monkeypatch.setattr(torch, "load", lambda *args, **options: given.append(options) or load(*args, **options))
    read_checkpoint(checkpoint)
    assert given[0]["map_location"] == "cpu"
