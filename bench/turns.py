"""Cells on one process: each side has an interpreter of its own, and they take turns."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .case import Case, Peer, Side, Values, declared, names_in
from .process import FailedError, MissingError, SideProcess
from .records import Line

OURS = Peer("spsample", ("spsample",), {})


class Entry(NamedTuple):
    """A side with whose it is."""

    side: Side
    peer: Peer
    python: str


@dataclass(frozen=True)
class Settings:
    """How a case is run.

    Attributes
    ----------
    rounds : int
        After a discarded one.
    pythons : dict
        Interpreters that have a peer, by the name of its file.
    sides : tuple of str
        Those wanted, by the beginning of their names; none: all.
    """

    rounds: int = 5
    pythons: dict[str, str] = field(default_factory=dict)
    sides: tuple[str, ...] = ()

    def wants(self, side: Side) -> bool:
        """Whether the side is measured."""
        return not self.sides or side.name.startswith(self.sides)


def cells_of(parameters: dict[str, tuple[Any, ...]]) -> Iterator[Values]:
    """All combinations of the values, each once, those of the first parameter slowest."""
    for chosen in itertools.product(*map(dict.fromkeys, parameters.values())):
        yield dict(zip(parameters, chosen, strict=True))


def entries_of(case: Case, cell: Values, settings: Settings) -> list[Entry]:
    """Ours, and those of all peers that have the job of the cell."""
    entries, job = [Entry(side, OURS, sys.executable) for side in case.sides], case.job.format(**cell)
    for name in names_in("peers"):
        peer: Peer = declared("peers", name)
        variable = f"SPSAMPLE_BENCH_{name.upper()}_PYTHON"
        python = settings.pythons.get(name) or os.environ.get(variable) or sys.executable
        entries += [Entry(side, peer, python) for side in peer.jobs.get(job, ())]
    return [entry for entry in entries if settings.wants(entry.side)]


class Processes:
    """Those of the sides, which stay for all cells of a case; a context manager that ends them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[str, tuple[str, SideProcess]] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def of(self, entry: Entry, threads: int) -> SideProcess:
        """That of a side, started anew where it has ended or had other threads.

        Raises
        ------
        MissingError
            If it lacks packages.
        """
        environment = {"OMP_NUM_THREADS": str(threads), **entry.side.environment}
        how, process = self._running.get(entry.side.name, ("", None))
        if process is None or how != repr(environment):
            self.end(entry)
            process = self._stack.enter_context(SideProcess(entry.python, entry.peer.packages, environment))
            self._running[entry.side.name] = repr(environment), process
        return process

    def end(self, entry: Entry) -> None:
        """End the process of a side."""
        _, process = self._running.pop(entry.side.name, ("", None))
        if process is not None:
            process.close()


def measure(case: Case, cell: Values, store: Path, processes: Processes, settings: Settings) -> Line:
    """The line of a cell."""
    counted = _counted(case, cell, store, processes) if case.count else {}
    values, entries = {**cell, **counted}, entries_of(case, cell, settings)
    turns = [_Turns(entry, case, values, processes, store) for entry in entries]
    rounds = 1 if case.exact else settings.rounds + 1
    for number in range(rounds):
        for one in turns if number % 2 == 0 else reversed(turns):
            one.take(keep=case.exact or number > 0)
    return {"kind": "cell", "cell": cell, "sides": [one.record() for one in turns]}


def _counted(case: Case, cell: Values, store: Path, processes: Processes) -> dict[str, float]:
    """Figures of `Case.count`; none where it fails, as the sides that need them will."""
    side = Side("count", case.count)  # type: ignore[arg-type]  # asked before
    entry, figures = Entry(side, OURS, sys.executable), {}
    with suppress(FailedError, MissingError):
        process = processes.of(entry, int(cell.get("threads", 1)))
        process.prepare(side, store, cell)
        figures = process.run(side)["figures"]
    processes.end(entry)
    return figures


class _Turns:
    """What a side has done in a cell."""

    def __init__(self, entry: Entry, case: Case, cell: Values, processes: Processes, store: Path) -> None:
        self._entry, self._processes = entry, processes
        few = next((count for name, count in case.few.items() if entry.side.name.startswith(name)), None)
        values = {**cell, **entry.side.options}
        if few is not None:
            values["batches"] = min(few, int(values["batches"]))
        self._threads = int(values.get("threads", 1))
        self._says: dict[str, Any] = {"seconds": [], "cpu_seconds": [], "figures": {}}
        self._versions: dict[str, str] = {}
        try:
            process = processes.of(entry, self._threads)
            self._versions = process.versions
            process.prepare(entry.side, store, values)
        except (FailedError, MissingError) as error:
            self._fail(error)

    def take(self, *, keep: bool) -> None:
        """Do the work once, unless it failed before."""
        if "seconds" not in self._says:
            return
        try:
            done = self._processes.of(self._entry, self._threads).run(self._entry.side)
        except (FailedError, MissingError) as error:
            self._fail(error)
            return
        if keep:
            add_turn(self._says, done)

    def _fail(self, error: FailedError | MissingError) -> None:
        self._says = {"missing" if isinstance(error, MissingError) else "failed": str(error)}
        self._processes.end(self._entry)

    def record(self) -> Line:
        """For the line of the cell."""
        side, peer, _ = self._entry
        facts: Line = {"side": side.name, "peer": peer.title, "is_limit": peer.is_limit, "threads": self._threads}
        if "missing" not in self._says:
            facts["versions"] = self._versions
        return {**facts, **self._says}


def add_turn(says: dict[str, Any], done: dict[str, Any]) -> None:
    """Add seconds and figures of a turn to those of a side."""
    says["seconds"].append(done["seconds"])
    says["cpu_seconds"].append(done["cpu_seconds"])
    if "note" in done["figures"]:
        says["note"] = done["figures"].pop("note")
    for name, value in done["figures"].items():
        says["figures"].setdefault(name, []).append(value)
