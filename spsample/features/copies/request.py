"""`CopyRequest`: what a method makes a plan of copies from, its arguments checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from spsample.errors import InputError

__all__ = ["CopyRequest"]


@dataclass(frozen=True, eq=False)
class CopyRequest:
    """Scores, devices, and what each device can keep.

    Attributes
    ----------
    scores : float64 array (n,) or (devices, n)
        How often each vertex is needed: by every device, or by each.
    devices : int
        At least 1.
    budget : int
        Rows that each device keeps: from 0 to n.
    alpha : float or float64 array (devices, devices)
        Cost of a row from another device over that of one from the host.
    head : int
        Rows of the budget that the method "interleaved" keeps on every device.
    """

    scores: NDArray[np.float64]
    devices: int
    budget: int
    alpha: float | NDArray[np.float64]
    head: int = 0

    @property
    def num_rows(self) -> int:
        """n."""
        return int(self.scores.shape[-1])

    def equal_scores(self, method: str) -> NDArray[np.float64]:
        """Return the scores (n,) that all devices have; refuse those that differ by device."""
        if self.scores.ndim == 2:
            self._refuse("scores", f"shape {self.scores.shape}", f"one vector for method={method!r}")
        return self.scores

    def equal_alpha(self, method: str) -> float:
        """Return the alpha that all links have; refuse a matrix."""
        if isinstance(self.alpha, np.ndarray):
            self._refuse("alpha", f"shape {self.alpha.shape}", f"one number for method={method!r}")
        return self.alpha

    def _refuse(self, argument: str, given: str, expected: str) -> NoReturn:
        hint = 'method="best-copies" takes one for each device.'
        raise InputError(argument=argument, given=given, expected=expected, hint=hint)
