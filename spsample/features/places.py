"""Which vertices have a row among those that are kept near, and at which place it lies: 2 bits a vertex."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from spsample.common.threads import compiled_core

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["EveryPlace", "FoundPlaces", "NoPlace", "Places", "RowPlaces", "place_bytes", "places_of"]

_VERTICES = 32
"""Vertices of a word."""


class FoundPlaces(NamedTuple):
    """Ids split in two.

    Attributes
    ----------
    hits : int64 array
        Positions of the ids that have a place, ascending.
    places : int array
        The place of each of them.
    misses : int64 array
        Positions of the other ids, ascending.
    """

    hits: NDArray[np.int64]
    places: NDArray[Any]
    misses: NDArray[np.int64]


class KeptReader(Protocol):
    """What reads the rows that are kept: `spsample.features.gathering.RowReader`."""

    def gather(self, ids: Any, out: Any = None, at: Any = None) -> NDArray[Any]:
        """Rows by their place."""
        ...

    def gather_kept(
        self, places: RowPlaces, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Rows by their vertices; give the positions of those that have none."""
        ...

    def gather_cached(
        self, rest: Any, places: RowPlaces, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Rows by their vertices, of those that have none from `rest`; give how many have one."""
        ...


class Places(Protocol):
    """From vertices to places."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        ...

    def find(self, ids: NDArray[Any]) -> FoundPlaces:
        """Split ids, which are in range; in any order, repeats allowed."""
        ...

    def gather(
        self, reader: KeptReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Read the rows that ids have to their places in `out`; give the positions of the ids that have none."""
        ...

    def gather_all(
        self, reader: KeptReader, rest: Any, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Read the rows of all ids, of those that have none from `rest`; give how many have one.

        `rest` is a `spsample.features.gathering.RowReader` of the rows of all vertices.
        """
        ...

    def vertices(self) -> NDArray[np.int64]:
        """The vertices that have a place, ascending: place i is that of vertex i of them."""
        ...


class NoPlace:
    """No vertex has a row: nothing is kept.

    Examples
    --------
    >>> NoPlace().find(np.array([2, 2])).misses.tolist()
    [0, 1]
    """

    nbytes = 0

    def find(self, ids: NDArray[Any]) -> FoundPlaces:
        """All ids miss."""
        nothing = np.empty(0, np.int64)
        return FoundPlaces(nothing, nothing, np.arange(len(ids)))

    def gather(
        self, reader: KeptReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """No row."""
        return np.arange(len(ids))

    def gather_all(
        self, reader: KeptReader, rest: Any, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """All rows, from the rest."""
        rest.gather(ids, out, at)
        return 0

    def vertices(self) -> NDArray[np.int64]:
        """None."""
        return np.empty(0, np.int64)


class EveryPlace:
    """Every vertex has a row, at the place of its own number: nothing is kept.

    Examples
    --------
    >>> EveryPlace(3).find(np.array([2, 2])).places.tolist()
    [2, 2]
    """

    nbytes = 0

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def find(self, ids: NDArray[Any]) -> FoundPlaces:
        """All ids hit."""
        return FoundPlaces(np.arange(len(ids)), ids, np.empty(0, np.int64))

    def gather(
        self, reader: KeptReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """All rows."""
        reader.gather(ids, out, at)
        return np.empty(0, np.int64)

    def gather_all(
        self, reader: KeptReader, rest: Any, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """All rows, none of the rest."""
        reader.gather(ids, out, at)
        return len(ids)

    def vertices(self) -> NDArray[np.int64]:
        """All of them."""
        return np.arange(self._num_rows)


class RowPlaces:
    """Some vertices have a row; rows lie in the order of the vertices.

    A word stands for 32 vertices. Its lower half says which of them have a row, a bit each; its upper half, how many
    vertices before them have one. A vertex's place is the upper half and the ones below its bit: one load, from an
    array that a cache of the processor holds where a table of places would not fit.

    Parameters
    ----------
    vertices : int64 array
        Those that have a row, ascending and distinct; fewer than 2^32.
    num_rows : int
        Number of all vertices.

    Attributes
    ----------
    words : uint64 array
        One for 32 vertices.
    num_rows : int

    Examples
    --------
    >>> places = RowPlaces(np.array([3, 40, 41]), 100)
    >>> found = places.find(np.array([41, 7, 3]))
    >>> found.hits.tolist(), found.places.tolist(), found.misses.tolist()
    ([0, 2], [2, 0], [1])
    >>> places.vertices().tolist(), places.nbytes
    ([3, 40, 41], 32)
    """

    def __init__(self, vertices: NDArray[np.int64], num_rows: int) -> None:
        self.num_rows = num_rows
        self.words = np.zeros(-(-num_rows // _VERTICES), np.uint64)
        first = np.flatnonzero(np.diff(vertices // _VERTICES, prepend=-1))  # of each word, where it has any
        if len(vertices):
            bits = np.uint64(1) << (vertices % _VERTICES).astype(np.uint64)
            self.words[vertices[first] // _VERTICES] = np.bitwise_or.reduceat(bits, first)
        before = np.searchsorted(vertices, np.arange(len(self.words)) * _VERTICES)
        self.words |= before.astype(np.uint64) << np.uint64(_VERTICES)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.words.nbytes)

    def find(self, ids: NDArray[Any]) -> FoundPlaces:
        """Split ids, which are in range; in any order, repeats allowed."""
        core = compiled_core()
        if core is None:
            return find_places(self.words, ids)
        return FoundPlaces(*core.find_places(self.words, self.num_rows, ids))

    def gather(
        self, reader: KeptReader, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> NDArray[np.int64]:
        """Read the rows that ids have, in one pass over the ids where the compiled core can."""
        return reader.gather_kept(self, ids, out, at)

    def gather_all(
        self, reader: KeptReader, rest: Any, ids: NDArray[Any], out: NDArray[Any], at: NDArray[np.int64] | None
    ) -> int:
        """Read the rows of all ids, in one pass over them where the compiled core can."""
        return reader.gather_cached(rest, self, ids, out, at)

    def vertices(self) -> NDArray[np.int64]:
        """The vertices that have a place, ascending."""
        kept = (self.words & np.uint64(2**_VERTICES - 1)).astype("<u4")
        return np.flatnonzero(np.unpackbits(kept.view(np.uint8), bitorder="little"))


def find_places(words: NDArray[np.uint64], ids: NDArray[Any]) -> FoundPlaces:
    """Split ids as the compiled core does, by NumPy.

    Examples
    --------
    >>> find_places(np.array([0b101, 2 << 32], np.uint64), np.array([2, 1])).places.tolist()
    [1]
    """
    word, bit = words[ids // _VERTICES], (ids % _VERTICES).astype(np.uint64)
    is_hit = (word >> bit) & np.uint64(1) != 0
    hits = np.flatnonzero(is_hit)
    word, below = word[hits], (np.uint64(1) << bit[hits]) - np.uint64(1)
    places = (word >> np.uint64(_VERTICES)).astype(np.int64) + _ones((word & below).astype(np.uint32))
    return FoundPlaces(hits, places, np.flatnonzero(~is_hit))


def _ones(words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """How many bits of each word are 1: those of two, four and eight neighbours are added, then all bytes."""
    twos = words - ((words >> np.uint32(1)) & np.uint32(0x55555555))
    fours = (twos & np.uint32(0x33333333)) + ((twos >> np.uint32(2)) & np.uint32(0x33333333))
    eights = (fours + (fours >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
    ones: Any = (eights * np.uint32(0x01010101)) >> np.uint32(24)
    return ones.astype(np.int64)  # type: ignore[no-any-return]


def place_bytes(num_rows: int) -> int:
    """Bytes of `RowPlaces` of that many vertices.

    Examples
    --------
    >>> place_bytes(1_000_000)
    250000
    """
    return 8 * -(-num_rows // _VERTICES)


def places_of(vertices: NDArray[np.int64], num_rows: int) -> Places:
    """Places of rows of these vertices, ascending and distinct."""
    if len(vertices) == 0:
        return NoPlace()
    return EveryPlace(num_rows) if len(vertices) == num_rows else RowPlaces(vertices, num_rows)
