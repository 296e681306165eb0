"""The process of a side, as the measurement sees it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from threading import Timer
from typing import Any

from .case import Side

MOST_SECONDS = 1800
"""That a side may take for one turn."""
WORKER = Path(__file__).with_name("worker.py")


class MissingError(RuntimeError):
    """The packages of a side are not installed, or its interpreter does not start."""


class FailedError(RuntimeError):
    """A side answered with an error, or its process ended."""


class SideProcess:
    """An interpreter of its own for one side; a context manager that ends it."""

    def __init__(self, python: str, packages: tuple[str, ...], environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER), ",".join(packages)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment},
            )
        except OSError as error:
            raise MissingError(f"{python}: {error.strerror}") from error
        self.versions = self._greeted()

    def prepare(self, side: Side, store: Path, values: Mapping[str, Any]) -> None:
        """Make its work ready."""
        task = f"{side.task.__module__.removeprefix(__package__ + '.')}:{side.task.__name__}"
        self._ask(do="prepare", name=side.name, task=task, store=str(store.resolve()), values=dict(values))

    def run(self, side: Side) -> dict[str, Any]:
        """Do it once."""
        return self._ask(do="run", name=side.name)

    def close(self) -> None:
        """End the process by ending its input."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def __enter__(self) -> SideProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _greeted(self) -> dict[str, str]:
        try:
            greeting = self._read()
        except FailedError as error:
            greeting = {"missing": str(error)}
        if "missing" in greeting:
            self.close()
            raise MissingError(greeting["missing"])
        versions: dict[str, str] = greeting["versions"]
        return versions

    def _ask(self, **command: Any) -> dict[str, Any]:
        with suppress(BrokenPipeError):  # then there is no answer either
            self._stdin.write(json.dumps(command) + "\n")
            self._stdin.flush()
        answer = self._read()
        if "missing" in answer:
            raise MissingError(answer["missing"])
        if "error" in answer:
            raise FailedError(answer["error"])
        return answer

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    @property
    def _stdout(self) -> Any:
        return self._process.stdout

    def _read(self) -> dict[str, Any]:
        late = Timer(MOST_SECONDS, self._process.kill)
        late.start()
        line = self._stdout.readline()
        late.cancel()
        if not line and self._process.wait() == -SIGKILL:
            raise FailedError(f"its process was killed: out of memory, or no answer in {MOST_SECONDS} s")
        if not line:
            raise FailedError(f"its process ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
