"""The seeds that make up the batches of an epoch: runs of the order of all seeds, or a rank's own seeds."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from spsample.backends.on_host import pointers_of
from spsample.common.checks import require_choice
from spsample.distributed.placement import parts_on_ranks
from spsample.errors import InputError

if TYPE_CHECKING:
    from spsample.backends.protocol import Int64Array
    from spsample.store.base_graph import BaseGraph

BATCHES = ("shuffled", "local", "cooperative")
"""Values of the argument `batches` of a loader."""


class ShuffledBatches(NamedTuple):
    """Batch i holds the seeds at the places i b to (i + 1) b - 1 of the order of an epoch.

    Attributes
    ----------
    num_seeds, batch_size : int
    drop_last : bool
        Leave out the last batch where it has fewer seeds than b.

    Examples
    --------
    >>> batches = ShuffledBatches(num_seeds=7, batch_size=3, drop_last=False)
    >>> batches.num_batches, batches.places(1, 3)
    (3, slice(3, 9, None))
    """

    num_seeds: int
    batch_size: int
    drop_last: bool

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, of all ranks together."""
        full, rest = divmod(self.num_seeds, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def ordered(self, positions: Int64Array) -> Int64Array:
        """Return the positions among the seeds in the order of the batches: as they are."""
        return positions

    def places(self, first: int, end: int) -> slice:
        """Return the places of batches `first` to `end - 1`."""
        return slice(first * self.batch_size, end * self.batch_size)

    def bounds(self, first: int, end: int) -> None:
        """Return None: all batches but the last are of one size."""

    def identity(self) -> dict[str, Any]:
        """Return the name alone."""
        return {"batches": "shuffled"}


class LocalBatches:
    """Each rank's batches hold seeds of its own block row: order and batch ids of `docs/law.md`, section 5.

    The seeds of a block row go in turn to the c ranks that hold it. All ranks take as many steps, T: those that
    the rank with the most seeds needs. A rank with m seeds cuts them into T batches of floor(m / T) or one more, so
    that only a rank with fewer seeds than steps has a batch without seeds.

    Parameters
    ----------
    parts : int array (seeds,)
        Block row of each seed, at least one seed in each.
    num_parts : int
        Block rows g, a divisor of p.
    ranks : int
        p: part i is that of the ranks i p/g to (i + 1) p/g - 1.
    batch_size : int
        b, the most seeds of a batch; beyond all seeds as their number.
    least_steps : int, optional
        Steps at least.

    Attributes
    ----------
    num_batches, steps : int
        Of an epoch: batches of all ranks, and steps, each of which has a batch of every rank.

    Examples
    --------
    >>> batches = LocalBatches(np.array([0, 1, 0, 0, 1, 0]), num_parts=2, ranks=2, batch_size=2)
    >>> batches.num_batches  # two steps, of a batch of each rank
    4
    >>> batches.ordered(np.arange(6)), batches.bounds(0, 4)
    (array([0, 2, 1, 3, 5, 4]), array([0, 2, 3, 5, 6]))
    """

    def __init__(self, parts: Int64Array, num_parts: int, ranks: int, batch_size: int, least_steps: int = 0) -> None:
        self.ranks, self.num_parts = ranks, num_parts
        self._parts = parts
        self._parts_sha256 = sha256(parts.astype("<i8", copy=False).tobytes()).hexdigest()
        columns = ranks // num_parts
        seeds = np.bincount(parts, minlength=num_parts)
        own = (seeds.repeat(columns) - np.tile(np.arange(columns), num_parts) + columns - 1) // columns
        self.steps = int((-(-own // min(batch_size, len(parts) + 1))).max(initial=least_steps))
        sizes = np.diff(np.arange(self.steps + 1)[:, None] * own // max(self.steps, 1), axis=0)  # (steps, ranks)
        self._batch_ptr = pointers_of(sizes.ravel())
        self._at_place = np.empty(len(parts), np.int64)  # the seed of each place, in the order of parts
        first = pointers_of(seeds)
        for rank in range(ranks):
            part, column = divmod(rank, columns)
            mine = first[part] + column + columns * np.arange(own[rank])
            before = self._batch_ptr[rank:-1:ranks] - pointers_of(sizes[:, rank])[:-1]
            self._at_place[before.repeat(sizes[:, rank]) + np.arange(own[rank])] = mine

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, of all ranks together: one of each rank in every step."""
        return self.steps * self.ranks

    def ordered(self, positions: Int64Array) -> Int64Array:
        """Return the positions among the seeds in the order of the batches: id t p + r in step t of rank r."""
        by_part = np.argsort(self._parts[positions], kind="stable")
        ordered: Int64Array = positions[by_part[self._at_place]]
        return ordered

    def places(self, first: int, end: int) -> slice:
        """Return the places of batches `first` to `end - 1`."""
        return slice(int(self._batch_ptr[first]), int(self._batch_ptr[end]))

    def bounds(self, first: int, end: int) -> Int64Array:
        """Return the places where batches `first` to `end - 1` begin among their seeds, and where the last ends."""
        bounds: Int64Array = self._batch_ptr[first : end + 1] - self._batch_ptr[first]
        return bounds

    def part_of(self, rank: int) -> int:
        """Return the part whose seeds the batches of a rank hold."""
        return rank // (self.ranks // self.num_parts)

    def seeds_of(self, part: int) -> Int64Array:
        """Return the positions among the seeds of those of a part, ascending.

        Examples
        --------
        >>> LocalBatches(np.array([0, 1, 0, 1]), num_parts=2, ranks=4, batch_size=2).seeds_of(1)
        array([1, 3])
        """
        return np.flatnonzero(self._parts == part)

    def identity(self) -> dict[str, Any]:
        """Return the number of ranks and of parts too, and a digest of the part of each seed."""
        sizes = {"ranks": self.ranks, "num_parts": self.num_parts}
        return {"batches": "local", **sizes, "parts_sha256": self._parts_sha256}


Batches: TypeAlias = "ShuffledBatches | LocalBatches"
"""The cut of an epoch's seeds into batches; their sizes are the same in every epoch."""


def batches_of(
    batches: Any, parts: Any, graph: BaseGraph, seeds: Int64Array, batch_size: int, drop_last: bool
) -> LocalBatches | None:
    """Return the cut of epochs for these arguments of a loader; None: into runs of their order.

    Raises
    ------
    InputError
        If the arguments do not fit each other or the graph and its ranks, or a part has no seeds.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph([0, 1, 2], [1, 0])
    >>> batches_of("local", None, graph, np.array([0, 1]), 1, False).num_batches
    2
    >>> batches_of("shuffled", [0, 0], graph, np.array([0, 1]), 1, False)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: parts: got parts with batches='shuffled'; expected none, or batches='local' or ...
    """
    if isinstance(batches, LocalBatches):
        return batches
    if require_choice("batches", batches, BATCHES) != "local":
        if parts is not None and batches == "shuffled":
            expected = "none, or batches='local' or 'cooperative'"
            raise InputError(argument="parts", given="parts with batches='shuffled'", expected=expected)
        return None
    if drop_last:
        expected = "False: a rank's local batches are all of about one size, and none is a last one to leave out"
        raise InputError(argument="drop_last", given="True with batches='local'", expected=expected)
    return local_batches_of(parts, graph, seeds, batch_size)


def local_batches_of(parts: Any, graph: BaseGraph, seeds: Int64Array, batch_size: int) -> LocalBatches:
    """Return the cut of epochs for batches="local" and these arguments of a loader.

    Raises
    ------
    InputError
        If the arguments do not fit each other or the graph and its ranks, or a part has no seeds.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph([0, 1, 2], [1, 0])
    >>> local_batches_of([0, 0], graph, np.array([0, 1]), batch_size=2).steps
    1
    """
    if parts is not None:
        of_vertices, num_parts = parts_on_ranks(graph, parts)
        of_seeds = of_vertices[seeds].astype(np.int64)
    elif graph.num_block_rows == 1 < graph.comm.size:
        given = f"'local' for a graph that each of {graph.comm.size} ranks has all of"
        expected = "a graph in two or more block rows, or parts: which vertices are local to which ranks"
        hint = "BulkLoader(..., batches='local', parts=metis_partition(graph, ranks))"
        raise InputError(argument="batches", given=given, expected=expected, hint=hint)
    else:
        of_seeds, num_parts = graph.block_rows_of(seeds), graph.num_block_rows
    without = np.flatnonzero(np.bincount(of_seeds, minlength=num_parts) == 0)
    if len(without):  # its ranks would have no batches
        which = f"{without[0]} of {num_parts}"
        given = f"'local', with no seeds in block row {which}" if parts is None else f"no seeds in part {which}"
        expected = "seeds in each of them"
        hint = "Take a partition that spreads the seeds over its parts, or batches='shuffled'."
        raise InputError(argument="batches" if parts is None else "parts", given=given, expected=expected, hint=hint)
    return LocalBatches(of_seeds, num_parts, graph.comm.size, batch_size)
