"""Python, NumPy, the compiled core, the compiler, threads."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from spsample.cli.machine.finding import Finding, ask
from spsample.common.threads import usable_cores

__all__ = ["compilers", "core", "python", "threads"]


def python() -> list[Finding]:
    """Python and the packages that spsample cannot do without."""
    text = f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}"
    findings = [Finding("software", "Python", "ok", f"{text}, {sys.executable}")]
    for name in ("spsample", "numpy", "scipy"):
        try:
            findings.append(Finding("software", name, "ok", version(name)))
        except PackageNotFoundError:  # read from a clone, say
            found = getattr(import_module(name), "__version__", "of unknown version")
            findings.append(Finding("software", name, "ok", f"{found}, not installed by pip"))
    return findings


def core() -> list[Finding]:
    """The compiled core."""
    if find_spec("spsample._core") is None:
        advice = "reinstall spsample on this machine with a C++17 compiler; the NumPy backend is used until then"
        return [Finding("software", "compiled core", "missing", "not built", advice)]
    try:
        module = import_module("spsample._core")
    except ImportError as error:
        advice = "build it anew in the folder of spsample's sources: pip install --force-reinstall --no-deps ."
        return [Finding("software", "compiled core", "broken", str(error), advice)]
    built = ", ".join(f"{key} {value}" for key, value in module.build_info().items() if value != "")
    return [
        Finding("software", "compiled core", "ok", built),
        Finding("software", "instruction set", "ok", f"{module.instruction_set()}"),
    ]


def compilers() -> list[Finding]:
    """C++ compilers; only needed to build spsample."""
    found = []
    for name in dict.fromkeys(filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))):
        answer = ask([name, "--version"]) if shutil.which(name) else None
        if answer:
            found.append(f"{name}: {answer.splitlines()[0]}")
    if found:
        return [Finding("software", "C++ compiler", "ok", "; ".join(found))]
    advice = "only to build from source: apt install g++, dnf install gcc-c++, or module load gcc"
    return [Finding("software", "C++ compiler", "missing", "none on PATH", advice)]


def threads() -> list[Finding]:
    """Threads of the compiled core."""
    if find_spec("spsample._core") is None:
        return []
    module = import_module("spsample._core")
    count, cores = module.get_num_threads(), usable_cores()
    set_by = ", ".join(f"{key}={os.environ[key]}" for key in sorted(os.environ) if key.startswith(("OMP_", "GOMP_")))
    text = f"{count} of {cores} usable cores" + (f"; {set_by}" if set_by else "")
    if count > cores:
        advice = f"export OMP_NUM_THREADS={cores}"
        return [Finding("processor", "threads", "warning", f"{text}: more threads than cores", advice)]
    findings = [Finding("processor", "threads", "ok", text)]
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "active":
        advice = "export OMP_WAIT_POLICY=passive where others use the machine too"
        findings.append(Finding("processor", "torch's threads", "warning", "spin while they wait", advice))
    return findings
