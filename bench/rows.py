"""Rows of features that all sides gather, with NumPy alone: a table far beyond the caches, and ids of each call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import Inputs


def table_of(inputs: Inputs) -> NDArray[Any]:
    """``table_mib`` of rows of ``row_bytes``."""
    dtype = np.dtype(str(inputs["dtype"]))
    dim = inputs["row_bytes"] // dtype.itemsize
    return np.ones(((inputs["table_mib"] << 20) // inputs["row_bytes"], dim), dtype)


def draws_of(inputs: Inputs) -> NDArray[np.int64]:
    """(batches, rows of a call): random ids, other ones in each call."""
    rows = (inputs["table_mib"] << 20) // inputs["row_bytes"]
    return np.random.default_rng(0).integers(0, rows, (inputs["batches"], rows_of_call(inputs)))


def rows_of_call(inputs: Inputs) -> int:
    """Whose bytes are ``call_mib``."""
    return int((inputs["call_mib"] << 20) // inputs["row_bytes"])
