"""Data sets from graph stores: a folder of memory maps instead of one file that is read whole."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_int
from spsample.data.dataset import Dataset
from spsample.data.labels import PARTS, SPLIT_IDS, Split, check_disjoint, split_of
from spsample.errors import DataError, InputError
from spsample.store import GraphStore
from spsample.store.folder import file_error
from spsample.store.layout import META_FILE, OWN_KEYS
from spsample.store.validation import check_ids

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


def dataset_of(store: GraphStore, split: int = 0) -> Dataset:
    """Return the data set of a store that is open; see `load_store`."""
    meta, n = store.meta, int(store.meta["num_nodes"])
    number, parts = _split(store, split, n)
    y, metric = _labels(store, n), str(meta.get("metric") or "accuracy")
    return Dataset(
        name=store.name,
        graph=store.graph(),
        x=store.features("x") if "x" in store.feature_names else None,
        y=y,
        num_classes=_num_classes(store, y),
        metric="roc_auc" if metric.upper() in ("ROC AUC", "ROC_AUC") else metric,
        split=split,
        num_splits=number,
        meta={key: value for key, value in meta.items() if key not in (*OWN_KEYS, *OWN_FACTS, *_OF_STORES)},
        **parts,
    )


def _labels(store: GraphStore, n: int) -> NDArray[Any]:
    if "y" not in store:
        return np.full(n, -1, dtype=np.int64)
    y = store.array("y")
    if y.ndim == 2 and y.shape[1] > 1:
        return y
    flat = y.reshape(n)
    if flat.dtype.kind not in "iub":
        given = f"y of dtype {y.dtype} and shape {y.shape}"
        raise _refusal(store, "y", given, "integers, one per vertex, or a column for each label")
    labels = flat.astype(np.int64, copy=False)
    if labels.min(initial=0) < -1:
        at = int(np.argmax(labels < -1))
        raise _refusal(store, "y", f"{labels[at]} at position {at}", "labels from 0 on, -1 where unlabelled")
    return labels


def _num_classes(store: GraphStore, y: NDArray[Any]) -> int:
    """The number that the store states, or else one more than the largest label; one per column of `y`."""
    if y.ndim == 2:
        return int(y.shape[1])
    least = int(y.max(initial=-1)) + 1
    stated = store.meta.get("num_classes", least)
    if type(stated) is not int or stated < least:
        raise _refusal(store, "y", f"label {least - 1} where num_classes is {stated!r}", "labels below num_classes")
    return stated


def _split(store: GraphStore, split: int, n: int) -> tuple[int, Split]:
    """Return the number of splits, and the ids of one."""
    masked = "train_masks" in store
    count = len(store.array("train_masks")) if masked else 1
    if not 0 <= split < count:
        raise InputError(argument="split", given=str(split), expected=f"an integer in [0, {count}) for {store.path}")
    ids = {}
    for part in PARTS:
        name = f"{part}_masks" if masked else f"{part}_idx"
        if name not in store:
            if masked or any(other in store for other in SPLIT_IDS):
                raise _refusal(store, name, "no such array", "all of train, val and test, or none")
            ids[part] = np.empty(0, np.int64)
        elif masked:
            masks = store.array(name)
            if len(masks) != count:
                raise _refusal(store, name, f"{len(masks)} splits", f"{count}, as train_masks has")
            ids[part] = np.flatnonzero(masks[split])
        else:
            ids[part] = store.array(name).astype(np.int64, copy=False)
            try:
                check_ids(name, ids[part], n)
            except InputError as error:
                raise _refusal(store, name, error.given, error.expected) from None
    check_disjoint(str(store.path), {f"{part}_{'masks' if masked else 'idx'}": held for part, held in ids.items()})
    return count, split_of(*(ids[part] for part in PARTS))


def _refusal(store: GraphStore, name: str, given: str, expected: str) -> DataError:
    return file_error(store.path / f"{name}.npy", given, expected)
