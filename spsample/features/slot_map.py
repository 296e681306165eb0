"""`SlotMap`: the vertices that have a row among those kept near, and the slot of each: 2 bits a vertex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.threads import compiled_core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.features.gathering import RowReader

_VERTICES = 32
"""Vertices of a word."""


class HitsAndMisses(NamedTuple):
    """Ids split in two.

    Attributes
    ----------
    hits : int64 array
        Positions of the ids that have a slot, ascending.
    slots : int array
        The slot of each of them.
    misses : int64 array
        Positions of the other ids, ascending.
    """

    hits: NDArray[np.int64]
    slots: NDArray[Any]
    misses: NDArray[np.int64]


class SlotMap:
    """From vertices to the slots of their rows, which lie in the order of the vertices.

    Where some vertices have a row, a word stands for 32 vertices. Its lower half says which of them have a row, a bit
    each; its upper half, how many vertices before them have one. A vertex's slot is the upper half and the ones below
    its bit: one load, from an array that a cache of the processor holds where a table of slots would not fit. Where all
    vertices have a row, or none, no words are kept.

    Parameters
    ----------
    vertices : int64 array
        The vertices that have a row, ascending and distinct; fewer than 2^32.
    num_rows : int
        Number of all vertices.

    Attributes
    ----------
    words : uint64 array or None
        One for 32 vertices.
    num_rows, num_kept : int
        Numbers of all vertices, and of those that have a row.

    Examples
    --------
    >>> slots = SlotMap(np.array([3, 40, 41]), 100)
    >>> split = slots.find(np.array([41, 7, 3]))
    >>> split.hits.tolist(), split.slots.tolist(), split.misses.tolist()
    ([0, 2], [2, 0], [1])
    >>> slots.vertices().tolist(), slots.nbytes
    ([3, 40, 41], 32)
    >>> SlotMap(np.arange(3), 3).find(np.array([2, 2])).slots.tolist()
    [2, 2]
    """

    def __init__(self, vertices: NDArray[np.int64], num_rows: int) -> None:
        self.num_rows, self.num_kept = num_rows, len(vertices)
        self.words = slot_words(vertices, num_rows) if 0 < len(vertices) < num_rows else None

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return 0 if self.words is None else int(self.words.nbytes)

    def find(self, ids: NDArray[Any]) -> HitsAndMisses:
        """Split ids, which are in range; in any order, repeats allowed."""
        if self.words is None:
            all_of_them, none = np.arange(len(ids)), np.empty(0, np.int64)
            return HitsAndMisses(all_of_them, ids, none) if self.num_kept else HitsAndMisses(none, none, all_of_them)
        core = compiled_core()
        if core is None:
            return find_slots(self.words, ids)
        return HitsAndMisses(*core.find_places(self.words, self.num_rows, ids))

    def gather(
        self, reader: RowReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Read the rows that ids have to rows `at` of `out`; give the positions of the ids that have none."""
        if self.words is not None:
            return reader.gather_kept(self, ids, out, at)
        if self.num_kept:
            reader.gather(ids, out, at)
        return np.arange(0 if self.num_kept else len(ids))

    def gather_all(
        self, reader: RowReader, rest: RowReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Read the rows of all ids, of those that have none from `rest`, which has all; give how many have one."""
        if self.words is not None:
            return reader.gather_cached(rest, self, ids, out, at)
        (reader if self.num_kept else rest).gather(ids, out, at)
        return len(ids) if self.num_kept else 0

    def vertices(self) -> NDArray[np.int64]:
        """The vertices that have a slot, ascending: slot i is that of vertex i of them."""
        if self.words is None:
            return np.arange(self.num_kept)
        kept = (self.words & np.uint64(2**_VERTICES - 1)).astype("<u4")
        return np.flatnonzero(np.unpackbits(kept.view(np.uint8), bitorder="little"))


def slot_words(vertices: NDArray[np.int64], num_rows: int) -> NDArray[np.uint64]:
    """The words of a `SlotMap` of these vertices, ascending and distinct.

    Examples
    --------
    >>> slot_words(np.array([0, 33]), 64).tolist()
    [1, 4294967298]
    """
    words = np.zeros(-(-num_rows // _VERTICES), np.uint64)
    first = np.flatnonzero(np.diff(vertices // _VERTICES, prepend=-1))  # the first vertex of each word that has any
    if len(vertices):
        bits = np.uint64(1) << (vertices % _VERTICES).astype(np.uint64)
        words[vertices[first] // _VERTICES] = np.bitwise_or.reduceat(bits, first)
    before = np.searchsorted(vertices, np.arange(len(words)) * _VERTICES)
    return words | before.astype(np.uint64) << np.uint64(_VERTICES)


def find_slots(words: NDArray[np.uint64], ids: NDArray[Any]) -> HitsAndMisses:
    """Split ids as the compiled core does, by NumPy.

    Examples
    --------
    >>> find_slots(np.array([0b101, 2 << 32], np.uint64), np.array([2, 1])).slots.tolist()
    [1]
    """
    word, bit = words[ids // _VERTICES], (ids % _VERTICES).astype(np.uint64)
    is_hit = (word >> bit) & np.uint64(1) != 0
    hits = np.flatnonzero(is_hit)
    word, below = word[hits], (np.uint64(1) << bit[hits]) - np.uint64(1)
    bits_below = np.unpackbits((word & below).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int64)
    return HitsAndMisses(hits, (word >> np.uint64(_VERTICES)).astype(np.int64) + bits_below, np.flatnonzero(~is_hit))


def slot_map_bytes(num_rows: int) -> int:
    """Bytes of a `SlotMap` of that many vertices, of which some have a row.

    Examples
    --------
    >>> slot_map_bytes(1_000_000)
    250000
    """
    return 8 * -(-num_rows // _VERTICES)
