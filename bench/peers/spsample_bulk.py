"""spsample, in its own process like every peer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from gpu.bytes_moved import bytes_of_minibatch
from graphs import draw_seeds
from lines import Lines, indices_lines, indptr_lines
from peers.memory_use import peak_beyond
from peers.task import Inputs, Options, Task, Work
from spsample.planning import scratch_bytes
from spsample.sparse import CSRMatrix, RowSelector, select_rows, spgemm

PACKAGES = ("spsample", "numpy", "scipy")
_SETTLING_SECONDS = 0.3


@cache
def _graph(inputs: Inputs, form: str = "unweighted") -> sp.Graph:
    """The graph: "unweighted", or with "exponential" weights; or a "small" one in its place."""
    if form == "small":
        return sp.load_dataset("rmat:12,8").graph
    weights = None
    if form == "exponential":
        weights = np.random.default_rng(2).standard_exponential(len(inputs.indices), np.float32)
    return sp.Graph(inputs.indptr, inputs.indices, weights, validate=False)


def _sampler(options: Options) -> sp.Sampler:
    """The sampler of `method`, with its sizes and keyword options."""
    sampler: sp.Sampler = _METHODS[options.get("method", "GraphSAGE")](options["fanouts"], **options.get("sampler", {}))
    return sampler


_METHODS: dict[str, Any] = {"GraphSAGE": sp.GraphSAGE, "LADIES": sp.LADIES, "FastGCN": sp.FastGCN}


def _seeds(inputs: Inputs, options: Options) -> NDArray[np.int64]:
    """Those that all peers have; where the graph is another one, some of its own."""
    if options.get("graph") == "small":
        return draw_seeds(_graph(inputs, "small").indptr, options["batches"], options["batch_size"])
    return inputs.seeds(options)


class _Calls:
    """`bulk_sample` on the task's graph and seeds; every call is an epoch of its own, with its own draws."""

    def __init__(self, inputs: Inputs, options: Options) -> None:
        self._graph = _graph(inputs, options.get("graph", "unweighted"))
        self._seeds = _seeds(inputs, options)
        self.batches, self._batch_size = self._seeds.shape
        self._sampler = _sampler(options)
        self._edge_ids = options.get("edge_ids", False)
        self._backend = options.get("backend")
        self._epoch = 0

    def __call__(self) -> sp.BulkSample:
        self._epoch += 1
        return sp.bulk_sample(
            self._graph,
            self._seeds.ravel(),
            self._sampler,
            batch_size=self._batch_size,
            epoch=self._epoch,
            edge_ids=self._edge_ids,
            backend=self._backend,
        )


@contextmanager
def _threads(inputs: Inputs, options: Options) -> Iterator[None]:
    """The task's own number of threads, where it has one."""
    sp.set_num_threads(options.get("threads", inputs.threads))
    yield
    sp.set_num_threads(inputs.threads)


def bulk(inputs: Inputs, options: Options) -> Work:
    """All batches in one call, as the bulk holds them."""
    sample = _Calls(inputs, options)

    def work() -> dict[str, float]:
        with _threads(inputs, options):
            return {"batches": sample.batches, "edges": sample().num_edges}

    return work


def bulk_to_pyg(inputs: Inputs, options: Options) -> Work:
    """All batches in one call, each delivered as int64 COO edges with edge ids and node ids, as torch tensors."""
    import torch  # noqa: F401  (missing where to_pyg would miss it: said before anything is timed)

    sample = _Calls(inputs, {**options, "edge_ids": True})

    def work() -> dict[str, float]:
        edges = 0
        for minibatch in sample():
            _, _, layers = minibatch.to_pyg()
            edges += sum(layer.edge_index.size(1) for layer in layers)
        return {"batches": sample.batches, "edges": edges}

    return work


def bulks(inputs: Inputs, options: Options) -> Work:
    """All batches, `bulk_size` to a call, each batch's layers looked at."""
    calls = _Bulks(inputs, options)

    def work() -> dict[str, float]:
        edges = sum(layer.adj.nnz for bulk in calls() for minibatch in bulk for layer in minibatch.layers)
        return {"batches": calls.batches, "edges": edges}

    return work


def bulks_to_pyg(inputs: Inputs, options: Options) -> Work:
    """The same, each batch delivered as int64 COO edges with edge ids and node ids, as torch tensors."""
    import torch  # noqa: F401  (missing where tensors would miss it: said before anything is timed)

    from spsample.sampling import adapters

    calls = _Bulks(inputs, {**options, "edge_ids": True})
    is_subgraph = options["sampler"].get("layout") == "subgraph"

    def edges_of(minibatch: sp.MiniBatch) -> int:
        if is_subgraph:  # as the operation gives it: tensors, no `Data`
            return int(adapters.subgraph_tensors(minibatch)[0].size(1))
        return sum(layer.edge_index.size(1) for layer in minibatch.to_pyg()[2])

    def work() -> dict[str, float]:
        edges = sum(edges_of(minibatch) for bulk in calls() for minibatch in bulk)
        return {"batches": calls.batches, "edges": edges}

    return work


