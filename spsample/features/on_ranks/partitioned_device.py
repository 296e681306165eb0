"""`PartitionedDeviceFeatures`: block rows of features on the GPUs of a process grid."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import StackedSelector, get_backend
from spsample.comm import collective
from spsample.common.checks import require_type
from spsample.errors import InputError
from spsample.features.on_device.staging import require_device_destination, row_addresses
from spsample.features.on_ranks.partitioned import BlockFeatures, PartitionedFeatures, id_dtype
from spsample.store.validation import validate_ids

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels
    from spsample.distributed import ProcessGrid

__all__ = ["PartitionedDeviceFeatures"]


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
        self.blocks, self.num_rows, self.dim = source.blocks, source.num_rows, source.dim
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        self.device = self._kernels.device
        with collective(self.comm), self._kernels.session():
            device = self.device
            self._rows: Any = device.to_device(source.block_features())
            self._row_places = self._places_of(self._rows)
            position = source.blocks.placement.position
            self._position = None if position is None else device.to_device(position.astype(id_dtype(self.num_rows)))

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        grid: ProcessGrid,
        name: str = "x",
        *,
        partition: Any = None,
        dtype: None = None,
    ) -> PartitionedDeviceFeatures:
        """`PartitionedFeatures.open`, copied to the devices; `dtype` is refused. Collective."""
        _refuse_dtype(grid, dtype)
        return cls(PartitionedFeatures.open(path, grid, name, partition=partition))

    @classmethod
    def of(cls, x: Any, grid: ProcessGrid, *, partition: Any = None, dtype: None = None) -> PartitionedDeviceFeatures:
        """`PartitionedFeatures.of`, copied to the devices; `dtype` is refused. Collective."""
        _refuse_dtype(grid, dtype)
        return cls(PartitionedFeatures.of(x, grid, partition=partition))

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
        with self._kernels.session():
            if not self.device.owns(ids):
                ids = validate_ids(ids, self.num_rows, argument="ids")
            vertices = self._kernels.to_device(ids).astype(id_dtype(self.num_rows))
            places = require_device_destination(self._kernels, out, at, len(vertices), self.dim)
            return vertices, self.device.empty((len(vertices), self.dim), np.float32) if out is None else out, places

    def _read(self, ids: Any, out: Any, at: Any = None) -> None:
        with self.blocks.gathering(), self._kernels.session():
            one_batch = StackedSelector(np.array([0, len(ids)]), ids, np.zeros(1, np.int64))
            routed = self._kernels.route_rows(one_batch, self.blocks.placement.bounds, self._position)
            asked = self.blocks.requests(self._sendable(routed.vertices), routed.counts[:, 0])
            answer = self._sendable(self._rows_of(self._kernels.to_device(asked.rows)))
            received = self.blocks.answers(answer, asked.counts)
            rows: Any = self._kernels.to_device(received.rows)
            places = self._kernels.to_device(routed.places)
            self._kernels.gather_rows_at(self._places_of(rows), places, self.dim, "float32", out=out, at=at)

    def _places_of(self, rows: Any) -> Any:
        """The address of each of these rows."""
        device = self._kernels.device
        return device.to_device(row_addresses(device, rows))

    def _rows_of(self, vertices: Any) -> Any:
        """Rows of this rank's block."""
        places = vertices if self._position is None else self._position[vertices]
        return self._kernels.gather_rows_at(self._row_places, places - self.blocks.first_row, self.dim, "float32")

    def _sendable(self, rows: Any) -> Any:
        """Where the communicator takes rows from: on the device, or on the host."""
        if getattr(self.blocks.grid.column_group, "takes_device_buffers", False):
            return rows
        return self._kernels.on_host(rows)

    def __repr__(self) -> str:
        return self._described("float32")


def _refuse_dtype(grid: ProcessGrid, dtype: Any) -> None:
    with collective(grid.comm):
        if dtype is not None:
            raise InputError(argument="dtype", given=repr(dtype), expected="None: rows on devices are float32")
