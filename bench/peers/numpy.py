"""NumPy: rows of an array by their numbers."""

from __future__ import annotations

import numpy as np

from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ..rows import draws_of, table_of


def take(inputs: Inputs) -> Work:
    """`np.take` into the same memory, of the type that is stored."""
    x, draws = table_of(inputs), draws_of(inputs)
    out = np.empty((draws.shape[1], x.shape[1]), x.dtype)

    def work() -> Figures:
        for ids in draws:
            np.take(x, ids, axis=0, out=out, mode="clip")
        return {"batches": len(draws), "rows": draws.size}

    return work


def take_wide(inputs: Inputs) -> Work:
    """`np.take`, then float32."""
    x, draws = table_of(inputs), draws_of(inputs)

    def work() -> Figures:
        for ids in draws:
            np.take(x, ids, axis=0).astype(np.float32)
        return {"batches": len(draws), "rows": draws.size}

    return work


_SIDES = (Side("NumPy take, as stored", take), Side("NumPy take, then float32", take_wide))
PEER = Peer("NumPy", ("numpy",), {"gather": _SIDES})
