"""`Lookahead` by NumPy: the specification of the compiled core's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ReferenceLookahead"]


class ReferenceLookahead:
    """Belady's rule at the grain of batches, by a sort of all that is held or was fetched, after each batch.

    Parameters
    ----------
    memory : int32 array
        First a number for each item: the lower, the more wanted where no use is known; `num_places`: not at all.
    num_items : int
        Number of items.
    num_places : int
        Number of places, and of items with another number; these are held at first.

    Examples
    --------
    >>> lookahead = ReferenceLookahead(np.array([0, 1, 1], np.int32), 3, 1)
    >>> lookahead.announce([np.array([1, 2]), np.array([2])])
    True
    >>> [array.tolist() for array in lookahead.step()]
    [[], [], [0, 1], [1], [0]]
    """

    def __init__(self, memory: NDArray[np.int32], num_items: int, num_places: int) -> None:
        self._ranks = memory[:num_items].copy()
        self._held = np.flatnonzero(self._ranks < num_places)
        self._batches: list[NDArray[np.int64]] = []

    @property
    def known(self) -> int:
        """Batches that are announced and not yet decided on."""
        return len(self._batches)

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept for items and places."""
        return int(self._ranks.nbytes + self._held.nbytes)

    @property
    def known_bytes(self) -> int:
        """Bytes of what is announced."""
        return sum(batch.nbytes for batch in self._batches)

    def announce(self, batches: list[Any]) -> bool:
        """Append batches to what is known, unless one is no array of items; gives whether all are."""
        if not all(self._are_items(ids) for ids in batches):
            return False
        self._batches += [ids.astype(np.int64) for ids in batches]
        return True

    def is_next(self, ids: NDArray[Any]) -> bool:
        """Whether these are the items of the first known batch."""
        return bool(self._batches) and np.array_equal(self._batches[0], ids)

    def ranks(self) -> NDArray[np.int32]:
        """The rank of each item."""
        return self._ranks.copy()

    def items(self) -> NDArray[np.int64]:
        """The item of each place; -1 where it holds none."""
        return self._held.copy()

    def find(self, ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the items that are held, their places, and positions of the others."""
        place_of = np.full(len(self._ranks) + 1, -1, np.int64)
        place_of[self._held] = np.arange(len(self._held))
        place_of[-1] = -1
        places = place_of[ids]
        hits = np.flatnonzero(places >= 0)
        return hits, places[hits], np.flatnonzero(places < 0)

    def step(self) -> tuple[NDArray[np.int64], ...]:
        """Positions of hits, their places, positions of misses, of those that are kept, and their places."""
        batch = self._batches.pop(0)
        hits, places, misses = self.find(batch)
        fetched = misses[np.sort(np.unique(batch[misses], return_index=True)[1])]
        stay = self._wanted_most(np.concatenate([self._held[self._held >= 0], batch[fetched]]))
        kept = fetched[np.isin(batch[fetched], stay)]
        leave = np.flatnonzero(~np.isin(self._held, stay))  # empty places too
        leave = leave[np.argsort(self._held[leave] >= 0, kind="stable")]
        kept_places = leave[: len(kept)]
        self._held[leave[self._held[leave] >= 0]] = -1
        self._held[kept_places] = batch[kept]
        return hits, places, misses, kept, kept_places

    def forget(self, emptied: NDArray[np.int64]) -> None:
        """Forget all known batches, and what these places hold."""
        self._batches = []
        self._held[emptied] = -1
        self._held[~np.isin(self._held, self._wanted_most(self._held[self._held >= 0]))] = -1

    def _are_items(self, ids: Any) -> bool:
        if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype not in (np.int32, np.int64):
            return False
        return bool(np.all((ids >= 0) & (ids < len(self._ranks))))

    def _wanted_most(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many of these items as there are places, by next use, then by rank; what is held comes before others."""
        next_use = np.full(len(self._ranks), len(self._batches))
        for number in range(len(self._batches) - 1, -1, -1):
            next_use[self._batches[number]] = number
        is_known = next_use < len(self._batches)
        items = items[is_known[items] | (self._ranks[items] < len(self._held))]
        rank = np.where(is_known[items], 0, self._ranks[items])
        order = np.lexsort((rank, next_use[items]))
        return items[order[: len(self._held)]]
