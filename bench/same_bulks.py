"""The same bulks on every process grid: hashes of whole bulks, compared with those of one process.

    python bench/same_bulks.py run --graph musae_facebook --threads 1,2,4       # ranks are threads
    mpirun -n 8 python bench/same_bulks.py run --graph cnr2000 --graph rmat:18,26
    torchrun --nproc-per-node=8 bench/same_bulks.py run --graph cnr2000
    python bench/same_bulks.py table build/same_bulks/*.jsonl                    # all results as one table

One launch goes through every c that divides p, every algorithm, with hub rows on every rank and without, for GraphSAGE
of three layers, LADIES of three and FastGCN of two, on the graph with weights and without. Every line of results has
the hash. The exit status is 1 where one differs. docs/many-ranks-checked.md has the results.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import spsample as sp
from bulk_digests import SAMPLERS, bulk_digest, seeds_of, store_of
from spsample.comm import Communicator, init, run_threads
from spsample.distributed import ProcessGrid
from spsample.distributed.published.variants import ALL_ALGORITHMS, ComparedGraph
from spsample.errors import CommunicationError, SpSampleError

ONE_PROCESS = "one process"


@dataclass(frozen=True)
class Plan:
    """What to compare."""

    graphs: tuple[str, ...]
    algorithms: tuple[str, ...]
    replications: tuple[int, ...] = ()
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    hubs: tuple[str, ...] = ("", "4MiB")
    batches: int = 32
    batch_size: int = 32
    cache: Path = Path("build/graphs")

    def grids(self, p: int) -> list[int]:
        """Every c for p ranks."""
        return [c for c in range(1, p + 1) if p % c == 0 and (not self.replications or c in self.replications)]

    def sample(self, graph: Any, sampler: str) -> sp.BulkSample:
        """A bulk of a graph, wherever it is."""
        seeds = seeds_of(graph.num_nodes, self.batches * self.batch_size)
        arguments: dict[str, Any] = {"batch_size": self.batch_size, "random_seed": 7, "epoch": 1, "first_batch": 3}
        return sp.bulk_sample(graph, seeds, SAMPLERS[sampler], edge_ids=True, **arguments)


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
    def case(self) -> tuple[str, str, bool]:
        """Whatever has the same case has the same hash."""
        return self.graph, self.sampler, self.weighted


def compare(comm: Communicator, plan: Plan) -> Iterator[Result]:
    """All hashes of one number of ranks; those of one process come first, on rank 0 only. Collective."""
    for name in plan.graphs:
        for weighted in (False, True):
            if comm.rank == 0:
                store_of(name, weighted, plan.cache)
            comm.barrier()
            path = store_of(name, weighted, plan.cache)
            if comm.rank == 0:
                graph = sp.Graph.open(path)
                for sampler in plan.samplers:
                    digest = bulk_digest(plan.sample(graph, sampler))
                    yield Result(name, weighted, sampler, ONE_PROCESS, 1, 1, "", "", digest)
            yield from _on_grids(comm, plan, path, (name, weighted))


def _on_grids(comm: Communicator, plan: Plan, path: Path, which: tuple[str, bool]) -> Iterator[Result]:
    for c in plan.grids(comm.size):
        grid = ProcessGrid(comm, c)
        for algorithm in plan.algorithms:
            for hubs in plan.hubs:
                graph = ComparedGraph.open(path, grid, algorithm=algorithm, replicate_hubs=hubs or None)
                for sampler in plan.samplers:
                    digest = _digest(comm, plan, graph, sampler)
                    yield Result(*which, sampler, comm.name, comm.size, c, algorithm, hubs, digest)


def _digest(comm: Communicator, plan: Plan, graph: ComparedGraph, sampler: str) -> str:
    try:
        return bulk_digest(plan.sample(graph, sampler), comm)
    except CommunicationError:
        raise
    except SpSampleError as error:  # of all ranks
        return f"{type(error).__name__}: {error}"


def different(results: list[Result]) -> list[Result]:
    """Those whose hash is not that of one process."""
    expected = {result.case: result.digest for result in results if result.launcher == ONE_PROCESS}
    return [result for result in results if result.digest != expected[result.case]]


def table(results: list[Result]) -> list[str]:
    """Markdown: a row per case, a column per launcher and number of ranks, in them how many of how many are equal."""
    wrong = different(results)
    columns = sorted({(r.launcher, r.p) for r in results if r.launcher != ONE_PROCESS})
    counts: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    digests = {}
    for result in results:
        counts[result.case, (result.launcher, result.p)][0] += result not in wrong
        counts[result.case, (result.launcher, result.p)][1] += 1
        if result.launcher == ONE_PROCESS:
            digests[result.case] = result.digest
    lines = [
        "| graph | sampler | weights | "
        + " | ".join(f"{launcher}, p = {p}" for launcher, p in columns)
        + " | SHA-256 |",
        "|---|---|---|" + "---|" * len(columns) + "---|",
    ]
    for case, digest in digests.items():
        cells = [_cell(*counts[case, column]) for column in columns]
        graph, sampler, weighted = case
        words = [graph, sampler, "yes" if weighted else "no", *cells, f"`{digest[:12]}`"]
        lines.append(f"| {' | '.join(words)} |")
    return lines


def _cell(equal: int, number: int) -> str:
    if not number:
        return ""
    return f"{number} equal" if equal == number else f"**{number - equal} of {number} differ**"


def report(results: list[Result]) -> list[str]:
    """The table, what it is of, and each result that differs."""
    grids = [result for result in results if result.launcher != ONE_PROCESS]
    algorithms, hubs = ({getattr(result, name) for result in grids} for name in ("algorithm", "hubs"))
    wrong = different(results)
    return [
        *table(results),
        "",
        f"Algorithms: {', '.join(sorted(algorithms))}; hub rows: {', '.join(h or 'none' for h in sorted(hubs))}.",
        f"{len(grids) - len(wrong)} of {len(grids)} bulks are those of one process, bit for bit.",
        *(f"different: {result}" for result in wrong),
    ]


# -------------------------------------------------------------------------------------------------------- command line

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


@app.command()
def run(
    graph: Annotated[list[str], typer.Option(help="A data set or rmat:SCALE,EDGE_FACTOR; may be repeated.")],
    threads: Annotated[str, typer.Option(help="Numbers of ranks, as threads; else a launcher says how many.")] = "",
    replication: Annotated[str, typer.Option(help="Only these c.")] = "",
    algorithm: Annotated[list[str], typer.Option(help="Only these; may be repeated.")] = [],  # noqa: B006
    hubs: Annotated[str, typer.Option(help="Hub rows on every rank, besides none.")] = "4MiB",
    batches: Annotated[int, typer.Option()] = 32,
    batch_size: Annotated[int, typer.Option()] = 32,
    graph_cache: Annotated[Path, typer.Option(help="Folder for stores of the graphs.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/same_bulks"),
    backend: Annotated[str, typer.Option(help="As of spsample.init.")] = "auto",
) -> None:
    """Hash bulks over the ranks of this launch and compare them."""
    plan = Plan(
        tuple(graph),
        tuple(algorithm) or tuple(ALL_ALGORITHMS),
        _numbers(replication),
        hubs=("", hubs),
        batches=batches,
        batch_size=batch_size,
        cache=graph_cache,
    )
    wrong = 0
    if threads:
        for p in _numbers(threads):
            begin = time.monotonic()
            wrong += _finish(run_threads(p, lambda comm: list(compare(comm, plan)))[0], begin, out)
    else:
        begin = time.monotonic()
        comm = init(backend)
        results = list(compare(comm, plan))
        if comm.rank == 0:
            wrong += _finish(results, begin, out)
        comm.barrier()
        comm.close()
    raise typer.Exit(1 if wrong else 0)


def _finish(results: list[Result], begin: float, out: Path) -> int:
    """Print and write what rank 0 has found; how many differ."""
    out.mkdir(parents=True, exist_ok=True)
    last = results[-1]
    lines = [json.dumps(result._asdict()) for result in results]
    (out / f"{last.launcher}-{last.p}.jsonl").write_text("\n".join(lines) + "\n")
    seconds = time.monotonic() - begin
    print("\n".join([*report(results), f"{last.launcher}, p = {last.p}: {seconds:.0f} s", ""]), flush=True)
    return len(different(results))


@app.command("table")
def show(files: Annotated[list[Path], typer.Argument(help="Results of `run`.")]) -> None:
    """All results as one table."""
    results = [Result(**json.loads(line)) for file in files for line in file.read_text().splitlines()]
    print("\n".join(report(results)))
    sys.exit(1 if different(results) else 0)


if __name__ == "__main__":
    app()
