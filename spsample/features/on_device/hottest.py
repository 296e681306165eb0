"""Which rows lie in the memory of a device: how many fit, and which are wanted most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.local import LocalCommunicator
from spsample.comm.objects import comm_of, require_same
from spsample.common.checks import require_share
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, InputError
from spsample.features.cache_choice import is_auto
from spsample.features.score_order import highest
from spsample.features.scores.registry import require_scores
from spsample.features.wanted import Wanted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features.on_device.tiers import Tiers

__all__ = ["Ranking", "hot_count"]

_HALF = 0.5
"""With ``hot="auto"``: the share of the free memory that the hot tier and the map may take."""


def hot_count(hot: Any, tiers: Tiers, free: int) -> int:
    """How many rows lie on a device with `free` bytes: of a share, of an amount of memory in words, or of "auto".

    Raises
    ------
    InputError
        If `hot` is none of these, or an amount that is less than the map and one row.
    CapacityError
        If they do not fit.
    """
    if is_auto(hot):
        return _rows_within(_HALF * free, tiers)
    if isinstance(hot, str):
        return _of_budget(hot, tiers, free)
    share = require_share("hot", hot, "'auto', the share of the rows on the device, from 0 to 1, or '2GiB'")
    count = int(share * tiers.source.num_rows)
    _require_free(f"{hot}", count * tiers.row_bytes + tiers.map_bytes, free)
    return count


def _of_budget(hot: str, tiers: Tiers, free: int) -> int:
    budget = require_bytes("hot", hot)
    count = _rows_within(budget, tiers)
    if count == 0:
        raise InputError(
            argument="hot",
            given=format_bytes(budget),
            expected=f"at least one row of {tiers.row_bytes} bytes and {tiers.map_bytes} bytes for the map",
        )
    _require_free(hot, count * tiers.row_bytes + tiers.map_bytes, free)
    return count


def _rows_within(memory: float, tiers: Tiers) -> int:
    beside_map = max(int(memory) - tiers.map_bytes, 0)
    return min(beside_map // max(tiers.row_bytes, 1), tiers.source.num_rows)


def _require_free(hot: str, size: int, free: int) -> None:
    if size > free:
        raise CapacityError(
            argument="hot",
            given=f"{hot}: {format_bytes(size)} of features",
            expected=f"at most the {format_bytes(free)} that the device has free",
            hint="hot='auto' takes what fits.",
        )


class Ranking:
    """How much each vertex is wanted, as it was given: scores, a function that returns them, a name, or nothing.

    Parameters
    ----------
    given : array (vertices,), function, str or None
    workload : dict
        What the score of a name is computed from.
    num_rows : int
        Number of vertices.

    Raises
    ------
    InputError
        If there is a workload without a name, or a name without the workload that it needs.

    Examples
    --------
    >>> Ranking([0.1, 0.4, 0.2], {}, 3).hottest(2, LocalCommunicator())
    array([1, 2])
    """

    def __init__(self, given: Any, workload: Mapping[str, Any], num_rows: int) -> None:
        self._given, self._num_rows = given, num_rows
        self._named = Wanted.of(given, workload, num_rows) if isinstance(given, str) else None
        if self._named is None and workload:
            expected, name = "it with ranking='posterior'", next(iter(workload))
            raise InputError(argument=name, given="it without the name of a score", expected=expected)

    def require_for(self, count: int) -> None:
        """Refuse to choose `count` rows without knowing how much each is wanted.

        Raises
        ------
        InputError
        """
        if self._given is None and 0 < count < self._num_rows:
            raise InputError(
                argument="ranking",
                given=f"none, with {count / self._num_rows:.0%} of the rows on the device",
                expected="how much each vertex is wanted",
                hint="ranking='posterior' computes it from graph=, seeds=, sampler= and batch_size=.",
            )

    def require_same_kind(self, comm: Communicator) -> None:
        """Refuse ranks of which some gave a name, and others another one or none; collective."""
        if comm.size > 1:
            require_same(comm, ranking="none" if self._named is None else str(self._given))

    def hottest(self, count: int, comm: Communicator) -> NDArray[np.int64]:
        """The vertices of the hot rows, ascending; of equal ones the first.

        Collective on the ranks of the source, and on those of the graph that a score is computed from.
        """
        is_part = 0 < count < self._num_rows
        is_needed = is_part if self._named is None else self._named.is_needed(is_part)
        is_shared = self._named is not None and comm_of(self._named.workload.get("graph")).size > 1
        with collective(LocalCommunicator() if is_shared else comm, call="the ranking of DeviceFeatures"):
            scores = self._scores() if is_needed else None
            return np.arange(count) if scores is None or not is_part else highest(scores, count)

    def _scores(self) -> NDArray[Any]:
        if self._named is not None:
            return self._named.scores()
        given = self._given() if callable(self._given) else self._given
        return require_scores("ranking", given, self._num_rows)
