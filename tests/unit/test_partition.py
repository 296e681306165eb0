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


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_no_more_vertices_than_parts(num_nodes):
    pytest.importorskip("pymetis")
    graph = sp.Graph(np.zeros(num_nodes + 1, np.int64), [])
    parts = metis_partition(graph, 3)
    assert parts.tolist() == list(range(num_nodes))
    assert partition_quality(graph, parts, 3).empty == 3 - num_nodes


def test_what_is_refused():
    pytest.importorskip("pymetis")
    graph = sp.Graph([0, 1, 2], [1, 0])
    with pytest.raises(InputError, match="num_parts: got 0"):
        metis_partition(graph, 0)
    with pytest.raises(DTypeError, match="graph: got a str"):
        metis_partition("cora", 2)
    with pytest.raises(InputError, match="parts: got shape"):
        partition_quality(graph, np.zeros(3, int), 2)


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
        (("--parts", 2, "--out", "none/p.npy"), "a folder that exists"),
    ],
)
def test_what_the_command_refuses(words, told, tmp_path, monkeypatch):
    pytest.importorskip("pymetis")
    monkeypatch.chdir(tmp_path)
    done = run("planted:300", *words)
    assert done.exit_code == 2
    assert told in done.stderr