class _Bulks:
    """Calls of `bulk_sample` for `bulk_size` batches each; a pass is an epoch of its own."""

    def __init__(self, inputs: Inputs, options: Options) -> None:
        self._inputs, self._options = inputs, options
        self._seeds, self._sampler = inputs.seeds(options), _sampler(options)
        self.batches = len(self._seeds)
        self._epoch = 0

    def __call__(self) -> Iterator[sp.BulkSample]:
        self._epoch += 1
        k, graph = self._options["bulk_size"], _graph(self._inputs)
        for first in range(0, self.batches, k):
            yield sp.bulk_sample(
                graph,
                self._seeds[first : first + k].ravel(),
                self._sampler,
                batch_size=self._seeds.shape[1],
                epoch=self._epoch,
                first_batch=first,
                edge_ids=self._options.get("edge_ids", False),
            )


def loader_edges(inputs: Inputs, options: Options) -> Work:
    """A pass of the loader without features, each batch as int64 COO edges with edge ids."""
    seeds, batches = inputs.seeds(options), _loader(inputs, options)

    def work() -> dict[str, float]:
        edges = sum(layer.edge_index.size(1) for batch in batches for layer in batch.minibatch.to_pyg()[2])
        return {"batches": len(seeds), "edges": edges}

    return _settled(work)


def loader_pyg_edges(inputs: Inputs, options: Options) -> Work:
    """A pass of `BulkLoader.pyg` without features, each batch a `Data` as that of PyG's NeighborLoader."""
    seeds, batches = inputs.seeds(options), _loader(inputs, options).pyg()

    def work() -> dict[str, float]:
        return {"batches": len(seeds), "edges": sum(batch.edge_index.size(1) for batch in batches)}

    return _settled(work)


def _settled(work: Work) -> Work:
    """After as many passes as a loader needs to choose between threads and turns."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < _SETTLING_SECONDS:
        work()
    return work


def loader(inputs: Inputs, options: Options) -> Work:
    """One pass of the loader, features put to each batch, as it comes."""
    seeds, batches = inputs.seeds(options), _loader(inputs, options)

    def work() -> dict[str, float]:
        edges = rows = 0
        for batch in batches:
            edges += sum(len(layer.adj.indices) for layer in batch.layers)
            rows += len(batch.x)
        return {"batches": len(seeds), "edges": edges, "rows": rows}

    return work


def loader_to_pyg(inputs: Inputs, options: Options) -> Work:
    """One pass of the loader, each batch as torch tensors: int64 COO edges with edge ids, node ids, features."""
    import torch

    seeds, batches = inputs.seeds(options), _loader(inputs, {**options, "edge_ids": True})

    def work() -> dict[str, float]:
        edges = rows = 0
        for batch in batches:
            _, _, layers = batch.minibatch.to_pyg()
            edges += sum(layer.edge_index.size(1) for layer in layers)
            rows += len(torch.from_numpy(batch.x))
        return {"batches": len(seeds), "edges": edges, "rows": rows}

    return work


def loader_pyg(inputs: Inputs, options: Options) -> Work:
    """One pass of `BulkLoader.pyg`, each batch a `Data` as that of PyG's NeighborLoader."""
    seeds, batches = inputs.seeds(options), _loader(inputs, options).pyg()

    def work() -> dict[str, float]:
        edges = rows = 0
        for batch in batches:
            edges += batch.edge_index.size(1)
            rows += batch.num_nodes
        return {"batches": len(seeds), "edges": edges, "rows": rows}

    return work


def _loader(inputs: Inputs, options: Options) -> sp.BulkLoader:
    seeds = inputs.seeds(options)
    return sp.BulkLoader(
        _graph(inputs),
        seeds.ravel(),
        _sampler(options),
        batch_size=seeds.shape[1],
        features=inputs.features(options) if "dim" in options else None,
        **({"bulk_size": options["bulk_size"]} if "bulk_size" in options else {}),
        edge_ids=options.get("edge_ids", False),
        shuffle=False,
    )


def count_lines(inputs: Inputs, options: Options) -> Work:
    """What a batch-by-batch sampler has to touch for these batches: lines of `indptr` and `indices`."""
    sample = _Calls(inputs, {**options, "edge_ids": True})

    def work() -> dict[str, float]:
        lines = sum((_lines_of(mb, inputs.indices.itemsize) for mb in sample()), Lines())
        return {"batches": sample.batches, "lines": lines.per_row, "lines_per_layer": lines.per_layer}

    return work


def _lines_of(minibatch: sp.MiniBatch, itemsize: int) -> Lines:
    """Of all its layers; the graph has no edge ids of its own, so that an edge id is a position in `indices`."""
    return sum(
        (
            indptr_lines(layer.dst_nodes) + indices_lines(layer.adj.indptr, layer.edge_ids, itemsize)
            for layer in minibatch.layers
            if layer.edge_ids is not None
        ),
        Lines(),
    )


