"""`DeviceFeatures`: hot rows in the memory of a GPU, and a way to all others, behind one view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from spsample.backends import get_backend
from spsample.comm import collective
from spsample.common.checks import require_share
from spsample.common.contents import contents_of
from spsample.common.locks import renewed
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.features.formats import AsStored, RowFormat, as_rows, format_for
from spsample.features.gathering import require_places, slot_map_bytes, slot_words
from spsample.features.keeper import CacheCounts, RowKeeper, parts_to_read, require_fingerprint, require_host_source
from spsample.features.scores.registry import VertexScores, ranks_of
from spsample.features.source import FeatureSource, FileChangeGuard
from spsample.store.validation import validate_ids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.backends.cuda.device import Device


def row_addresses(device: Device, rows: Any) -> NDArray[np.uint64]:
    """(rows,) the address of each row of an array that a device reads, shape (rows, numbers), C order."""
    row_bytes = np.uint64(rows.itemsize * rows.shape[1])
    return np.uint64(device.address(rows)) + np.arange(rows.shape[0], dtype=np.uint64) * row_bytes


def device_ids(kernels: CudaKernels, ids: Any, count: int, argument: str) -> Any:
    """Return ids below `count` on the device; those that are there already are not looked at."""
    return kernels.to_device(ids if kernels.device.owns(ids) else validate_ids(ids, count, argument=argument))


def device_arguments(kernels: CudaKernels, source: FeatureSource, ids: Any, out: Any, at: Any) -> tuple[Any, Any, Any]:
    """Check what `gather` of a source on a device was called with, and return what its `_read` takes.

    Raises
    ------
    InputError, DTypeError
        If `out` is no float32 array on the device, of rows of `dim` numbers; or has not a row for each id, without
        `at`; or `at` has not one place in `out` for each.
    """
    with kernels.session():
        vertices = device_ids(kernels, ids, source.num_rows, "ids")
        if out is not None and not (kernels.device.owns(out) and out.dtype == np.float32):
            raise DTypeError(argument="out", given=type(out).__name__, expected="a float32 array on the device")
        count, dim = len(vertices), source.dim
        places = require_places(out, at, count, dim, lambda: device_ids(kernels, at, len(out), "at"))
        places = None if places is None else places.astype(np.int64, copy=False)
        return vertices, kernels.device.empty((count, dim), np.float32) if out is None else out, places


class _PinnedRows(NamedTuple):
    """Pinned memory, as the host writes to it and as kernels read it; addresses of its rows, and its last readers."""

    host: NDArray[Any]
    read: Any
    addresses: Any
    readers: Any


class StagedRows:
    """Pinned memory for rows of one kind: a piece for each thread that has some under way, a quarter larger than asked.

    A kernel reads the rows straight from there, so they cross the bus once and take no memory of the device. A piece is
    written to again once the kernels that read it are done; no thread waits for them before.

    Parameters
    ----------
    device : Device
    dim : int
        Numbers of a row.
    dtype : numpy.dtype
    """

    def __init__(self, device: Device, dim: int, dtype: np.dtype[Any]) -> None:
        self._device, self._dim, self._dtype = device, dim, dtype
        self._idle: list[_PinnedRows] = []
        self._taking = renewed(Lock())

    @contextmanager
    def rows(self, count: int) -> Iterator[tuple[NDArray[Any], Any]]:
        """Memory for `count` rows, to write to, and the address of each on the device: for kernels launched within."""
        piece = self._taken(count)
        try:
            yield piece.host[:count], piece.addresses[:count]
        finally:
            given_back = piece._replace(readers=self._device.ready())
            with self._taking:
                self._idle.append(given_back)

    def _taken(self, count: int) -> _PinnedRows:
        with self._taking:
            piece = self._idle.pop() if self._idle else None
        if piece is not None:
            self._device.finish(piece.readers)
            if len(piece.host) >= count:
                return piece
        host, read = self._device.pinned_empty((count + count // 4, self._dim), self._dtype)
        return _PinnedRows(host, read, self._device.to_device(row_addresses(self._device, read)), None)


class StagedFetch:
    """Rows of some vertices, gathered by a source whose rows come out on a device; collective where that is.

    Parameters
    ----------
    features : FeatureSource
    vertices : int array
        On the host.
    """

    def __init__(self, features: FeatureSource, vertices: NDArray[Any]) -> None:
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        with self._kernels.session():
            self._rows: Any = features.gather(vertices)
            self._addresses = self._kernels.to_device(row_addresses(self._kernels.device, self._rows))

    def gather(self, places: NDArray[Any]) -> Any:
        """Rows by their places among the vertices, repeats allowed: a float32 device array."""
        dim = int(self._rows.shape[1])
        with self._kernels.session():
            to_read = self._kernels.to_device(places)
            self._kernels.device.use(self._rows)
            return self._kernels.gather_rows_at(self._addresses, to_read, dim, "float32")


_SOURCE_FORMS = ("float32", "float16", "int8")
"""Types of numbers that kernels read as they are; others come as float32."""


class _Nowhere(FeatureSource):
    """The fallback of an array, which is never asked: the device reads all rows itself."""

    def __init__(self, num_rows: int, dim: int) -> None:
        self.num_rows, self.dim = num_rows, dim

    def _read(self, ids: NDArray[Any], out: Any, at: NDArray[np.int64] | None = None) -> None:
        raise NotImplementedError


class ArrayTiers:
    """An array: hot rows on a device, the others in pinned memory of the host, and the address of every row.

    One kernel reads both, so a batch needs no second pass. All methods are called in a session of the kernels.

    Parameters
    ----------
    x
        Shape (vertices, features).
    dtype : str or None
        As of `DeviceFeatures`.

    Attributes
    ----------
    source : FeatureSource
        The fallback, which has the rows that the device cannot read.
    row_bytes, map_bytes : int
        Bytes of a hot row on the device, and of the map to the rows.
    form : str
        The form of the numbers of a row, in words.
    hot, rows : int64 array and device array
        The vertices whose rows lie on the device, ascending, and these rows.
    """

    def __init__(self, x: Any, dtype: str | None) -> None:
        x = as_rows(x)
        rows: NDArray[Any] = x.toarray() if sparse.issparse(x) else np.asarray(x)
        if dtype is None:
            is_kept = rows.dtype.name in ("float32", "float16")
            self._format: RowFormat = AsStored(rows.dtype if is_kept else np.dtype(np.float32))
        else:  # format_for refuses what is no name
            largest = np.abs(rows).max(axis=0, initial=0) if str(dtype) == "int8" else None
            self._format = format_for(dtype, largest)
        self._encoded: Any = self._format.encode(rows)
        self.source = _Nowhere(*rows.shape)
        self.row_bytes, self.map_bytes = int(self._encoded.itemsize * rows.shape[1]), 8 * len(rows)
        self.form = self._format.name

    def place(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        """Copy all rows, those of the vertices `hot` to the device."""
        device, encoded = kernels.device, self._encoded
        self._kernels, self._kind = kernels, "bfloat16" if encoded.dtype == np.uint16 else encoded.dtype.name
        is_hot = np.zeros(len(encoded), np.bool_)
        is_hot[hot] = True
        cold = np.flatnonzero(~is_hot)
        self.hot, self.rows, self.pinned = hot, device.to_device(encoded[hot]), device.pinned(encoded[cold])
        places = np.zeros(len(encoded), np.uint64)
        places[hot], places[cold] = row_addresses(device, self.rows), row_addresses(device, self.pinned)
        self.places = device.to_device(places)
        self._scale = None if self._format.scale is None else device.to_device(self._format.scale)
        self._encoded = None

    @property
    def nbytes(self) -> int:
        """Bytes of both tiers and of the table that leads to the rows."""
        return sum(int(part.nbytes) for part in (self.rows, self.pinned, self.places))

    def gather(self, source: FeatureSource, vertices: Any, out: Any, at: Any) -> int:
        """Write rows of vertices to rows `at` of `out`, each from where it lies; return how many the source gave."""
        self._kernels.gather_rows_at(self.places, vertices, self.source.dim, self._kind, self._scale, out=out, at=at)
        return 0

    def missing(self, vertices: Any) -> NDArray[Any]:
        """No vertex: every row has an address."""
        return np.empty(0, np.int64)


class SourceTiers:
    """A source: hot rows on a device, with a map of 2 bits a vertex beside them.

    The device finds which ids have a row there, and says which have none. While it gathers the rows that it has, the
    source gathers the others into pinned memory, in the type in which they are stored. A second kernel reads them from
    there and puts them between the first ones.

    Parameters
    ----------
    source : FeatureSource
        In the memory of the host.
    dtype : None
        Refused: rows are kept as the source stores them.

    Attributes
    ----------
    source, row_bytes, map_bytes, form, hot, rows
        As of `ArrayTiers`.

    Raises
    ------
    InputError
    """

    def __init__(self, source: FeatureSource, dtype: str | None) -> None:
        require_host_source("x", source, "DeviceFeatures")
        if dtype is not None:
            raise InputError(
                argument="dtype",
                given=f"{dtype!r} with a {type(source).__name__}",
                expected="None: rows are kept as the source stores them",
                hint="Give DeviceFeatures an array, or store the rows in that form.",
            )
        self.source = source
        self.dtype = source.stored_dtype if source.stored_dtype.name in _SOURCE_FORMS else np.dtype(np.float32)
        self.form, self.row_bytes = f"{self.dtype}, as stored", self.dtype.itemsize * source.dim
        self.map_bytes = slot_map_bytes(source.num_rows)

    def place(self, kernels: CudaKernels, hot: NDArray[np.int64]) -> None:
        """Read the rows of the vertices `hot`, ascending, and copy them to the device; collective as the source is."""
        source, device = self.source, kernels.device
        self._kernels, self.hot = kernels, hot
        with collective(source.comm, call="memory for features on a device"):
            self.rows = device.empty((len(hot), source.dim), self.dtype)
            self._words = device.to_device(slot_words(hot, source.num_rows))
            self._scale = device.full(source.dim, 1.0, np.float32) if self.dtype == np.int8 else None
            self._staged = StagedRows(device, source.dim, self.dtype)
        for piece in parts_to_read(source, len(hot)):
            read = np.empty((len(hot[piece]), source.dim), self.dtype)
            source.gather(hot[piece], read)
            if read.size:
                self.rows[piece] = device.to_device(read)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the map, on the device."""
        return int(self.rows.nbytes) + int(self._words.nbytes)

    def gather(self, source: FeatureSource, vertices: Any, out: Any, at: Any) -> int:
        """Gather on the device what is there, and on the host what is not; collective where the source is."""
        split = self._kernels.find_kept(self._words, vertices, self.rows)
        self._write(split.addresses, out, at)
        misses = len(split.missing)
        if misses or source.comm.size > 1:
            with self._staged.rows(misses) as (rows, addresses):
                source.gather(split.missing, rows)
                self._write(addresses, out, split.positions if at is None else at[split.positions])
        return misses

    def missing(self, vertices: Any) -> NDArray[Any]:
        """The vertices whose rows are not on the device."""
        return self._kernels.find_kept(self._words, vertices, self.rows).missing

    def _write(self, addresses: Any, out: Any, at: Any) -> None:
        form = self.dtype.name
        self._kernels.gather_rows_at(addresses, None, self.source.dim, form, self._scale, out=out, at=at)


