"""Which columns of a table hold the ends and the weight of an edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from spsample.convert.options import ConvertOptions
from spsample.errors import InputError

__all__ = ["EdgeColumns", "edge_columns", "named_ends"]

_SOURCES = ("src", "source", "from", "u")
_TARGETS = ("dst", "target", "to", "v")


class EdgeColumns(NamedTuple):
    """Numbers of the columns, from 0; weight -1 stands for none."""

    source: int
    target: int
    weight: int = -1


def named_ends(names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the columns whose names say that they hold sources, and those that hold targets.

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

    Those that the options name; else those whose names say so; else the two that there are besides the weights; else
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
        What the user says of columns and weights.
    counts
        Whether the first column is 0, 1, 2, ... or 1, 2, 3, ..., as an index is.

    Raises
    ------
    InputError
        If a column is not there, or more than one choice is possible.
    """
    weight = -1 if options.weights is None else _numbers(table, names, width, "weights", [options.weights])[0]
    if options.columns is not None:
        source, target = _numbers(table, names, width, "columns", options.columns)
    elif names is None:
        source, target = _first_two(table, [i for i in range(width) if i != weight], counts)
    else:
        source, target = _by_name(table, names, [i for i in range(width) if i != weight])
    if len({source, target, weight}) < 3:
        given = f"the columns {source} and {target} of {table}, and {weight} for the weights"
        raise InputError(argument="columns", given=given, expected="a column for each")
    return EdgeColumns(source, target, weight)


def _numbers(table: str, names: Sequence[str] | None, width: int, argument: str, words: Sequence[str]) -> list[int]:
    """Columns by their names, or else by their numbers."""
    held = [] if names is None else list(names)
    twice = [word for word in words if held.count(word) > 1]
    if twice:
        given = f"{twice[0]!r} for {table}, where {held.count(twice[0])} columns have that name"
        raise InputError(argument=argument, given=given, expected="the number of a column, from 0")
    by_number = [int(word) if word.isdigit() and int(word) < width else None for word in words]
    by_name = [held.index(word) if word in held else None for word in words]
    if None not in by_name and None not in by_number and by_name != by_number:
        given = f"{','.join(words)} for {table}, whose columns {', '.join(held)} have other numbers than names"
        raise InputError(argument=argument, given=given, expected="names that are no numbers, in the table too")
    chosen = by_name if None not in by_name else by_number
    if None in chosen:
        chosen = [number if name is None else name for name, number in zip(by_name, by_number, strict=True)]
    for word, column in zip(words, chosen, strict=True):
        if column is None:
            found = f"{width} columns and no header" if names is None else f"the columns {', '.join(held)}"
            raise InputError(
                argument=argument, given=f"{word!r} for {table} with {found}", expected="a column of the table"
            )
    return [column for column in chosen if column is not None]


def _first_two(table: str, free: list[int], counts: bool) -> tuple[int, int]:
    if counts and len(free) > 2:
        _refuse(
            table,
            f"no header and {len(free)} columns, of which the first counts the lines",
            f"--columns {free[0]},{free[1]} where it is the source, --columns {free[1]},{free[2]} where it is an index",
        )
    return (free[0], free[1]) if len(free) > 1 else (0, 1)  # a line of one column is no edge: its number is told


def _by_name(table: str, names: Sequence[str], free: list[int]) -> tuple[int, int]:
    sources, targets = named_ends(names)
    if len(sources) == 1 and len(targets) == 1:
        return sources[0], targets[0]
    turned = targets == free[:1] or sources == free[1:2]
    if len(free) == 2 and len(sources) < 2 and len(targets) < 2 and not turned:
        return free[0], free[1]
    given = f"the columns {', '.join(names[i] for i in free)}"
    if len(free) < 2:
        raise InputError(argument="columns", given=f"{given} for {table}", expected="a source and a target column")
    ends = [(source, target) for source in sources for target in targets] or [(free[0], free[1])]
    lines = [f"--columns {names[source]},{names[target]}" for source, target in ends]
    _refuse(table, given, " or ".join(lines) if sources and targets else f"{lines[0]}, or whichever two they are")


def _refuse(table: str, given: str, lines: str) -> NoReturn:
    raise InputError(
        argument="columns",
        given=f"none for {table} with {given}",
        expected="the source and the target column",
        hint=f"Type {lines}.",
    )
