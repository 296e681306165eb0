"""One thing that was looked for, and how others are asked without waiting for them for ever."""

from __future__ import annotations

import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Finding", "Status", "ask", "read_text"]

Status = Literal["ok", "missing", "warning", "broken"]
"""Broken: it is installed and does not work. Missing: it is not there, which may be fine."""


@dataclass(frozen=True)
class Finding:
    """What was found about one thing.

    Attributes
    ----------
    area
        The part of the machine, such as "memory".
    name
        The thing.
    status
        "ok", "missing", "warning" or "broken".
    detail
        What was found: a version, a size.
    advice
        How to get it or repair it; empty where nothing is to be done.
    """

    area: str
    name: str
    status: Status
    detail: str
    advice: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)


def ask(command: list[str], seconds: float = 10.0) -> str | None:
    """Return what a program prints, or None if it is missing, fails, or does not answer in time.

    Examples
    --------
    >>> ask(["a-program-that-nobody-has"]) is None
    True
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or done.stderr.strip() if done.returncode == 0 else None


def read_text(path: str | Path) -> str:
    """Return what a file of the system says, or an empty string.

    Examples
    --------
    >>> read_text("/nowhere/at/all")
    ''
    """
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""
