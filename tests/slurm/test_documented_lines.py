"""Every line of shell in docs/launching.md runs as it is written there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from loopback import missing

from spsample.cli.launch import ranks_environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "launching.md"
BLOCK = re.compile(r"(?:^<!-- (?P<note>[^>]*) -->\n)?^```bash\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE)
SUBMITTED, IN_A_JOB = "run: by a submit host of Slurm", "run: in a job of Slurm"


def lines(note):
    """The lines under a note, which says where they run; None: anywhere."""
    blocks = [match for match in BLOCK.finditer(PAGE.read_text("utf-8")) if match["note"] == note]
    return [line for block in blocks for line in block["lines"].splitlines()]


def absent():
    programs = [name for name in ("spsample", "mpirun", "torchrun") if shutil.which(name) is None]
    return ", ".join(programs + [name for name in ("mpi4py", "torch") if importlib.util.find_spec(name) is None])


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(absent()), reason=f"not installed: {absent()}")]
with_slurm = pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here")


@pytest.mark.parametrize("line", lines(None))
def test_anywhere(line, tmp_path):
    environment = ranks_environment(2)
    done = subprocess.run(shlex.split(line), env=environment, cwd=tmp_path, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks over " in done.stdout


@with_slurm
@pytest.mark.parametrize("line", lines(SUBMITTED))
def test_submitted(line, slurm):
    program, *words = shlex.split(line)
    assert program == "sbatch"
    expect_ranks(*slurm.submit(words, cwd=ROOT))


@with_slurm
@pytest.mark.parametrize("line", lines(IN_A_JOB))
def test_in_a_job(line, slurm):
    expect_ranks(*slurm.run(line, "--nodes=2", "--ntasks-per-node=2"))


def expect_ranks(status, output):
    assert status == 0, output
    assert "4 ranks over " in output
    assert " on 2 machines: every exchange is right" in output


def test_each_kind_of_line_is_there():
    assert len(lines(None)) >= 7
    assert len(lines(SUBMITTED)) >= 4
    assert len(lines(IN_A_JOB)) >= 3
