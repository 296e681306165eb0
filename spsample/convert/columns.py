"""The columns of a table that hold the ends and the weight of an edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from spsample.convert.options import ConvertOptions
from spsample.errors import InputError

_SOURCES = ("src", "source", "from", "u")
_TARGETS = ("dst", "target", "to", "v")


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
        source, target = _first_two(table, free, counts)
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
        raise InputError(
            argument=argument,
            given=f"{','.join(words)} for {table}, whose columns {', '.join(held)} have other numbers than names",
            expected="one reading",
            hint=f"Type --{argument} {','.join(map(str, by_name))} for the columns of these names.",
        )
    chosen = by_number if None in by_name and None not in by_number else by_name
    if None in chosen:
        chosen = [number if name is None else name for name, number in zip(by_name, by_number, strict=True)]
    for word, column in zip(words, chosen, strict=True):
        if column is None:
            described = f"{width} columns and no header" if names is None else f"the columns {', '.join(held)}"
            given = f"{word!r} for {table} with {described}"
            raise InputError(argument=argument, given=given, expected="a column of the table")
    return [column for column in chosen if column is not None]


def _first_two(table: str, free: list[int], counts: bool) -> tuple[int, int]:
    if counts and len(free) > 2:
        _refuse(
            table,
            f"no header and {len(free)} columns, of which the first counts the lines",
            f"--columns {free[0]},{free[1]} where it is the source, --columns {free[1]},{free[2]} where it is an index",
        )
    return (free[0], free[1]) if len(free) > 1 else (0, 1)  # a line of one column is refused later, by its number


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
    raise InputError(
        argument="columns",
        given=f"none for {table} with {given}",
        expected="the source and the target column",
        hint=f"Type {lines}.",
    )
