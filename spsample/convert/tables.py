"""Edge lists in Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spsample.convert.chunks import EdgeChunk, given_chunk
from spsample.convert.columns import edge_columns
from spsample.convert.compressed import require_file
from spsample.convert.names import VertexNames
from spsample.convert.options import ConvertOptions
from spsample.errors import DataError, InputError, require_module

__all__ = ["PARQUET", "ParquetEdges", "open_parquet", "parquet_parts"]

PARQUET = (".parquet", ".pq")
_ROWS = 1 << 17


def parquet_parts(path: Path) -> list[Path]:
    """Return the files of a table: the path itself, or the Parquet files of a folder, in the order of their names.

    Files whose names begin with ``.`` or ``_`` are not data, as Spark and Hive have it.

    Raises
    ------
    DataError
        If there is none, or a folder of parts in the folder, whose name may stand for a column.
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
def _whole(path: Path) -> Iterator[None]:
    """Name the file in errors of reading it."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        given = f"an unreadable file ({error})"
        raise DataError(argument=str(path), given=given, expected="a whole Parquet file") from error


def open_parquet(path: Path) -> Any:
    """Open a file so that a piece of each column is in memory at a time, not all of it."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False)


class ParquetEdges:
    """Two columns of a Parquet file, or of a folder of them, and perhaps one of weights; see `EdgeList`."""

    rereadable = False

    def __init__(self, path: Path, options: ConvertOptions, names: VertexNames | None = None) -> None:
        require_module("pyarrow.parquet", needed_for="reading Parquet files", extra="convert")
        self.name, self._names = str(path), names
        self.num_nodes: int | None = None
        self.weight_dtype = None if options.weights is None else np.dtype(np.float64)
        self._parts = parquet_parts(path)
        held = self._column_names(self._parts[0])
        for part in self._parts[1:]:
            if (other := self._column_names(part)) != held:
                given = f"the columns {', '.join(other)} in {part.name}, and {', '.join(held)} in {self._parts[0].name}"
                raise DataError(argument=self.name, given=given, expected="the same columns in all parts of a table")
        source, target, weight = edge_columns(self.name, held, len(held), options)
        self.ends = held[source], held[target]
        self._columns = [*self.ends, *([] if weight < 0 else [held[weight]])]
        self.unread = tuple(name for name in held if name not in self._columns)

    def _column_names(self, part: Path) -> list[str]:
        with _whole(part), open_parquet(part) as file:
            names = [str(name) for name in file.schema_arrow.names]
        if len(set(names)) < len(names):
            given = f"{part} with the columns {', '.join(names)}"
            raise InputError(argument="columns", given=given, expected="columns of different names")
        return names

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, in batches of rows."""
        for part in self._parts:
            with _whole(part), open_parquet(part) as file:
                size = min(count, _ROWS)
                for batch in file.iter_batches(batch_size=size, columns=self._columns, use_threads=False):
                    task = partial(self._chunk, batch)
                    yield task if self._names is None else partial(given_chunk, task())  # names go by the order

    def _chunk(self, batch: Any) -> EdgeChunk:
        columns = [batch.column(batch.schema.get_field_index(name)) for name in self._columns]
        for name, column in zip(self._columns, columns, strict=True):
            if column.null_count:
                raise DataError(argument=self.name, given=f"a null in column {name}", expected="a value in each row")
        ends = [self._ids(name, column) for name, column in zip(self._columns[:2], columns[:2], strict=True)]
        weights = None if self.weight_dtype is None else self._weights(columns[2])
        return EdgeChunk(ends[0], ends[1], len(ends[0]), weights=weights)

    def _ids(self, name: str, column: Any) -> Any:
        if self._names is not None:
            words = [str(value) for value in column.to_pylist()]
            if not all(words):
                raise DataError(
                    argument=self.name, given=f"an empty name in column {name}", expected="a name in each row"
                )
            return np.array([self._names.number(word) for word in words], dtype=np.int64)
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iu" or values.dtype == np.uint64:
            given = f"column {name} of type {column.type}"
            hint = "--string-ids takes names."
            raise DataError(argument=self.name, given=given, expected="integers of at most 63 bits", hint=hint)
        return np.ascontiguousarray(values, dtype=np.int64)

    def _weights(self, column: Any) -> Any:
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "iuf":
            raise DataError(argument=self.name, given=f"weights of type {column.type}", expected="numbers")
        return np.ascontiguousarray(values, dtype=np.float64)
