"""`DeviceFeatures`: hot rows in the memory of a GPU, and a way to all others, behind one view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import get_backend
from spsample.comm import collective
from spsample.common.checks import require_share
from spsample.common.contents import contents_of
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, InputError
from spsample.features.device_staging import device_arguments, device_ids
from spsample.features.device_tiers import ArrayTiers, SourceTiers, Tiers
from spsample.features.file_guard import FileChangeGuard
from spsample.features.keeper import CacheCounts, RowKeeper, require_fingerprint
from spsample.features.source import FeatureSource
from spsample.features.vertex_scores import VertexScores, ranks_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels

_HALF = 0.5
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
            if ranking is None:
                _require_all_or_none(count, source.num_rows)
        scores.require_same_kind(ranks_of(x, workload))
        self._keep(tiers, scores.choose(count, source)[0])

    def _keep(self, tiers: Tiers, hot: NDArray[np.int64]) -> None:
        self._begin(tiers.source, kinds=2)
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self.device = self._kernels.device
        self._tiers, self._hot_rows = tiers, len(hot)
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
            return self._tiers.kept()

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
        budget = int(_HALF * free) if hot == "auto" else require_bytes("hot", hot)
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


def _require_all_or_none(count: int, num_rows: int) -> None:
    """Refuse to choose some rows without knowing how much each is needed."""
    if 0 < count < num_rows:
        raise InputError(
            argument="ranking",
            given=f"none, with {count / num_rows:.0%} of the rows on the device",
            expected="how much each vertex is wanted",
            hint="ranking='posterior' computes it from graph=, seeds=, sampler= and batch_size=.",
        )
