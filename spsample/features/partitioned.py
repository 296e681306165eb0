"""Features in block rows over a process grid, in the memory of hosts or of GPUs, fetched by exchanges."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.backends import StackedSelector, get_backend
from spsample.comm import Channel, Communicator, Received, Sent, collective
from spsample.comm.headers import exchange_numbers
from spsample.comm.objects import all_gather_object, require_same
from spsample.common.checks import require_choice, require_type
from spsample.common.contents import contents_of, is_mapped
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.placement import Placement, from_parts, require_parts
from spsample.errors import InputError
from spsample.features.device import device_arguments, row_addresses
from spsample.features.formats import DTYPES, AsStored, RowFormat, as_rows, dense_rows, format_for
from spsample.features.gathering import row_reader
from spsample.features.keeper import CHUNK_BYTES
from spsample.features.source import FeatureSource
from spsample.store import GraphStore

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from spsample.backends.cuda.backend import CudaKernels


class RowExchange:
    """The exchanges by which ranks of a grid give each other rows: one of requests, and one of rows.

    Attributes
    ----------
    grid : ProcessGrid
        All its ranks fail together.
    channel : Channel
        Over the ranks that exchange: all of the grid, or those of a column group, which has every block.
    phase : str
        The phase that a recorder counts rows in; it counts requests for them in "`phase` requests".
    id_dtype : numpy.dtype
        Type of the numbers of rows in requests.
    """

    def __init__(self, grid: ProcessGrid, phase: str, num_rows: int, *, by_column: bool = False) -> None:
        self.phase, self.id_dtype = phase, id_dtype(num_rows)
        self._by_column, self._is_duplicate = by_column, False
        self._connect(grid)

    def _connect(self, grid: ProcessGrid) -> None:
        members = range(grid.column, grid.comm.size, grid.replication)
        self.grid = grid
        self.channel = Channel(grid.comm, grid.column_group, members) if self._by_column else Channel(grid.comm)

    @property
    def comm(self) -> Communicator:
        """All ranks of the grid."""
        return self.grid.comm

    def gathering(self) -> AbstractContextManager[None]:
        """Around a gather: where one rank fails, all do."""
        return collective(self.comm, self.channel, call=f"gather of {self.phase}")

    def requests(self, places: NDArray[Any], counts: NDArray[np.int64]) -> Received:
        """Ask each rank for rows, and learn what it asks for."""
        return self.channel.exchange([Sent(places, counts)], phase=f"{self.phase} requests")[0]

    def answers(self, rows: NDArray[Any], counts: NDArray[np.int64]) -> Received:
        """Send the rows that were asked for, and receive those that this rank asked for."""
        return self.channel.exchange([Sent(rows, counts)], phase=self.phase)[0]

    def fetch(
        self,
        places: NDArray[Any],
        bounds: NDArray[np.int64],
        answer: Callable[[NDArray[Any]], NDArray[Any]],
        to: tuple[Any, NDArray[np.int64]],
        form: RowFormat | None = None,
    ) -> None:
        """Write the rows at these places, repeats allowed. Collective; each distinct row travels once.

        Parameters
        ----------
        places : int array
            Rank i of those that exchange has the places `bounds[i]` to `bounds[i + 1]` - 1.
        bounds : int64 array (ranks + 1,)
        answer : function
            Gives the rows that this rank sends, by their numbers from its first place on.
        to : pair of arrays
            Where the rows go: an array in C order, and the row in it for each place.
        form : RowFormat, optional
            What the numbers sent stand for. By default for themselves.
        """
        distinct, inverse = np.unique(places, return_inverse=True)
        counts = np.diff(np.searchsorted(distinct, bounds))
        asked = self.requests((distinct - np.repeat(bounds[:-1], counts)).astype(self.id_dtype), counts)
        received = self.answers(answer(asked.rows), asked.counts).rows
        row_reader(received, form).gather(inverse.reshape(-1), *to)

    def duplicate(self) -> Self:
        """Return an exchange of the same rows over duplicated communicators, for another thread; collective."""
        twin = copy.copy(self)
        twin._is_duplicate = True
        twin._connect(self.grid.duplicate())
        return twin

    def close(self) -> None:
        """Free the communicators of a duplicate's grid; another grid is its maker's. Collective."""
        if self._is_duplicate:
            self.grid.close()


class BlockFeatures(FeatureSource):
    """Features in block rows, wherever a rank keeps its block.

    Attributes
    ----------
    exchange : RowExchange
        Within a column group, which has all rows.
    placement : Placement
        The block that has each row.
    first_row : int
        The place of this rank's first row.
    """

    _form_name = "float32"

    def _begin(self, exchange: RowExchange, placement: Placement, dim: int) -> None:
        self.exchange, self.placement = exchange, placement
        self.num_rows, self.dim = int(placement.bounds[-1]), dim
        self.first_row = int(placement.bounds[exchange.grid.row])

    @property
    def grid(self) -> ProcessGrid:
        """The ranks."""
        return self.exchange.grid

    @property
    def comm(self) -> Communicator:
        """All ranks of the grid."""
        return self.exchange.comm

    def _fail(self, error: Exception) -> None:
        with self.exchange.gathering():
            raise error

    def duplicate(self) -> Self:
        """Return these features over duplicated communicators, for another thread; collective."""
        twin = copy.copy(self)
        twin.exchange = self.exchange.duplicate()
        return twin

    def close(self) -> None:
        """Free the communicators of a duplicate's grid; that of other features is their caller's. Collective."""
        self.exchange.close()

    def __repr__(self) -> str:
        blocks = f"block {self.grid.row} of {self.grid.num_blocks}"
        return f"{type(self).__name__}({self.num_rows:,} x {self.dim:,}, {self._form_name}, {blocks})"


class PartitionedFeatures(BlockFeatures):
    """Features in 1.5D block rows: block i of p/c lies on the c ranks of row i of a process grid.

    A rank gets rows from the ranks of its column group, which together hold all of them. Every method that says so is
    collective: all ranks of the grid call it, each with ids of its own, or none.

    Parameters
    ----------
    block
        This rank's rows, by place: a NumPy array, memory map or SciPy sparse matrix. Kept as given, or converted.
    grid
        The ranks.
    placement
        The block of each row; see `even_placement` for what `open` and `of` take by default.
    dtype
        ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"`` (with a scale per column): rows are converted, kept
        in memory and sent so. None: as given, numbers of eight bytes as float32. `spsample.features.formats` states the
        errors.
    phase
        The phase that a recorder counts rows in; it counts requests for them in "`phase` requests".

    Raises
    ------
    InputError, DTypeError
        On every rank, if the rows of one do not fit the placement, have not as many features as those of others, or
        cannot be converted.

    Notes
    -----
    A `gather` of u distinct rows that lie on other ranks receives u rows and sends 4 u bytes of requests (8 from 2^31
    rows on): of distinct rows asked for evenly, the share 1 - c/p. Tripathy, Yelick, Buluc, MLSys 2024, section 6.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> x = np.arange(8.0).reshape(4, 2)
    >>> def body(comm):
    ...     features = PartitionedFeatures.of(x, ProcessGrid(comm))
    ...     return features.block_rows, features.gather([3, comm.rank]).tolist()
    >>> run_threads(2, body)
    [(2, [[6.0, 7.0], [0.0, 1.0]]), (2, [[6.0, 7.0], [2.0, 3.0]])]
    """

    def __init__(
        self, block: Any, grid: ProcessGrid, placement: Placement, *, dtype: str | None = None, phase: str = "features"
    ) -> None:
        with collective(grid.comm):
            rows = _checked(placement, grid, as_rows(block))
            contents = _contents(rows, grid.row_group)
        kinds = all_gather_object(grid.comm, f"{rows.shape[1]} columns of {rows.dtype}")
        for rank, kind in enumerate(kinds):
            if kind != kinds[0]:
                given = f"{kinds[0]} on rank 0, {kind} on rank {rank}"
                raise InputError(argument="block", given=given, expected="the same")
        require_same(grid.comm, dtype=dtype, phase=phase, **placement._asdict())
        _require_same_rows(grid.comm, "block", contents, grid.replication)
        self._begin(RowExchange(grid, phase, int(placement.bounds[-1]), by_column=True), placement, rows.shape[1])
        self._format = _format(rows, dtype, grid)
        self._form_name = self._format.name
        with collective(grid.comm):
            if dtype is not None:
                given, rows = rows, np.empty(rows.shape, self._format.dtype)
                for place, chunk in _chunks(given):
                    rows[place] = self._format.encode(chunk)
            self._reader = row_reader(rows, self._format)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        grid: ProcessGrid,
        name: str = "x",
        *,
        partition: Any = None,
        dtype: str | None = None,
    ) -> PartitionedFeatures:
        """Open features of a graph store; each rank reads its block's rows alone. Collective.

        Parameters
        ----------
        path, name
            As of `FeatureStore.open`.
        partition : int array (vertices,), optional
            The block of each row, as of `PartitionedGraph.open`. None: ranges of as many rows each.
        grid, dtype
            As of the class. Without ``dtype`` the block stays a memory map, unless there is a partition.

        Raises
        ------
        InputError, DataError
            On every rank, if the store or the partition cannot be used on one.
        """
        require_type("grid", grid, ProcessGrid, "an spsample ProcessGrid")
        with collective(grid.comm):
            x, specs = GraphStore.read(path, lambda stored: (stored.features(name), sorted(stored.specs.items())))
        checksums = [(array, spec.sha256) for array, spec in specs if array == name or array.startswith(f"{name}_")]
        require_same(grid.comm, **{name: checksums})
        return cls.of(x, grid, partition=partition, dtype=dtype)

    @classmethod
    def of(cls, x: Any, grid: ProcessGrid, *, partition: Any = None, dtype: str | None = None) -> PartitionedFeatures:
        """Keep a block of rows that every rank can read, in memory or as a memory map. Collective.

        What the ranks have in memory is compared by its contents; maps are not read for it.
        """
        require_type("grid", grid, ProcessGrid, "an spsample ProcessGrid")
        with collective(grid.comm):
            rows = as_rows(x)
            if partition is None:
                placement = even_placement(rows.shape[0], grid.num_blocks)
                block = rows[int(placement.bounds[grid.row]) : int(placement.bounds[grid.row + 1])]
            else:
                parts = require_parts(partition, rows.shape[0], grid.num_blocks)
                placement = from_parts(parts, grid.num_blocks, id_dtype(rows.shape[0]))
                vertices = placement.vertices_of(grid.row, np.dtype(np.int64))
                block = rows[vertices] if sparse.issparse(rows) else dense_rows(rows, vertices)
            contents = _contents(rows, grid.comm)
        _require_same_rows(grid.comm, "x", contents, grid.comm.size)
        return cls(block, grid, placement, dtype=dtype)

    @property
    def block(self) -> Any:
        """Rows of this rank, as they are kept."""
        return self._reader.rows

    @property
    def block_rows(self) -> int:
        """Number of rows on this rank."""
        return self._reader.num_rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on its way."""
        return self._format.dtype.itemsize * self.dim

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's rows."""
        if sparse.issparse(self.block):
            return int(self.block.data.nbytes + self.block.indices.nbytes + self.block.indptr.nbytes)
        return int(self.block.nbytes)

    def block_vertices(self) -> NDArray[np.int64]:
        """Return the vertices whose rows are on this rank, in the order of the rows."""
        vertices: NDArray[np.int64] = self.placement.vertices_of(self.grid.row, np.dtype(np.int64))
        return vertices

    def block_features(self) -> NDArray[np.float32]:
        """Return the features of this rank's rows: float32, C order; the block itself where it is that."""
        if not sparse.issparse(self.block) and self.block.dtype == np.float32:
            return np.ascontiguousarray(self.block)
        return self._reader.gather(np.arange(self.block_rows))

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        """Write rows: each distinct one that is not here is asked for once: an all-to-allv of places, and one of rows.

        They go from this rank's block, and from what is received, to their places in the result without a copy between.
        """
        with self.exchange.gathering():
            places = self.placement.places_of(ids.astype(np.int64, copy=False))
            to = np.arange(len(places)) if at is None else at
            is_here = (places >= self.first_row) & (places < self.first_row + self.block_rows)
            if self.grid.num_blocks > 1:
                others = out, to[~is_here]
                self.exchange.fetch(places[~is_here], self.placement.bounds, self._reader.as_kept, others, self._format)
            self._reader.gather(places[is_here] - self.first_row, out, to[is_here])


