"""`CopyPlan`: the vertices whose rows each device keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import first_bad, require_type
from spsample.errors import InputError
from spsample.store.validation import as_id_vector, check_ids, check_num_nodes

__all__ = ["CopyPlan"]


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """The rows of features that each of several devices keeps; the host has all rows.

    Attributes
    ----------
    vertices : tuple of int64 arrays
        For each device the vertices whose rows it keeps, each once, in no promised order.
    num_rows : int
        Rows of features there are, one for each vertex.

    Examples
    --------
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> plan.devices, plan.copies().tolist()
    (2, [2, 1, 1, 0])
    """

    vertices: tuple[NDArray[np.int64], ...]
    num_rows: int

    @classmethod
    def of(cls, vertices: Sequence[Any], num_rows: int) -> CopyPlan:
        """Return a plan of one's own: for each device the vertices whose rows it keeps.

        Raises
        ------
        InputError, DTypeError
            If there is no device, an id is not below `num_rows`, or a device has a vertex twice.

        Examples
        --------
        >>> CopyPlan.of([[0, 1], [2, 2]], num_rows=4)
        Traceback (most recent call last):
        ...
        spsample.errors.InputError: vertices of device 1: got 2 at position 1; expected each vertex once
        """
        num_rows = check_num_nodes("num_rows", num_rows)
        require_type("vertices", vertices, (list, tuple), "a list with one array of vertex ids for each device")
        checked = tuple(_checked(device, given, num_rows) for device, given in enumerate(vertices))
        if not checked:
            raise InputError(argument="vertices", given="no arrays", expected="one for each device, at least one")
        return cls(checked, num_rows)

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.vertices)

    def copies(self) -> NDArray[np.int64]:
        """(num_rows,) on how many devices each row is."""
        return np.bincount(np.concatenate(self.vertices), minlength=self.num_rows)

    def __repr__(self) -> str:
        kept = ", ".join(f"{len(one):,}" for one in self.vertices)
        return f"CopyPlan({kept} of {self.num_rows:,} rows on {self.devices} devices)"


def _checked(device: int, given: Any, num_rows: int) -> NDArray[np.int64]:
    """`given` as distinct ids below `num_rows`."""
    argument = f"vertices of device {device}"
    ids = as_id_vector(argument, given).astype(np.int64)
    check_ids(argument, ids, num_rows)
    again = np.ones(len(ids), np.bool_)
    again[np.unique(ids, return_index=True)[1]] = False
    if again.any():
        raise InputError(argument=argument, given=first_bad(again, ids), expected="each vertex once")
    return ids
