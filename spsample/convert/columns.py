"""The columns of a table that hold the ends and the weight of an edge, and the names of vertices in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from spsample.common.threads import require_core
from spsample.common.units import format_bytes
from spsample.convert.options import ConvertOptions
from spsample.errors import CapacityError, InputError
from spsample.store import StoreWriter
from spsample.store.folder import file_error

_SOURCES = ("src", "source", "from", "u")
_TARGETS = ("dst", "target", "to", "v")


core = partial(require_core, "a conversion")
"""Returns the compiled core, or raises a `BackendError` where it is missing."""


class EdgeColumns(NamedTuple):
    """Numbers of the columns, from 0; weight -1 stands for none."""

    source: int
    target: int
    weight: int = -1


def is_column_number(word: str) -> bool:
    """Return whether a word is the number of a column, as far as that is known without the table."""
    return word.isascii() and word.isdigit()


def is_index_name(name: str) -> bool:
    """Return whether a column is an index, such as pandas writes without being asked: it is no end of an edge.

    Examples
    --------
    >>> [is_index_name(name) for name in ("", "Unnamed: 0", "index", "__index_level_0__", "id")]
    [True, True, True, True, False]
    """
    return name.lower() in ("", "index") or name.startswith(("Unnamed: ", "__index_level_"))


def named_ends(names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the columns with a name for sources, and those with a name for targets.

    Examples
    --------
    >>> named_ends(["id", "From", "to"])
    ([1], [2])
    """
    lower = [name.lower() for name in names]
    sources, targets = ([i for i, name in enumerate(lower) if name in known] for known in (_SOURCES, _TARGETS))
    return sources, targets


def edge_columns(
    table: str, names: Sequence[str] | None, width: int, options: ConvertOptions, *, counts: bool = False
) -> EdgeColumns:
    """Choose the columns of an edge list.

    They are those that the options name, or those with names of ends, or the two that there are besides the weights, or
    the first two of a table without names.

    Parameters
    ----------
    table
        The name of the table, for messages.
    names
        The names of its columns, or None.
    width
        How many columns it has.
    options
        Columns and weights that the user names.
    counts
        Whether the first column is 0, 1, 2, ... or 1, 2, 3, ..., as an index is.

    Raises
    ------
    InputError
        If a column is not there, or more than one choice is possible.
    """
    weight = -1 if options.weights is None else _numbers(table, names, width, "weights", [options.weights])[0]
    free = [column for column in range(width) if column != weight]
    if options.columns is not None:
        source, target = _numbers(table, names, width, "columns", options.columns)
    elif names is None:
        if counts and len(free) > 2:
            given = f"no header and {len(free)} columns, of which the first counts the lines"
            first, second, third = free[:3]
            sources = f"{first},{second} where it is the source"
            _refuse(table, given, f"--columns {sources}, --columns {second},{third} where it is an index")
        source, target = (free[0], free[1]) if len(free) > 1 else (0, 1)  # a line of one column is refused later
    else:
        source, target = _by_name(table, names, free)
    if len({source, target, weight}) < 3:
        given = f"the columns {source} and {target} of {table}, and {weight} for the weights"
        raise InputError(argument="columns", given=given, expected="a column for each")
    return EdgeColumns(source, target, weight)


def _numbers(table: str, names: Sequence[str] | None, width: int, argument: str, words: Sequence[str]) -> list[int]:
    """Columns by their names, or else by their numbers."""
    held = [] if names is None else list(names)
    twice = next((word for word in words if held.count(word) > 1), None)
    if twice is not None:
        given = f"{twice!r} for {table}, where {held.count(twice)} columns have that name"
        raise InputError(argument=argument, given=given, expected="the number of a column, from 0")
    by_number = [int(word) if is_column_number(word) and int(word) < width else None for word in words]
    by_name = [held.index(word) if word in held else None for word in words]
    if None not in by_name and None not in by_number and by_name != by_number:
        given = f"{','.join(words)} for {table}, whose columns {', '.join(held)} have other numbers than names"
        hint = f"Type --{argument} {','.join(map(str, by_name))} for the columns of these names."
        raise InputError(argument=argument, given=given, expected="one reading", hint=hint)
    chosen = by_number if None in by_name and None not in by_number else by_name
    if None in chosen:
        chosen = [number if name is None else name for name, number in zip(by_name, by_number, strict=True)]
    for word, column in zip(words, chosen, strict=True):
        if column is None:
            described = f"the columns {', '.join(held)}" if held else f"{width} columns and no header"
            given = f"{word!r} for {table} with {described}"
            raise InputError(argument=argument, given=given, expected="a column of the table")
    return [column for column in chosen if column is not None]


def _by_name(table: str, names: Sequence[str], free: list[int]) -> tuple[int, int]:
    sources, targets = named_ends(names)
    if len(sources) == 1 and len(targets) == 1:
        return sources[0], targets[0]
    ends = [column for column in free if not is_index_name(names[column])]
    turned = targets == ends[:1] or sources == ends[1:2]
    plain = len(ends) == len(free) == 2 and len(sources) < 2 and len(targets) < 2
    if plain and not turned:
        return ends[0], ends[1]
    given = f"the columns {', '.join(map(repr, names))}"
    words = [_word(names, column) for column in range(len(names))]
    if sources and targets:
        pairs = [f"--columns {words[source]},{words[target]}" for source in sources for target in targets]
        _refuse(table, given, " or ".join(pairs))
    if len(ends) == 2:
        first, second = (words[column] for column in (reversed(ends) if turned else ends))
        _refuse(table, given, f"--columns {first},{second}, or {second},{first} where edges lead the other way")
    _refuse(table, given, f"--columns SOURCE,TARGET with two of {', '.join(words[column] for column in ends)}")


def _word(names: Sequence[str], column: int) -> str:
    """The name of a column as ``--columns`` takes it, or its number."""
    name = names[column]
    unclear = names.count(name) > 1 or "," in name or name != name.strip() or not name or is_column_number(name)
    return str(column) if unclear else name


def _refuse(table: str, given: str, lines: str) -> NoReturn:
    given, expected = f"none for {table} with {given}", "the source and the target column"
    raise InputError(argument="columns", given=given, expected=expected, hint=f"Type {lines}.")


_BLANKS = " \t\f\v\r"
_BYTES_PER_NAME = 160


def check_room(argument: str, used: int, room: int) -> None:
    """Refuse ids that take more than `room` bytes.

    Raises
    ------
    CapacityError
    """
    if used > room:
        given = f"vertex ids that take {format_bytes(used)}"
        expected = f"at most {format_bytes(room)}, a third of the memory budget: they are kept in memory"
        raise CapacityError(argument=argument, given=given, expected=expected, hint="Raise --memory-budget.")


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
        self._used, self._room = 0, room

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
