"""Rows of a case, and that cases know no more of spsample than what its rooms name; `make bench` runs every case."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the extra spsample[bench]")
bench = pytest.importorskip("spsample.bench", reason="installed with bench/")

from spsample.bench.case import Case, declared  # noqa: E402
from spsample.bench.records import read_lines  # noqa: E402
from spsample.bench.run import run_case  # noqa: E402
from spsample.bench.turns import Settings  # noqa: E402
from spsample.comm import LocalCommunicator, run_threads  # noqa: E402

TINY = {
    "graph": ("rmat:8,8",),
    "batches": (2,),
    "batch_size": (8,),
    "bulk_size": (2,),
    "dim": (8,),
    "hidden": (8,),
    "epochs": (1,),
    "seeds": ("own part",),
}
LIGHT_PEERS = ("SciPy", "torch")
FOLDER = Path(bench.__file__).parent


@pytest.mark.parametrize("name", ["sampling", "lookahead", "simulation", "copies"])
def test_case(name, tmp_path):
    case: Case = declared("cases", name)
    # Words choose what is done, all of which is to run; of numbers one is enough.
    small = {key: values if isinstance(values[0], str) else values[:1] for key, values in case.parameters.items()}
    parameters = {key: TINY.get(key, values) for key, values in small.items()}
    settings = Settings(rounds=1, sides=(*(side.name for side in case.sides), *LIGHT_PEERS))
    path = run_case(name.replace("_", "-"), parameters, tmp_path / "graphs", tmp_path, settings, LocalCommunicator())
    cells = [line["sides"] for _, _, line in read_lines(path) if line["kind"] == "cell"]
    assert cells
    for sides in cells:
        assert [side["failed"] for side in sides if "failed" in side] == []
        ours = [side for side in sides if side["peer"] == "spsample"]
        assert [side["side"] for side in ours] == [side.name for side in case.sides]
        for side in ours:
            assert len(side["seconds"]) == 1
            assert side["figures"].get("batches", [1])[0] > 0
            assert {len(values) for values in side["figures"].values()} == {1}


@pytest.mark.parametrize("name", ["trainers", "placed", "locality"])
def test_training_on_ranks(name, tmp_path):
    """On ranks of a launcher: copies change no loss and cost what is expected, parts send no features, none fails."""
    pytest.importorskip("torch")
    case: Case = declared("cases", name)
    given = {"graph": ("rmat:9,8",), "dim": (32,), "batch_size": (8,), "hidden": (8,), "epochs": (4,), "factor": (8.0,)}
    parameters = {**case.parameters, **{key: given[key] for key in given.keys() & case.parameters.keys()}}

    def on_rank(comm):
        return run_case(name, parameters, tmp_path / "graphs", tmp_path, Settings(rounds=1), comm)

    lines = [line for _, _, line in read_lines(run_threads(2, on_rank)[0])]
    sides = lines[-1]["sides"]
    assert [side["failed"] for side in sides if "failed" in side] == []
    sides = {side["side"]: {key: values[0] for key, values in side["figures"].items()} for side in sides}
    if name == "placed":
        assert len({side["loss"] for side in sides.values()}) == 1
        copied = [side for side in sides.values() if "expected_cost" in side]
        assert len(copied) == 4
        assert [side["cost"] for side in copied] == pytest.approx([side["expected_cost"] for side in copied], abs=0.03)
        assert [side["copies_bytes"] > 0 for side in copied] == [side["peer_hits"] > 0 for side in copied]
    elif name == "trainers":
        assert [bool(side["features_bytes"]) for side in sides.values()] == [True, False, False]
        assert all(side["hits"] > 0 for side in sides.values())
    else:
        assert all(side["misses_over_plain"] < 1 for side in sides.values())


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_imports_of_spsample_are_of_what_rooms_name(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert [name for node in ast.walk(tree) for name in behind_faces(node)] == []


def behind_faces(node: ast.AST) -> list[str]:
    """What an import takes from spsample that no room names."""
    if isinstance(node, ast.Import):
        return [name.name for name in node.names if name.name.startswith("spsample.")]
    if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").split(".")[0] != "spsample":
        return []
    room = import_module(node.module)
    above, _, _ = node.module.rpartition(".")
    named = not above or above == "spsample" or hasattr(room, "__path__")
    face = room.__all__ if hasattr(room, "__path__") else dir(room)  # errors are a module
    return [f"{node.module}.{name.name}" for name in node.names if not named or name.name not in face]


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("import spsample as sp", []),
        ("from spsample import Graph", []),
        ("from spsample.sparse import spgemm", []),
        ("from spsample.errors import InputError", []),
        ("from ..case import Case", []),
        ("from spsample.sparse import local", ["spsample.sparse.local"]),
        ("from spsample.sparse.csr import spgemm", ["spsample.sparse.csr.spgemm"]),
        ("import spsample.sparse.csr", ["spsample.sparse.csr"]),
    ],
)
def test_imports_behind_a_face_are_found(line, refused):
    assert behind_faces(ast.parse(line).body[0]) == refused
