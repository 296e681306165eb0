"""A bulk beyond the memory there is is refused with the largest one that fits, and no process is killed for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from needs import refusal

import spsample as sp
from spsample.common.memory import CGROUPS, available_memory
from spsample.errors import CapacityError

GRAPH = sp.load_dataset("rmat:14,16").graph
SEEDS = np.flatnonzero(GRAPH.in_degrees())
LIMIT = 256 << 20

PROGRAM = """
import sys
import numpy as np
import spsample as sp
from spsample.errors import CapacityError
from spsample.sparse import extract, its_sample, normalize_rows

class Own(sp.Sampler):
    def layer(self, A, Q, draw, want):
        return extract(its_sample(normalize_rows(Q @ A), draw), want)

graph = sp.load_dataset("rmat:15,16").graph
seeds = np.resize(np.flatnonzero(graph.in_degrees()), 1024 * 512)
way, sampler, batches = sys.argv[1], eval(sys.argv[2], {**vars(sp), "Own": Own}), int(sys.argv[3])
try:
    if way == "call":
        print(len(sp.bulk_sample(graph, seeds[: 1024 * batches], sampler, batch_size=1024)))
    else:
        print(sum(1 for batch in sp.BulkLoader(graph, seeds, sampler, batch_size=1024, bulk_size=batches)))
except CapacityError as error:
    print(error)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this machine with a limit of memory, where one can be made."""
    one, two = CGROUPS / "memory", CGROUPS
    root, limit = (one, "memory.limit_in_bytes") if one.is_dir() else (two, "memory.max")
    folder = root / f"spsample-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not (folder / limit).exists():
            pytest.skip("control groups have no memory controller here")
        join = f"echo {LIMIT} > {folder / limit} && echo $$ > {folder / 'cgroup.procs'}"
        if reason := refusal(["sh", "-c", join]):
            pytest.skip(f"no process can be limited here: {reason}")
        yield folder
    finally:
        folder.rmdir()


def run_in(group: Path, *arguments: str) -> str:
    """What a process in the group prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"), sys.executable, "-c", PROGRAM]
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode != -signal.SIGKILL, "killed"
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("sampler", ["GraphSAGE([15, 10, 5])", "LADIES([2048, 2048])", "Own([15, 10, 5])"])
@pytest.mark.parametrize("way", ["call", "loader"])
def test_beyond_the_limit_of_a_control_group(group: Path, way: str, sampler: str) -> None:
    """Nearly as many as are named are then sampled there: what is available differs a little between processes."""
    refusal = run_in(group, way, sampler, "512")
    named = re.search(r"expected at most (\d+) ", refusal)
    assert named, refusal
    assert 16 <= int(named[1]) < 512
    largest = int(named[1]) * 15 // 16
    assert int(run_in(group, way, sampler, str(largest))) == (largest if way == "call" else 512)


