"""Data sets and graphs: in memory, in stores, in ``.npz`` files, in PyG's ``Data``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy import sparse

from spsample.convert.compressed import require_file
from spsample.convert.edges import ArrayEdges, EdgeChunk, EdgeList
from spsample.data.dataset import Dataset, graph_alone
from spsample.data.labels import SPLIT_IDS, SPLIT_MASKS, class_labels, named_splits, num_classes, split_arrays
from spsample.data.npz import load_npz
from spsample.errors import DTypeError, InputError, MissingDependencyError
from spsample.store import Graph, GraphStore
from spsample.store.folder import file_error
from spsample.store.graph import host_array
from spsample.store.layout import MAP_ARRAYS
from spsample.store.npy import npz_names, read_npz
from spsample.store.validation import as_edge_index, as_weights

_NAMES = ("original_ids", "names_ptr", "names_data")
_REMADE = ("indptr", "indices", "data", "edge_ids", "x", "x_indptr", "x_indices", "x_data", "y")
"""Arrays of a store that are made from its graph, or are those of its data set."""


class GraphEdges(EdgeList):
    """The entries of a graph as edges; their positions are those in its arrays."""

    rereadable = True

    def __init__(self, name: str, graph: Graph) -> None:
        self.name = name
        self.num_nodes = graph.num_nodes
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
        If it has other arrays: how they follow a change of edges is not known.
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
            raise file_error(store.path, f"an array {name!r}", expected, hint)
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
        raise file_error(path, f"{error.argument} with {error.given}", error.expected) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        given = f"a matrix that cannot be read ({error})"
        raise file_error(path, given, "what scipy.sparse.save_npz writes") from error
    return graph_alone(path.stem, graph)


def _edge_index_data(path: Path, names: Collection[str]) -> SimpleNamespace:
    """The arrays of a file with ``edge_index``; ``num_nodes`` is that of the rows of x, y or masks where missing."""
    if "indptr" in names or "format" in names:
        raise file_error(path, f"edge_index and {'indptr' if 'indptr' in names else 'a matrix of SciPy'}", "one graph")
    arrays = read_npz(path, "an .npz file with edge_index")
    rows = next((arrays[name] for name in ("x", "y", "train_mask") if name in arrays and arrays[name].ndim), None)
    num_nodes = arrays.get("num_nodes", np.array(-1 if rows is None else len(rows)))
    if num_nodes.size != 1 or num_nodes.dtype.kind not in "iu":
        raise file_error(path, f"num_nodes of dtype {num_nodes.dtype} and shape {num_nodes.shape}", "one integer")
    number = None if rows is None and "num_nodes" not in arrays else int(num_nodes.reshape(()))
    return SimpleNamespace(**{**arrays, "num_nodes": number, "keys": arrays.keys})


def npz_splits(path: Path, num_nodes: int) -> dict[str, NDArray[Any]]:
    """Return all splits of a data set that `load_npz` takes, in a form that a store has, too."""
    wanted = split_arrays(str(path), npz_names(path, "an .npz file")).values()
    return named_splits(str(path), read_npz(path, "an .npz file with masks", wanted), num_nodes)


_LABELS_HINT = (
    "A store's labels are classes of its vertices. Pass labels=FILE.npy of integers (on the command line "
    "--labels), which are taken in place of y, or remove y from the data."
)


def load_pyg(path: Path) -> Any:
    """Load PyG's ``Data`` from a file that ``torch.save`` wrote.

    Only tensors and PyG's own types are loaded; other pickled objects are refused.

    Raises
    ------
    MissingDependencyError
        Without torch or torch_geometric.
    DataError
        If the file cannot be read so, or holds something else.
    """
    require_file(path)
    try:
        import torch
        import torch_geometric.data
        from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage
    except ImportError as error:
        name = error.name or "torch_geometric"
        raise MissingDependencyError(package=name, needed_for="reading PyG's data", extra="pyg") from None
    kinds = [torch_geometric.data.Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    typed = [torch_geometric.data.HeteroData, BaseStorage, EdgeStorage, NodeStorage]  # to be refused by their name
    try:
        with torch.serialization.safe_globals([*kinds, *typed]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        graphs = _num_graphs(loaded)
        while isinstance(loaded, (tuple, list)) and len(loaded) >= 1:  # InMemoryDataset saves (data, slices, ...)
            loaded = loaded[0]
        if isinstance(loaded, dict) and "edge_index" in loaded:
            loaded = torch_geometric.data.Data.from_dict(loaded)
        getattr(loaded, "edge_index", None)  # PyG raises an error of its own where a part of the object is missing
    except Exception as error:  # torch and pickle raise many types
        if "Weights only load failed" in str(error):
            given = "a pickle of other objects, which could run code"
        else:
            given = f"an unreadable file ({type(error).__name__})"
        raise file_error(path, given, "torch_geometric.data.Data, saved by torch.save") from error
    if graphs > 1:
        raise file_error(path, f"{graphs} graphs", "one graph")
    return loaded


def _num_graphs(loaded: Any) -> int:
    """Return the number of graphs in a file: a list of them, or the (data, slices, ...) of an InMemoryDataset."""
    if not isinstance(loaded, (tuple, list)):
        return 1
    if len(loaded) > 1 and isinstance(loaded[1], dict) and "edge_index" in loaded[1]:
        return len(loaded[1]["edge_index"]) - 1
    return max(1, sum(hasattr(entry, "edge_index") for entry in loaded))


def pyg_edges(data: Any, name: str, weights: str | None) -> tuple[EdgeList, dict[str, Any]]:
    """Return edges and arrays of PyG's ``Data``; `weights` names the attribute that holds them.

    Raises
    ------
    InputError, DTypeError
        If it has no edges, or is something else.
    """
    if getattr(data, "edge_index", None) is None:
        typed = hasattr(data, "edge_types")
        given = f"an object of type {type(data).__name__} without edge_index"
        hint = "A graph of several types is not read: take one edge type, or data.to_homogeneous()." if typed else ""
        if getattr(data, "adj_t", None) is not None:
            hint = "Graph.from_pyg(data).save(path) takes adj_t."
        expected = "a path, a Dataset, or torch_geometric.data.Data with edge_index"
        raise DTypeError(argument=name, given=given, expected=expected, hint=hint)
    pairs = as_edge_index("edge_index", host_array(data.edge_index))
    edges = ArrayEdges(name, pairs[0], pairs[1], 1, _pyg_weights(data, weights, pairs.shape[1]))
    number = getattr(data, "num_nodes", None)
    edges.num_nodes = None if number is None else int(number)
    arrays: dict[str, Any] = {}
    if getattr(data, "x", None) is not None:
        arrays["x"] = _as_features(data.x)
    splits = {key: host_array(held) for key, held in _splits(data, name).items()}
    if splits:
        arrays |= named_splits(name, splits, edges.num_nodes or int(pairs.max(initial=-1)) + 1)
    return edges, arrays


def pyg_labels(data: Any, name: str, num_nodes: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the number of classes and the labels of PyG's ``Data``: one or a row of them for each vertex, or no y.

    Raises
    ------
    DataError
        If there are more or fewer labels, as of whole graphs, or a label is no whole number from -1 on.
    """
    if getattr(data, "y", None) is None:
        return {}, {}
    y = class_labels(f"y of {name}", host_array(data.y), num_nodes, _LABELS_HINT)
    return {"num_classes": num_classes(y)}, {"y": y}


