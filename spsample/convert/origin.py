"""From what the user names to edges and what comes with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.compressed import COMPRESSED, compression, decompressed, inner_suffix
from spsample.convert.datasets import (
    GraphEdges,
    data_attributes,
    load_pyg,
    npz_splits,
    open_npz,
    pyg_edges,
    pyg_labels,
    pyg_unread,
    store_attributes,
)
from spsample.convert.edges import EdgeList, npy_edges, npy_pair, raw_edges
from spsample.convert.generated import PlantedEdges, RmatEdges, write_planted, write_rmat
from spsample.convert.matrix_market import MatrixMarketEdges
from spsample.convert.names import VertexNames
from spsample.convert.nodes import NodeTable
from spsample.convert.ogb import OgbFolder, is_ogb_folder
from spsample.convert.options import ConvertOptions
from spsample.convert.tables import ParquetEdges
from spsample.convert.text import NamedTextEdges, TextEdges, text_form
from spsample.data.dataset import Dataset
from spsample.data.generators import NUM_CLASSES, PlantedRows
from spsample.data.named import GENERATORS, NAMED, generator_arguments, load_dataset
from spsample.data.stored import dataset_of, is_store
from spsample.errors import InputError
from spsample.store import GraphStore, StoreWriter
from spsample.store.folder import file_error

_SUFFIXES = {
    ".txt": "text", ".csv": "text", ".tsv": "text", ".edges": "text", ".el": "text", ".wel": "text", ".ssv": "text",
    ".npy": "npy", ".i4": "int32", ".i8": "int64", ".int32": "int32", ".int64": "int64", ".parquet": "parquet",
    ".pq": "parquet", ".mtx": "mtx", ".mm": "mtx", ".npz": "npz", ".pt": "pyg", ".pth": "pyg",
}  # fmt: skip
_CHANGING = ("symmetrise", "deduplicate", "drop_self_loops", "add_self_loops")
"""Options that change edges, and so the weights of row-normalised ones."""
_MAPPED = ("npy", "int32", "int64", "parquet", "npz", "pyg")


@dataclass(frozen=True)
class Origin:
    """Edges, and what else the source has: facts for ``meta.json``, arrays to be written, names of the vertices."""

    edges: EdgeList
    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    write: Callable[[StoreWriter], None] | None = None
    names: VertexNames | None = None
    original_ids: NDArray[np.int64] | None = None
    rules: dict[str, Any] = field(default_factory=dict)
    """Options that the source settles itself."""
    row_normalized: bool = False
    """True where the entries of each row weigh the same and 1 together, without arrays of weights."""
    nodes: NodeTable | None = None

    def num_names(self) -> int:
        """Return the number of vertices named so far."""
        return 0 if self.names is None else len(self.names)


def open_origin(source: Any, options: ConvertOptions, room: int, folder: Path) -> Origin:
    """Find out what `source` is, and open it.

    Names of vertices may take `room` bytes; `folder` is for a decompressed copy of what cannot be read as a stream.

    Raises
    ------
    DataError, InputError, MissingDependencyError
        If it cannot be read.
    """
    nodes = None if options.nodes is None else NodeTable(options, room)
    return _checked(replace(_origin(source, options, room, folder), nodes=nodes), options)


def _origin(source: Any, options: ConvertOptions, room: int, folder: Path) -> Origin:
    if not isinstance(source, (str, os.PathLike)):
        _refuse_npy_shape("an object in memory", options)
        return _from_object(source, options, "graph")
    text = os.fspath(source)
    kind = options.format if options.format != "auto" else _kind(text)
    if kind not in ("text", "parquet"):
        _refuse_table_options(kind, options)
    if kind == "parquet" and options.header is not None:
        expected = "none here: the columns of a Parquet file have names"
        raise InputError(argument="header", given=f"{options.header} for {text}", expected=expected)
    if kind != "npy" or _is_pair(text):
        _refuse_npy_shape(repr(text), options)
    if kind in _MAPPED and not _is_pair(text) and _is_compressed(Path(text), kind):
        with decompressed(Path(text), folder) as plain:
            origin = _opened(str(plain), kind, options, room)
            origin.edges.name = text  # for messages: the copy is temporary
            facts = origin.facts | ({"source": text} if "source" in origin.facts else {})
            return replace(origin, name=Path(text).name.split(".")[0], facts=facts)
    return _opened(text, kind, options, room)


def _is_compressed(path: Path, kind: str) -> bool:
    """Return whether a file is compressed, by its first bytes; raw numbers may have any, and go by the suffix."""
    if kind in ("int32", "int64"):
        return path.suffix.lower() in COMPRESSED
    return os.path.isfile(path) and compression(path) is not None


def _checked(origin: Origin, options: ConvertOptions) -> Origin:
    """Refuse other numbers of the vertices than those that the source's features, labels and splits go by."""
    own = origin.edges.num_nodes
    if origin.nodes is not None and (origin.write is not None or {"names_ptr", "original_ids"} & origin.arrays.keys()):
        what = "generated vertices" if origin.write is not None else "vertices that have names already"
        raise InputError(argument="nodes", given=f"a table for {what}", expected="edges whose ids it has")
    other = options.renumber != "no" or options.num_nodes not in (None, own)
    if other and (origin.arrays or origin.write is not None):
        argument = "renumber" if options.renumber != "no" else "num_nodes"
        given = f"a source with features, labels, splits or names of its {own} vertices"
        raise InputError(argument=argument, given=given, expected="the vertices as they are, or a plain list of edges")
    changing = [name for name in _CHANGING if getattr(options, name) not in (False, "no")]
    if origin.row_normalized and changing:
        raise file_error(
            origin.edges.name,
            f"a row-normalised graph, whose edges {' and '.join(changing)} would change",
            "a row-normalised graph and none of these options, or another graph",
            "Convert the graph without weights and take normalized('row') of the result.",
        )
    return origin


