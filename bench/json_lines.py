"""Files of JSON lines that grow: a measurement that was cut off has kept what it had, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """All lines; none where there is no file."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def append(path: Path, lines: Iterable[Line]) -> None:
    """After the others, in a file and folders that are made where they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
