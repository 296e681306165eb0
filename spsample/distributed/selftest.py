"""A check of all ranks with the calls of real runs: exchanges of every kind, and bulks equal to one process's.

It is for machines on which the project's own tests were never run, such as those with several GPUs: see
``spsample doctor --selftest``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from spsample.backends import get_backend
from spsample.comm import Communicator, collective
from spsample.comm.check import check_ranks
from spsample.distributed.graph import ReplicatedGraph
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.partitioned import PartitionedGraph
from spsample.errors import BackendError, MissingDependencyError, SpSampleError
from spsample.sampling import LADIES, BulkSample, FastGCN, GraphSAGE
from spsample.sampling.sampler import Sampler
from spsample.sampling.workload import sample_batches
from spsample.store import Graph

VERTICES, DEGREE = 600, 9
SEEDS, BATCH_SIZE = 70, 8
CHECKED = ("column", "stages")
DTYPES = ("uint8", "int32", "int64", "float32", "float64", "float16")


class SelfTestError(SpSampleError):
    """A result that ranks computed or received together is wrong."""


def selftest(comm: Communicator, tell: Callable[[str], None] = lambda _: None, *, needs_device: bool = False) -> int:
    """Run all checks; collective. Returns the number of comparisons, the same on every rank.

    Parameters
    ----------
    comm : Communicator
        All ranks.
    tell : callable
        Called on rank 0 with a line after each check.
    needs_device : bool
        Raise an error if a rank has no GPU for the backend "cuda". Else `tell` is called with that, and nothing on
        devices is checked.

    Raises
    ------
    BackendError
        On every rank, if a rank has no GPU that is needed, or CuPy is missing.
    SelfTestError
        On every rank, naming the rank and what differed first.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> counts = run_threads(2, selftest)
    >>> counts[0] == counts[1] > 50
    True
    """
    with collective(comm):
        device, reason = _cuda()
        if needs_device and device is None:
            raise BackendError(f"the self-test of devices needs one for each rank: {reason}")
    without = np.flatnonzero(comm.all_gather(np.array([device is None]), phase="selftest")[:, 0])
    if len(without):
        device = None
        if comm.rank == 0:
            why = reason or f"rank {without[0]} has none"
            tell(f"devices: NOT checked, since not every rank has one ({why})")
    done = 0
    for title, check in _checks(comm, device):
        with collective(comm):
            count = check()
        done += count
        if comm.rank == 0:
            tell(f"{title}: {count} right")
    return done


def _checks(comm: Communicator, device: Any) -> Iterator[tuple[str, Callable[[], int]]]:
    yield "exchanges of the host's arrays", partial(_exchanges, comm, np.asarray)
    if device is not None and getattr(comm, "takes_device_buffers", False):
        yield "exchanges of the device's arrays", partial(_exchanges, comm, device.to_device)
    for backend in [None, *(["cuda"] if device is not None else [])]:
        name = "the device" if backend else "the host"
        for kind in ("unweighted", "row", "weighted"):
            yield f"bulks of a replicated graph, {kind}, on {name}", partial(_replicated, comm, kind, backend)
            for replication in [c for c in range(1, comm.size + 1) if comm.size % (c * c) == 0]:
                grid = f"{comm.size // replication} x {replication}"
                yield (
                    f"bulks of a partitioned graph, {kind}, grid {grid}, on {name}",
                    partial(_partitioned, comm, kind, backend, replication),
                )


def _cuda() -> tuple[Any, str]:
    """Return the backend `cuda`; without a GPU None, and the reason."""
    try:
        return get_backend("cuda"), ""
    except (BackendError, MissingDependencyError) as error:
        return None, str(error)


# ---------------------------------------------------------------------------------------------------------- exchanges


def _exchanges(comm: Communicator, to_device: Callable[[Any], Any]) -> int:
    """Check every collective call with every type, and with even, uneven and empty parts."""
    check_ranks(comm)
    count = 0
    for dtype in DTYPES:
        ranks = np.arange(comm.size)
        for sizes in (
            np.ones(comm.size, np.int64),
            (comm.rank + ranks) % 3,
            np.zeros(comm.size, np.int64),
        ):  # as many from r to q as from q to r
            sent = np.repeat(comm.rank * comm.size + ranks, sizes).astype(dtype)
            came = comm.all_to_all_v(to_device(sent), sizes, sizes, phase="selftest")
            wanted = np.repeat(ranks * comm.size + comm.rank, sizes).astype(dtype)
            _require(_host(came), wanted, f"all-to-all of {dtype}, {sizes.tolist()} elements")
            count += 1
        gathered = comm.all_gather_v(to_device(np.full(comm.rank + 1, comm.rank, dtype)), ranks + 1, phase="selftest")
        _require(_host(gathered), np.repeat(ranks, ranks + 1).astype(dtype), f"all-gather of {dtype}")
        sent_by_last = comm.broadcast(
            to_device(np.arange(5).astype(dtype) + comm.rank), comm.size - 1, phase="selftest"
        )
        _require(_host(sent_by_last), np.arange(5).astype(dtype) + comm.size - 1, f"broadcast of {dtype}")
        count += 2
    return count


def _host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else get_backend("cuda").on_host(array)


def _require(received: Any, expected: Any, what: str) -> None:
    if received.dtype != expected.dtype or not np.array_equal(received, expected):
        raise SelfTestError(f"{what}: got {received[:8].tolist()}..., expected {expected[:8].tolist()}...")


# -------------------------------------------------------------------------------------------------------------- bulks


def _graph(kind: str) -> Graph:
    """A random multigraph with a few hubs."""
    rng = np.random.default_rng(7)
    edges = rng.integers(0, VERTICES, (2, VERTICES * DEGREE))
    edges[0, : VERTICES * DEGREE // 4] = rng.integers(0, 5, VERTICES * DEGREE // 4)
    weights = rng.random(edges.shape[1], np.float32) if kind == "weighted" else None
    graph = Graph.from_edge_index(edges, num_nodes=VERTICES, edge_weight=weights)
    return graph.normalized("row") if kind == "row" else graph


def _samplers() -> list[Sampler]:
    return [
        GraphSAGE([5, 3]),
        GraphSAGE([4, -1], layout="subgraph"),
        LADIES([20, 20]),
        LADIES([20], law="squared_count"),
        FastGCN([30]),
    ]


def _replicated(comm: Communicator, kind: str, backend: str | None) -> int:
    graph = _graph(kind)
    return sum(_same_bulks(comm, graph, ReplicatedGraph(graph, comm), s, backend) for s in _samplers())


def _partitioned(comm: Communicator, kind: str, backend: str | None, replication: int) -> int:
    graph, grid = _graph(kind), ProcessGrid(comm, replication=replication)
    try:
        count = 0
        for algorithm in CHECKED:
            shared = PartitionedGraph.from_graph(graph, grid, algorithm=algorithm)
            count += sum(_same_bulks(comm, graph, shared, sampler, backend) for sampler in _samplers())
        return count
    finally:
        grid.close()


def _same_bulks(comm: Communicator, graph: Graph, shared: Any, sampler: Sampler, backend: str | None) -> int:
    """Compare the batches of every rank with those of one process, array by array. Returns the number of all ranks."""
    seeds = np.arange(SEEDS) * 7 % VERTICES
    call: dict[str, Any] = {"batch_size": BATCH_SIZE, "random_seed": 3, "edge_ids": True}
    expected = sample_batches(graph, seeds, sampler, **call)
    mine = sample_batches(shared, seeds, sampler, **call, backend=backend).to_host()
    for number, batch_id in enumerate(mine.batch_ids.tolist()):
        pairs = zip(_arrays(mine, number), _arrays(expected, batch_id), strict=True)
        for (name, array), (_, wanted) in pairs:
            same = array is wanted is None or (
                array is not None and array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes()
            )
            if not same:
                raise SelfTestError(f"{sampler!r} on {shared!r}: {name} of batch {batch_id} is not that of one process")
    return len(expected)


def _arrays(bulk: BulkSample, number: int) -> Iterator[tuple[str, Any]]:
    for i, layer in enumerate(bulk[number].layers, 1):
        for name in ("dst_nodes", "src_nodes", "edge_ids"):
            yield f"{name} of layer {i}", getattr(layer, name)
        for name in ("indptr", "indices", "data"):
            yield f"{name} of layer {i}", getattr(layer.adj, name)