Tiers = ArrayTiers | SourceTiers
"""Rows of which some are to lie on a device."""


_AUTO_SHARE = 0.5
"""With ``hot="auto"``: the share of the free memory that the hot tier and the map may take."""


class DeviceFeatures(RowKeeper):
    """Features that a GPU gathers, as a feature source like any other; rows come out on the device.

    The rows that are used most lie in the device's memory (hot). Of an array the others lie in pinned memory of the
    host, which the kernel reads row by row over the bus: one kernel reads both, so a batch needs no second pass. Of a
    feature source (features on a disk, a cache, rows on other ranks) the others stay where they are: the source gathers
    those of a batch, they cross the bus once, in the type in which they are stored, and go between the hot ones.

    Parameters
    ----------
    x
        Shape ``(vertices, features)``, any real dtype, as of `FeatureStore`; it is copied. Or a `FeatureSource` in the
        memory of the host: it is held, and gathers what is not on the device. One that several ranks share stays
        collective, in the making and in `gather`; ranks may have other hot rows.
    hot : float or str
        Share of the rows in the device's memory, from 0 to 1. Text such as ``"2GiB"``: bytes of its memory for them and
        the map to them, which takes 8 bytes a vertex of an array and 2 bits a vertex of a source. "auto": as many as
        half of its free memory holds, with the map.
    ranking : array (vertices,), a function that returns one, or str, optional
        How much each vertex is wanted, finite and at least 0: those with the largest values are hot. Or the name of a
        score, as of `CachedFeatures`. Needed, and computed, where only some rows are hot.
    dtype : str, optional
        "float32", "float16", "bfloat16" or "int8": the form of an array's rows in memory, as of `PartitionedFeatures`.
        None: as stored, where they are float32 or float16, else float32. Of a source rows are kept as it stores them.
    **workload
        With the name of a score what `spsample.features.score` takes: ``graph``, ``seeds``, ``sampler``,
        ``batch_size``, and options of the score.

    Attributes
    ----------
    source : FeatureSource
        The fallback: where rows come from that are not hot. That of an array is never asked.
    num_rows, dim : int

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used; of a source on several ranks on all of them.
    CapacityError
        If the hot rows do not fit on the device.
    BackendError
        If there is no GPU.

    Notes
    -----
    Over a source it counts hits and misses, passes on hints (`prefetch_hint`: those of the ids that miss),
    and is pickled as its recipe, the source and which rows are hot. Pinned memory for the misses of a call is kept for
    the next one.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.
    """

    def __init__(
        self, x: Any, hot: float | str = "auto", ranking: Any = None, *, dtype: str | None = None, **workload: Any
    ) -> None:
        with collective(ranks_of(x, workload), call="the checks of DeviceFeatures"):
            tiers: Tiers = SourceTiers(x, dtype) if isinstance(x, FeatureSource) else ArrayTiers(x, dtype)
            source = tiers.source
            scores = VertexScores("ranking", ranking, workload, source.num_rows, is_optional=True)
            count = _hot_count(hot, tiers, get_backend("cuda").device.free_bytes())  # type: ignore[attr-defined]
            if ranking is None and 0 < count < source.num_rows:
                raise InputError(
                    argument="ranking",
                    given=f"none, with {count / source.num_rows:.0%} of the rows on the device",
                    expected="how much each vertex is wanted",
                    hint="ranking='posterior' computes it from graph=, seeds=, sampler= and batch_size=.",
                )
        scores.require_same_kind(ranks_of(x, workload))
        self._keep(tiers, scores.choose(count, source)[0])

    def _keep(self, tiers: Tiers, hot: NDArray[np.int64]) -> None:
        self._begin(tiers.source, kinds=2)
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self.device = self._kernels.device
        self._tiers = tiers
        with self._kernels.session():
            tiers.place(self._kernels, hot)
        self._guard = FileChangeGuard(tiers.source, self._kept)

    @classmethod
    def _again(cls, source: FeatureSource, hot: NDArray[np.int64], fingerprint: int) -> DeviceFeatures:
        """From a recipe; hot rows are read again, and must be those that there were."""
        made = cls.__new__(cls)
        made._keep(SourceTiers(source, None), hot)
        require_fingerprint(source, made._kept()[1], fingerprint)
        return made

    def _recipe(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if isinstance(self._tiers, ArrayTiers):
            expected = "the array they were made of, or features of a FeatureStore"
            raise InputError(argument="features", given="DeviceFeatures of an array, to be pickled", expected=expected)
        hot, rows = self._kept()
        return DeviceFeatures._again, (self.source, hot, contents_of(rows))

    def __deepcopy__(self, memo: Any) -> DeviceFeatures:
        return self  # the map has the addresses of these rows

    def _checked(self, ids: Any, out: Any, at: Any) -> tuple[Any, Any, Any]:
        """Ids and places on the device; those that were there are not looked at."""
        return device_arguments(self._kernels, self, ids, out, at)

    def _read(self, ids: Any, out: Any, at: Any = None) -> None:
        if self.comm.size == 1:
            self._guard.check()
        with self._kernels.session():
            misses = self._tiers.gather(self.source, ids, out, at)
        self._counter.add(len(ids) - misses, misses)

    def _hinted_ids(self, ids: Any) -> Any:
        with self._kernels.session():
            return device_ids(self._kernels, ids, self.num_rows, "batches")

    def _hint(self, batches: list[Any] | None) -> None:
        with self._kernels.session():
            missing = batches and [self._tiers.missing(ids) for ids in batches]
        self.source.prefetch_hint(missing)

    def _kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        with self._kernels.session():
            return self._tiers.hot, self._kernels.on_host(self._tiers.rows)

    @property
    def hot_rows(self) -> int:
        """Number of vertices whose rows lie in the memory of the device."""
        return len(self._tiers.hot)

    @property
    def hot_vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows lie in the memory of the device, ascending."""
        return self._tiers.hot.copy()

    @property
    def hot_share(self) -> float:
        """Share of the rows that lie in the memory of the device."""
        return self.hot_rows / max(self.num_rows, 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept and of the map to them: of an array both tiers, of a source the hot rows."""
        return self._tiers.nbytes

    @property
    def counts(self) -> CacheCounts | None:
        """Hits and misses since the beginning, or the last `reset_counts`; those of duplicates too. None of an array.

        A hit lies in the memory of the device; a miss is what the source was asked for.
        """
        is_array = isinstance(self._tiers, ArrayTiers)
        return None if is_array else CacheCounts(*self._counter.read(self._tiers.row_bytes))

    def __repr__(self) -> str:
        kind = f"{self._tiers.form}, {self.hot_share:.0%} on the device"
        counts = self.counts
        if counts is None:
            return f"DeviceFeatures({self.num_rows:,} x {self.dim:,}, {kind})"
        seen = f", {counts.hit_share:.1%} of {counts.hits + counts.misses:,} hit" if counts.hits + counts.misses else ""
        return f"DeviceFeatures({self.source!r}, {kind}{seen})"


def _hot_count(hot: Any, tiers: Tiers, free: int) -> int:
    """Return the number of rows on a device with `free` bytes: by a share, an amount of memory in words, or "auto".

    Raises
    ------
    InputError
        If `hot` is none of these, or an amount that is less than the map and one row.
    CapacityError
        If they do not fit.
    """
    num_rows = tiers.source.num_rows
    if isinstance(hot, str):
        budget = int(_AUTO_SHARE * free) if hot == "auto" else require_bytes("hot", hot)
        count = min(max(budget - tiers.map_bytes, 0) // max(tiers.row_bytes, 1), num_rows)
        if hot == "auto":
            return count
        if count == 0:
            expected = f"at least one row of {tiers.row_bytes} bytes and {tiers.map_bytes} bytes for the map"
            raise InputError(argument="hot", given=format_bytes(budget), expected=expected)
    else:
        share = require_share("hot", hot, "'auto', the share of the rows on the device, from 0 to 1, or '2GiB'")
        count = int(share * num_rows)
    size = count * tiers.row_bytes + tiers.map_bytes
    if size > free:
        raise CapacityError(
            argument="hot",
            given=f"{hot}: {format_bytes(size)} of features",
            expected=f"at most the {format_bytes(free)} that the device has free",
            hint="hot='auto' takes what fits.",
        )
    return count
