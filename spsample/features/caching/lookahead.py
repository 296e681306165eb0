"""The items that a cache keeps where the next batches are known: Belady's rule, applied batch by batch.

Items are rows of features, pages of a file, or anything else that has a number and takes a place of equal size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.arrays import as_array
from spsample.common.checks import require_int
from spsample.errors import InputError
from spsample.features.gathering import require_core
from spsample.features.score_order import highest
from spsample.features.slot_map import HitsAndMisses
from spsample.store.validation import as_vertex_ids, check_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MAX_ITEMS = 2**31 - 1
_WORD_BYTES, _PLACE_WORDS, _USE_BYTES, _OTHER_BYTES = 4, 4, 8, 320


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

    @property
    def known_bytes(self) -> int:
        """Bytes for what is announced; see `known_bytes`."""
        return int(self._planner.known_bytes)

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


def known_bytes(uses: int) -> int:
    """Bytes of `Lookahead` for batches of `uses` items in all, known at a time: room for a power of two of them.

    Examples
    --------
    >>> known_bytes(1000)
    8192
    """
    return _USE_BYTES * (1 << max(uses - 1, 63).bit_length())
