"""The training loop of one's own: the program of docs/own-loop.md, on one rank and on four."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_geometric")

from jobs import EITHER, run_ranks

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


def trained(folder, store, backend, ranks):
    """Loss and accuracy of each epoch, and every rank's weights at the end."""
    folder.mkdir()
    done = run_ranks(backend, ranks, HERE / "own_loop.py", folder, store, 6)
    assert done.returncode == 0, done.stdout + done.stderr
    weights = [np.load(path) for path in sorted(folder.glob("*.npy"))]
    return np.array(EPOCH.findall(done.stdout), dtype=float), weights


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own-loop") / "alone"
    told, (weights,) = trained(folder, store, "gloo", 1)
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
@pytest.mark.parametrize("backend", EITHER)
def test_four_ranks_do_what_one_does(backend, store, alone, tmp_path):
    """All ranks end with the same weights, to the bit, and with those of one process but for rounding."""
    folder = tmp_path / backend
    told, weights = trained(folder, store, backend, 4)
    assert len(weights) == 4
    for other in weights[1:]:
        np.testing.assert_array_equal(other, weights[0])
    np.testing.assert_allclose(told, alone[0], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(weights[0], alone[1], rtol=1e-2, atol=1e-3)
