"""`DeviceFeatures`: a hot tier in the memory of a GPU and a cold tier in host memory that it reads, behind one view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.backends import get_backend
from spsample.common.checks import require_share
from spsample.common.units import format_bytes
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.features.cache_choice import highest
from spsample.features.formats import AsStored, Int8, RowFormat, as_rows, format_for
from spsample.features.scores.registry import require_scores
from spsample.features.wanted import Wanted
from spsample.store.validation import validate_seeds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels

__all__ = ["DeviceFeatures", "require_device_destination"]

HALF = 0.5
"""With ``hot="auto"``: the share of the free memory that the hot tier may take."""


class DeviceFeatures:
    """Features that a GPU gathers, as a feature source like any other; rows come out on the device.

    The rows that are used most lie in the device's memory (hot), the others in pinned memory of the host, which the
    kernel reads row by row over the bus (cold). One kernel reads both, so a batch needs no second pass.

    Parameters
    ----------
    x
        Shape ``(vertices, features)``, any real dtype, as of `FeatureStore`; it is copied.
    hot : float or "auto"
        Share of the rows in the device's memory, from 0 to 1; "auto": as many as half of its free memory holds.
    ranking : array (vertices,), a function that returns one, or str, optional
        How much each vertex is wanted, finite and at least 0: those with the largest values are hot. Or the name of a
        score, as of `CachedFeatures`. Needed, and computed, where only some rows are hot.
    dtype : str, optional
        "float32", "float16", "bfloat16" or "int8": the form of the rows in memory, as of `PartitionedFeatures`. None:
        as stored, where they are float32 or float16, else float32.
    **workload
        With the name of a score what `spsample.features.score` takes: ``graph``, ``seeds``, ``sampler``,
        ``batch_size``, and options of the score.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.
    CapacityError
        If the hot rows do not fit on the device.
    BackendError
        If there is no GPU.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.
    """

    on_device = True

    def __init__(
        self, x: Any, hot: float | str = "auto", ranking: Any = None, *, dtype: str | None = None, **workload: Any
    ) -> None:
        rows = _dense(as_rows(x))
        wanted = _ranking(ranking, workload, len(rows))
        self.num_rows, self.dim = (int(size) for size in rows.shape)
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self._format = _format(rows, dtype)
        self._form = _FORMS[self._format.dtype.name]
        encoded = self._format.encode(rows)
        with self._kernels.session():
            self.hot_share = self._share(hot, encoded)
            self._tiers, self._places = self._tiered(encoded, _hottest(wanted, self.num_rows, self.hot_share))
            scale = self._format.scale if isinstance(self._format, Int8) else None
            self._scale = None if scale is None else self._kernels.to_device(scale)

    def __copy__(self) -> DeviceFeatures:
        return self

    def __deepcopy__(self, memo: Any) -> DeviceFeatures:
        return self  # the table of addresses leads to these very tiers

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            argument="features",
            given="DeviceFeatures, to be pickled",
            expected="the array they were made of, or a FeatureStore",
        )

    def gather(self, ids: Any, out: Any = None, at: Any = None) -> Any:
        """Return the features of the vertices ``ids``, repeats allowed.

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
            If ids or places on the host are no integers in one dimension, or out of range, or ``out`` does not fit.
        """
        if not self._kernels.device.owns(ids):
            ids = validate_seeds(ids, self.num_rows, argument="ids")
        with self._kernels.session():
            vertices = self._kernels.to_device(ids)
            to = require_device_destination(self._kernels, out, at, len(vertices), self.dim)
            kind = self._form, self._scale
            return self._kernels.gather_rows_at(self._places, vertices, self.dim, *kind, out=out, at=to)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of vertices and of features per vertex."""
        return self.num_rows, self.dim

    @property
    def nbytes(self) -> int:
        """Bytes of both tiers and of the table that leads to the rows."""
        return sum(int(tier.nbytes) for tier in self._tiers) + int(self._places.nbytes)

    def __repr__(self) -> str:
        kind = f"{self._format.name}, {self.hot_share:.0%} on the device"
        return f"DeviceFeatures({self.num_rows:,} x {self.dim:,}, {kind})"

    def _share(self, hot: Any, encoded: NDArray[Any]) -> float:
        free = self._kernels.device.free_bytes()
        if isinstance(hot, str) and hot == "auto":
            return float(min(HALF * free / max(encoded.nbytes, 1), 1.0))
        share = require_share("hot", hot, "'auto', or the share of the rows on the device, from 0 to 1")
        if share * encoded.nbytes > free:
            raise CapacityError(
                argument="hot",
                given=f"{hot}: {format_bytes(int(share * encoded.nbytes))} of features",
                expected=f"at most the {format_bytes(free)} that the device has free",
                hint="hot='auto' takes what fits.",
            )
        return share

    def _tiered(self, encoded: NDArray[Any], hot: NDArray[np.int64]) -> tuple[tuple[Any, Any], Any]:
        """Both tiers, and the address of every row."""
        device = self._kernels.device
        is_hot = np.zeros(self.num_rows, np.bool_)
        is_hot[hot] = True
        cold = np.flatnonzero(~is_hot)
        tiers = device.to_device(encoded[hot]), device.pinned(encoded[cold])
        places = np.zeros(self.num_rows, np.uint64)
        for rows, tier in zip((hot, cold), tiers, strict=True):
            row_bytes = np.uint64(encoded.itemsize * self.dim)
            places[rows] = device.address(tier) + np.arange(len(rows), dtype=np.uint64) * row_bytes
        return tiers, device.to_device(places)


