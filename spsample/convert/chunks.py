"""Edges as they are read: chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError
from spsample.store.validation import MAX_NODES

__all__ = ["EdgeChunk", "EdgeList", "array_chunks", "check_chunk", "given_chunk"]


@dataclass
class EdgeChunk:
    """Consecutive edges: edge i leads from ``sources[i * step]`` to ``targets[i * step]``.

    `first` is the position of edge 0 in the input. `place(i, first line)` says where edge i stands in it, for messages;
    `lines` are the lines of a text that the chunk took. `problem(first line)` is what ended it early, if anything did.
    Loops that were `added` are not dropped.
    """

    sources: NDArray[Any]
    targets: NDArray[Any]
    count: int
    step: int = 1
    weights: NDArray[Any] | None = None
    first: int = 0
    lines: int = 0
    place: Callable[[int, int], str] | None = None
    problem: Callable[[int], Exception] | None = None
    first_line: int = 1
    added: bool = False

    @property
    def ends(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sources and targets, one for each edge."""
        stop = max((self.count - 1) * self.step + 1, 0)
        return self.sources[: stop : self.step], self.targets[: stop : self.step]

    def where(self, i: int) -> str:
        """Where edge i stands in the input."""
        return f"edge {self.first + i}" if self.place is None else self.place(i, self.first_line)


class EdgeList(Protocol):
    """Edges that can be read in chunks."""

    name: str
    """Names them in messages."""
    num_nodes: int | None
    """How many vertices there are, or None where the ids decide."""
    weight_dtype: np.dtype[Any] | None
    """float32 or float64, or None without weights."""
    rereadable: bool
    """Whether reading twice costs no more than reading memory."""

    def tasks(self, count: int) -> Iterable[Callable[[], EdgeChunk]]:
        """Yield functions that make the chunks, of at most `count` edges, in order; several may run at once."""
        ...


def given_chunk(chunk: EdgeChunk) -> EdgeChunk:
    """Return a chunk that is there already, where a function that makes one is wanted."""
    return chunk


def array_chunks(
    sources: NDArray[Any], targets: NDArray[Any], weights: NDArray[Any] | None, step: int, count: int, before: int = 0
) -> Iterator[Callable[[], EdgeChunk]]:
    """Yield the chunks of edges that lie in arrays of int32 or int64, in memory or mapped, `before` others behind."""
    total = (len(sources) + step - 1) // step
    for first in range(0, total, count):
        size = min(count, total - first)
        places = slice(first * step, (first + size - 1) * step + 1)
        held = None if weights is None else weights[first : first + size]
        yield partial(EdgeChunk, sources[places], targets[places], size, step, held, before + first)


def check_chunk(name: str, chunk: EdgeChunk, limits: tuple[int, int], num_nodes: int | None) -> None:
    """Check ids, of which the smallest and largest are known, and weights.

    Raises
    ------
    DataError
        Naming the first bad edge by its place in the input.
    """
    most = MAX_NODES if num_nodes is None else num_nodes
    if limits[0] < 0 or limits[1] >= most:
        _refuse_ids(name, chunk, most)
    if chunk.weights is not None and len(chunk.weights):
        with np.errstate(invalid="ignore"):
            good = (chunk.weights >= 0) & (chunk.weights < np.inf)
        if not good.all():
            at = int(np.argmin(good))
            given = f"weight {chunk.weights[at]} at {chunk.where(at)}"
            raise DataError(argument=name, given=given, expected="finite weights of at least 0")


def _refuse_ids(name: str, chunk: EdgeChunk, most: int) -> None:
    sources, targets = chunk.ends
    bad = (sources < 0) | (sources > most - 1) | (targets < 0) | (targets > most - 1)  # 2^63 is no int64
    at = int(np.argmax(bad))
    ids = f"{int(sources[at])} -> {int(targets[at])}"
    hint = "Give --num-nodes, or --renumber for ids that are not 0 to n - 1." if most < MAX_NODES else ""
    raise DataError(
        argument=name, given=f"the edge {ids} at {chunk.where(at)}", expected=f"vertex ids in [0, {most})", hint=hint
    )
