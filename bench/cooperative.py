"""Cooperative batches beside independent ones: rows, edges and bytes of a rank, at equal seeds for a step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import partition_vertices
from spsample.distributed.cooperative import owners_of
from spsample.sampling import Sampler
from traces import GRAPHS, Cell, cell

RANKS = (2, 4, 8)
DIM, HIDDEN, FLOAT = 128, 128, 4


@dataclass(frozen=True)
class Share:
    """A rank's part of a step, mean and largest of the ranks, over the mean of independent batches.

    Attributes
    ----------
    rows : float
        Rows of features that a rank fetches.
    edges : float
        Edges that it computes with.
    bytes : float
        What it receives: rows of features that others own; of cooperative batches also activations, gradients, and the
        rows of A that others sampled.
    local_bytes : float
        The same of independent batches of local seeds, with the same parts; 0 without parts.
    """

    graph: str
    sampler: str
    ranks: int
    owners: str
    rows: float
    edges: float
    bytes: float
    largest_rows: float
    largest_edges: float
    local_bytes: float
    independent_rows: float
    independent_edges: float
    independent_bytes: float


def cooperative(
    graph: Annotated[list[str], typer.Option(help="Graphs, as of traces.")] = list(GRAPHS),  # noqa: B006
    sampler: Annotated[list[str], typer.Option(help="GraphSAGE, LADIES or FastGCN.")] = ["GraphSAGE", "LADIES"],  # noqa: B006
    ranks: Annotated[list[int], typer.Option(help="Numbers of ranks.")] = list(RANKS),  # noqa: B006
    owners: Annotated[list[str], typer.Option(help="hash, or a method of spsample partition.")] = ["hash"],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Folder for cooperative.jsonl.")] = None,
) -> None:
    """Count what a rank fetches, computes and receives in a step of a cooperative batch, and of independent ones."""
    found = [
        count_share(name, kind, whole, p, how)
        for name in graph
        for kind in sampler
        for whole in [cell(name, kind)]
        for p in ranks
        for how in owners
    ]
    shown = Table("graph", "sampler", "p", "owners", "rows", "edges", "bytes", "most rows", "most edges", "local bytes")
    for one in found:
        numbers = (one.rows, one.edges, one.bytes, one.largest_rows, one.largest_edges, one.local_bytes)
        shown.add_row(one.graph, one.sampler, str(one.ranks), one.owners, *(f"{number:.2f}" for number in numbers))
    Console().print(shown)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "cooperative.jsonl").open("w") as lines:
            print(json.dumps({"record": "machine", **machine_facts(1)}), file=lines)
            for one in found:
                print(json.dumps({"record": "share", **asdict(one)}), file=lines)


def count_share(name: str, kind: str, whole: Cell, p: int, how: str, random_seed: int = 0) -> Share:
    """Count one epoch of p ranks: of independent batches, and of cooperative ones with owners by a hash or a method."""
    sizes = whole.sampler.sizes if whole.sampler.kind == "node-wise" else [p * size for size in whole.sampler.sizes]
    of_step = whole.sampler.with_sizes(sizes)
    one = replace(whole, batch_size=min(whole.batch_size, len(whole.seeds) // p))
    parts = parts_of(one, p, how)
    options: dict[str, Any] = {"one": one, "parts": parts, "random_seed": random_seed}
    apart = np.array(run_threads(p, partial(_independent, **options)))
    local = 0.0 if parts is None else np.mean(run_threads(p, partial(_local_bytes, one=one, parts=parts)))
    shared = np.array(run_threads(p, partial(_cooperative, sampler=of_step, **options)))
    base = apart.mean(axis=0)
    mean, largest = shared.mean(axis=0) / base, shared.max(axis=0) / base
    most = (*largest[:2].tolist(), float(local / base[2]))
    return Share(name, kind, p, how, *mean.tolist(), *most, *base.tolist())


def parts_of(one: Cell, p: int, how: str) -> NDArray[Any] | None:
    """The owner of each vertex by a method of `spsample partition`; None: a hash."""
    return None if how == "hash" else partition_vertices(one.graph, p, how, seeds=one.seeds)


def _loader(comm: Communicator, one: Cell, sampler: Sampler, batch_size: int, **options: Any) -> sp.BulkLoader:
    graph = sp.ReplicatedGraph(one.graph, comm)
    return sp.BulkLoader(
        graph, one.seeds, sampler, batch_size=batch_size, bulk_size=comm.size, drop_last=True, prefetch=0, **options
    )


def _independent(comm: Communicator, one: Cell, parts: Any, random_seed: int) -> NDArray[np.float64]:
    """Rows, edges and bytes of a step with a batch of this rank's own, the mean over whole steps."""
    loader = _loader(comm, one, one.sampler, one.batch_size, random_seed=random_seed)
    owners = owners_of(loader.graph, parts)
    totals, steps = np.zeros(3), loader.num_batches // comm.size
    for step, batch in enumerate(loader):
        if step < steps:
            remote = np.count_nonzero(owners.of(batch.src_nodes) != comm.rank)
            edges = sum(layer.adj.nnz for layer in batch.layers)
            totals += [len(batch.src_nodes), edges, remote * DIM * FLOAT]
    loader.close()
    return totals / steps


def _local_bytes(comm: Communicator, one: Cell, parts: Any) -> float:
    """Bytes of features that a rank receives in a step with batches of the seeds of its own part."""
    graph = sp.ReplicatedGraph(one.graph, comm)
    options: dict[str, Any] = {"batch_size": one.batch_size, "bulk_size": comm.size, "prefetch": 0}
    loader = sp.BulkLoader(graph, one.seeds, one.sampler, batches="local", parts=parts, **options)
    remote = [np.count_nonzero(parts[batch.src_nodes] != comm.rank) for batch in loader if len(batch.seeds)]
    loader.close()
    return float(np.mean(remote)) * DIM * FLOAT


def _cooperative(comm: Communicator, one: Cell, sampler: Sampler, parts: Any, random_seed: int) -> NDArray[np.float64]:
    """Rows, edges and bytes of a step with a part of a batch of p times the seeds."""
    recorder = Recorder(comm)
    options = {"batches": "cooperative", "parts": parts, "random_seed": random_seed}
    loader = _loader(recorder, one, sampler, comm.size * one.batch_size, **options)
    totals, steps = np.zeros(3), 0
    for batch in loader:
        received = [int(layer.routes.recv_counts.sum()) for layer in batch.layers]
        sent = [int(layer.routes.send_counts.sum()) for layer in batch.layers]
        activations = received[0] * DIM + (sum(received[1:]) + sum(sent[1:])) * HIDDEN
        edges = sum(layer.adj.nnz for layer in batch.layers)
        totals += [len(batch.src_nodes), edges, activations * FLOAT]
        steps += 1
    totals[2] += recorder.traffic.phases["pieces"].bytes_received
    loader.close()
    return totals / steps