def require_device_destination(kernels: CudaKernels, out: Any, at: Any, count: int, dim: int) -> Any:
    """Check where `count` rows go, and return the places `at` on the device; those given there are not looked at.

    Raises
    ------
    InputError, DTypeError
        If `out` is no float32 array on the device, of rows of `dim` numbers; or has not `count` rows, without `at`; or
        `at` has not one place in `out` for each.
    """
    if out is None:
        if at is not None:
            raise InputError(argument="at", given="places without out", expected="out, whose rows they are")
        return None
    if not kernels.device.owns(out) or out.dtype != np.float32:
        raise DTypeError(argument="out", given=type(out).__name__, expected="a float32 array on the device")
    if out.ndim != 2 or out.shape[1] != dim:
        raise InputError(argument="out", given=f"shape {out.shape}", expected=f"rows of {dim} numbers")
    if at is None:
        if len(out) != count:
            raise InputError(argument="out", given=f"{len(out)} rows", expected=f"one for each id: {count}")
        return None
    places = at if kernels.device.owns(at) else kernels.to_device(validate_seeds(at, len(out), argument="at"))
    if len(places) != count:
        raise InputError(argument="at", given=f"{len(places)} places", expected=f"one for each id: {count}")
    return places.astype(np.int64, copy=False)


_FORMS = {"float32": "float32", "float16": "float16", "uint16": "bfloat16", "int8": "int8"}


def _dense(rows: Any) -> NDArray[Any]:
    dense: NDArray[Any] = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
    return dense


def _format(rows: NDArray[Any], dtype: str | None) -> RowFormat:
    if dtype is None:
        kept = rows.dtype if rows.dtype.name in ("float32", "float16") else np.dtype(np.float32)
        return AsStored(kept)
    largest = np.abs(rows).max(axis=0, initial=0) if dtype == "int8" else None
    return format_for(dtype, largest)


def _ranking(ranking: Any, workload: Mapping[str, Any], num_rows: int) -> Any:
    """An array, or a function that gives one; None where there is none."""
    if isinstance(ranking, str):
        return Wanted.of(ranking, workload, num_rows).scores
    if workload:
        name = next(iter(workload))
        raise InputError(argument=name, given="it without the name of a score", expected="it with ranking='posterior'")
    return ranking


def _hottest(ranking: Any, num_rows: int, share: float) -> NDArray[np.int64]:
    """The rows of the hot tier, ascending."""
    count = int(share * num_rows)
    if count in (0, num_rows):
        return np.arange(count)
    if ranking is None:
        raise InputError(
            argument="ranking",
            given=f"none, with {share:.0%} of the rows on the device",
            expected="how much each vertex is wanted",
            hint="ranking='posterior' computes it from graph=, seeds=, sampler= and batch_size=.",
        )
    return highest(require_scores("ranking", ranking() if callable(ranking) else ranking, num_rows), count)
