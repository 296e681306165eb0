"""Copies of rows on several devices: `CopyPlan`, its cost, the device that each row is read from; `plan_copies`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.arrays import as_array
from spsample.common.checks import first_bad, require_choice, require_int, require_number, require_type
from spsample.errors import DTypeError, InputError
from spsample.features.scores.order import hottest
from spsample.store.validation import as_id_vector, as_weights, check_ids, check_num_nodes, check_weights

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
    n = "n" if num_rows is None else str(num_rows)
    has_shape = array.ndim in (1, 2) and array.size and (array.ndim == 1 or len(array) == devices)
    if not has_shape or (num_rows is not None and array.shape[-1] != num_rows):
        expected = f"shape ({n},), or ({devices}, {n}) for {devices} devices, of at least one vertex"
        raise InputError(argument="scores", given=f"shape {array.shape}", expected=expected)
    scores = as_weights("scores", array.reshape(-1)).astype(np.float64, copy=False).reshape(array.shape)
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

    @property
    def is_equal_for_all(self) -> bool:
        """One vector of scores and one alpha are for all devices."""
        return self.scores.ndim == 1 and not isinstance(self.alpha, np.ndarray)


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


def copy_cost(plan: CopyPlan, scores: Any, alpha: Any) -> CopyCost:
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
    >>> copy_cost(plan, [8, 4, 2, 1], alpha=0.5).devices.tolist()
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
    >>> from spsample.features.copies import link_costs
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> nearest_holders(plan, link_costs(0.5, 2), device=0).tolist()
    [0, 0, 1, 2]
    >>> nearest_holders(plan, link_costs(1.0, 2), device=0).tolist()
    [0, 0, 2, 2]
    """
    host = plan.devices
    routes = np.full(plan.num_rows, host, np.min_scalar_type(host + 1))
    to = links[device]
    for distance in np.unique(to[to < 1])[::-1]:  # the nearest last
        holders = np.flatnonzero(to == distance).tolist()
        _share_out(routes, {holder: plan.vertices[holder] for holder in holders}, device)
    return routes


def _share_out(routes: NDArray[np.unsignedinteger], kept: dict[int, NDArray[np.int64]], device: int) -> None:
    """Write one of the devices that keep each vertex to `routes`."""
    copies = np.zeros(len(routes), np.int16)
    for vertices in kept.values():
        copies[vertices] += 1
    several = np.flatnonzero(copies > 1)
    turn = np.zeros(len(routes), np.int16)
    mixed = (several.astype(np.uint64) * _STEP >> np.uint64(32)) + np.uint64(device)
    turn[several] = mixed % copies[several].astype(np.uint64)
    for holder, vertices in kept.items():
        routes[vertices[turn[vertices] == 0]] = holder
        turn[vertices] -= 1


_NOT_POSSIBLE = -1.0

_AT_ONCE = 1 << 12
"""Vertices that are looked at together."""


