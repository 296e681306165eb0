"""``spsample bench``: a command for each case, and those for all of them, reports, comparisons and papers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from spsample.comm import Communicator, LocalCommunicator, all_gather_object, broadcast_object, collective, init
from spsample.comm.launch import detect
from spsample.errors import InputError

from .case import Case, Value, declared, names_in, unknown
from .records import read_lines
from .run import run_case
from .turns import Settings, cells_of, entries_of

_OTHERS = ("all", "compare", "paper", "report")


def _shared() -> list[click.Option]:
    """Options of every measurement."""
    return [
        click.Option(["--rounds"], type=click.IntRange(1), help="After a discarded one.  [default: 5, quick: 3]"),
        click.Option(["--side", "sides"], multiple=True, help="Only sides whose names begin so; may be repeated."),
        click.Option(["--python", "pythons"], multiple=True, help="PEER=INTERPRETER that has a peer; may be repeated."),
        click.Option(["--graph-cache"], type=Path, help="Folder that keeps graphs which are no stores yet."),
        click.Option(["--out"], type=Path, default=Path("results"), show_default=True, help="Folder of the results."),
        click.Option(["--quick"], is_flag=True, help="On small graphs."),
    ]


class Bench(click.Group):
    """All cases by their names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Cases, then the others."""
        return [*_cases(), *_OTHERS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """One of them."""
        if name in _OTHERS:
            return self.commands[name]
        if name not in _cases():
            raise unknown("COMMAND", name, self.list_commands(ctx))
        return case_command(name)


def _cases() -> list[str]:
    return [name.replace("_", "-") for name in names_in("cases")]


def case_command(name: str) -> click.Command:
    """The command of a case: an option for each of its parameters."""
    case: Case = declared("cases", name)

    def run(simulate: int = 0, **given: Any) -> None:
        how = {option: given.pop(option) for option in ("rounds", "sides", "pythons", "graph_cache", "out", "quick")}
        chosen = {parameter: values for parameter, values in given.items() if values}
        if simulate:
            run_and_report({case.simulation: _simulated(case.simulation, chosen, simulate)}, **how)
        else:
            run_and_report({name: chosen}, **how)

    options = [_option(parameter, values) for parameter, values in case.parameters.items()]
    if case.simulation:
        text = f"In place of a run: the case {case.simulation} with up to P ranks."
        options.append(click.Option(["--simulate"], type=click.IntRange(4), metavar="P", help=text))
    help_text = f"{case.about}\n\n{case.claim}" + ("\n\nAlso under mpirun, srun and torchrun." if case.ranks else "")
    return click.Command(name, callback=run, params=[*options, *_shared()], help=help_text, short_help=case.about)


def _simulated(name: str, chosen: dict[str, Any], most: int) -> dict[str, Any]:
    """The parameters that a simulation shares with the case that it goes on with."""
    shared = {key: values for key, values in chosen.items() if key in declared("cases", name).parameters}
    return {**shared, "ranks": tuple(sorted({most, *(2**i for i in range(2, most.bit_length()))}))}


def _option(name: str, values: tuple[Value, ...]) -> click.Option:
    """Numbers stand between commas; words may be repeated."""
    kind = type(values[0])
    default = " ".join(map(str, values)) if kind is str else ",".join(map(str, values))
    flag = f"--{name.replace('_', '-')}"
    if kind is str:
        return click.Option([flag, name], multiple=True, help=f"May be repeated.  [default: {default}]")
    return click.Option([flag, name], type=_Numbers(kind, int(name == "threads")), help=f"[default: {default}]")


class _Numbers(click.ParamType):
    """Numbers between commas."""

    name = "numbers"

    def __init__(self, kind: Callable[[str], Value], least: int) -> None:
        self._kind, self._least = kind, least

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Value, ...]:
        """The numbers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(self._kind(word) for word in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(self._least <= number < float("inf") for number in numbers):  # type: ignore[operator]
            self.fail(f"{value!r} is no list of numbers, none below {self._least}, as 1,2,4", param, ctx)
        return numbers


def run_and_report(wanted: dict[str, dict[str, Any]], *, out: Path, **how: Any) -> None:
    """Run cases with some of their parameters, print their tables, and write the page; collective."""
    pythons = dict(_pair(words) for words in how["pythons"])
    settings = Settings(how["rounds"] or (3 if how["quick"] else 5), pythons, tuple(how["sides"]))
    with ExitStack() as stack:
        comm: Communicator = LocalCommunicator()
        if detect().size > 1:
            comm = stack.enter_context(_closing(init()))
        _require_sides(settings.sides, wanted)
        _require_same(comm, f"{wanted}, {settings}, {how}, out={out}")
        cache = how["graph_cache"]
        if cache is None:
            cache = Path(broadcast_object(comm, lambda: stack.enter_context(tempfile.TemporaryDirectory())))
        files = []
        for name, chosen in wanted.items():
            case: Case = declared("cases", name)
            with collective(comm):
                if comm.size > 1 and not case.ranks:
                    _refuse_ranks(name, comm.size)
            given = {**case.parameters, **(case.quick if how["quick"] else {}), **chosen}
            files.append(run_case(name, given, cache, out, settings, comm))
        if comm.rank == 0:
            _print_and_write(files, out)
        comm.barrier()
        failed = broadcast_object(comm, lambda: any(map(_has_failed, files)))
    if failed:
        raise click.exceptions.Exit(1)


def _has_failed(path: Path) -> bool:
    """Whether a side of ours has."""
    sides = [side for _, _, line in read_lines(path) for side in line.get("sides", ())]
    return any("failed" in side and side["peer"] == "spsample" for side in sides)


def _require_sides(beginnings: Iterable[str], wanted: dict[str, dict[str, Any]]) -> None:
    """Refuse the beginning of a name that no side has in any of the cases."""
    known: dict[str, None] = {}
    for name, chosen in wanted.items() if beginnings else ():
        case: Case = declared("cases", name)
        for cell in cells_of({**case.parameters, **chosen}):
            known |= {entry.side.name: None for entry in entries_of(case, cell, Settings())}
    for beginning in beginnings:
        if not any(name.startswith(beginning) for name in known):
            raise unknown("side", beginning, list(known))


def _require_same(comm: Communicator, given: str) -> None:
    """Refuse ranks that were given other arguments, which would wait for each other."""
    others = [rank for rank, told in enumerate(all_gather_object(comm, given)) if told != given]
    with collective(comm):
        if others and comm.rank == 0:
            raise InputError(argument="CASE", given=f"other arguments on rank {others[0]}", expected="the same on all")


def _refuse_ranks(name: str, ranks: int) -> None:
    able = ", ".join(one for one in _cases() if declared("cases", one).ranks)
    raise InputError(argument="CASE", given=f"{name} on {ranks} ranks", expected=f"one process, or one of {able}")


def _print_and_write(files: list[Path], out: Path) -> None:
    from rich.markup import escape
    from rich.table import Table

    from .report import write_report
    from .tables import missing_in, shown, table_of

    console = Console(width=max(Console().width, 120), height=100)  # a dumb terminal has both or 80
    for path in files:
        table = table_of([path])
        if table.empty:
            continue
        case: Case = declared("cases", table["case"].iloc[0])
        plotted = [name for plot in case.plots for name in plot.figures]
        picked = shown(table, case.parameters, plotted).drop(columns=["line", "spread"], errors="ignore")
        made = Table(*map(escape, picked.columns), title=escape(str(path)))
        for row in picked.itertuples(index=False):
            made.add_row(*map(escape, row))
        console.print(made)
    for words in missing_in(files):
        console.print(words, markup=False)
    write_report(files, out / "report.html")
    console.print(f"{out / 'report.html'}: open it in a browser", markup=False)


class _closing:  # noqa: N801  (as contextlib's)
    """Closes a communicator, also after an error; one that is this rank's alone ends the others, too."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def __enter__(self) -> Communicator:
        return self._comm

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and getattr(error, "raised_by", None) is None:
            self._comm.abort(f"spsample: rank {self._comm.rank}: error: {error}")
        self._comm.close()


def _pair(words: str) -> tuple[str, str]:
    name, _, python = words.partition("=")
    if name not in names_in("peers"):
        raise unknown("python", name, names_in("peers"))
    if not python:
        raise InputError(argument="python", given=repr(words), expected="PEER=INTERPRETER, as dgl=build/dgl/bin/python")
    return name, python


bench = Bench("bench", help="Measurements of spsample, beside other libraries and the limits of the machine.")


def _all(**how: Any) -> None:
    ranks = detect().size > 1
    run_and_report({name: {} for name in _cases() if declared("cases", name).ranks or not ranks}, **how)


bench.add_command(click.Command("all", callback=_all, params=_shared(), help="Every case, and one report."))


@bench.command()
@click.argument("folders", nargs=-1, type=Path, required=True)
@click.option("--out", type=Path, default=Path("report.html"), show_default=True, help="The page.")
def report(folders: Iterable[Path], out: Path) -> None:
    """One page of the results in some folders or files."""
    from .report import write_report

    files = [file for one in folders for file in (sorted(one.glob("*.jsonl")) if one.is_dir() else [one])]
    absent = [str(file) for file in files if not file.is_file()]
    if absent or not files:
        raise InputError(
            argument="FOLDERS", given=", ".join(absent) or "no results", expected="folders with .jsonl files"
        )
    write_report(files, out)
    click.echo(f"{out}: open it in a browser")


@bench.command()
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--counts", is_flag=True, help="Only counts, which are the same on any machine.")
def compare(before: Path, after: Path, counts: bool) -> None:
    """What AFTER does worse than BEFORE: times beyond the noise, bytes, messages, faults. Exit status 1 if anything."""
    from .compare import differences, only_in

    found = [one for one in differences(before, after) if not counts or one.figure != "time"]
    for path, other in ((before, after), (after, before)):
        alone = only_in(path, other)
        if alone:
            click.echo(f"only in {path}: {len(alone)} sides of cells, as {alone[0]}")
    for one in found:
        word = "worse" if one.is_worse else "better"
        ratio = one.after / one.before if one.before else float("inf")
        click.echo(f"{word}: {one.where}: {one.figure} {one.before:.6g} -> {one.after:.6g} ({ratio:.3f})")
    if not found:
        click.echo("no difference beyond the noise")
    if any(one.is_worse for one in found):
        raise click.exceptions.Exit(1)


@bench.command()
@click.argument("name")
@click.pass_context
def paper(ctx: click.Context, name: str, **how: Any) -> None:
    """The figures of a paper: tripathy, gnnlab, data-tiering, pagraph or song-jiang."""
    from .paper import run_paper

    run_paper(name, **how)


paper.params += [click.Option(["--graph"], multiple=True, help="In place of the figures' own."), *_shared()]
