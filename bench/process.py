"""A peer's process, as the measurement sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Peer:
    """Something to compare with: its name for people, its module in `peers/`, and what tells its interpreter.

    Without `variable` it runs in this interpreter.
    """

    title: str
    module: str
    variable: str | None = None

    def interpreter(self, options: Mapping[str, str | None]) -> str | None:
        """The interpreter given for it, by option or environment variable; None where there is none."""
        if self.variable is None:
            return sys.executable
        return options.get(self.module) or os.environ.get(self.variable)

    def missing(self, reason: str | None = None) -> str:
        """What is said where it cannot be measured."""
        return f"{self.title}: missing ({reason or f'set {self.variable} to the Python that has it'})"


class PeerMissingError(RuntimeError):
    """The peer is not installed, or its interpreter does not start."""


class PeerFailedError(RuntimeError):
    """The peer answered with an error, or its process ended."""


class PeerProcess:
    """A worker process of one peer, started once; a context manager that ends it.

    `added` goes to its environment.
    """

    def __init__(self, peer: Peer, python: str, threads: int, added: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", **(added or {})}
        self.peer = peer
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER), peer.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=environment,
            )
        except OSError as error:
            raise PeerMissingError(peer.missing(f"{python}: {error.strerror}")) from error
        self.versions = self._greeted()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, by a crash say."""
        return self._process.poll() is not None

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        with suppress(BrokenPipeError):  # then there is no answer either
            self._stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise PeerFailedError(f"{self.peer.title}: {answer['error']}")
        return answer

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

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _greeted(self) -> dict[str, str]:
        """Versions of the peer's packages."""
        try:
            greeting = self._read()
        except PeerFailedError as error:
            greeting = {"missing": str(error)}
        if "missing" in greeting:
            self.close()
            raise PeerMissingError(self.peer.missing(greeting["missing"]))
        versions: dict[str, str] = greeting["versions"]
        return versions

    @property
    def _stdin(self) -> Any:
        return self._process.stdin

    @property
    def _stdout(self) -> Any:
        return self._process.stdout

    def _read(self) -> dict[str, Any]:
        line = self._stdout.readline()
        if not line:
            status = self._process.wait()
            raise PeerFailedError(f"{self.peer.title}: its process ended with status {status}")
        answer: dict[str, Any] = json.loads(line)
        return answer
