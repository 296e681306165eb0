"""From a list of seeds to Q: batches, merged duplicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
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
    begin = np.arange(0, len(seeds), batch_size, dtype=np.int64)
    ptr = np.append(begin, len(seeds)).astype(np.int64) if len(begin) else np.zeros(1, np.int64)
    merged = [_merge(part) for part in split(seeds, ptr)]
    if duplicates == "error":
        _refuse_duplicates(seeds, ptr, [inverse for _, inverse in merged])
    selector = stack([unique.astype(dtype) for unique, _ in merged], first_batch)
    inverse = np.concatenate([inverse for _, inverse in merged]) if merged else np.zeros(0, np.int64)
    return SeedBatches(
        RowSelector(selector.batch_ptr, selector.vertices.astype(dtype), selector.batch_ids), inverse, ptr
    )


def _merge(seeds: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Distinct seeds in order of first appearance, and the place of each given one."""
    unique, first, inverse = np.unique(seeds, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return unique[order], place[inverse].astype(np.int64)


def _refuse_duplicates(seeds: NDArray[np.int64], ptr: Int64Array, inverses: list[Int64Array]) -> None:
    for i, inverse in enumerate(inverses):
        is_new = np.zeros(len(inverse), np.bool_)
        is_new[np.unique(inverse, return_index=True)[1]] = True
        if not is_new.all():
            position = int(ptr[i] + np.flatnonzero(~is_new)[0])
            raise InputError(
                argument="seeds",
                given=f"{seeds[position]} again at position {position}, in batch {i} of the call",
                expected="distinct seeds within each batch, since duplicates='error'",
                hint="Use duplicates='merge' to sample it once and find it by MiniBatch.seed_inverse.",
            )
