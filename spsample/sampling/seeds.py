"""From a list of seeds to Q: batches, merged duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, backend_for
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.lazily import lazily
from spsample.common.threads import compiled_core
from spsample.errors import InputError
from spsample.sparse import RowSelector

T = TypeVar("T", bound=np.generic)

WORD_BITS = 63
"""Bits of a signed word: those of an id and of its position in a batch."""


@dataclass(eq=False)
class SeedBatches:
    """Seeds cut into batches.

    `selector` holds each batch's distinct seeds in order of first appearance; `given_ptr` (k + 1,) are the batches'
    places among the seeds given. `merged_inverse` is `inverse` where a batch has a seed twice, else None.
    """

    selector: RowSelector
    given_ptr: Int64Array
    merged_inverse: Int64Array | None = None

    @lazily
    def inverse(self) -> Int64Array:
        """For each seed given, its place among the distinct ones of its batch."""
        if self.merged_inverse is not None:
            return self.merged_inverse
        places = np.arange(self.given_ptr[-1])
        return places - self.given_ptr[:-1].repeat(self.given_ptr[1:] - self.given_ptr[:-1])

    def inverse_of(self, i: int) -> Int64Array:
        """For each seed given for batch i, its place among the distinct ones: a view."""
        return self.inverse[self.given_ptr[i] : self.given_ptr[i + 1]]

    def copy_batch(self, i: int) -> SeedBatches:
        """Return the seeds of batch i only, in arrays of their own."""
        Q = self.selector
        vertices = backend_for(Q.vertices).copied(Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]])
        inverse = self.inverse_of(i).copy()
        selector = RowSelector(np.array([0, len(vertices)], np.int64), vertices, Q.batch_ids[i : i + 1].copy())
        return SeedBatches(selector, np.array([0, len(inverse)], np.int64), inverse)

    def to_device(self, backend: Backend) -> SeedBatches:
        """Return the batches with their vertices where a backend's kernels read them."""
        vertices = backend.to_device(self.selector.vertices)
        if vertices is self.selector.vertices:
            return self
        selector = RowSelector(self.selector.batch_ptr, vertices, self.selector.batch_ids)
        return SeedBatches(selector, self.given_ptr, self.merged_inverse)

    def on_host(self) -> SeedBatches:
        """Return the batches with their vertices in NumPy's memory."""
        Q = self.selector
        vertices = backend_for(Q.vertices).on_host(Q.vertices)
        return SeedBatches(RowSelector(Q.batch_ptr, vertices, Q.batch_ids), self.given_ptr, self.merged_inverse)

    def take(self, positions: Int64Array) -> SeedBatches:
        """Return the batches at these ascending positions: itself where they are all, else copied.

        Examples
        --------
        >>> batches = make_batches(np.array([4, 2, 4, 7, 1]), 2, 10, np.dtype(np.int32), "merge")
        >>> some = batches.take(np.array([0, 2]))
        >>> some.selector.batch_ids.tolist(), some.selector.vertices.tolist(), some.inverse.tolist()
        ([10, 12], [4, 2, 1], [0, 1, 0])
        """
        if len(positions) == len(self.given_ptr) - 1:
            return self
        Q = self.selector
        ranges = [np.arange(Q.batch_ptr[i], Q.batch_ptr[i + 1]) for i in positions]
        places = np.concatenate([np.zeros(0, np.int64), *ranges])
        ptr = pointers_of([len(part) for part in ranges])
        backend = backend_for(Q.vertices)
        vertices = backend.to_device(Q.vertices)[backend.to_device(places)]
        selector = RowSelector(ptr, vertices, Q.batch_ids[positions])
        given = pointers_of((self.given_ptr[positions + 1] - self.given_ptr[positions]).tolist())
        if self.merged_inverse is None:
            return SeedBatches(selector, given)
        inverses = [self.inverse_of(i) for i in positions]
        return SeedBatches(selector, given, np.concatenate([self.merged_inverse[:0], *inverses]))


