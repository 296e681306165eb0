"""Data sets from ``.npz`` files; `load_npz` has their form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_int
from spsample.data.dataset import Dataset, Features
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS, Split, class_labels, named_splits, num_classes, split_of
from spsample.errors import DataError, InputError
from spsample.store import Graph
from spsample.store.folder import file_error
from spsample.store.npy import read_npz


@dataclass(frozen=True)
class _Archive:
    """The arrays of one file; every complaint names the file."""

    path: Path
    arrays: Mapping[str, NDArray[Any]]

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def refuse(self, given: str, expected: str, hint: str = "") -> DataError:
        return file_error(self.path, given, expected, hint)

    def get(self, key: str, kinds: str, ndim: int) -> NDArray[Any]:
        """Return an array after a check of its presence, its kind of dtype and its dimensions."""
        if key not in self.arrays:
            raise self.refuse(f"no array {key!r}", "the arrays " + _FORM)
        array = self.arrays[key]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            names = " or ".join(_KINDS[kind] for kind in kinds)
            given = f"{key} of dtype {array.dtype} and shape {array.shape}"
            raise self.refuse(given, f"{key} with {ndim} dimension(s) of {names}")
        return array


_KINDS = {"i": "integers", "u": "unsigned integers", "f": "floats", "b": "booleans"}
_FORM = "indptr, indices and, for training, x (or x_indptr, ...), y, train_idx, val_idx, test_idx"


def load_npz(path: str | Path, split: int = 0) -> Dataset:
    """Load a data set from an ``.npz`` file, as ``numpy.savez`` writes it.

    The arrays of a file with n vertices, all but the first optional:

    - ``indptr``, ``indices``: the graph in CSR form, integers; row = target vertex, columns = its in-neighbours;
    - ``data``: edge weights, finite and at least 0;
    - ``x``: dense features, n rows; or ``x_indptr``, ``x_indices``, ``x_data``, ``x_shape``: features in CSR form;
    - ``y``: n whole numbers, the labels from 0 on, -1 or NaN where unlabelled, also of shape (n, 1); or a column for
      each of several labels;
    - ``train_idx``, ``val_idx``, ``test_idx``: one split, as vertex ids; or ``train_masks``, ``val_masks``,
      ``test_masks``: one or more splits, bool of shape (splits, n); or ``train_mask``, ``val_mask``, ``test_mask`` of
      shape (n,) or (n, splits). ``valid`` may stand for ``val``. The three sets of a split are disjoint;
    - ``meta``: a JSON object as a string, kept in `Dataset.meta`; ``{"metric": "ROC AUC"}`` makes that the metric in
      place of accuracy.

    Other arrays are ignored, pickled objects refused. The file's name without ``.npz`` is the data set's.

    Parameters
    ----------
    path
        The file.
    split
        Which of its published splits, from 0.

    Returns
    -------
    Dataset
        Without features (``x`` is None) where the file holds a graph alone.

    Raises
    ------
    DataError
        If the file is missing, unreadable or not of the form expected.
    InputError
        If it has no split of that number.
    """
    split = require_int("split", split)
    archive = _Archive(Path(path), _read(Path(path)))
    graph = _graph(archive)
    n = graph.num_nodes
    y = class_labels(str(archive.path), archive.arrays["y"], n) if "y" in archive else np.full(n, -1, np.int64)
    splits = _splits(archive, n)
    if not 0 <= split < len(splits):
        raise InputError(
            argument="split", given=str(split), expected=f"an integer in [0, {len(splits)}) for {archive.path}"
        )
    meta = _meta(archive)
    return Dataset(
        name=archive.path.stem,
        graph=graph,
        x=_features(archive, n),
        y=y,
        num_classes=num_classes(y),
        metric="roc_auc" if str(meta.get("metric", "")).upper() == "ROC AUC" else "accuracy",
        split=split,
        num_splits=len(splits),
        meta=meta,
        **splits[split],
    )


def _read(path: Path) -> Mapping[str, NDArray[Any]]:
    expected = "an .npz file with the arrays " + _FORM
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(argument="dataset", given=f"{str(path)!r}, which {what}", expected=expected)
    return read_npz(path, expected)


def _graph(archive: _Archive) -> Graph:
    indptr = archive.get("indptr", "iu", 1)
    indices = archive.get("indices", "iu", 1)
    data = archive.get("data", "fiub", 1) if "data" in archive else None
    try:
        return Graph(indptr, indices, data)
    except InputError as error:
        raise archive.refuse(f"{error.argument} with {error.given}", error.expected, error.hint) from error


def _features(archive: _Archive, n: int) -> Features | None:
    if "x" in archive:
        x = archive.get("x", "fiub", 2)
        if len(x) != n:
            raise archive.refuse(f"x of shape {x.shape}", f"length {n} along dimension 0")
        _check_finite(archive, "x")
        return x if x.dtype == np.float32 else x.astype(np.float32)
    if "x_data" not in archive:
        return None
    data, indices = archive.get("x_data", "fiub", 1), archive.get("x_indices", "iu", 1)
    indptr, shape = archive.get("x_indptr", "iu", 1), archive.get("x_shape", "iu", 1)
    _check_finite(archive, "x_data")
    if len(shape) != 2 or shape[0] != n:
        raise archive.refuse(f"x_shape {shape.tolist()}", f"x_shape ({n}, number of features)")
    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=(int(shape[0]), int(shape[1])))
        matrix.check_format(full_check=True)
    except ValueError as error:
        given = f"a broken CSR matrix x ({error})"
        raise archive.refuse(given, "valid x_indptr, x_indices, x_data") from error
    return matrix


def _check_finite(archive: _Archive, key: str) -> None:
    array = archive.arrays[key]
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), array.shape)
        position = ", ".join(str(int(i)) for i in place)
        raise archive.refuse(f"{key} with {array[place]} at position ({position})", "finite features")


def _splits(archive: _Archive, n: int) -> list[Split]:
    arrays = named_splits(str(archive.path), archive.arrays, n)
    if SPLIT_MASKS[0] in arrays:
        return [split_of(*map(np.flatnonzero, masks)) for masks in zip(*arrays.values(), strict=True)]
    return [split_of(*(arrays.get(name, np.empty(0, np.int64)) for name in SPLIT_IDS))]


def _meta(archive: _Archive) -> dict[str, Any]:
    if "meta" not in archive:
        return {}
    try:
        meta = json.loads(str(archive.arrays["meta"]))
    except json.JSONDecodeError as error:
        raise archive.refuse(f"meta that is not JSON ({error})", "a JSON object") from error
    if not isinstance(meta, dict):
        raise archive.refuse(f"meta holding a {type(meta).__name__}", "a JSON object")
    return meta
