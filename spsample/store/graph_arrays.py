"""`GraphArrays`: what a graph holds, as it was checked and sorted, or as it lies in a store."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix
from spsample.common.contents import Contents
from spsample.sparse.local import LocalOperand
from spsample.sparse.operand import Weighting

ARRAYS = ("indptr", "indices", "data", "edge_ids")
"""Those that tell a graph from others, by their names in a store."""

_Arrays = TypeVar("_Arrays", bound="GraphArrays")


class StoreOrigin(NamedTuple):
    """The store that a graph's arrays are maps of: its absolute path, the digest of its graph, how it is accessed."""

    path: str
    digest: str
    access: str


class GraphArrays:
    """The arrays of a graph, which are known to be right: CSR, weights or None, edge ids or None; read-only.

    Parameters
    ----------
    indptr, indices, data, edge_ids : array, the last two or None
        As of `Graph`.
    weighting : Weighting, optional
        By default "weighted" where there are data.
    origin : StoreOrigin, optional
        Where they are maps of a store's.
    """

    def __init__(
        self,
        indptr: NDArray[Any],
        indices: NDArray[Any],
        data: NDArray[Any] | None = None,
        edge_ids: NDArray[Any] | None = None,
        weighting: Weighting | None = None,
        origin: StoreOrigin | None = None,
    ) -> None:
        self.indptr: NDArray[np.int64] = frozen(indptr.astype(np.int64, copy=False))
        self.indices = frozen(indices)
        self.data = None if data is None else frozen(data)
        self.edge_ids = None if edge_ids is None else frozen(edge_ids.astype(np.int64, copy=False))
        self.weighting: Weighting = weighting or ("unweighted" if data is None else "weighted")
        self.origin = origin
        self.contents = Contents({name: getattr(self, name) for name in ARRAYS})

    def lying(self, name: str) -> NDArray[Any] | None:
        """Return indices, data or edge_ids in any order: nothing is read."""
        array: NDArray[Any] | None = getattr(self, name)
        return array

    def row_normalized(self: _Arrays) -> _Arrays:
        """Return the same arrays, each entry of a row of d entries being 1/d; there are no data."""
        made = copy(self)
        made.weighting = "row"
        return made

    def operand(self, backend: Backend) -> LocalOperand:
        """Return A as the sampling algebra sees it."""
        matrix = Matrix(self.indptr, self.indices, self.data, self.weighting == "row")
        return LocalOperand(matrix, self.edge_ids, backend)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Make a contiguous, aligned, read-only view; copies only what is not, once: kernels would at every call."""
    view = np.require(array, requirements=["C", "A"]).view()
    view.flags.writeable = False
    return view
