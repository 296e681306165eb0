"""`PartitionedDeviceFeatures`: block rows of features on the GPUs of a process grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import StackedSelector, get_backend
from spsample.comm import Sent, together
from spsample.errors import InputError
from spsample.features.partitioned import PartitionedFeatures, id_dtype
from spsample.store.validation import validate_seeds

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels
    from spsample.distributed import ProcessGrid
    from spsample.distributed.placement import Placement

__all__ = ["PartitionedDeviceFeatures"]


class PartitionedDeviceFeatures(PartitionedFeatures):
    """`PartitionedFeatures` whose blocks lie on the ranks' GPUs; rows come out there.

    Ids are sorted by the rank that has them, sent there, and answered by one gather kernel: one all-to-allv of ids and
    one of float32 rows within the column group, for each of which the host reads the counts once. Over NCCL both pass
    from GPU to GPU; over gloo, threads and an MPI that knows nothing of GPUs they pass through the memory of the host.
    Ids that are given twice are fetched twice: those of a minibatch's sources are distinct.

    Parameters, errors and the way to make one (`of`, `open`) are those of `PartitionedFeatures`, but for `dtype`, which
    is refused: rows are float32.
    """

    on_device = True

    def __init__(self, block: Any, grid: ProcessGrid, placement: Placement, *, dtype: None = None) -> None:
        with together(grid.comm):
            if dtype is not None:
                raise InputError(argument="dtype", given=repr(dtype), expected="None: rows on devices are float32")
        super().__init__(block, grid, placement, dtype="float32")
        self._kernels: CudaKernels = get_backend("cuda")  # type: ignore[assignment]
        with together(grid.comm), self._kernels.session():
            device = self._kernels.device
            rows: Any = device.to_device(np.ascontiguousarray(self._block))
            row_bytes = np.uint64(4 * rows.shape[1])
            begins = np.arange(rows.shape[0], dtype=np.uint64) * row_bytes + np.uint64(device.address(rows))
            self._block, self._row_places = rows, device.to_device(begins)
            position = placement.position
            self._position = None if position is None else device.to_device(position.astype(id_dtype(self.num_rows)))

    def gather(self, ids: Any) -> Any:
        """Return the features of the vertices ``ids``, on the device or on the host. Collective; may be empty.

        Returns
        -------
        device array
            float32, shape ``(len(ids), dim)``.

        Raises
        ------
        InputError, DTypeError
            On every rank, if ids on the host of one are no integers in one dimension, or out of range. Those on the
            device, of a sample, are not checked.
        """
        with together(self.grid.comm, self._channel, call="gather of features"), self._kernels.session():
            if not self._kernels.device.owns(ids):
                ids = validate_seeds(ids, self.num_rows, argument="ids")
            vertices = self._kernels.to_device(ids).astype(id_dtype(self.num_rows))
            one_batch = StackedSelector(np.array([0, len(ids)]), vertices, np.zeros(1, np.int64))
            routed = self._kernels.route_rows(one_batch, self._placement.bounds, self._position)
            asked = self._exchanged(routed.vertices, routed.counts[:, 0], f"{self.phase} requests")
            received = self._exchanged(self._rows(self._kernels.to_device(asked.rows)), asked.counts, self.phase)
            rows: Any = self._kernels.to_device(received.rows)
            return rows[self._kernels.to_device(routed.places)]

    def _rows(self, vertices: Any) -> Any:
        """Rows of this rank's block."""
        places = vertices if self._position is None else self._position[vertices]
        offsets = places - int(self._placement.bounds[self.grid.row])
        return self._kernels.gather_rows_at(self._row_places, offsets, self.dim, "float32")

    def _exchanged(self, rows: Any, counts: Any, phase: str) -> Any:
        """Rows for each rank of the column group, for those from each."""
        if not getattr(self.grid.column_group, "takes_device_buffers", False):
            rows = self._kernels.on_host(rows)
        return self._channel.exchange([Sent(rows, counts)], phase=phase)[0]
