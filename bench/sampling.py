"""spsample against its peers and against the limits of memory, each in its own process, taking turns."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from cases import PEERS, Case, Settings, Side, cases
from graphs import draw_seeds, graph_folder, save
from machine_facts import beyond_caches, machine_facts
from process import PeerFailedError, PeerMissingError, PeerProcess
from report import Result, Turn, plot, summary, table, write_lines


class Peers:
    """The processes of all peers, each started when it is first needed; a context manager that ends them.

    `missing` says what could not be measured, and why.
    """

    def __init__(self, pythons: dict[str, str | None], inputs: dict[str, Any]) -> None:
        self.missing: list[str] = []
        self._pythons = pythons
        self._inputs = inputs
        self._processes: dict[str, PeerProcess | None] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def get(self, module: str) -> PeerProcess | None:
        """The peer's process, a new one where the last has crashed; None where the peer is missing."""
        process = self._processes.get(module)
        if module not in self._processes or (process is not None and process.has_ended):
            process = self._processes[module] = self._start(module, self._stack)
        return process

    @contextmanager
    def fresh(self, module: str) -> Iterator[PeerProcess | None]:
        """Another process of the peer, for one run."""
        with ExitStack() as stack:
            yield self._start(module, stack)

    def drop_works(self) -> None:
        """Let all peers free what they prepared for a case."""
        for process in filter(None, self._processes.values()):
            if not process.has_ended:
                process.ask("drop")

    def _start(self, module: str, stack: ExitStack) -> PeerProcess | None:
        peer = PEERS[module]
        python = peer.interpreter(self._pythons)
        try:
            if python is None:
                raise PeerMissingError(peer.missing())
            process = stack.enter_context(PeerProcess(peer, python, self._inputs["threads"]))
        except PeerMissingError as error:
            self.missing.append(str(error))
            return None
        process.ask("open", **self._inputs)
        return process


def measured(peers: Peers, case: Case, rounds: int, options: dict[str, Any]) -> dict[str, list[Turn]]:
    """As `measure`; where a peer fails, `peers.missing` says so, and the case has no turns."""
    try:
        return measure(peers, case, rounds, options)
    except PeerFailedError as error:
        peers.missing.append(f"{case.name}: missing ({error})")
        return {}
    finally:
        peers.drop_works()


def measure(peers: Peers, case: Case, rounds: int, options: dict[str, Any]) -> dict[str, list[Turn]]:
    """The turns of each side that could be measured: `rounds` rounds after a warm-up that is discarded."""
    if case.fresh:
        return _measure_fresh(peers, case)
    options = {**options, **_counted(peers, case)}
    ready = [side for side in case.sides if _prepare(peers, case, side, options)]
    turns: dict[str, list[Turn]] = {side.name: [] for side in ready}
    for _ in range(rounds + 1):
        for name, turn in run_round(peers, ready).items():
            turns[name].append(turn)
    return {name: of_side[1:] for name, of_side in turns.items()}


def run_round(peers: Peers, sides: list[Side]) -> dict[str, Turn]:
    """One turn of each side."""
    return {side.name: _run(peers.get(side.peer), side) for side in sides}


def _measure_fresh(peers: Peers, case: Case) -> dict[str, list[Turn]]:
    """One turn of each side, in a process that did nothing before."""
    turns = {}
    for side in case.sides:
        with peers.fresh(side.peer) as process:
            process.ask("prepare", name=side.name, task=side.task, options=side.options)
            turns[side.name] = [_run(process, side)]
    return turns


def _counted(peers: Peers, case: Case) -> dict[str, float]:
    """The figures of the case's `count`."""
    if case.count is None:
        return {}
    process = peers.get(case.count.peer)
    process.ask("prepare", name=case.count.name, task=case.count.task, options=case.count.options)
    figures = _run(process, case.count).figures
    process.ask("drop")
    return figures


