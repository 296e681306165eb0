"""Output of the commands, and tables that keep every number at any width.

A table has words in its first column and numbers in the others; headers name their units. Nothing in it is broken or
shortened. Where a table is wider than the screen, its lines are longer than that.
"""

from __future__ import annotations

import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from spsample.store.folder import system_errors, whole_file

_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_BYTES = ", bytes"
_MAX_WIDTH = 10_000


def console(*, stderr: bool = False, width: int | None = None) -> Console:
    """Standard output, or standard error; as wide as the screen, or of a given width."""
    return Console(stderr=stderr, highlight=False, width=width)


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


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and what they are, in two columns, without those that are None; then an empty line."""
    shown = Table.grid(padding=(0, 2))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            shown.add_row(Text(name), value if isinstance(value, Text) else Text(str(value)))
    console().print(shown, "", sep="\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], words: int = 1) -> None:
    """Print a table, wider than the screen rather than without some of its numbers; then an empty line.

    The first columns, `words` of them, have words, the others numbers or what stands for one. Headers of numbers take a
    line for each word; a unit stays on the line of what it is of: "time, ms". Columns "of what, bytes" have one unit
    together, in which the largest of them is at least 1, and name it. An empty row stands for a rule.
    """
    table = [list(row) for row in rows]
    sized = [at for at, name in enumerate(columns) if name.endswith(_BYTES)]
    largest = max((row[at] for row in table if row for at in sized if not isinstance(row[at], str)), default=0)
    unit = next((unit for unit, factor in _UNITS.items() if largest >= factor), "B")
    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for at, name in enumerate(columns):
        header = f"{name.removesuffix(_BYTES)}, {unit}" if at in sized else name
        header = header if at < words else re.sub("(?<!,) ", "\n", header)
        shown.add_column(header, justify="left" if at < words else "right", no_wrap=True)
    for row in table:
        if row:
            shown.add_row(*(cell(value, unit if at in sized else "") for at, value in enumerate(row)))
        else:
            shown.add_section()
    screen = console()
    needed = Measurement.get(screen, screen.options.update(max_width=_MAX_WIDTH), shown).maximum
    console(width=max(screen.width, needed)).print(shown, "", sep="\n")


def cell(value: Any, unit: str = "") -> str:
    """A number as tables have it: to a hundredth, of small amounts of bytes to the first digit; words as they are.

    Examples
    --------
    >>> cell(1234), cell(1.0), cell(300, "MiB"), cell(5 * 2**20, "MiB"), cell(0, "MiB"), cell("-")
    ('1,234', '1.00', '0.0003', '5.00', '0.00', '-')
    """
    if isinstance(value, str):
        return value
    if unit == "B" or (not unit and isinstance(value, Integral)):
        return f"{value:,.0f}"
    amount = value / _UNITS[unit] if unit else value
    digits = 2 if amount == 0 or not unit else max(2, -math.floor(math.log10(abs(amount))))
    return f"{amount:,.{digits}f}"
