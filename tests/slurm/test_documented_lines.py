"""Every line of shell in docs/launching.md runs as it is written there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from spsample.cli.launch import ranks_environment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "launching.md"
BLOCK = re.compile(r"(?:^<!-- (?P<note>[^>]*) -->\n)?^```bash\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE)
SUBMITTED, IN_A_JOB = "run: by a submit host of Slurm", "run: in a job of Slurm"


def lines(note):
    """The lines under a note, which says where they run; None: anywhere."""
    blocks = [match for match in BLOCK.finditer(PAGE.read_text("utf-8")) if match["note"] == note]
    return [line for block in blocks for line in block["lines"].splitlines()]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("mpi", "gloo"),
    pytest.mark.skipif(shutil.which("spsample") is None, reason="the command spsample is not installed"),
]


@pytest.mark.parametrize("line", lines(None))
def test_anywhere(line, tmp_path):
    environment = ranks_environment(2)
    done = subprocess.run(shlex.split(line), env=environment, cwd=tmp_path, timeout=200, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks over " in done.stdout


def slurm_for(line, request):
    """One that can start what a line asks for: the default of the script is PMIx."""
    needs_none = any(said in line for said in ("mpirun", "torchrun", "--mpi none", "--mpi=none"))
    return request.getfixturevalue("slurm" if needs_none else "pmix")


@pytest.mark.parametrize("line", lines(SUBMITTED))
def test_submitted(line, request):
    program, *words = shlex.split(line)
    assert program == "sbatch"
    expect_ranks(*slurm_for(line, request).submit(words, cwd=ROOT))


@pytest.mark.parametrize("line", lines(IN_A_JOB))
def test_in_a_job(line, request):
    expect_ranks(*slurm_for(line, request).run(line, "--nodes=2", "--ntasks-per-node=2"))


def expect_ranks(status, output):
    assert status == 0, output
    assert "4 ranks over " in output
    assert " on 2 machines: every exchange is right" in output


def test_each_kind_of_line_is_there():
    assert len(lines(None)) >= 7
    assert len(lines(SUBMITTED)) >= 4
    assert len(lines(IN_A_JOB)) >= 3
