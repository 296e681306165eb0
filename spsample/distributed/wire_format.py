"""Unsigned integers on the wire, packed into as many bytes as the largest of a message needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.comm import Received, Sent

_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)


def width_of(largest: int) -> int:
    """Bytes of the smallest unsigned type that holds a number.

    Examples
    --------
    >>> width_of(0), width_of(255), width_of(256), width_of(2**32)
    (1, 1, 2, 8)
    """
    return next(np.dtype(t).itemsize for t in _WIDTHS if largest <= np.iinfo(t).max)


def pack(values: NDArray[Any], counts: Int64Array) -> Sent:
    """Numbers of at least 0 as bytes: `counts[q]` of them for rank q, all of them in the width of the largest.

    Examples
    --------
    >>> sent = pack(np.array([1, 2, 300]), np.array([2, 1]))
    >>> sent.rows.tolist(), sent.counts.tolist()
    ([1, 2, 44, 1], [2, 2])
    """
    begins, ends = (np.cumsum(counts) - counts).tolist(), np.cumsum(counts).tolist()
    return pack_pieces([[values[begin:end]] for begin, end in zip(begins, ends, strict=True)])


def pack_pieces(pieces: Sequence[Sequence[NDArray[Any]]], largest: Sequence[int] | None = None) -> Sent:
    """Pack for rank q the arrays of `pieces[q]`, one after the other, without an array of all of them.

    `largest[q]` is the largest number of `pieces[q]`, where it is known.

    Examples
    --------
    >>> sent = pack_pieces([[np.array([1]), np.array([300])], []])
    >>> sent.rows.tolist(), sent.counts.tolist()
    ([1, 0, 44, 1], [4, 0])
    """
    if largest is None:
        largest = [max((int(part.max()) for part in parts if len(part)), default=0) for parts in pieces]
    widths = [width_of(number) for number in largest]
    sizes = [width * sum(map(len, parts)) for width, parts in zip(widths, pieces, strict=True)]
    message, done = np.empty(sum(sizes), np.uint8), 0
    for width, parts in zip(widths, pieces, strict=True):
        for part in parts:
            place = message[done : done + width * len(part)]
            place.view(f"u{width}")[:] = part
            done += len(place)
    return Sent(message, np.array(sizes, np.int64))


def packed(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Numbers of at least 0 as bytes, all of them in the width of the largest: a message to all ranks.

    Examples
    --------
    >>> packed(np.array([1, 300])).tolist()
    [1, 0, 44, 1]
    """
    return pack(values, np.array([len(values)])).rows


def unpack(received: Received, counts: Int64Array, dtype: Any = np.int64) -> NDArray[Any]:
    """Return the numbers again, of type `dtype`, where `counts[q]` of them came from rank q.

    Examples
    --------
    >>> unpack(Received(np.array([1, 2, 44, 1], np.uint8), np.array([2, 2])), np.array([2, 1])).tolist()
    [1, 2, 300]
    """
    ends = np.cumsum(received.counts).tolist()
    numbers = np.empty(int(counts.sum()), dtype)
    done = 0
    for end, size, count in zip(ends, received.counts.tolist(), counts.tolist(), strict=True):
        if count:
            numbers[done : done + count] = received.rows[end - size : end].view(f"u{size // count}")
            done += count
    return numbers


def either(is_second: NDArray[np.bool_], first: Sent, second: Sent) -> Sent:
    """Rows for each rank from one of two arrays: for rank q the second where `is_second[q]`, else the first.

    Examples
    --------
    >>> first, second = Sent(np.array([1, 2]), np.array([2, 0])), Sent(np.array([7]), np.array([0, 1]))
    >>> either(np.array([False, True]), first, second).rows.tolist()
    [1, 2, 7]
    """
    if not is_second.any():
        return first
    ends = [np.cumsum(sent.counts) for sent in (first, second)]
    parts = [first.rows[:0]]
    for q, choice in enumerate(is_second.tolist()):
        sent, end = (second, ends[1][q]) if choice else (first, ends[0][q])
        parts.append(sent.rows[end - sent.counts[q] : end])
    return Sent(np.concatenate(parts), np.where(is_second, second.counts, first.counts))


def keep_from(received: Received, ranks: NDArray[np.bool_]) -> Received:
    """Keep the rows that came from some of the ranks.

    Examples
    --------
    >>> keep_from(Received(np.array([1, 2, 7]), np.array([2, 1])), np.array([False, True])).rows.tolist()
    [7]
    """
    if ranks.all():
        return received
    rows = received.rows[np.repeat(ranks, received.counts)] if ranks.any() else received.rows[:0]
    return Received(rows, np.where(ranks, received.counts, 0))


def segment_sums(values: Int64Array, lengths: Int64Array) -> Int64Array:
    """Sums of consecutive segments of the given lengths.

    Examples
    --------
    >>> segment_sums(np.array([1, 2, 3, 4]), np.array([3, 0, 1])).tolist()
    [6, 0, 4]
    """
    before = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    ends = np.cumsum(lengths)
    sums: Int64Array = before[ends] - before[ends - lengths]
    return sums