def _prepare(peers: Peers, case: Case, side: Side, options: dict[str, Any]) -> bool:
    """Whether the side can be measured; else `peers.missing` says why."""
    process = peers.get(side.peer)
    if process is None:
        return False
    try:
        process.ask("prepare", name=side.name, task=side.task, options={**options, **side.options})
    except PeerFailedError as error:
        peers.missing.append(f"{case.name}, {side.name}: missing ({error})")
        return False
    return True


def _run(process: PeerProcess, side: Side) -> Turn:
    return Turn(**process.ask("run", name=side.name))


def results_of(peers: Peers, case: Case, graph: str, turns: dict[str, list[Turn]]) -> list[Result]:
    """A result for each side that was measured."""
    return [
        Result(
            graph=graph,
            case=case.name,
            side=side.name,
            peer=PEERS[side.peer].title,
            version=_version(peers, side.peer),
            baseline=case.baseline,
            **summary(turns[side.name], turns.get(case.baseline)),
        )
        for side in case.sides
        if side.name in turns
    ]


def _version(peers: Peers, module: str) -> str:
    process = peers.get(module)
    return ", ".join(f"{package} {version}" for package, version in process.versions.items()) if process else ""


def sampling(
    graph: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:21,32",
    case: Annotated[list[str] | None, typer.Option(help="A case to measure; may be repeated. All, by default.")] = None,
    batches: Annotated[int, typer.Option(help="k, batches of a bulk.")] = 196,
    batch_size: Annotated[int, typer.Option(help="b, seeds of a batch.")] = 1024,
    few_batches: Annotated[int, typer.Option(help="Batches of the sides that are too slow for all of them.")] = 12,
    threads: Annotated[int, typer.Option(help="Threads of every peer.")] = 2,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    dgl_python: Annotated[str | None, typer.Option(help="Interpreter that has DGL.")] = None,
    pyg_python: Annotated[str | None, typer.Option(help="Interpreter that has PyG and torch-sparse.")] = None,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of sampling.jsonl and sampling.png.")] = Path("bench/results"),
) -> None:
    """spsample against DGL, PyG and SciPy, and against the limits of this machine's memory."""
    settings = _settings(batches, batch_size, few_batches)
    chosen = _chosen(cases(settings), case)
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = graph_folder(graph, graph_cache or Path(scratch))
        inputs = {**_inputs(folder, Path(scratch), settings), "threads": threads}
        options = {"buffer_bytes": beyond_caches(_graph_bytes(folder))}
        pythons = {"dgl_loader": dgl_python, "pyg_loader": pyg_python}
        results: list[Result] = []
        with Peers(pythons, inputs) as peers:
            for one in chosen:
                console.print(f"{one.name}: {one.about}", markup=False)
                results += results_of(peers, one, graph, measured(peers, one, rounds, options))
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "sampling.jsonl", machine_facts(threads), results, peers.missing)
    plot(results, f"{graph}, {batches} batches of {batch_size}, {threads} threads", out / "sampling.png")
    console.print(table(results))
    for text in peers.missing:
        console.print(text, markup=False)


def _settings(batches: int, batch_size: int, few_batches: int) -> Settings:
    """The settings of the measurements, smaller where smaller batches are asked for."""
    settings = Settings(batches=batches, batch_size=batch_size, few_batches=few_batches)
    return replace(settings, layer_batch_size=min(settings.layer_batch_size, batch_size))


def _chosen(known: dict[str, Case], names: list[str] | None) -> list[Case]:
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}", param_hint="--case")
    return [known[name] for name in names or known]


def _inputs(folder: Path, scratch: Path, settings: Settings) -> dict[str, Any]:
    """Where all peers find the graph and the seeds."""
    seeds = draw_seeds(np.load(folder / "indptr.npy"), settings.batches, settings.batch_size)
    save(scratch / "seeds", seeds=seeds)
    return {"graph": str(folder), "seeds": str(scratch / "seeds" / "seeds.npy")}


def _graph_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.npy"))
