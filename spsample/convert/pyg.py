"""PyG's ``Data``: edges, weights, features, labels, masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from scipy import sparse

from spsample.convert.arrays import ArrayEdges
from spsample.convert.chunks import EdgeList
from spsample.convert.compressed import require_file
from spsample.data.labels import SPLIT_IDS, class_labels, named_splits, num_classes, split_arrays
from spsample.errors import DataError, DTypeError, InputError, MissingDependencyError
from spsample.store.adapters import host_array
from spsample.store.validation import as_edge_index, as_weights

__all__ = ["load_pyg", "pyg_edges", "pyg_labels", "pyg_unread"]

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
        expected = "torch_geometric.data.Data, saved by torch.save"
        raise DataError(argument=str(path), given=given, expected=expected) from error
    if graphs > 1:
        raise DataError(argument=str(path), given=f"{graphs} graphs", expected="one graph")
    return loaded


def _num_graphs(loaded: Any) -> int:
    """How many graphs a file holds: a list of them, or the (data, slices, ...) of an InMemoryDataset."""
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
    """Names of the attributes of PyG's ``Data`` of which nothing is made."""
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