def count_bytes(inputs: Inputs, options: Options) -> Work:
    """The bytes that must move for these batches on a GPU, by the models of `gpu.bytes_moved`."""
    sample = _Calls(inputs, {**options, "edge_ids": True})

    def work() -> dict[str, float]:
        moved = sum(bytes_of_minibatch(minibatch, inputs.indptr, options) for minibatch in sample())
        return {"batches": sample.batches, "bytes": moved}

    return work


def many_calls(inputs: Inputs, options: Options) -> Work:
    """`calls` calls of one small batch each; a call counts as a batch."""
    sample, calls = _Calls(inputs, options), options["calls"]

    def work() -> dict[str, float]:
        edges = sum(sample().num_edges for _ in range(calls))
        return {"batches": calls, "edges": edges}

    return work


def take_rows(inputs: Inputs, options: Options) -> Work:
    """The step of fanout -1 that copies whole rows of A.

    Bytes: vertices and row ends (8 each) read, row pointers (8) written, entries read and written.
    """
    seeds, graph = inputs.seeds(options), _graph(inputs)
    A, ptr = graph.operand(), np.arange(len(seeds) + 1, dtype=np.int64) * seeds.shape[1]
    Q = RowSelector(ptr, seeds.ravel().astype(graph.indices.dtype), np.arange(len(seeds), dtype=np.int64))

    def work() -> dict[str, float]:
        entries = A.frontier(Q).take_rows(False)
        edges = len(entries.rows.columns)
        itemsize = graph.indices.itemsize
        moved = (24 + itemsize) * seeds.size + 2 * edges * itemsize
        return {"batches": len(seeds), "edges": edges, "bytes": moved}

    return work


def count_rows(inputs: Inputs, options: Options) -> Work:
    """The bytes of `take_rows`, and the lines of `indptr` and `indices` that hold what it reads."""
    take, count = take_rows(inputs, options), count_lines(inputs, options)

    def work() -> dict[str, float]:
        return {**take(), **count()}

    return work


@cache
def _matrix(inputs: Inputs) -> CSRMatrix:
    """A with float32 ones for values, as SciPy has it."""
    return CSRMatrix(inputs.indptr, inputs.indices, np.ones(len(inputs.indices), np.float32), _shape(inputs))


def _shape(inputs: Inputs) -> tuple[int, int]:
    return len(inputs.indptr) - 1, len(inputs.indptr) - 1


def row_selection(inputs: Inputs, options: Options) -> Work:
    """A[rows] of all seeds, values included."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    return partial(_entries_of, lambda: select_rows(A, rows), len(rows), options)


def product(inputs: Inputs, options: Options) -> Work:
    """Q A, one entry per row of Q, by the general product."""
    rows, A = inputs.seeds(options).ravel(), _matrix(inputs)
    ptr = np.arange(len(rows) + 1, dtype=np.int64)
    Q = CSRMatrix(ptr, rows.astype(A.indices.dtype), np.ones(len(rows), np.float32), (len(rows), A.shape[0]))
    return partial(_entries_of, lambda: spgemm(Q, A), len(rows), options)


def _entries_of(multiply: Any, rows: int, options: Options) -> dict[str, float]:
    return {"batches": options["batches"], "rows": rows, "edges": multiply().nnz}


def peak_memory(inputs: Inputs, options: Options) -> Work:
    """The most memory that one call held beyond what was there before it, and the bytes of what it returned."""
    sample, first = _Calls(inputs, options), inputs.seeds(options)[0]
    sp.bulk_sample(_graph(inputs), first, _sampler(options), batch_size=len(first))  # what is loaded on first use
    sp.clear_pool()

    def work() -> dict[str, float]:
        peak, result = peak_beyond(sample)
        output, scratch = _output_bytes(result), scratch_bytes(_graph(inputs), result, inputs.threads)
        edges = result.num_edges
        figures = {"peak_bytes": peak, "output_bytes": output, "scratch_bytes": scratch}
        return {"batches": sample.batches, "edges": edges, **figures}

    return work


def _output_bytes(bulk: sp.BulkSample) -> int:
    """Bytes of the distinct arrays of a bulk: layers of one bulk share some."""
    fields = ("dst", "src", "indptr", "indices", "data", "edge_ids")
    arrays: list[NDArray[Any] | None] = [getattr(layer, name) for layer in bulk.layers for name in fields]
    return sum({a.__array_interface__["data"][0]: a.nbytes for a in arrays if a is not None}.values())


TASKS: dict[str, Task] = {
    "bulk": bulk,
    "bulk_to_pyg": bulk_to_pyg,
    "bulks": bulks,
    "bulks_to_pyg": bulks_to_pyg,
    "loader_edges": loader_edges,
    "loader_pyg_edges": loader_pyg_edges,
    "loader": loader,
    "loader_to_pyg": loader_to_pyg,
    "loader_pyg": loader_pyg,
    "count_lines": count_lines,
    "count_bytes": count_bytes,
    "many_calls": many_calls,
    "take_rows": take_rows,
    "count_rows": count_rows,
    "row_selection": row_selection,
    "product": product,
    "peak_memory": peak_memory,
}
