"""Edges in a file of plain integers: for sources that are slow to read twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spsample.convert.chunks import EdgeChunk, array_chunks
from spsample.errors import DataError

__all__ = ["CachedEdges"]


class CachedEdges:
    """Edges appended to files in a folder, int32 until an id needs more, and read again from maps of them.

    It is an `EdgeList`.
    """

    rereadable = True

    def __init__(self, name: str, folder: Path, weight_dtype: np.dtype[Any] | None) -> None:
        self.name = name
        self.num_nodes: int | None = None
        self.weight_dtype = weight_dtype
        self._folder = folder
        self._columns: list[_Columns] = []

    def add(self, chunk: EdgeChunk, largest: int) -> None:
        """Append a chunk, whose largest id is given."""
        if chunk.count == 0:
            return
        dtype = np.dtype(np.int32 if largest < 2**31 else np.int64)
        if not self._columns or self._columns[-1].dtype.itemsize < dtype.itemsize:
            self._columns.append(_Columns(self._folder, len(self._columns), dtype, self.weight_dtype))
        self._columns[-1].add(chunk)

    def flush(self) -> None:
        """Let everything be read."""
        for columns in self._columns:
            columns.flush()

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        before = 0
        for columns in self._columns:
            yield from columns.tasks(count, before)
            before += columns.count

    def close(self) -> None:
        """Remove the files."""
        for columns in self._columns:
            columns.close()


class _Columns:
    """Chunks of one width of ids: a file of sources, one of targets, and perhaps one of weights."""

    def __init__(self, folder: Path, number: int, dtype: np.dtype[Any], weight_dtype: np.dtype[Any] | None) -> None:
        self.dtype = dtype
        self.count = 0
        self._dtypes = [dtype, dtype] + ([] if weight_dtype is None else [weight_dtype])
        names = ("sources", "targets", "weights")[: len(self._dtypes)]
        self._files = [(folder / f"cached-{number}.{name}").open("wb") for name in names]

    def add(self, chunk: EdgeChunk) -> None:
        self.count += chunk.count
        columns = [*chunk.ends, chunk.weights]
        try:
            for file, dtype, column in zip(self._files, self._dtypes, columns, strict=False):
                values = np.ascontiguousarray(column, dtype=dtype)
                file.write(values.data.cast("B"))
        except OSError as error:
            given = f"{error.strerror} while edges were read"
            raise DataError(argument=str(self._files[0].name), given=given, expected="room on the disk") from error

    def flush(self) -> None:
        for file in self._files:
            file.flush()

    def tasks(self, count: int, before: int) -> Iterator[Callable[[], EdgeChunk]]:
        maps = [np.memmap(file.name, dtype, "r") for file, dtype in zip(self._files, self._dtypes, strict=True)]
        yield from array_chunks(maps[0], maps[1], maps[2] if len(maps) > 2 else None, 1, count, before)

    def close(self) -> None:
        for file in self._files:
            file.close()
            Path(file.name).unlink(missing_ok=True)
