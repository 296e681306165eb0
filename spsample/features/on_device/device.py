"""`DeviceFeatures`: hot rows in the memory of a GPU, and a way to all others, behind one view."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import get_backend
from spsample.comm import collective
from spsample.comm.objects import comm_of
from spsample.common.checks import require_iterable
from spsample.common.contents import contents_of
from spsample.errors import InputError, SpSampleError
from spsample.features.caching.cached_rows import require_contents
from spsample.features.caching.counts import CacheCounts, Counter
from spsample.features.known_future import announce, forget, looks_ahead
from spsample.features.on_device.array_tiers import ArrayRows
from spsample.features.on_device.destination import require_device_destination
from spsample.features.on_device.hottest import Ranking, hot_count
from spsample.features.on_device.source_tiers import SourceRows
from spsample.features.protocol import FeatureSource, close_duplicate, duplicate_of, source_contents
from spsample.features.wanted import ranks_of
from spsample.features.watched import FileState, Watched, state_of
from spsample.store.validation import validate_ids

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from spsample.backends.cuda.backend import CudaKernels
    from spsample.comm import Communicator
    from spsample.features.on_device.tiers import Placeable, Tiers

__all__ = ["DeviceFeatures"]


class DeviceFeatures:
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
    source : FeatureSource or None
        Where rows come from that are not hot; None of an array.
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
    Over a source it counts hits and misses, passes on what is announced (`announce`: the source is told the ids that
    miss), and is pickled as its recipe, the source and which rows are hot. Pinned memory for the misses of a call is
    kept for the next one.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.
    """

    on_device = True

    def __init__(
        self, x: Any, hot: float | str = "auto", ranking: Any = None, *, dtype: str | None = None, **workload: Any
    ) -> None:
        with collective(ranks_of(x, workload), call="the checks of DeviceFeatures"):
            rows: Placeable = SourceRows(x, dtype) if isinstance(x, FeatureSource) else ArrayRows(x, dtype)
            wanted = Ranking(ranking, workload, rows.num_rows)
            kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
            count = hot_count(hot, rows, kernels.device.free_bytes())
            wanted.require_for(count)
        wanted.require_same_kind(ranks_of(x, workload))
        chosen = wanted.hottest(count, comm_of(rows.source))
        with kernels.session():
            self._begin(
                rows.source, rows.placed(kernels, chosen), (rows.num_rows, rows.dim, len(chosen)), Counter(kinds=2)
            )

    def _begin(self, source: FeatureSource | None, tiers: Tiers, sizes: tuple[int, int, int], counter: Counter) -> None:
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self.source, self._tiers, self._counter = source, tiers, counter
        self.num_rows, self.dim, self._hot_rows = sizes
        self._watched = None if source is None else Watched(source, self._kept)

    @classmethod
    def _of(
        cls, source: FeatureSource | None, tiers: Tiers, sizes: tuple[int, int, int], counter: Counter
    ) -> DeviceFeatures:
        made = cls.__new__(cls)
        made._begin(source, tiers, sizes, counter)
        return made

    def __copy__(self) -> DeviceFeatures:
        return self

    def __deepcopy__(self, memo: Any) -> DeviceFeatures:
        return self  # what leads to the rows has the addresses of these very ones

    def __reduce__(self) -> tuple[Any, ...]:
        if self.source is None:
            expected = "the array they were made of, or features of a FeatureStore"
            raise InputError(argument="features", given="DeviceFeatures of an array, to be pickled", expected=expected)
        if self.comm.size > 1:
            raise InputError(
                argument="features",
                given="DeviceFeatures of a source on several ranks, to be pickled",
                expected="a source of one rank; else make them where they are used",
            )
        vertices, rows = self._kept()
        return _opened, (self.source, vertices, contents_of(rows))

    def gather(self, ids: Any, out: Any = None, at: Any = None) -> Any:
        """Return the features of the vertices ``ids``, repeats allowed. Collective where that of the source is.

        Parameters
        ----------
        ids
            Vertex ids: an array on the device (of a sample), which is not checked, or on the host.
        out : float32 device array (places, dim), optional
            Where rows go. None: a new array.
        at : integers (len(ids),), optional
            The row of ``out`` for each id, all distinct; on the device they are not checked. None: ``out`` has one row
            for each id, in order.

        Returns
        -------
        device array
            ``out``, or a new array: float32, shape ``(len(ids), dim)``.

        Raises
        ------
        InputError, DTypeError
            If ids or places on the host are no integers in one dimension, or out of range, or ``out`` does not fit; of
            a source on several ranks on all of them.
        DataError
            If the file of the source was written to, and hot rows are others there now. Not on several ranks.
        """
        is_collective = self.comm.size > 1
        if self._watched is not None and not is_collective:
            self._watched.check()
        with self._kernels.session():
            try:
                vertices = self._vertices(ids, "ids")
                to = require_device_destination(self._kernels, out, at, len(vertices), self.dim)
                rows = self._kernels.device.empty((len(vertices), self.dim), np.float32) if out is None else out
            except Exception:
                if is_collective and self.source is not None:
                    with suppress(SpSampleError):
                        self.source.gather(ids, _Unfit())  # which it refuses, on all ranks
                raise
            misses = self._tiers.gather(self.source, vertices, rows, to)
        self._counter.add(len(vertices) - misses, misses)
        return rows

    def _vertices(self, ids: Any, argument: str) -> Any:
        """Ids on the device; those on the host are checked."""
        if not self._kernels.device.owns(ids):
            ids = validate_ids(ids, self.num_rows, argument=argument)
        return self._kernels.to_device(ids)

    def _kept(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        with self._kernels.session():
            return self._tiers.kept()

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of vertices and of features per vertex."""
        return self.num_rows, self.dim

    @property
    def hot_rows(self) -> int:
        """Number of vertices whose rows lie in the memory of the device."""
        return self._hot_rows

    @property
    def hot_vertices(self) -> NDArray[np.int64]:
        """The vertices whose rows lie in the memory of the device, ascending."""
        with self._kernels.session():
            return self._tiers.vertices()

    @property
    def hot_share(self) -> float:
        """Share of the rows that lie in the memory of the device."""
        return self._hot_rows / max(self.num_rows, 1)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are kept and of the map to them: of an array both tiers, of a source the hot rows."""
        return self._tiers.nbytes

    @property
    def comm(self) -> Communicator:
        """The ranks of the source; a local one where it has none."""
        return comm_of(self.source)

    @property
    def counts(self) -> CacheCounts | None:
        """Hits and misses since the beginning, or the last `reset_counts`; those of duplicates too. None of an array.

        A hit lies in the memory of the device; a miss is what the source was asked for.
        """
        return None if self.source is None else CacheCounts(*self._counter.read(self._tiers.row_bytes))

    def reset_counts(self) -> None:
        """Count from 0 again."""
        self._counter.reset()

    def contents(self) -> int | None:
        """Return what the source does: a number that tells its rows from others, or None."""
        return source_contents(self.source)

    def file_state(self) -> FileState | None:
        """Return that of the source: what tells cheaply that its file was written to."""
        return state_of(self.source)

    @property
    def looks_ahead(self) -> bool:
        """Whether the source does better where it is told the next calls."""
        return looks_ahead(self.source)

    def announce(self, batches: Sequence[ArrayLike]) -> None:
        """Append the ids of the next calls of `gather`, one array a call, to what is known. Not collective.

        A source that looks ahead is told which of these ids it will be asked for.

        Parameters
        ----------
        batches : sequence of int arrays
            On the host or on the device. None: nothing more is known for now.

        Raises
        ------
        InputError, DTypeError
            If one is no array of vertex ids.
        """
        each = require_iterable("batches", batches, "ids of each call")
        with self._kernels.session():
            vertices = [self._vertices(ids, "batches") for ids in each]
            if self.looks_ahead:
                announce(self.source, [self._tiers.missing(ids) for ids in vertices])

    def forget(self) -> None:
        """Forget what was announced and not yet gathered: it will not come. Not collective."""
        forget(self.source)

    def duplicate(self) -> DeviceFeatures:
        """Return these features over a duplicate of the source, for another thread; rows and counts are shared.

        Collective where the source is.
        """
        sizes = self.num_rows, self.dim, self._hot_rows
        return DeviceFeatures._of(duplicate_of(self.source), self._tiers, sizes, self._counter)

    def close(self) -> None:
        """Free what a duplicate of the source holds. Collective where the source is.

        A source without ``duplicate`` is shared, and stays open.
        """
        close_duplicate(self.source)

    def __repr__(self) -> str:
        kind = f"{self._tiers.form}, {self.hot_share:.0%} on the device"
        counts = self.counts
        if counts is None:
            return f"DeviceFeatures({self.num_rows:,} x {self.dim:,}, {kind})"
        seen = f", {counts.hit_share:.1%} of {counts.hits + counts.misses:,} hit" if counts.hits + counts.misses else ""
        return f"DeviceFeatures({self.source!r}, {kind}{seen})"


class _Unfit:
    """Stands for memory that a device cannot write to: no source takes it as ``out``."""


def _opened(source: FeatureSource, vertices: NDArray[np.int64], contents: int) -> DeviceFeatures:
    """From their recipe: hot rows are read again, and must be those that there were."""
    kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
    rows = SourceRows(source, None)
    with kernels.session():
        tiers = rows.placed(kernels, vertices)
        require_contents(source, tiers.kept()[1], contents)
    return DeviceFeatures._of(source, tiers, (rows.num_rows, rows.dim, len(vertices)), Counter(kinds=2))
