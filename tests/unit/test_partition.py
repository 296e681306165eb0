"""Partitions by METIS: which vertices go together, how even the parts are, the command, and who takes its file."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import PartitionQuality, metis_partition, partition_quality, planted
from spsample.errors import DTypeError, InputError

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

    from spsample.data.partition.metis import _stdout_to_stderr

    with _stdout_to_stderr():
        ctypes.CDLL(None).puts(b"***Cannot bisect a graph with 0 vertices!")
    print("{}")
    told = capfd.readouterr()
    assert told.out == "{}\n"
    assert "Cannot bisect" in told.err


@pytest.mark.parametrize("num_parts", [0, 2**31])
def test_numbers_of_parts_that_are_refused(num_parts):
    pytest.importorskip("pymetis")
    with pytest.raises(InputError, match=f"num_parts: got {num_parts}"):
        metis_partition(sp.Graph([0, 1, 2], [1, 0]), num_parts)


@pytest.mark.parametrize(
    "parts", [np.zeros(3, int), [0.0, 1.0], [0, 2], [-1, 0], np.array([0, 2**63], np.uint64), "01", [[0, 1]]]
)
def test_what_is_no_partition(parts):
    with pytest.raises(InputError, match="partition: got"):
        partition_quality(sp.Graph([0, 1, 2], [1, 0]), parts, 2)


def test_a_graph_is_wanted():
    pytest.importorskip("pymetis")
    with pytest.raises(DTypeError, match="graph: got a str"):
        metis_partition("cora", 2)


def run(*words):
    return CliRunner().invoke(app, ["partition", *map(str, words)])


def test_the_command(tmp_path):
    pytest.importorskip("pymetis")
    out = tmp_path / "parts.npy"
    done = run("planted:300", "--parts", 4, "--out", out, "--json")
    assert done.exit_code == 0
    told = json.loads(done.output)
    parts = np.load(out)
    quality = partition_quality(planted(300).graph, parts, 4)
    assert told == {"parts": 4, "file": str(out), **quality._asdict()}
    assert run("planted:300", "--parts", 4, "--out", out).exit_code == 2  # it is there
    done = run("planted:300", "--parts", 2, "--out", out, "--overwrite")
    assert done.exit_code == 0
    assert "300 vertices in 2 parts" in done.output
    assert set(np.load(out)) == {0, 1}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--parts", 0, "--out", "p.npy"), "--parts: got 0"),
        (("--parts", 2, "--out", "p.txt"), "--out: got p.txt"),
        (("--parts", 2, "--out", "none/p.npy"), "--out: got 'none/p.npy': No such file or directory"),
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