def _checked(placement: Placement, grid: ProcessGrid, rows: Any) -> Any:
    """The rows, once there are as many as this rank's block has."""
    bounds = placement.bounds
    if len(bounds) != grid.num_blocks + 1:
        given, expected = f"{len(bounds) - 1} blocks", f"one for each of the p/c = {grid.num_blocks} rows"
        raise InputError(argument="placement", given=given, expected=expected)
    wanted = int(bounds[grid.row + 1] - bounds[grid.row])
    if rows.shape[0] != wanted:
        where = f"block {grid.row}"
        raise InputError(argument="block", given=f"{rows.shape[0]} rows", expected=f"{wanted}, those of {where}")
    return rows


def _contents(rows: Any, comm: Communicator) -> int | None:
    """The fingerprint of rows in memory, where there are ranks to compare with."""
    return None if comm.size == 1 or is_mapped(rows) else contents_of(rows)


def _require_same_rows(comm: Communicator, argument: str, contents: int | None, sharing: int) -> None:
    """Refuse ranks that have other rows in memory, among each `sharing` ranks in a row; collective."""
    numbers = np.array([contents is not None, contents or 0], np.int64)
    everyone = exchange_numbers(comm, np.tile(numbers, (comm.size, 1)), f"comparison of {argument}")
    for first in range(0, comm.size, sharing):
        known = [rank for rank in range(first, first + sharing) if everyone[rank, 0]]
        others = [rank for rank in known if everyone[rank, 1] != everyone[known[0], 1]]
        if others:
            given = f"other rows on {comm.named(others)} than on {comm.named(known[:1])}"
            expected = "the same on every rank" + ("" if sharing == comm.size else " of a row of the grid")
            raise InputError(argument=argument, given=given, expected=expected)


