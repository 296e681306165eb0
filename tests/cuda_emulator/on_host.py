"""A device backend as one of NumPy arrays, for tests that are written for all backends."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.copying import CopyingBackend, per_batch_fields


class OnHost(CopyingBackend):
    """`CopyingBackend`, which checks where results are: on the host what has an element per batch, and nothing else."""

    def __init__(self, backend):
        super().__init__(backend)
        self.device = backend.device
        self.own_weights = self._copying("own_weights")

    def _returned(self, value):
        if hasattr(value, "_fields"):
            on_host = per_batch_fields(value)
            for field, part in zip(value._fields, value, strict=True):
                if isinstance(part, np.ndarray):
                    assert field in on_host, f"{type(value).__name__}.{field} is on the host"
                elif self.device.owns(part):
                    assert field not in on_host, f"{type(value).__name__}.{field} is on the device"
        return super()._returned(value)
