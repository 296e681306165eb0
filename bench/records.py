"""Results as JSON lines: the machine first, then a line for each cell, which is written when the cell is done.

A cell's line is ``{"kind": "cell", "cell", "sides": [...]}``; a side has ``seconds`` and ``cpu_seconds`` of each round,
lists of ``figures``, and ``threads``, ``peer`` and ``versions``, or says why it is ``missing`` or has ``failed``.
"""

from __future__ import annotations

import errno
import fcntl
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from spsample.errors import DataError, InputError

Line = dict[str, Any]
_DECIDING = ("case", "commit", "version", "processor", "instruction_set")
"""What results in one file have in common."""
_BEGINNING = b'{"kind": "machine"'


class Located(NamedTuple):
    """A line of a file, numbered from 1."""

    path: Path
    number: int
    line: Line


def read_lines(path: Path) -> list[Located]:
    """All whole lines; the rest of one that a killed run left is not one.

    Raises
    ------
    DataError
        If a line is no result.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    found: list[Located] = []
    for number, words in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            line = json.loads(words)
        except ValueError:
            line = None
        if not _is_result(line, first=number == 1):
            raise DataError(
                argument=str(path), given=f"line {number}: {words[:60]!r}", expected="results of a benchmark"
            )
        found.append(Located(path, number, line))
    return found


def _is_result(line: Any, *, first: bool) -> bool:
    """Whether it is the line of a machine, as the first is, or of a cell."""
    if not isinstance(line, dict):
        return False
    if line.get("kind") == "machine":
        return line.keys() >= {*_DECIDING, "caches"}
    return not first and isinstance(line.get("cell"), dict) and isinstance(line.get("sides"), list)


class Results:
    """The file of one case, which a run goes on with.

    Parameters
    ----------
    path : Path
        Made where it is missing.
    facts : dict
        Of the machine and the case.

    Raises
    ------
    InputError
        If the file has results of another case, commit or machine, or another run is writing it.
    DataError
        If it has something else.
    """

    def __init__(self, path: Path, facts: Line) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._lock()
        text, lines = path.read_bytes(), read_lines(path)
        if lines:
            self._require_same(lines[0].line, facts)
        elif not text.startswith(_BEGINNING[: len(text)]):
            raise DataError(argument="out", given=f"{path}, which has something else", expected="results, or no file")
        self._file.truncate(text.rfind(b"\n") + 1)  # what a killed run has begun
        if not lines:
            self._append({"kind": "machine", **facts})
        self._done = {_key(one.line["cell"]): one.line for one in lines if one.line["kind"] == "cell"}

    def has(self, cell: Line, sides: Iterable[str], rounds: int) -> bool:
        """Whether the cell is done: these sides, and those that were measured in as many rounds."""
        line = self._done.get(_key(cell), {"sides": []})
        found = {side["side"]: len(side["seconds"]) if "seconds" in side else rounds for side in line["sides"]}
        return bool(found) and all(found.get(name, 0) >= rounds for name in sides)

    def add(self, line: Line) -> None:
        """Write the line of a cell; it stands for one that the file may have of it."""
        self._append(line)
        self._done[_key(line["cell"])] = line

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def _append(self, line: Line) -> None:
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):  # file systems without locks
                return
            raise InputError(
                argument="out",
                given=f"{self.path}, which another run is writing",
                expected="a folder of its own for each run",
            ) from None

    def _require_same(self, header: Line, facts: Line) -> None:
        for name in _DECIDING:
            if header.get(name) != facts.get(name):
                raise InputError(
                    argument="out",
                    given=f"{self.path}, results of {name} {header.get(name)!r}",
                    expected=f"a new folder, or results of {name} {facts.get(name)!r}",
                    hint="Name another folder by --out, or remove the file.",
                )


def _key(cell: Line) -> str:
    return json.dumps(cell, sort_keys=True)
