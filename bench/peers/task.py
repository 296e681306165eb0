"""What all peers are given alike. Imports NumPy only: it is read by every peer's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Options = dict[str, Any]
Figures = dict[str, float]
Work = Callable[[], Figures]
"""Does the work once and says how much was done."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """The folder with the graph, the file of seeds, and the number of threads; arrays are read on first use."""

    graph: Path
    seeds_file: Path
    threads: int

    @cached_property
    def indptr(self) -> NDArray[np.int64]:
        """(n + 1,) row = target vertex."""
        return np.asarray(np.load(self.graph / "indptr.npy"))

    @cached_property
    def indices(self) -> NDArray[np.signedinteger[Any]]:
        """Source vertices, ascending in each row, int32 where the graph allows; in memory, not mapped."""
        return np.asarray(np.load(self.graph / "indices.npy"))

    @cached_property
    def indices64(self) -> NDArray[np.int64]:
        """The same as int64, for peers that know no other."""
        return np.asarray(np.load(self.graph / "indices.npy", mmap_mode="r")).astype(np.int64)

    def seeds(self, options: Options) -> NDArray[np.int64]:
        """(batches, batch_size) of the options: the first seeds of the first batches."""
        seeds = np.load(self.seeds_file)
        return np.ascontiguousarray(seeds[: options.get("batches"), : options.get("batch_size")])

    def features(self, options: Options) -> NDArray[np.float32]:
        """(n, dim) of the options, in memory."""
        return np.ones((len(self.indptr) - 1, options["dim"]), np.float32)


Task = Callable[[Inputs, Options], Work]
