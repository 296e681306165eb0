"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from spsample.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("spsample ")


def test_help_has_examples():
    result = run("train", "--help")
    assert result.exit_code == 0
    assert "spsample train digits" in result.stdout
    assert "--fanouts" in result.stdout


def run_without_torch(*arguments):
    code = f"import sys; sys.modules['torch'] = None; from spsample.cli.main import app; app({list(arguments)})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_help_needs_no_torch():
    done = run_without_torch("train", "--help")
    assert done.returncode == 0, done.stderr


def test_without_torch_there_is_one_clear_line():
    done = run_without_torch("train", "rmat:5,2")
    assert done.returncode == 2
    assert "torch" in done.stderr
    assert 'pip install "spsample[pyg]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_train_prints_tables():
    pytest.importorskip("torch")
    result = run("train", "planted:400,5", "--epochs", "2", "--fanouts", "5", "--hidden", "8")
    assert result.exit_code == 0, result.output
    for words in (
        "planted",
        "GraphSAGE([5]",
        "test accuracy",
        "Bayes rate",
        "sampling",
        "evaluation",
        "total",
    ):
        assert words in result.stdout


@pytest.mark.parametrize("sampler", ["graphsage", "ladies", "fastgcn"])
def test_train_prints_json(sampler):
    pytest.importorskip("torch")
    options = ["--sampler", sampler, "--layer-sizes", "50,50", "--epochs", "1", "--json"]
    result = run("train", "rmat:7,4", *options)
    assert result.exit_code == 0, result.output
    (report,) = json.loads(result.stdout)
    assert report["dataset"] == "rmat"
    assert 0 <= report["test"] <= 1
    assert len(report["history"]) == 1


def test_rewire_and_seed():
    pytest.importorskip("torch")
    options = ["--epochs", "1", "--json", "--random-seed", "3"]
    (report,) = json.loads(run("train", "planted:400,5", "--rewire", *options).stdout)
    assert report["dataset"] == "planted-rewired"
    assert report["bayes_rate"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cora"], "dataset: got 'cora'"),
        (["none.npz"], "none.npz: got no such file"),
        (["planted:400", "--sampler", "other"], "sampler: got 'other'"),
        (["planted:400", "--fanouts", "a,b"], "fanouts: got 'a,b'"),
        (["planted:400", "--fanouts", "0"], "fanouts"),
        (["planted:400", "--layer-sizes", "-3", "--sampler", "ladies"], "layer_sizes"),
        (["planted:400", "--model", "other"], "architecture: got 'other'"),
        (["planted:400", "--scaling", "other"], "scaling: got 'other'"),
        (["planted:400", "--metric", "other"], "metric: got 'other'"),
        (["planted:400", "--split", "1"], "split: got 1"),
        (["planted:400", "--epochs", "0"], "epochs: got 0"),
        (["planted:400", "--batch-size", "0"], "batch_size: got 0"),
        (["planted:400", "--dropout", "2"], "dropout: got 2.0"),
        (["planted:400", "--hidden", "0"], "hidden: got 0"),
        (["planted:400", "--backend", "other"], "other"),
        (["planted:400", "--random-seed", "-1"], "random_seed: got -1"),
    ],
)
def test_errors_are_one_line(arguments, words):
    pytest.importorskip("torch")
    result = run("train", *arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("spsample: error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
