"""Objects that stand in for what a test machine need not have."""

from __future__ import annotations


class OnDevice:
    """Stands in for an array on a GPU (DLPack device 2)."""

    device = "cuda:0"

    def __dlpack_device__(self):
        return (2, 0)

    def __array__(self, *args, **kwargs):
        raise TypeError("implicit conversion to NumPy")
