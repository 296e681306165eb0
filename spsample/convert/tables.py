"""Edge lists in Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spsample.convert.chunks import EdgeChunk, given_chunk
from spsample.convert.compressed import require_file
from spsample.convert.names import VertexNames
from spsample.convert.options import ConvertOptions
from spsample.errors import DataError, InputError, require_module

__all__ = ["ParquetEdges"]


class ParquetEdges:
    """Two columns of a Parquet file, and perhaps one of weights; see `EdgeList`."""

    rereadable = False

    def __init__(self, path: Path, options: ConvertOptions, names: VertexNames | None = None) -> None:
        require_file(path)
        require_module("pyarrow.parquet", needed_for="reading Parquet files", extra="convert")
        import pyarrow.parquet

        try:
            self._file: Any = pyarrow.parquet.ParquetFile(path, memory_map=False)
        except (pyarrow.ArrowException, OSError) as error:
            given = f"an unreadable file ({error})"
            raise DataError(argument=str(path), given=given, expected="a Parquet file") from error
        self.name, self._names = str(path), names
        self._arrow_error: type[Exception] = pyarrow.ArrowException
        self.num_nodes: int | None = None
        self.weight_dtype = None if options.weights is None else np.dtype(np.float64)
        self._columns = [self._column(word, "columns") for word in options.columns]
        if options.weights is not None:
            self._columns.append(self._column(options.weights, "weights"))
        found = (str(name) for name in self._file.schema_arrow.names)
        self.unread = tuple(name for name in found if name not in self._columns)

    def _column(self, word: str, argument: str) -> str:
        names = [str(name) for name in self._file.schema_arrow.names]
        if len(set(names)) < len(names):
            given = f"{self.name} with the columns {', '.join(names)}"
            raise InputError(argument="columns", given=given, expected="columns of different names")
        if word in names:
            return word
        if word.isdigit() and int(word) < len(names):
            return names[int(word)]
        given = f"{word!r} for {self.name} with the columns {', '.join(names)}"
        raise InputError(argument=argument, given=given, expected="a column of the file")

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks, in batches of rows."""
        batches = self._file.iter_batches(batch_size=min(count, 1 << 20), columns=self._columns, use_threads=False)
        try:
            for batch in batches:
                yield partial(self._chunk, batch) if self._names is None else partial(given_chunk, self._chunk(batch))
        except DataError:
            raise
        except (self._arrow_error, OSError) as error:
            given = f"a file that cannot be read to its end ({error})"
            raise DataError(argument=self.name, given=given, expected="a whole Parquet file") from error

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
