"""The items that a cache keeps where the next batches are known: Belady's rule, applied batch by batch.

Items are rows of features, pages of a file, or anything else that has a number and takes a place of equal size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.arrays import as_array
from spsample.common.checks import require_int, require_type
from spsample.common.contents import contents_of
from spsample.common.locks import MendedInForks, was_held
from spsample.errors import InputError
from spsample.features.gathering import HitsAndMisses, require_core, row_reader
from spsample.features.keeper import LINE_BYTES, KeptRows, Targets, part, require_fingerprint, targets
from spsample.features.scores.order import highest
from spsample.store.validation import as_vertex_ids, check_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.features.source import FeatureSource


MAX_ITEMS = 2**31 - 1
_WORD_BYTES, _PLACE_WORDS, _OTHER_BYTES = 4, 4, 320


class Decision(NamedTuple):
    """The decision on a batch. Positions are those of its items in the array that was announced.

    Attributes
    ----------
    hits : int64 array
        Positions of the items that are held, ascending.
    places : int64 array
        The place of each of them. What is there has to be read before others are put there.
    misses : int64 array
        Positions of the other items, ascending.
    kept : int64 array
        Positions of the misses that are held from now on.
    kept_places : int64 array
        The place that each of them goes to, all distinct. What was there is no longer held.
    """

    hits: NDArray[np.int64]
    places: NDArray[np.int64]
    misses: NDArray[np.int64]
    kept: NDArray[np.int64]
    kept_places: NDArray[np.int64]


class Lookahead:
    """The items that a cache of equal places holds, batch after batch, where some of the next batches are known.

    At first it holds the items of the largest scores, as many as it has places. After a batch those items stay whose
    next use comes first, of what was held and what the batch brought. Known uses come before unknown ones. Where no use
    is known, the first items stay, those of larger scores before others, and no other item does. With everything known
    no cache has fewer misses; with less known, there are at least the hits of the first items, held all the time.

    Parameters
    ----------
    scores : float array (items,)
        How much each item is wanted where no use of it is known: finite, at least 0.
    capacity : int
        Number of places.

    Raises
    ------
    InputError, DTypeError
        If an argument is out of range.
    BackendError
        If the compiled core is missing.

    Notes
    -----
    A use of an item costs O(1): a link to its next use, or a bit in the order of scores where none is known. Of equal
    scores the first item stays; of items that are next used in the same batch any may, always the same. One thread at a
    time.

    References
    ----------
    Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5 (1966).

    Examples
    --------
    >>> lookahead = Lookahead(scores=[4, 3, 2, 1], capacity=2)
    >>> lookahead.announce([[0, 2], [2, 3], [0, 2]])
    >>> decision = lookahead.step()
    >>> decision.hits.tolist(), decision.misses.tolist()
    ([0], [1])
    >>> decision.kept.tolist(), decision.kept_places.tolist()
    ([1], [1])
    >>> lookahead.items.tolist(), lookahead.known
    ([0, 2], 2)
    """

    def __init__(self, scores: ArrayLike, capacity: int) -> None:
        numbers = as_array("scores", scores).reshape(-1)
        if len(numbers) > MAX_ITEMS:
            raise InputError(argument="scores", given=f"{len(numbers)} items", expected=f"at most {MAX_ITEMS}")
        places = require_int("capacity", capacity, minimum=0, maximum=len(numbers))
        memory = np.zeros(lookahead_words(len(numbers), places), np.int32)
        first = highest(numbers, places)
        memory[: len(numbers)] = places
        memory[first[np.argsort(-numbers[first].astype(np.float64), kind="stable")]] = np.arange(places)
        self._begin(memory, len(numbers), places)

    @classmethod
    def within(cls, memory: NDArray[np.int32], num_items: int, capacity: int) -> Lookahead:
        """One that keeps what it knows of items and places in memory that is given.

        Parameters
        ----------
        memory : int32 array (lookahead_words(num_items, capacity),)
            First a number for each item: how many items are wanted more, where it is one of the first, else `capacity`.
            Then zeros.
        num_items, capacity : int
        """
        made = cls.__new__(cls)
        made._begin(memory, num_items, capacity)
        return made

    def _begin(self, memory: NDArray[np.int32], num_items: int, capacity: int) -> None:
        self._planner: Any = require_core("Lookahead").Lookahead(memory, num_items, capacity)
        self.num_items, self.capacity = num_items, capacity

    @property
    def known(self) -> int:
        """Batches that are announced and not yet decided on."""
        return int(self._planner.known)

    @property
    def items(self) -> NDArray[np.int64]:
        """(capacity,) the item of each place; -1 where it holds none."""
        items: NDArray[np.int64] = self._planner.items()
        return items

    @property
    def ranks(self) -> NDArray[np.int32]:
        """(items,) how many items are wanted more than each of the first; `capacity` for others."""
        ranks: NDArray[np.int32] = self._planner.ranks()
        return ranks

    @property
    def nbytes(self) -> int:
        """Bytes for items and places; see `lookahead_bytes`."""
        return int(self._planner.nbytes)

    def announce(self, batches: Sequence[ArrayLike]) -> None:
        """Append batches to what is known.

        Parameters
        ----------
        batches : sequence of int arrays
            The items of each batch. An item that comes again in its batch is not kept twice.

        Raises
        ------
        InputError, DTypeError
            If one is no array of items; nothing is announced then.
        """
        require_type("batches", batches, Sequence, "a list of arrays of items")
        each = list(batches)
        if not self._planner.announce(each):  # the core checks arrays of ids itself, and faster
            checked = [as_vertex_ids("batches", batch, self.num_items) for batch in each]
            self._planner.announce(checked)

    def is_next(self, ids: NDArray[Any]) -> bool:
        """True where the first batch that is known has these items, in this order."""
        return bool(self._planner.is_next(ids))

    def step(self) -> Decision:
        """Decide on the first batch that is known; it is then no longer known.

        Raises
        ------
        InputError
            If no batch is known.
        """
        try:
            return Decision(*self._planner.step())
        except IndexError:
            given, expected = "a step, none announced", "a batch that is announced"
            raise InputError(argument="batches", given=given, expected=expected) from None

    def find(self, ids: NDArray[Any]) -> HitsAndMisses:
        """Split items in those that are held and the others; in any order, repeats allowed. Nothing changes."""
        return HitsAndMisses(*self._planner.find(ids))

    def forget(self, emptied: ArrayLike = ()) -> None:
        """Forget all batches that are known: they will not come.

        Parameters
        ----------
        emptied : int array, optional
            Places that hold nothing any longer: of decisions that were not carried out. Default: none.
        """
        places = np.array(emptied, np.int64).reshape(-1)
        check_ids("emptied", places, self.capacity)
        self._planner.forget(places)


def lookahead_words(num_items: int, capacity: int) -> int:
    """Words of 4 bytes for what `Lookahead` knows of items and places: 5 bytes an item and 16 a place.

    Examples
    --------
    >>> lookahead_words(1_000_000, 100_000)
    1650000
    """
    return num_items + -(-num_items // _WORD_BYTES) + _PLACE_WORDS * capacity


def lookahead_bytes(num_items: int, capacity: int) -> int:
    """Bytes of `Lookahead`, but for those of the batches that are known.

    Examples
    --------
    >>> lookahead_bytes(1_000_000, 100_000)
    6613216
    """
    return _WORD_BYTES * lookahead_words(num_items, capacity) + capacity // 62 * 8 + _OTHER_BYTES


_PLACE_BYTES = 8
"""Bytes beside each row: the number of rows on their way to its place, and the last call that put one there."""

_AT_ONCE = 1 << 20
"""Bytes of rows that are moved at a time."""

_SURELY_OTHERS = 32
"""Calls after which no announced one is the next: before, a cache may be read for another cache, or to evaluate."""


class _Call(NamedTuple):
    """A call of `serve`: its decision, its number among announced calls (0: it is none), and its generation."""

    decision: Decision
    number: int
    generation: int


class LookaheadRows(MendedInForks):
    """Rows that are kept by next use; those of the largest scores at first. See `Lookahead` for the rule.

    A call of `serve` whose ids were announced is decided on, and changes what is kept. Any other is served from that,
    and changes nothing. Where as many others come in a row as calls are known, and 32, those that are known will
    not come, and are forgotten. Threads may call side by side: a row that is not yet in its place is not read there.

    Parameters
    ----------
    rows : array (capacity, dim)
        What is kept at first.
    memory : int32 array
        For what decides, and 2 * capacity more.
    num_vertices : int

    Attributes
    ----------
    dtype, reader, row_bytes
        As of `KeptRows`.
    """

    looks_ahead = True

    def __init__(self, rows: NDArray[Any], memory: NDArray[np.int32], num_vertices: int) -> None:
        super().__init__()
        self.dtype, self.reader, self.row_bytes = rows.dtype, row_reader(rows), rows.shape[1] * rows.itemsize
        capacity = len(rows)
        self._lookahead = Lookahead.within(memory[: -2 * capacity], num_vertices, capacity)
        self._awaited = memory[-2 * capacity : -capacity]  # rows on their way to each place
        self._filled_by = memory[-capacity:]  # the last call that put a row in each place
        self._calls = self._in_flight = 0  # announced calls, and those whose rows are not yet kept
        self._generation = 0  # counts how often known calls were forgotten
        self._hinted: deque[NDArray[Any]] = deque()  # known calls without a decision, where the source looks ahead
        self._fixed: deque[tuple[NDArray[Any], Decision]] = deque()  # ids of the next calls, and the decisions on them
        self._others = self._most_others = 0  # calls in a row that were not the next known one, and their limit

    @classmethod
    def in_place_of(cls, rows: KeptRows, order: NDArray[np.uint8], capacity: int) -> LookaheadRows:
        """Make it of rows that stayed: those first by their classes, in the same memory, then what decides.

        No row may be read meanwhile.
        """
        first, vertices, memory = by_score(order)[:capacity], rows.vertices(), rows.reader.rows
        moved, at_once = np.sort(first), max(1, _AT_ONCE // rows.row_bytes)
        for begin in range(0, capacity, at_once):  # no row moves to a later place
            memory[begin : begin + at_once][: capacity - begin] = memory[moved[begin : begin + at_once]]
        spare = memory[capacity:].reshape(-1).view(np.uint8)
        begin = -(capacity * rows.row_bytes) % LINE_BYTES
        words = lookahead_words(rows.num_vertices, capacity) + 2 * capacity
        map_ = spare[begin : begin + 4 * words].view(np.int32)
        map_[:] = 0
        map_[: rows.num_vertices] = capacity
        map_[vertices[first]] = np.arange(capacity)
        return cls(memory[:capacity], map_, rows.num_vertices)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, of the map to them and of what decides, but for the batches that are known."""
        beside = int(self._awaited.nbytes) + int(self._filled_by.nbytes)
        return int(self.reader.rows.nbytes) + self._lookahead.nbytes + beside

    def hint(self, source: FeatureSource, batches: list[NDArray[Any]] | None) -> None:
        """Append the ids of the next calls; None: forget them, and what was to be kept of rows on their way.

        To a source that looks ahead itself the misses of all calls known before are announced.
        """
        with self._lock():
            misses: list[NDArray[Any]] | None = None
            if batches is None:
                self._forget_known()
            else:
                self._lookahead.announce(batches)
                misses = self._fix() if source.looks_ahead else []
                if source.looks_ahead:
                    self._hinted.extend(ids.copy() for ids in batches)  # the caller may change them
        if source.looks_ahead:
            source._hint(misses)

    def serve(self, source: FeatureSource, ids: NDArray[Any], out: NDArray[Any], at: Targets) -> int:
        """Write the rows of vertices to rows `at` of `out`, those that are not kept from the source; gives the hits.

        Collective where the source is.
        """
        with self._lock():
            call = self._begin(ids)
            decision = call.decision
            if len(decision.hits):  # before other rows are put there
                self.reader.gather(decision.places, out, targets(at, decision.hits, len(out)))
        rows, of_kept = out, decision.kept
        if len(decision.misses) or source.comm.size > 1:
            rows, of_kept = self._fetched(source, ids, decision, out, at)
        with self._lock():
            self._keep(rows, of_kept, call)
        return len(decision.hits)

    def vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows are kept now, ascending."""
        with self._lock():
            return self._kept_places()[0]

    def kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The vertices whose rows are kept now, ascending, and a copy of these rows, in the same order."""
        with self._lock():
            vertices, places = self._kept_places()
            return vertices, self.reader.rows[places]

    def recipe(self) -> tuple[Any, ...]:
        """From what rows are read again: the first vertices by score, which of them have a row, and a digest."""
        vertices, rows = self.kept()
        ranks = self._lookahead.ranks
        is_first = ranks[vertices] < self._lookahead.capacity
        first = np.flatnonzero(ranks < self._lookahead.capacity)
        return LookaheadRows.reread, (first, ranks[first], vertices[is_first], contents_of(rows[is_first]))

    @classmethod
    def reread(
        cls,
        source: FeatureSource,
        first: NDArray[np.int64],
        ranks: NDArray[np.int32],
        vertices: NDArray[np.int64],
        fingerprint: int,
    ) -> LookaheadRows:
        """Read the rows of the first vertices again.

        Raises
        ------
        DataError
            If they have changed.
        """
        rows, capacity = KeptRows(source, first).reader.rows, len(first)
        require_fingerprint(source, rows[np.isin(first, vertices)], fingerprint)
        memory = np.zeros(lookahead_words(source.num_rows, capacity) + 2 * capacity, np.int32)
        memory[: source.num_rows] = capacity
        memory[first] = ranks
        return cls(rows, memory, source.num_rows)

    def _renew(self) -> None:
        """In a forked process: where a thread that it has not held the lock, nothing is known to be whole."""
        if was_held(self._changing):
            num_items, capacity = self._lookahead.num_items, self._lookahead.capacity
            self._lookahead = Lookahead(np.zeros(num_items), capacity)
            self._awaited[:] = 1  # no place holds a valid row
        self._forget_known()

    # ------------------------------------------------------------------------------------ under the lock

    def _kept_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The vertices whose rows are there, ascending, and the places of these rows."""
        items = np.where(self._awaited == 0, self._lookahead.items, -1).astype(np.int64)
        places = np.argsort(items, kind="stable")[np.count_nonzero(items < 0) :]
        return items[places], places

    def _begin(self, ids: NDArray[Any]) -> _Call:
        """Decide on a call. Of places with rows on their way none is read, unless only later calls put them there."""
        if not (np.array_equal(self._fixed[0][0], ids) if self._fixed else self._lookahead.is_next(ids)):
            known = len(self._fixed) + self._lookahead.known
            if self._others == 0:
                self._most_others = max(known, _SURELY_OTHERS)
            self._others += 1
            if known and self._others >= self._most_others:
                self._forget_known()
            hits, places, misses = self._lookahead.find(ids)
            nothing = np.empty(0, np.int64)
            return _Call(self._without_awaited(Decision(hits, places, misses, nothing, nothing)), 0, self._generation)
        self._others = 0
        decision = self._fixed.popleft()[1] if self._fixed else self._step()
        if self._in_flight:
            decision = self._without_awaited(decision)
        self._in_flight += 1
        self._calls += 1
        return _Call(decision, self._calls, self._generation)

    def _forget_known(self) -> None:
        self._lookahead.forget(np.flatnonzero(self._awaited))
        self._awaited[:] = self._filled_by[:] = 0
        self._calls = self._in_flight = self._others = 0
        self._generation += 1
        self._hinted.clear()
        self._fixed.clear()

    def _step(self) -> Decision:
        if self._hinted:
            self._hinted.popleft()
        decision = self._lookahead.step()
        self._awaited[decision.kept_places] += 1
        return decision

    def _fix(self) -> list[NDArray[Any]]:
        """Decide on all calls that were known before; gives the ids of each that will miss."""
        missing = []
        while self._hinted:
            ids = self._hinted[0]
            decision = self._step()
            self._fixed.append((ids, decision))
            missing.append(part(ids, decision.misses))
        return missing

    def _without_awaited(self, decision: Decision) -> Decision:
        """The decision with hits at places that wait for a row taken for misses."""
        is_there = self._awaited[decision.places] == 0
        if is_there.all():
            return decision
        misses = np.sort(np.concatenate([decision.misses, decision.hits[~is_there]]))
        return decision._replace(hits=decision.hits[is_there], places=decision.places[is_there], misses=misses)

    def _keep(self, rows: NDArray[Any], of_kept: NDArray[np.int64], call: _Call) -> None:
        """Put rows into the places that they were given, unless a later call was faster, or all was forgotten."""
        if call.generation != self._generation or not call.number:
            return
        places = call.decision.kept_places
        is_newer = self._filled_by[places] < call.number
        if not is_newer.all():
            of_kept, places = of_kept[is_newer], places[is_newer]
        if len(places):
            row_reader(rows).gather(of_kept, self.reader.rows, places)
        self._filled_by[places] = call.number
        self._awaited[call.decision.kept_places] -= 1
        self._in_flight -= 1

    # ------------------------------------------------------------------------------------ without it

    def _fetched(
        self, source: FeatureSource, ids: NDArray[Any], decision: Decision, out: NDArray[Any], at: Targets
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Write the misses to the result; gives rows as they are kept, and which of them those to keep are."""
        wanted, to = part(ids, decision.misses), targets(at, decision.misses, len(out))
        if out.dtype == self.dtype and at is None:  # otherwise rows could be overwritten
            source._read(wanted, out, to)
            return out, decision.kept
        rows = np.empty((len(wanted), self.reader.dim), self.dtype)
        source._read(wanted, rows)
        row_reader(rows).gather(np.arange(len(wanted)), out, to)
        return rows, np.searchsorted(decision.misses, decision.kept)


def by_score(order: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Rows by class, the largest scores first.

    Examples
    --------
    >>> by_score(np.array([2, 0, 1, 0], np.uint8)).tolist()
    [1, 3, 2, 0]
    """
    return np.argsort(order, kind="stable")


def rows_ahead(num_vertices: int, count: int, row_bytes: int) -> int:
    """Return the number of rows kept by next use, with what decides, in the memory of `count` rows; 0 where none fits.

    Examples
    --------
    >>> rows_ahead(1_000_000, 50_000, 400), rows_ahead(1_000_000, 10_000, 400)
    (34940, 0)
    """
    of_all = lookahead_bytes(num_vertices, 0) + LINE_BYTES
    of_each = row_bytes + _PLACE_BYTES + lookahead_bytes(0, 62) / 62
    return max(int((count * row_bytes - of_all) / of_each), 0)