def make_batches(
    seeds: Int64Array, batch_size: int, first_batch: int, dtype: np.dtype[np.signedinteger], duplicates: str
) -> SeedBatches:
    """Consecutive batches of `batch_size` seeds; a seed repeated in its batch is merged, or refused ("error").

    Examples
    --------
    >>> batches = make_batches(np.array([4, 2, 4, 7]), 3, 0, np.dtype(np.int32), "merge")
    >>> batches.selector.vertices.tolist(), batches.inverse.tolist()
    ([4, 2, 7], [0, 1, 0, 0])
    """
    core = compiled_core()
    cut = cut_batches if core is None else core.cut_batches
    ptr, ids, batch_ids, repeats = cut(seeds, batch_size, first_batch, dtype.itemsize == 8)
    selector = RowSelector(ptr, ids, batch_ids)
    batches = SeedBatches(selector, ptr)
    if not repeats:
        return batches
    repeating = [_repeating_rows(rows) for rows in _matrices(ids, batch_size)]
    if duplicates == "error":
        _refuse_duplicates(seeds, ptr, _first_batch(repeating, len(ids) // batch_size))
    is_first, inverse = np.ones(len(ids), np.bool_), batches.inverse
    parts = (_matrices(stacked, batch_size) for stacked in (ids, is_first, inverse))
    for rows, given, firsts, places in zip(repeating, *parts, strict=True):
        firsts[rows], places[rows] = _merge(given[rows])
    merged = pointers_of(np.add.reduceat(is_first, ptr[:-1], dtype=np.int64))
    return SeedBatches(RowSelector(merged, ids[is_first], selector.batch_ids), ptr, inverse)


def cut_batches(
    seeds: Int64Array, batch_size: int, first_batch: int, wide: bool
) -> tuple[Int64Array, IntArray, Int64Array, bool]:
    """Pointers, seeds (int64 where `wide`, else int32) and ids of the batches, and whether one has a seed twice.

    `cut_batches` of the compiled core, in NumPy.

    Examples
    --------
    >>> ptr, ids, batch_ids, repeats = cut_batches(np.array([4, 2, 4, 7]), 3, 5, False)
    >>> ptr.tolist(), ids.tolist(), batch_ids.tolist(), repeats
    ([0, 3, 4], [4, 2, 4, 7], [5, 6], True)
    """
    k = -(-len(seeds) // batch_size)
    ptr = np.arange(0, k * batch_size + 1, batch_size, dtype=np.int64)
    ptr[-1] = len(seeds)
    ids: IntArray = seeds.astype(np.int64 if wide else np.int32)
    repeats = any(len(_repeating_rows(rows)) for rows in _matrices(ids, batch_size))
    return ptr, ids, np.arange(first_batch, first_batch + k, dtype=np.int64), repeats


def make_uneven_batches(
    seeds: Int64Array, ptr: Int64Array, first_batch: int, dtype: np.dtype[np.signedinteger], duplicates: str
) -> SeedBatches:
    """Batches of any sizes, 0 too: batch i has the seeds `ptr[i]` to `ptr[i + 1] - 1`; as `make_batches` otherwise.

    Examples
    --------
    >>> batches = make_uneven_batches(np.array([4, 2, 4, 7]), np.array([0, 3, 3, 4]), 0, np.dtype(np.int32), "merge")
    >>> batches.selector.vertices.tolist(), batches.selector.batch_ptr.tolist(), batches.inverse.tolist()
    ([4, 2, 7], [0, 2, 2, 3], [0, 1, 0, 0])
    """
    ids, sizes = seeds.astype(dtype), np.diff(ptr)
    selector = RowSelector(ptr, ids, np.arange(first_batch, first_batch + len(sizes), dtype=np.int64))
    batch = np.arange(len(sizes)).repeat(sizes)
    order = np.lexsort((ids, batch))  # by id within each batch, and then by place
    differs = np.ones(len(ids), np.bool_)
    differs[1:] = (ids[order][1:] != ids[order][:-1]) | (batch[1:] != batch[:-1])
    if differs.all():
        return SeedBatches(selector, ptr)
    if duplicates == "error":
        _refuse_duplicates(seeds, ptr, int(batch[np.flatnonzero(~differs)[0]]))
    begins = np.flatnonzero(differs)
    first = order[begins]
    is_first, inverse = np.zeros(len(ids), np.bool_), np.empty(len(ids), np.int64)
    is_first[first] = True
    before = pointers_of(is_first.astype(np.int64))
    inverse[order] = (before[first] - before[ptr[batch[first]]]).repeat(np.diff(begins, append=len(ids)))
    return SeedBatches(RowSelector(before[ptr], ids[is_first], selector.batch_ids), ptr, inverse)


def _matrices(stacked: NDArray[T], batch_size: int) -> list[NDArray[T]]:
    """The full batches as the rows of a matrix, and the last one where it is shorter: views."""
    full = len(stacked) // batch_size * batch_size
    parts = [stacked[:full].reshape(full // batch_size, -1)] if full else []
    return [*parts, stacked[full:].reshape(1, -1)] if full < len(stacked) else parts


def _first_batch(repeating: list[Int64Array], full: int) -> int:
    """The first batch that repeats a seed, of those found in each matrix; `full` is the number of full batches."""
    return int(repeating[0][0]) if len(repeating[0]) else full


def _repeating_rows(ids: IntArray) -> Int64Array:
    """Ascending numbers of the rows that hold an id twice."""
    ordered = ids.copy()
    ordered.sort(axis=1)
    equal = ordered[:, 1:] == ordered[:, :-1]
    return np.flatnonzero(equal.any(axis=1)) if np.count_nonzero(equal) else np.zeros(0, np.int64)


def _merge(ids: IntArray) -> tuple[NDArray[np.bool_], Int64Array]:
    """Return whether each id is the first of its kind in its row, and its kind's place among the row's, in that order.

    Examples
    --------
    >>> [found.tolist() for found in _merge(np.array([[7, 3, 7, 5]]))]
    [[[True, True, False, True]], [[0, 1, 0, 2]]]
    """
    order = _by_id(ids)
    ordered = ids.ravel()[order]
    differs = np.ones(ids.shape, np.bool_)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=differs[:, 1:])
    begins = np.flatnonzero(differs)
    first = order.ravel()[begins]
    is_first, inverse = np.zeros(ids.shape, np.bool_), np.empty(ids.shape, np.int64)
    is_first.ravel()[first] = True
    places = np.cumsum(is_first, axis=1)
    inverse.ravel()[order.ravel()] = (places.ravel()[first] - 1).repeat(np.diff(begins, append=ids.size))
    return is_first, inverse


def _by_id(ids: IntArray) -> Int64Array:
    """The elements of each row, by their places in the whole, in ascending order of ids, then of places.

    Ids and positions are sorted in one word; ids too large for that by their ranks.
    """
    bits = int(ids.shape[1]).bit_length()
    if ids.size and int(ids.max()).bit_length() + bits > WORD_BITS:
        ids = np.unique(ids, return_inverse=True)[1].reshape(ids.shape)
    words = ids.astype(np.int64) << bits
    words |= np.arange(ids.shape[1])
    words.sort(axis=1)
    words &= (1 << bits) - 1
    words += np.arange(0, ids.size, ids.shape[1])[:, None]
    return words


def _refuse_duplicates(seeds: Int64Array, ptr: Int64Array, batch: int) -> None:
    """Names the first repeated seed of a batch that has one."""
    part = seeds[ptr[batch] : ptr[batch + 1]]
    is_new = np.zeros(len(part), np.bool_)
    is_new[np.unique(part, return_index=True)[1]] = True
    position = int(ptr[batch] + np.flatnonzero(~is_new)[0])
    raise InputError(
        argument="seeds",
        given=f"{seeds[position]} again at position {position}, in batch {batch} of the call",
        expected="distinct seeds within each batch, since duplicates='error'",
        hint="Use duplicates='merge' to sample it once and find it by MiniBatch.seed_inverse.",
    )
