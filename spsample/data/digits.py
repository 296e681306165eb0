"""Handwritten digits as a graph: real data that needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.data.dataset import Dataset
from spsample.data.edges import symmetric_graph
from spsample.data.philox import PhiloxStream
from spsample.data.splits import random_split
from spsample.errors import require_module

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["digits", "nearest_neighbours"]

_SPLIT_SEED = 0


def digits(num_neighbours: int = 10) -> Dataset:
    """Return the 1,797 digits of scikit-learn, each joined with its nearest neighbours.

    8 x 8 pixels are the features (scaled to [0, 1]); an edge joins two digits if one is among the
    ``num_neighbours`` nearest of the other by Euclidean distance. The split is 60/20/20, fixed.

    Raises
    ------
    MissingDependencyError
        If scikit-learn is not installed.

    References
    ----------
    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    pixels, y = _load()
    near = nearest_neighbours(pixels, num_neighbours)
    targets = np.repeat(np.arange(len(pixels)), num_neighbours)
    return Dataset(
        name="digits",
        graph=symmetric_graph(targets, near.ravel(), len(pixels)),
        x=pixels.astype(np.float32) / np.float32(16),
        y=y,
        num_classes=10,
        meta={"source": "sklearn.datasets.load_digits", "num_neighbours": num_neighbours},
        **random_split(PhiloxStream(_SPLIT_SEED).permutation(len(pixels))),
    )


def nearest_neighbours(points: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the ``count`` nearest other points of each point, nearest first.

    Integer arithmetic and ties to the lower id: the same graph on every machine.

    Examples
    --------
    >>> nearest_neighbours(np.array([[0], [1], [3]]), 1).ravel().tolist()
    [1, 0, 1]
    """
    squares = (points * points).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * (points @ points.T)
    np.fill_diagonal(distances, np.iinfo(np.int64).max)
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


def _load() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    needed_for = "the data set 'digits'"
    datasets = require_module("sklearn.datasets", needed_for=needed_for, extra="data", package="scikit-learn")
    bunch: Any = datasets.load_digits()
    return bunch.data.astype(np.int64), bunch.target.astype(np.int64)
