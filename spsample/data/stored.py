"""Data sets from files: graph stores, whose arrays are mapped, and ``.npz`` files, which are read whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_int
from spsample.data.dataset import Dataset, Features
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS, class_labels, num_classes, numbered_split
from spsample.errors import DataError, InputError
from spsample.store import Graph, GraphStore
from spsample.store.folder import file_error
from spsample.store.layout import META_FILE, OWN_KEYS
from spsample.store.npy import read_npz

OWN_FACTS = ("num_nodes", "num_edges", "weighting", "metric", "num_classes", "x_shape", "node_features")
"""Facts of a store that its data set has as attributes."""
_OF_STORES = ("reordered", "relabelled", "repeated_edges")
"""Facts about a store, and not about what is in it."""


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a folder with a ``meta.json`` at `path`; `load_store` checks what is in it."""
    return os.path.isfile(os.path.join(path, META_FILE))  # also where no file can have such a name


def load_store(path: str | os.PathLike[str], split: int = 0) -> Dataset:
    """Open a data set that is a graph store: graph and dense features are memory maps.

    The arrays beside the graph's, all optional, n being the number of vertices:

    - ``x``: n rows of features, or ``x_indptr``, ``x_indices``, ``x_data`` and the fact ``x_shape``: CSR features;
    - ``y``: n integers from 0 on, -1 where unlabelled; or one column for each of several labels, shape (n, classes);
    - ``train_idx``, ``val_idx``, ``test_idx``: one split, as vertex ids; or ``train_masks``, ``val_masks``,
      ``test_masks``: one or more splits, bool of shape (splits, n); the three sets of a split are disjoint.

    Its name is that of the folder. The facts ``metric`` and ``num_classes`` are taken from ``meta.json`` (by default
    accuracy, and one more than the largest label); all others are kept in `Dataset.meta`, with the ``name`` of what
    the store was made of.

    Parameters
    ----------
    path : path-like
        The folder.
    split : int, optional
        Which of its published splits, from 0.

    Raises
    ------
    DataError
        If it is no store, or labels or splits do not fit.
    InputError
        If it has no split of that number.
    """
    split = require_int("split", split)
    return GraphStore.read(path, lambda store: dataset_of(store, split))


def dataset_of(store: GraphStore, split: int = 0, *, features: bool = True) -> Dataset:
    """Return the data set of a store that is open; see `load_store`. Without `features` x is None."""
    meta, n, place = store.meta, int(store.meta["num_nodes"]), str(store.path)
    y = store.array("y") if "y" in store else np.full(n, -1, np.int64)
    if "y" in store and (y.ndim != 2 or y.shape[1] < 2):  # several labels stay a memory map, of any numbers
        y = class_labels(f"{place}/y.npy", y, n)
    least = num_classes(y)
    stated = meta.get("num_classes", least) if y.ndim == 1 else least
    if type(stated) is not int or stated < least:
        given = f"label {least - 1} where num_classes is {stated!r}"
        raise file_error(store.path / "y.npy", given, "labels below num_classes")
    splits = {name: store.array(name) for name in (*SPLIT_MASKS, *SPLIT_IDS) if name in store}
    number, parts = numbered_split(place, splits, n, split)
    return Dataset(
        name=store.name,
        graph=store.graph(),
        x=store.features("x") if features and "x" in store.feature_names else None,
        y=y,
        num_classes=stated,
        metric=_metric(meta),
        split=split,
        num_splits=number,
        meta={key: value for key, value in meta.items() if key not in (*OWN_KEYS, *OWN_FACTS, *_OF_STORES)},
        **parts,
    )


def _metric(meta: Mapping[str, Any]) -> str:
    """The metric that the facts state, as `Dataset` names it: ROC AUC is roc_auc. Training refuses one it has not."""
    return str(meta.get("metric") or "accuracy").lower().replace(" ", "_")


_KINDS = {"i": "integers", "u": "unsigned integers", "f": "floats", "b": "booleans"}
_FORM = "indptr, indices and, for training, x (or x_indptr, ...), y, train_idx, val_idx, test_idx"
_Arrays = Mapping[str, NDArray[Any]]


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
    - ``meta``: a JSON object as a string, kept in `Dataset.meta`; its ``"metric"``, as in ``{"metric": "ROC AUC"}``,
      takes the place of accuracy.

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
    split, path = require_int("split", split), Path(path)
    expected = f"an .npz file with the arrays {_FORM}"
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(argument="dataset", given=f"{str(path)!r}, which {what}", expected=expected)
    arrays = read_npz(path, expected)
    array = partial(_array, path, arrays)
    try:
        data = array("data", "fiub", 1) if "data" in arrays else None
        graph = Graph(array("indptr", "iu", 1), array("indices", "iu", 1), data)
    except InputError as error:
        raise file_error(path, f"{error.argument} with {error.given}", error.expected, error.hint) from error
    n = graph.num_nodes
    y = class_labels(str(path), arrays["y"], n) if "y" in arrays else np.full(n, -1, np.int64)
    number, parts = numbered_split(str(path), arrays, n, split)
    meta = _meta(path, arrays)
    return Dataset(
        name=path.stem,
        graph=graph,
        x=_features(path, arrays, n),
        y=y,
        num_classes=num_classes(y),
        metric=_metric(meta),
        split=split,
        num_splits=number,
        meta=meta,
        **parts,
    )


def _array(path: Path, arrays: _Arrays, key: str, kinds: str, ndim: int) -> NDArray[Any]:
    """Return an array after a check of its presence, its kind of dtype, its dimensions, and of floats in features."""
    if key not in arrays:
        raise file_error(path, f"no array {key!r}", f"the arrays {_FORM}")
    array = arrays[key]
    if array.dtype.kind not in kinds or array.ndim != ndim:
        names = " or ".join(_KINDS[kind] for kind in kinds)
        given = f"{key} of dtype {array.dtype} and shape {array.shape}"
        raise file_error(path, given, f"{key} with {ndim} dimension(s) of {names}")
    finite = np.isfinite(array) if key in ("x", "x_data") else np.ones(1, np.bool_)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), array.shape)
        position = ", ".join(str(int(i)) for i in place)
        raise file_error(path, f"{key} with {array[place]} at position ({position})", "finite features")
    return array


def _features(path: Path, arrays: _Arrays, n: int) -> Features | None:
    array = partial(_array, path, arrays)
    if "x" in arrays:
        x = array("x", "fiub", 2)
        if len(x) != n:
            raise file_error(path, f"x of shape {x.shape}", f"length {n} along dimension 0")
        return x.astype(np.float32, copy=False)
    if "x_data" not in arrays:
        return None
    csr = array("x_data", "fiub", 1), array("x_indices", "iu", 1), array("x_indptr", "iu", 1)
    shape = array("x_shape", "iu", 1).tolist()
    if len(shape) != 2 or shape[0] != n:
        raise file_error(path, f"x_shape {shape}", f"x_shape ({n}, number of features)")
    try:
        matrix = sparse.csr_array(csr, shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        given = f"a broken CSR matrix x ({error})"
        raise file_error(path, given, "valid x_indptr, x_indices, x_data") from error
    return matrix


def _meta(path: Path, arrays: _Arrays) -> dict[str, Any]:
    try:
        meta = json.loads(str(arrays["meta"])) if "meta" in arrays else {}
    except json.JSONDecodeError as error:
        raise file_error(path, f"meta that is not JSON ({error})", "a JSON object") from error
    if not isinstance(meta, dict):
        raise file_error(path, f"meta holding a {type(meta).__name__}", "a JSON object")
    return meta
