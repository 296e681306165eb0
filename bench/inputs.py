"""What every side of a cell is given alike. Imports NumPy only: every peer's interpreter reads it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Inputs:
    """The store of the graph, the values of the cell, and the ranks that do the work together.

    Attributes
    ----------
    store : Path
        A folder with ``indptr.npy`` and ``indices.npy``: row = target vertex, sources ascending.
    values : dict
        Of the cell and the side.
    comm : Communicator, optional
        None in a process of its own.
    """

    store: Path
    values: dict[str, Any]
    comm: Any = None

    def __getitem__(self, name: str) -> Any:
        """A value of the cell, or of the side."""
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The same, with a default."""
        return self.values.get(name, default)

    @property
    def fanouts(self) -> list[int]:
        """Nearest to the seeds first."""
        return [int(word) for word in str(self["fanouts"]).split(",")]

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """(n + 1,)."""
        return np.asarray(self._array("indptr"))

    @cached_property
    def indices(self) -> NDArray[np.signedinteger[Any]]:
        """int32 where the graph allows; in memory."""
        return np.asarray(self._array("indices"))

    @cached_property
    def indices64(self) -> NDArray[np.int64]:
        """The same for those who know no other type."""
        return np.load(self.store / "indices.npy", mmap_mode="r").astype(np.int64)

    @cached_property
    def seeds(self) -> NDArray[np.int64]:
        """(batches, batch_size): vertices with in-neighbours, distinct in each batch.

        A third of the vertices of an R-MAT graph have none, and are nothing to sample.
        """
        rng, vertices = np.random.default_rng(1), np.flatnonzero(np.diff(self._array("indptr", mmap_mode="r")))
        size = self["batch_size"]
        if size > len(vertices):
            raise ValueError(f"batches of {size} seeds; the graph has {len(vertices)} vertices with in-neighbours")
        return np.stack([rng.choice(vertices, size, replace=False, shuffle=False) for _ in range(self["batches"])])

    @cached_property
    def x(self) -> NDArray[np.float32]:
        """(n, dim) features: those of the store, or random ones of the width that the cell asks for."""
        stored = self.store / "x.npy"
        if stored.exists() and not self.get("dim"):
            return np.asarray(np.load(stored), np.float32)
        return np.random.default_rng(2).random((len(self.indptr) - 1, self.get("dim") or 100), np.float32)

    @cached_property
    def y(self) -> NDArray[np.int64]:
        """(n,) classes: those of the store, or random ones of 47."""
        stored = self.store / "y.npy"
        if stored.exists() and not self.get("dim"):
            return np.nan_to_num(np.load(stored), nan=0).astype(np.int64)
        return np.random.default_rng(3).integers(0, 47, len(self.indptr) - 1)

    def _array(self, name: str, **how: Any) -> Any:
        return np.load(self.store / f"{name}.npy", **how)
