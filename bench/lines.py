"""Cache lines that a sampler has to touch that works batch by batch, counted from what was sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 64


@dataclass(frozen=True)
class Lines:
    """Random cache lines of a graph's arrays.

    `per_row` counts each frontier row's lines on their own. `per_layer` counts a line once for each batch and layer,
    as if a batch's rows were visited in the best order and no line was ever evicted meanwhile.
    """

    per_row: int = 0
    per_layer: int = 0

    def __add__(self, other: Lines) -> Lines:
        return Lines(self.per_row + other.per_row, self.per_layer + other.per_layer)


def indptr_lines(rows: NDArray[np.integer], itemsize: int = 8, line_bytes: int = LINE_BYTES) -> Lines:
    """Lines of `indptr` that hold the two ends of the rows; arrays are taken to begin on a line."""
    first = rows.astype(np.int64) * itemsize // line_bytes
    last = (rows.astype(np.int64) + 1) * itemsize // line_bytes
    crossing = last[last != first]
    return Lines(len(rows) + len(crossing), _num_distinct(np.concatenate([first, crossing])))


def indices_lines(
    row_ends: NDArray[np.integer], positions: NDArray[np.integer], itemsize: int, line_bytes: int = LINE_BYTES
) -> Lines:
    """Lines of `indices` at the drawn positions; row i drew `positions[row_ends[i]:row_ends[i + 1]]`."""
    if not len(positions):
        return Lines()
    line = positions.astype(np.int64) * itemsize // line_bytes
    row = np.repeat(np.arange(len(row_ends) - 1, dtype=np.int64), np.diff(row_ends))
    return Lines(_num_distinct(row * (int(line.max()) + 1) + line), _num_distinct(line))


def _num_distinct(values: NDArray[np.int64]) -> int:
    """Sorted, which is several times as fast as the hash table of `np.unique`."""
    ordered = np.sort(values)
    return min(len(ordered), 1) + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
