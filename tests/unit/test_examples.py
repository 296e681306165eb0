"""The two training scripts are one script but for an import, and learn the same; other libraries' loops run whole."""

from __future__ import annotations

import difflib
import importlib.util
import re
from pathlib import Path

import pytest
import warm

pytest.importorskip("torch_geometric")

from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_scripts_differ_in_two_imports():
    before, after = ((EXAMPLES / f"train_{name}.py").read_text("utf-8").splitlines() for name in ("pyg", "spsample"))
    diff = [line for line in difflib.ndiff(before, after) if not line.startswith(("  ", "?"))]
    assert diff == [
        "- from torch_geometric.loader import NeighborLoader",
        "+ from spsample.nn import SAGEConv",
        "+ from spsample.pyg import NeighborLoader",
        "- model = SAGE(data.num_features, int(data.y.max()) + 1)",
        "+ model = SAGE(data.num_features, int(data.y.max()) + 1, conv=SAGEConv)",
    ]


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
    assert accuracy_of(run(name, "planted:3000", "0", "5")) > 0.5


def run(name, *arguments):
    done = warm.run(EXAMPLES / f"train_{name}.py", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def accuracy_of(said):
    return float(re.search(r"^accuracy (\S+)", said, re.MULTILINE)[1])


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.fixture(scope="module")
def lightning():
    """Skips where Lightning cannot be imported or started, which only another process can find out."""
    pytest.importorskip("pytorch_lightning")
    start = "import pytorch_lightning as one; one.Trainer(accelerator='cpu', logger=False)"
    tried = warm.run("-c", start)
    if tried.returncode:
        reason = (tried.stderr.splitlines() or [f"exit status {tried.returncode}"])[-1]
        pytest.skip(f"Lightning cannot be started: {reason}")


@pytest.mark.usefixtures("lightning")
def test_lightning_shares_the_seeds_of_two_devices():
    said = run("lightning", "planted:3000", "2")
    assert re.findall(r"^epoch (\d): seeds (.*)$", said, re.MULTILINE) == [
        (epoch, "900 + 900, 1800 of them distinct") for epoch in "01"
    ]
    assert accuracy_of(said) > 0.5


@pytest.mark.usefixtures("lightning")
def test_lightning_node_data():
    said = run("lightning_node_data", "planted:3000", "2")
    assert said.endswith("of 600\n")
    assert accuracy_of(said) > 0.5


@needs("dgl")
def test_the_loop_of_dgl():
    assert accuracy_of(run("dgl", "planted:3000", "3")) > 0.5
