"""``spsample info``: facts as JSON and as tables, exit codes."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from spsample.cli import info as describing
from spsample.cli.main import app
from spsample.store import Graph, StoreWriter


def run(*arguments):
    return CliRunner().invoke(app, ["info", *map(str, arguments)])


@pytest.fixture
def store(tmp_path):
    with StoreWriter(tmp_path / "small") as writer:
        writer.write_graph(Graph([0, 2, 3, 3], [1, 2, 0], data=[1.0, 2.0, 4.0]))
        writer.write("x", np.eye(3, dtype=np.float16))
        writer.write("y", np.array([0, 1, -1]))
        writer.write("original_ids", np.array([70, 80, 90]))
        for number, part in enumerate(("train", "val", "test")):
            writer.write(f"{part}_masks", np.eye(3, dtype=bool)[[number, 2 - number]])
        writer.set(metric="accuracy", source="by hand", license={"name": "CC0"}, node_features=["x"])
    return tmp_path / "small"


def test_json(store):
    result = run(store, "--json", "--verify")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert (facts["num_nodes"], facts["num_edges"], facts["weighting"], facts["verified"]) == (3, 3, "weighted", True)
    assert facts["in_degrees"] == {"max": 2, "mean": 1.0, "without": 1}
    assert facts["labels"] == {"classes": 2, "multi": False}
    assert facts["splits"] == {"count": 2, "train": 1, "val": 1, "test": 1}
    assert facts["features"] == ["x"]
    assert facts["original_ids"] == "integers, in original_ids"
    assert facts["meta"] == {"source": "by hand", "license": {"name": "CC0"}}
    assert {"name": "x", "dtype": "float16", "shape": [3, 3], "bytes": 18} in facts["arrays"]
    assert facts["bytes"] == sum(array["bytes"] for array in facts["arrays"])


def test_tables(store):
    result = run(store)
    assert result.exit_code == 0
    for text in (
        "small",
        "by hand",
        "original_ids",
        "2 of 1 / 1 / 1",
        "3 x 3",
        "size, B",
        "3 features per vertex",
        "2 classes",
        "1 vertices without",
    ):
        assert text in result.stdout
    assert "verified" not in result.stdout
    assert re.search(r"^x .* 3 x 3 +18$", result.stdout, re.MULTILINE)


def test_what_has_no_checksum_is_told(store):
    assert json.loads(run(store, "--json", "--verify").stdout)["without_checksum"] == []
    (store / "meta.json.sha256").unlink()
    assert json.loads(run(store, "--json", "--verify").stdout)["without_checksum"] == ["meta.json"]
    assert "an older store" in " ".join(run(store, "--verify").stdout.split())


def test_a_damaged_store_ends_with_1(store):
    with (store / "x.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    assert run(store).exit_code == 0
    for arguments in ((), ("--json",)):
        result = run(store, "--verify", *arguments)
        assert result.exit_code == 1
        assert "x.npy: got another checksum in piece 0" in result.stderr


def test_damaged_labels_are_verified_before_they_are_read(store):
    with (store / "y.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x05")
    result = run(store, "--verify", "--json")
    assert (result.exit_code, json.loads(result.stdout)["verified"]) == (1, False)
    assert "y.npy: got another checksum" in result.stderr


def test_what_cannot_be_opened_ends_with_2(store, tmp_path):
    (store / "x.npy").unlink()
    result = run(store)
    assert result.exit_code == 2
    assert "x.npy" in result.stderr
    assert run(tmp_path / "none").exit_code == 2
    assert run("planted:60", "--verify").exit_code == 2


def test_data_sets():
    result = run("planted:60,3,2", "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert (facts["num_nodes"], facts["splits"]["train"], facts["digest"], facts["path"]) == (60, 36, None, None)
    assert {array["name"] for array in facts["arrays"]} >= {"indptr", "indices", "x", "y"}
    assert "60" in run("planted:60,3,2").stdout


def test_degrees_piece_by_piece(monkeypatch):
    monkeypatch.setattr(describing, "_PIECE", 2)
    starts = np.array([0, 3, 3, 4, 9, 9])
    assert describing.in_degrees(starts) == {"max": 5, "mean": 9 / 5, "without": 2}


def test_labels_and_ids_of_other_kinds(tmp_path):
    with StoreWriter(tmp_path / "s") as writer:
        writer.write_graph(Graph([0, 1, 1], [1]))
        writer.write("y", np.eye(2, dtype=np.uint8))
        writer.write("names_ptr", np.array([0, 1, 2]))
        writer.write("names_data", np.frombuffer(b"ab", np.uint8))
    facts = json.loads(run(tmp_path / "s", "--json", "--verify").stdout)
    assert facts["labels"] == {"classes": 2, "multi": True}
    assert facts["original_ids"] == "strings, in names_data"
    assert facts["splits"] is None
