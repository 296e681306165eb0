"""The measurements on a GPU, as far as they go without one: graphs, the composition, models of bytes, reports."""

from __future__ import annotations

import ctypes
import json
import subprocess
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from emulated_device import EmulatedDevice
from needs import COMPILER, require
from rich.console import Console
from typer.testing import CliRunner

import spsample as sp
from cases import PEERS
from gpu import bytes_moved, rmat, summary
from gpu.cases import LIMIT, OURS, Settings, layerwise_cases, sampling_cases
from gpu.composition import Composition, Library
from gpu.features import gather_works, source_nodes
from gpu.machine import folder_of, gpu_facts
from gpu.turns import HostEvent, results_of, take_turns, timed
from gpu.zero_copy import bulk_works, require_equal_edges, rmat_sizes
from gpu.zero_copy import side_name as entries_name
from graphs import draw_seeds, graph_folder, rmat_arrays
from report import Turn
from spsample.backends.cuda.backend import CudaKernels
from spsample.data.philox import PhiloxStream
from spsample.data.rmat import rmat_piece

LIBRARY = Library(np, scipy.sparse)


def turn(seconds: float, **figures: float) -> Turn:
    return Turn(seconds, 0.0, {"batches": 2, **figures})


# --- graphs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "factor", "most"), [(8, 4, 1 << 28), (8, 4, 100), (13, 3, 3000), (1, 1, 1)])
def test_rmat_in_pieces_is_the_data_set(scale: int, factor: int, most: int) -> None:
    indptr, indices = rmat_arrays(scale, factor)
    made = rmat.rmat_csr(scale, factor, rmat.host_pairs(), most_entries=most)
    np.testing.assert_array_equal(made.indptr, indptr)
    np.testing.assert_array_equal(made.indices, indices)
    assert (made.indptr.dtype, made.indices.dtype) == (np.int64, np.int32)


def test_ranges_of_rows_are_bounded_and_whole() -> None:
    counts = np.array([5, 5, 9, 0, 1, 1, 30, 2])
    ranges = list(rmat._ranges(counts, 6, 10))
    assert [(rows.start, rows.stop) for rows, _ in ranges] == [(0, 16), (16, 40), (40, 48), (48, 56), (56, 64)]
    assert [count for _, count in ranges] == [10, 10, 1, 30, 2]


