"""The two training scripts are one script but for an import, and learn the same."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_scripts_differ_in_one_import():
    before, after = ((EXAMPLES / f"train_{name}.py").read_text("utf-8").splitlines() for name in ("pyg", "spsample"))
    diff = [line for line in difflib.ndiff(before, after) if not line.startswith(("  ", "?"))]
    assert diff == ["- from torch_geometric.loader import NeighborLoader", "+ from spsample.pyg import NeighborLoader"]


@pytest.mark.parametrize(
    "name",
    [
        "spsample",
        pytest.param(
            "pyg", marks=pytest.mark.skipif(not (WITH_PYG_LIB or WITH_TORCH_SPARSE), reason="PyG's loader cannot run")
        ),
    ],
)
def test_it_learns(name):
    command = [sys.executable, str(EXAMPLES / f"train_{name}.py"), "planted:3000", "0", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    word, accuracy, *_ = done.stdout.split()
    assert word == "accuracy"
    assert float(accuracy) > 0.5