def greedy(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan that repeatedly takes the copy that saves most, until all devices are full.

    What a copy saves depends on the copies of the same vertex only, and on which devices are not full. So all copies
    up to the one that fills a device are taken at once: n rounds at most, each O(devices^3 n + n log n). What is saved
    is submodular, so it is at least half of the most that any plan saves (Fisher, Nemhauser and Wolsey, 1978).

    Examples
    --------
    >>> links = np.array([[0, 0.2, 2, 2], [0.2, 0, 2, 2], [2, 2, 0, 0.2], [2, 2, 0.2, 0]])
    >>> request = CopyRequest(np.array([4.0, 3, 2, 1]), devices=4, budget=1, alpha=links)
    >>> [sorted(np.concatenate(pair).tolist()) for pair in (greedy(request)[:2], greedy(request)[2:])]
    [[0, 1], [0, 1]]
    """
    search = _Search(request)
    while search.room.any():
        search.fill_a_device()
    return [np.concatenate(parts) for parts in search.vertices]


class _Search:
    """The price of the row of each vertex for each device, and the room that devices have, as copies are taken."""

    def __init__(self, request: CopyRequest) -> None:
        n = request.devices
        self.room = np.full(n, request.budget)
        self.vertices: list[list[NDArray[np.int64]]] = [[np.empty(0, np.int64)] for _ in range(n)]
        self._links = link_costs(request.alpha, n)
        relative = request.scores / (request.scores.max() or 1.0)  # so that float32 holds it
        self._scores = np.broadcast_to(relative, (n, request.num_rows))
        self._paid = np.ones(self._scores.shape)

    def fill_a_device(self) -> None:
        """Take the copies that save most, up to the first that leaves a device without room."""
        parts = _slices(len(self._paid[0]))
        best = np.concatenate([self._saved(self._scores[:, p], self._paid[:, p]).max(axis=0) for p in parts])
        possible = np.flatnonzero(best >= 0)
        looked_at = possible[hottest(best[possible], int(self.room.sum()))]
        copies = [self._copies(looked_at[part], part.start) for part in _slices(len(looked_at))]
        saved = np.concatenate([part[0] for part in copies], axis=1)
        device = np.concatenate([part[1] for part in copies], axis=1)
        order = np.argsort(-saved, axis=None, kind="stable")  # a vertex's second copy never before its first
        order = order[saved.ravel()[order] >= 0]
        places = {i: np.flatnonzero(device.ravel()[order] == i) for i in np.flatnonzero(self.room).tolist()}
        first_full = min(at[self.room[i] - 1] + 1 for i, at in places.items() if len(at) >= self.room[i])
        for i, at in places.items():
            vertices = looked_at[order[at[at < first_full]] % len(looked_at)]
            self.room[i] -= len(vertices)
            self.vertices[i].append(vertices)
            self._paid[:, vertices] = np.minimum(self._paid[:, vertices], self._links[:, i, None])

    def _saved(self, scores: NDArray[np.float64], paid: NDArray[np.float64]) -> NDArray[np.float64]:
        """(devices, vertices) what one more copy on each device saves; negative where there can be none."""
        saved = np.full(paid.shape, _NOT_POSSIBLE)
        for i in np.flatnonzero(self.room):
            less = np.maximum(paid - self._links[:, i, None], 0)
            saved[i] = np.where(paid[i] > 0, np.einsum("dv,dv->v", scores, less), _NOT_POSSIBLE)
        return saved

    def _copies(self, vertices: NDArray[np.int64], first: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(devices, vertices) each: what the first, second, ... copy of each vertex saves, and on which device it is.

        Devices that save the same take turns, from the turn of number `first` on. They are compared in float32, so
        that rounding makes no difference.
        """
        scores, paid = self._scores[:, vertices], self._paid[:, vertices]
        turns = _turns(first, len(vertices), len(self.room))
        columns = np.arange(len(vertices))
        all_saved, all_devices = [], []
        for _ in range(len(self.room)):
            saved = self._saved(scores, paid)
            in_turn = np.take_along_axis(saved, turns, axis=0).astype(np.float32)
            device = turns[in_turn.argmax(axis=0), columns]
            all_saved.append(saved[device, columns])
            all_devices.append(device)
            paid = np.where(all_saved[-1] >= 0, np.minimum(paid, self._links[:, device]), paid)
        return np.minimum.accumulate(all_saved), np.array(all_devices)


def _turns(begin: int, count: int, devices: int) -> NDArray[np.int64]:
    """(devices, count) for each vertex from number `begin` on the devices in the order in which they are asked.

    The first is in snake order, so that devices get equal shares. The others are in random order: in any fixed turn,
    further copies would go to the first device behind a fast link again and again.
    """
    first = np.arange(begin, begin + count) % (2 * devices)
    first = np.where(first < devices, first, 2 * devices - 1 - first)
    places = np.random.default_rng(begin).random((count, devices))
    places[np.arange(count), first] = -1.0
    return np.argsort(places, axis=1).T


def _slices(length: int) -> list[slice]:
    """Return parts of the vertices small enough for the cache; at least one part."""
    return [slice(first, min(first + _AT_ONCE, length)) for first in range(0, max(length, 1), _AT_ONCE)]


def best_copies(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of least mean cost where all devices need the same and all links cost the same.

    With a = min(alpha, 1), the first copy of v saves p_v (n - (n - 1) a): all of a host's row to one device, 1 - a of
    it to the others. Each further copy saves a p_v. The sum over devices is a sum over copies, so the n B copies that
    save most are an optimum. Further copies of v all save the same: but for one vertex, each has n copies, one or
    none. O(n + k log k) for the k vertices of n B that are looked at.

    Where scores or links differ by device, the plan is `greedy`'s. Equal rows of scores, and equal links in a matrix,
    do not differ.

    Examples
    --------
    >>> scores = np.array([9.0, 4, 3, 2, 1])
    >>> [vertices.tolist() for vertices in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 3], [1, 2]]
    >>> [vertices.tolist() for vertices in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.6))]
    [[0, 1], [0, 2]]
    """
    request = _of_equal_devices(request)
    n, budget = request.devices, request.budget
    if not request.is_equal_for_all:
        return greedy(request)
    order = hottest(request.scores, min(n * budget, request.num_rows))
    count = _held(request, order)
    on_all, left = divmod(n * budget - count, max(n - 1, 1))
    kept = np.empty((n, budget), np.int64)
    kept[:, :on_all] = order[:on_all]
    if on_all < budget:
        kept[:, on_all] = order[np.maximum(np.arange(on_all, on_all + n) - left, on_all)]
        rounds = order[on_all + n - left : count].reshape(-1, n)  # in snake order: 0, 1, 2, then 2, 1, 0, and on
        kept[:, on_all + 1 :: 2] = rounds[0::2, ::-1].T
        kept[:, on_all + 2 :: 2] = rounds[1::2].T
    return list(kept)


def _of_equal_devices(request: CopyRequest) -> CopyRequest:
    """The request with one vector for equal rows of scores, and one number for a matrix of equal links."""
    scores, alpha = request.scores, request.alpha
    if scores.ndim == 2 and (scores == scores[0]).all():
        scores = scores[0]
    if isinstance(alpha, np.ndarray):
        distinct = np.unique(link_costs(alpha, request.devices)[~np.eye(request.devices, dtype=np.bool_)])
        alpha = float(distinct[0]) if len(distinct) == 1 else alpha
    return replace(request, scores=scores, alpha=alpha)


def _held(request: CopyRequest, order: NDArray[np.int64]) -> int:
    """Return the number of vertices with a copy: from B on, one more while it saves more than the copy it replaces.

    With c vertices there are n B - c further copies, n - 1 for each of the hottest. What a new vertex saves falls with
    c, what the last further copy saves rises.
    """
    devices, budget, a = request.devices, request.budget, min(float(request.alpha), 1.0)
    copy_over_vertex = a / (devices - (devices - 1) * a)  # what they save at equal scores

    def is_enough(count: int) -> bool:
        gives_way = (devices * budget - count - 1) // (devices - 1)
        return not request.scores[order[count]] > copy_over_vertex * request.scores[order[gives_way]]

    return budget + bisect_left(range(budget, len(order)), True, key=is_enough)


def interleaved(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the `head` hottest vertices for every device, and the next ones in turn for one device each.

    Where there is room for more than one copy of all, the head grows until less than a row for each device is left
    over.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.

    Examples
    --------
    >>> scores = np.array([9.0, 8, 7, 6, 5, 4])
    >>> [vertices.tolist() for vertices in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5))]
    [[0, 2], [1, 3]]
    >>> [vertices.tolist() for vertices in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5, head=1))]
    [[0, 1], [0, 2]]
    """
    n, budget = request.devices, request.budget
    surplus = max(n * budget - request.num_rows, 0)
    head = max(request.head, surplus // max(n - 1, 1)) if n > 1 else request.head
    order = hottest(request.scores, min(head + n * (budget - head), request.num_rows))
    return [np.concatenate([order[:head], order[head + device :: n]]) for device in range(n)]


def replicated(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return for each device its `budget` hottest vertices: rule 1 of Song and Jiang.

    Examples
    --------
    >>> request = CopyRequest(np.array([1.0, 3, 2]), devices=2, budget=2, alpha=1.0)
    >>> [vertices.tolist() for vertices in replicated(request)]
    [[1, 2], [1, 2]]
    """
    if request.scores.ndim == 1:
        return [hottest(request.scores, request.budget)] * request.devices
    return [hottest(scores, request.budget) for scores in request.scores]


def song_jiang(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of Song and Jiang for devices that reach each other at the cost `alpha` of the host's.

    Case 1, alpha >= 1: every device keeps the hottest vertices. Case 2: it begins so. Then, from the coldest vertex
    that is kept to the hottest, all its copies but one are replaced by the next vertices that are on no device, as long
    as p(new) > alpha p(old). Within a round the devices take turns, those that got the least probability so far first.
    As printed, the loop skips a new vertex at each copy that stays, and ends early; here none is skipped, as in the
    worked example. O(n log n).

    References
    ----------
    Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022.

    Examples
    --------
    >>> scores = np.array([6.0, 5, 4, 3, 2, 1])
    >>> [vertices.tolist() for vertices in song_jiang(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 2], [3, 1]]
    """
    n, budget = request.devices, request.budget
    alpha = float(request.alpha)
    if alpha >= 1 or n == 1:
        return replicated(request)
    order = hottest(request.scores, min(n * budget, request.num_rows))
    scores = request.scores[order]

    def is_worse(new: int) -> bool:  # new ones get colder, old ones hotter
        return not scores[budget + new] > alpha * scores[budget - 1 - new // (n - 1)]

    count = bisect_left(range(len(scores) - budget), True, key=is_worse)
    kept = np.tile(order[:budget], (n, 1))
    where = _devices_of_replacements(scores[budget : budget + count], n)
    kept[where, budget - 1 - np.arange(count) // (n - 1)] = order[budget : budget + count]
    return list(kept)


def _devices_of_replacements(scores: NDArray[np.float64], devices: int) -> NDArray[np.int64]:
    """The device of each replacement: n - 1 in a round, by the sums of what was replaced so far, ascending."""
    sums = [0.0] * devices
    where: list[int] = []
    for first in range(0, len(scores), devices - 1):
        ascending = sorted(range(devices), key=sums.__getitem__)
        for device, score in zip(ascending, scores[first : first + devices - 1].tolist(), strict=False):
            sums[device] += score
            where.append(device)
    return np.array(where, np.int64)


_POWERS = (4, 64, 1024)
_LITTLE = 3e-3
"""Share of their costs that a round of exchanges spares devices at least, if there is to be another one."""
_ROUNDS = 20
"""Of a power, at most."""
_TRIED = 32
"""Rows of either side that are also tried each with each."""


class _Move(NamedTuple):
    """Rows that one device gives up and another one takes; None: nobody."""

    gives: int | None
    takes: int | None
    vertices: NDArray[np.int64]

    def of(self, part: Any) -> _Move:
        """Part of the rows."""
        return self._replace(vertices=self.vertices[part])


def level(request: CopyRequest, kept: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Return a plan of as many rows whose largest device pays less; the same plan where none is found.

    Rows are exchanged: a device takes one and gives one up, either with the host or with another device. What rows save
    does not depend on other rows. So exchanges of the same devices are sorted by what they save, and of the first ones
    as many are made at once as lower the sum of costs^(q + 1) most. What a device saves counts its cost^q, the slope of
    that sum. With q of 4, 64 and 1,024 the largest cost decides more and more. A round takes O(devices^2 n +
    devices^3 budget), the last one, of each two devices, O(devices^4 budget).

    Where all devices need the same and all links cost the same, the plan is returned as it is.

    Examples
    --------
    >>> request = CopyRequest(np.array([[9.0, 8, 7], [1, 1, 3]]), devices=2, budget=1, alpha=0.5)
    >>> [vertices.tolist() for vertices in level(request, [np.array([0]), np.array([2])])]
    [[0], [1]]
    """
    request = _of_equal_devices(request)
    if request.is_equal_for_all:
        return kept
    search = _Exchanges(request, kept)
    before = search.costs.max()
    for power in _POWERS:
        rounds = 1
        while search.lower(power) and rounds < _ROUNDS:
            rounds += 1
    return [np.flatnonzero(held) for held in search.held] if search.costs.max() < before * (1 - 1e-9) else kept


class _Exchanges:
    """The devices that hold each row, and what each device pays for it, as rows are exchanged.

    Sums are taken row by row, and powers by squares: the same bits on every machine.
    """

    def __init__(self, request: CopyRequest, kept: list[NDArray[np.int64]]) -> None:
        n = request.devices
        self._links = link_costs(request.alpha, n)
        self._scores = np.broadcast_to(request.scores / (request.scores.max() or 1.0), (n, request.num_rows))
        plan = CopyPlan(tuple(kept), request.num_rows)
        self._paid = np.stack([_paid(plan, to) for to in self._links])
        self.held = np.zeros(self._paid.shape, np.bool_)
        for device, vertices in enumerate(kept):
            self.held[device, vertices] = True
        self.costs = np.array([np.cumsum(p * paid)[-1] for p, paid in zip(self._scores, self._paid, strict=True)])
        self._unit = 1.0

    def lower(self, power: int) -> bool:
        """Make a round of exchanges; return whether it lowered the sum of powers much.

        They are one with the host for each device, and one of the device that pays most with each other. Where that
        does not end the search of the largest power, each two devices make one.
        """
        self._unit = self.costs.max() or 1.0
        enough = self._sums(self.costs, power) * _to_the(power, 1 - _LITTLE)
        devices = range(len(self.costs))
        for device in devices:
            self._exchange(device, None, power)
        most = int(self.costs.argmax())
        for other in devices:
            if other != most:
                self._exchange(most, other, power)
        if power == _POWERS[-1] and not self._sums(self.costs, power) < enough:
            for device, other in combinations(devices, 2):
                self._exchange(device, other, power)
        return bool(self._sums(self.costs, power) < enough)

    def _sums(self, costs: NDArray[np.float64], power: int) -> Any:
        """Sum over the devices of costs (devices, ...) to the power of `power` + 1."""
        relative = np.maximum(costs, 0) / self._unit  # rounding takes some below
        with np.errstate(over="ignore", under="ignore"):
            return sum(_to_the(power, relative) * relative)

    def _exchange(self, device: int, other: int | None, power: int) -> None:
        """Let a device take rows and give up as many, to and from another one, or the host: those that lower most."""
        mine = self.held[device]
        theirs = ~mine if other is None else self.held[other]
        moves = self._sorted(
            _Move(other, device, np.flatnonzero(theirs & ~mine)),
            _Move(device, other, np.flatnonzero(mine & ~theirs)),
            _to_the(power, self.costs / self._unit) + 1e-9,  # of those that pay little: where nothing else differs
        )
        if not all(len(move.vertices) for move in moves):
            return
        first, second = (self._changes(move) for move in moves)
        length = min(first.shape[1], second.shape[1])
        together = np.cumsum(first[:, :length] + second[:, :length], axis=1)
        singly = first[:, :_TRIED, None] + second[:, None, :_TRIED]
        tried = np.concatenate([together, singly.reshape(len(singly), -1)], axis=1)
        sums = self._sums(self.costs[:, None] + tried, power)
        best = int(sums.argmin())
        if sums[best] < self._sums(self.costs, power) * (1 - 1e-12):
            self.costs = np.maximum(self.costs + tried[:, best], 0)  # rounding takes them below
            pair = divmod(best - length, singly.shape[2])
            for move, at in zip(moves, pair, strict=True):
                self._make(move.of(slice(best + 1) if best < length else [at]))

    def _sorted(self, first: _Move, second: _Move, weights: NDArray[np.float64]) -> list[_Move]:
        """Both moves with the rows that save with a row of the other, the best first, and `_TRIED` at least."""
        moves, values = [first, second], [self._values(move, weights) for move in (first, second)]
        least = [value.min(initial=np.inf) for value in values]
        for side, value in enumerate(values):
            useful = np.flatnonzero(value < -least[1 - side])
            order = useful[np.argsort(value[useful], kind="stable")]
            moves[side], values[side] = moves[side].of(order), value[order]
        both = min(map(len, values))
        save = int(np.count_nonzero(values[0][:both] + values[1][:both] < 0))
        return [move.of(slice(max(save, _TRIED))) for move in moves]

    def _values(self, move: _Move, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Change of the weighted sum of costs by each row."""
        parts = [self._changes(move.of(part)) for part in _slices(len(move.vertices))]
        return np.concatenate([sum(weights[:, None] * part) for part in parts])

    def _changes(self, move: _Move) -> NDArray[np.float64]:
        """(devices, rows) what each row of a move changes of the cost of each device."""
        return self._scores[:, move.vertices] * (self._after(move) - self._paid[:, move.vertices])

    def _after(self, move: _Move) -> NDArray[np.float64]:
        """(devices, rows) what each device pays for each row after a move."""
        paid: NDArray[np.float64] = self._paid[:, move.vertices]
        if move.gives is not None:
            paid = np.ones(paid.shape)
            for holder, held in enumerate(self.held[:, move.vertices]):
                if holder != move.gives:
                    paid = np.where(held, np.minimum(paid, self._links[:, holder, None]), paid)
        return paid if move.takes is None else np.minimum(paid, self._links[:, move.takes, None])

    def _make(self, move: _Move) -> None:
        """Let the rows move."""
        self._paid[:, move.vertices] = self._after(move)
        for device, holds in ((move.gives, False), (move.takes, True)):
            if device is not None:
                self.held[device, move.vertices] = holds


def _to_the(power: int, values: Any) -> Any:
    """`values` to the power of a power of two."""
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(power.bit_length() - 1):
            values = values * values
    return values


METHODS: dict[str, Callable[[CopyRequest], list[NDArray[np.int64]]]] = {
    "best-copies": best_copies,
    "interleaved": interleaved,
    "replicated": replicated,
    "song-jiang": song_jiang,
}
"""By name: what makes of a request the vertices of each device."""

EQUAL_FOR_ALL = {"interleaved": ("scores",), "song-jiang": ("scores", "alpha")}
"""By method: the arguments that may not differ by device."""


OBJECTIVES = ("mean", "max")
"""Costs that a plan can make small: of the mean device, or of the one that pays most."""

MAX_DEVICES = 2**14
"""Devices of a plan at most: links are looked at pair by pair."""


def plan_copies(
    scores: Any,
    devices: int,
    budget: int,
    alpha: Any,
    *,
    method: str = "best-copies",
    objective: str = "mean",
    head: int = 0,
) -> CopyPlan:
    """Choose the rows of features that each of several devices, or ranks, keeps a copy of.

    A device reads its own rows for nothing, those of another device at `alpha` times the cost of one from the host, and
    the others from the host. More copies of a row save links, copies of more rows save the host.

    Parameters
    ----------
    scores : array_like (n,) or (devices, n)
        How often each vertex is needed, by every device or by each: counts or probabilities.
    devices : int
        Number of devices that reach each other, at most `MAX_DEVICES`.
    budget : int
        Rows that each device keeps; more than n are n.
    alpha : float or array_like (devices, devices)
        Cost of a row from another device over that of one from the host; a matrix where links differ. Entry (i, j) is
        for rows that device i reads from device j; the diagonal is not looked at. From 1 on such a row is read from the
        host.
    method : str
        ``"best-copies"``: least mean cost; where scores or links differ by device, greedy by what a copy saves.
        ``"replicated"``: every device keeps what it needs most.
        ``"interleaved"``: the hottest rows in turn, one copy each (Data Tiering). Takes one vector of scores.
        ``"song-jiang"``: algorithm 1 of Song and Jiang. Takes one vector of scores and one alpha.
    objective : str
        For ``"best-copies"``: the cost that is made small. ``"mean"``: that of the mean device. ``"max"``: that of the
        device that pays most; rows of the plan for ``"mean"`` are exchanged until that spares little.
        It is never above that plan's, and not always the least there is. Both are the same plan where all devices need
        the same and all links cost the same.
    head : int
        For ``"interleaved"``: how many of the `budget` rows are the hottest ones, on every device.

    Returns
    -------
    CopyPlan
        `copy_cost` says what it costs each device.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, or the method cannot use it.

    Examples
    --------
    >>> from spsample.features.copies import copy_cost
    >>> scores = [9, 4, 3, 2, 1]
    >>> plan = plan_copies(scores, devices=2, budget=2, alpha=0.5)
    >>> [vertices.tolist() for vertices in plan.vertices]
    [[0, 1], [0, 2]]
    >>> copy_cost(plan, scores, alpha=0.5)
    CopyCost(mean 4.75, largest 5)

    A device that needs more than the other gets help from it:

    >>> scores = [[9, 8, 7], [1, 1, 3]]
    >>> for objective in ("mean", "max"):
    ...     plan = plan_copies(scores, devices=2, budget=1, alpha=0.5, objective=objective)
    ...     copy_cost(plan, scores, alpha=0.5)
    CopyCost(mean 6.5, largest 11.5)
    CopyCost(mean 7.25, largest 11)
    """
    devices = require_int("devices", devices, minimum=1, maximum=MAX_DEVICES)
    budget = require_int("budget", budget, minimum=0)
    method = require_choice("method", method, tuple(METHODS))
    checked = require_scores(scores, devices)
    budget = min(budget, checked.shape[-1])
    head = require_int("head", head, minimum=0, maximum=budget)
    if head and method != "interleaved":
        raise InputError(argument="head", given=str(head), expected=f"0 with method={method!r}")
    if require_choice("objective", objective, OBJECTIVES) == "max" and method != "best-copies":
        hint = 'method="best-copies" takes both; "song-jiang" aims at the largest device as it is.'
        raise InputError(argument="objective", given="'max'", expected=f"'mean' with method={method!r}", hint=hint)
    links = require_alpha(alpha, devices)
    for argument, given in (("scores", checked), ("alpha", links)):
        if argument in EQUAL_FOR_ALL.get(method, ()) and isinstance(given, np.ndarray) and given.ndim == 2:
            expected = f"the same for all devices with method={method!r}"
            hint = 'method="best-copies" takes one for each device.'
            raise InputError(argument=argument, given=f"shape {given.shape}", expected=expected, hint=hint)
    request = CopyRequest(checked, devices, budget, links, head)
    kept = METHODS[method](request)
    return CopyPlan(tuple(level(request, kept) if objective == "max" else kept), checked.shape[-1])
