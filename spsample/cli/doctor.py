"""``spsample doctor``: what this machine has and lacks, and how to get it."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from spsample.cli.machine import Finding

__all__ = ["doctor"]

_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "broken": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of a table.")] = False,
    comm: Annotated[
        bool, typer.Option("--comm", help="Instead, check that all ranks of this launch exchange what they should.")
    ] = False,
    backend: Annotated[str, typer.Option(help="With --comm: auto, mpi, gloo, nccl or local.")] = "auto",
) -> None:
    """Tell what this machine has and lacks, and how to get it.

    Looks at Python, the compiled core, compiler, processor, threads, memory and its limits, MPI, Slurm, GPUs and CUDA
    libraries, torch and PyG, optional packages, and the folder of data sets. What is missing may well not be needed.
    The exit status is 0, and 1 if something that is installed does not work.

    With --comm, under mpirun, srun or torchrun, it checks the exchange between all ranks instead, and takes its latency
    and bandwidth.

    Examples
    --------
    * `spsample doctor`
    * `spsample doctor --json > machine.json`
    * `mpirun -n 4 spsample doctor --comm`
    """
    if comm:
        _check_ranks(backend, as_json)
        return
    from spsample.cli.machine import survey

    findings = survey()
    broken = [finding.name for finding in findings if finding.status == "broken"]
    if as_json:
        print(json.dumps({"broken": broken, "findings": [finding.as_dict() for finding in findings]}, indent=2))
    else:
        _print(findings)
    if broken:
        raise typer.Exit(1)


def _check_ranks(backend: str, as_json: bool) -> None:
    """Check the exchange between all ranks; rank 0 prints."""
    from spsample.comm import init
    from spsample.comm.check import check_ranks

    ranks = init(backend)
    found = check_ranks(ranks)
    if ranks.rank == 0:
        print(json.dumps(found.as_dict(), indent=2) if as_json else "\n".join(found.lines()), flush=True)
    ranks.close()


def _print(findings: list[Finding]) -> None:
    console = Console()
    for area, group in groupby(findings, key=lambda finding: finding.area):
        table = Table(title=area, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold", min_width=16)
        table.add_column(min_width=7)
        table.add_column(overflow="fold")
        for finding in group:
            text = Text(finding.detail)
            if finding.advice:
                text.append(f"\n{finding.advice}", style="italic")
            table.add_row(Text(finding.name), Text(finding.status, style=_STYLES[finding.status]), text)
        console.print(table)
        console.print()