def id_dtype(num_rows: int) -> np.dtype[np.signedinteger]:
    """Type of row numbers."""
    return np.dtype(np.int32 if num_rows < 2**31 else np.int64)


def even_placement(num_rows: int, num_blocks: int) -> Placement:
    """Ranges of as many rows each, the first ones one more.

    Examples
    --------
    >>> even_placement(8, 3).bounds.tolist()
    [0, 3, 6, 8]
    """
    size, longer = divmod(num_rows, num_blocks)
    blocks = np.arange(num_blocks + 1)
    return Placement(size * blocks + np.minimum(blocks, longer))


def _format(rows: Any, dtype: str | None, grid: ProcessGrid) -> RowFormat:
    """Return the form in which rows are kept; collective where it depends on all of them."""
    largest = None
    with collective(grid.comm):
        if dtype is None:
            return AsStored(rows.dtype)
        if require_choice("dtype", dtype, DTYPES) == "int8":
            largest = np.zeros(rows.shape[1])
            for _, chunk in _chunks(rows):
                np.maximum(largest, np.abs(chunk).max(axis=0, initial=0), out=largest)
            largest[np.isnan(largest)] = np.inf  # a maximum over ranks may ignore NaN
    return format_for(dtype, None if largest is None else grid.comm.all_reduce(largest, "max", phase="set-up"))


