"""Write the tables of docs/traffic.md anew from the figures beside it.

    python bench/traffic_page.py docs/benchmarks/traffic.jsonl docs/traffic.md

A table is what stands between `<!-- NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from traffic import BASELINES, KIB, Line, by_cell, fit, mib, of_model, ratio, read, sampling_bytes
from traffic_cells import VARIANTS

SHORT = {
    name: name.removeprefix("column, ").replace("8 MiB", "with 8 MiB").replace("64 MiB", "64") for name in VARIANTS
}
FEATURE_COLUMNS = ("received, mean", "received, most", "sent, most", "1 - c/p", "model / recorded")


def sampling_rows(lines: list[Line]) -> Iterable[list[str]]:
    """MiB received per rank by cell and variant, ratios of `column`, and how near the model is."""
    yield [
        *("graph", "sampler", "k", "c"),
        *SHORT.values(),
        *("column / stages", "/ distinct", "/ split", "most: column / stages", "model / recorded"),
    ]
    models = by_cell(lines, "modelled")
    for at, variants in by_cell(lines, "recorded").items():
        sizes = {name: sampling_bytes(line["phases"]) for name, line in variants.items()}
        most = {name: sampling_bytes(line["phases"], "received_max") for name, line in variants.items()}
        yield [
            *map(str, at),
            *(mib(sizes.get(name)) for name in VARIANTS),
            *(ratio(sizes.get("column"), sizes.get(name)) for name in BASELINES),
            ratio(most.get("column"), most.get("stages")),
            fit(models.get(at, {}).get("all"), variants),
        ]


def feature_rows(lines: list[Line]) -> Iterable[list[str]]:
    """MiB of features per rank, of the largest bulks."""
    yield ["graph", "sampler", "c", *FEATURE_COLUMNS]
    models = by_cell(lines, "modelled")
    cells = by_cell(lines, "recorded")
    largest = max((k for _, _, k, _ in cells), default=0)
    for at, variants in cells.items():
        graph, sampler, k, c = at
        phases = variants.get("column", {}).get("phases", {})
        if k != largest or "features" not in phases:
            continue
        moved, model = phases["features"], models.get(at, {}).get("all")
        share = 1 - c / variants["column"]["ranks"]
        ratios = of_model(model, "column", variants["column"]) if model else {}
        sizes = (mib(moved[name]) for name in ("received_mean", "received_max", "sent_max"))
        near = f"{ratios['features']:.3f}" if "features" in ratios else ""
        yield [graph, sampler, str(c), *sizes, f"{share:g}", near]


def phase_rows(lines: list[Line]) -> Iterable[list[str]]:
    """The model over what was recorded by phase, of all cells and variants in which it has at least a KiB."""
    yield ["phase", "cells", "least", "a 20th is below", "median", "a 20th is above", "most"]
    models = by_cell(lines, "modelled")
    found: dict[str, list[float]] = {}
    for at, variants in by_cell(lines, "recorded").items():
        model = models.get(at, {}).get("all")
        for name, line in variants.items() if model else ():
            for phase, one in of_model(model, name, line).items():
                if line["phases"][phase]["received_mean"] >= KIB:
                    found.setdefault(phase, []).append(one)
    for phase, ratios in sorted(found.items()):
        spread = np.quantile(ratios, [0, 0.05, 0.5, 0.95, 1])
        yield [phase, str(len(ratios)), *(f"{one:.3f}" for one in spread)]


def markdown(rows: Iterable[list[str]]) -> str:
    """A table; the first row is its head."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def with_table(page: str, name: str, table: str) -> str:
    """The page with another table between its marks.

    Examples
    --------
    >>> print(with_table("<!-- a -->old<!-- end of a -->", "a", "| x |"))
    <!-- a -->
    <BLANKLINE>
    | x |
    <BLANKLINE>
    <!-- end of a -->
    """
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = f"{first}\n\n{table}\n\n{last}"
    made, number = re.subn(f"{re.escape(first)}.*?{re.escape(last)}", lambda _: text, page, flags=re.DOTALL)
    if number != 1:
        raise SystemExit(f"the page has {number} places for a table {name!r}, not one: {first} ... {last}")
    return made


def main(
    figures: Annotated[Path, typer.Argument(help="traffic.jsonl")],
    page: Annotated[Path, typer.Argument(help="The Markdown page.")],
) -> None:
    """Put the tables of the figures into the page."""
    lines = read(figures)
    text = page.read_text(encoding="utf-8")
    tables = {"sampling": sampling_rows, "features": feature_rows, "phases": phase_rows}
    for name, rows in tables.items():
        text = with_table(text, name, markdown(rows(lines)))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
