"""The rows that each rank fetches in the published algorithm: block rows of A split over the columns of the grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends import StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array, IntArray
from spsample.distributed.placement import Placement


class Stages(NamedTuple):
    """The column of the grid that multiplies by each part of A, and the stage.

    Block rows go to columns by `stage_columns`. Of the hub rows, which every rank has, column j takes the j-th of c
    parts.

    Attributes
    ----------
    num_blocks : int
        p/c.
    bounds : int64 array (parts + 1,)
        Part i has the places `bounds[i]` to `bounds[i + 1] - 1`; the first p/c parts are the block rows.
    column : int64 array (parts,)
        Of each part.
    """

    num_blocks: int
    bounds: Int64Array
    column: Int64Array

    @classmethod
    def of(cls, placement: Placement, num_blocks: int, columns: int) -> Stages:
        """Split p/c block rows over c columns.

        Examples
        --------
        >>> Stages.of(Placement(np.arange(5)), 4, 2).column.tolist()
        [0, 0, 1, 1]
        >>> Stages.of(Placement(np.arange(6)), 4, 3).column.tolist()    # with hub rows
        [0, 1, 2, 0, 0, 1, 2]
        """
        column = stage_columns(num_blocks, columns)
        if placement.num_blocks == num_blocks:
            return cls(num_blocks, placement.bounds, column)
        first, end = (int(bound) for bound in placement.bounds[-2:])
        cuts = first + np.arange(1, columns + 1, dtype=np.int64) * (end - first) // columns
        bounds = np.concatenate([placement.bounds[:-1], cuts])
        return cls(num_blocks, bounds, np.concatenate([column, np.arange(columns, dtype=np.int64)]))

    def blocks_of(self, column: int) -> list[int | None]:
        """Return the block row of each stage, ceil(p/c^2) of them; None where the column has none left."""
        blocks = np.flatnonzero(self.column[: self.num_blocks] == column).tolist()
        most = int(np.bincount(self.column[: self.num_blocks]).max())
        return [*blocks, *[None] * (most - len(blocks))]

    def hubs_of(self, column: int) -> int | None:
        """Return the part of the hub rows that a column takes; None where there are no hub rows."""
        return self.num_blocks + column if len(self.column) > self.num_blocks else None


def stage_columns(num_blocks: int, columns: int) -> Int64Array:
    """(p/c,): the column of the grid in whose stages each block row takes part.

    Where c divides p/c, block row k is of column k div p/c^2, as published; else of column k mod c, and some columns
    have nothing to do in the last stage.

    Examples
    --------
    >>> stage_columns(4, 2).tolist(), stage_columns(3, 2).tolist()
    ([0, 0, 1, 1], [0, 1, 0])
    """
    blocks = np.arange(num_blocks, dtype=np.int64)
    return blocks % columns if num_blocks % columns else blocks // (num_blocks // columns)


class FetchPlan:
    """The distinct rows of Q, each of which is fetched in one column of the grid.

    They are numbered column by column, part by part and ascending by place, alike on all ranks of a row group, which
    have the same Q.

    Parameters
    ----------
    Q : StackedSelector
        Of m rows, of the batches of a row group.
    placement : Placement
    stages : Stages

    Attributes
    ----------
    bounds : int64 array (c + 1,)
        Column j fetches the distinct rows `bounds[j]` to `bounds[j + 1] - 1`.
    vertices : int array
        Of the distinct rows.
    pairs : int64 array (c,)
        Number of stacked rows of Q of each column.
    column : int64 array (m,)
        Of each stacked row.
    places : int64 array (m,)
        The place of each stacked row among those of all columns, column by column and in the order of Q.
    """

    def __init__(self, Q: StackedSelector, placement: Placement, stages: Stages, columns: int) -> None:
        self.Q = Q
        place = placement.places_of(Q.vertices).astype(np.int64)
        distinct, first, row = np.unique(place, return_index=True, return_inverse=True)
        part = np.searchsorted(stages.bounds, distinct, side="right") - 1
        column = stages.column[part]
        order = np.lexsort((distinct, part, column))
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        self._rows: Int64Array = number[row]
        self.vertices: IntArray = Q.vertices[first[order]]
        self._local = (distinct - placement.bounds[np.minimum(part, stages.num_blocks)])[order]
        self._part = part[order]
        self.bounds = pointers_of(np.bincount(column, minlength=columns))
        self.column = column[row]
        self.pairs = np.bincount(self.column, minlength=columns).astype(np.int64)
        self.places = np.empty(len(row), np.int64)
        self.places[np.argsort(self.column, kind="stable")] = np.arange(len(row))

    def wanted(self, part: int | None) -> IntArray:
        """Return the numbers, in a block row or among the hub rows, of the distinct rows in a part."""
        here = self._local[self._part == part] if part is not None else self._local[:0]
        return here.astype(self.Q.vertices.dtype)

    def selector(self) -> StackedSelector:
        """Q for a matrix of all distinct rows."""
        return self.Q._replace(vertices=self._rows.astype(self.Q.vertices.dtype))

    def pairs_of_batch(self, batch: int) -> Int64Array:
        """Return (c,): numbers of stacked rows of the batch at a position; 0 where there is no such batch."""
        here = self.column[rows_of_batch(self.Q, batch)]
        return np.bincount(here, minlength=len(self.pairs)).astype(np.int64)

    def unique_rows(self) -> UniqueRows:
        """Return the distinct rows in the order of their first places, batch by batch and there column by column."""
        batch = np.repeat(np.arange(len(self.Q.batch_ids)), np.diff(self.Q.batch_ptr))
        order = np.lexsort((self.column, batch))
        first = np.sort(np.unique(self._rows[order], return_index=True)[1])
        number = np.empty(len(self.vertices), np.int64)
        number[self._rows[order[first]]] = np.arange(len(first))
        selector = self.Q._replace(vertices=number[self._rows].astype(self.Q.vertices.dtype))
        return UniqueRows(selector, self.Q.vertices[order[first]], first)

    def selector_of(self, column: int) -> StackedSelector:
        """The stacked rows of one column, for a matrix of its distinct rows."""
        here = self.column == column
        ends = np.concatenate([[0], np.cumsum(here)])[self.Q.batch_ptr].astype(np.int64)
        rows = (self._rows[here] - self.bounds[column]).astype(self.Q.vertices.dtype)
        return StackedSelector(ends, rows, self.Q.batch_ids)


class UniqueRows(NamedTuple):
    """Distinct rows of Q, numbered as they first occur, batch by batch and there column by column.

    Attributes
    ----------
    selector : StackedSelector
        Q for a matrix of them.
    vertices : int array
        Of the distinct rows.
    places : int64 array
        The first place of each among all stacked rows in that order.
    """

    selector: StackedSelector
    vertices: IntArray
    places: Int64Array

    def of_batch(self, batch: int) -> IntArray:
        """Return those that first occur in the batch at a position, by places in it; none without such a batch."""
        of_batch = rows_of_batch(self.selector, batch)
        here = self.places[slice(*np.searchsorted(self.places, [of_batch.start, of_batch.stop]))]
        rows: IntArray = (here - of_batch.start).astype(self.vertices.dtype)
        return rows


def rows_of_batch(Q: StackedSelector, batch: int) -> slice:
    """Return the slice of Q's rows of the batch at a position; an empty one where there is no such batch.

    Examples
    --------
    >>> Q = StackedSelector(np.array([0, 2, 3]), np.array([4, 5, 6]), np.array([0, 1]))
    >>> rows_of_batch(Q, 1), rows_of_batch(Q, 2)
    (slice(2, 3, None), slice(3, 3, None))
    """
    first, end = Q.batch_ptr[np.minimum([batch, batch + 1], len(Q.batch_ids))].tolist()
    return slice(first, end)
