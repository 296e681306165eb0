"""`CopyPlan`: the rows that each device keeps, their cost, and the device that each row is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from spsample.common.arrays import as_array
from spsample.common.checks import first_bad, require_number, require_type
from spsample.errors import DTypeError, InputError
from spsample.store.validation import as_id_vector, check_ids, check_num_nodes, check_weights

_ALPHA = "a positive, finite number"


def require_scores(value: Any, devices: int, num_rows: int | None = None) -> NDArray[np.float64]:
    """Return scores as float64: one vector for all devices, or a row for each device.

    Parameters
    ----------
    value : array_like (n,) or (devices, n)
        How often each vertex is needed: finite, not negative.
    devices : int
        Number of devices.
    num_rows : int, optional
        n, where it is known.

    Raises
    ------
    InputError, DTypeError
        If they are anything else.

    Examples
    --------
    >>> require_scores([3, 1], devices=2)
    array([3., 1.])
    >>> require_scores([3, -1], devices=2)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: scores: got -1.0 at position 1; expected finite weights of at least 0
    """
    array = as_array("scores", value)
    if array.dtype.kind == "c":
        raise DTypeError(argument="scores", given=f"dtype {array.dtype}", expected="real numbers")
    n = "n" if num_rows is None else str(num_rows)
    has_shape = array.ndim in (1, 2) and array.size and (array.ndim == 1 or len(array) == devices)
    if not has_shape or (num_rows is not None and array.shape[-1] != num_rows):
        expected = f"shape ({n},), or ({devices}, {n}) for {devices} devices, of at least one vertex"
        raise InputError(argument="scores", given=f"shape {array.shape}", expected=expected)
    scores = np.ascontiguousarray(array, np.float64)
    check_weights("scores", scores)
    return scores


def require_alpha(value: Any, devices: int) -> float | NDArray[np.float64]:
    """Return the cost of a row from another device over that of one from the host: a number, or a matrix by device.

    The diagonal of a matrix is not looked at, and comes back as 0: a device's own rows cost nothing.

    Parameters
    ----------
    value : float or array_like (devices, devices)
        Positive and finite. Entry (i, j) is what device i pays for a row from device j.
    devices : int
        Number of devices.

    Raises
    ------
    InputError, DTypeError
        If it is anything else.

    Examples
    --------
    >>> require_alpha(1, devices=4)
    1.0
    >>> require_alpha([[9, 0.5], [0, 9]], devices=2)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: alpha: got 0.0 at position (1, 0); expected positive, finite numbers off the diagonal
    """
    if not isinstance(value, (list, tuple)) and not getattr(value, "ndim", 0):
        return require_number("alpha", value, lambda x: x > 0, _ALPHA)
    array = as_array("alpha", value)
    if array.dtype.kind not in "iuf":
        raise DTypeError(argument="alpha", given=f"dtype {array.dtype}", expected="real numbers")
    if array.shape != (devices, devices):
        expected = f"{_ALPHA}, or a matrix of shape ({devices}, {devices})"
        raise InputError(argument="alpha", given=f"shape {array.shape}", expected=expected)
    alpha = array.astype(np.float64)
    np.fill_diagonal(alpha, 1.0)
    bad = ~((alpha > 0) & (alpha < np.inf))
    if bad.any():
        expected = "positive, finite numbers off the diagonal"
        raise InputError(argument="alpha", given=first_bad(bad, alpha), expected=expected)
    np.fill_diagonal(alpha, 0.0)
    return alpha


def link_costs(alpha: float | NDArray[np.float64], devices: int) -> NDArray[np.float64]:
    """(devices, devices) cost of a row that is on device j to device i, over that of one from the host.

    It is 0 on the diagonal and at most 1 elsewhere: a row that costs more from a device is read from the host.

    Examples
    --------
    >>> link_costs(0.5, 2).tolist(), link_costs(3.0, 2).tolist()
    ([[0.0, 0.5], [0.5, 0.0]], [[0.0, 1.0], [1.0, 0.0]])
    """
    costs: NDArray[np.float64] = np.minimum(np.broadcast_to(alpha, (devices, devices)), 1.0)
    np.fill_diagonal(costs, 0.0)
    return costs


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
        checked = tuple(_checked(device, ids, num_rows) for device, ids in enumerate(vertices))
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
        kept = ", ".join(f"{len(ids):,}" for ids in self.vertices)
        return f"CopyPlan({kept} of {self.num_rows:,} rows on {self.devices} devices)"


def _checked(device: int, vertices: Any, num_rows: int) -> NDArray[np.int64]:
    """`vertices` as distinct ids below `num_rows`."""
    argument = f"vertices of device {device}"
    ids = as_id_vector(argument, vertices).astype(np.int64)
    check_ids(argument, ids, num_rows)
    again = np.ones(len(ids), np.bool_)
    again[np.unique(ids, return_index=True)[1]] = False
    if again.any():
        raise InputError(argument=argument, given=first_bad(again, ids), expected="each vertex once")
    return ids


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


@dataclass(frozen=True, eq=False)
class CopyCost:
    """Expected cost of fetching the rows that are needed, in rows from the host.

    Attributes
    ----------
    devices : float64 array (devices,)
        Of each device.

    Examples
    --------
    >>> costs = CopyCost(np.array([1.0, 2.0]))
    >>> costs, costs.mean, costs.largest
    (CopyCost(mean 1.5, largest 2), 1.5, 2.0)
    """

    devices: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean over devices, which `best_copies` minimises."""
        return float(self.devices.mean())

    @property
    def largest(self) -> float:
        """Cost of the device that pays most, the goal of Song and Jiang."""
        return float(self.devices.max())

    def __repr__(self) -> str:
        return f"CopyCost(mean {self.mean:.6g}, largest {self.largest:.6g})"