def _opened(text: str, kind: str, options: ConvertOptions, room: int) -> Origin:
    if kind == "dataset":
        return _named(text, options)
    if kind == "ogb":
        folder = OgbFolder(Path(text), options)
        _refuse_weights(options, text)
        facts, arrays = folder.attributes()
        return Origin(folder.edges(), folder.name, {"source": text} | facts, arrays)
    if kind == "npz":
        return _from_npz(Path(text), options)
    if kind == "pyg":
        return replace(_from_object(load_pyg(Path(text)), options, text), name=Path(text).stem)
    names = VertexNames(room) if options.string_ids else None
    name = Path(text.split(",")[0]).name.split(".")[0]
    return Origin(_edges(text, kind, options, names), name, {"source": text}, names=names)


def _is_pair(text: str) -> bool:
    """Return whether a text names two files, and not one with a comma in its name."""
    return text.endswith(".npy") and "," in text and not os.path.isfile(text)


def _kind(text: str) -> str:
    name = text.split(",")[0] if _is_pair(text) else text
    suffix = inner_suffix(Path(name))
    if os.path.isdir(text) and text not in NAMED and not is_store(text):
        return "ogb" if is_ogb_folder(Path(text)) else "parquet"
    if ":" in text and text.split(":")[0] in GENERATORS:
        return "dataset"
    known = _SUFFIXES.get(suffix)
    is_file = Path(text).suffix.lower() in COMPRESSED or os.path.isfile(text)
    return known or ("text" if is_file else "dataset")


def _refuse_table_options(kind: str, options: ConvertOptions) -> None:
    if options.string_ids or options.columns is not None or options.header is not None:
        expected = "a table (text or Parquet) for columns, header and string ids"
        raise InputError(argument="source", given=f"a source of the form {kind!r}", expected=expected)


def _refuse_npy_shape(source: str, options: ConvertOptions) -> None:
    if options.npy_shape != "auto":
        expected = "none here: it is for edges in one .npy file"
        raise InputError(argument="npy_shape", given=f"{options.npy_shape!r} for {source}", expected=expected)


