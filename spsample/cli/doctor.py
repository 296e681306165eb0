"""``spsample doctor``: software and hardware of this machine, what is missing, and how to get it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from spsample.cli.options import AsJson
from spsample.cli.screen import console, print_json, print_line, print_text
from spsample.errors import BackendError, require_module

if TYPE_CHECKING:
    from spsample.cli.machine import Finding

_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "broken": "bold red"}


def doctor(
    as_json: AsJson = False,
    comm: Annotated[
        bool, typer.Option("--comm", help="Instead, check that all ranks of this launch exchange what they should.")
    ] = False,
    backend: Annotated[str, typer.Option(help="With --comm: auto, mpi, gloo, nccl or local.")] = "auto",
    selftest: Annotated[
        str | None,
        typer.Option(help="Instead, run the checks of equal bulks on ranks: nccl (a rank for each GPU), gloo or mpi."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", min=1, help="With --selftest and no launcher: how many.")
    ] = None,
) -> None:
    """List what this machine has and lacks, and how to get it.

    It is what a bug report needs: Python, the compiled core and its threads, processor, memory, MPI, GPUs, optional
    packages, and the folder of data sets. What is missing may well not be needed.
    The exit status is 0, and 1 if something that is installed does not work.

    With --comm, under mpirun, srun or torchrun, it checks the exchange between all ranks instead, and takes its latency
    and bandwidth.

    With --selftest, all ranks run exchanges of every kind, on the host and on their GPUs, and bulks of replicated and
    partitioned graphs on every process grid, which are compared with those of one process. Under no launcher it starts
    the ranks itself.

    Examples
    --------
    * `spsample doctor`
    * `spsample doctor --json > machine.json`
    * `mpirun -n 4 spsample doctor --comm`
    * `spsample doctor --selftest nccl`
    """
    if selftest is not None:
        _self_test(selftest, ranks)
    elif comm:
        _check_ranks(backend, as_json)
    else:
        _survey(as_json)


def _survey(as_json: bool) -> None:
    """Look at this machine; print the findings."""
    from spsample.cli.machine import survey

    with console(stderr=True).status("looking at this machine") as status:
        findings = survey(lambda package: status.update(f"looking at this machine: {package}"))
    broken = [finding.name for finding in findings if finding.status == "broken"]
    if as_json:
        print_json({"broken": broken, "findings": [asdict(finding) for finding in findings]})
    else:
        _print(findings)
    if broken:
        raise typer.Exit(1)


def _check_ranks(backend: str, as_json: bool) -> None:
    """Check the exchange between all ranks; rank 0 prints."""
    from spsample.comm import init
    from spsample.comm.check import check_ranks

    ranks = init(backend)
    checked = check_ranks(ranks)
    if ranks.rank == 0:
        if as_json:
            print_json(asdict(checked))
        else:
            print("\n".join(checked.lines()), flush=True)
    ranks.close()


def _self_test(backend: str, ranks: int | None) -> None:
    """Run the self-test on the ranks that there are, or on ranks of its own."""
    from spsample.comm import init
    from spsample.comm.launch import detect
    from spsample.common.checks import require_choice
    from spsample.distributed.selftest import selftest

    require_choice("--selftest", backend, ("nccl", "gloo", "mpi"))
    if not detect().launcher:
        from spsample.cli.launch import ranks_environment, run_ranks, with_launcher

        count = _ranks_for(backend) if ranks is None else ranks
        line = [sys.executable, "-m", "spsample.cli.main", "doctor", "--selftest", backend]
        launcher = with_launcher(line, count, "mpi" if backend == "mpi" else "gloo")
        raise typer.Exit(run_ranks(launcher, ranks_environment(count)))
    comm = init(backend)
    count = selftest(comm, lambda line: print(line, flush=True), needs_device=backend == "nccl")
    if comm.rank == 0:
        print(f"{comm.size} ranks over {comm.name}: all {count} comparisons are right", flush=True)
    comm.close()


def _ranks_for(backend: str) -> int:
    """One for each GPU with NCCL, else four."""
    if backend != "nccl":
        return 4
    torch = require_module("torch", needed_for="spsample doctor --selftest nccl", extra="pyg")
    gpus = int(torch.cuda.device_count()) if torch.cuda.is_available() else 0
    if gpus == 0:
        raise BackendError(
            "spsample doctor --selftest nccl needs GPUs, and torch finds none; --selftest gloo needs none."
        )
    return gpus


def _print(findings: list[Finding]) -> None:
    for area, group in groupby(findings, key=lambda finding: finding.area):
        print_line(area)
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_column(style="bold", min_width=16)
        table.add_column(min_width=7)
        table.add_column(overflow="fold")
        for finding in group:
            text = Text(finding.detail)
            if finding.advice:
                text.append(f"\n{finding.advice}", style="italic")
            table.add_row(Text(finding.name), Text(finding.status, style=_STYLES[finding.status]), text)
        print_text(table)
