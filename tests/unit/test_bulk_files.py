"""Bulks in files: what is written is what was sampled, and a stopped run goes on."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import subprocess
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.errors import DataError, InputError
from spsample.loading import BulkFiles, bulk_arrays, load_bulk

GRAPH = sp.load_dataset("rmat:10,8").graph
SAMPLERS = [sp.GraphSAGE([3, 2]), sp.GraphSAGE([3, 2], layout="subgraph"), sp.LADIES([8, 8])]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_round_trip(sampler: sp.Sampler, tmp_path: Path) -> None:
    bulk = sp.bulk_sample(GRAPH, range(50), sampler, batch_size=16, first_batch=5, edge_ids=True)
    read = load_bulk(BulkFiles(tmp_path / "bulks", {}).write(bulk))
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


def test_a_bulk_without_batches_is_refused(tmp_path: Path) -> None:
    none = sp.bulk_sample(GRAPH, [], SAMPLERS[0], batch_size=16)
    with pytest.raises(InputError, match="bulk: got one without batches"):
        BulkFiles(tmp_path / "bulks", {}).write(none)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(DataError, match="other files"):
        BulkFiles(tmp_path, {})
    BulkFiles(tmp_path / "a", {"epoch": 1})
    with pytest.raises(DataError, match=r"epoch=1; expected epoch=2"):
        BulkFiles(tmp_path / "a", {"epoch": 2})
    with pytest.raises(DataError, match=r"thesis.txt: got a file without a checksum; expected thesis.txt.sha256"):
        load_bulk(tmp_path / "thesis.txt")
    with pytest.raises(DataError, match=r"none.npz: got No such file.*expected a bulk that spsample sample wrote"):
        load_bulk(tmp_path / "none.npz")
    with pytest.raises(DataError, match=r"got a folder; expected a bulk that .* Give one file of it"):
        load_bulk(tmp_path / "a")


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
    before = {name: (folder / name).read_bytes() for bulk in written for name in (bulk, f"{bulk}.sha256")}
    for name in written[2:]:
        (folder / name).unlink()
    (folder / ".bulk-00000099.npz.partial").write_bytes(b"half")
    again = json.loads(run(*command, "--bulk-size", "1", "--json").stdout)
    assert again["found"] > 0
    assert again["found"] + len(again["written"]) == again["batches"]
    whole = np.concatenate([load_bulk(path)["src_1"] for path in sorted(folder.glob("bulk-*.npz"))])
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    assert np.array_equal(whole, np.concatenate([load_bulk(tmp_path / name)["src_1"] for name in sorted(written)]))
    assert json.loads((folder / "manifest.json").read_text())["law_version"] == sp.law_version
    for refused in (run(*command[:-1], "3"), run(*command, "--edge-ids")):
        assert refused.exit_code == 2


def test_one_minibatch_is_said_as_one(tmp_path: Path) -> None:
    command = ("sample", "rmat:6,4", "-o", str(tmp_path / "bulks"), "--batch-size", "64", "--fanouts", "2")
    assert run(*command).stdout.endswith("bulks: 1 minibatch; 0 were there, 1 file written\n")
    assert run(*command).stdout.endswith("bulks: 1 minibatch; 1 was there, 0 files written\n")


SAMPLE = ("sample", "rmat:10,8", "--batch-size", "32", "--fanouts", "3,2", "--bulk-size", "4")


@pytest.mark.parametrize("damage", ["a bit", "its end", "its checksum"])
def test_a_run_goes_on_before_a_last_file_that_is_damaged(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "bulks"
    command = (*SAMPLE, "-o", str(folder))
    names = json.loads(run(*command, "--json").stdout)["written"]
    last, before = folder / names[-1], (folder / names[-1]).read_bytes()
    if damage == "its checksum":
        (folder / f"{names[-1]}.sha256").unlink()
    else:
        last.write_bytes(before[:-9] if damage == "its end" else flipped(before, 8 * (len(before) // 3)))
    again = run(*command, "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["written"] == names[-1:]
    assert "spsample: written again:" in again.stderr
    assert str(last) in again.stderr
    assert last.read_bytes() == before
    assert "written again" not in run(*command).stderr


def test_a_bulk_under_the_name_of_another_is_written_again(tmp_path: Path) -> None:
    bulks = [sp.bulk_sample(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=4, first_batch=first) for first in (0, 2)]
    files = BulkFiles(tmp_path / "bulks", {})
    for bulk in bulks:
        files.write(bulk)
    assert files.resumption() == (4, None)
    shutil.copy(files.path(0), files.path(2))
    (tmp_path / "bulks" / "bulk-00000002.npz.sha256").write_text(
        f"{hashlib.sha256(files.path(2).read_bytes()).hexdigest()}  bulk-00000002.npz\n"
    )
    next_batch, damaged = files.resumption()
    assert next_batch == files.next_batch() == 2
    assert "begins with batch 0; expected batch 2" in str(damaged)


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """Some thousand at equal distances, all of the checksum's."""
    path = BulkFiles(tmp_path, {}).write(sp.bulk_sample(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=4))
    for file, step in ((path, 23), (path.with_name(f"{path.name}.sha256"), 1)):
        content = file.read_bytes()
        for bit in range(0, 8 * len(content), step):
            file.write_bytes(flipped(content, bit))
            with pytest.raises(DataError, match=re.escape(str(path))):
                load_bulk(path)
        file.write_bytes(content)
    assert load_bulk(path)["batch_ids"].tolist() == [0, 1]


