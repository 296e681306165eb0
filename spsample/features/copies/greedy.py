"""`greedy`: copies chosen one after the other by what each saves, where devices or links differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.plan import CopyRequest, link_costs
from spsample.features.score_order import hottest

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
        taken = order[: self._first_full(device.ravel()[order])]
        for i in np.flatnonzero(self.room).tolist():
            vertices = looked_at[taken[device.ravel()[taken] == i] % len(looked_at)]
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

    def _first_full(self, devices: NDArray[np.int64]) -> int:
        """Return the number of the copies on `devices`, in order, that are taken when a device is full."""
        places = (np.flatnonzero(devices == i) for i in np.flatnonzero(self.room))
        rooms = self.room[self.room > 0]
        return int(min(at[room - 1] + 1 for at, room in zip(places, rooms, strict=True) if len(at) >= room))


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