@pytest.fixture(scope="module")
def device_pairs(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The code of the elementwise kernel, compiled for the host."""
    require("c++")
    folder = tmp_path_factory.mktemp("rmat")
    (folder / "pairs.cpp").write_text(
        "#define __device__\n"
        "static unsigned long long __umul64hi(unsigned long long a, unsigned long long b)\n"
        "{ return (unsigned long long)(((unsigned __int128)a * b) >> 64); }\n"
        + rmat.device_code()
        + 'extern "C" void pairs(long long first, long long count, long long total, long long scale, unsigned long long'
        " key0, unsigned long long key1, long long* from, long long* to)\n"
        "{ for (long long i = 0; i < count; ++i) rmat_pair(first + i, total, scale, key0, key1, from[i], to[i]); }\n"
    )
    command = [COMPILER, "-O2", "-shared", "-fPIC", str(folder / "pairs.cpp"), "-o", str(folder / "pairs.so")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "pairs.so"))


@pytest.mark.parametrize("first", [0, 17, (1 << 22) - 40, 1 << 22])
@pytest.mark.parametrize("seed", [0, 5])
def test_pairs_of_the_device_are_those_of_the_host(device_pairs: ctypes.CDLL, first: int, seed: int) -> None:
    total, scale, count = (1 << 22) + 1003, 27, 97
    made = np.empty((2, count), np.int64)
    numbers = [ctypes.c_longlong(x) for x in (first, count, total, scale)]
    keys = [ctypes.c_ulonglong(int(x)) for x in rmat.philox_key(seed)]
    device_pairs.pairs(*numbers, *keys, *(row.ctypes.data_as(ctypes.c_void_p) for row in made))
    expected = rmat_piece(scale, total, slice(first, first + count), PhiloxStream(seed))
    np.testing.assert_array_equal(made, np.stack(expected))


def test_without_a_gpu_graphs_are_made_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.machine.has_gpu", lambda: False)
    folder = folder_of("rmat:6,4", tmp_path)
    assert folder == graph_folder("rmat:6,4", tmp_path)
    assert len(np.load(folder / "indptr.npy")) == 65
    assert gpu_facts(1)["gpu"] is None


@pytest.mark.parametrize("spec", ["rmat:8", "rmat:8,x", "cora", "rmat:8,4,2"])
def test_only_rmat_sizes_are_made_on_the_device(spec: str) -> None:
    assert rmat_sizes("rmat:27,6") == (27, 6)
    with pytest.raises(Exception, match="SCALE,EDGE_FACTOR"):
        rmat_sizes(spec)


# --- the composition --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> tuple[np.ndarray, np.ndarray]:
    return rmat_arrays(9, 6)


def composition(graph: tuple, weighted: bool = False, most_entries: int = 500) -> Composition:
    weights = np.random.default_rng(0).exponential(size=len(graph[1])).astype(np.float32) if weighted else None
    return Composition(LIBRARY, (*graph, weights), random_seed=1, most_entries=most_entries)


def sources_of(layer) -> np.ndarray:
    """The source vertex of each entry."""
    return layer.sources[layer.source_ptr[layer.row_batch[layer.entry_rows]] + layer.columns]


def check_layer(graph: tuple, layer, seeds_per_batch: np.ndarray) -> None:
    """Entries are distinct ones of A, in order; sources of each batch ascend, and hold its targets."""
    indptr, indices = graph
    n = len(indptr) - 1
    rows, columns = layer.rows[layer.entry_rows], sources_of(layer)
    entries = np.repeat(np.arange(n), np.diff(indptr)) * n + indices
    assert np.isin(rows * n + columns, entries).all()
    assert (np.diff(layer.entry_rows) >= 0).all()
    assert len(np.unique(layer.entry_rows * n + columns)) == layer.nnz
    for i in range(len(seeds_per_batch)):
        sources = layer.sources[layer.source_ptr[i] : layer.source_ptr[i + 1]]
        assert (np.diff(sources) > 0).all()
        assert np.isin(layer.rows[layer.row_batch == i], sources).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_composed_graphsage(graph: tuple, weighted: bool) -> None:
    seeds, fanouts = draw_seeds(graph[0], 5, 20), [6, 4, 3]
    layers = composition(graph, weighted).graphsage(seeds, fanouts)
    for layer, fanout in zip(layers, fanouts, strict=True):
        check_layer(graph, layer, seeds)
        drawn = np.bincount(layer.entry_rows, minlength=len(layer.rows))
        np.testing.assert_array_equal(drawn, np.minimum(np.diff(graph[0])[layer.rows], fanout))
    np.testing.assert_array_equal(layers[0].rows, np.sort(seeds, axis=1).ravel())
    np.testing.assert_array_equal(layers[1].rows, layers[0].sources)


def test_composed_ladies(graph: tuple) -> None:
    seeds, sizes = draw_seeds(graph[0], 4, 20), [12, 9]
    layers = composition(graph).ladies(seeds, sizes)
    indptr, indices = graph
    A = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr))
    for layer, size in zip(layers, sizes, strict=True):
        check_layer(graph, layer, seeds)
        for i in range(len(seeds)):
            targets = layer.rows[layer.row_batch == i]
            sources = layer.sources[layer.source_ptr[i] : layer.source_ptr[i + 1]]
            of_batch = layer.row_batch[layer.entry_rows] == i
            assert of_batch.sum() == A[targets][:, sources].nnz  # every entry in these rows and columns
            assert len(sources) <= len(targets) + size
            counts = np.asarray(A[targets].sum(axis=0)).ravel()
            new = ~np.isin(sources_of(layer)[of_batch], targets)
            weights = counts.sum() / (size * counts[sources_of(layer)[of_batch]])
            np.testing.assert_allclose(layer.values[of_batch][new], weights[new], rtol=1e-5)


def test_the_composition_draws_by_weight(graph: tuple) -> None:
    """One draw of one row, many times, by inverse transform sampling and by the smallest variates alike."""
    made = composition(graph)
    indptr, weights = np.array([0, 4]), np.array([1.0, 2.0, 3.0, 4.0])
    rows = np.arange(20_001) * 4
    many = np.tile(weights, 20_000)
    drawn = made._its(rows, many, 1) % 4
    assert np.abs(np.bincount(drawn, minlength=4) / 20_000 - weights / 10).max() < 0.015
    rest = made._smallest(rows, many, np.zeros(0, np.int64), np.ones(20_000, np.int64)) % 4
    assert np.abs(np.bincount(rest, minlength=4) / 20_000 - weights / 10).max() < 0.015
    assert made._its(indptr, weights, 3).size == 3


def test_rows_are_cut_where_a_product_would_be_too_large(graph: tuple) -> None:
    made, frontier = composition(graph, most_entries=300), np.arange(512)
    pieces = list(made._pieces(frontier))
    degrees = np.diff(graph[0])
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].stop) == (0, 512)
    assert all(degrees[piece].sum() <= 300 + degrees[piece.start] for piece in pieces)


# --- models of bytes --------------------------------------------------------------------------------------------------


def layer_of(rows: list, sources: list, ends: list, positions: list, data: np.ndarray | None = None) -> SimpleNamespace:
    adj = SimpleNamespace(indptr=np.array(ends), nnz=len(positions), data=data)
    arrays = {"dst_nodes": np.array(rows, np.int32), "src_nodes": np.array(sources, np.int32)}
    return SimpleNamespace(adj=adj, edge_ids=np.array(positions, np.int64), **arrays)


def test_bytes_of_node_wise_layers() -> None:
    layer = layer_of([0, 1], [0, 1, 2], [0, 2, 3], [1, 17, 20])
    sectors = 1 + 1 + 2 + 1  # the ends of both rows, two sectors of row 0, one of row 1
    assert bytes_moved.node_wise_bytes(layer) == 32 * sectors + 4 * (2 + 3 * 3 + 3) + 8 * 3
    weights = 2 + 1  # as the columns; in doubles entries 1, 17 and 20 lie in a sector each, too
    assert bytes_moved.node_wise_bytes(layer, 4) == 32 * (sectors + weights) + 4 * 14 + 4 * 3 + 24
    assert bytes_moved.node_wise_bytes(layer, 8) == 32 * (sectors + weights) + 4 * 14 + 8 * 3 + 24


def test_bytes_of_layer_wise_layers() -> None:
    indptr = np.array([0, 20, 21, 21])
    layer = layer_of([0, 1], [0, 1, 2], [0, 1, 2], [1, 20], np.ones(2, np.float32))
    sectors = 2 * 2 + 1 + (3 + 1)
    assert bytes_moved.layer_wise_bytes(layer, indptr) == 32 * sectors + 4 * (2 + 1 + 3) + 2 * 8 + 8 * 3


def test_whole_rows_of_no_entries_take_no_sectors() -> None:
    assert bytes_moved.whole_row_sectors(np.array([1, 2], np.int32), np.array([0, 20, 20, 20]), 4) == 0


@pytest.mark.parametrize("options", [{}, {"graph": "exponential"}, {"method": "LADIES"}])
def test_bytes_of_a_bulk(graph: tuple, options: dict) -> None:
    sampler = sp.LADIES([16, 16]) if options.get("method") else sp.GraphSAGE([3, 2])
    bulk = sp.bulk_sample(sp.Graph(*graph), draw_seeds(graph[0], 1, 20)[0], sampler, batch_size=10, edge_ids=True)
    moved = [bytes_moved.bytes_of_minibatch(minibatch, graph[0], options) for minibatch in bulk]
    assert min(moved) > 8 * bulk.num_edges / len(bulk)


# --- turns and reports ------------------------------------------------------------------------------------------------


def test_cases_name_peers_that_are_known() -> None:
    settings = Settings(batches=3, few_batches=7)
    cases = {**sampling_cases(settings), **layerwise_cases(settings)}
    assert set(cases) == {"unweighted", "weighted", "ladies"}
    for case in cases.values():
        names = [side.name for side in case.sides]
        assert case.baseline in names
        assert {OURS, LIMIT} <= set(names)
        assert all(side.peer in PEERS for side in (*case.sides, case.count))
        assert all(side.options["batches"] == 3 for side in case.sides)


def test_works_are_timed_by_events_and_take_turns() -> None:
    order: list[str] = []

    def work(name: str):
        return timed(lambda: order.append(name) or {"batches": 2, "rows": len(order)}, HostEvent)

    turns = take_turns({"a": work("a"), "b": work("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert [turn.figures["rows"] for turn in turns["b"]] == [4, 6]
    assert all(turn.seconds >= 0 for turn in turns["a"])
    results = results_of("g", "c", turns, baseline="a", peers={"": ("spsample cuda", "1"), "b": ("torch", "2")})
    assert [(result.side, result.peer, result.version) for result in results] == [
        ("a", "spsample cuda", "1"),
        ("b", "torch", "2"),
    ]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A file of results as a run on a GPU writes it."""
    turns = {
        OURS: [turn(1.0, edges=8.0), turn(2.0, edges=8.0)],
        "WholeGraph": [turn(3.0, edges=8.0), turn(4.0, edges=8.0)],
        "cuSPARSE composition": [turn(5.0, edges=8.0), turn(30.0, edges=8.0)],
        LIMIT: [turn(0.5, bytes=64.0), turn(0.8, bytes=64.0)],
    }
    peers = {"": ("spsample cuda", "1"), LIMIT: ("memory", "1")}
    results = results_of("g", "unweighted", turns, baseline="WholeGraph", peers=peers)
    path = tmp_path / "gpu-sampling.jsonl"
    summary.write(path, {"gpu": None}, results, summary.ratios_of("g", "unweighted", OURS, turns), ["a peer"])
    return path


def test_recorded_results_are_read_and_judged(recorded: Path) -> None:
    records = summary.read(recorded)
    assert [record["kind"] for record in records] == ["machine", "missing", *["result"] * 4, *["ratio"] * 3]
    assert summary.verdicts(records) == [
        "missing: a peer",
        "unweighted: 2.5 times as fast as WholeGraph (goal 2: reached)",
        "unweighted: 10 times as fast as cuSPARSE composition (goal 10: reached)",
        "unweighted: 45.0% of the limit, the time to copy the bytes that must move",
    ]


def test_the_table_of_recorded_results(recorded: Path) -> None:
    console = Console(width=160, record=True)
    console.print(summary.summary_table(summary.read(recorded)))
    ours = next(line for line in console.export_text().splitlines() if OURS in line and "unweighted" in line)
    cells = [cell.strip() for cell in ours.split("│")[1:-1]]
    assert cells == ["unweighted", OURS, "750", "5.333e-06", "", "8", "4.267e-08"]


def test_commands_are_understood(recorded: Path) -> None:
    run = _run_module()
    runner = CliRunner()
    for name in ("sampling", "layerwise", "zero-copy", "epoch", "features", "all", "report"):
        assert runner.invoke(run.app, [name, "--help"]).exit_code == 0
    said = runner.invoke(run.app, ["report", str(recorded)])
    assert said.exit_code == 0
    assert "goal 10: reached" in said.output
    assert runner.invoke(run.app, ["sampling", "--case", "none"]).exit_code == 2
    assert runner.invoke(run.app, ["zero-copy", "--graph", "cora"]).exit_code != 0


def _run_module():
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(rmat.__file__).with_name("run.py")
    spec = spec_from_file_location("gpu_run", path)
    assert spec is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_sampling_without_a_gpu_measures_the_host_and_names_what_is_missing(tmp_path: Path) -> None:
    if gpu_facts(1)["gpu"] is not None:
        pytest.skip("there is a GPU")
    options = ["--graph", "rmat:8,4", "--batches", "2", "--batch-size", "16", "--rounds", "1", "--out", str(tmp_path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a plot of one bar
        said = CliRunner().invoke(_run_module().app, ["sampling", "--case", "unweighted", *options])
    assert said.exit_code == 0, said.output
    records = [json.loads(line) for line in (tmp_path / "gpu-sampling.jsonl").read_text().splitlines()]
    assert [record["side"] for record in records if record["kind"] == "result"] == ["spsample cpu"]
    assert any("WholeGraph" in record["what"] for record in records if record["kind"] == "missing")


# --- works on the host ------------------------------------------------------------------------------------------------


def test_bulks_of_several_forms_draw_the_same(graph: tuple) -> None:
    graphs = {"one": sp.Graph(*graph), "other": sp.Graph(*graph)}
    seeds = draw_seeds(graph[0], 3, 10)
    turns = take_turns(bulk_works(graphs, seeds, sp.GraphSAGE([3, 2]), "cpu", HostEvent), rounds=2)
    require_equal_edges(turns)
    assert turns["one"][0].figures["batches"] == 3
    turns["other"][1].figures["edges"] += 1
    with pytest.raises(RuntimeError, match="differ by where"):
        require_equal_edges(turns)


def test_warps_that_registers_and_shared_memory_allow() -> None:
    registers = pytest.importorskip("gpu.registers")
    kernel = registers.KernelReport("k", 32, 0, 0, 0, 0)
    assert registers.resident_warps(kernel, "sm_90") == 64
    assert registers.resident_warps(kernel._replace(registers=52), "sm_90") == 32
    assert registers.resident_warps(kernel._replace(shared=24704), "sm_80") == 48


def test_names_of_where_entries_lie() -> None:
    assert entries_name(0.0) == "entries on the host"
    assert entries_name(0.2) == "on the host, 20% cached"


def test_rows_that_are_gathered_are_counted(graph: tuple) -> None:
    ids = source_nodes(sp.Graph(*graph), draw_seeds(graph[0], 2, 5), "cpu")
    x = np.ones((512, 7), np.float32)
    turns = take_turns(gather_works({"take": x.__getitem__}, ids, 7, HostEvent), rounds=1)
    rows = sum(map(len, ids))
    assert turns["take"][0].figures == {"batches": 2, "rows": rows, "bytes": rows * (4 + 56)}


def test_an_epoch_by_phases(graph: tuple) -> None:
    torch = pytest.importorskip("torch")
    epoch = pytest.importorskip("gpu.epoch")
    task = epoch.Task.random(512, 6, draw_seeds(graph[0], 1, 60)[0], classes=3)
    settings = epoch.Settings(batch_size=16, bulk_size=2, hidden=8, fanouts=(3, 2))
    places = epoch.Places(sp.Graph(*graph), sp.FeatureStore(task.x), sp.Graph(*graph), torch.device("cpu"))
    run = epoch.Run(places, task, settings)
    turns = run.round()
    assert set(turns) == {
        "sampling",
        "features",
        "training",
        epoch.WHOLE,
        epoch.AHEAD,
        epoch.COPIED,
        epoch.COPIED_AHEAD,
    }
    assert all(turn.figures["batches"] == 4 for turn in turns.values())
    parts = turns["training"].seconds
    assert 0 < parts <= turns[epoch.WHOLE].seconds
    results = results_of(
        "g",
        "epoch",
        {name: [turn] for name, turn in turns.items()},
        baseline=epoch.WHOLE,
        peers={"": ("spsample cuda", "1")},
    )
    assert epoch.verdict(results).startswith("sampling takes")


def test_blocks_take_the_mean(graph: tuple) -> None:
    torch = pytest.importorskip("torch")
    epoch = pytest.importorskip("gpu.epoch")
    blocks = pytest.importorskip("spsample.training.blocks")
    bulk = sp.bulk_sample(sp.Graph(*graph), [1, 2, 3], sp.GraphSAGE([3]), batch_size=3)
    layer = bulk[0].layers[0]
    expected = blocks.mean_block(layer.adj)
    made = epoch.block_of(layer, torch.device("cpu"))
    h = torch.randn(expected.num_src, 4)
    torch.testing.assert_close(made.aggregate(h), expected.aggregate(h))


# --- kernels of a bulk ------------------------------------------------------------------------------------------------


@pytest.mark.needs("c++")
def test_launches_of_a_bulk_are_timed_and_joined() -> None:
    kernel_times = pytest.importorskip("gpu.kernel_times")
    device = EmulatedDevice()
    kernels = CudaKernels(device)
    shuffled = partial(kernels.shuffle, 100, (1, 2))

    def work() -> None:
        shuffled()
        shuffled()

    found = kernel_times.launches_of(device, HostEvent, work)
    assert [(one.kernel, one.launches, one.work) for one in found] == [("shuffle_words", 2, 200)]
    assert found[0].milliseconds > 0
    assert device.launches == 2
    shuffled()
    assert device.launches == 3  # the device is as it was


def test_kernels_are_reported_slowest_first(tmp_path: Path) -> None:
    kernel_times = pytest.importorskip("gpu.kernel_times")
    found = kernel_times.joined([("a", 5, 1.0), ("b", 7, 2.5), ("a", 5, 1.0)])
    assert found == [kernel_times.Launches("b", 1, 7, 2.5), kernel_times.Launches("a", 2, 10, 2.0)]
    graph = sp.load_dataset("rmat:8,6").graph
    settled = []
    times = kernel_times.bulk_times(
        lambda epoch: sp.bulk_sample(graph, np.arange(32), sp.GraphSAGE([3]), batch_size=8, epoch=epoch),
        range(3),
        lambda: settled.append(1),
    )
    assert len(times) == 3
    assert len(settled) == 6
    assert all(0 < one.host_milliseconds <= one.milliseconds and one.edges > 0 for one in times)
    kernel_times.write(tmp_path / "new" / "kernels.jsonl", times, found)
    records = summary.read(tmp_path / "new" / "kernels.jsonl")
    assert [record["kind"] for record in records] == ["machine", "bulk", "bulk", "bulk", "kernel", "kernel"]
    console = Console(record=True, width=100)
    kernel_times.show(times, found, console)
    assert "4.50 ms in kernels" in console.export_text()


def test_without_a_gpu_the_kernels_are_not_timed() -> None:
    run = pytest.importorskip("gpu.run")
    if gpu_facts(1)["gpu"] is not None:
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(run.app, ["kernels"])
    assert done.exit_code != 0
    assert "there is no GPU here" in done.output
    assert "is none of uniform" in CliRunner().invoke(run.app, ["kernels", "--case", "other"]).output
