"""Go on with a distributed run from each of its steps: all losses must be those of the run left alone, bit for bit.

    python tests/by_hand/resume_points.py                        # 2 and 4 ranks: threads, MPI, gloo; some five minutes
    mpirun -n 4 python tests/by_hand/resume_points.py --on mpi   # one job

Each rank keeps the trainer's state after every step of two epochs; then a new trainer goes on from each state to the
end. Compared are the losses of all steps and the results. The exit status is 1 where some differ. docs/training.md has
the table.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / room) for room in ("comm", "distributed")]

from jobs import run_ranks  # noqa: E402
from training_cases import Seen, on_ranks  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.comm import init, run_threads  # noqa: E402
from spsample.training import ModelConfig, TrainConfig, Trainer  # noqa: E402

TRANSPORTS = ("threads", "mpi", "gloo")
SIZES = (2, 4)
CASES = {
    "graphsage": (sp.GraphSAGE([5, 3]), ModelConfig(hidden=16, dropout=0.2), 16),
    "wide": (sp.GraphSAGE([5, 3, 2]), ModelConfig(hidden=700, dropout=0.2), 32),  # 4 MB of gradients
    "ladies": (sp.LADIES([64, 64]), ModelConfig("gcn", hidden=24, dropout=0.2), 16),
}
"""Sampler, model and batch size."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one case on one number of ranks."""

    case: str
    ranks: int
    points: int
    unequal: list[int]


def run(comm, case, state=None):
    """From the beginning, or from a state."""
    sampler, model, batch_size = CASES[case]
    seen = Seen(save_at="every step" if state is None else None)
    config = TrainConfig(epochs=2, batch_size=batch_size, learning_rate=0.02, bulk_size=8)
    trainer = Trainer(on_ranks(comm), sampler, model, config, [seen])
    if state is not None:
        trainer.load_state_dict(copy.deepcopy(state))
    result = trainer.fit()
    trainer.close()
    return seen, (result.history, result.val, result.test)


def outcome(comm, case):
    """Go on from every step; collective, the same on every rank."""
    whole, result = run(comm, case)
    unequal = []
    for step, state in enumerate(whole.states, 1):
        rest, again = run(comm, case, state)
        equal = rest.losses == whole.losses[step:] and again == result
        if not comm.all_reduce(np.array([equal]), "min").item():
            unequal.append(step)
    return Outcome(case, comm.size, len(whole.states), unequal)


def job(transport, ranks, cases):
    """The cases on so many ranks, in threads or processes of their own."""
    if transport == "threads":
        return run_threads(ranks, lambda comm: [outcome(comm, case) for case in cases])[0]
    words = [word for case in cases for word in ("--case", case)]
    done = run_ranks(transport, ranks, __file__, "--on", transport, *words, timeout=3600)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return [Outcome(**one) for one in json.loads(next(x for x in done.stdout.splitlines() if x.startswith("[")))]


def main(
    case: Annotated[list[str], typer.Option(help="Cases.")] = list(CASES),  # noqa: B006
    on: Annotated[str, typer.Option(help="Run as one rank of a job over this transport.")] = "",
    transport: Annotated[list[str], typer.Option(help="Transports.")] = list(TRANSPORTS),  # noqa: B006
) -> None:
    """Print a table, or, as part of a job, one line of JSON from rank 0."""
    torch.set_num_threads(1)
    if on:
        comm = init(on)
        outcomes = [dataclasses.asdict(outcome(comm, name)) for name in case]
        if comm.rank == 0:
            print(json.dumps(outcomes), flush=True)
        return
    print(f"{'case':10} {'transport':10} {'ranks':>5} {'points':>6} {'unequal':>7}")
    failed = False
    for ranks in SIZES:
        for name in transport:
            for one in job(name, ranks, case):
                where = f" at steps {one.unequal}" if one.unequal else ""
                print(f"{one.case:10} {name:10} {one.ranks:5} {one.points:6} {len(one.unequal):7}{where}", flush=True)
                failed |= bool(one.unequal)
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    typer.run(main)
