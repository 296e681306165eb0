"""From what the user names to edges and what comes with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from spsample.convert import datasets
from spsample.convert.columns import VertexNames
from spsample.convert.compressed import COMPRESSED, compression, decompressed, inner_suffix
from spsample.convert.edges import EdgeList, npy_edges, npy_pair
from spsample.convert.nodes import NodeTable
from spsample.convert.options import ConvertOptions
from spsample.convert.sort import require_budget
from spsample.convert.tables import ParquetEdges
from spsample.convert.text import MatrixMarketEdges, NamedTextEdges, TextEdges, text_form
from spsample.data.dataset import Dataset
from spsample.data.named import GENERATORS, NAMED, generator_arguments, load_dataset
from spsample.data.stored import is_store
from spsample.errors import InputError
from spsample.store import GraphStore
from spsample.store.folder import file_error

_SUFFIXES = {
    ".txt": "text", ".csv": "text", ".tsv": "text", ".edges": "text", ".el": "text", ".wel": "text", ".ssv": "text",
    ".npy": "npy", ".parquet": "parquet", ".pq": "parquet", ".mtx": "mtx", ".mm": "mtx", ".npz": "npz", ".pt": "pyg",
    ".pth": "pyg",
}  # fmt: skip
_CHANGING = ("symmetrise", "deduplicate", "drop_self_loops", "add_self_loops")
"""Options that change edges, and so the weights of row-normalised ones."""
_SPLIT_BYTES = 30
"""Memory that the split of an R-MAT graph takes while it is made, a vertex."""
_VERTEX_BYTES, _EDGE_BYTES, _DEGREE = 130, 24, 15
"""Memory that a planted graph takes while it is made, and its usual degree."""
_MAPPED = ("npy", "parquet", "npz", "pyg")


def open_origin(source: Any, options: ConvertOptions, room: int, folder: Path) -> datasets.Origin:
    """Find out what `source` is, and open it.

    Names of vertices may take `room` bytes; `folder` is for a decompressed copy of what cannot be read as a stream.

    Raises
    ------
    DataError, InputError, MissingDependencyError
        If it cannot be read.
    """
    nodes = None if options.nodes is None else NodeTable(options, room)
    if isinstance(source, (str, os.PathLike)):
        origin = _from_path(os.fspath(source), options, room, folder)
    else:
        _refuse_npy_shape("an object in memory", options)
        if isinstance(source, Dataset):
            datasets.refuse_weights(options, "graph")
            origin = datasets.from_dataset(source)
        else:
            origin = datasets.from_pyg(source, "graph", "graph", options)
    origin.nodes = nodes
    _check(origin, options)
    return origin


def _from_path(text: str, options: ConvertOptions, room: int, folder: Path) -> datasets.Origin:
    is_pair = text.endswith(".npy") and "," in text and not os.path.isfile(text)  # not one with a comma in its name
    kind = options.format if options.format != "auto" else "npy" if is_pair else _kind(text)
    given_of_tables = options.string_ids or options.columns is not None or options.header is not None
    if kind not in ("text", "parquet") and given_of_tables:
        expected = "a table (text or Parquet) for columns, header and string ids"
        raise InputError(argument="source", given=f"a source of the form {kind!r}", expected=expected)
    if kind == "parquet" and options.header is not None:
        expected = "none here: the columns of a Parquet file have names"
        raise InputError(argument="header", given=f"{options.header} for {text}", expected=expected)
    if kind != "npy" or is_pair:
        _refuse_npy_shape(repr(text), options)
    if is_pair or kind not in _MAPPED or not os.path.isfile(text) or compression(Path(text)) is None:
        return _opened(text, kind, options, room)
    with decompressed(Path(text), folder) as plain:
        origin = _opened(str(plain), kind, options, room)
    origin.edges.name = text  # for messages: the copy is temporary
    origin.facts["name"] = Path(text).name.split(".")[0]
    if "source" in origin.facts:
        origin.facts["source"] = text
    return origin


def _kind(text: str) -> str:
    if Path(text).suffix.lower() in (".int32", ".int64", ".i4", ".i8"):
        hint = "Save them first: np.save('edges.npy', np.fromfile(FILE, '<i8').reshape(-1, 2)), or '<i4'."
        raise InputError(argument="source", given=text, expected="pairs of integers as an .npy file", hint=hint)
    if os.path.isdir(text) and text not in NAMED and not is_store(text):
        return "ogb" if datasets.is_ogb_folder(Path(text)) else "parquet"
    if ":" in text and text.split(":")[0] in GENERATORS:
        return "dataset"
    is_file = Path(text).suffix.lower() in COMPRESSED or os.path.isfile(text)
    return _SUFFIXES.get(inner_suffix(Path(text)), "text" if is_file else "dataset")


def _refuse_npy_shape(source: str, options: ConvertOptions) -> None:
    if options.npy_shape != "auto":
        expected = "none here: it is for edges in one .npy file"
        raise InputError(argument="npy_shape", given=f"{options.npy_shape!r} for {source}", expected=expected)


def _opened(text: str, kind: str, options: ConvertOptions, room: int) -> datasets.Origin:
    path = Path(text)
    if kind == "npz" or (kind == "dataset" and text.endswith(".npz")):
        return datasets.from_npz(path, options)
    if kind == "pyg":
        return datasets.from_pyg(datasets.load_pyg(path), text, path.stem, options)
    if kind in ("dataset", "ogb", "mtx"):
        datasets.refuse_weights(options, text)
    if kind == "ogb":
        return datasets.from_ogb(path, options)
    if kind == "dataset":
        generator = text.partition(":")[0]
        if generator == "rmat":
            scale, edge_factor = generator_arguments(text)
            origin = datasets.from_rmat(int(scale), int(edge_factor), options.random_seed)
            require_budget(options.memory_budget, _SPLIT_BYTES << int(scale))
            return origin
        if generator == "planted":
            num_nodes, *more = generator_arguments(text)
            degree = more[0] if more else _DEGREE
            require_budget(options.memory_budget, int(num_nodes * (_VERTEX_BYTES + _EDGE_BYTES * degree)))
            origin = datasets.from_dataset(load_dataset(text, random_seed=options.random_seed))
            origin.rules["edge_ids"] = False
            return origin
        if text not in NAMED and is_store(text):
            return GraphStore.read(text, datasets.from_store)
        return datasets.from_dataset(load_dataset(text, random_seed=options.random_seed))
    names = VertexNames(room) if options.string_ids else None
    first, _, second = (text, "", "") if os.path.isfile(text) else text.partition(",")
    edges: EdgeList
    if kind == "npy":
        weights = None if options.weights is None else Path(options.weights)
        pair = Path(first), Path(second)
        edges = npy_pair(*pair, weights) if second else npy_edges(path, weights, options.npy_shape)
    elif kind == "mtx":
        edges = MatrixMarketEdges(path)
    elif kind == "parquet":
        edges = ParquetEdges(path, options, names)
    else:
        form = text_form(path, options)
        edges = TextEdges(path, form) if names is None else NamedTextEdges(path, form, names)
    return datasets.Origin(edges, {"name": Path(first).name.split(".")[0], "source": text}, names=names)


def _check(origin: datasets.Origin, options: ConvertOptions) -> None:
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
        given = f"a row-normalised graph, whose edges {' and '.join(changing)} would change"
        expected = "a row-normalised graph and none of these options, or another graph"
        hint = "Convert the graph without weights and take normalized('row') of the result."
        raise file_error(origin.edges.name, given, expected, hint)
