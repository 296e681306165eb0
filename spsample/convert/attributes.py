"""What goes into a store beside the graph: features, labels, splits, names of the vertices, facts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.convert.arrays import load_map
from spsample.convert.compressed import require_file
from spsample.convert.options import ConvertOptions
from spsample.data.splits import SPLIT_IDS, SPLIT_MASKS, repeated
from spsample.errors import DataError
from spsample.store.archives import read_npz
from spsample.store.layout import OWN_KEYS

if TYPE_CHECKING:
    from spsample.convert.origin import Origin
    from spsample.store import StoreWriter

__all__ = ["write_attributes"]

_DISJOINT = "disjoint train, val and test vertices"
_COMPUTED = (*OWN_KEYS, "num_nodes", "num_edges", "weighting", "repeated_edges")
_BYTES = 1 << 22


def write_attributes(writer: StoreWriter, origin: Origin, options: ConvertOptions, num_nodes: int) -> None:
    """Write everything that is known of the vertices; files given override what the source has.

    Raises
    ------
    DataError
        If a file does not fit the graph, or a vertex is in two sets of a split.
    """
    arrays = dict(origin.arrays)
    facts = {"name": origin.name} | {key: value for key, value in origin.facts.items() if key not in _COMPUTED}
    if options.features is not None:
        arrays["x"] = _features(Path(options.features), num_nodes)
    if options.labels is not None:
        arrays["y"] = _labels(Path(options.labels), num_nodes)
        facts["num_classes"] = _num_classes(arrays["y"])
    if options.splits is not None:
        arrays = {name: array for name, array in arrays.items() if name not in (*SPLIT_IDS, *SPLIT_MASKS)}
        arrays |= _splits(Path(options.splits), num_nodes)
    _check_disjoint(origin.edges.name if options.splits is None else str(options.splits), arrays, num_nodes)
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


def _write(writer: StoreWriter, name: str, array: Any) -> None:
    if sparse.issparse(array):
        for key in ("indptr", "indices", "data"):
            writer.write(f"{name}_{key}", getattr(array, key))
        writer.set(x_shape=[int(size) for size in array.shape])
        return
    target = writer.create(name, array.dtype, array.shape)
    rows = max(1, _BYTES // max(1, array.dtype.itemsize * int(np.prod(array.shape[1:]))))
    for first in range(0, len(array), rows):
        target[first : first + rows] = array[first : first + rows]


def _features(path: Path, num_nodes: int) -> Any:
    """Rows of an ``.npy`` file, mapped; or a sparse matrix of an ``.npz`` file, as CSR."""
    array = _load_matrix(path) if path.suffix.lower() == ".npz" else load_map(path)
    if array.ndim not in (1, 2) or array.dtype.kind not in "biuf" or array.shape[0] != num_nodes:
        given = f"features of dtype {array.dtype} and shape {array.shape}"
        raise DataError(argument=str(path), given=given, expected=f"numbers in {num_nodes} rows, one per vertex")
    if sparse.issparse(array):
        _check_finite(path, array)
    elif array.dtype.kind == "f":
        rows = max(1, _BYTES // max(1, array[:1].nbytes))
        for first in range(0, num_nodes, rows):
            finite = np.isfinite(array[first : first + rows]).reshape(len(array[first : first + rows]), -1).all(axis=1)
            if not finite.all():
                given = f"a value that is not finite in row {first + int(np.argmin(finite))}"
                raise DataError(argument=str(path), given=given, expected="finite features")
    return array


def _load_matrix(path: Path) -> sparse.csr_array:
    """Load a sparse matrix of any form from an ``.npz`` file, as CSR."""
    require_file(path)
    try:
        matrix = sparse.csr_array(sparse.load_npz(path))
        matrix.check_format(full_check=True)
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise DataError(
            argument=str(path),
            given=f"a matrix that cannot be read ({error})",
            expected="what scipy.sparse.save_npz writes",
            hint="Dense features are an .npy file.",
        ) from error
    return matrix


def _check_finite(path: Path, matrix: sparse.csr_array) -> None:
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise DataError(
            argument=str(path), given=f"a value that is not finite in row {row}", expected="finite features"
        )


def _labels(path: Path, num_nodes: int) -> NDArray[Any]:
    array = load_map(path)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or len(array) != num_nodes:
        given = f"labels of dtype {array.dtype} and shape {array.shape}"
        raise DataError(argument=str(path), given=given, expected=f"integers in {num_nodes} rows, one per vertex")
    if array.size and array.min() < -1:
        given = f"label {int(array.min())} at position {int(np.argmin(array))}"
        raise DataError(argument=str(path), given=given, expected="labels from 0 on, -1 where unlabelled")
    return array.astype(np.int64)


def _num_classes(y: NDArray[Any]) -> int:
    return int(y.shape[1]) if y.ndim == 2 else int(y.max(initial=-1)) + 1


def _splits(path: Path, num_nodes: int) -> dict[str, NDArray[Any]]:
    """The index sets or masks of an ``.npz`` file."""
    expected = "an .npz file of train_idx, val_idx and test_idx, or train_masks, val_masks and test_masks"
    arrays = read_npz(path, expected)
    for names in (SPLIT_MASKS, SPLIT_IDS):
        if all(name in arrays for name in names):
            return {name: _checked_split(path, name, arrays[name], num_nodes) for name in names}
    raise DataError(argument=str(path), given=f"the arrays {', '.join(arrays) or '(none)'}", expected=expected)


def _checked_split(path: Path, name: str, array: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    if name.endswith("masks"):
        masks = array[None] if array.ndim == 1 else array
        if masks.dtype != np.bool_ or masks.ndim != 2 or masks.shape[1] != num_nodes:
            given = f"{name} of dtype {array.dtype} and shape {array.shape}"
            raise DataError(argument=str(path), given=given, expected=f"bool of shape (splits, {num_nodes})")
        return masks
    outside = array.dtype.kind not in "iu" or array.ndim != 1 or (array < 0).any() or (array >= num_nodes).any()
    if outside:
        given = f"{name} of dtype {array.dtype} and shape {array.shape}, or with an id out of range"
        raise DataError(argument=str(path), given=given, expected=f"a vector of vertex ids in [0, {num_nodes})")
    return array.astype(np.int64)


def _check_disjoint(argument: str, arrays: dict[str, Any], num_nodes: int) -> None:
    """Refuse splits that no data set could be loaded with."""
    if "train_idx" in arrays:
        masks = {name: _as_mask(argument, name, arrays[name], num_nodes) for name in SPLIT_IDS}
        _check_split(argument, masks, "")
    if "train_masks" in arrays:
        counts = [len(arrays[name]) for name in SPLIT_MASKS]
        if len(set(counts)) > 1:
            given = f"{', '.join(map(str, counts))} splits in {', '.join(SPLIT_MASKS)}"
            raise DataError(argument=argument, given=given, expected="as many in each")
        for split in range(counts[0]):
            _check_split(argument, {name: arrays[name][split] for name in SPLIT_MASKS}, f" of split {split}")


def _as_mask(argument: str, name: str, ids: NDArray[Any], num_nodes: int) -> NDArray[np.bool_]:
    mask = np.zeros(num_nodes, np.bool_)
    mask[ids] = True
    if np.count_nonzero(mask) < len(ids):
        vertex = repeated(ids)
        raise DataError(argument=argument, given=f"vertex {vertex} more than once in {name}", expected=_DISJOINT)
    return mask


def _check_split(argument: str, masks: dict[str, NDArray[np.bool_]], of_split: str) -> None:
    """Name the first vertex that is in more than one set."""
    train, val, test = masks.values()
    for first in range(0, len(train), _BYTES):
        a, b, c = (mask[first : first + _BYTES] for mask in (train, val, test))
        shared = (a & b) | (c & (a | b))
        if shared.any():
            vertex = first + int(np.argmax(shared))
            names = " and ".join(name for name, mask in masks.items() if mask[vertex])
            raise DataError(argument=argument, given=f"vertex {vertex} in {names}{of_split}", expected=_DISJOINT)
