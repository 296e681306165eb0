"""Data sets and graphs as sources: in memory, in stores, in ``.npz`` files, generated, of PyG, and folders of OGB."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.convert.columns import EdgeColumns, VertexNames
from spsample.convert.compressed import open_bytes, require_file
from spsample.convert.edges import ArrayEdges, EdgeList, GraphEdges, RmatEdges
from spsample.convert.nodes import NodeTable
from spsample.convert.options import ConvertOptions
from spsample.convert.tables import CsvTable, VertexRows, feature_rows, matrices
from spsample.convert.text import TextEdges, TextForm
from spsample.data import labels
from spsample.data.dataset import Dataset, graph_alone
from spsample.data.generators import NUM_CLASSES, NUM_FEATURES, PhiloxStream
from spsample.data.stored import dataset_of, load_npz
from spsample.errors import DTypeError, InputError, MissingDependencyError, require_module
from spsample.store import Graph, GraphStore, StoreWriter
from spsample.store.folder import file_error
from spsample.store.graph import host_array
from spsample.store.layout import MAP_ARRAYS
from spsample.store.npy import npz_names, read_npz
from spsample.store.validation import as_edge_index, as_weights

_SPLITS = (*labels.SPLIT_IDS, *labels.SPLIT_MASKS)
_NAMES = ("original_ids", "names_ptr", "names_data")
_REMADE = ("indptr", "indices", "data", "edge_ids", "x", "x_indptr", "x_indices", "x_data", "y")
"""Arrays of a store that are made from its graph, or are those of its data set."""
_ROWS = 1 << 14


@dataclass
class Origin:
    """Edges, and what else a source has: facts for ``meta.json``, arrays to be written, names of the vertices."""

    edges: EdgeList
    facts: dict[str, Any]
    arrays: dict[str, Any] = field(default_factory=dict)
    names: VertexNames | None = None
    write: Callable[[StoreWriter], None] | None = None
    """Writes arrays that are made when they are wanted, of the features ``x``."""
    rules: dict[str, Any] = field(default_factory=dict)
    """Options that the source settles itself."""
    row_normalized: bool = False
    """True where the entries of each row weigh the same and 1 together, without arrays of weights."""
    nodes: NodeTable | None = None


def replaced(arrays: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    """Return arrays with others in place of those of the same name, and of all splits where there are new ones."""
    has_splits = any(name in by for name in _SPLITS)
    return {name: array for name, array in arrays.items() if name not in _SPLITS or not has_splits} | by


def refuse_weights(options: ConvertOptions, name: str) -> None:
    """Refuse weights for a graph that has its own, or none.

    Raises
    ------
    InputError
    """
    if options.weights is not None:
        expected = "none here: a graph has its own weights; tables, arrays and PyG's data take them"
        raise InputError(argument="weights", given=f"{options.weights!r} for {name}", expected=expected)


def from_dataset(dataset: Dataset) -> Origin:
    """Return a data set as a source."""
    facts = {"name": dataset.name, **dataset.meta, "metric": dataset.metric, "num_classes": dataset.num_classes}
    arrays: dict[str, Any] = {} if dataset.x is None else {"x": dataset.x}
    if dataset.num_classes:
        arrays["y"] = dataset.y
    index_sets = {name: getattr(dataset, name) for name in labels.SPLIT_IDS}
    if any(len(ids) for ids in index_sets.values()):
        arrays |= labels.named_splits(dataset.name, index_sets, dataset.graph.num_nodes)
    edges = GraphEdges(dataset.name, dataset.graph)
    return Origin(edges, facts, arrays, row_normalized=dataset.graph.weighting == "row")


def from_store(store: GraphStore) -> Origin:
    """Return a store as a source: data set, all splits, names, more features.

    Raises
    ------
    DataError
        If it has other arrays: how they follow a change of edges is not known.
    """
    dataset = dataset_of(store)
    origin = from_dataset(dataset)
    features = store.meta.get("node_features", [])
    if features:
        origin.facts["node_features"] = features
    rows = store.row_of_vertex()
    for name in store.names:
        if name in features and name != "x":
            origin.arrays[name] = store.array(name) if rows is None else store.array(name)[rows]
        elif name in _NAMES:
            origin.arrays[name] = store.array(name)
        elif name not in (*_REMADE, *MAP_ARRAYS, *_SPLITS):
            expected = "a store of a graph, features of its vertices, labels, splits and names of the vertices"
            hint = "A conversion cannot tell what becomes of other arrays; copy the store's folder to keep them."
            raise file_error(store.path, f"an array {name!r}", expected, hint)
    splits = {name: store.array(name) for name in _SPLITS if name in store}
    origin.arrays = replaced(origin.arrays, labels.named_splits(str(store.path), splits, dataset.graph.num_nodes))
    return origin


def from_npz(path: Path, options: ConvertOptions) -> Origin:
    """Return what a file of ``scipy.sparse.save_npz`` holds, one that `load_npz` takes, or one with ``edge_index``.

    The last has arrays by the names that PyG's ``Data`` have.

    Raises
    ------
    DataError
        If the file is of none of these forms, or of two.
    InputError
        If options have weights for a graph.
    """
    require_file(path)
    names = npz_names(path, "an .npz file")
    if "edge_index" in names:
        return from_pyg(_edge_index_data(path, names), str(path), path.stem, options)
    refuse_weights(options, str(path))
    if "format" in names:
        read_npz(path, "what scipy.sparse.save_npz writes")  # SciPy itself does not check that all of it is read
        return from_dataset(graph_alone(path.stem, load_matrix(path, Graph.from_scipy)))
    dataset = load_npz(path)
    origin = from_dataset(dataset)
    if dataset.num_splits > 1:
        held = read_npz(path, "an .npz file with masks", labels.split_arrays(str(path), names).values())
        origin.arrays = replaced(origin.arrays, labels.named_splits(str(path), held, dataset.graph.num_nodes))
    return origin


def load_matrix(path: Path, make: Callable[[Any], Any], hint: str = "") -> Any:
    """Load a sparse matrix of any form from an ``.npz`` file; return what `make` makes of it.

    Raises
    ------
    DataError
        If it cannot be read, or made so; `hint` says what to do.
    """
    require_file(path)
    expected = "what scipy.sparse.save_npz writes"
    try:
        return make(scipy.sparse.load_npz(path))
    except InputError as error:
        raise file_error(path, f"{error.argument} with {error.given}", error.expected) from error
    except Exception as error:  # zipfile, zlib and NumPy raise a dozen types on damaged bytes
        raise file_error(path, f"a matrix that cannot be read ({error})", expected, hint) from error


def _edge_index_data(path: Path, names: Collection[str]) -> SimpleNamespace:
    """The arrays of a file with ``edge_index``; ``num_nodes`` is that of the rows of x, y or masks where missing."""
    if "indptr" in names or "format" in names:
        raise file_error(path, f"edge_index and {'indptr' if 'indptr' in names else 'a matrix of SciPy'}", "one graph")
    arrays = read_npz(path, "an .npz file with edge_index")
    rows = next((arrays[name] for name in ("x", "y", "train_mask") if name in arrays and arrays[name].ndim), None)
    held = arrays.get("num_nodes")
    if held is not None and (held.size != 1 or held.dtype.kind not in "iu"):
        raise file_error(path, f"num_nodes of dtype {held.dtype} and shape {held.shape}", "one integer")
    number = len(rows) if rows is not None else None
    number = number if held is None else int(held.reshape(()))
    return SimpleNamespace(**{**arrays, "num_nodes": number, "keys": arrays.keys})


def from_rmat(scale: int, edge_factor: int, random_seed: int) -> Origin:
    """Return an R-MAT graph, bit for bit what `rmat` makes in memory; what it does to its pairs is done on the way."""
    facts = {"metric": "accuracy", "random_seed": random_seed, "scale": scale, "edge_factor": edge_factor}
    return Origin(
        RmatEdges(scale, edge_factor, random_seed),
        {"name": "rmat", **facts, "num_classes": NUM_CLASSES, "node_features": ["x"]},
        write=partial(_write_rmat, 1 << scale, PhiloxStream(random_seed).at(scale * (edge_factor << scale))),
        rules={"symmetrise": True, "drop_self_loops": True, "deduplicate": "first", "edge_ids": False},
    )


def _write_rmat(n: int, stream: PhiloxStream, writer: StoreWriter) -> None:
    """Write features and labels piece by piece, and a split, which is made in memory."""
    x, y = writer.create("x", np.float32, (n, NUM_FEATURES)), writer.create("y", np.int64, n)
    for first in range(0, n, _ROWS):
        rows = x[first : first + _ROWS]
        rows[:] = (2 * stream.uniform(rows.size) - 1).reshape(rows.shape)
    for first in range(0, n, _ROWS):
        y[first : first + _ROWS] = stream.below(NUM_CLASSES, len(y[first : first + _ROWS]))
    for name, ids in labels.random_split(stream.permutation(n)).items():
        writer.write(name, ids)


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
    typed = [torch_geometric.data.HeteroData, BaseStorage, EdgeStorage, NodeStorage]  # to be refused by their name
    kinds = [torch_geometric.data.Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, *typed]
    try:
        with torch.serialization.safe_globals(kinds):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        several = loaded if isinstance(loaded, (tuple, list)) else [loaded]  # or (data, slices, ...) of InMemoryDataset
        slices = several[1] if len(several) > 1 and isinstance(several[1], dict) else {}
        count = sum(hasattr(entry, "edge_index") for entry in several)
        graphs = len(slices["edge_index"]) - 1 if "edge_index" in slices else count
        while isinstance(loaded, (tuple, list)) and len(loaded) >= 1:
            loaded = loaded[0]
        if isinstance(loaded, dict) and "edge_index" in loaded:
            loaded = torch_geometric.data.Data.from_dict(loaded)
        getattr(loaded, "edge_index", None)  # PyG raises an error of its own where a part of the object is missing
    except Exception as error:  # torch and pickle raise many types
        is_pickle = "Weights only load failed" in str(error)
        unreadable = f"an unreadable file ({type(error).__name__})"
        given = "a pickle of other objects, which could run code" if is_pickle else unreadable
        raise file_error(path, given, "torch_geometric.data.Data, saved by torch.save") from error
    if graphs > 1:
        raise file_error(path, f"{graphs} graphs", "one graph")
    return loaded


def from_pyg(data: Any, place: str, name: str, options: ConvertOptions) -> Origin:
    """Return PyG's ``Data``, or an object like it, as a source; `place` names it in messages.

    Labels are one or a row of them for each vertex; none are read where options name others.

    Raises
    ------
    InputError, DTypeError
        If it has no edges, or is something else.
    DataError
        If there are more or fewer labels, as of whole graphs, or a label is no whole number from -1 on.
    """
    if getattr(data, "edge_index", None) is None:
        given = f"an object of type {type(data).__name__} without edge_index"
        hint = ""
        if getattr(data, "adj_t", None) is not None:
            hint = "Graph.from_pyg(data).save(path) takes adj_t."
        elif hasattr(data, "edge_types"):
            hint = "A graph of several types is not read: take one edge type, or data.to_homogeneous()."
        expected = "a path, a Dataset, or torch_geometric.data.Data with edge_index"
        raise DTypeError(argument=place, given=given, expected=expected, hint=hint)
    pairs = as_edge_index("edge_index", host_array(data.edge_index))
    edges = ArrayEdges(place, pairs[0], pairs[1], 1, _pyg_weights(data, options.weights, pairs.shape[1]))
    number = getattr(data, "num_nodes", None)
    edges.num_nodes = None if number is None else int(number)
    origin = Origin(edges, {"name": name})
    if getattr(data, "x", None) is not None:
        origin.arrays["x"] = _as_features(data.x)
    keys = list(data.keys() if callable(data.keys) else data.keys)  # a property in PyG before 2.4
    held = {key for key in keys if getattr(data, key, None) is not None}
    parts = set(labels.split_arrays(place, held).values())
    splits = {*parts, *held.intersection(labels.SPLIT_IDS)} if parts and parts <= held else set()
    if splits:
        arrays = {key: host_array(getattr(data, key)) for key in splits}
        origin.arrays |= labels.named_splits(place, arrays, edges.num_nodes or int(pairs.max(initial=-1)) + 1)
    if options.labels is None and getattr(data, "y", None) is not None:
        y = labels.class_labels(f"y of {place}", host_array(data.y), edges.num_nodes, _LABELS_HINT)
        origin.arrays["y"], origin.facts["num_classes"] = y, labels.num_classes(y)
    taken = {"edge_index", options.weights or "edge_weight", "x", "y", "num_nodes", *splits}
    edges.unread = tuple(sorted(key for key in keys if key not in taken))
    return origin


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
    return scipy.sparse.csr_array(tuple(arrays), shape=tuple(rows.shape))


_EDGES, _SIZES = "edge.csv.gz", "num-node-list.csv.gz"
_FEATURES, _LABELS = "node-feat.csv.gz", "node-label.csv.gz"
_OTHER_FORMS = {"triplet-type-list.csv.gz": "several types of vertices", "data.npz": "arrays in data.npz"}


def is_ogb_folder(path: Path) -> bool:
    """Return whether there is a data set of OGB at a path: its folder, or ``raw`` in it."""
    return any(os.path.isfile(_raw(path) / name) for name in (_EDGES, *_OTHER_FORMS))


def _raw(path: Path) -> Path:
    return path / "raw" if os.path.isdir(path / "raw") else path


def from_ogb(path: Path, options: ConvertOptions) -> Origin:
    """Return an unpacked data set of the Open Graph Benchmark as a source: edges, features, labels and a split.

    Edges are in the direction of the file, features streamed. What options replace is not read.

    Raises
    ------
    DataError
        If the folder holds several graphs or types of vertices, or a file does not fit.
    MissingDependencyError
        Without pyarrow.
    """
    require_module("pyarrow.csv", needed_for=f"reading {_FEATURES} of {path}", extra="convert")
    raw = _raw(path.resolve())
    for name, what in _OTHER_FORMS.items():
        if (raw / name).is_file():
            hint = "spsample convert ogbn-papers100M takes it through ogb." if name == "data.npz" else ""
            raise file_error(path, what, f"edges in {_EDGES}", hint)
    sizes = _numbers(raw / _SIZES).reshape(-1)
    if len(sizes) != 1:
        raise file_error(raw, f"{len(sizes)} graphs in {_SIZES}", "one graph, with labels of its vertices")
    n = int(sizes[0])
    edges = TextEdges(raw / _EDGES, TextForm(",", EdgeColumns(0, 1), (2, 2)))
    edges.num_nodes, edges.notes = n, _ogb_notes(raw, options)
    origin = Origin(edges, {"name": raw.parent.name, "source": str(path)})
    if (raw / _FEATURES).is_file() and options.features is None:
        table = _ogb_table(raw / _FEATURES)
        rows = partial(feature_rows, table, table.names, n)
        origin.arrays["x"] = VertexRows(np.dtype(np.float32), (n, len(table.names)), rows)
    if (raw / _LABELS).is_file() and options.labels is None:
        y = labels.class_labels(str(raw / _LABELS), _numbers(raw / _LABELS), n)
        origin.facts["num_classes"], origin.arrays["y"] = labels.num_classes(y), y
    if options.splits is None:
        origin.arrays |= _ogb_split(raw.parent, n)
    return origin


def _ogb_notes(raw: Path, options: ConvertOptions) -> tuple[str, ...]:
    """Return notes about files that are not read, and about the direction of edges."""
    read = {_EDGES, _SIZES, _FEATURES, _LABELS, "num-edge-list.csv.gz"}
    unread = sorted(file.name for file in raw.glob("*.csv.gz") if file.name not in read)
    notes = [f"not read of {raw}: {', '.join(unread)}"] if unread else []
    if not options.symmetrise:
        notes.append(
            f"edges are as {raw / _EDGES} has them: of an undirected graph, such as ogbn-products, in one "
            "direction; --symmetrise adds the other"
        )
    return tuple(notes)


def _ogb_split(whole: Path, n: int) -> dict[str, NDArray[Any]]:
    found: dict[Path, dict[str, Path]] = {}
    for file in sorted([*whole.glob("split/*/*.csv"), *whole.glob("split/*/*.csv.gz")]):
        found.setdefault(file.parent, {})[file.name.split(".csv")[0]] = file  # the compressed one of two
    folders = [folder for folder, files in found.items() if "train" in files]
    if len(folders) > 1:
        given = f"{len(folders)} splits: {', '.join(path.name for path in sorted(folders))}"
        raise file_error(whole, given, "one split, or --splits splits.npz")
    if not folders:
        return {}
    files = found[folders[0]]
    held = {}
    for part in ("train", "valid", "test"):
        if part not in files:
            raise file_error(folders[0], f"no {part}.csv.gz", "all of train.csv.gz, valid.csv.gz, test.csv.gz")
        ids = _numbers(files[part]).reshape(-1)
        held[f"{part}_idx"] = ids.astype(np.int64) if (ids == np.trunc(ids)).all() else ids
    return labels.named_splits(str(folders[0]), held, n)


def _numbers(path: Path) -> NDArray[np.float64]:
    """All of a small file."""
    table = _ogb_table(path)
    return np.concatenate([np.empty((0, len(table.names))), *(rows for rows, _ in matrices(table, table.names))])


def _ogb_table(path: Path) -> CsvTable:
    with open_bytes(path) as file:
        columns = bytes(file.read(1 << 20)).split(b"\n", 1)[0].count(b",") + 1
    return CsvTable(path, [str(column) for column in range(columns)], ",", header=False)
