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
    """`np.take` into the same memory, then to float32."""
    x, draws = table_of(inputs), draws_of(inputs)
    out = np.empty((draws.shape[1], x.shape[1]), x.dtype)
    wide = np.empty(out.shape, np.float32)

    def work() -> Figures:
        for ids in draws:
            np.take(x, ids, axis=0, out=out, mode="clip")
            np.copyto(wide, out)
        return {"batches": len(draws), "rows": draws.size}

    return work


_SIDES = (
    Side("NumPy take, as stored", take, {"threads": 1}),
    Side("NumPy take, then float32", take_wide, {"threads": 1}),
)
PEER = Peer("NumPy", ("numpy",), {"gather": _SIDES})
