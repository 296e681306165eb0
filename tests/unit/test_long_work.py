"""Long work says how far it is, how to go on with it, and goes on with it."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from spsample.cli.main import app

torch = pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import InputError  # noqa: E402
from spsample.training import Checkpointer, ModelConfig, TrainConfig, Trainer, read_checkpoint  # noqa: E402
from spsample.training.runs import Recording, RunFolder  # noqa: E402

DATA = planted(400, degree=5)
SMALL = ("--fanouts", "4,3", "--hidden", "8")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


# ---- lines where there is no terminal


def test_each_epoch_is_a_line():
    result = run("train", "planted:400,5", "--epochs", "4", "--eval-every", "2", *SMALL)
    lines = [line for line in result.stderr.splitlines() if line.startswith("epoch ")]
    assert len(lines) == 4, result.stderr
    assert re.fullmatch(r"epoch 1 of 4: loss \d+\.\d{4}, [\d.]+ s", lines[0])
    assert re.fullmatch(r"epoch 4 of 4: loss \d+\.\d{4}, validation accuracy \d+\.\d\d %, [\d.]+ s", lines[3])
    assert run("train", "planted:400,5", "--epochs", "1", *SMALL, "--json").stderr == ""


def test_a_long_epoch_is_a_line_a_minute(monkeypatch, capfd):
    from spsample.cli import progress, report

    monkeypatch.setattr(progress, "MINUTE", 0.05)
    trainer = Trainer(DATA, sp.GraphSAGE([4]), ModelConfig(hidden=8), TrainConfig(epochs=1, batch_size=60))

    class Slow(sp.training.Callback):
        def on_step(self, trainer, loss):
            time.sleep(0.2)

    with report.EpochProgress(DATA, 1, quiet=False) as shown:
        trainer.callbacks[:] = [shown, Slow()]
        trainer.fit()
    said = re.findall(
        r"^epoch 1 of 1: step (\d) of 4, loss \d+\.\d{4}; .* so far$", capfd.readouterr().err, re.MULTILINE
    )
    assert len(said) >= 3
    assert said == sorted(said)


@pytest.mark.parametrize("command", ["convert", "sample", "partition"])
def test_other_long_work_speaks(command, monkeypatch, tmp_path, capfd):
    from spsample.cli import progress

    monkeypatch.setattr(progress, "MINUTE", 0.02)
    words = {
        "convert": ["rmat:15,16", tmp_path / "store"],
        "sample": ["rmat:13,16", "-o", tmp_path / "bulks", "--bulk-size", "1", "--batch-size", "64"],
        "partition": ["rmat:13,8", "--parts", "4", "--out", tmp_path / "parts.npy"],
    }
    if command == "partition":
        pytest.importorskip("pymetis")
    result = run(command, *words[command])
    assert result.exit_code == 0, result.output
    said = result.stderr + capfd.readouterr().err
    forms = {
        "convert": r"^(reading|partitioning|sorting|checksums)(: [\d,]+( of [\d,]+)? edges)?; .* so far$",
        "sample": r"^bulks: \d+ files; .* so far$",
        "partition": r"^metis makes 4 parts of 8,192 vertices and [\d,]+ edges, and says nothing until it has$",
    }
    assert re.search(forms[command], said, re.MULTILINE), said
    assert "\r" not in said


# ---- Ctrl-C


def start(*words):
    line = [sys.executable, "-m", "spsample.cli.main", *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(program, words):
    """Read standard error up to a line with these words."""
    lines = []
    for line in program.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError("".join(lines))


RUN = ("train", "planted:3000", "--epochs", "20", "--batch-size", "64", *SMALL)


def test_ctrl_c_says_how_to_go_on(tmp_path):
    folder = tmp_path / "runs of mine" / "long"
    program = start(*RUN, "--out", folder)
    until(program, "epoch 2 of 20")
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    told = re.search(r"stopped after epoch (\d+); go on with `(spsample train --resume .*)`", errors)
    assert told, errors
    assert read_checkpoint(folder / "checkpoint.pt")["progress"]["epoch"] == int(told[1]) >= 1
    words = shlex.split(told[2])
    assert words[-1] == str(folder)
    again = run(*words[1:])
    assert again.exit_code == 0, again.output
    assert f"goes on at epoch {int(told[1]) + 1}, step 1 of 29" in again.stderr
    assert len(json.loads((folder / "results.json").read_text())["runs"][0]["history"]) == 20


def test_sigterm_says_how_to_go_on(tmp_path):
    program = start(*RUN, "--out", tmp_path / "long", "--checkpoint-batches", "5")
    until(program, "epoch 1 of 20")
    time.sleep(0.3)
    program.terminate()
    _, errors = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGTERM
    assert re.search(r"stopped after (step \d+ of )?epoch \d+; go on with `spsample train --resume ", errors), errors


def test_ctrl_c_without_a_folder(tmp_path):
    program = start(*RUN)
    until(program, "epoch 2 of 20")
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "stopped; nothing of the run was kept: --out FOLDER keeps checkpoints to go on from" in errors


def test_ctrl_c_of_other_commands(tmp_path):
    program = start("sample", "rmat:13,16", "-o", tmp_path / "b", "--bulk-size", "1", "--batch-size", "1")
    while not list(tmp_path.glob("b/*.npz")):
        time.sleep(0.02)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert re.search(r"stopped after [\d,]+ files; the same command goes on", errors), errors
    assert "Traceback" not in errors


# ---- more epochs


def losses_of(trainer):
    values = []

    class Losses(sp.training.Callback):
        def on_step(self, trainer, loss):
            values.append(loss)

    trainer.callbacks.append(Losses())
    return values


def trainer(epochs, callbacks=(), **changes):
    settings = {"batch_size": 30, "bulk_size": 3, "learning_rate": 0.02, **changes}
    config = TrainConfig(epochs=epochs, **settings)
    return Trainer(DATA, sp.GraphSAGE([4, 3]), ModelConfig(hidden=8, dropout=0.5), config, callbacks)


def outcome(result):
    return {**result.as_dict(), "seconds": None}


KINDS = {
    "constant": {},
    "warmup": {"warmup_epochs": 2, "optimizer": "sgd"},
    "step": {"schedule": "step", "decay_every": 1, "optimizer": "adamw", "clip_norm": 0.1},
    "plateau, the last epoch out of turn": {"schedule": "plateau", "decay_every": 1, "eval_every": 2},
    "patience, the last epoch out of turn": {"eval_every": 2, "patience": 2},
    "sampled": {"evaluation": "sampled", "eval_every": 4},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [1, 3])
def test_a_lengthened_run_is_one_of_so_many_epochs(kind, first, tmp_path):
    path, changes = tmp_path / "checkpoint.pt", KINDS[kind]
    whole = trainer(6, **changes)
    values = losses_of(whole)
    wanted = outcome(whole.fit())
    short = trainer(first, [Checkpointer(path, every_epochs=0)], **changes)
    begun = losses_of(short)
    short.fit()
    longer = trainer(6, **changes)
    rest = losses_of(longer)
    longer.load_state_dict(read_checkpoint(path))
    assert outcome(longer.fit()) == wanted
    assert begun + rest == values


def test_what_cannot_be_lengthened(tmp_path):
    path = tmp_path / "checkpoint.pt"
    trainer(3, [Checkpointer(path)], schedule="cosine").fit()
    with pytest.raises(InputError, match=r"epochs: got 6 for a run of 3 with schedule 'cosine'; expected 3"):
        trainer(6, schedule="cosine").load_state_dict(read_checkpoint(path))
    trainer(3, [Checkpointer(path)]).fit()
    with pytest.raises(InputError, match=r"epochs: got 2 for a run that has trained 3; expected 3, or more than 3"):
        trainer(2).load_state_dict(read_checkpoint(path))


@pytest.mark.parametrize("more", [[], ["--repeats", "2"]])
def test_the_command_lengthens_a_run(tmp_path, more):
    options = ("train", "planted:400,5", "--eval-every", "2", *SMALL, *more)
    whole = run(*options, "--epochs", "5", "--json")
    assert run(*options, "--epochs", "3", "--out", tmp_path / "a").exit_code == 0
    longer = run("train", "--resume", tmp_path / "a", "--epochs", "5")
    assert longer.exit_code == 0, longer.output
    assert "goes on at epoch 4, step 1 of 1" in longer.stderr
    assert "epochs = 5" in (tmp_path / "a" / "config.toml").read_text()
    for again in (json.loads(run("train", "--resume", tmp_path / "a", "--json").stdout),):
        for one, other in zip(again["runs"], json.loads(whole.stdout)["runs"], strict=True):
            assert {**one, "seconds": 0} == {**other, "seconds": 0}
    fewer = run("train", "--resume", tmp_path / "a", "--epochs", "4")
    assert fewer.exit_code == 2
    assert "--epochs: got 4 for a run of 5; expected at least 5" in fewer.stderr


def test_the_command_refuses_another_cosine(tmp_path):
    options = ("train", "planted:400,5", *SMALL, "--schedule", "cosine", "--out", tmp_path / "a")
    assert run(*options, "--epochs", "2").exit_code == 0
    longer = run("train", "--resume", tmp_path / "a", "--epochs", "4")
    assert longer.exit_code == 2
    assert "--epochs: got 4 for a run of 2 with schedule 'cosine'; expected 2" in longer.stderr
    assert "epochs = 2" in (tmp_path / "a" / "config.toml").read_text()


def test_a_run_that_is_over_says_so(tmp_path):
    folder = RunFolder(tmp_path)
    folder.fit(trainer(2), Recording())
    assert folder.reached(1) == "epoch 2"
    assert RunFolder(tmp_path / "none").reached(1) is None
