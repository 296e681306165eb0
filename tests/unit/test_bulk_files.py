"""Bulks in files: what is written is what was sampled, and a stopped run goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.errors import DataError, MissingDependencyError
from spsample.loading import BulkFiles, load_bulk

GRAPH = sp.load_dataset("rmat:10,8").graph
SAMPLERS = [sp.GraphSAGE([3, 2]), sp.GraphSAGE([3, 2], layout="subgraph"), sp.LADIES([8, 8])]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("form", ["npz", "arrow"])
def test_round_trip(sampler: sp.Sampler, form: str, tmp_path: Path) -> None:
    if form == "arrow":
        pytest.importorskip("pyarrow")
    bulk = sp.bulk_sample(GRAPH, range(50), sampler, batch_size=16, first_batch=5, edge_ids=True)
    read = load_bulk(BulkFiles(tmp_path / "bulks", {}, form).write(bulk))
    assert read["batch_ids"].tolist() == [5, 6, 7, 8]
    for i, minibatch in enumerate(bulk):
        for number, layer in enumerate(minibatch.layers, 1):
            src, dst, entry = (slice(*read[f"{name}_ptr_{number}"][i : i + 2]) for name in ("src", "dst", "entry"))
            assert np.array_equal(read[f"src_{number}"][src], layer.src_nodes)
            assert np.array_equal(read[f"dst_{number}"][dst], layer.dst_nodes)
            assert np.array_equal(read[f"indices_{number}"][entry], layer.adj.indices)
            assert np.array_equal(read[f"edge_ids_{number}"][entry], layer.edge_ids)
            indptr = read[f"indptr_{number}"][dst.start + i : dst.stop + i + 1]
            assert np.array_equal(indptr, layer.adj.indptr)
            assert (layer.adj.data is None) == (f"data_{number}" not in read)
            if layer.adj.data is not None:
                assert np.array_equal(read[f"data_{number}"][entry], layer.adj.data)


def test_arrow_files_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"the Arrow format needs .* pyarrow, .* \"spsample\[convert\]\"$"):
        BulkFiles(tmp_path / "bulks", {}, "arrow")
    (tmp_path / "bulk-00000000.arrow").touch()
    with pytest.raises(MissingDependencyError, match=r"spsample\[convert\]"):
        load_bulk(tmp_path / "bulk-00000000.arrow")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(DataError, match="other files"):
        BulkFiles(tmp_path, {})
    BulkFiles(tmp_path / "a", {"epoch": 1})
    with pytest.raises(DataError, match=r"epoch=1; expected epoch=2"):
        BulkFiles(tmp_path / "a", {"epoch": 2})
    with pytest.raises(DataError, match="bulk that spsample sample wrote"):
        load_bulk(tmp_path / "thesis.txt")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="got a file; expected a folder"):
        BulkFiles(tmp_path / "file", {})
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(DataError, match="got a list; expected a JSON object"):
        BulkFiles(tmp_path, {})


def test_the_command_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "bulks"
    command = ("sample", "rmat:10,8", "-o", str(folder), "--batch-size", "32", "--fanouts", "3,2", "--epoch", "2")
    first = run(*command, "--json")
    assert first.exit_code == 0, first.output
    written = json.loads(first.stdout)["written"]
    assert len(written) > 4
    before = {name: (folder / name).read_bytes() for name in written}
    for name in written[2:]:
        (folder / name).unlink()
    (folder / ".bulk-00000099.npz.partial").write_bytes(b"half")
    again = json.loads(run(*command, "--bulk-size", "1", "--json").stdout)
    assert again["found"] > 0
    assert again["found"] + len(again["written"]) == again["batches"]
    whole = np.concatenate([load_bulk(path)["src_1"] for path in sorted(folder.glob("bulk-*.npz"))])
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    assert np.array_equal(whole, np.concatenate([load_bulk(tmp_path / name)["src_1"] for name in sorted(before)]))
    assert json.loads((folder / "manifest.json").read_text())["law_version"] == sp.law_version
    refused = run(*command[:-1], "3")
    assert refused.exit_code == 2


def test_the_bulks_are_those_of_the_loader(tmp_path: Path) -> None:
    folder = tmp_path / "bulks"
    assert run("sample", "planted:500", "-o", str(folder), "--batch-size", "32", "--fanouts", "3,2").exit_code == 0
    dataset = sp.load_dataset("planted:500")
    loader = sp.BulkLoader(dataset.graph, dataset.train_idx, sp.GraphSAGE([3, 2]), batch_size=32)
    written = np.concatenate([load_bulk(path)["src_1"] for path in sorted(folder.glob("bulk-*.npz"))])
    assert np.array_equal(written, np.concatenate([batch.src_nodes for batch in loader]))


def test_plan_as_json() -> None:
    result = run("plan", "rmat:10,8", "--batch-size", "32", "--memory-budget", "32MiB", "--json")
    facts = json.loads(result.stdout)
    assert facts["memory_budget"] == 32 << 20
    assert facts["predicted_peak"][str(facts["largest_bulk_size"])] <= 32 << 20
    assert run("plan", "rmat:10,8").exit_code == 0


def test_files_are_planned_for_the_bulks_they_hold(tmp_path: Path) -> None:
    """All of equal size: not those of a loader with prefetch, the first of which are smaller."""
    dataset = sp.load_dataset("planted:20000")
    sampler = sp.GraphSAGE([10, 10])
    loader = sp.BulkLoader(
        dataset.graph, dataset.train_idx, sampler, batch_size=64, bulk_size=188, memory_budget="1GiB"
    )
    assert loader.plan is not None
    assert len(loader) == 188
    assert loader.plan.peak(188) < loader.plan._peak(188, 188)
    budget = str(loader.plan.peak(188) + (1 << 20))
    command = ("sample", "planted:20000", "-o", str(tmp_path), "--batch-size", "64", "--fanouts", "10,10")
    result = run(*command, "--bulk-size", "188", "--memory-budget", budget)
    assert result.exit_code != 0
    assert "bulk-size: got 188, which takes" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", "rmat:10,8", "--memory-budget", "1KiB"], "--memory-budget: got 1.00 KiB"),
        (["plan", "rmat:10,8", "--sampler", "none"], "--sampler: got 'none'"),
        (["plan", "rmat:10,8", "--layer-sizes", "3"], "--layer-sizes: got '3' with --sampler graphsage"),
        (["plan", "rmat:10,8", "--seeds", "some"], "--seeds: got 'some'"),
        (["plan", "rmat:10,8", "--sampler", "ladies", "--layout", "subgraph"], "--layout: got 'subgraph'"),
        (["sample", "rmat:10,8", "-o", "x", "--format", "csv"], "--format: got 'csv'"),
    ],
)
def test_errors_name_the_option(arguments: list[str], words: str, capfd: Any) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output + capfd.readouterr().err
