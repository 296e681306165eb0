"""The training loop of one's own: the program of docs/own-loop.md, on one rank and on four."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

from jobs import BACKENDS

from spsample.cli.launch import ranks_environment
from spsample.data import planted

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = ROOT / "examples" / "own_loop_ranks.py"
EPOCH = re.compile(r"^epoch \d+: loss (\S+), test accuracy (\S+)$", re.MULTILINE)
SEEDS = 300  # 64 a batch on four ranks: the second step has seeds for one of them


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Of at most 10 neighbours a vertex, so that fanouts of 10 leave nothing to chance."""
    data = planted(600, 4)
    assert data.graph.in_degrees().max() <= 10
    path = tmp_path_factory.mktemp("own-loop") / "store"
    train, test, val = np.split(np.arange(600), [SEEDS, SEEDS + 260])
    replace(data, train_idx=train, val_idx=val, test_idx=test).save(path)
    return path


def trained(folder, store, line):
    """Loss and accuracy of each epoch, and every rank's weights at the end."""
    folder.mkdir()
    variables = ranks_environment(4) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=variables, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    weights = [np.load(path) for path in sorted(folder.glob("*.npy"))]
    return np.array(EPOCH.findall(done.stdout), dtype=float), weights


def program(folder, store):
    return [sys.executable, str(HERE / "own_loop.py"), str(folder), str(store), "6"]


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own-loop") / "alone"
    told, (weights,) = trained(folder, store, program(folder, store))
    return told, weights


def test_is_short_and_is_on_its_page():
    text = PROGRAM.read_text("utf-8")
    assert len(text.splitlines()) < 40
    assert f"```python\n{text}```\n" in (ROOT / "docs" / "own-loop.md").read_text("utf-8")


def test_learns(alone):
    told, _ = alone
    assert told[-1, 0] < 0.8 * told[0, 0]
    assert told[-1, 1] > 0.5  # of four classes


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_four_ranks_do_what_one_does(backend, store, alone, tmp_path):
    """All ranks end with the same weights, to the bit, and with those of one process but for rounding."""
    folder = tmp_path / backend
    option = [] if backend == "mpi" else ["--backend", backend]  # mpi where it is installed
    launch = [sys.executable, "-m", "spsample.cli.main", "launch", "-n", "4", *option]
    told, weights = trained(folder, store, [*launch, *program(folder, store)[1:]])
    assert len(weights) == 4
    for other in weights[1:]:
        np.testing.assert_array_equal(other, weights[0])
    np.testing.assert_allclose(told, alone[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(weights[0], alone[1], rtol=1e-2, atol=1e-3)
