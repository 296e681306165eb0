"""Facts about stores and data sets, for ``spsample info``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.data import Dataset
from spsample.data.labels import PARTS
from spsample.data.stored import OWN_FACTS
from spsample.store import GraphStore
from spsample.store.layout import OWN_KEYS

_PIECE = 2**22
_OWN = {*OWN_KEYS, *OWN_FACTS, "name", "edge_features"}


def describe_store(store: GraphStore) -> dict[str, Any]:
    """Return what a store holds; only the row starts, and the split masks, are read."""
    meta = store.meta
    arrays = [_array(name, spec.dtype, spec.shape, spec.nbytes) for name, spec in store.specs.items()]
    return {
        "name": store.name,
        "path": str(store.path),
        "version": meta["version"],
        "num_nodes": meta["num_nodes"],
        "num_edges": meta["num_edges"],
        "weighting": meta["weighting"],
        "in_degrees": in_degrees(store.array("indptr")),
        "arrays": arrays,
        "bytes": store.nbytes,
        "features": list(store.feature_names),
        "feature_widths": _stored_widths(store),
        "labels": _stored_labels(store),
        "splits": _stored_splits(store),
        "metric": meta.get("metric"),
        "original_ids": _original_ids(store),
        "meta": {key: value for key, value in meta.items() if key not in _OWN},
        "digest": store.digest,
    }


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return what a data set in memory holds."""
    graph = dataset.graph
    named = {"indptr": graph.indptr, "indices": graph.indices, "data": graph.data, "edge_ids": graph.edge_ids}
    x = dataset.x
    if sparse.issparse(x):
        named |= {f"x_{part}": getattr(x, part) for part in ("indptr", "indices", "data")}
    elif x is not None:
        named["x"] = x
    if dataset.num_classes:
        named["y"] = dataset.y
    arrays = [_array(key, a.dtype, a.shape, a.nbytes) for key, a in named.items() if a is not None]
    parts = {part: len(getattr(dataset, f"{part}_idx")) for part in PARTS}
    labels = {"classes": dataset.num_classes, "multi": dataset.y.ndim > 1} if dataset.num_classes else None
    return {
        "name": dataset.name,
        "path": None,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "weighting": graph.weighting,
        "in_degrees": in_degrees(graph.indptr),
        "arrays": arrays,
        "bytes": sum(array["bytes"] for array in arrays),
        "features": [] if x is None else ["x"],
        "feature_widths": {} if x is None else {"x": (int(x.shape[1]), "vertex")},
        "labels": labels,
        "splits": {"count": dataset.num_splits, **parts} if any(parts.values()) else None,
        "metric": dataset.metric if labels else None,
        "original_ids": None,
        "meta": dataset.meta,
        "digest": graph.digest,
    }


def in_degrees(indptr: NDArray[np.int64]) -> dict[str, Any]:
    """Return the largest and the mean number of in-neighbours, and how many vertices have none.

    Examples
    --------
    >>> in_degrees(np.array([0, 3, 3, 4]))
    {'max': 3, 'mean': 1.3333333333333333, 'without': 1}
    """
    n, most, without = len(indptr) - 1, 0, 0
    for start in range(0, n, _PIECE):
        degrees = np.diff(indptr[start : min(start + _PIECE, n) + 1])
        most, without = max(most, int(degrees.max())), without + int(np.count_nonzero(degrees == 0))
    return {"max": most, "mean": float(indptr[-1]) / n, "without": without}


def _array(name: str, dtype: Any, shape: tuple[int, ...], nbytes: int) -> dict[str, Any]:
    return {"name": name, "dtype": str(dtype), "shape": [int(size) for size in shape], "bytes": int(nbytes)}


def _stored_widths(store: GraphStore) -> dict[str, tuple[int, str]]:
    """Return the width of each of the features, and whether it is of vertices or of edges."""
    widths = {}
    for name in store.feature_names:
        shape = store.specs[name].shape if name in store.specs else store.meta["x_shape"]
        owner = "edge" if name in store.meta.get("edge_features", []) else "vertex"
        widths[name] = int(shape[1]) if len(shape) > 1 else 1, owner
    return widths


def _stored_labels(store: GraphStore) -> dict[str, Any] | None:
    if "y" not in store:
        return None
    shape = store.specs["y"].shape
    if len(shape) == 2 and shape[1] > 1:
        return {"classes": shape[1], "multi": True}
    stated = store.meta.get("num_classes")
    return {"classes": stated if stated is not None else int(store.array("y").max(initial=-1)) + 1, "multi": False}


def _stored_splits(store: GraphStore) -> dict[str, Any] | None:
    if all(f"{part}_masks" in store for part in PARTS):
        masks = {part: store.array(f"{part}_masks") for part in PARTS}
        first = {part: int(mask[0].sum()) if len(mask) else 0 for part, mask in masks.items()}
        return {"count": len(masks["train"]), **first}
    if all(f"{part}_idx" in store for part in PARTS):
        return {"count": 1, **{part: store.specs[f"{part}_idx"].shape[0] for part in PARTS}}
    return None


def _original_ids(store: GraphStore) -> str | None:
    """Return the form in which the store keeps the ids that the user gave."""
    if "original_ids" in store:
        return "integers, in original_ids"
    return "strings, in names_data" if "names_ptr" in store else None