def _refuse_weights(options: ConvertOptions, name: str) -> None:
    if options.weights is not None:
        expected = "none here: a graph has its own weights; tables, arrays and PyG's data take them"
        raise InputError(argument="weights", given=f"{options.weights!r} for {name}", expected=expected)


def _edges(text: str, kind: str, options: ConvertOptions, names: VertexNames | None) -> EdgeList:
    weights = None if options.weights is None else Path(options.weights)
    if kind == "npy":
        if not _is_pair(text):
            return npy_edges(Path(text), weights, options.npy_shape)
        first, _, second = text.partition(",")
        return npy_pair(Path(first), Path(second), weights)
    if kind in ("int32", "int64"):
        return raw_edges(Path(text), kind, weights)
    if kind == "mtx":
        _refuse_weights(options, text)
        return MatrixMarketEdges(Path(text))
    if kind == "parquet":
        return ParquetEdges(Path(text), options, names)
    form = text_form(Path(text), options)
    return TextEdges(Path(text), form) if names is None else NamedTextEdges(Path(text), form, names)


def _named(text: str, options: ConvertOptions) -> Origin:
    name = text.partition(":")[0]
    if name in GENERATORS:
        _refuse_weights(options, text)
        return _generated(text, name, options)
    if text.endswith(".npz"):
        return _from_npz(Path(text), options)
    if text not in NAMED and is_store(text):
        return _stored(text, options)
    return _from_object(load_dataset(text, random_seed=options.random_seed), options, text)


def _from_npz(path: Path, options: ConvertOptions) -> Origin:
    held = open_npz(path)
    origin = replace(_from_object(held, options, str(path)), name=path.stem)
    if not isinstance(held, Dataset) or held.num_splits == 1:
        return origin
    arrays = {name: array for name, array in origin.arrays.items() if not name.endswith("_idx")}
    return replace(origin, arrays=arrays | npz_splits(path, held.graph.num_nodes))


def _stored(text: str, options: ConvertOptions) -> Origin:
    _refuse_weights(options, text)
    return GraphStore.read(text, _of_store)


def _of_store(store: GraphStore) -> Origin:
    dataset = dataset_of(store)
    return _from_dataset(dataset, *store_attributes(store, dataset))


def _from_dataset(dataset: Dataset, facts: dict[str, Any], arrays: dict[str, Any]) -> Origin:
    edges = GraphEdges(dataset.name, dataset.graph)
    return Origin(edges, dataset.name, facts, arrays, row_normalized=dataset.graph.weighting == "row")


def _generated(text: str, name: str, options: ConvertOptions) -> Origin:
    """A generator's edges; what `rmat` does to its pairs is done on the way."""
    values = generator_arguments(text)
    seed = options.random_seed
    facts: dict[str, Any] = {"name": name, "metric": "accuracy", "random_seed": seed}
    if name == "rmat":
        scale, factor = int(values[0]), int(values[1])
        facts |= {"scale": scale, "edge_factor": factor, "num_classes": NUM_CLASSES}
        rules = {"symmetrise": True, "drop_self_loops": True, "deduplicate": "first", "edge_ids": False}
        write = partial(write_rmat, scale, factor, seed)
        return Origin(RmatEdges(scale, factor, seed), name, facts, write=write, rules=rules)
    rows = PlantedRows(*values, random_seed=seed)  # type: ignore[arg-type]
    facts |= {"degree": rows.degree, "noise": rows.noise, "num_classes": rows.num_classes}
    return Origin(PlantedEdges(rows), name, facts, write=partial(write_planted, rows), rules={"edge_ids": False})


def _from_object(source: Any, options: ConvertOptions, name: str) -> Origin:
    if isinstance(source, Dataset):
        _refuse_weights(options, name)
        return _from_dataset(source, *data_attributes(source))
    edges, arrays = pyg_edges(source, name, options.weights)
    facts: dict[str, Any] = {}
    if options.labels is None:
        facts, labels = pyg_labels(source, name, edges.num_nodes)
        arrays |= labels
    edges.unread = pyg_unread(source, options.weights)
    return Origin(edges, name, facts, arrays)
