"""Vertices by other names than 0 to n - 1: strings, or integers with gaps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.units import format_bytes
from spsample.convert.edges import EdgeChunk, EdgeList
from spsample.errors import CapacityError
from spsample.store import StoreWriter
from spsample.store.folder import file_error

_BLANKS = " \t\f\v\r"
_BYTES_PER_NAME = 160


def check_room(argument: str, used: int, room: int) -> None:
    """Refuse ids that take more than `room` bytes.

    Raises
    ------
    CapacityError
    """
    if used > room:
        raise CapacityError(
            argument=argument,
            given=f"vertex ids that take {format_bytes(used)}",
            expected=f"at most {format_bytes(room)}, a third of the memory budget: they are kept in memory",
            hint="Raise --memory-budget.",
        )


def vertex_name(value: bytes | str) -> str:
    r"""Return a name as vertices have it, in edges and in tables of vertices: blanks at its ends do not count.

    Examples
    --------
    >>> vertex_name(b" New York\t"), vertex_name("\u00a0x")
    ('New York', '\xa0x')
    """
    text = value.decode() if isinstance(value, bytes) else value
    return text.strip(_BLANKS)


def is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is of strings or bytes."""
    return str(kind).startswith(("string", "large_string", "binary", "large_binary", "fixed_size_binary"))


def column_names(argument: str, name: str, column: Any) -> list[str]:
    """Return the names in a column of Arrow: strings, bytes, or integers as they are written; "" where there is none.

    Raises
    ------
    DataError
        If the column is of another type, or a name is no UTF-8; it names `argument` and the column's `name`.
    """
    from pyarrow.types import is_dictionary, is_integer

    column = column.dictionary_decode() if is_dictionary(column.type) else column
    kind = str(column.type)
    if not (is_integer(column.type) or is_text(kind)):
        raise file_error(argument, f"column {name} of type {kind}", "ids that are names or integers")
    if "string" in kind:
        column = column.cast(kind.replace("string", "binary"))  # which need not be UTF-8
    values = column.to_pylist()
    try:
        return ["" if value is None else vertex_name(value if is_text(kind) else str(value)) for value in values]
    except UnicodeDecodeError as error:
        raise file_error(argument, f"{error.object!r} in column {name}, which is no UTF-8", "names in UTF-8") from None


class VertexNames:
    """Strings, numbered in order of first appearance; `room` bytes may be taken.

    Examples
    --------
    >>> names = VertexNames(room=2**20)
    >>> [names.number(name) for name in ("b", "a", "b")]
    [0, 1, 0]
    """

    def __init__(self, room: int) -> None:
        self._numbers: dict[str, int] = {}
        self._used = 0
        self._room = room

    def number(self, name: str) -> int:
        """Return the number of a name, a new one for a new name.

        Raises
        ------
        CapacityError
            If the names take too much memory.
        """
        number = self._numbers.get(name)
        if number is not None:
            return number
        self._used += _BYTES_PER_NAME + len(name)
        check_room("string_ids", self._used, self._room)
        self._numbers[name] = len(self._numbers)
        return len(self._numbers) - 1

    def __len__(self) -> int:
        return len(self._numbers)

    def sort_from(self, first: int) -> NDArray[np.int64]:
        """Number the names from `first` on anew, in their order; return the new number of each.

        Examples
        --------
        >>> names = VertexNames(room=2**20)
        >>> [names.number(name) for name in ("b", "d", "c")]
        [0, 1, 2]
        >>> names.sort_from(1)
        array([2, 1])
        """
        late = list(islice(self._numbers, first, None))
        for name in late:
            del self._numbers[name]
        self._numbers |= {name: number for number, name in enumerate(sorted(late), first)}
        return np.array([self._numbers[name] for name in late], np.int64)

    def named(self, numbers: Collection[int]) -> list[str]:
        """Return the names of some vertices, in the order of their numbers."""
        return [name for name, number in self._numbers.items() if number in numbers]

    def write(self, writer: StoreWriter) -> None:
        """Write ``names_ptr`` and ``names_data`` (UTF-8)."""
        count = len(self._numbers)
        lengths = np.fromiter((len(name.encode()) for name in self._numbers), np.int64, count)
        pointers = writer.create("names_ptr", np.int64, count + 1)
        np.cumsum(lengths, out=pointers[1:])
        data = writer.create("names_data", np.uint8, int(pointers[-1]))
        for name, begin, end in zip(self._numbers, pointers[:-1].tolist(), pointers[1:].tolist(), strict=True):
            data[begin:end] = np.frombuffer(name.encode(), np.uint8)


class DistinctIds:
    """The distinct ids of chunks, ascending; `room` bytes may be taken."""

    def __init__(self, room: int) -> None:
        self._sorted: list[NDArray[np.int64]] = []
        self._room = room

    def add(self, chunk: EdgeChunk) -> None:
        """Take note of the ids of a chunk."""
        self.add_ids(np.union1d(*map(np.unique, chunk.ends)).astype(np.int64))

    def add_ids(self, ids: NDArray[np.int64]) -> None:
        """Take note of ids that ascend."""
        self._sorted.append(ids)
        while len(self._sorted) > 1 and 2 * len(self._sorted[-1]) >= len(self._sorted[-2]):
            self._merge()

    def ids(self) -> NDArray[np.int64]:
        """Return them all."""
        while len(self._sorted) > 1:
            self._merge()
        return self._sorted[0] if self._sorted else np.empty(0, np.int64)

    def _merge(self) -> None:
        last, before = self._sorted.pop(), self._sorted.pop()
        check_room("renumber", 8 * sum(map(len, (*self._sorted, last, last, before, before))), self._room)
        self._sorted.append(np.union1d(before, last))


class RenumberedEdges(EdgeList):
    """Other edges, with an id's place in `ids` for the id."""

    rereadable = True

    def __init__(self, edges: EdgeList, ids: NDArray[np.int64]) -> None:
        self.name, self.weight_dtype = edges.name, edges.weight_dtype
        self.num_nodes = max(len(ids), 1)
        self._edges, self._ids = edges, ids

    def tasks(self, count: int) -> Iterator[Callable[[], EdgeChunk]]:
        """Yield the chunks."""
        for task in self._edges.tasks(count):
            yield partial(self._renumbered, task)

    def _renumbered(self, task: Callable[[], EdgeChunk]) -> EdgeChunk:
        chunk = task()
        sources, targets = (np.searchsorted(self._ids, ids) for ids in chunk.ends)
        return EdgeChunk(sources, targets, chunk.count, 1, chunk.weights, chunk.first)
