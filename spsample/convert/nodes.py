"""The table of vertices: features, labels and splits by the ids that the edges have."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.columns import VertexNames, check_room, column_names, is_index_name, is_text
from spsample.convert.edges import DistinctIds
from spsample.convert.options import ConvertOptions
from spsample.convert.tables import VertexRows, feature_rows, open_table
from spsample.data.labels import PARTS, class_labels, num_classes, repeated
from spsample.errors import DataError, InputError
from spsample.store.folder import file_error

_IDS = ("id", "node", "node_id", "nodeid", "vertex", "vertex_id", "vertexid", "name")
_LABELS = ("label", "y", "class")
_SPLITS = ("split",)
_PARTS = {"train": 0, "val": 1, "valid": 1, "validation": 1, "test": 2, "": 3}
_NO_CLASS = frozenset({"na", "n/a", "nan", "null", "none"})
_MAX_CLASSES = 1 << 16
_MAX_WORDS = 1 << 20
_MAX_EXAMPLES = 5
_BYTES_PER_ROW = 48


class NodeTable:
    """A table with a row for each vertex: a column of ids, and columns of features, a label and a split.

    `join_names`, `join_ids` or `join_vertices` reads the ids and finds the vertex of each row; then `check` compares
    the table with the graph, and `arrays` returns what goes into the store.

    Attributes
    ----------
    vertices : int64 array (rows,)
        The vertex of each row, once joined.
    notes : list of str
        Notes about the table for the user.
    named : set of str
        Options that name columns of the table, not files.

    Raises
    ------
    DataError, InputError
        If the table cannot be read, or which column is what may be understood in two ways.
    """

    def __init__(self, options: ConvertOptions, room: int) -> None:
        self.path = Path(os.fspath(options.nodes or ""))
        self._table, self._room = open_table(self.path), room
        self.named = {name for name in ("features", "labels", "splits") if self._columns_of(options, name)}
        self._by_row = options.features is not None and "features" not in self.named
        self._id = self._id_column(options.node_id)
        self._label = self._column("labels", _LABELS, options)
        self._split = self._column("splits", _SPLITS, options)
        twice = next((n for n in (self._label, self._split) if n == self._id), None)
        if twice or (self._label is not None and self._label == self._split):
            given = f"column {twice or self._label} of {self.path} for two things"
            raise InputError(argument="nodes", given=given, expected="a column each for ids, labels and splits")
        self.features = self._feature_columns(options)
        self.notes = [self._roles()]
        self.vertices = self._edgeless = np.empty(0, np.int64)
        self._name: Callable[[Collection[int]], Sequence[Any]] = list
        self._labels, self._parts = _Words(), _Words()

    # --------------------------------------------------------------------------------------------- which column is what

    def _columns_of(self, options: ConvertOptions, option: str) -> list[str]:
        """The columns that an option names; none where it names a file, or is not given."""
        value = getattr(options, option)
        if value is None:
            return []
        text, names = os.fspath(value), self._table.names
        columns = [text] if text in names else text.split(",")
        if not all(column in names for column in columns):
            if os.path.exists(text):
                return []
            have = f"a file, or columns of {self.path}: {_some(names)}"
            raise InputError(argument=option, given=repr(text), expected=have)
        if os.path.exists(text):
            expected = f"one of the two: give the path as {os.path.abspath(text)}, or rename the column"
            raise InputError(argument=option, given=f"{text!r}, a file and a column of {self.path}", expected=expected)
        if option != "features" and len(columns) > 1:
            raise InputError(argument=option, given=repr(text), expected="one column")
        return columns

    def _alike(self, words: Sequence[str]) -> list[str]:
        return [name for name in self._table.names if name.lower() in words]

    def _id_column(self, node_id: str | None) -> str:
        names = self._table.names
        columns = self._alike(_IDS) if node_id is None else [name for name in names if name == node_id]
        if len(columns) == 1:
            return columns[0]
        what = f"the columns {_some(columns or names)}"
        hint = f"Type --node-id COLUMN, such as --node-id {(columns or names)[0]}."
        if not columns and any(_number(name) is not None for name in names):
            hint = "The first line must name the columns, as id,age: add it. Where it does, type --node-id COLUMN."
        argument, named = ("nodes", "") if node_id is None else ("node_id", f"{node_id!r} with ")
        expected = "to be told which column has the ids of the vertices"
        raise InputError(argument=argument, given=f"{named}{what} in {self.path}", expected=expected, hint=hint)

    def _column(self, option: str, words: Sequence[str], options: ConvertOptions) -> str | None:
        """The column of labels or splits; none where a file has them."""
        if getattr(options, option) is not None:
            return next(iter(self._columns_of(options, option)), None)
        columns = [name for name in self._alike(words) if name != self._id]
        if len(columns) > 1:
            given = f"the columns {' and '.join(columns)} in {self.path}"
            hint = f"Type --{option} COLUMN, such as --{option} {columns[0]}."
            raise InputError(argument="nodes", given=given, expected=f"one column of {option}", hint=hint)
        return columns[0] if columns else None

    def _feature_columns(self, options: ConvertOptions) -> list[str]:
        taken = {self._id, self._label, self._split}
        if options.features is None:
            aside = {*self._alike((*_IDS, *_LABELS, *_SPLITS)), *(n for n in self._table.names if is_index_name(n))}
            free = [name for name in self._table.names if name not in taken | aside]
            for name in free:
                if name in self._table.not_quite:
                    given = f"{self._table.not_quite[name]} of column {name}, of which most values are numbers"
                    hint = "Mend it, or name the columns of the features: --features COLUMN,COLUMN."
                    raise self._refusal(given, "numbers alone, or none", hint)
            return [name for name in free if name in self._table.numeric]
        columns = self._columns_of(options, "features")
        bad = [name for name in columns if name in taken or name not in self._table.numeric]
        if bad:
            given = f"column {bad[0]} of {self.path}"
            raise InputError(argument="features", given=given, expected="columns of numbers that are nothing else")
        return columns

    def _roles(self) -> str:
        used = {self._id, self._label, self._split, *self.features}
        unread = [name or "(without a name)" for name in self._table.names if name not in used]
        roles = {
            f"ids are in {self._id}": True,
            f"labels in {self._label}": self._label,
            f"splits in {self._split}": self._split,
            f"{len(self.features)} features in {_some(self.features)}": self.features,
            f"not read: {_some(unread)}": unread,
        }
        return f"{self.path}: {'; '.join(role for role, is_there in roles.items() if is_there)}"

    # -------------------------------------------------------------------------------------------------------- joining

    def join_names(self, names: VertexNames) -> None:
        """Number the ids as strings; names that no edge has come after the others, in their order."""
        with_edges = len(names)

        def numbers(column: Any, first: int) -> list[int]:
            words = column_names(str(self.path), self._id, column)
            if "" in words:
                raise self._refusal(f"no id in row {first + 1 + words.index('')}", "an id in each row")
            return [names.number(word) for word in words]

        self._read("text", numbers)
        late = self.vertices >= with_edges
        self.vertices[late] = names.sort_from(with_edges)[self.vertices[late] - with_edges]
        self._edgeless = self.vertices[late]
        self._name = names.named

    def join_ids(self, ids: NDArray[np.int64], distinct: DistinctIds) -> NDArray[np.int64]:
        """Return the ids of edges and table together, ascending; `ids` and `distinct` have those of the edges."""
        self._read("integer", self._integers)
        distinct.add_ids(np.unique(self.vertices))
        every = distinct.ids()
        edgeless = np.setdiff1d(self.vertices, ids)
        self.vertices, self._edgeless = np.searchsorted(every, self.vertices), np.searchsorted(every, edgeless)
        self._name = lambda numbers: every[sorted(numbers)].tolist()
        return every

    def join_vertices(self, largest: int) -> int:
        """Take ids as vertices; return the largest of them and of those that have an edge."""
        self._read("integer", self._integers)
        self._edgeless = self.vertices[self.vertices > largest]
        return max(largest, int(self.vertices.max(initial=-1)))

    def _read(self, kind: str, number: Callable[[Any, int], Any]) -> None:
        columns = {self._id: kind} | {name: "text" for name in (self._label, self._split) if name is not None}
        vertices, first = [self.vertices], 0
        for batch in self._table.batches(columns):
            vertices.append(np.asarray(number(batch.column(self._id), first), np.int64))
            for name, words in ((self._label, self._labels), (self._split, self._parts)):
                if name is not None:
                    words.add(batch.column(name), f"column {name} of {self.path}")
            first += batch.num_rows
            check_room("nodes", _BYTES_PER_ROW * first, self._room)
        self.vertices = np.concatenate(vertices)

    def _integers(self, column: Any, first: int) -> NDArray[np.int64]:
        import pyarrow as pa

        if column.null_count:
            row = first + 1 + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise self._refusal(f"no id in row {row}", "an id in each row")
        try:
            ids: NDArray[np.int64] = column.cast("int64").to_numpy()
        except pa.ArrowException as error:
            hint = "Ids that are names need --string-ids."
            raise self._refusal(f"column {self._id} of type {column.type} ({error})", "integer ids", hint) from None
        return ids

    # ------------------------------------------------------------------------------------------------ against the graph

    def check(self, num_nodes: int) -> None:
        """Compare the vertices of the table with those of the graph.

        Raises
        ------
        DataError
            If an id is in two rows, or no vertex of the graph, or there are features and a vertex has no row.
        """
        outside = self.vertices[(self.vertices < 0) | (self.vertices >= num_nodes)]
        if len(outside):
            raise self._refusal(f"the id {outside[0]}", f"ids in [0, {num_nodes})", "--renumber takes other ids.")
        twice = repeated(self.vertices)
        if twice is not None:
            rows = (np.flatnonzero(self.vertices == twice)[:2] + 1).tolist()
            given = f"the id {self._name({twice})[0]!r} in the rows {rows[0]} and {rows[1]}"
            raise self._refusal(given, "one row for each vertex")
        first = np.setdiff1d(np.arange(min(num_nodes, len(self.vertices) + _MAX_EXAMPLES)), self.vertices)
        if len(self._edgeless) == len(self.vertices):
            examples = f"the table has {self._example(self.vertices)}, the graph {self._example(first)}"
            given = f"{len(self.vertices)} ids, of which none has an edge: {examples}"
            hint = "Compare how ids are written in both: 007 is not 7 with --string-ids."
            raise self._refusal(given, "ids of the edges", hint)
        if len(self._edgeless):
            some = self._some_of(np.sort(self._edgeless), len(self._edgeless))
            self.notes.append(f"vertices of {self.path} without an edge: {some}")
        missing = num_nodes - len(self.vertices)
        if missing:
            given = f"no row for vertices of the graph: {self._some_of(first, missing)}"
            if self.features or self._by_row:
                given = f"{given}, while the table has {self._example(self.vertices)}"
                hint = "Add their rows: a vertex without features is not guessed at."
                raise self._refusal(given, "a row for each vertex, as there are features", hint)
            self.notes.append(f"{self.path} has {given}; they have no label and are in no split")

    def _example(self, vertices: NDArray[np.int64]) -> str:
        """Return the name of the first of some vertices, as it is written."""
        return repr(self._name({int(vertices[0])})[0]) if len(vertices) else "none"

    def _some_of(self, vertices: NDArray[np.int64], count: int) -> str:
        names = ", ".join(repr(name) for name in self._name(set(vertices[:_MAX_EXAMPLES].tolist())))
        return f"{count} ({names}{', ...' if count > _MAX_EXAMPLES else ''})"

    def arrays(self, num_nodes: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return facts and arrays of the table, the features as `VertexRows`.

        Raises
        ------
        DataError
            If a label or a split cannot be understood.
        """
        facts: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        if self.features:
            shape = (num_nodes, len(self.features))
            arrays["x"] = VertexRows(np.dtype(np.float32), shape, self._feature_rows)
        if self._label is not None:
            y, facts = self._classes()
            arrays["y"] = np.full(num_nodes, -1)
            arrays["y"][self.vertices] = y
        if self._split is not None:
            for word in self._parts.words:
                if word.lower() not in _PARTS:
                    expected = "train, val (or valid, validation), test or nothing"
                    raise self._refusal(f"{word!r} in column {self._split}", expected)
            part = self._parts.values([_PARTS[word.lower()] for word in self._parts.words])
            arrays |= {f"{name}_idx": np.sort(self.vertices[part == i]) for i, name in enumerate(PARTS)}
        return facts, arrays

    def _feature_rows(self) -> Iterator[tuple[tuple[NDArray[np.int64], slice], NDArray[np.float32]]]:
        width = max(1, self._room // max(1, self._table.column_bytes))
        for first in range(0, len(self.features), width):
            columns = self.features[first : first + width]
            for places, rows in feature_rows(self._table, columns, len(self.vertices)):
                yield (self.vertices[places], slice(first, first + len(columns))), rows

    def _classes(self) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Labels of the rows; names are classes in their order, which the fact ``class_names`` keeps."""
        words = self._labels.words
        numbers = {word: _number(word) for word in words if word}
        names = sorted(word for word, number in numbers.items() if number is None)
        if not names:
            values = self._labels.values([numbers.get(word, np.nan) for word in words])
            y = class_labels(f"column {self._label} of {self.path}", np.asarray(values, float), len(self.vertices))
            return y, {"num_classes": num_classes(y)}
        hint = "Leave the label of a vertex without one empty."
        unsure = [word for word in numbers if word not in names or word.lower() in _NO_CLASS]
        if unsure:
            given = f"the label {unsure[0]!r} among names, such as {names[-1]!r}, in column {self._label}"
            raise self._refusal(given, "numbers, or names of classes", hint)
        if len(names) > _MAX_CLASSES:
            given = f"{len(names)} different names in column {self._label}"
            raise self._refusal(given, f"at most {_MAX_CLASSES} classes", hint)
        places = {name: place for place, name in enumerate(names)}
        classes = [f"{place} {name}" for place, name in enumerate(names)]
        self.notes.append(f"classes of column {self._label}: {_some(classes)}")
        y = np.asarray(self._labels.values([places.get(word, -1) for word in words]), np.int64)
        return y, {"num_classes": len(names), "class_names": names}

    def _refusal(self, given: str, expected: str, hint: str = "") -> DataError:
        return file_error(self.path, given, expected, hint)


class _Words:
    """A column of few different words: which there are, and which of them each row has."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self._rows = [np.empty(0, np.int32)]

    def add(self, column: Any, argument: str) -> None:
        """Add a batch of rows; no value is the word ``""``."""
        import pyarrow as pa

        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        try:
            coded = (column if is_text(column.type) else column.cast("string")).dictionary_encode()
        except pa.ArrowException:
            raise file_error(argument, f"a column of type {column.type}", "names or numbers") from None
        words = [*column_names(argument, "of words", coded.dictionary), ""]
        places = np.array([self.words.setdefault(word, len(self.words)) for word in words], np.int32)
        if len(self.words) > _MAX_WORDS:
            raise file_error(argument, f"more than {_MAX_WORDS} different values", "classes of vertices")
        self._rows.append(places[coded.indices.fill_null(len(words) - 1).to_numpy()])

    def values(self, of_words: Sequence[Any]) -> NDArray[Any]:
        """Return the value of each row, by that of its word."""
        return np.asarray(of_words if of_words else [0])[np.concatenate(self._rows)]


def _number(word: str) -> float | None:
    try:
        return None if "_" in word else float(word)  # Python takes 1_000
    except ValueError:
        return None


def _some(names: Sequence[Any]) -> str:
    """The first of some names."""
    return ", ".join(map(str, names[:_MAX_EXAMPLES])) + (", ..." if len(names) > _MAX_EXAMPLES else "")
