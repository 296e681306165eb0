"""What keeps the house in order beside import-linter: no circle of imports, docstrings that stand alone."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

grimp = pytest.importorskip("grimp")

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "spsample").rglob("*.py"))
OLDER = {
    "bad_input/test_bad_graphs.py",
    "bench/test_simulate.py",
    "comm/test_launch.py",
    "conformance/test_cuda_bulks.py",
    "conformance/test_cuda_layerwise.py",
    "conformance/test_cuda_memory.py",
    "conformance/test_cuda_streams.py",
    "conformance/test_entry_law.py",
    "cuda/test_library_on_gpu.py",
    "distributed/collective_methods.py",
    "distributed/counted_bulks.py",
    "distributed/test_cluster_plan.py",
    "distributed/test_cooperative.py",
    "distributed/test_factored_training.py",
    "distributed/test_model.py",
    "distributed/test_partitioned.py",
    "fuzz/flip_bits.py",
    "nn/test_layer_faults.py",
    "races/test_kernels.py",
    "samplers/stages_variants.py",
    "unit/test_aggregated_features.py",
    "unit/test_attention.py",
    "unit/test_cache_report.py",
    "unit/test_checkpoints.py",
    "unit/test_convert.py",
    "unit/test_convert_vertices.py",
    "unit/test_disk_features.py",
    "unit/test_dropout.py",
    "unit/test_kernel_constants.py",
    "unit/test_local_order.py",
    "unit/test_locks.py",
    "unit/test_long_work.py",
    "unit/test_npy.py",
    "unit/test_options.py",
    "unit/test_part_stores.py",
    "unit/test_partition.py",
    "unit/test_pilots.py",
    "unit/test_planner.py",
    "unit/test_products.py",
    "unit/test_records.py",
    "unit/test_reorder.py",
    "unit/test_sparse.py",
    "unit/test_sparse_products.py",
    "unit/test_stages.py",
    "unit/test_stored_data.py",
    "unit/test_to_device.py",
}
"""Tests that reach into modules of several rooms; the list may only get shorter."""


def circles(*, with_types: bool) -> list[set[str]]:
    """Modules that import each other in a loop; those that only annotations ask for count or not."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = grimp.build_graph("spsample", exclude_type_checking_imports=not with_types, cache_dir=None)
    modules = sorted(graph.modules)
    number = {module: i for i, module in enumerate(modules)}
    pairs = [(number[a], number[b]) for a in modules for b in graph.find_modules_directly_imported_by(a)]
    rows, columns = np.array(pairs).T
    matrix = csr_array((np.ones(len(pairs)), (rows, columns)), shape=(len(modules), len(modules)))
    _, label = connected_components(matrix, connection="strong")
    return [
        {modules[i].removeprefix("spsample.") for i in np.flatnonzero(label == one)}
        for one in np.flatnonzero(np.bincount(label) > 1)
    ]


def test_no_circle_of_imports() -> None:
    assert circles(with_types=False) == []


def test_circles_of_types_are_listed() -> None:
    """Where a protocol would be longer than the annotation that closes the circle, docs/architecture.md names it."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for circle in circles(with_types=True):
        assert all(f"`{module}`" in page for module in circle), circle


def test_architecture_names_what_is_there() -> None:
    """Every room has a line, and every file that the page names is one."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rooms = [path.stem for path in (ROOT / "spsample").iterdir() if path.suffix in ("", ".py") and path.stem[0] != "_"]
    assert [room for room in rooms if f"| `{room}` |" not in page] == []
    named = re.findall(r"`([a-z0-9_/]+\.(?:py|h|cpp|cu|md))`", page)
    of_the_package = [name for name in named if not name.startswith(("tests/", "kernels/", "docs/"))]
    assert [name for name in of_the_package if not (ROOT / "spsample" / name).is_file()] == []
    assert [name for name in set(named) - set(of_the_package) if not (ROOT / name).is_file()] == []


def docstrings(file: Path) -> list[tuple[int, str]]:
    """Line and text of each."""
    found = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                found.append((getattr(node, "lineno", 1), text))
    return found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (r"\AThe same\b", "names nothing: say what it does"),
        (r"\AOf\b", "is half a sentence: say what it is"),
        (r"\b[Ss]o many\b", "names no number: say which"),
        (r"\A(What|Whether|That of|Who|How|Where|Which)\b", "asks: say what it is or does"),
    ],
)
def test_docstrings_stand_alone(words: str, why: str) -> None:
    bad = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in FILES
        for line, text in docstrings(file)
        if re.search(words, text)
    ]
    assert not bad, f"{why}\n" + "\n".join(bad)


def test_a_class_has_a_name_of_its_own() -> None:
    names = Counter(
        node.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and "bench" not in file.parts
    )
    assert [name for name, count in names.items() if count > 1] == []


def faces(file: Path) -> Iterator[tuple[str, str, bool]]:
    """Room, module and whether the room exports it, for each name of a room's module that a test imports."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").count(".") > 1 and "spsample" in str(node.module):
            room = ".".join(str(node.module).split(".")[:2])
            exported = getattr(import_module(room), "__all__", ())
            yield from ((room, str(node.module), alias.name in exported) for alias in node.names)


def test_tests_reach_rooms_by_their_faces() -> None:
    """A name that a room exports is imported from it, and a test reaches into the modules of one room at most."""
    pytest.importorskip("torch_geometric")
    by_module, into_rooms = [], set()
    for file in sorted((ROOT / "tests").rglob("*.py")):
        names = list(faces(file))
        by_module += [f"{file.name}: {module}" for _, module, is_exported in names if is_exported]
        if len({room for room, _, is_exported in names if not is_exported}) > 1:
            into_rooms.add(file.relative_to(ROOT / "tests").as_posix())
    assert by_module == []
    assert into_rooms - OLDER == set(), "new tests reach into one room"
    assert OLDER - into_rooms == set(), "take these off the list"
