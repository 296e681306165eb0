"""Go on with a distributed run from each of its steps: all losses must be those of the run left alone, bit for bit.

    python bench/resume_points.py                          # ranks as threads, over MPI and over gloo, 2 and 4 of them
    mpirun -n 4 python bench/resume_points.py --on mpi     # one job

Each rank keeps the trainer's state after every step of two epochs; then a new trainer goes on from each state to the
end. Compared are the losses of all steps and the results. docs/training.md has the table.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from typing import Annotated, Any

import numpy as np
import torch
import typer

import spsample as sp
from spsample.cli.launch import ranks_environment, with_launcher
from spsample.comm import Communicator, init, run_threads
from spsample.data import Dataset, planted
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.features import PartitionedFeatures
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

EPOCHS = 2
TRANSPORTS = ("threads", "mpi", "gloo")
SIZES = (2, 4)


@dataclasses.dataclass(frozen=True)
class Case:
    """One run."""

    sampler: sp.Sampler
    model: ModelConfig
    batch_size: int = 16


CASES = {
    "graphsage": Case(sp.GraphSAGE([5, 3]), ModelConfig(hidden=16, dropout=0.2)),
    "wide": Case(sp.GraphSAGE([5, 3, 2]), ModelConfig(hidden=700, dropout=0.2), batch_size=32),  # 4 MB of gradients
    "ladies": Case(sp.LADIES([64, 64]), ModelConfig("gcn", hidden=24, dropout=0.2)),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of one case on one number of ranks."""

    case: str
    transport: str
    ranks: int
    points: int
    unequal: list[int]


class States(Callback):
    """Losses, and the state after each step."""

    def __init__(self, *, keep: bool) -> None:
        self.losses: list[float] = []
        self.states: list[dict[str, Any]] = []
        self._keep = keep

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """See `Callback`."""
        self.losses.append(loss)
        if self._keep:
            self.states.append(copy.deepcopy(trainer.state_dict()))


def run(comm: Communicator, data: Dataset, case: Case, state: dict[str, Any] | None) -> tuple[States, Any]:
    """From the beginning, or from a state."""
    grid = ProcessGrid(comm)
    placed = dataclasses.replace(
        data, graph=PartitionedGraph.from_graph(data.graph, grid), x=PartitionedFeatures.of(data.x, grid)
    )
    seen = States(keep=state is None)
    config = TrainConfig(epochs=EPOCHS, batch_size=case.batch_size, learning_rate=0.02, bulk_size=8)
    trainer = Trainer(placed, case.sampler, case.model, config, [seen])
    if state is not None:
        trainer.load_state_dict(copy.deepcopy(state))
    result = trainer.fit()
    trainer.close()
    return seen, (result.history, result.val, result.test)


def outcome(comm: Communicator, name: str) -> Outcome:
    """Go on from every step; collective, the same on every rank."""
    data, case = planted(400, degree=5, random_seed=2), CASES[name]
    whole, result = run(comm, data, case, None)
    unequal = []
    for step, state in enumerate(whole.states, 1):
        rest, again = run(comm, data, case, state)
        equal = rest.losses == whole.losses[step:] and again == result
        if not comm.all_reduce(np.array([equal]), "min").item():
            unequal.append(step)
    return Outcome(name, comm.name, comm.size, len(whole.states), unequal)


def job(transport: str, ranks: int, names: list[str]) -> list[Outcome]:
    """The cases on so many ranks, in threads or processes of their own."""
    if transport == "threads":
        return run_threads(ranks, lambda comm: [outcome(comm, name) for name in names])[0]
    words = [sys.executable, __file__, "--on", transport, *(word for name in names for word in ("--case", name))]
    line = with_launcher(words, ranks, transport)
    variables = ranks_environment(ranks) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=variables, check=True, stdout=subprocess.PIPE, text=True)
    told = next(text for text in done.stdout.splitlines() if text.startswith("["))
    return [Outcome(**one) for one in json.loads(told)]


def main(
    case: Annotated[list[str], typer.Option(help="Cases; all of them by default.")] = [],  # noqa: B006
    on: Annotated[str, typer.Option(help="Run as one rank of a job over this transport.")] = "",
    transport: Annotated[list[str], typer.Option(help="Transports; all of them by default.")] = [],  # noqa: B006
) -> None:
    """Print a table, or, as part of a job, one line of JSON from rank 0."""
    torch.set_num_threads(1)
    names = case or list(CASES)
    if on:
        comm = init(on)
        outcomes = [outcome(comm, name) for name in names]
        if comm.rank == 0:
            print(json.dumps([dataclasses.asdict(one) for one in outcomes]), flush=True)
        return
    print(f"{'case':10} {'transport':10} {'ranks':>5} {'points':>6} {'unequal':>7}")
    failed = False
    for ranks in SIZES:
        for name in transport or TRANSPORTS:
            for one in job(name, ranks, names):
                where = f" at steps {one.unequal}" if one.unequal else ""
                print(f"{one.case:10} {name:10} {one.ranks:5} {one.points:6} {len(one.unequal):7}{where}", flush=True)
                failed |= bool(one.unequal)
    raise typer.Exit(int(failed))


if __name__ == "__main__":
    typer.run(main)
