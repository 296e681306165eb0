"""The first run on a machine with a GPU: its steps, with programs in place of a GPU's."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from needs import require

ROOT = Path(__file__).resolve().parents[2]
STEPS = ("correct", "sampling", "features", "profile")
MOST_SECONDS = 600

PROGRAMS = {
    "python3": 'case "$*" in *"$FAILS"*) [ -z "$FAILS" ] || exit 7 ;; esac',
    "nvidia-smi": 'echo "GPU 0: one"',
    "compute-sanitizer": "",
    "ncu": "",
    "timeout": 'echo "$1" >>"$LIMITS"; shift; "$@"',
}


class Machine:
    """A copy of the script in a tree of its own, and programs that write down how they were called."""

    def __init__(self, folder):
        self.folder, self.calls, self.limits = folder, folder / "calls", folder / "limits"
        script = folder / "tree" / "tests" / "cuda" / "first_run.sh"
        script.parent.mkdir(parents=True)
        (folder / "tree" / "spsample").mkdir()
        self.script = shutil.copy(ROOT / "tests" / "cuda" / "first_run.sh", script)
        (folder / "bin").mkdir()
        for name, body in PROGRAMS.items():
            self.put(name, body)

    def put(self, name, body):
        program = self.folder / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>"$CALLS"\n{body}\n')
        program.chmod(0o755)

    def prepare(self):
        for name in ("cubins/rows.cubin", "core/_core.so"):
            path = self.folder / "carried" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")

    def run(self, *arguments, fails=""):
        env = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "FIRST_RUN": str(self.folder / "carried"),
            "CALLS": str(self.calls),
            "LIMITS": str(self.limits),
            "FAILS": fails,
        }
        for name in ("OUT", "PYTHON", "SPSAMPLE_DATA"):
            env.pop(name, None)
        return subprocess.run(["bash", self.script, *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path):
    require("bash")
    return Machine(tmp_path)


def test_without_a_step_it_says_what_there_is(machine):
    done = machine.run()
    assert done.returncode == 2
    assert all(f"\n  {step} " in done.stderr for step in ("prepare", *STEPS))


@pytest.mark.parametrize("step", STEPS)
def test_what_was_not_carried_is_named(machine, step):
    done = machine.run(step)
    assert done.returncode == 2
    assert "carried/cubins is missing: run 'prepare' where there are registries" in done.stderr


@pytest.mark.parametrize("step", STEPS)
def test_a_machine_without_a_gpu_is_told(machine, step):
    machine.prepare()
    machine.put("nvidia-smi", "exit 9")
    done = machine.run(step)
    assert done.returncode == 3
    assert f"no GPU here (nvidia-smi finds none); all else that '{step}' needs is here" in done.stderr
    assert "timeout" not in machine.calls.read_text()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_takes_ten_minutes_at_most(machine, step):
    machine.prepare()
    done = machine.run(step)
    assert done.returncode == 0, done.stderr
    limits = [int(limit) for limit in machine.limits.read_text().split()]
    assert 0 < sum(limits) <= MOST_SECONDS
    assert done.stdout.count(": ok, ") == len(limits)


def test_what_fails_is_named_and_the_rest_goes_on(machine):
    machine.prepare()
    done = machine.run("correct", fails="not slow")
    assert done.returncode == 1
    summary = (machine.folder / "carried" / "results" / "correct.txt").read_text().splitlines()
    assert [line.split(",")[0] for line in summary] == [
        "small: ok",
        "tests: failed (7)",
        "memory: ok",
        "memcheck: ok",
        "racecheck: ok",
        "large: ok",
    ]
    sanitized = [line for line in machine.calls.read_text().splitlines() if line.startswith("compute-sanitizer")]
    assert all("--report-api-errors no" in line for line in sanitized)
    assert len(sanitized) == 2


def test_features_of_the_real_graph_are_measured_where_it_was_carried(machine):
    machine.prepare()
    assert "cnr2000" not in machine.run("features").stderr
    (machine.folder / "carried" / "data").mkdir()
    (machine.folder / "carried" / "data" / "topo_cnr2000.npz").write_text("")
    machine.limits.unlink()
    done = machine.run("features")
    assert "features-topo_cnr2000: ok" in done.stdout
    assert sum(map(int, machine.limits.read_text().split())) <= MOST_SECONDS


def test_kernels_that_do_not_fit_are_told(machine):
    machine.prepare()
    machine.put("python3", 'touch "$FIRST_RUN/cubins/other$$.cubin"')
    done = machine.run("profile")
    assert "kernels were compiled here: is NVRTC another one" in done.stdout


def test_programs_of_the_steps_are_there():
    text = (ROOT / "tests" / "cuda" / "first_run.sh").read_text()
    named = {word for word in text.split() if word.startswith("tests/") and word.endswith(".py")}
    assert {Path(name).name for name in named} == {"small_bulk.py", "compile_kernels.py"}
    assert all((ROOT / name).is_file() for name in named)


def test_measurements_of_the_steps_are_understood(machine):
    """Each case by its name, with options that it has."""
    pytest.importorskip("pandas")
    from spsample.bench.command import bench

    machine.prepare()
    for step in STEPS[1:]:
        assert machine.run(step).returncode == 0
    calls = [line.split(" bench ", 1)[1] for line in machine.calls.read_text().splitlines() if " bench " in line]
    words = [shlex.split(call.replace("spsample cuda", "cuda")) for call in calls]
    assert {first for first, *_ in words} == {"gpu", "gpu-epoch", "gpu-features"}
    context = click.Context(bench)
    for name, *options in words:
        bench.get_command(context, name).make_context(name, options)
