"""Run the benchmarks: `python bench/run.py --help`."""

from __future__ import annotations

import typer
from bulk_size import bulk_size

app = typer.Typer(help="Measurements of spsample. Each writes JSON lines and a plot into its --out folder.")
app.command()(bulk_size)


@app.callback()
def _group() -> None:
    """Keep the commands' names even while there is only one."""


if __name__ == "__main__":
    app()
