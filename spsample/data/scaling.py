"""Scaling of features before training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from spsample.common.checks import require_choice, require_type
from spsample.data.dataset import Dataset, Features
from spsample.errors import InputError


def scale_rows(x: Features) -> Features:
    """Divide every row by the sum of its absolute values; a row of zeros stays.

    The usual treatment of bags of words (Kipf and Welling 2017).

    Examples
    --------
    >>> scale_rows(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    totals = np.asarray(abs(x).sum(axis=1), dtype=np.float64).ravel()
    factors = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    if sparse.issparse(x):
        scaled: Any = x.astype(np.float32)
        scaled.data *= np.repeat(factors, np.diff(scaled.indptr)).astype(np.float32)
        return scaled
    return (np.asarray(x) * factors[:, None]).astype(np.float32)


def standardise(x: Features) -> Features:
    """Give every column of a dense array mean 0 and standard deviation 1; a constant column becomes 0.

    Raises
    ------
    InputError
        If ``x`` is sparse: the shift would make it dense.

    Examples
    --------
    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    if sparse.issparse(x):
        raise InputError(argument="scaling", given="'standard' for sparse features", expected="'none' or 'rows'")
    dense = np.asarray(x, dtype=np.float64)
    spread = dense.std(axis=0)
    return ((dense - dense.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)


SCALINGS: dict[str, Callable[[Features], Features]] = {
    "none": lambda x: x,
    "rows": scale_rows,
    "standard": standardise,
}


def scale_features(dataset: Dataset, scaling: str) -> Dataset:
    """Return the data set with its features scaled: ``"none"``, ``"rows"`` or ``"standard"``.

    Raises
    ------
    InputError
        If ``scaling`` is none of these, or the data set has no features.
    """
    require_type("dataset", dataset, Dataset, "a data set")
    require_choice("scaling", scaling, sorted(SCALINGS))
    return replace(dataset, x=SCALINGS[scaling](dataset.require_training_data()))
