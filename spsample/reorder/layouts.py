"""What becomes of each array of a store whose rows change their order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError
from spsample.store import GraphStore
from spsample.store.layout import MAP_ARRAYS

ENTRIES = ("indices", "data", "edge_ids")
PERMUTATION = "relabelled_from"
"""Array of a store with vertices numbered anew: the number that each had before."""

_PARTS = ("train", "val", "test")
_BY_VERTEX = ("y", "original_ids", PERMUTATION)
_IDS = tuple(f"{part}_idx" for part in _PARTS)
_MASKS = tuple(f"{part}_masks" for part in _PARTS)
_RUNS = {"names_data": "names_ptr", "x_indices": "x_indptr", "x_data": "x_indptr"}
"""Arrays of rows of several lengths, and where each row begins."""


class Kinds(NamedTuple):
    """Names of arrays of a store, by what is done to them.

    Attributes
    ----------
    rows : tuple of str
        One row for each vertex, which is moved.
    runs : dict of str to str
        Rows of several lengths, which are moved, and the array of their row pointers.
    ids : tuple of str
        Vertex ids, which are numbered anew.
    masks : tuple of str
        One column for each vertex, which is moved.
    kept : tuple of str
        What is copied as it is.
    """

    rows: tuple[str, ...]
    runs: dict[str, str]
    ids: tuple[str, ...]
    masks: tuple[str, ...]
    kept: tuple[str, ...]


def kinds_of(store: GraphStore, *, relabel: bool) -> Kinds:
    """Say what is done to the arrays beside the graph's own: with a map only features that are dense are moved.

    Raises
    ------
    DataError
        With `relabel`, if the store has an array of which nothing says whether its rows are vertices.

    Examples
    --------
    >>> import tempfile
    >>> from spsample.data import planted, save_dataset
    >>> folder = tempfile.TemporaryDirectory()
    >>> save_dataset(planted(60, 3, 2), f"{folder.name}/planted")
    >>> kinds_of(GraphStore.open(f"{folder.name}/planted"), relabel=False).rows
    ('x',)
    >>> folder.cleanup()
    """
    meta = store.meta
    of_vertices = {"x", *meta.get("node_features", [])} - set(meta.get("edge_features", []))
    others = [name for name in store.names if name not in ("indptr", *ENTRIES, *MAP_ARRAYS)]
    rows = [name for name in others if name in of_vertices or (relabel and name in _BY_VERTEX)]
    runs = {name: pointers for name, pointers in _RUNS.items() if relabel and name in others}
    ids = [name for name in others if relabel and name in _IDS]
    masks = [name for name in others if relabel and name in _MASKS]
    done = {*rows, *runs, *runs.values(), *ids, *masks}
    kept = [name for name in others if name not in done]
    unknown = [name for name in kept if relabel and name not in meta.get("edge_features", [])]
    if unknown:
        raise DataError(
            argument=str(store.path),
            given=f"an array {unknown[0]}, of which nothing says whether its rows are vertices",
            expected="arrays that the form of stores knows",
            hint='List it in meta.json as "node_features" or "edge_features", or reorder without new numbers.',
        )
    return Kinds(tuple(rows), runs, tuple(ids), tuple(masks), tuple(kept))


def inverse(order: NDArray[Any], dtype: Any = np.int64) -> NDArray[Any]:
    """Return the permutation that undoes one.

    Examples
    --------
    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    places = np.empty(len(order), dtype)
    places[order] = np.arange(len(order), dtype=dtype)
    return places
