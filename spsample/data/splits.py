"""Training, validation and test vertices: as `Dataset` takes them, and as files and stores name their arrays."""

from __future__ import annotations

from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "SPLIT_IDS", "SPLIT_MASKS", "Split", "random_split", "repeated", "split_of"]

PARTS = ("train", "val", "test")
SPLIT_IDS = tuple(f"{part}_idx" for part in PARTS)
"""Vertex ids, of one split."""
SPLIT_MASKS = tuple(f"{part}_masks" for part in PARTS)
"""Booleans of shape (splits, n)."""


class Split(TypedDict):
    """The three index sets, as keyword arguments of `Dataset`."""

    train_idx: NDArray[np.int64]
    val_idx: NDArray[np.int64]
    test_idx: NDArray[np.int64]


def split_of(train: NDArray[Any], val: NDArray[Any], test: NDArray[Any]) -> Split:
    """The split of three index sets.

    Examples
    --------
    >>> list(split_of(np.array([0]), np.array([1]), np.array([2])))
    ['train_idx', 'val_idx', 'test_idx']
    """
    return {"train_idx": train, "val_idx": val, "test_idx": test}


def random_split(permutation: NDArray[np.int64], train: float = 0.6, val: float = 0.2) -> Split:
    """Cut a permutation of the vertices into ``train_idx``, ``val_idx`` and ``test_idx``, each ascending.

    Examples
    --------
    >>> parts = random_split(np.arange(10)[::-1])
    >>> parts["val_idx"].tolist()
    [2, 3]
    """
    n = len(permutation)
    first, second = round(n * train), round(n * (train + val))
    return split_of(*(np.sort(part) for part in (permutation[:first], permutation[first:second], permutation[second:])))


def repeated(ids: NDArray[Any]) -> int | None:
    """The smallest id that occurs more than once.

    Examples
    --------
    >>> repeated(np.array([3, 2, 5, 3, 2]))
    2
    >>> repeated(np.array([1, 0])) is None
    True
    """
    ordered = np.sort(ids)
    places = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[places[0]]) if len(places) else None
