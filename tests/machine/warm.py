"""Python programs in processes forked from one that has imported torch: without the seconds that a start takes.

A pytest process has one such parent, which is started where the first test needs it. Each program is a process of its
own, with arguments, environment and output as if started by itself; what a launcher does is done for programs that are
ranks of a job: they are ended where one of them fails. Tests of launchers themselves use launchers.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

AVAILABLE = sys.platform == "linux" and find_spec("torch") is not None
"""A process that is forked may not use all of a Mac."""

IMPORTED = ("torch._dynamo", "torch.distributed", "torch_geometric", "spsample.cli.main", "spsample.training.runs")
ENDED, GRACE = 0.5, 3.0
"""Seconds after which ranks are ended where one has failed, and after which they are killed."""


def run(*words, timeout=300.0, **environment):
    """A finished process, as of `subprocess.run([python, *words], capture_output=True, text=True)`; of one thread."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    if AVAILABLE:
        return _run(words, [variables], timeout)
    line = [sys.executable, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=variables)


def run_job(words, ranks, *, env, timeout=300.0):
    """The same of several ranks, which find each other as those of torchrun do; the first failure's exit status."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    each = [{**meeting, "RANK": rank, "LOCAL_RANK": rank} for rank in range(ranks)]
    return _run(words, [{**env, **{name: str(value) for name, value in own.items()}} for own in each], timeout)


def _run(words, environments, timeout):
    words = list(map(str, words))
    with tempfile.TemporaryDirectory() as folder:
        asked = {"words": words, "environments": environments, "cwd": os.getcwd(), "folder": folder, "timeout": timeout}
        parent = parent_of(os.getpid())
        parent.stdin.write(json.dumps(asked) + "\n")
        parent.stdin.flush()
        status = json.loads(parent.stdout.readline())
        if status is None:
            raise subprocess.TimeoutExpired(words, timeout)
        said, errors = (Path(folder, name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess([sys.executable, *words], status, said, errors)


@cache
def parent_of(process):
    """The parent of this process's programs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    line = [sys.executable, __file__]
    parent = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    atexit.register(parent.stdin.close)
    return parent


# ------------------------------------------------------------------------------------------------------- the parent


def serve():
    """Fork what is asked for, line by line; in a process that is to run a program, return its words."""
    answers = os.fdopen(os.dup(1), "w")
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        begun = {}
        for environment in asked["environments"]:
            process = os.fork()
            if process == 0:
                answers.close()
                become(asked, environment)
                return asked["words"]
            begun[process] = None
        answers.write(json.dumps(waited(begun, asked["timeout"])) + "\n")
        answers.flush()
    os._exit(0)


def become(asked, environment):
    """Take environment, folder, output and arguments of the program."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(asked["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(Path(asked["folder"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)


def waited(begun, timeout):
    """The exit status of the first process that failed, or 0; None if the time is up."""
    until, failed = time.monotonic() + timeout, 0
    while None in begun.values():
        process, ended = os.waitpid(-1, os.WNOHANG)
        if process:
            begun[process] = os.waitstatus_to_exitcode(ended)
            if begun[process] and not failed:
                failed = begun[process]
                time.sleep(ENDED)
                end(begun, signal.SIGTERM)
                until = min(until, time.monotonic() + GRACE)
        elif time.monotonic() > until:
            end(begun, signal.SIGKILL)
            failed, until = failed or None, until + GRACE
        else:
            time.sleep(0.01)
    return failed


def end(begun, number):
    for process, status in begun.items():
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def execute(words):
    """Run `-m MODULE`, `-c CODE` or a script with its arguments, as Python does, and end.

    What is left when a program has ended is not freed piece by piece: that takes two seconds where torch is there.
    """
    try:
        _execute(*words)
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    else:
        status = 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _execute(first, *words):
    if first == "-m":
        sys.argv, sys.path[0] = list(words), os.getcwd()
        sys.modules.pop(words[0], None)  # else a warning
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *words[1:]], ""
        exec(compile(words[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [first, *words], str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for module in IMPORTED:
        with contextlib.suppress(ImportError):
            import_module(module)
    gc.freeze()  # its memory stays shared
    execute(serve())
