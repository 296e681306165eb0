"""What only records a run never ends it: on a full disk there is a warning, and the result."""

from __future__ import annotations

import errno
import io
import json
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

import spsample as sp  # noqa: E402
from spsample.cli.main import app  # noqa: E402
from spsample.comm import run_threads  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import DataError  # noqa: E402
from spsample.store.folder import only_recorded  # noqa: E402
from spsample.timeline import Timeline  # noqa: E402
from spsample.training import Callback, Journal, ModelConfig, TensorBoard, TrainConfig, Trainer, callbacks  # noqa: E402  # noqa: E402
from spsample.training.runs import Recording, RunFolder  # noqa: E402

SMALL = ["train", "planted:200", "--epochs", "2", "--fanouts", "4", "--hidden", "8", "--batch-size", "32", "--json"]


@pytest.fixture
def full_disk(monkeypatch):
    """Makes writing fail where the name of a file has a word in it, after some bytes of each write."""
    opened = Path.open

    def fill(word: str, room: int = 0) -> None:
        class Full(io.FileIO):
            def write(self, data):
                super().write(bytes(data)[:room])
                raise OSError(errno.ENOSPC, "No space left on device")

        def limited(path, mode="r", *arguments, **options):
            is_full = word in path.name and not mode.startswith("r")
            return Full(path, mode) if is_full else opened(path, mode, *arguments, **options)

        monkeypatch.setattr(Path, "open", limited)

    fill.end = lambda: monkeypatch.setattr(Path, "open", opened)
    return fill


def trained(folder: RunFolder):
    model = ModelConfig(hidden=8)
    return folder.fit(
        Trainer(planted(200), sp.GraphSAGE([4]), model, TrainConfig(epochs=2, batch_size=32)), Recording()
    )


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("t.json", ["--trace", "t.json"]),
        ("metrics.jsonl", ["--out", "run"]),
        ("curves.png", ["--out", "run"]),
        ("phases.png", ["--out", "run"]),
    ],
)
def test_training_on_a_full_disk_prints_its_result(word, options, full_disk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = json.loads(CliRunner().invoke(app, SMALL).stdout)
    full_disk(word)
    with pytest.warns(UserWarning, match=rf"{word}: got No space left on device"):
        done = CliRunner().invoke(app, [*SMALL, *options])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["runs"][0]["test"] == expected["runs"][0]["test"]
    assert not (tmp_path / "t.json").exists()
    assert "timeline:" not in done.stderr


@pytest.mark.parametrize("word", ["checkpoint.pt", "results.json", "config.toml"])
def test_what_a_run_goes_on_from_is_no_record(word, full_disk, tmp_path):
    full_disk(word)
    done = CliRunner().invoke(app, [*SMALL, "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr


def test_the_timeline_of_ranks(full_disk, tmp_path):
    """Rank 0 warns, and no rank fails; a file of before stays."""
    path = tmp_path / "t.json"
    path.write_text("before")
    full_disk("t.json")

    def body(comm):
        with Timeline(path, comm) as timeline, timeline.span("work"):
            pass
        return timeline.is_written

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert run_threads(3, body) == [False] * 3
    assert [str(one.message).startswith(f"{path}: got No space left on device") for one in seen] == [True]
    assert path.read_text() == "before"
    full_disk.end()
    assert run_threads(2, body) == [True] * 2


def test_a_journal_of_a_disk_that_was_full_for_a_while(full_disk, tmp_path):
    """Lines are lost; none is half there."""

    class Fills(Callback):
        def on_step(self, trainer, loss):
            if trainer.progress.step == 3:
                full_disk("metrics", room=7)
            if trainer.progress.step == 5:
                full_disk.end()

    trainer = Trainer(
        planted(200),
        sp.GraphSAGE([4]),
        ModelConfig(hidden=8),
        TrainConfig(epochs=2, batch_size=32),
        [Fills(), Journal(tmp_path / "metrics.jsonl", every_batches=1)],
    )
    with pytest.warns(UserWarning, match=r"metrics.jsonl: got No space left"):
        trainer.fit()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["kind"] == "steps"]
    assert steps == [step for step in range(1, trainer.progress.step + 1) if step not in (3, 4)]


def test_a_figure_that_cannot_be_written_is_not_there(full_disk, tmp_path):
    folder = RunFolder(tmp_path / "run")
    full_disk("curves.png", room=100)
    with pytest.warns(UserWarning, match=r"curves.png: got No space left"):
        result = trained(folder)
    assert folder.result() == result
    assert not folder.has_figures
    assert (folder.path / "phases.png").stat().st_size > 1000


def test_tensorboard_on_a_full_disk(tmp_path, monkeypatch):
    class Full:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, *_):
            pass

        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(callbacks, "require_tensorboard", lambda: SimpleNamespace(SummaryWriter=Full))
    board, config = TensorBoard(tmp_path / "board"), TrainConfig(epochs=1, batch_size=32)
    with pytest.warns(UserWarning, match="board: got No space left"):
        result = Trainer(planted(200), sp.GraphSAGE([4]), ModelConfig(hidden=8), config, [board]).fit()
    assert np.isfinite(result.test)


REPORT = ["cache-report", "rmat:8,4", "--seeds", "all", "--fanouts", "3", "--batch-size", "32", "--json"]
PLAN = ["plan", "rmat:8,4", "--fanouts", "3", "--batch-size", "32", "--json"]


@pytest.mark.parametrize("command", [REPORT, PLAN])
def test_reports_are_printed_whatever_becomes_of_their_files(command, full_disk, tmp_path):
    full_disk("f.json")
    done = CliRunner().invoke(app, [*command, "--output", str(tmp_path / "f.json")])
    assert done.exit_code == 2, done.output
    assert json.loads(done.stdout)
    assert "No space left on device" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES])
def test_what_the_system_refuses_is_a_warning(code):
    with pytest.warns(UserWarning, match="x.json: got "), only_recorded("x.json"):
        raise OSError(code, "refused")


def test_faults_of_the_program_are_no_warnings():
    with pytest.raises(KeyError), only_recorded("x.json"):
        raise KeyError("x")
    with pytest.warns(UserWarning, match="x.json: got damaged"), only_recorded("x.json"):
        raise DataError(argument="x.json", given="damaged", expected="whole")
