"""`convert`: from a source of edges to a graph store, in bounded memory."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from spsample.common.checks import require_type
from spsample.common.threads import clear_pool, in_order
from spsample.convert import sort
from spsample.convert.attributes import write_attributes
from spsample.convert.columns import core
from spsample.convert.datasets import Origin
from spsample.convert.edges import CachedEdges, DistinctIds, EdgeChunk, EdgeList, RenumberedEdges, check_chunk
from spsample.convert.options import ConvertOptions
from spsample.convert.origin import open_origin
from spsample.store import StoreWriter
from spsample.store.folder import file_error
from spsample.store.npy import map_npy
from spsample.store.validation import INT32_NODES, MAX_NODES
from spsample.store.verification import num_repeated, num_with_edges

Progress = Callable[[str, int, "int | None"], None]
"""Called with the phase, what of it is done, and its whole (None where that is not known)."""

_PIECE = 1 << 20
_MAX_ID_BITS = 40
_ANY_ID = 2**63
_SPARSE = 10
"""A note is made where there are more vertices than this for each one with an edge."""


@dataclass(frozen=True)
class Conversion:
    """A conversion that is done: sizes of the store, edges read, bytes of temporary files, seconds per phase.

    ``columns`` are those of a table that hold sources and targets. ``not_read`` are columns of a table, or attributes
    of PyG's data, of which nothing was made. ``notes`` are about a table of vertices or a folder, and, with figures,
    about what may be a mistake.
    """

    path: str
    num_nodes: int
    num_edges: int
    edges_read: int
    weighted: bool
    spilled_bytes: int
    seconds: dict[str, float]
    columns: tuple[str, str] | None = None
    not_read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def convert(
    source: str | os.PathLike[str] | Any,
    path: str | os.PathLike[str],
    options: ConvertOptions | None = None,
    *,
    progress: Progress | None = None,
    plan: sort.SortPlan | None = None,
) -> Conversion:
    r"""Write the graph of `source` as a graph store.

    An edge leads from its source to its target: row = target, as in `Graph.from_edge_index`, whose arrays the store
    has, entry by entry, the edge ids too.

    Parameters
    ----------
    source : str, path-like, Dataset, or PyG Data
        A file, two ``.npy`` files (``SRC.npy,DST.npy``), the name of a data set, ``rmat:SCALE,EDGE_FACTOR``,
        ``planted:NODES[,DEGREE[,CLASSES[,NOISE]]]``; or a data set itself.
    path : path-like
        The store to make.
    options : ConvertOptions, optional
        What is done to the edges, and what it may cost.
    progress : callable, optional
        Called with (phase, done, whole or None) as the conversion goes on.
    plan : SortPlan, optional
        Sizes to work with, in place of those that follow from ``options.memory_budget``.

    Returns
    -------
    Conversion

    Raises
    ------
    DataError
        If the source cannot be read or holds something that is no edge (named by file and line, or edge), or the store
        cannot be written. Nothing is left behind.
    InputError, CapacityError
        If an option does not fit the source, or the memory budget is too small.

    Notes
    -----
    Besides the maps of files, memory is needed for what threads work on, within the budget. On the disk, in the folder
    of the store: 8 to 20 bytes per entry while it lasts, and as much once more for sources that are slow to read twice.
    Time is O(E) up to the few passes of a radix sort.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(f"{folder.name}/edges.txt").write_text("# from to\n2 0\n0 1\n1 0\n")
    >>> convert(f"{folder.name}/edges.txt", f"{folder.name}/store").num_edges
    3
    >>> from spsample.store import Graph
    >>> graph = Graph.open(f"{folder.name}/store")
    >>> graph.indptr.tolist(), graph.indices.tolist(), graph.edge_ids.tolist()
    ([0, 2, 3, 3], [1, 2, 0], [2, 0, 1])
    >>> folder.cleanup()
    """
    chosen = ConvertOptions() if options is None else options
    require_type("options", chosen, ConvertOptions, "ConvertOptions")
    threads = chosen.threads or int(core().get_num_threads())
    sizes = plan or sort.make_plan(chosen.memory_budget, threads, 8 if chosen.weights else 4)
    with StoreWriter(path, overwrite=chosen.overwrite) as writer:
        origin = open_origin(source, chosen, sizes.capacity * 64, writer.folder)
        converter = _Converter(writer, origin, replace(chosen, **origin.rules), sizes, progress or (lambda *_: None))
        result = converter.convert(str(path))
        clear_pool()
        started = time.perf_counter()
        converter.report("checksums", 0, None)
    result.seconds["checksums"] = time.perf_counter() - started
    return result


class _Converter:
    """Converts a source to a store, step by step."""

    def __init__(
        self, writer: StoreWriter, origin: Origin, options: ConvertOptions, plan: sort.SortPlan, progress: Progress
    ) -> None:
        self.writer, self.origin, self.options, self.plan, self.report = writer, origin, options, plan, progress
        self.histogram = sort.TargetHistogram(options)
        self.edges_read = self.loops = 0
        self.seconds: dict[str, float] = {}

    def convert(self, path: str) -> Conversion:
        """Write the store."""
        with ExitStack() as stack:
            edges = self._read(self.origin.edges, stack)
            num_nodes = self._num_nodes(edges)
            nodes = self.origin.nodes
            if nodes is not None:
                nodes.check(num_nodes)
            num_edges, spilled = self._sort(edges, num_nodes, stack)
            started = time.perf_counter()
            write_attributes(self.writer, self.origin, self.options, num_nodes)
            self.seconds["attributes"] = time.perf_counter() - started
        return Conversion(
            path=path,
            num_nodes=num_nodes,
            num_edges=num_edges,
            edges_read=self.edges_read,
            weighted=edges.weight_dtype is not None,
            spilled_bytes=spilled,
            seconds=self.seconds,
            columns=self.origin.edges.ends,
            not_read=self.origin.edges.unread,
            notes=(*self.origin.edges.notes, *(nodes.notes if nodes else ()), *self._notes(num_nodes)),
        )

    def _notes(self, num_nodes: int) -> tuple[str, ...]:
        """Return notes about what is unusual in the graph, with figures."""
        indptr, indices = (map_npy(self.writer.folder / f"{name}.npy") for name in ("indptr", "indices"))
        repeated = 0 if self.options.deduplicate != "no" else num_repeated(indptr, indices)
        pieces = (indptr[i : i + _PIECE + 1] for i in range(0, len(indptr) - 1, _PIECE))
        rows = sum(int(np.count_nonzero(np.diff(piece))) for piece in pieces)
        used = num_with_edges(indptr, indices) if num_nodes > _SPARSE * rows else num_nodes
        loops = 0 if self.options.drop_self_loops else self.loops
        notes = []
        if len(indices) == 0:
            notes.append("no edges: every vertex is isolated")
        elif num_nodes > _SPARSE * used:
            notes.append(f"vertices that have an edge: {used:,} of {num_nodes:,} (--renumber leaves the others out)")
        if repeated:
            self.writer.set(repeated_edges=repeated)
            hint = "--deduplicate first leaves them out"
            notes.append(f"edges that repeat one between the same vertices: {repeated:,} ({hint})")
        if loops:
            notes.append(f"edges from a vertex to itself: {loops:,} (--drop-self-loops leaves them out)")
        return tuple(notes)

    # ---------------------------------------------------------------------------------------------------- reading

    def _read(self, edges: EdgeList, stack: ExitStack) -> EdgeList:
        """Count and check all edges; return them in a form that can be read again."""
        started = time.perf_counter()
        nodes, names = self.origin.nodes, self.origin.names
        if self.options.renumber != "no":
            distinct = DistinctIds(self.plan.capacity * 64)
            cached = self._cached(edges, stack, distinct)
            ids = distinct.ids()
            if len(ids) == 0:
                raise file_error(edges.name, "no edges", "at least one edge to renumber")
            if nodes is not None:
                ids = nodes.join_ids(ids, distinct)
            self.origin.arrays["original_ids"] = ids
            edges = RenumberedEdges(cached, ids)
            self.edges_read = self.loops = 0
            self._measure(edges)
        elif edges.rereadable:
            self._measure(edges)
        else:
            edges = self._cached(edges, stack)
        if nodes is not None and names is not None:
            nodes.join_names(names)
        elif nodes is not None and self.options.renumber == "no":
            self.histogram.reach(nodes.join_vertices(self.histogram.largest))
        self.seconds["read"] = time.perf_counter() - started
        return edges

    def _cached(self, edges: EdgeList, stack: ExitStack, distinct: DistinctIds | None = None) -> CachedEdges:
        cached = CachedEdges(edges.name, self.writer.folder, edges.weight_dtype)
        stack.callback(cached.close)
        self._measure(edges, cached, distinct)
        cached.num_nodes = edges.num_nodes
        return cached

    def _measure(self, edges: EdgeList, cached: CachedEdges | None = None, distinct: DistinctIds | None = None) -> None:
        """Check all chunks in order; the histogram counts them, or else `distinct` takes their ids."""
        limit = self._limit(edges)
        tasks = (partial(self._measured, task, limit, distinct is None) for task in edges.tasks(self.plan.chunk))
        line = 1
        for chunk, limits, loops in in_order(tasks, self.plan.threads):
            chunk.first, chunk.first_line = self.edges_read, line
            check_chunk(edges.name, chunk, limits, limit)
            if chunk.problem is not None:
                raise chunk.problem(line)
            if cached is not None:
                cached.add(chunk, limits[1])
            if distinct is not None:
                distinct.add(chunk)
            self.edges_read += chunk.count
            self.loops += loops
            line += chunk.lines
            self.report("reading", self.edges_read, self.origin.edges.num_edges)
        self.origin.edges.check()

    def _measured(
        self, task: Callable[[], EdgeChunk], limit: int | None, count: bool
    ) -> tuple[EdgeChunk, tuple[int, int], int]:
        chunk = task()
        limits = core().edge_limits(chunk.sources, chunk.targets, chunk.step, chunk.count)
        if count and limits[0] >= 0 and 0 <= limits[1] < (limit or MAX_NODES):
            self.histogram.reach(limits[1])
            self.histogram.count(chunk)
        sources, targets = chunk.ends
        return chunk, limits, int(np.count_nonzero(sources == targets))

    def _limit(self, edges: EdgeList) -> int | None:
        """Return the largest possible number of vertices, if that is known."""
        if self.options.num_nodes is not None:
            return self.options.num_nodes
        if self.options.renumber != "no" and not isinstance(edges, RenumberedEdges):
            return _ANY_ID
        return edges.num_nodes

    def _num_nodes(self, edges: EdgeList) -> int:
        number = self._limit(edges) or len(self.origin.names or ()) or self.histogram.largest + 1
        if number < 1:
            expected = "at least one edge where num_nodes is not given"
            raise file_error(edges.name, "no edges", expected, "" if self.options.string_ids else "Give --num-nodes.")
        most = min(1 << _MAX_ID_BITS, shutil.disk_usage(self.writer.folder).free // 8)
        if number > most:
            hint = "--renumber numbers the ids that occur 0, 1, ..."
            expected = f"ids below {most}: each takes 8 bytes on the disk, used or not"
            raise file_error(edges.name, f"a vertex id of {number - 1}", expected, hint)
        return number

    # ---------------------------------------------------------------------------------------------------- sorting

    def _sort(self, edges: EdgeList, num_nodes: int, stack: ExitStack) -> tuple[int, int]:
        """Spill and sort all edges into the arrays of the store; return entries and bytes spilled."""
        options, plan = self.options, self.plan
        self.histogram.reach(num_nodes - 1)
        if options.add_self_loops:
            self.histogram.add_loops(num_nodes)
        position_bits = max(1, (plan.chunk - 1).bit_length()) if options.edge_ids else 0
        buckets = sort.make_buckets(self.histogram, num_nodes, plan.bucket, position_bits)
        weight_bytes = 0 if edges.weight_dtype is None else edges.weight_dtype.itemsize
        spill = sort.Spill(self.writer.folder / "spilled", sort.record_format(buckets, position_bits, weight_bytes))
        stack.callback(spill.close)
        started, done = time.perf_counter(), 0
        chunks = enumerate(self._chunks(edges, num_nodes))
        tasks = (partial(sort.spill_chunk, number, chunk, buckets, options, spill) for number, chunk in chunks)
        for count in in_order(tasks, plan.threads):
            done += count
            self.report("partitioning", done, self.edges_read)
        self.seconds["partition"] = time.perf_counter() - started
        if isinstance(edges, CachedEdges):
            edges.close()
        started, done = time.perf_counter(), 0
        total = int(buckets.counts.sum())
        arrays = sort.SortedArrays(
            self.writer.create("indptr", np.int64, num_nodes + 1),
            self.writer.create("indices", np.int32 if num_nodes <= INT32_NODES else np.int64, total),
            self.writer.create("edge_ids", np.int64, total) if options.edge_ids else None,
            None if edges.weight_dtype is None else self.writer.create("data", edges.weight_dtype, total),
        )
        for count in sort.sort_buckets(spill, buckets, options, arrays, plan):
            done += count
            self.report("sorting", min(done, total), total)
        self._shorten(arrays, written := count, total)
        self.seconds["sort"] = time.perf_counter() - started
        return written, spill.nbytes

    def _chunks(self, edges: EdgeList, num_nodes: int) -> Iterator[Callable[[], EdgeChunk]]:
        yield from edges.tasks(self.plan.chunk)
        step = min(_PIECE, self.plan.chunk)
        for first in range(0, num_nodes if self.options.add_self_loops else 0, step):
            ids = np.arange(first, min(first + step, num_nodes), dtype=np.int64)
            ones = None if edges.weight_dtype is None else np.ones(len(ids), edges.weight_dtype)
            yield partial(EdgeChunk, ids, ids, len(ids), 1, ones, self.edges_read + first, added=True)

    def _shorten(self, arrays: sort.SortedArrays, written: int, total: int) -> None:
        """Give back the room of merged edges, and edge ids that are the places of the entries."""
        for name in ("indices", "edge_ids", "data") if written < total else ():
            if getattr(arrays, name) is not None:
                self.writer.shorten(name, written)
        if arrays.edge_ids is not None:
            pieces = (arrays.edge_ids[i : min(i + _PIECE, written)] for i in range(0, written, _PIECE))
            if all(np.array_equal(ids, np.arange(i * _PIECE, i * _PIECE + len(ids))) for i, ids in enumerate(pieces)):
                self.writer.discard("edge_ids")
