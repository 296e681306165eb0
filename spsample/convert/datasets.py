"""Data sets and graphs: in memory, in stores, in ``.npz`` files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.convert.chunks import EdgeChunk
from spsample.convert.compressed import require_file
from spsample.data.dataset import Dataset
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS, named_splits, split_arrays
from spsample.data.npz import load_npz
from spsample.errors import DataError, InputError
from spsample.store import Graph, GraphStore
from spsample.store.archives import npz_names, read_npz
from spsample.store.layout import MAP_ARRAYS

__all__ = ["GraphEdges", "data_attributes", "npz_splits", "open_npz", "store_attributes"]

_NAMES = ("original_ids", "names_ptr", "names_data")
_REMADE = ("indptr", "indices", "data", "edge_ids", "x", "x_indptr", "x_indices", "x_data", "y")
"""Arrays of a store that are made from its graph, or are those of its data set."""


class GraphEdges:
    """The entries of a graph as edges; their positions are those in its arrays."""

    rereadable = True

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = name
        self.num_nodes: int | None = graph.num_nodes
        self.weight_dtype = None if graph.data is None else graph.data.dtype
        self._graph = graph

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        for first in range(0, self._graph.num_edges, count):
            yield partial(self._chunk, first, min(first + count, self._graph.num_edges))

    def _chunk(self, first: int, last: int) -> EdgeChunk:
        graph = self._graph
        begin = int(np.searchsorted(graph.indptr, first, side="right")) - 1
        end = int(np.searchsorted(graph.indptr, last, side="left"))
        bounds = np.clip(graph.indptr[begin : end + 1], first, last)
        sources = graph.indices[first:last]
        targets = np.repeat(np.arange(begin, end, dtype=sources.dtype), np.diff(bounds))
        weights = None if graph.data is None else graph.data[first:last]
        return EdgeChunk(sources, targets, last - first, 1, weights, first)


def data_attributes(dataset: Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts and arrays of a data set, apart from its graph."""
    facts = {"name": dataset.name, **dataset.meta, "metric": dataset.metric, "num_classes": dataset.num_classes}
    arrays: dict[str, Any] = {} if dataset.x is None else {"x": dataset.x}
    if dataset.num_classes:
        arrays["y"] = dataset.y
    index_sets = {name: getattr(dataset, name) for name in SPLIT_IDS}
    if any(len(ids) for ids in index_sets.values()):
        arrays |= named_splits(dataset.name, index_sets, dataset.graph.num_nodes)
    return facts, arrays


def store_attributes(store: GraphStore, dataset: Dataset) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts and arrays of a store, apart from its graph: data set, all splits, names, more features.

    Raises
    ------
    DataError
        If it has other arrays, of which nobody knows what to do to them when edges change.
    """
    facts, arrays = data_attributes(dataset)
    arrays = {name: array for name, array in arrays.items() if name not in (*SPLIT_IDS, *SPLIT_MASKS)}
    features = store.meta.get("node_features", [])
    if features:
        facts["node_features"] = features
    rows = store.row_of_vertex()
    for name in store.names:
        if name in features and name != "x":
            arrays[name] = store.array(name) if rows is None else store.array(name)[rows]
        elif name in _NAMES:
            arrays[name] = store.array(name)
        elif name not in (*_REMADE, *MAP_ARRAYS, *SPLIT_IDS, *SPLIT_MASKS):
            expected = "a store of a graph, features of its vertices, labels, splits and names of the vertices"
            hint = "A conversion cannot tell what becomes of other arrays; copy the store's folder to keep them."
            raise DataError(argument=str(store.path), given=f"an array {name!r}", expected=expected, hint=hint)
    splits = {name: store.array(name) for name in (*SPLIT_IDS, *SPLIT_MASKS) if name in store}
    return facts, arrays | named_splits(str(store.path), splits, dataset.graph.num_nodes)


def open_npz(path: Path) -> Any:
    """Load a graph from ``scipy.sparse.save_npz``, or a data set in the form of `load_npz`.

    A file with ``edge_index`` is returned as an object with arrays by the names that PyG's ``Data`` have.

    Raises
    ------
    DataError
        If the file is of none of these forms, or of two.
    """
    require_file(path)
    names = npz_names(path, "an .npz file")
    if "edge_index" in names:
        return _edge_index_data(path, names)
    if "format" not in names:
        return load_npz(path)
    read_npz(path, "what scipy.sparse.save_npz writes")  # SciPy itself does not check that all of it is read
    try:
        graph = Graph.from_scipy(scipy.sparse.load_npz(path))
    except InputError as error:
        given = f"{error.argument} with {error.given}"
        raise DataError(argument=str(path), given=given, expected=error.expected) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        given = f"a matrix that cannot be read ({error})"
        raise DataError(argument=str(path), given=given, expected="what scipy.sparse.save_npz writes") from error
    empty = np.empty(0, np.int64)
    return Dataset(path.stem, graph, None, np.full(graph.num_nodes, -1, np.int64), empty, empty, empty, 0)


def _edge_index_data(path: Path, names: Collection[str]) -> SimpleNamespace:
    """The arrays of a file with ``edge_index``; without ``num_nodes`` rows of x, y or masks tell it, or the edges."""
    if "indptr" in names or "format" in names:
        given = f"edge_index and {'indptr' if 'indptr' in names else 'a matrix of SciPy'}"
        raise DataError(argument=str(path), given=given, expected="one graph")
    arrays = read_npz(path, "an .npz file with edge_index")
    rows = next((arrays[name] for name in ("x", "y", "train_mask") if name in arrays and arrays[name].ndim), None)
    num_nodes = arrays.get("num_nodes", np.array(-1 if rows is None else len(rows)))
    if num_nodes.size != 1 or num_nodes.dtype.kind not in "iu":
        given = f"num_nodes of dtype {num_nodes.dtype} and shape {num_nodes.shape}"
        raise DataError(argument=str(path), given=given, expected="one integer")
    number = None if rows is None and "num_nodes" not in arrays else int(num_nodes.reshape(()))
    return SimpleNamespace(**{**arrays, "num_nodes": number, "keys": arrays.keys})


def npz_splits(path: Path, num_nodes: int) -> dict[str, NDArray[Any]]:
    """Return all splits of a data set that `load_npz` takes, in a form that a store has, too."""
    wanted = split_arrays(str(path), npz_names(path, "an .npz file")).values()
    return named_splits(str(path), read_npz(path, "an .npz file with masks", wanted), num_nodes)
