"""Tables in Parquet files, and edge lists in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spsample.convert.chunks import EdgeChunk, given_chunk
from spsample.convert.columns import edge_columns
from spsample.convert.compressed import require_file
from spsample.convert.names import VertexNames, column_names, is_text
from spsample.convert.options import ConvertOptions
from spsample.errors import DataError, InputError, require_module

__all__ = ["PARQUET", "ParquetEdges", "ParquetTable", "check_different", "numeric_columns"]

PARQUET = (".parquet", ".pq")
_BYTES = 1 << 21


def _parts(path: Path) -> list[Path]:
    """The files of a table: the path itself, or the Parquet files of a folder, in the order of their names.

    Files whose names begin with ``.`` or ``_`` are not data, as Spark and Hive have it. A folder of parts in the
    folder is refused: its name may stand for a column.
    """
    if not path.is_dir():
        require_file(path)
        return [path]
    found = sorted(entry for entry in path.rglob("*") if entry.suffix.lower() in PARQUET and entry.name[0] not in "._")
    if not found or any(entry.parent != path for entry in found):
        given = "parts in folders of their own" if found else "a folder without Parquet files"
        raise DataError(argument=str(path), given=given, expected="a folder of .parquet files, the parts of one table")
    return found


@contextmanager
def _whole(path: Path) -> Iterator[Any]:
    """Open a file so that a piece of each column is in memory at a time; name it in errors of reading it."""
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            yield file
    except DataError:
        raise
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        given = f"an unreadable file ({error})"
        raise DataError(argument=str(path), given=given, expected="a whole Parquet file") from error


def check_different(path: Path, names: Sequence[str]) -> None:
    """Refuse columns of one name.

    Raises
    ------
    InputError
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        given = f"{names.count(twice)} columns named {twice!r} in {path}"
        hint = "The first line of a text must name the columns."
        raise InputError(argument="columns", given=given, expected="columns of different names", hint=hint)


def numeric_columns(names: Sequence[str], types: Sequence[Any]) -> frozenset[str]:
    """Return which columns are of numbers, by their types."""
    from pyarrow.types import is_boolean, is_decimal, is_floating, is_integer

    tests = (is_integer, is_floating, is_boolean, is_decimal)
    return frozenset(name for name, kind in zip(names, types, strict=True) if any(test(kind) for test in tests))


class ParquetTable:
    """A Parquet file, or a folder of parts with the same columns, of which one is open at a time.

    Raises
    ------
    DataError, InputError
        If a file is damaged, a part lacks a column of another, or two columns have one name.
    MissingDependencyError
        Without pyarrow.
    """

    column_bytes = 6 << 20
    """Memory that a column takes while it is read, beside its batch: a dictionary, a stored page, and its values."""

    def __init__(self, path: Path) -> None:
        require_module("pyarrow.parquet", needed_for="reading Parquet files", extra="convert")
        self.path, self._parts = path, _parts(path)
        self.not_quite: dict[str, str] = {}
        self.names: tuple[str, ...] = ()
        for part in self._parts:
            with _whole(part) as file:
                names, types = tuple(map(str, file.schema_arrow.names)), file.schema_arrow.types
            check_different(part, names)
            if part is self._parts[0]:
                self.names, self.numeric = names, numeric_columns(names, types)
            for name in sorted({*names} ^ {*self.names}):
                given = f"a part without the column {name}"
                without = part if name in self.names else self._parts[0]
                raise DataError(argument=str(without), given=given, expected="the same columns in all parts")

    def batches(self, columns: Mapping[str, str], most: int = _BYTES) -> Iterator[Any]:
        """Yield record batches of at most `most` rows with these columns, in the types that they have.

        Raises
        ------
        DataError
            If a file is damaged, or a column of numbers holds something else in another part.
        """
        rows = max(1, min(most, _BYTES // (8 * len(columns))))
        for part in self._parts:
            with _whole(part) as file:
                for name, kind in columns.items():
                    held = file.schema_arrow.field(name).type
                    if kind == "number" and not numeric_columns([name], [held]):
                        given = f"column {name} of type {held}"
                        raise DataError(argument=str(part), given=given, expected="numbers, as in other parts")
                yield from file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False)


class ParquetEdges:
    """Two columns of a Parquet file, or of a folder of them, and perhaps one of weights; see `EdgeList`."""

    rereadable = False

    def __init__(self, path: Path, options: ConvertOptions, names: VertexNames | None = None) -> None:
        self.name, self._names, self._table = str(path), names, ParquetTable(path)
        self.num_nodes: int | None = None
        self.weight_dtype = None if options.weights is None else np.dtype(np.float64)
        held = self._table.names
        source, target, weight = edge_columns(self.name, held, len(held), options)
        self.ends = held[source], held[target]
        self._columns = [*self.ends, *([] if weight < 0 else [held[weight]])]
        self.unread = tuple(name for name in held if name not in self._columns)

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, in batches of rows."""
        for batch in self._table.batches(dict.fromkeys(self._columns, "text"), count):
            task = partial(self._chunk, batch)
            yield task if self._names is None else partial(given_chunk, task())  # names go by the order

    def _chunk(self, batch: Any) -> EdgeChunk:
        columns = [batch.column(name) for name in self._columns]
        for name, column in zip(self._columns, columns, strict=True):
            if column.null_count:
                raise DataError(argument=self.name, given=f"a null in column {name}", expected="a value in each row")
        ends = [self._ids(name, column) for name, column in zip(self.ends, columns, strict=False)]
        weights = None if self.weight_dtype is None else self._weights(columns[2])
        return EdgeChunk(ends[0], ends[1], len(ends[0]), weights=weights)

    def _ids(self, name: str, column: Any) -> Any:
        if self._names is not None:
            words = column_names(self.name, name, column)
            if not all(words):
                given = f"an empty name in column {name}"
                raise DataError(argument=self.name, given=given, expected="a name in each row")
            return np.array([self._names.number(word) for word in words], dtype=np.int64)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iu" or values.dtype == np.uint64:
            given = f"column {name} of type {column.type}"
            hint = "--string-ids takes names." if is_text(column.type) else "Write them as integers."
            raise DataError(argument=self.name, given=given, expected="integers of at most 63 bits", hint=hint)
        return np.ascontiguousarray(values, dtype=np.int64)

    def _weights(self, column: Any) -> Any:
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iuf":
            raise DataError(argument=self.name, given=f"weights of type {column.type}", expected="numbers")
        return np.ascontiguousarray(values, dtype=np.float64)