def _chunks(rows: Any) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Dense pieces of bounded size, one after the other, and where each begins and ends."""
    step = max(1, CHUNK_BYTES // max(1, 8 * rows.shape[1]))
    for first in range(0, rows.shape[0], step):
        place = slice(first, first + step)
        yield place, rows[place].toarray() if sparse.issparse(rows) else np.asarray(rows[place])


class PartitionedDeviceFeatures(BlockFeatures):
    """Features in block rows, each copied to its rank's GPU; rows come out there.

    Ids are sorted by the rank that has them, sent there, and answered by one gather kernel: one all-to-allv of ids and
    one of float32 rows within the column group, for each of which the host reads the counts once. Over NCCL both pass
    from GPU to GPU; over gloo, threads and an MPI that knows nothing of GPUs they pass through the memory of the host.
    Ids that are given twice are fetched twice: those of a minibatch's sources are distinct.
    Rows of a rank's own block pass through the same exchange.

    Parameters
    ----------
    source : PartitionedFeatures
        Of any `dtype`: rows on devices are float32. Its rows are copied, it is not held.

    Raises
    ------
    InputError, DTypeError
        On every rank, if the source of one cannot be used.
    BackendError
        If there is no GPU.
    """

    def __init__(self, source: PartitionedFeatures) -> None:
        require_type("source", source, PartitionedFeatures, "PartitionedFeatures")
        self._begin(source.exchange, source.placement, source.dim)
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self.device = self._kernels.device
        with collective(self.comm), self._kernels.session():
            device = self.device
            self._rows: Any = device.to_device(source.block_features())
            self._row_places = self._places_of(self._rows)
            position, ids = self.placement.position, self.exchange.id_dtype
            self._position = None if position is None else device.to_device(position.astype(ids))

    @property
    def block_rows(self) -> int:
        """Number of rows on this rank."""
        return int(self._rows.shape[0])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row on its way."""
        return 4 * self.dim

    @property
    def nbytes(self) -> int:
        """Bytes of this rank's rows."""
        return int(self._rows.nbytes)

    def _checked(self, ids: Any, out: Any, at: Any) -> tuple[Any, Any, Any]:
        """Ids and places on the device; those that were there are not looked at."""
        return device_arguments(self._kernels, self, ids, out, at)

    def _read(self, ids: Any, out: Any, at: Any = None) -> None:
        with self.exchange.gathering(), self._kernels.session():
            vertices = ids.astype(self.exchange.id_dtype)
            one_batch = StackedSelector(np.array([0, len(ids)]), vertices, np.zeros(1, np.int64))
            routed = self._kernels.route_rows(one_batch, self.placement.bounds, self._position)
            asked = self.exchange.requests(self._sendable(routed.vertices), routed.counts[:, 0])
            wanted: Any = self._kernels.to_device(asked.rows)
            offsets = (wanted if self._position is None else self._position[wanted]) - self.first_row
            answer = self._kernels.gather_rows_at(self._row_places, offsets, self.dim, "float32")
            received = self.exchange.answers(self._sendable(answer), asked.counts)
            rows: Any = self._kernels.to_device(received.rows)
            places = self._kernels.to_device(routed.places)
            self._kernels.gather_rows_at(self._places_of(rows), places, self.dim, "float32", out=out, at=at)

    def _places_of(self, rows: Any) -> Any:
        """The address of each of these rows."""
        device = self._kernels.device
        return device.to_device(row_addresses(device, rows))

    def _sendable(self, rows: Any) -> Any:
        """Return rows where the communicator takes them from: on the device, or on the host."""
        if getattr(self.grid.column_group, "takes_device_buffers", False):
            return rows
        return self._kernels.on_host(rows)
