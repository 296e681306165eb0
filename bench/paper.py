"""The figures of a paper: cases with the parameters, the ranks and the pictures that the paper has."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spsample.errors import DataError

from .case import Case, Plot, Value, declared
from .report import Section, write_report
from .tables import table_of


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    Attributes
    ----------
    title : str
        Its number there, and what it shows.
    text : str
        What to look for, and where the paper has something else, and why.
    case : str
    parameters, quick : dict
        Of the case, in place of its own; with ``--quick`` the second on top.
    ranks : tuple of int
        Numbers of ranks that are launched on this machine, one after the other.
    sides : tuple of str
        Beginnings of the names of the sides that are measured; none: all.
    plots : tuple of Plot
        In place of the case's.
    """

    title: str
    text: str
    case: str
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    quick: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    ranks: tuple[int, ...] = (1,)
    sides: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class Paper:
    """One file in `papers/`, which names it ``PAPER``."""

    title: str
    figures: tuple[Figure, ...]


def run_paper(
    name: str, *, out: Path, graph_cache: Path | None, quick: bool, graph: tuple[str, ...], **how: Any
) -> None:
    """Run what the figures of a paper need, each in a folder of its own, and write one page.

    Raises
    ------
    InputError
        If there is no such paper.
    DataError
        If a run ends with an error.
    """
    paper: Paper = declared("papers", name)
    folder = out / name
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        cache = graph_cache or Path(scratch)
        sections, files = [], []
        for number, figure in enumerate(paper.figures, 1):
            print(f"{name}: {figure.title}", file=sys.stderr, flush=True)
            where = folder / f"{number:02d}"
            for ranks in figure.ranks:
                words = list(_options(figure, quick=quick, graph=graph, **how))
                _run(ranks, [figure.case, *words, "--graph-cache", str(cache), "--out", str(where)])
            path = where / f"{figure.case.replace('-', '_')}.jsonl"
            case: Case = declared("cases", figure.case)
            plots = figure.plots or case.plots
            sections.append(Section(figure.title, figure.text, table_of([path]), tuple(case.parameters), plots))
            files.append(path)
    write_report(files, folder / "report.html", sections, paper.title)
    print(f"{folder / 'report.html'}: open it in a browser")


def _options(figure: Figure, *, quick: bool, graph: tuple[str, ...], **how: Any) -> Iterator[str]:
    """Those of the case's command."""
    given = {**figure.parameters, **(figure.quick if quick else {}), **({"graph": graph} if graph else {})}
    for name, values in given.items():
        flag = f"--{name.replace('_', '-')}"
        for word in map(str, values) if isinstance(values[0], str) else [",".join(map(str, values))]:
            yield from (flag, word)
    for flag, words in (("--side", figure.sides), ("--python", how["pythons"])):
        for word in words:
            yield from (flag, word)
    if how["rounds"]:
        yield from ("--rounds", str(how["rounds"]))
    if quick:
        yield "--quick"


def _run(ranks: int, words: list[str]) -> None:
    launch = ["launch", "-n", str(ranks)] if ranks > 1 else []
    command = [sys.executable, "-m", "spsample.cli.main", *launch, "bench", *words]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode:
        shown = f"spsample {' '.join(command[3:])}"
        raise DataError(argument=shown, given=f"exit status {done.returncode}", expected="a run to its end")
