"""The hops of the subgraph layout as one: of any graph, and drawn hop by hop where a backend has no kernel for all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from spsample.backends.protocol import Backend, Draw, Int64Array, Matrix, StackedRows, StackedSelector, UnitedHops


class Hop:
    """The rows of a hop: its pointers, and its arrays, each of which is let go of once it is beside those of others.

    Parameters
    ----------
    rows : StackedRows
    arrays
        What else belongs to each entry, by name; an array or None.
    """

    def __init__(self, rows: StackedRows, **arrays: Any) -> None:
        self.batch_ptr = rows.batch_ptr
        self.entry_ptr = rows.entry_ptr
        self._arrays = {"indptr": rows.indptr, "columns": rows.columns, **arrays}

    def take(self, name: str) -> Any:
        """The array, or None; it is not held here any longer."""
        return self._arrays.pop(name)


def side_by_side(backend: Backend, hops: Sequence[Hop], name: str) -> Any:
    """An array of all hops, each batch's parts side by side; None where a hop has none.

    Taken one after the other, the longest first, there is beside the result one array once more at most.
    """
    parts = [hop.take(name) for hop in hops]
    return None if any(part is None for part in parts) else backend.interleave(parts, [hop.entry_ptr for hop in hops])


def row_pointers(backend: Backend, hops: Sequence[Hop]) -> Int64Array:
    """Pointers of the rows of all hops, from 0 in each batch."""
    return backend.interleave_pointers([hop.take("indptr") for hop in hops], [hop.batch_ptr for hop in hops])


def entry_pointers(hops: Sequence[Hop]) -> list[Int64Array]:
    """Pointers (k + 1,) of the entries of the first hop, of the first two, and so on."""
    return list(accumulate(hop.entry_ptr for hop in hops))


def hop_by_hop(backend: Backend, A: Matrix, Q: StackedSelector, draws: Sequence[Draw], positions: bool) -> UnitedHops:
    """`Backend.sample_hops`, by the kernels that it is composed of.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.backends import get_backend
    >>> A = Matrix(np.array([0, 1, 3, 3]), np.array([1, 0, 2], np.int32))
    >>> Q = StackedSelector(np.array([0, 1]), np.array([0], np.int32), np.array([7]))
    >>> hops = hop_by_hop(get_backend("reference"), A, Q, [Draw((1, 2), hop, 2) for hop in range(2)], True)
    >>> hops.known.tolist(), hops.indptr.tolist(), hops.columns.tolist(), hops.positions.tolist()
    ([0, 1, 2], [0, 1, 3], [1, 0, 2], [0, 1, 2])
    """
    known = fresh = Q
    known_ptr = [Q.batch_ptr]
    hops: list[Hop] = []
    for draw in draws:
        if hops:
            fresh = StackedSelector(*backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        rows = backend.sample_rows_uniform(A, fresh, draw, positions)
        sources = backend.compact(known, rows.entry_ptr, rows.columns, True, len(A.indptr) - 1)
        hops.append(Hop(rows._replace(columns=sources.local), positions=rows.positions))
        known = StackedSelector(sources.src_ptr, sources.src, Q.batch_ids)
        known_ptr.append(sources.src_ptr)
        del rows, sources
    del fresh
    where = side_by_side(backend, hops, "positions") if positions else None
    columns = side_by_side(backend, hops, "columns")
    return UnitedHops(known_ptr, entry_pointers(hops), known.vertices, row_pointers(backend, hops), columns, where)
