"""Measure on a GPU: `python bench/gpu/run.py --help`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

sys.path[0] = str(Path(__file__).resolve().parents[1])

from gpu.epoch import epoch
from gpu.features import features
from gpu.hot_share import hot_share
from gpu.kernel_times import kernels
from gpu.sampling import layerwise, sampling, show
from gpu.summary import read
from gpu.zero_copy import zero_copy

app = typer.Typer(help="Measurements on a GPU; see bench/gpu/README.md. Each writes JSON lines into its --out folder.")
app.command()(sampling)
app.command()(layerwise)
app.command("zero-copy")(zero_copy)
app.command()(epoch)
app.command()(features)
app.command("hot-share")(hot_share)
app.command()(kernels)


@app.command("report")
def report(files: Annotated[list[Path], typer.Argument(help="Files of JSON lines that were recorded.")]) -> None:
    """The tables of recorded results."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    for file in files:
        show(read(file), console)


@app.command("all")
def all_(
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("bench/results"),
    graph_cache: Annotated[Path, typer.Option(help="Folder that keeps generated graphs.")] = Path("build/graphs"),
) -> None:
    """Every measurement at its full size. What fails is named at the end, and the others go on."""
    failed = []
    for measure in (sampling, layerwise, features, hot_share, epoch, zero_copy):
        options = {} if measure is zero_copy else {"graph_cache": graph_cache}
        try:
            measure(out=out, **options)
        except Exception as error:  # whatever a library raises: the other measurements are not lost
            failed.append(f"{measure.__name__}: {type(error).__name__}: {error}")
    for text in failed:
        print(text, file=sys.stderr)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
