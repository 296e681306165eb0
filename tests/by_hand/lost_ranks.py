"""Kill one of four ranks (SIGKILL) in the phases of sampling and training: the others must end, and say what was lost.

    python tests/by_hand/lost_ranks.py --backend mpi --backend gloo              # a call of each phase; some minutes
    python tests/by_hand/lost_ranks.py --job cooperative --points 12 --resume    # 12 places, and on from a checkpoint

The jobs are those of tests/distributed/killed_rank.py. All processes must have ended within 60 s, with an exit status
that is not 0 and a message that names the rank. With --resume, a training that keeps a checkpoint after each step goes
on: its losses and weights must be those of one that nobody ended. The exit status is 1 where it was not so.

docs/many-ranks-checked.md has a table. Under Slurm, tests/slurm kills a rank.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "comm"))

from jobs import run_ranks

PROGRAM = Path(__file__).resolve().parents[1] / "distributed" / "killed_rank.py"
JOBS = ("sampling", "sync", "overlap", "cooperative", "factored", "asynchronous")
ROLES = {"factored": {3: "sampler", 1: "trainer"}, "asynchronous": {3: "sampler", 1: "trainer", 0: "rank of weights"}}
RANKS = 4
MOST_SECONDS = 60.0
LOST = (
    r"rank {rank} with PID [^.]*? exited on\s+(signal 9)",  # mpirun
    r"rank\s*: {rank} \(local_rank: \d+\)\s*(exitcode\s*: -9)",  # torchrun
    r"(nothing was heard of rank {rank})",
)
WAITED = re.compile(r"rank (\d) of (?:a group of )?\d: (?:ended by SIGTERM in (?!no exchange)|.*in phase ')")
TRAINED = re.compile(r"^(?:\[.*?\]:? ?)?trained: (.*)$", re.MULTILINE)


class Place(NamedTuple):
    """Where a rank is killed: it begins a call of a phase."""

    rank: int
    phase: str
    number: int


class Outcome(NamedTuple):
    """What the others did, and whether the run went on as if nothing had happened."""

    status: int
    seconds: float
    said: str
    waited: tuple[int, ...]
    goes_on: str

    @property
    def right(self):
        """All ended in time, with an error that says what was lost."""
        in_time = 0 <= self.seconds < MOST_SECONDS
        return self.status != 0 and in_time and bool(self.said) and self.goes_on in ("", "bit for bit")


def run_job(backend, *arguments):
    """Exit status, output and time of the end."""
    done = run_ranks(backend, RANKS, PROGRAM, backend, *arguments, timeout=600)
    return done.returncode, done.stdout + done.stderr, time.time()


def undisturbed(backend, job):
    """How many calls each rank makes of each phase where nobody is killed; and what came of a training."""
    status, output, _ = run_job(backend, job)
    told = dict(re.findall(r"rank (\d): (\{.*\})", output))
    if status or len(told) < RANKS:
        raise RuntimeError(f"the job {job} fails by itself:\n{output}")
    trained = TRAINED.search(output)
    return [json.loads(told[str(rank)]) for rank in range(RANKS)], trained.group(1) if trained else ""


def places_of(counts, rank, points):
    """The middle call of each phase; or as many places as asked for, spread over the phases and their calls."""
    if not points:
        yield from (Place(rank, phase, (number + 1) // 2) for phase, number in counts.items())
        return
    phases = list(counts.items())
    for i in range(points):
        phase, number = phases[i % len(phases)]
        yield Place(rank, phase, max(round(number * (i + 1) / (points + 1)), 1))


def kill_at(backend, job, place, wanted):
    """Run the job and kill a rank; where `wanted` is what comes of it undisturbed, go on from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        kept = ["--folder", folder] if wanted else []
        status, output, end = run_job(backend, job, *kept, *place)
        if "has done all" in output and place.number > 1:  # messages are as many as time allows
            return kill_at(backend, job, place._replace(number=place.number // 2), wanted)
        killed = re.search(r"the end at ([0-9.]+)", output)
        seconds = end - float(killed.group(1)) if killed and "has done all" not in output else -1.0
        waited = sorted({int(rank) for rank in WAITED.findall(output)})
        said = next(filter(None, (re.search(one.format(rank=place.rank), output) for one in LOST)), None)
        goes_on = ""
        if wanted:
            again, output, _ = run_job(backend, job, *kept)
            trained = TRAINED.search(output)
            same = again == 0 and trained is not None and trained.group(1) == wanted
            goes_on = "bit for bit" if same else "NOT the same"
    return Outcome(
        status, seconds, " ".join(said.group(1).split()).replace(" :", ":") if said else "", tuple(waited), goes_on
    )


def main(
    backend: Annotated[list[str], typer.Option(help="mpi (by mpirun) or gloo (by torchrun).")] = ["mpi"],  # noqa: B006
    job: Annotated[list[str], typer.Option(help=f"One of {', '.join(JOBS)}.")] = list(JOBS),  # noqa: B006
    phase: Annotated[list[str], typer.Option(help="Only these.")] = [],  # noqa: B006
    points: Annotated[int, typer.Option(help="Places of each job and role; 0: one in each phase.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint of each training.")] = False,
) -> None:
    """Kill a rank in each phase; what was not as it should be is marked WRONG."""
    heads = "launcher", "job", "rank", "phase", "call", "exit status", "seconds to the end", "the launcher said"
    print(f"| {' | '.join(heads)} | ranks that said where | resumed |\n{'|---' * (len(heads) + 2)}|", flush=True)
    wrong = 0
    for each in backend:
        for name in job:
            counts, trained = undisturbed(each, name)
            wanted = trained if resume and name != "asynchronous" else ""
            for rank, role in ROLES.get(name, {2: ""}).items():
                calls = {one: number for one, number in counts[rank].items() if not phase or one in phase}
                for place in places_of(calls, rank, points):
                    found = kill_at(each, name, place, wanted)
                    wrong += not found.right
                    waited = ", ".join(map(str, found.waited)) or "none"
                    who = f"{rank} ({role})" if role else rank
                    cells = (each, name, who, place.phase, place.number, found.status, f"{found.seconds:.1f}")
                    cells = (*cells, found.said, waited, found.goes_on)
                    print(f"| {' | '.join(map(str, cells))} |", "" if found.right else " WRONG", flush=True)
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
