"""Run the benchmarks: `python bench/run.py --help`."""

from __future__ import annotations

import typer
from bulk_size import bulk_size
from sampling import sampling

app = typer.Typer(help="Measurements of spsample. Each writes JSON lines and a plot into its --out folder.")
app.command()(bulk_size)
app.command()(sampling)


if __name__ == "__main__":
    app()
