"""A case from its parameters to its file of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from spsample.comm import Communicator, broadcast_object, collective
from spsample.errors import DataError, InputError

from .case import Case, Value, Values, declared
from .machine import machine_facts
from .ranks import measure_on_ranks
from .records import Results
from .store_of import store_of
from .turns import OURS, Processes, Settings, cells_of, entries_of, measure


def run_case(
    name: str,
    parameters: dict[str, tuple[Value, ...]],
    cache: Path,
    out: Path,
    settings: Settings,
    comm: Communicator,
) -> Path:
    """Measure all cells that the file of results lacks; the file. Collective.

    Raises
    ------
    InputError
        If the file has results of another case, commit or machine.
    """
    case: Case = declared("cases", name)
    path = out / f"{name.replace('-', '_')}.jsonl"
    ranks = {"ranks": comm.size} if case.ranks else {}
    cells = _fitting(case, name, [{**cell, **ranks} for cell in cells_of(parameters)])
    with _results(path, name, comm) as results, Processes() as processes:
        for number, cell in enumerate(cells, 1):
            if broadcast_object(comm, partial(_is_done, results, case, cell, settings)):
                continue
            if comm.rank == 0:
                _say(f"{name}, cell {number} of {len(cells)}: {_words(cell, parameters)}")
            store = _store(cell, cache, comm)
            if comm.size > 1:
                line = measure_on_ranks(case, cell, store, comm, settings)
            else:
                line = measure(case, cell, store, processes, settings)
            if results is not None:
                results.add(line)
    return path


def _fitting(case: Case, name: str, cells: list[Values]) -> list[Values]:
    """The combinations of values that are cells."""
    fitting = [cell for cell in cells if case.valid is None or case.valid(cell)]
    if not fitting:
        values = ", ".join(f"{key} {value}" for key, value in cells[0].items())
        expected = "values that fit each other, as a replication that divides the number of ranks"
        raise InputError(argument="CASE", given=f"{name} with {values}", expected=expected)
    return fitting


@contextmanager
def _results(path: Path, name: str, comm: Communicator) -> Iterator[Results | None]:
    """The file, on rank 0; closed in the end."""
    results: Results | None = None
    with collective(comm, call="a look at the results"):
        if comm.rank == 0:
            results = Results(path, {"case": name, **machine_facts()})
    try:
        yield results
    finally:
        if results is not None:
            results.close()


def _store(cell: Values, cache: Path, comm: Communicator) -> Path:
    """That of the cell's graph, which every rank sees."""
    store = Path(broadcast_object(comm, partial(store_of, str(cell.get("graph", "rmat:10,8")), cache)))
    with collective(comm, call="a look at the store"):
        if not (store / "indptr.npy").is_file():
            raise DataError(argument="graph", given=f"{store}, not there", expected="a store that all ranks see")
    return store


def _is_done(results: Results | None, case: Case, cell: Values, settings: Settings) -> bool:
    """On rank 0, whether the file has what is wanted of a cell."""
    ours_alone = cell.get("ranks", 1) != 1
    entries = entries_of(case, cell, settings)
    sides = [entry.side.name for entry in entries if entry.peer is OURS or not ours_alone]
    return results is not None and results.has(cell, sides, 1 if case.exact else settings.rounds)


def _words(cell: Values, parameters: dict[str, Any]) -> str:
    """The values that vary."""
    return ", ".join(f"{key}={value}" for key, value in cell.items() if len(parameters.get(key, (0, 0))) > 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
