"""Partitions: which vertices go together, how even the parts are, the command, and who takes its file."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import (
    PartitionQuality,
    metis_partition,
    partition_quality,
    partition_vertices,
    planted,
)
from spsample.data.part_stores import Reach
from spsample.data.partition import METHODS
from spsample.errors import BackendError, CapacityError, DTypeError, InputError

GROUPS, SIZE = 3, 40


def communities():
    """Three cliques in a ring, their vertices in random order: (graph, clique of each vertex)."""
    clique = np.random.default_rng(0).permutation(np.repeat(np.arange(GROUPS), SIZE))
    pairs = [(a, b) for g in range(GROUPS) for a in np.flatnonzero(clique == g) for b in np.flatnonzero(clique == g)]
    first = [int(np.flatnonzero(clique == g)[0]) for g in range(GROUPS)]
    pairs += list(zip(first, first[1:] + first[:1], strict=True))
    edges = np.array([pair for pair in pairs if pair[0] != pair[1]]).T
    return sp.Graph.from_edge_index(edges, num_nodes=len(clique)), clique


def test_communities_are_found():
    pytest.importorskip("pymetis")
    graph, clique = communities()
    parts = metis_partition(graph, GROUPS)
    assert parts.dtype == np.int32
    assert len(np.unique(np.stack([parts, clique]), axis=1).T) == GROUPS  # one part is one clique
    quality = partition_quality(graph, parts, GROUPS)
    assert quality == PartitionQuality(quality.largest, 3 / graph.num_edges, 0)
    assert quality.largest < 1.01


def test_a_part_has_its_share_of_rows_and_entries():
    pytest.importorskip("pymetis")
    graph = sp.load_dataset("rmat:12,8").graph  # degrees from 0 to many
    for number in (2, 5, 8):
        parts = metis_partition(graph, number)
        quality = partition_quality(graph, parts, number)
        assert quality.largest < 1.05
        assert quality.empty == 0
        assert quality.cut < partition_quality(graph, np.arange(graph.num_nodes) % number, number).cut


@pytest.mark.parametrize(("num_nodes", "num_parts"), [(1, 3), (3, 3), (40, 3), (64, 63)])
def test_small_graphs_are_cut_in_ranges(num_nodes, num_parts):
    pytest.importorskip("pymetis")
    graph = sp.Graph(np.arange(num_nodes + 1), np.roll(np.arange(num_nodes), 1))
    parts = metis_partition(graph, num_parts)
    assert (np.diff(parts) >= 0).all()
    assert partition_quality(graph, parts, num_parts).empty == max(num_parts - num_nodes, 0)


def test_loops_isolated_vertices_and_weights_do_not_matter():
    pytest.importorskip("pymetis")
    graph, _ = communities()
    expected = metis_partition(graph, GROUPS, random_seed=3)
    target = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = np.stack([graph.indices, target])
    loops = np.tile(np.arange(graph.num_nodes), (2, 1))
    weighted = sp.Graph.from_edge_index(edges, num_nodes=graph.num_nodes, edge_weight=np.arange(edges.shape[1]) + 1.0)
    assert metis_partition(weighted, GROUPS, random_seed=3).tolist() == expected.tolist()
    looped = sp.Graph.from_edge_index(np.hstack([edges, loops]), num_nodes=graph.num_nodes + 30)
    parts = metis_partition(looped, GROUPS, random_seed=3)
    assert partition_quality(looped, parts, GROUPS).cut == 3 / looped.num_edges


def test_what_metis_prints_is_no_result(capfd):
    import ctypes

    from spsample.data.partition import _stdout_to_stderr

    with _stdout_to_stderr():
        ctypes.CDLL(None).puts(b"***Cannot bisect a graph with 0 vertices!")
    print("{}")
    told = capfd.readouterr()
    assert told.out == "{}\n"
    assert "Cannot bisect" in told.err


@pytest.mark.parametrize("num_parts", [0, 2**20 + 1])
def test_numbers_of_parts_that_are_refused(num_parts):
    pytest.importorskip("pymetis")
    with pytest.raises(InputError, match=f"num_parts: got {num_parts}"):
        metis_partition(sp.Graph([0, 1, 2], [1, 0]), num_parts)


@pytest.mark.parametrize(
    "parts", [np.zeros(3, int), [0.0, 1.0], [0, 2], [-1, 0], np.array([0, 2**63], np.uint64), "01", [[0, 1]]]
)
def test_what_is_no_partition(parts):
    with pytest.raises(InputError, match="parts: got"):
        partition_quality(sp.Graph([0, 1, 2], [1, 0]), parts, 2)


def test_a_graph_is_wanted():
    pytest.importorskip("pymetis")
    with pytest.raises(DTypeError, match="graph: got a str"):
        metis_partition("cora", 2)


METHOD_NAMES = ["metis", "metis-seeds", "pagraph", "ldg", "ranges", "random"]


def test_methods_by_name():
    assert list(METHODS) == METHOD_NAMES


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_every_vertex_has_a_part(method, num_parts):
    if method.startswith("metis"):
        pytest.importorskip("pymetis")
    graph = sp.load_dataset("rmat:10,8").graph
    train = np.random.default_rng(0).choice(graph.num_nodes, 500, replace=False)
    made = [partition_vertices(graph, num_parts, method, seeds=train, hops=2, random_seed=3) for _ in range(2)]
    assert made[0].dtype == np.int32
    assert made[0].shape == (graph.num_nodes,)
    assert made[0].tolist() == made[1].tolist()
    assert set(made[0]) == set(range(num_parts))
    counts = np.bincount(made[0][train], minlength=num_parts)
    if method in ("pagraph", "ranges", "random"):
        assert counts.max() - counts.min() <= 1
    if method == "metis-seeds":
        assert counts.max() <= 1.005 * counts.mean() + 2


def test_metis_on_seeds_finds_communities_too():
    pytest.importorskip("pymetis")
    graph, clique = communities()
    parts = partition_vertices(graph, GROUPS, "metis-seeds", seeds=np.arange(graph.num_nodes))
    assert len(np.unique(np.stack([parts, clique]), axis=1).T) == GROUPS


def test_pagraph_depends_on_the_set_of_seeds_alone():
    graph = sp.load_dataset("rmat:9,8").graph
    given, turned = [5, 9, 200, 31], [31, 5, 200, 5, 9]
    first, second = (partition_vertices(graph, 2, "pagraph", seeds=one, hops=1) for one in (given, turned))
    assert first.tolist() == second.tolist()
    assert any(
        partition_vertices(graph, 2, "pagraph", seeds=given, hops=1, random_seed=seed).tolist() != first.tolist()
        for seed in range(1, 9)
    )


def test_pagraph_puts_what_is_shared_together():
    graph, _ = communities()
    train = np.arange(graph.num_nodes)
    parts = partition_vertices(graph, GROUPS, "pagraph", seeds=train, hops=1)
    found, chance = (
        partition_quality(graph, one, GROUPS, seeds=train, hops=1).replication
        for one in (parts, partition_vertices(graph, GROUPS, "random", seeds=train))
    )
    assert found < chance == 3.0


def test_vertices_that_few_parts_need_go_to_one_that_needs_them():
    graph = sp.load_dataset("rmat:10,4").graph
    train = np.random.default_rng(1).choice(graph.num_nodes, 40, replace=False)
    parts = partition_vertices(graph, 4, "pagraph", seeds=train, hops=1)
    needed = np.zeros((4, graph.num_nodes), bool)
    for part in range(4):
        needed[part, Reach(graph, train[parts[train] == part], 1).vertices] = True
    vertices = np.flatnonzero(needed.any(axis=0))
    assert needed[parts[vertices], vertices].all()
    assert partition_quality(graph, parts, 4).largest < 1.05


def test_pagraph_refuses_parts_that_no_memory_holds(monkeypatch):
    monkeypatch.setattr("spsample.data.partition.available_memory", lambda: 99)
    with pytest.raises(CapacityError, match="num_parts: got 4 parts of 200 vertices"):
        partition_vertices(sp.Graph([0] * 201, []), 4, "pagraph", seeds=range(8), hops=1)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_quality_is_what_sets_say(hops):
    graph = sp.load_dataset("rmat:7,2").graph
    rng = np.random.default_rng(hops)
    train, parts = rng.choice(graph.num_nodes, 20, replace=False), rng.integers(0, 3, graph.num_nodes)
    copies, entries = 0, 0
    everywhere = set()
    for part in range(3):
        inner, needed = set(), {int(v) for v in train if parts[v] == part}
        for _ in range(hops):
            inner = set(needed)
            needed |= {int(u) for v in inner for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]}
        everywhere |= needed
        copies += len(needed)
        entries += sum(int(graph.indptr[v + 1] - graph.indptr[v]) for v in inner)
    quality = partition_quality(graph, parts, 3, seeds=train, hops=hops)
    assert quality.replication == copies / len(everywhere)
    assert quality.edges_kept == entries / (3 * graph.num_edges)
    assert quality.train_balance == np.bincount(parts[train], minlength=3).max() * 3 / 20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_parts": 0}, "num_parts: got 0"),
        ({"num_parts": 5}, "num_parts: got 5; expected at most 4, the number of train vertices"),
        ({"seeds": [0, 9]}, "seeds: got 9 at position 1"),
        ({"seeds": [-1]}, "seeds: got -1 at position 0"),
        ({"seeds": []}, "seeds: got no vertex"),
        ({"seeds": None}, "seeds: got nothing"),
        ({"hops": 0}, "hops: got 0"),
        ({"hops": None}, "hops: got nothing"),
        ({"method": "best"}, "method: got 'best'"),
        ({"random_seed": -1}, "random_seed: got -1"),
    ],
)
def test_what_partition_vertices_refuses(options, told):
    graph = sp.Graph(range(7), [5, 0, 1, 2, 3, 4])
    given = {"num_parts": 2, "method": "pagraph", "seeds": [0, 2, 3, 5], "hops": 1, **options}
    with pytest.raises(InputError, match=told):
        partition_vertices(graph, **given)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hops": 1}, "seeds: got nothing"),
        ({"seeds": [2]}, "seeds: got 2"),
        ({"seeds": [0], "hops": -1}, "hops: got -1"),
    ],
)
def test_what_quality_refuses(options, told):
    with pytest.raises(InputError, match=told):
        partition_quality(sp.Graph([0, 1, 2], [1, 0]), [0, 1], 2, **options)


def run(*words):
    return CliRunner().invoke(app, ["partition", *map(str, words)])


def test_the_command(tmp_path):
    pytest.importorskip("pymetis")
    out = tmp_path / "parts.npy"
    done = run("planted:300", "--parts", 4, "--out", out, "--json")
    assert done.exit_code == 0
    told = json.loads(done.output)
    parts = np.load(out)
    whole = planted(300)
    quality = partition_quality(whole.graph, parts, 4, seeds=whole.train_idx)
    assert told == {"parts": 4, "method": "metis", "file": str(out), "stores": [], **quality._asdict()}
    assert run("planted:300", "--parts", 4, "--out", out).exit_code == 2  # it is there
    done = run("planted:300", "--parts", 2, "--out", out, "--overwrite")
    assert done.exit_code == 0
    assert "300 vertices in 2 parts" in done.output
    assert set(np.load(out)) == {0, 1}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--parts", 0, "--out", "p.npy"), "--parts: got 0"),
        (("--parts", 2), "--out: got nothing"),
        (("--parts", 2, "--out", "p.npy", "--method", "x"), "--method: got 'x'"),
        (("--parts", 2, "--out", "p.npy", "--method", "pagraph"), "--hops: got nothing"),
        (("--parts", 2, "--out", "p.npy", "--method", "pagraph", "--hops", 0), "--hops: got 0"),
        (("--parts", 181, "--out", "p.npy"), "--parts: got 181; expected at most 180"),
        (("--parts", 2, "--stores", "s"), "--hops: got nothing"),
        (("--parts", 2, "--stores", "s", "--hops", 2, "--seeds", "test"), "--seeds: got 'test'"),
        (("--parts", 2, "--stores", "s", "--hops", 2, "--seeds", "all", "--evaluation"), "--evaluation: got"),
        (("--parts", 2, "--stores", "/proc/no/s", "--hops", 2), "/proc/no/s"),
        (("--parts", 2, "--out", "p.txt"), "--out: got p.txt"),
        (("--parts", 2, "--out", "none/p.npy"), "--out: got none/p.npy; expected a file in a folder"),
        (("--parts", 3_000_000_000, "--out", "p.npy"), "--parts: got 3000000000"),
    ],
)
def test_what_the_command_refuses(words, told, tmp_path, monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.chdir(tmp_path)
    done = run("planted:300", *words)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["tolokers", "musae_facebook", "topo_cnr2000"])
def test_pagraph_on_real_graphs(name, data_dir):
    data = sp.load_dataset(str(data_dir / f"{name}.npz"))
    with_neighbours = np.flatnonzero(data.graph.in_degrees())
    train = data.train_idx if len(data.train_idx) else with_neighbours[::10]
    found = {}
    for method in ("pagraph", "random"):
        parts = partition_vertices(data.graph, 4, method, seeds=train, hops=2)
        found[method] = partition_quality(data.graph, parts, 4, seeds=train, hops=2)
    assert found["pagraph"].train_balance < 1.001
    assert found["pagraph"].largest < 1.01
    assert found["pagraph"].replication < found["random"].replication


@pytest.mark.parametrize("method", ["ldg", "pagraph"])
def test_methods_of_the_core_say_that_it_is_missing(monkeypatch, method):
    monkeypatch.setattr("spsample.common.threads.compiled_core", lambda: None)
    with pytest.raises(BackendError, match=f'method="{method}" needs the compiled core of spsample, which is missing'):
        partition_vertices(sp.Graph([0, 1, 2], [1, 0]), 2, method, seeds=[0, 1], hops=1)
