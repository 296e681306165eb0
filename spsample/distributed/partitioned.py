"""`PartitionedGraph`: A in block rows over a process grid, each rank with its own only."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix, get_backend
from spsample.backends.cuda.copying import on_host_arrays
from spsample.backends.protocol import Int64Array
from spsample.comm import Channel, collective
from spsample.comm.objects import broadcast_object, require_same
from spsample.common.arrays import as_array
from spsample.common.checks import require_choice, require_type
from spsample.common.memory import available_memory
from spsample.common.units import require_bytes
from spsample.distributed.algorithms import ALGORITHMS, AUTO, DEFAULT, AlgorithmChoice, BulkKind, ChosenAlgorithm
from spsample.distributed.blocks import (
    BlockReader,
    GraphRows,
    HeldRows,
    PickedRows,
    StoredRows,
    block_row,
    hub_vertices,
    with_hubs,
)
from spsample.distributed.graph import DistributedGraph, require_same_graph
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.placement import Placement, balanced, from_parts, require_parts
from spsample.errors import InputError
from spsample.sparse import GraphOperand
from spsample.store import Graph, GraphStore
from spsample.store.base_graph import require_local
from spsample.store.construction import sums_of_rows

SHARE = 4
"""Number of times that all of A has to fit in the free memory of each rank for "stages" to be tried: it fetches rows,
whose number is in no plan."""


class PartitionedGraph(DistributedGraph):
    """A graph in 1.5D block rows: rank P(i, j) of a p/c x c grid holds block row i of A and nothing else of it.

    A bulk sampled on it has the same batches, bit for bit, as one sampled on one rank. Made by `open` or `from_graph`,
    which are collective, as is every `bulk_sample`.

    Attributes
    ----------
    grid : ProcessGrid
    comm : Communicator
        All ranks.
    algorithm : str
        The distributed algorithm; "auto" where it is chosen for each kind of bulk.

    References
    ----------
    Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section
    5.2.

    Examples
    --------
    >>> import spsample
    >>> from spsample.comm import run_threads
    >>> graph = spsample.Graph([0, 2, 3, 4, 4], [1, 2, 0, 1])
    >>> def body(comm):
    ...     parts = PartitionedGraph.from_graph(graph, ProcessGrid(comm, replication=1))
    ...     bulk = spsample.bulk_sample(parts, [0, 1], spsample.GraphSAGE([2]), batch_size=1)
    ...     return bulk.batch_ids.tolist(), bulk[0].src_nodes.tolist()
    >>> run_threads(2, body)
    [([0], [0, 1, 2]), ([1], [1, 0])]
    """

    _algorithms: ClassVar[Mapping[str, type[PartitionedOperand]]] = ALGORITHMS

    def __init__(
        self, rows: BlockReader, grid: ProcessGrid, algorithm: str, hub_bytes: int, placement: Placement
    ) -> None:
        self.grid = grid
        self.comm = grid.comm
        self.algorithm = algorithm
        self._rows, self._hub_bytes, self._placement = rows, hub_bytes, placement
        self._held: dict[str, HeldRows] = {}
        self._operands: dict[str, PartitionedOperand] = {}
        self._choice = AlgorithmChoice() if algorithm == AUTO else None
        self._by_algorithm: dict[str, PartitionedGraph] = {}
        self._report: Callable[[float], None] | None = None
        self._may_fetch_rows = False  # True where "stages" may be tried; `_made` sets it

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        grid: ProcessGrid,
        *,
        algorithm: str = AUTO,
        replicate_hubs: int | str | None = None,
        partition: Any = None,
    ) -> PartitionedGraph:
        """Open the graph of a store, each rank its block row: nothing else of the entries is mapped or read.

        Parameters
        ----------
        path : path-like
            The folder of a store, which every rank can read.
        grid : ProcessGrid
        algorithm : {"auto", "column", "stages", "oblivious"}
            The distributed algorithm; the samples are the same. "column" moves the fewest bytes; "stages" is the
            published algorithm, and "oblivious" its baseline, which broadcasts all of A. "auto" samples the first bulks
            of each kind by "column" and by "stages" in turn, and goes on with the faster one: see `chosen_algorithms`.
        replicate_hubs : int or str, optional
            Bytes (or text such as "256MiB") of rows that every rank holds besides its block: those of the vertices that
            are sources of the most edges, which samplers need most often. Their places take another 4 bytes per vertex
            of the graph (8 from 2^31 vertices on), which the budget does not count.
        partition : int array (n,), optional
            The block row of each vertex, such as METIS gives; None: ranges of vertices with about as many entries.

        Raises
        ------
        InputError, DTypeError
            If an argument cannot be used, or is not the same on every rank.
        DataError
            As `spsample.store.GraphStore.open`; on every rank where one cannot read it.
        """
        return cls._made(lambda: GraphStore.read(path, StoredRows), grid, algorithm, replicate_hubs, partition)

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        grid: ProcessGrid,
        *,
        algorithm: str = AUTO,
        replicate_hubs: int | str | None = None,
        partition: Any = None,
    ) -> PartitionedGraph:
        """Cut a graph that every rank has, in memory or as maps; arguments and errors as of `open`.

        Graphs in memory are compared between ranks by their contents, which reads each of them once.
        """

        def rows() -> GraphRows:
            require_local(graph)
            return GraphRows(graph)

        return cls._made(rows, grid, algorithm, replicate_hubs, partition)

    @classmethod
    def _made(
        cls, read: Callable[[], BlockReader], grid: ProcessGrid, algorithm: str, replicate_hubs: Any, partition: Any
    ) -> PartitionedGraph:
        """Check the arguments of `open`, and make the graph; collective."""
        require_type("grid", grid, ProcessGrid, "an spsample ProcessGrid")
        with collective(grid.comm):
            require_choice("algorithm", algorithm, (AUTO, *cls._algorithms))
            parts = None if partition is None else as_array("partition", partition)
            hub_bytes = 0 if replicate_hubs is None else require_bytes("replicate_hubs", replicate_hubs)
            rows = read()
        with collective(grid.comm):
            if parts is None:
                placement = balanced(rows.array("indptr", 0, rows.num_nodes + 1), grid.num_blocks)
            else:
                parts = require_parts(parts, rows.num_nodes, grid.num_blocks)
                placement = from_parts(parts, grid.num_blocks, rows.index_dtype)
        graph = cls(rows, grid, algorithm, hub_bytes, placement)
        require_same_graph(grid.comm, rows)
        require_same(
            grid.comm,
            algorithm=algorithm,
            replicate_hubs=hub_bytes,
            partition=None if parts is None else np.asarray(parts, np.int64),
            replication=grid.replication,
        )
        if graph._choice is not None:
            free = grid.comm.all_reduce(np.array([available_memory()], np.int64), "min", phase="set-up")
            entry = rows.index_dtype.itemsize + 8 * (rows.weighting == "weighted")
            graph._may_fetch_rows = (
                grid.replication == 1 < grid.num_blocks and SHARE * rows.num_edges * entry <= free[0]
            )
        return graph

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's rows, hub rows and mapped ones included; 0 before the first call."""
        arrays: list[Any] = []
        for held in list(self._held.values())[:1]:  # of one backend
            for rows in [held.block, *([] if held.hubs is None else [held.hubs])]:
                A = rows.matrix
                arrays += [A.indptr, A.indices, A.data, A.ids, rows.edge_ids]
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def num_block_rows(self) -> int:
        """Block rows that A lies in, p/c."""
        return self.grid.num_blocks

    def block_rows_of(self, vertices: Int64Array) -> Int64Array:
        """Return the block row of each of these vertices: int64, from 0 to `num_block_rows` - 1."""
        return self._placement.blocks_of(vertices)

    def duplicate(self) -> PartitionedGraph:
        """Return this graph over duplicated communicators, for another thread; collective.

        Rows that were read by a call before are shared.
        """
        other = copy.copy(self)
        other.grid = self.grid.duplicate()
        other.comm = other.grid.comm
        other._duplicated = other.grid
        other._held = dict(self._held)  # a copy: another thread may read meanwhile, on some ranks only
        choice = self._choice
        if choice is not None:
            other._choice = choice.duplicate(broadcast_object(self.comm, lambda: choice.known))
        other._operands, other._by_algorithm = {}, {}
        return other

    def normalized(self, kind: str) -> PartitionedGraph:
        """A normalised by rows, of a graph that stores no weights: nothing is computed, as in `Graph.normalized`.

        Raises
        ------
        InputError
            If `kind` is not "row", or the graph stores weights.
        """
        require_choice("kind", kind, ("row",))
        if self.weighting == "weighted":
            raise InputError(
                argument="graph",
                given="a partitioned graph that stores weights",
                expected="one without",
                hint="A replicated graph can be normalised with its weights.",
            )
        other = copy.copy(self)
        other._duplicated = None
        other._rows = copy.copy(self._rows)
        other._rows.weighting = "row"
        other._choice = None if self._choice is None else AlgorithmChoice()
        other._held, other._operands, other._by_algorithm = {}, {}, {}
        return other

    @property
    def chosen_algorithms(self) -> Sequence[ChosenAlgorithm]:
        """Choices of ``algorithm="auto"`` so far, by this graph and those duplicated from it; else none."""
        return [] if self._choice is None else self._choice.chosen

    def for_bulks(self, sampler: Any, options: Hashable, num_batches: int) -> PartitionedGraph:
        """Return the graph with the algorithm that is chosen for such bulks, or that is tried next.

        All ranks call it, in the same order, before each bulk.
        """
        if self._choice is None:
            return self
        if not self._may_fetch_rows or sampler.kind != "layer-wise":
            return self._fixed
        kind = BulkKind((repr(sampler), options), num_batches)
        name = self._choice.next(kind)
        graph = copy.copy(self._with(name))
        graph._report = partial(self._choice.ran, kind, name) if self._choice.is_tried(kind) else None
        return graph

    @property
    def _fixed(self) -> PartitionedGraph:
        """The graph with a fixed algorithm: of "auto" the one where nothing is tried."""
        return self if self._choice is None else self._with(DEFAULT)

    def _with(self, algorithm: str) -> PartitionedGraph:
        """The graph with that algorithm, over the same communicators; its operands are kept."""
        if algorithm not in self._by_algorithm:
            other = copy.copy(self)
            other.algorithm, other._choice, other._operands = algorithm, None, {}
            self._by_algorithm[algorithm] = other
        return self._by_algorithm[algorithm]

    def operand(self, backend: str | None = None) -> GraphOperand:
        """Return A for the sampling algebra; one operand per backend is kept. Collective when first called.

        With "cuda" the rows of each rank lie on its device and its kernels run there; what is exchanged, and the bulk,
        pass through the memory of the host.
        """
        if self._choice is not None:
            return self._fixed.operand(backend)
        chosen = on_host_arrays(get_backend(backend))
        if chosen.name not in self._operands:
            self._operands[chosen.name] = self._operand(chosen)
        return self._operands[chosen.name]

    def _operand(self, backend: Backend) -> PartitionedOperand:
        if backend.name not in self._held:
            channel = Channel(self.grid.column_group)
            with collective(self.comm, channel):
                held = self._read(channel, backend)
            self._held[backend.name] = held  # on all ranks or on none
        with collective(self.comm):
            return self._algorithms[self.algorithm](self.grid, self._held[backend.name])

    def _read(self, channel: Channel, backend: Backend) -> HeldRows:
        """The block row of this rank and the hub rows."""
        block = block_row(self._rows, self._placement, self.grid.row, backend)
        if not self._hub_bytes:
            return HeldRows(self._rows, self._placement, block)
        hubs = hub_vertices(channel, block, self._rows, self._hub_bytes)
        placement = with_hubs(self._placement, hubs, self.num_nodes)
        return HeldRows(self._rows, placement, block, PickedRows(self._rows, hubs, backend))

    def block_row(self) -> Matrix:
        """Return the rows of A that this rank has; collective when first called, as `operand`."""
        self.operand()
        return self._held[on_host_arrays(get_backend()).name].block.matrix

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row, each rank those of its block row: float32, shape (n,); collective."""
        A = self.block_row()
        with collective(self.comm, call="row_sums"):
            sums = np.zeros(self.num_nodes, np.float32)
            sums[A.ids] = sums_of_rows(self.weighting, A.indptr, A.data)
        return self.add_block_rows(sums, phase="set-up")

    def add_block_rows(self, sums: NDArray[Any], *, phase: str = "other") -> NDArray[Any]:
        """Return the sums over all rows of A of what each rank has summed over its block row; collective."""
        return self.grid.column_group.all_reduce(sums, phase=phase)

    def sampled_batches(self, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that this rank samples, as the algorithm asks for."""
        return self._algorithms[self._fixed.algorithm].sampled_batches(self.grid, num_batches)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Let the column group learn of a rank that fails by the next exchange, and all others at the end."""
        graph = self._fixed
        operands, begin = list(graph._operands.values()), time.perf_counter()
        try:
            with collective(self.comm, *(operand.channel for operand in operands), call="bulk_sample"):
                yield
        except BaseException:
            graph._operands.clear()  # some ranks may have kept data that others have not
            raise
        if self._report is not None:  # all ranks end together: the last one to begin gives the time
            seconds = np.array([time.perf_counter() - begin])
            self._report(float(self.comm.all_reduce(seconds, "min", phase="set-up")[0]))

    def __repr__(self) -> str:
        return (
            f"PartitionedGraph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, weighting={self.weighting!r}, "
            f"algorithm={self.algorithm!r}, {self.grid!r})"
        )
