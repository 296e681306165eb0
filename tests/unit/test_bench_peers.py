"""The processes of the benchmarks' peers: the protocol, peers that are missing or fail, and what is sampled."""

from __future__ import annotations

import ast
import io
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import spsample as sp
from cases import PEERS, Case, Settings, Side, cases
from graphs import draw_seeds, graph_folder, rmat_arrays, save
from limits import Memory, NoCompilerError
from measuring import Peers, measure, measured, results_of
from peers import spsample_bulk
from peers.memory_use import peak_beyond
from peers.task import Inputs
from process import Peer, PeerFailedError, PeerMissingError, PeerProcess
from worker import Worker, serve

ABSENT = Peer("Absent", "absent_package", "SPSAMPLE_BENCH_ABSENT_PYTHON")
SELF = Peer("spsample", "spsample_bulk")
PEERS_FOLDER = Path(spsample_bulk.__file__).parent


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, object]:
    """A graph and seeds as the peers get them."""
    folder = graph_folder("rmat:8,4", tmp_path / "graphs")
    save(tmp_path / "seeds", seeds=draw_seeds(np.load(folder / "indptr.npy"), batches=3, batch_size=16))
    return {"graph": str(folder), "seeds": str(tmp_path / "seeds" / "seeds.npy"), "threads": 2}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> str:
    """A peer that counts its runs, and one task that fails."""

    def make(inputs: object, options: dict[str, int]):
        runs = iter(range(1, 100))
        return lambda: {"batches": options["batches"], "edges": next(runs)}

    def broken(inputs: object, options: dict[str, int]):
        raise ValueError("no such luck")

    module = types.ModuleType("peers.fake")
    module.PACKAGES, module.TASKS = ("numpy",), {"count": make, "broken": broken}
    monkeypatch.setitem(sys.modules, "peers.fake", module)
    return "fake"


