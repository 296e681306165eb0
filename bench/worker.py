"""A peer's process: reads one JSON command a line, answers one JSON line each, until its input ends.

`python worker.py MODULE` imports `peers.MODULE` and says hello with the versions of its packages, or what is missing.
Commands, each with its arguments beside "do":

- `open`: `graph` and `seeds` (paths), `threads`;
- `prepare`: `name`, `task`, `options`: make the task's work ready under a name;
- `run`: `name`: do it once; answers wall and CPU seconds and the figures that the work returned. A work that returns
  `seconds` has measured them itself (by events on a GPU), and then they stand for the wall's;
- `drop`: forget all works.

Nothing here imports more than the standard library and `peers`, so that any interpreter can run it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

Message = dict[str, Any]


class Worker:
    """The state between commands: what all works are given, and the works by name."""

    def __init__(self, peer: ModuleType) -> None:
        gc.collect()
        gc.freeze()  # what was imported is no garbage, and is not looked through before every turn
        self._peer = peer
        self._inputs: Any = None
        self._works: dict[str, Any] = {}

    def answer(self, command: Message) -> Message:
        """Do one command; what goes wrong in the peer is an answer, too."""
        try:
            done: Message = getattr(self, f"_{command.pop('do')}")(**command)
            return done
        except Exception as error:  # whatever a peer raises
            return {"error": f"{type(error).__name__}: {error}"}

    def _open(self, graph: str, seeds: str, threads: int) -> Message:
        from peers.task import Inputs

        self._inputs = Inputs(Path(graph), Path(seeds), threads)
        return {}

    def _prepare(self, name: str, task: str, options: Message) -> Message:
        self._works[name] = self._peer.TASKS[task](self._inputs, options)
        return {}

    def _run(self, name: str) -> Message:
        gc.collect()
        work, wall, cpu = self._works[name], time.perf_counter(), time.process_time()
        figures = dict(work())
        seconds = figures.pop("seconds", time.perf_counter() - wall)
        return {"seconds": seconds, "cpu_seconds": time.process_time() - cpu, "figures": figures}

    def _drop(self) -> Message:
        self._works.clear()
        gc.collect()
        return {}


def hello(module: str) -> tuple[ModuleType | None, Message]:
    """The peer's module and its greeting; None where it cannot be imported."""
    try:
        peer = importlib.import_module(f"peers.{module}")
        versions = {package: importlib.import_module(package).__version__ for package in peer.PACKAGES}
    except Exception as error:  # a broken installation raises anything
        return None, {"missing": f"{type(error).__name__}: {error}"}
    return peer, {"versions": {"python": ".".join(map(str, sys.version_info[:3])), **versions}}


def serve(module: str, commands: TextIO, answers: TextIO) -> None:
    """Answer until the commands end."""
    peer, greeting = hello(module)
    _send(answers, greeting)
    if peer is None:
        return
    worker = Worker(peer)
    for line in commands:
        _send(answers, worker.answer(json.loads(line)))


def _send(answers: TextIO, message: Message) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _own_stdout() -> TextIO:
    """The channel of the answers; whatever libraries print goes to stderr from now on."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


if __name__ == "__main__":
    serve(sys.argv[1], sys.stdin, _own_stdout())