def limits(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    """As if the process had so many bytes."""
    monkeypatch.setattr("spsample.planning.bulk_plan.available_memory", lambda: available)
    monkeypatch.setattr("spsample.planning.bulk_plan.most_memory", lambda: available)


def test_a_chosen_bulk_grows_with_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where half of it is too little for bulks of 64, bulks have 64 at most, so that other loaders have room, too."""
    batches = {
        "sampler": sp.GraphSAGE([10, 5]),
        "batch_size": 4,
        "features": np.ones((GRAPH.num_nodes, 64), np.float32),
    }
    sizes = []
    for available in range(16 << 20, 256 << 20, 8 << 20):
        limits(monkeypatch, available)
        sizes.append(sp.BulkLoader(GRAPH, np.arange(GRAPH.num_nodes), **batches, bulk_size="auto").bulk_size)
    assert sizes == sorted(sizes)
    assert sizes[0] <= 64 < sizes[-1]


def test_a_call_names_how_many_of_its_batches_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, ids = sp.GraphSAGE([15, 10, 5]), np.resize(SEEDS, 256 * 64)
    whole = sp.bulk_sample(GRAPH, ids, sampler, batch_size=64)
    limits(monkeypatch, 32 << 20)
    with pytest.raises(CapacityError, match=r"^seeds: got 256 batches of up to 64 seeds .*; expected at most") as error:
        sp.bulk_sample(GRAPH, ids, sampler, batch_size=64)
    largest = int(error.value.expected.split()[2])
    assert 1 <= largest < 256
    part = sp.bulk_sample(GRAPH, ids[: 64 * largest], sampler, batch_size=64)
    for one, other in zip(part, whole, strict=False):
        np.testing.assert_array_equal(one.src_nodes, other.src_nodes)
    limits(monkeypatch, 2 << 20)
    with pytest.raises(CapacityError, match=r"^batch_size: got 4 batches of up to 2048 seeds, with more than"):
        sp.bulk_sample(GRAPH, ids, sp.GraphSAGE([-1, -1, -1]), batch_size=2048)


def test_pilots_of_a_plan_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 batches of this epoch would be sampled for the plan, and these alone do not fit."""
    ids = np.resize(SEEDS, 512 * 2048)
    limits(monkeypatch, 30 << 20)
    plan = sp.plan_bulk(GRAPH, ids, sp.GraphSAGE([15, 15, 15]), batch_size=2048, memory_budget="1GiB")
    assert 2 <= plan.counts.batches < 32
    assert plan.bulk_size > 32


def test_what_is_surely_small_costs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> int:
        raise AssertionError("looked")

    monkeypatch.setattr("spsample.planning.bulk_plan.available_memory", never)
    assert len(sp.bulk_sample(GRAPH, SEEDS, sp.GraphSAGE([5, 5]), batch_size=64)) > 1


def hubs_and_leaves() -> sp.Graph:
    """256 vertices of 4,000 neighbours, and others of 3."""
    rng = np.random.default_rng(0)
    targets = np.concatenate([np.repeat(np.arange(256), 4000), np.repeat(np.arange(256, 40_000), 3)])
    return sp.Graph.from_edge_index(np.stack([rng.integers(0, 40_000, len(targets)), targets]), num_nodes=40_000)


def test_pilots_of_other_seeds_refuse_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call for hubs took says nothing of one for leaves, nor the other way round."""
    graph, sampler = hubs_and_leaves(), sp.GraphSAGE([-1])
    leaves, hubs = np.arange(1000, 1000 + 64 * 256), np.resize(np.arange(256), 64 * 256)
    limits(monkeypatch, 48 << 20)
    for _ in range(2):
        assert len(sp.bulk_sample(graph, hubs[:256], sampler, batch_size=256)) == 1
        assert len(sp.bulk_sample(graph, leaves, sampler, batch_size=256)) == 64
        with pytest.raises(CapacityError, match="got 64 batches"):
            sp.bulk_sample(graph, hubs, sampler, batch_size=256)


def test_a_call_that_surely_fits_has_no_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("sampled")

    monkeypatch.setattr("spsample.planning.bulk_plan._counts_within", never)
    limits(monkeypatch, 400 << 20)  # the bound of the arrays and the kernels' memory is less, four times it is not
    assert len(sp.bulk_sample(GRAPH, np.resize(SEEDS, 256 * 64), sp.GraphSAGE([15, 10, 5]), batch_size=64)) == 256


def tree(folder: Path, text: str, files: dict[str, str]) -> tuple[Path, Path]:
    """What a system says of a process's groups."""
    proc, groups = folder / "proc", folder / "cgroup"
    for path, content in {proc / "meminfo": "MemAvailable: 8000 kB\n", proc / "self" / "cgroup": text}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    for name, content in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(content)
    return proc, groups


@pytest.mark.parametrize(
    ("text", "files", "left"),
    [
        # a container: the path is the one outside, the root is the container's own group
        ("0::/docker/a1\n", {"memory.max": "4000000", "memory.current": "1000000", "memory.stat": ""}, 3000000),
        ("0::/../a1\n", {"memory.max": "4000000", "memory.current": "1000000", "memory.stat": ""}, 3000000),
        (
            "4:memory:/docker/a1\n",
            {"memory/memory.limit_in_bytes": "4000000", "memory/memory.usage_in_bytes": "1000000"},
            3000000,
        ),
        # what a group has is not said in full: the limit counts all the same
        ("0::/\n", {"memory.max": "4000000", "memory.current": "1000000"}, 3000000),
        ("0::/\n", {"memory.max": "4000000"}, 4000000),
        # version 2 beside version 1
        ("4:cpu:/\n0::/a\n", {"unified/a/memory.max": "4000000", "unified/a/memory.current": "1000000"}, 3000000),
        # no limit, as version 2 and version 1 say it
        ("0::/\n", {"memory.max": "max\n", "memory.current": "1000000", "memory.stat": ""}, 8000 << 10),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 8000 << 10),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, text: str, files: dict[str, str], left: int) -> None:
    assert available_memory(*tree(tmp_path, text, files)) == left
