"""Output of the commands, and tables that keep every number at any width.

A table has words in its first column and numbers in the others, one unit a column, which its header names; nothing in
it is broken or shortened. Where a table is wider than the screen, its lines are longer than that.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from spsample.store.folder import system_errors, whole_file

_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_MAX_WIDTH = 10_000


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Standard output, or standard error; as wide as the screen, or of a given width."""
    return Console(stderr=stderr, highlight=False, width=width)


def has_bars(where: Console) -> bool:
    """Return whether bars can be shown: on a terminal that can do more than print line after line."""
    return where.is_terminal and not where.is_dumb_terminal


def print_json(facts: Any) -> None:
    """Print facts for programs, on standard output."""
    print(json.dumps(facts, indent=2), flush=True)


def write_facts(path: Path, facts: Any) -> None:
    """Write into a file what `print_json` prints."""
    with system_errors(path, "a file that can be written"), whole_file(path) as file:
        file.write((json.dumps(facts, indent=2) + "\n").encode())


def print_message(text: str) -> None:
    """A line on standard error, with the name of the program."""
    print(f"spsample: {text}", file=sys.stderr)


def print_line(text: str) -> None:
    """A line that is not broken, so that it can be copied and searched."""
    console().print(text, markup=False, soft_wrap=True)


def print_sentence(text: str) -> None:
    """A sentence, broken between words."""
    where = console()
    where.print(textwrap.fill(text, where.width, break_long_words=False), markup=False, soft_wrap=True)


def print_text(shown: RenderableType) -> None:
    """Words in columns, broken where they must be; then an empty line."""
    console().print(shown, "", sep="\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> None:
    """Print a table, wider than the screen rather than without some of its numbers; then an empty line.

    The first columns, `words` of them, have words, the others numbers. Headers of numbers take a line for each word; a
    unit stays on the line of what it is of: "time, ms". An empty row stands for a rule.
    """
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns[:words]:
        shown.add_column(name, no_wrap=True)
    for name in columns[words:]:
        shown.add_column(re.sub("(?<!,) ", "\n", name), justify="right", no_wrap=True)
    for row in rows:
        if row:
            shown.add_row(*row)
        else:
            shown.add_section()
    screen = console()
    needed = Measurement.get(screen, screen.options.update(max_width=_MAX_WIDTH), shown).maximum
    console(width=max(screen.width, needed)).print(shown, "", sep="\n")


def unit_for(sizes: Iterable[float]) -> str:
    """The unit in which the largest of some numbers of bytes is at least 1.

    Examples
    --------
    >>> unit_for([300, 5 * 2**20])
    'MiB'
    """
    largest = max(map(abs, sizes), default=0)
    return next((unit for unit, factor in _UNITS.items() if largest >= factor), "B")


def bytes_column(sizes: Sequence[float], unit: str) -> list[str]:
    """Numbers of bytes in one unit, to a hundredth of it; what is less than that to its first digit.

    Examples
    --------
    >>> bytes_column([300, 5 * 2**20, 0], "MiB")
    ['0.0003', '5.00', '0.00']
    """
    if unit == "B":
        return [f"{size:,.0f}" for size in sizes]
    return [_hundredths(size / _UNITS[unit]) for size in sizes]


def _hundredths(amount: float) -> str:
    digits = 2 if amount == 0 else max(2, -math.floor(math.log10(abs(amount))))
    return f"{amount:,.{digits}f}"
