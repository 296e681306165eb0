"""The same bulks on every process grid: hashes of whole bulks, compared with those of one process.

    python tests/by_hand/same_bulks.py run --graph rmat:14,16 --threads 1,2,4           # ranks are threads
    mpirun -n 8 python tests/by_hand/same_bulks.py run --graph data/topo_cnr2000.npz --graph rmat:18,26
    torchrun --nproc-per-node=8 tests/by_hand/same_bulks.py run --graph rmat:18,26
    python tests/by_hand/same_bulks.py table build/same_bulks/*.jsonl                     # all results as one table

One launch goes through every c that divides p, every algorithm, with hub rows on every rank and without, for GraphSAGE
of three layers, LADIES of three and FastGCN of two, on the graph with weights and without. Every line of results has
the hash. The exit status is 1 where one differs. Set OMP_NUM_THREADS=1 where ranks share cores.
docs/many-ranks-checked.md has the results.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from bulk_digests import bulk_digest

import spsample as sp
from spsample.comm import init, run_threads
from spsample.distributed import ProcessGrid
from spsample.errors import CommunicationError, SpSampleError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "samplers"))

from stages_variants import ALL_ALGORITHMS, ComparedGraph

ONE_PROCESS = "one process"
SAMPLERS = {
    "GraphSAGE": sp.GraphSAGE([10, 10, 5]),
    "LADIES": sp.LADIES([256, 256, 256]),
    "FastGCN": sp.FastGCN([256, 256]),
}


@dataclass(frozen=True)
class Plan:
    """What to compare."""

    graphs: list[str]
    algorithms: list[str] = field(default_factory=lambda: list(ALL_ALGORITHMS))
    hubs: str = "4MiB"
    batches: int = 32
    batch_size: int = 32
    epoch: int = 1
    cache: Path = Path("build/graphs")

    def sample(self, graph, sampler):
        """A bulk of a graph, wherever it is, of any vertices, some of them twice."""
        seeds = np.random.default_rng(1).integers(0, graph.num_nodes, self.batches * self.batch_size)
        options = {"batch_size": self.batch_size, "random_seed": 7, "epoch": self.epoch, "first_batch": 3}
        return sp.bulk_sample(graph, seeds, SAMPLERS[sampler], edge_ids=True, **options)

    def store(self, graph, weighted):
        """The path of the store of a graph; it is made where it is missing."""
        name = Path(graph).stem.replace(":", "_").replace(",", "_")
        path = self.cache / f"{name}-{'weighted' if weighted else 'unweighted'}.store"
        if not path.is_dir():
            made = sp.load_dataset(graph).graph
            weights = np.random.default_rng(0).exponential(1.0, made.num_edges).astype(np.float32) if weighted else None
            if weighted:
                weights[::17] = 0
            self.cache.mkdir(parents=True, exist_ok=True)
            sp.Graph(made.indptr, made.indices, weights, edge_ids=made.edge_ids).save(path)
        return path


class Result(NamedTuple):
    """One hash, and how it came about."""

    graph: str
    weighted: bool
    sampler: str
    launcher: str
    p: int
    c: int
    algorithm: str
    hubs: str
    digest: str

    @property
    def case(self):
        """Whatever has the same case has the same hash."""
        return self.graph, self.sampler, self.weighted


def compare(comm, plan):
    """All hashes of one number of ranks; those of one process come first, on rank 0 only. Collective."""
    for name in plan.graphs:
        for weighted in (False, True):
            if comm.rank == 0:
                plan.store(name, weighted)
            comm.barrier()
            path, which = plan.store(name, weighted), (Path(name).stem, weighted)
            if comm.rank == 0:
                graph = sp.Graph.open(path)
                for sampler in SAMPLERS:
                    yield Result(*which, sampler, ONE_PROCESS, 1, 1, "", "", bulk_digest(plan.sample(graph, sampler)))
            for c in (c for c in range(1, comm.size + 1) if comm.size % c == 0):
                yield from _on_grid(plan, path, which, ProcessGrid(comm, c))


def _on_grid(plan, path, which, grid):
    comm = grid.comm
    for algorithm in plan.algorithms:
        for hubs in ("", plan.hubs):
            graph = ComparedGraph.open(path, grid, algorithm=algorithm, replicate_hubs=hubs or None)
            for sampler in SAMPLERS:
                digest = _digest(comm, plan, graph, sampler)
                yield Result(*which, sampler, comm.name, comm.size, grid.replication, algorithm, hubs, digest)


def _digest(comm, plan, graph, sampler):
    try:
        return bulk_digest(plan.sample(graph, sampler), comm)
    except CommunicationError:
        raise
    except SpSampleError as error:  # of all ranks
        return f"{type(error).__name__}: {error}"


def different(results):
    """Those whose hash is not that of one process."""
    expected = {result.case: result.digest for result in results if result.launcher == ONE_PROCESS}
    return [result for result in results if result.digest != expected[result.case]]


def report(results):
    """A row for each case, a column for each launcher and number of ranks; then each result that differs."""
    wrong, grids = different(results), [result for result in results if result.launcher != ONE_PROCESS]
    numbers = Counter((r.case, r.launcher, r.p) for r in grids)
    unequal = Counter((r.case, r.launcher, r.p) for r in wrong)
    columns = sorted({(r.launcher, r.p) for r in grids})
    heads = ["graph", "sampler", "weights", *(f"{launcher}, p = {p}" for launcher, p in columns), "SHA-256"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    digests = {r.case: r.digest for r in results if r.launcher == ONE_PROCESS}
    for case, digest in digests.items():
        cells = [_cell(unequal[(case, *column)], numbers[(case, *column)]) for column in columns]
        graph, sampler, weighted = case
        lines.append(f"| {' | '.join([graph, sampler, 'yes' if weighted else 'no', *cells, f'`{digest[:12]}`'])} |")
    algorithms, hubs = (sorted({getattr(r, name) for r in grids}) for name in ("algorithm", "hubs"))
    lines += ["", f"Algorithms: {', '.join(algorithms)}; hub rows: {', '.join(h or 'none' for h in hubs)}."]
    lines.append(f"{len(grids) - len(wrong)} of {len(grids)} bulks are those of one process, bit for bit.")
    return "\n".join([*lines, *(f"different: {result}" for result in wrong)])


def _cell(unequal, number):
    return f"**{unequal} of {number} differ**" if unequal else f"{number} equal" if number else ""


# -------------------------------------------------------------------------------------------------------- command line

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


@app.command()
def run(
    graph: Annotated[list[str], typer.Option(help="A data set, as spsample train takes it; may be repeated.")],
    threads: Annotated[str, typer.Option(help="Numbers of ranks, as threads; else a launcher says how many.")] = "",
    algorithm: Annotated[list[str], typer.Option(help="Only these; may be repeated.")] = [],  # noqa: B006
    hubs: Annotated[str, typer.Option(help="Hub rows on every rank, besides none.")] = "4MiB",
    batches: Annotated[int, typer.Option()] = 32,
    batch_size: Annotated[int, typer.Option()] = 32,
    graph_cache: Annotated[Path, typer.Option(help="Folder for stores of the graphs.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/same_bulks"),
    backend: Annotated[str, typer.Option(help="As of spsample.init.")] = "auto",
) -> None:
    """Hash bulks over the ranks of this launch and compare them."""
    plan = Plan(graph, algorithm or list(ALL_ALGORITHMS), hubs, batches, batch_size, cache=graph_cache)
    wrong = 0
    for p in map(int, filter(None, threads.split(","))):
        begin = time.monotonic()
        wrong += _finish(run_threads(p, lambda comm: list(compare(comm, plan)))[0], begin, out)
    if not threads:
        begin, comm = time.monotonic(), init(backend)
        results = list(compare(comm, plan))
        wrong += _finish(results, begin, out) if comm.rank == 0 else 0
        comm.barrier()
        comm.close()
    raise typer.Exit(1 if wrong else 0)


def _finish(results, begin, out):
    """Print and write what rank 0 has found; how many differ."""
    out.mkdir(parents=True, exist_ok=True)
    last, seconds = results[-1], time.monotonic() - begin
    lines = [json.dumps(result._asdict()) for result in results]
    (out / f"{last.launcher}-{last.p}.jsonl").write_text("\n".join(lines) + "\n")
    print(f"{report(results)}\n{last.launcher}, p = {last.p}: {seconds:.0f} s\n", flush=True)
    return len(different(results))


@app.command()
def table(files: Annotated[list[Path], typer.Argument(help="Results of `run`.")]) -> None:
    """All results as one table."""
    results = [Result(**json.loads(line)) for file in files for line in file.read_text().splitlines()]
    print(report(results))
    raise typer.Exit(1 if different(results) else 0)


if __name__ == "__main__":
    app()
