"""Arrays and facts of a store beside the graph: features, labels, splits, names of the vertices, facts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.convert.datasets import Origin, load_matrix, replaced
from spsample.convert.edges import load_map
from spsample.convert.options import ConvertOptions
from spsample.convert.tables import VertexRows
from spsample.data.dataset import write_features
from spsample.data.labels import SPLIT_IDS, class_labels, named_splits, num_classes
from spsample.store import StoreWriter
from spsample.store.folder import file_error
from spsample.store.layout import OWN_KEYS
from spsample.store.npy import read_npz

_COMPUTED = (*OWN_KEYS, "num_nodes", "num_edges", "weighting", "repeated_edges")
_BYTES = 1 << 22

_Vertices = NDArray[np.int64] | None
"""The vertex of each row of a file; None where row v is that of vertex v."""


def write_attributes(writer: StoreWriter, origin: Origin, options: ConvertOptions, num_nodes: int) -> None:
    """Write what is known of the vertices; a table of vertices, and then files, override what the source has.

    Raises
    ------
    DataError
        If a file does not fit the graph, or a vertex is in two sets of a split.
    """
    arrays, nodes = dict(origin.arrays), origin.nodes
    if "x" in arrays and not isinstance(arrays["x"], VertexRows):
        _check_features(f"x of {origin.edges.name}", arrays["x"], num_nodes)
    facts = {key: value for key, value in origin.facts.items() if key not in _COMPUTED}
    vertices: _Vertices = None
    if nodes is not None:
        more, made = nodes.arrays(num_nodes)
        arrays, facts, vertices = replaced(arrays, made), facts | more, nodes.vertices
    given = {name: getattr(options, name) for name in ("features", "labels", "splits")}
    files = {name: Path(path) for name, path in given.items() if path and not (nodes and name in nodes.named)}
    rows = num_nodes if vertices is None else len(vertices)
    if "features" in files:
        arrays["x"] = _features(files["features"], rows, vertices)
    if "labels" in files:
        y = class_labels(str(files["labels"]), load_map(files["labels"]), rows)
        arrays["y"] = _spread(y, vertices, num_nodes, -1)
        facts = {key: fact for key, fact in facts.items() if key != "class_names"} | {"num_classes": num_classes(y)}
    if "splits" in files:
        arrays = replaced(arrays, _splits(files["splits"], rows, vertices, num_nodes))
    for name, array in arrays.items():
        _write(writer, name, array)
    if "x" in arrays:
        listed = [name for name in facts.get("node_features", []) if name != "x"]
        facts["node_features"] = listed if sparse.issparse(arrays["x"]) else ["x", *listed]
    if origin.names is not None:
        origin.names.write(writer)
    if origin.write is not None:
        origin.write(writer)
    if origin.row_normalized:
        facts["weighting"] = "row"
    writer.set(**facts)


def _features(path: Path, rows: int, vertices: _Vertices) -> Any:
    """The rows of a file, where their vertices are; each vertex has one."""
    if path.suffix.lower() == ".npz":
        held = load_matrix(path, _checked_csr, "Dense features are an .npy file.")
    else:
        held = load_map(path)
    _check_features(str(path), held, rows)
    if vertices is None:
        return held
    if sparse.issparse(held):
        return held[np.argsort(vertices)]

    def pieces() -> Iterator[tuple[Any, Any]]:
        for places, values in _pieces(held):
            yield vertices[places], values

    return VertexRows(held.dtype, held.shape, pieces)


def _pieces(array: Any) -> Iterator[tuple[slice, Any]]:
    """An array in pieces of some MiB."""
    size = max(1, _BYTES // max(1, array.dtype.itemsize * int(np.prod(array.shape[1:]))))
    for first in range(0, len(array), size):
        places = slice(first, min(first + size, len(array)))
        yield places, array[places]


def _spread(rows: NDArray[Any], vertices: _Vertices, num_nodes: int, empty: int) -> NDArray[Any]:
    """Rows where their vertices are, `empty` where there is none."""
    if vertices is None:
        return rows
    array = np.full((num_nodes, *rows.shape[1:]), empty, rows.dtype)
    array[vertices] = rows
    return array


def _write(writer: StoreWriter, name: str, array: Any) -> None:
    if sparse.issparse(array):
        write_features(writer, array)
        return
    target = writer.create(name, array.dtype, array.shape)
    for places, rows in array.pieces() if isinstance(array, VertexRows) else _pieces(array):
        target[places] = rows


def _check_features(argument: str, x: Any, rows: int) -> None:
    """Refuse features of another shape, or with values that are not finite."""
    if x.ndim not in (1, 2) or x.dtype.kind not in "biuf" or x.shape[0] != rows:
        given = f"features of dtype {x.dtype} and shape {x.shape}"
        raise file_error(argument, given, f"numbers in {rows} rows, one per vertex")
    held = x.data if sparse.issparse(x) else x
    for places, values in _pieces(held) if x.dtype.kind == "f" else ():
        finite = np.isfinite(values)
        if not finite.all():
            row = places.start + int(np.argmin(finite.reshape(len(values), -1).all(axis=1)))
            row = int(np.searchsorted(x.indptr, row, side="right")) - 1 if sparse.issparse(x) else row
            raise file_error(argument, f"a value that is not finite in row {row}", "finite features")


def _checked_csr(matrix: Any) -> sparse.csr_array:
    csr = sparse.csr_array(matrix)
    csr.check_format(full_check=True)
    return csr


def _splits(path: Path, rows: int, vertices: _Vertices, num_nodes: int) -> dict[str, NDArray[Any]]:
    """The index sets or masks of an ``.npz`` file, of rows, as those of their vertices."""
    expected = "an .npz file of train_idx, val_idx and test_idx, or train_masks, val_masks and test_masks"
    arrays = read_npz(path, expected)
    splits = named_splits(str(path), arrays, rows)
    if not splits:
        raise file_error(path, f"the arrays {', '.join(arrays) or '(none)'}", expected)
    if SPLIT_IDS[0] in splits:
        return {name: ids if vertices is None else vertices[ids] for name, ids in splits.items()}
    return {name: _spread(masks.T, vertices, num_nodes, 0).T for name, masks in splits.items()}
