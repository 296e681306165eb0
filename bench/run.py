"""A case from its parameters to its file of results."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

from spsample.comm import Communicator, broadcast_object, collective
from spsample.errors import DataError

from .case import Case, Value, Values, declared
from .machine import machine_facts
from .ranks import measure_on_ranks
from .records import Results
from .store_of import store_of
from .turns import Processes, Settings, cells_of, measure


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
    results = broadcast_object(comm, lambda: Results(path, {"case": name, **machine_facts()}))
    ranks = {"ranks": comm.size} if case.ranks else {}
    cells: list[Values] = [{**cell, **ranks} for cell in cells_of(parameters)]
    cells = [cell for cell in cells if case.valid is None or case.valid(cell)]
    with Processes() as processes:
        for number, cell in enumerate(cells, 1):
            if results.has(cell):
                continue
            if comm.rank == 0:
                _say(f"{name}, cell {number} of {len(cells)}: {_words(cell, parameters)}")
            store = Path(broadcast_object(comm, partial(store_of, str(cell.get("graph", "rmat:10,8")), cache)))
            with collective(comm, call="a look at the store"):
                if not (store / "indptr.npy").is_file():
                    raise DataError(
                        argument="graph", given=f"{store}, not there", expected="a store that all ranks see"
                    )
            if comm.size > 1:
                line = measure_on_ranks(case, cell, store, comm, settings)
            else:
                line = measure(case, cell, store, processes, settings)
            if comm.rank == 0:
                results.add(line)
    return path


def _words(cell: Values, parameters: dict[str, Any]) -> str:
    """The values that vary."""
    return ", ".join(f"{key}={value}" for key, value in cell.items() if len(parameters.get(key, (0, 0))) > 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
