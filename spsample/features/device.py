"""`DeviceFeatures`: a hot tier in the memory of a GPU and a cold tier in host memory that it reads, behind one view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.backends import get_backend
from spsample.common.arrays import as_array
from spsample.common.checks import require_share
from spsample.common.units import format_bytes
from spsample.errors import CapacityError, InputError
from spsample.features.formats import AsStored, Int8, RowFormat, as_rows, format_for
from spsample.store.validation import validate_seeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.backend import CudaKernels

__all__ = ["DeviceFeatures"]

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
    ranking : array (vertices,) or a function that returns one, optional
        How much each vertex is wanted, such as `spsample.store.hot_rows.expected_visits` of the graph: those with the
        largest values are hot. Needed, and the function called, where only some are.
    dtype : str, optional
        "float32", "float16", "bfloat16" or "int8": the form of the rows in memory, as of `PartitionedFeatures`. None:
        as stored, where they are float32 or float16, else float32.

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

    def __init__(self, x: Any, hot: float | str = "auto", ranking: Any = None, *, dtype: str | None = None) -> None:
        rows = _dense(as_rows(x))
        self.num_rows, self.dim = (int(size) for size in rows.shape)
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self._format = _format(rows, dtype)
        self._form = _FORMS[self._format.dtype.name]
        encoded = self._format.encode(rows)
        with self._kernels.session():
            self.hot_share = self._share(hot, encoded)
            self._tiers, self._places = self._tiered(encoded, _hottest(ranking, self.num_rows, self.hot_share))
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

    def gather(self, ids: Any) -> Any:
        """Return the features of the vertices ``ids``, repeats allowed.

        Parameters
        ----------
        ids
            Vertex ids: an array on the device (of a sample), which is not checked, or on the host.

        Returns
        -------
        device array
            float32, shape ``(len(ids), dim)``; new.

        Raises
        ------
        InputError, DTypeError
            If ids on the host are no integers in one dimension, or out of range.
        """
        if not self._kernels.device.owns(ids):
            ids = validate_seeds(ids, self.num_rows, argument="ids")
        with self._kernels.session():
            return self._kernels.gather_rows_at(
                self._places, self._kernels.to_device(ids), self.dim, self._form, self._scale
            )

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
            hint="spsample.store.hot_rows.expected_visits(graph) tells how often a vertex is sampled.",
        )
    wanted = as_array("ranking", ranking() if callable(ranking) else ranking)
    if wanted.shape != (num_rows,):
        raise InputError(
            argument="ranking", given=f"shape {wanted.shape}", expected=f"one value per row: ({num_rows},)"
        )
    chosen: NDArray[np.int64] = np.sort(np.argsort(-wanted, kind="stable")[:count])
    return chosen
