"""One thing that was looked for, and how others are asked without waiting for them for ever."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Finding", "Status", "ask", "find_program", "finished", "read_text"]

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


def ask(command: list[str], seconds: float = 10.0) -> str | None:
    """Return what a program prints, or None if it is missing, fails, or does not answer in time.

    Examples
    --------
    >>> ask(["a-program-that-nobody-has"]) is None
    True
    """
    try:
        done = finished(command, seconds)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or done.stderr.strip() if done.returncode == 0 else None


def find_program(name: str) -> str | None:
    """The path of a program beside the running Python, such as those that pip installed with it, else of PATH.

    Examples
    --------
    >>> find_program("a-program-that-nobody-has") is None
    True
    """
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def finished(
    command: list[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program that reads nothing, to its end or for a number of seconds; its output is captured.

    Raises
    ------
    OSError, ValueError
        If it cannot be started.
    subprocess.TimeoutExpired
        If it does not end in time; it is killed.

    Examples
    --------
    >>> import sys
    >>> finished([sys.executable, "-c", "print(1)"], 60).stdout.strip()
    '1'
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


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
