"""The raw folder of a data set of the Open Graph Benchmark, as it is unpacked."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.columns import EdgeColumns
from spsample.convert.compressed import open_bytes
from spsample.convert.edges import EdgeList
from spsample.convert.options import ConvertOptions
from spsample.convert.tables import CsvTable, VertexRows, feature_rows, matrices
from spsample.convert.text import TextEdges, TextForm
from spsample.data.labels import class_labels, named_splits, num_classes
from spsample.errors import require_module
from spsample.store.folder import file_error

_EDGES, _SIZES = "edge.csv.gz", "num-node-list.csv.gz"
_FEATURES, _LABELS = "node-feat.csv.gz", "node-label.csv.gz"
_OTHER_FORMS = {"triplet-type-list.csv.gz": "several types of vertices", "data.npz": "arrays in data.npz"}
_PARTS = ("train", "valid", "test")


def is_ogb_folder(path: Path) -> bool:
    """Return whether there is a data set of OGB at a path: its folder, or ``raw`` in it."""
    return any(os.path.isfile(_raw(path) / name) for name in (_EDGES, *_OTHER_FORMS))


def _raw(path: Path) -> Path:
    return path / "raw" if os.path.isdir(path / "raw") else path


class OgbFolder:
    """Edges, features, labels and a split of vertices; what options replace is not read.

    Raises
    ------
    DataError
        If the folder holds several graphs or types of vertices, or a file does not fit.
    MissingDependencyError
        Without pyarrow.
    """

    def __init__(self, path: Path, options: ConvertOptions) -> None:
        require_module("pyarrow.csv", needed_for=f"reading {_FEATURES} of {path}", extra="convert")
        self._raw, self._options = _raw(path.resolve()), options
        self._whole = self._raw.parent
        self.name = self._whole.name
        for name, what in _OTHER_FORMS.items():
            if (self._raw / name).is_file():
                hint = "spsample convert ogbn-papers100M takes it through ogb." if name == "data.npz" else ""
                raise file_error(path, what, f"edges in {_EDGES}", hint)
        self._num_nodes = self._size()

    def edges(self) -> EdgeList:
        """Return the edges, in the direction of the file."""
        edges = TextEdges(self._raw / _EDGES, TextForm(",", EdgeColumns(0, 1), (2, 2)))
        edges.num_nodes, edges.notes = self._num_nodes, self._notes()
        return edges

    def _notes(self) -> tuple[str, ...]:
        """Return notes about files that are not read, and about the direction of edges."""
        read = {_EDGES, _SIZES, _FEATURES, _LABELS, "num-edge-list.csv.gz"}
        unread = sorted(file.name for file in self._raw.glob("*.csv.gz") if file.name not in read)
        notes = [f"not read of {self._raw}: {', '.join(unread)}"] if unread else []
        if not self._options.symmetrise:
            notes.append(
                f"edges are as {self._raw / _EDGES} has them: of an undirected graph, such as ogbn-products, in one "
                "direction; --symmetrise adds the other"
            )
        return tuple(notes)

    def attributes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return facts and arrays: features as they are streamed, labels, a split."""
        facts: dict[str, Any] = {"name": self.name}
        arrays: dict[str, Any] = {}
        if (self._raw / _FEATURES).is_file() and self._options.features is None:
            table = self._table(self._raw / _FEATURES)
            shape = (self._num_nodes, len(table.names))
            rows = partial(feature_rows, table, table.names, self._num_nodes)
            arrays["x"] = VertexRows(np.dtype(np.float32), shape, rows)
        if (self._raw / _LABELS).is_file() and self._options.labels is None:
            path = self._raw / _LABELS
            y = class_labels(str(path), self._numbers(path), self._num_nodes)
            facts["num_classes"], arrays["y"] = num_classes(y), y
        if self._options.splits is None:
            arrays |= self._split()
        return facts, arrays

    def _size(self) -> int:
        """Return the number of vertices."""
        sizes = self._numbers(self._raw / _SIZES).reshape(-1)
        if len(sizes) != 1:
            raise file_error(self._raw, f"{len(sizes)} graphs in {_SIZES}", "one graph, with labels of its vertices")
        return int(sizes[0])

    def _split(self) -> dict[str, NDArray[Any]]:
        folders = sorted(path for path in self._whole.glob("split/*") if self._part(path, "train") is not None)
        if len(folders) > 1:
            given = f"{len(folders)} splits: {', '.join(path.name for path in folders)}"
            raise file_error(self._whole, given, "one split, or --splits splits.npz")
        if not folders:
            return {}
        files = {part: self._part(folders[0], part) for part in _PARTS}
        held = {f"{part}_idx": self._numbers(file).reshape(-1) for part, file in files.items() if file is not None}
        if len(held) < len(_PARTS):
            given = f"no {next(part for part in _PARTS if files[part] is None)}.csv.gz"
            raise file_error(folders[0], given, f"all of {', '.join(f'{part}.csv.gz' for part in _PARTS)}")
        whole = {name: ids.astype(np.int64) if (ids == np.trunc(ids)).all() else ids for name, ids in held.items()}
        return named_splits(str(folders[0]), whole, self._num_nodes)

    @staticmethod
    def _part(folder: Path, part: str) -> Path | None:
        files = (folder / f"{part}.csv.gz", folder / f"{part}.csv")
        return next((file for file in files if file.is_file()), None)

    def _numbers(self, path: Path) -> NDArray[np.float64]:
        """All of a small file."""
        table = self._table(path)
        return np.concatenate([np.empty((0, len(table.names))), *(rows for rows, _ in matrices(table, table.names))])

    @staticmethod
    def _table(path: Path) -> CsvTable:
        with open_bytes(path) as file:
            columns = bytes(file.read(1 << 20)).split(b"\n", 1)[0].count(b",") + 1
        return CsvTable(path, [str(column) for column in range(columns)], ",", header=False)