def pyg_unread(data: Any, weights: str | None) -> tuple[str, ...]:
    """Return the names of the attributes of PyG's ``Data`` that are not used."""
    taken = {"edge_index", weights or "edge_weight", "x", "y", "num_nodes", *_splits(data, "data")}
    return tuple(sorted(name for name in _held(data) if name not in taken))


def _held(data: Any) -> list[str]:
    """Names of what the data hold."""
    return list(data.keys() if callable(data.keys) else data.keys)  # a property in PyG before 2.4


def _splits(data: Any, name: str) -> dict[str, Any]:
    """The arrays of a split, where the data have one for each part."""
    held = {key for key in _held(data) if getattr(data, key, None) is not None}
    keys = split_arrays(name, held).values()
    whole = held.issuperset(keys) and bool(keys)
    return {key: getattr(data, key) for key in {*keys, *held.intersection(SPLIT_IDS)}} if whole else {}


def _pyg_weights(data: Any, weights: str | None, count: int) -> NDArray[Any] | None:
    held = getattr(data, weights or "edge_weight", None)
    if held is None:
        if weights is not None:
            expected = "an attribute of the data with edge weights"
            raise InputError(argument="weights", given=repr(weights), expected=expected)
        return None
    array = as_weights("weights", host_array(held).reshape(-1))
    if len(array) != count:
        raise InputError(argument="weights", given=f"{len(array)} weights", expected=f"{count}, one per edge")
    return array


def _as_features(held: Any) -> Any:
    """Features of PyG's data; sparse tensors as CSR."""
    layout = str(getattr(held, "layout", ""))
    if layout not in ("torch.sparse_coo", "torch.sparse_csr", "torch.sparse_csc"):
        return host_array(held)
    rows = held.detach().to_sparse_csr()
    arrays = (host_array(tensor) for tensor in (rows.values(), rows.col_indices(), rows.crow_indices()))
    return sparse.csr_array(tuple(arrays), shape=tuple(rows.shape))
