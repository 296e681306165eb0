"""`hop_by_hop`: the hops of the subgraph layout, for backends that have no kernel for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from spsample.backends.protocol import Backend, Draw, Matrix, StackedRows, StackedSelector, UnitedHops


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
    hops: list[StackedRows] = []
    for draw in draws:
        if hops:
            fresh = StackedSelector(*backend.appended(known_ptr[-2], known_ptr[-1], known.vertices), Q.batch_ids)
        rows = backend.sample_rows_uniform(A, fresh, draw, positions)
        src_ptr, src, local = backend.compact(known, rows.entry_ptr, rows.columns, True, len(A.indptr) - 1)
        hops.append(rows._replace(columns=local))
        known = StackedSelector(src_ptr, src, Q.batch_ids)
        known_ptr.append(src_ptr)
    entry_ptr = [rows.entry_ptr for rows in hops]
    where = [rows.positions for rows in hops if rows.positions is not None]
    columns: Any = backend.interleave([rows.columns for rows in hops], entry_ptr)
    places: Any = backend.interleave(where, entry_ptr) if positions else None
    indptr = backend.interleave_pointers([rows.indptr for rows in hops], [rows.batch_ptr for rows in hops])
    return UnitedHops(known_ptr, list(accumulate(entry_ptr)), known.vertices, indptr, columns, places)


__all__ = ["hop_by_hop"]
