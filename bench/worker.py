"""The process of a side: reads one JSON command a line, answers one JSON line each, until its input ends.

``python worker.py PACKAGE,PACKAGE`` says hello with the versions of these packages, or what is missing. Commands:

- ``prepare``: ``name``, ``task`` ("module:function"), ``store``, ``values``: make the work ready under a name;
- ``run``: ``name``: do it once; answers wall and CPU seconds, and the figures that the work returned. A work that
  returns ``seconds`` has measured them itself.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

Message = dict[str, Any]
HERE = Path(__file__).resolve().parent


def load_bench() -> str:
    """Make the package of this file importable where spsample is not installed; its name there."""
    name = "spsample_bench"
    spec = importlib.util.spec_from_file_location(name, HERE / "__init__.py", submodule_search_locations=[str(HERE)])
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE} is no package")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return name


class Worker:
    """The works by name."""

    def __init__(self, package: str) -> None:
        gc.collect()
        gc.freeze()  # what was imported is no garbage, and is not looked through before every turn
        self._package = package
        self._works: dict[str, Any] = {}

    def answer(self, command: Message) -> Message:
        """Do one command; what goes wrong is an answer, too."""
        try:
            done: Message = getattr(self, f"_{command.pop('do')}")(**command)
            return done
        except ImportError as error:
            return {"missing": _words(error)}
        except Exception as error:  # whatever a peer raises
            return {"error": _words(error)}

    def _prepare(self, name: str, task: str, store: str, values: Message) -> Message:
        inputs = importlib.import_module(f"{self._package}.inputs").Inputs(Path(store), values)
        self._works[name] = found(self._package, task)(inputs)
        return {}

    def _run(self, name: str) -> Message:
        gc.collect()
        return timed(self._works[name])


def found(package: str, task: str) -> Any:
    """The function that "module:function" names."""
    module, _, function = task.partition(":")
    return getattr(importlib.import_module(f"{package}.{module}"), function)


def timed(work: Any) -> Message:
    """Do it once: seconds and figures."""
    wall, cpu = time.perf_counter(), time.process_time()
    figures = dict(work())
    seconds = figures.pop("seconds", time.perf_counter() - wall)
    cpu_seconds = figures.pop("cpu_seconds", time.process_time() - cpu)
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "figures": figures}


def hello(packages: list[str]) -> Message:
    """Versions, or what is missing."""
    try:
        versions = {name: getattr(importlib.import_module(name), "__version__", "") for name in packages}
    except Exception as error:  # a broken installation raises anything
        return {"missing": _words(error)}
    return {"versions": {"python": ".".join(map(str, sys.version_info[:3])), **versions}}


def _words(error: Exception) -> str:
    """Its type and last line: that of another process comes with a trace."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no words').splitlines()[-1]}"


def serve(packages: list[str], commands: TextIO, answers: TextIO) -> None:
    """Answer until the commands end."""
    greeting = hello(packages)
    _send(answers, greeting)
    if "missing" in greeting:
        return
    worker = Worker(load_bench())
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
    sys.path.remove(str(HERE))  # whose modules are found as those of a package
    serve(sys.argv[1].split(","), sys.stdin, _own_stdout())