def seal(path: Path) -> Path:
    """Write the checksum of what is there."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(f"{path.name}.sha256").write_text(f"{digest}  {path.name}\n")
    return path


def npy(shape: tuple[int, ...], data: bytes) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": shape})
    return file.getvalue() + data


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_lies_takes_no_memory(packed: int, tmp_path: Path) -> None:
    """Under a checksum that is right: of a file that somebody made."""
    path = tmp_path / "bulk-00000000.npz"
    for shape in ((2**44,), (2**61,), (3, 2**50), (0,), (2,)):
        with zipfile.ZipFile(path, "w", packed) as archive:
            archive.writestr("batch_ids.npy", npy(shape, bytes(24)))
        tracemalloc.start()
        with pytest.raises(DataError, match=r"bulk-00000000.npz: got an unreadable file \(batch_ids.npy is said to be"):
            load_bulk(seal(path))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
        tracemalloc.stop()


def test_what_is_no_bulk_is_refused(tmp_path: Path) -> None:
    arrays = bulk_arrays(sp.bulk_sample(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=4))
    path = tmp_path / "a.npz"

    def refused(**changes: Any) -> str:
        kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        np.savez(path, **kept)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"a.npz: got .*; expected a bulk that spsample sample wrote") as caught:
            load_bulk(seal(path))
        return caught.value.given

    assert "the arrays" in refused(batch_ids=None)
    assert "the arrays" in refused(batch_ids=np.zeros(0, np.int64))
    assert "the arrays" in refused(batch_ids=np.array(3))
    assert refused(src_1=None) == "src_ptr_1 that does not lead through src_1"
    end = len(arrays["dst_1"])
    for starts in ([0, end + 1, end], [0, 1], [1, 2, 3], [[0, 1, 2]], [0.0, 1.0, 2.0]):
        assert refused(dst_ptr_1=np.array(starts)) == "dst_ptr_1 that does not lead through dst_1"
    assert "entry_ptr_1" in refused(indices_1=np.zeros(1, np.int64))
    assert "pickle" in refused(data_1=np.array([None]))
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"a\.npz: got an unreadable file"):
        load_bulk(seal(path))


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    bulk = sp.bulk_sample(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=4)
    path = BulkFiles(tmp_path / "n", {}).write(bulk)
    assert np.load(path)["batch_ids"].tolist() == [0, 1]
    checked = subprocess.run(
        ["sha256sum", "-c", f"{path.name}.sha256"], cwd=path.parent, capture_output=True, text=True
    )
    assert checked.stdout == f"{path.name}: OK\n"


def test_bulks_of_before_there_were_checksums(tmp_path: Path) -> None:
    BulkFiles(tmp_path, {"epoch": 1})
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(DataError, match=r"version=1; expected version=2.*checksum"):
        BulkFiles(tmp_path, {"epoch": 1})


def test_every_flipped_bit_of_a_manifest_is_found_that_says_something_else(tmp_path: Path) -> None:
    facts = {"epoch": 1, "budget": None, "shuffle": True}
    BulkFiles(tmp_path, facts)
    manifest = tmp_path / "manifest.json"
    content = manifest.read_bytes()
    said = json.loads(content)
    for bit in range(8 * len(content)):
        manifest.write_bytes(damaged := flipped(content, bit))
        try:
            same = json.loads(damaged) == said
        except ValueError:
            same = False
        if same:
            BulkFiles(tmp_path, facts)
        else:
            with pytest.raises(DataError, match=re.escape(str(tmp_path))):
                BulkFiles(tmp_path, facts)


def test_the_checksum_is_there_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed between the two has lost nothing that it can go on without."""
    bulk = sp.bulk_sample(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=4)
    files = BulkFiles(tmp_path / "bulks", {})
    renamed: list[str] = []
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (renamed.append(Path(to).name), real(self, to))[1])
    files.write(bulk)
    assert renamed == ["bulk-00000000.npz.sha256", "bulk-00000000.npz"]
    files.path(0).unlink()
    assert files.next_batch() == 0
    files.write(bulk)
    assert files.next_batch() == 2


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
        (["sample", "rmat:10,8", "-o", "x", "--format", "arrow"], "--format: got a removed option; expected leave it"),
    ],
)
def test_errors_name_the_option(arguments: list[str], words: str, capfd: Any) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output + capfd.readouterr().err
