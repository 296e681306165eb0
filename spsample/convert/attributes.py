"""Arrays and facts of a store beside the graph: features, labels, splits, names of the vertices, facts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.convert.compressed import require_file
from spsample.convert.edges import load_map
from spsample.convert.options import ConvertOptions
from spsample.convert.origin import Origin
from spsample.convert.tables import VertexRows
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS, class_labels, named_splits, num_classes
from spsample.store import StoreWriter
from spsample.store.folder import file_error
from spsample.store.layout import OWN_KEYS
from spsample.store.npy import read_npz

_COMPUTED = (*OWN_KEYS, "num_nodes", "num_edges", "weighting", "repeated_edges")
_BYTES = 1 << 22


def write_attributes(writer: StoreWriter, origin: Origin, options: ConvertOptions, num_nodes: int) -> None:
    """Write everything that is known of the vertices; files given override what the source has.

    Raises
    ------
    DataError
        If a file does not fit the graph, or a vertex is in two sets of a split.
    """
    arrays, facts = _collected(origin, options, num_nodes)
    for name, array in arrays.items():
        _write(writer, name, array)
    if "x" in arrays:
        listed = [name for name in facts.get("node_features", []) if name != "x"]
        facts["node_features"] = listed if sparse.issparse(arrays["x"]) else ["x", *listed]
    if origin.names is not None:
        origin.names.write(writer)
    if origin.original_ids is not None:
        writer.write("original_ids", origin.original_ids)
    if origin.write is not None:
        origin.write(writer)
        facts["node_features"] = ["x"]
    if origin.row_normalized:
        facts["weighting"] = "row"
    writer.set(**facts)


def _collected(origin: Origin, options: ConvertOptions, num_nodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and facts of the source, of the table of vertices, and of files, of which the later ones win."""
    arrays = dict(origin.arrays)
    if "x" in arrays and not isinstance(arrays["x"], VertexRows):
        arrays["x"] = _features(f"x of {origin.edges.name}", arrays["x"], num_nodes)
    facts = {"name": origin.name} | {key: value for key, value in origin.facts.items() if key not in _COMPUTED}
    nodes = origin.nodes
    if nodes is not None:
        more, made = nodes.arrays(num_nodes)
        arrays, facts = _replaced(arrays, made), facts | more
    vertices = None if nodes is None else nodes.vertices
    files = _files(options, set() if nodes is None else nodes.named)
    rows = num_nodes if vertices is None else len(vertices)
    if "features" in files:
        path = files["features"]
        held = _load_matrix(path) if path.suffix.lower() == ".npz" else load_map(path)
        arrays["x"] = _placed(_features(str(path), held, rows), vertices)
    if "labels" in files:
        y = class_labels(str(files["labels"]), load_map(files["labels"]), rows)
        arrays["y"] = y if vertices is None else _spread(y, vertices, num_nodes, -1)
        facts = {name: fact for name, fact in facts.items() if name != "class_names"} | {"num_classes": num_classes(y)}
    if "splits" in files:
        splits = _splits(files["splits"], rows)
        arrays = _replaced(arrays, splits if vertices is None else _of_vertices(splits, vertices, num_nodes))
    return arrays, facts


def _files(options: ConvertOptions, columns: set[str]) -> dict[str, Path]:
    """The files that options name; some name columns."""
    options_given = {name: getattr(options, name) for name in ("features", "labels", "splits")}
    return {name: Path(path) for name, path in options_given.items() if path is not None and name not in columns}


def _replaced(arrays: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    """Arrays with others in place of those of the same name, and of all splits where there are new ones."""
    splits = (*SPLIT_IDS, *SPLIT_MASKS)
    kept = {name: array for name, array in arrays.items() if name not in splits or not by.keys() & set(splits)}
    return kept | by


def _placed(features: Any, vertices: NDArray[np.int64] | None) -> Any:
    """Features where their vertices are; each vertex has a row."""
    if vertices is None:
        return features
    if sparse.issparse(features):
        return features[np.argsort(vertices)]
    return VertexRows(features.dtype, features.shape, partial(_scattered, features, vertices))


def _scattered(array: Any, vertices: NDArray[np.int64]) -> Iterator[tuple[Any, Any]]:
    for places, rows in _pieces(array):
        yield vertices[places], rows


def _pieces(array: Any) -> Iterator[tuple[slice, Any]]:
    """An array in pieces of some MiB."""
    size = max(1, _BYTES // max(1, array.dtype.itemsize * int(np.prod(array.shape[1:]))))
    for first in range(0, len(array), size):
        places = slice(first, min(first + size, len(array)))
        yield places, array[places]


def _spread(rows: NDArray[Any], vertices: NDArray[np.int64], num_nodes: int, empty: int) -> NDArray[Any]:
    """Rows where their vertices are, `empty` where there is none."""
    array = np.full((num_nodes, *rows.shape[1:]), empty, rows.dtype)
    array[vertices] = rows
    return array


def _of_vertices(
    splits: dict[str, NDArray[Any]], vertices: NDArray[np.int64], num_nodes: int
) -> dict[str, NDArray[Any]]:
    """Splits of rows as splits of their vertices."""
    if SPLIT_IDS[0] in splits:
        return {name: vertices[ids] for name, ids in splits.items()}
    return {name: _spread(masks.T, vertices, num_nodes, 0).T for name, masks in splits.items()}


def _write(writer: StoreWriter, name: str, array: Any) -> None:
    if sparse.issparse(array):
        for key in ("indptr", "indices", "data"):
            writer.write(f"{name}_{key}", getattr(array, key))
        writer.set(x_shape=[int(size) for size in array.shape])
        return
    target = writer.create(name, array.dtype, array.shape)
    for places, rows in array.pieces() if isinstance(array, VertexRows) else _pieces(array):
        target[places] = rows


def _features(argument: str, x: Any, rows: int) -> Any:
    """Features after a check of their shape and their values."""
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
    return x


def _load_matrix(path: Path) -> sparse.csr_array:
    """Load a sparse matrix of any form from an ``.npz`` file, as CSR."""
    require_file(path)
    try:
        matrix = sparse.csr_array(sparse.load_npz(path))
        matrix.check_format(full_check=True)
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise file_error(
            path,
            f"a matrix that cannot be read ({error})",
            "what scipy.sparse.save_npz writes",
            "Dense features are an .npy file.",
        ) from error
    return matrix


def _splits(path: Path, rows: int) -> dict[str, NDArray[Any]]:
    """The index sets or masks of an ``.npz`` file."""
    expected = "an .npz file of train_idx, val_idx and test_idx, or train_masks, val_masks and test_masks"
    arrays = read_npz(path, expected)
    splits = named_splits(str(path), arrays, rows)
    if not splits:
        raise file_error(path, f"the arrays {', '.join(arrays) or '(none)'}", expected)
    return splits
