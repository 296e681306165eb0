"""From a list of seeds to Q: batches, merged duplicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spsample.backends.protocol import Int64Array, IntArray
from spsample.errors import InputError
from spsample.sparse import RowSelector, split, stack


@dataclass(frozen=True, eq=False)
class SeedBatches:
    """Seeds cut into batches.

    `selector` holds each batch's distinct seeds in order of first appearance; the slice
    `inverse[inverse_ptr[i]:inverse_ptr[i + 1]]` maps each seed given for batch i to its place among them.
    """

    selector: RowSelector
    inverse: Int64Array
    inverse_ptr: Int64Array

    def alone(self, i: int) -> SeedBatches:
        """The same of batch i only, copied."""
        Q = self.selector
        vertices = Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]].copy()
        inverse = self.inverse[self.inverse_ptr[i] : self.inverse_ptr[i + 1]].copy()
        selector = stack([vertices], int(Q.batch_ids[i]))
        return SeedBatches(selector, inverse, np.array([0, len(inverse)], np.int64))


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
    k = -(-len(seeds) // batch_size)
    ptr = np.arange(0, k * batch_size + 1, batch_size, dtype=np.int64)
    ptr[-1] = len(seeds)
    ids = seeds.astype(dtype)
    repeating = _repeating_batches(ids, batch_size)
    if repeating and duplicates == "error":
        _refuse_duplicates(seeds, ptr, repeating[0])
    places = np.empty((k, batch_size), np.int64)
    places[:] = np.arange(batch_size)
    places = places.reshape(-1)[: len(ids)]
    if not repeating:
        return SeedBatches(RowSelector(ptr, ids, np.arange(first_batch, first_batch + k, dtype=np.int64)), places, ptr)
    merged, inverses = split(ids, ptr), split(places, ptr)
    for i in repeating:
        merged[i], inverses[i] = _merge(merged[i])
    Q = stack(merged, first_batch)
    return SeedBatches(Q, np.concatenate(inverses), ptr)


def _repeating_batches(ids: IntArray, batch_size: int) -> list[int]:
    """Ascending numbers of the batches in which a seed appears twice. O(len(ids) log batch_size), in one pass."""
    full = len(ids) // batch_size
    repeating = _repeating_rows(ids[: full * batch_size].reshape(full, batch_size))
    rest = _repeating_rows(ids[full * batch_size :].reshape(1, -1))
    return [*repeating, full] if rest else repeating


def _repeating_rows(ids: IntArray) -> list[int]:
    """Ascending numbers of the rows that hold an id twice."""
    if ids.size == 0:
        return []
    ordered = np.sort(ids, axis=1)
    equal = ordered[:, 1:] == ordered[:, :-1]
    return np.flatnonzero(equal.any(axis=1)).tolist() if equal.any() else []


def _merge(seeds: IntArray) -> tuple[IntArray, Int64Array]:
    """Distinct seeds in order of first appearance, and the place of each given one."""
    unique, first, inverse = np.unique(seeds, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return unique[order], place[inverse].astype(np.int64)


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