def talk(module: str, *commands: dict[str, object]) -> list[dict]:
    """The greeting and the answers."""
    answers = io.StringIO()
    serve(module, io.StringIO("".join(json.dumps(c) + "\n" for c in commands)), answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_worker_says_its_versions_and_runs_what_was_prepared(fake: str) -> None:
    prepare = {"do": "prepare", "name": "a", "task": "count", "options": {"batches": 4}}
    greeting, ready, first, second = talk(fake, prepare, {"do": "run", "name": "a"}, {"do": "run", "name": "a"})
    assert greeting["versions"]["numpy"] == np.__version__
    assert ready == {}
    assert first["figures"] == {"batches": 4, "edges": 1}
    assert second["figures"]["edges"] == 2
    assert second["seconds"] >= 0 <= second["cpu_seconds"]


def test_errors_of_a_peer_are_answers(fake: str) -> None:
    broken = {"do": "prepare", "name": "a", "task": "broken", "options": {}}
    _, answer, again = talk(fake, broken, {"do": "run", "name": "never prepared"})
    assert answer == {"error": "ValueError: no such luck"}
    assert "never prepared" in again["error"]


def test_dropped_works_are_gone(fake: str) -> None:
    worker = Worker(sys.modules["peers.fake"])
    worker.answer({"do": "prepare", "name": "a", "task": "count", "options": {"batches": 1}})
    assert worker.answer({"do": "drop"}) == {}
    assert "error" in worker.answer({"do": "run", "name": "a"})


def test_a_worker_without_its_packages_says_so() -> None:
    (greeting,) = talk("absent_package", {"do": "drop"})
    assert "absent_package" in greeting["missing"]


def test_a_peer_runs_in_the_interpreter_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPSAMPLE_BENCH_ABSENT_PYTHON", raising=False)
    assert ABSENT.interpreter({}) is None
    assert ABSENT.missing() == "Absent: missing (set SPSAMPLE_BENCH_ABSENT_PYTHON to the Python that has it)"
    monkeypatch.setenv("SPSAMPLE_BENCH_ABSENT_PYTHON", "from-environment")
    assert ABSENT.interpreter({}) == "from-environment"
    assert ABSENT.interpreter({"absent_package": "from-option"}) == "from-option"
    assert SELF.interpreter({}) == sys.executable


@pytest.mark.parametrize("python", [sys.executable, "/no/such/interpreter"])
def test_a_missing_peer_is_named(python: str) -> None:
    with pytest.raises(PeerMissingError, match=r"^Absent: missing \("):
        PeerProcess(ABSENT, python, threads=1)


def test_an_error_in_a_process_is_raised_here(inputs: dict[str, object]) -> None:
    with PeerProcess(SELF, sys.executable, threads=1) as process, pytest.raises(PeerFailedError, match="spsample"):
        process.ask("prepare", name="a", task="no such task", options={})


def test_sides_take_turns_and_missing_peers_are_listed(
    inputs: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPSAMPLE_BENCH_DGL_PYTHON", raising=False)
    own = {"fanouts": [3, 2], "batches": 3, "batch_size": 16}
    case = Case(
        "two",
        "for the test",
        "spsample",
        (
            Side("spsample", "spsample_bulk", "bulk", own),
            Side("one thread", "spsample_bulk", "bulk", {**own, "threads": 1}),
            Side("DGL", "dgl_loader", "blocks", own),
        ),
    )
    with Peers({}, inputs) as peers:
        turns = measure(peers, case, rounds=2, options={})
        results = results_of(peers, case, "rmat:8,4", turns)
    assert {name: len(of_side) for name, of_side in turns.items()} == {"spsample": 2, "one thread": 2}
    assert [r.side for r in results] == ["spsample", "one thread"]
    assert results[0].over_baseline == 1
    assert results[0].figures["edges"] == results[1].figures["edges"] > 0
    assert f"spsample {sp.__version__}" in results[0].version
    assert peers.missing == ["DGL: missing (set SPSAMPLE_BENCH_DGL_PYTHON to the Python that has it)"]


def test_sides_apart_have_a_process_each(inputs: dict[str, object]) -> None:
    own = {"fanouts": [3, 2], "batches": 3, "batch_size": 16}
    sides = tuple(Side(name, "spsample_bulk", "bulk", own) for name in ("one", "two"))
    case = Case("apart", "", "one", sides, apart=True)
    with Peers({}, inputs) as peers:
        turns = measure(peers, case, rounds=1, options={})
        first, second = (peers.get("spsample_bulk", name) for name in turns)
        assert first is not second
        peers.drop_works()
        assert first.has_ended
        assert second.has_ended
        assert [f"spsample {sp.__version__}" in one.version for one in results_of(peers, case, "", turns)] == [True] * 2


def test_a_failing_peer_leaves_the_other_cases_alone(inputs: dict[str, object]) -> None:
    own = {"fanouts": [3], "batches": 3, "batch_size": 16}
    sides = (Side("spsample", "spsample_bulk", "bulk", {**own, "fanouts": ["no fanout"]}),)
    fails = Case("fails", "", "spsample", (), count=Side("lines", "spsample_bulk", "bulk", {**own, "fanouts": []}))
    with Peers({}, inputs) as peers:
        assert measured(peers, Case("bad", "", "spsample", sides), 1, {}) == {}
        assert measured(peers, fails, 1, {}) == {}
        process = peers.get("spsample_bulk")
        process._process.kill()
        with pytest.raises(PeerFailedError, match="ended with status"):
            process.ask("drop")
        assert peers.get("spsample_bulk").ask("drop") == {}
    assert [text.partition(":")[0] for text in peers.missing] == ["bad, spsample", "fails"]


def test_a_side_that_fails_in_its_turn_is_left_out(inputs: dict[str, object]) -> None:
    own = {"fanouts": [3], "batches": 3, "batch_size": 16}
    sides = (
        Side("spsample", "spsample_bulk", "bulk", own),
        Side("fails", "spsample_bulk", "bulk", {**own, "threads": -1}),
    )
    with Peers({}, inputs) as peers:
        turns = measured(peers, Case("turns", "", "spsample", sides), 2, {})
    assert {name: len(of_side) for name, of_side in turns.items()} == {"spsample": 2}
    assert [text.partition(": missing (")[0] for text in peers.missing] == ["turns, fails"]


def test_without_a_compiler_the_limits_are_missing(inputs: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    side = Side("limit", "memory_limits", "copy", {"batches": 1, "bytes": 64, "buffer_bytes": 1 << 20})
    with Peers({}, inputs) as peers:
        assert measured(peers, Case("limits", "", "limit", (side,)), 1, {}) == {}
    assert "limits, limit: missing (memory: NoCompilerError: no C++ compiler" in peers.missing[0]


def test_limits_do_what_they_count() -> None:
    try:
        memory = Memory(1 << 20, threads=2)
    except NoCompilerError as error:
        pytest.skip(str(error))
    memory._buffer[:] = 0
    memory._buffer[: len(memory._buffer) // 2] = 7
    memory.read_random_lines(1000)
    memory.copy(memory._buffer.nbytes // 2)
    assert (memory._buffer == 7).all()


def test_lines_of_a_bulk_are_those_of_its_entries(inputs: dict[str, object]) -> None:
    given = Inputs(Path(inputs["graph"]), Path(inputs["seeds"]), threads=2)
    options = {"fanouts": [3, 2], "batches": 3, "batch_size": 16}
    figures = spsample_bulk.count_lines(given, options)()
    graph = sp.Graph(given.indptr, given.indices)
    bulk = sp.bulk_sample(
        graph, given.seeds(options).ravel(), sp.GraphSAGE([3, 2]), batch_size=16, epoch=1, edge_ids=True
    )
    expected = 0
    for layer in (layer for minibatch in bulk for layer in minibatch.layers):
        for i, v in enumerate(layer.dst_nodes.tolist()):
            drawn = layer.edge_ids[layer.adj.indptr[i] : layer.adj.indptr[i + 1]]
            expected += len({v // 8, (v + 1) // 8}) + len({position // 16 for position in drawn.tolist()})
    assert figures["lines"] == expected
    assert 0 < figures["lines_per_layer"] < expected


def test_every_case_names_tasks_that_exist() -> None:
    for case in cases(Settings()).values():
        assert case.baseline in {side.name for side in case.sides}
        for side in (*case.sides, *filter(None, [case.count])):
            assert side.peer in PEERS
            assert side.task in tasks_of(side.peer)


def tasks_of(module: str) -> set[str]:
    """The keys of its TASKS, by its source: other libraries' modules cannot be imported here."""
    for node in ast.parse((PEERS_FOLDER / f"{module}.py").read_text("utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TASKS" and isinstance(node.value, ast.Dict):
            return {ast.literal_eval(key) for key in node.value.keys if key is not None}
    raise AssertionError(f"{module}: no TASKS")


def test_generated_graphs_are_those_of_load_dataset() -> None:
    graph = sp.load_dataset("rmat:9,6").graph
    indptr, indices = rmat_arrays(9, 6)
    np.testing.assert_array_equal(indptr, graph.indptr)
    np.testing.assert_array_equal(indices, graph.indices)
    assert (indptr.dtype, indices.dtype) == (graph.indptr.dtype, graph.indices.dtype)


def test_a_cached_graph_is_read_again(tmp_path: Path) -> None:
    folder = graph_folder("planted:200,4", tmp_path)
    marked = (folder / "indices.npy").stat().st_mtime_ns
    assert graph_folder("planted:200,4", tmp_path) == folder
    assert (folder / "indices.npy").stat().st_mtime_ns == marked
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_seeds_are_distinct_within_a_batch_and_have_neighbours() -> None:
    indptr = np.array([0, 1, 1, 2, 4, 5, 5])
    seeds = draw_seeds(indptr, batches=50, batch_size=3)
    assert seeds.shape == (50, 3)
    assert all(len(np.unique(batch)) == 3 for batch in seeds)
    assert set(seeds.ravel().tolist()) == {0, 2, 3, 4}
    assert draw_seeds(indptr, batches=1, batch_size=16).shape == (1, 4)


def test_peak_memory_counts_what_was_freed_within_the_call() -> None:
    def call() -> int:
        return len(np.ones(1 << 26, np.uint8)) and 7

    peak, result = peak_beyond(call)
    assert result == 7
    assert peak > 60 << 20
