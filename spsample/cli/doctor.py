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
) -> None:
    """Tell what this machine has and lacks, and how to get it.

    Looks at Python, the compiled core, compiler, processor, threads, memory and its limits, MPI, Slurm, GPUs and CUDA
    libraries, torch and PyG, optional packages, and the folder of data sets. What is missing may well not be needed.
    The exit status is 0, and 1 if something that is installed does not work.

    Examples
    --------
    * `spsample doctor`
    * `spsample doctor --json > machine.json`
    """
    from spsample.cli.machine import survey

    findings = survey()
    broken = [finding.name for finding in findings if finding.status == "broken"]
    if as_json:
        print(json.dumps({"broken": broken, "findings": [finding.as_dict() for finding in findings]}, indent=2))
    else:
        _print(findings)
    if broken:
        raise typer.Exit(1)


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
