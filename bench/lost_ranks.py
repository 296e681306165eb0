"""Kill one of four ranks (SIGKILL) in each phase of sampling and training: the others must end, and say what was lost.

    python bench/lost_ranks.py --backend mpi --backend gloo                  # some minutes each

For each phase the job of tests/distributed/killed_rank.py runs once; rank 2 is killed in the middle one of its calls.
All processes must have ended within 60 s, with an exit status that is not 0 and a message that names signal 9 or the
rank.
docs/many-ranks-checked.md has a table. Under Slurm, tests/slurm kills a rank.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from spsample.cli.launch import ranks_environment, with_launcher

JOB = Path(__file__).resolve().parents[1] / "tests" / "distributed" / "killed_rank.py"
RANKS = 4
MOST_SECONDS = 60.0
LOST = re.compile(r"(?i:signal 9|SIGKILL|exitcode: -9|nothing was heard of rank 2)|\bKilled\b")
WAITED = re.compile(
    r"rank (\d) of (?:a group of )?\d: (?:ended by SIGTERM in (?!no exchange)|.*)(\S+ in phase '[^']*')"
)


class Outcome(NamedTuple):
    """What came of one job: where its rank was killed, and what the others did."""

    backend: str
    phase: str
    number: int
    status: int
    seconds: float
    said: str
    waited: tuple[int, ...]

    @property
    def right(self) -> bool:
        """All ended in time, with an error that says what was lost."""
        return self.status != 0 and 0 <= self.seconds < MOST_SECONDS and bool(self.said)


def run_job(backend: str, *arguments: str) -> tuple[int, str, float]:
    """Exit status, output and time of the end."""
    line = with_launcher([sys.executable, str(JOB), backend, *arguments], RANKS, backend)
    variables = ranks_environment(RANKS) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stdout + done.stderr, time.time()


def calls_by_phase(backend: str) -> dict[str, int]:
    """How many calls rank 2 makes in each phase where nobody is killed."""
    status, output, _ = run_job(backend)
    found = re.search(r"^\{.*\}$", output, re.MULTILINE)
    if status or found is None:
        raise RuntimeError(f"the job fails by itself:\n{output}")
    counts: dict[str, int] = json.loads(found.group())
    return counts


def kill_in(backend: str, phase: str, number: int) -> Outcome:
    """Run the job and kill rank 2 in a call of a phase."""
    status, output, end = run_job(backend, phase, str(number))
    killed = re.search(r"the end at ([0-9.]+)", output)
    said = LOST.search(output)
    seconds = end - float(killed.group(1)) if killed and "has done all" not in output else -1.0
    waited = sorted({int(rank) for rank, _ in WAITED.findall(output)})
    return Outcome(backend, phase, number, status, seconds, said.group() if said else "", tuple(waited))


def main(
    backend: Annotated[list[str], typer.Option(help="mpi (by mpirun) or gloo (by torchrun).")] = ["mpi"],  # noqa: B006
    phase: Annotated[list[str], typer.Option(help="Only these.")] = [],  # noqa: B006
) -> None:
    """Kill a rank in each phase; the exit status is the number of phases in which it was not as it should be."""
    print("| launcher | phase | call | exit status | seconds to the end | the launcher said | ranks that said where |")
    print("|---|---|---|---|---|---|---|", flush=True)
    wrong = 0
    for each in backend:
        counts = calls_by_phase(each)
        for name in phase or counts:
            found = kill_in(each, name, (counts[name] + 1) // 2)
            wrong += not found.right
            waited = ", ".join(map(str, found.waited)) or "none"
            cells = (each, name, found.number, found.status, f"{found.seconds:.1f}", found.said, waited)
            print(f"| {' | '.join(map(str, cells))} |", "" if found.right else " WRONG", flush=True)
    raise typer.Exit(wrong)


if __name__ == "__main__":
    typer.run(main)