def cost(plan: CopyPlan, scores: Any, alpha: Any) -> CopyCost:
    """Compute what each device pays for the rows it needs.

    A row costs a device nothing where it has a copy itself, else the least alpha of the devices that have one, and 1,
    the cost of a row from the host, where none has one or all cost more. With probabilities of a batch as scores it is
    the expected cost of a batch. O(devices (n + rows of the plan)).

    Parameters
    ----------
    plan : CopyPlan
        From `plan_copies` by any method, or one's own (`CopyPlan.of`).
    scores : array_like (n,) or (devices, n)
        How often each vertex is needed, by every device or by each.
    alpha : float or array_like (devices, devices)
        Cost of a row from another device over that of one from the host. Entry (i, j): to device i from device j.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> cost(plan, [8, 4, 2, 1], alpha=0.5).devices.tolist()
    [2.0, 3.0]
    """
    require_type("plan", plan, CopyPlan, "a CopyPlan")
    scores = require_scores(scores, plan.devices, plan.num_rows)
    links = link_costs(require_alpha(alpha, plan.devices), plan.devices)
    each = np.broadcast_to(scores, (plan.devices, plan.num_rows))
    return CopyCost(np.array([p @ _paid(plan, to) for p, to in zip(each, links, strict=True)]))


def _paid(plan: CopyPlan, links: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) what a device pays for each row, which pays `links` (devices,) to each."""
    paid = np.ones(plan.num_rows)
    for device in np.argsort(-links, kind="stable"):  # the cheapest last
        paid[plan.vertices[device]] = links[device]
    return paid


_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a multiplicative hash: products of consecutive numbers are far apart."""


def nearest_holders(plan: CopyPlan, links: NDArray[np.float64], device: int) -> NDArray[np.unsignedinteger]:
    """Return from which device a device reads each row.

    That is itself where it has a copy, else the device with a copy whose link costs least. Of several at the same cost
    one is chosen by the vertex and the device that asks, so that holders share the work. A row is read from the host
    where no device has it, or every link to one that has it costs as much as the host. O(n + rows of the plan).

    Parameters
    ----------
    plan : CopyPlan
    links : float64 array (devices, devices)
        Costs over those of a row from the host, 0 on the diagonal: see `link_costs`.
    device : int
        The one that reads.

    Returns
    -------
    unsigned integer array (plan.num_rows,)
        The number of a device, or `plan.devices` for the host.

    Examples
    --------
    >>> from spsample.features.copies.plan import link_costs
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> nearest_holders(plan, link_costs(0.5, 2), device=0).tolist()
    [0, 0, 1, 2]
    >>> nearest_holders(plan, link_costs(1.0, 2), device=0).tolist()
    [0, 0, 2, 2]
    """
    host = plan.devices
    routes = np.full(plan.num_rows, host, np.min_scalar_type(host))
    to = links[device]
    for distance in np.unique(to[to < 1])[::-1]:  # the nearest last
        holders = np.flatnonzero(to == distance).tolist()
        _share_out(routes, {holder: plan.vertices[holder] for holder in holders}, device)
    return routes


def _share_out(routes: NDArray[np.unsignedinteger], kept: dict[int, NDArray[np.int64]], device: int) -> None:
    """Write one of the devices that keep each vertex to `routes`."""
    if len(kept) == 1:
        for holder, vertices in kept.items():
            routes[vertices] = holder
        return
    copies = np.zeros(len(routes), np.int16)
    for vertices in kept.values():
        copies[vertices] += 1
    several = np.flatnonzero(copies > 1)
    turn = np.zeros(len(routes), np.int16)
    turn[several] = _mixed(several, device) % copies[several].astype(np.uint64)
    for holder, vertices in kept.items():
        routes[vertices[turn[vertices] == 0]] = holder
        turn[vertices] -= 1


def _mixed(vertices: NDArray[np.int64], device: int) -> NDArray[np.uint64]:
    """Return hashes of the vertices, plus the number of the device."""
    words: NDArray[np.uint64] = vertices.astype(np.uint64) * _STEP
    return (words >> np.uint64(32)) + np.uint64(device)
