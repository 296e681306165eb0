"""Matrix Market files in coordinate form: entry (i, j) is an edge from j to i (row = target), ids from 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spsample.convert.columns import EdgeColumns
from spsample.convert.compressed import open_bytes
from spsample.convert.edges import EdgeChunk, EdgeList
from spsample.convert.text import TextEdges, TextForm
from spsample.errors import DataError
from spsample.store.folder import file_error

_MAX_COMMENTS = 1 << 20
_EXPECTED = "a square Matrix Market file: %%MatrixMarket matrix coordinate pattern|integer|real general|symmetric"


class _Header(NamedTuple):
    lines: int
    num_nodes: int
    entries: int
    pattern: bool
    symmetric: bool


class MatrixMarketEdges(EdgeList):
    """The entries of a matrix; symmetric ones hold one triangle, whose reverses follow entry by entry.

    The position of an edge in the input is its place among these: entries and, where symmetric, their reverses.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._header = header = _read_header(path)
        self.num_nodes = header.num_nodes
        weight = -1 if header.pattern else 2
        self.weight_dtype = None if weight < 0 else np.dtype(np.float64)
        self._read: list[int] = []  # entries of each chunk
        width = 2 if header.pattern else 3
        self._text = TextEdges(path, TextForm(" ", EdgeColumns(1, 0, weight), (width, width), header.lines))

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield a function per block of lines."""
        self._read.clear()
        for task in self._text.tasks(max(1, count // 2) if self._header.symmetric else count):
            yield partial(self._entries, task)

    def _entries(self, task: Callable[[], EdgeChunk]) -> EdgeChunk:
        chunk = task()
        place = chunk.place
        self._end_at_outside(chunk)
        self._read.append(chunk.count)
        chunk.sources, chunk.targets = chunk.sources - 1, chunk.targets - 1
        if not self._header.symmetric:
            return chunk
        twice = np.ones(chunk.count, np.int64) + (chunk.sources != chunk.targets)
        entry = np.repeat(np.arange(chunk.count), twice)
        reverse = np.zeros(len(entry), bool)
        reverse[1:] = entry[1:] == entry[:-1]
        ends = chunk.sources[entry], chunk.targets[entry]
        chunk.sources, chunk.targets = np.where(reverse, ends[1], ends[0]), np.where(reverse, ends[0], ends[1])
        chunk.weights = None if chunk.weights is None else chunk.weights[entry]
        chunk.count = len(entry)
        chunk.place = None if place is None else lambda i, line: place(int(entry[i]), line)
        return chunk

    def _end_at_outside(self, chunk: EdgeChunk) -> None:
        """End a chunk before its first entry outside of the matrix."""
        n = self._header.num_nodes
        outside = (chunk.sources < 1) | (chunk.sources > n) | (chunk.targets < 1) | (chunk.targets > n)
        if not outside.any() or chunk.place is None:
            return
        at = int(np.argmax(outside))
        row, column, place = int(chunk.targets[at]), int(chunk.sources[at]), chunk.place
        chunk.problem = lambda line: DataError(
            argument=self.name,
            given=f"row {row} and column {column} in {place(at, line)}",
            expected=f"rows and columns from 1 to {n}: Matrix Market counts from 1",
        )
        chunk.sources, chunk.targets, chunk.count = chunk.sources[:at], chunk.targets[:at], at
        chunk.weights = None if chunk.weights is None else chunk.weights[:at]

    def check(self) -> None:
        """Refuse a file that ended early or went on, once it has been read.

        Raises
        ------
        DataError
            If there were not as many entries as the header says.
        """
        if sum(self._read) != self._header.entries:
            raise file_error(self.name, f"{sum(self._read)} entries", f"{self._header.entries}, as the header says")


def _read_header(path: Path) -> _Header:
    with open_bytes(path) as file:
        text = bytes(file.read(_MAX_COMMENTS)).decode("utf-8", "replace")
    lines = text.split("\n")
    words = lines[0].lower().split()
    if words[:3] != ["%%matrixmarket", "matrix", "coordinate"] or len(words) != 5:
        raise file_error(path, repr(lines[0][:80]), _EXPECTED)
    if words[3] not in ("pattern", "integer", "real") or words[4] not in ("general", "symmetric"):
        raise file_error(path, f"a matrix that is {words[3]} and {words[4]}", _EXPECTED)
    number = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("%")), 0)
    sizes = lines[number].split()
    if len(sizes) != 3 or not all(size.isdigit() for size in sizes) or sizes[0] != sizes[1]:
        raise file_error(path, f"{lines[number][:80]!r} in line {number + 1}", _EXPECTED)
    return _Header(number + 1, int(sizes[0]), int(sizes[2]), words[3] == "pattern", words[4] == "symmetric")
