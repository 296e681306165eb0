"""What tasks on a GPU share: events that time them, what is sampled, and what is missing where there is no GPU."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .case import Figures, Work
from .inputs import Inputs

SAMPLINGS = ("sage", "weighted", "ladies")


class AbsentError(ImportError):
    """No GPU, or no such sampler: the report calls the side missing, as where a package is not installed."""


def device() -> Any:
    """spsample's device."""
    from spsample.backends import get_backend
    from spsample.errors import BackendError

    try:
        return get_backend("cuda").device  # type: ignore[attr-defined]
    except BackendError as error:
        raise AbsentError(str(error)) from error


def torch_device() -> Any:
    """The same, as torch calls it."""
    import torch

    return torch.from_dlpack(device().to_device(np.zeros(1, np.float32))).device


def cupy() -> Any:
    """The package, where it finds a GPU."""
    import cupy

    if not cupy.cuda.is_available():
        raise AbsentError("CuPy finds no GPU")
    return cupy


def torch_gpu() -> Any:
    """torch's device."""
    import torch

    if not torch.cuda.is_available():
        raise AbsentError("torch finds no GPU")
    return torch.device("cuda")


def event() -> Any:
    """An event on the stream that torch works on, or CuPy without it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.Event(enable_timing=True)
    return cupy().cuda.Event()


def milliseconds(start: Any, end: Any) -> float:
    """Between two events, of which the later one is waited for."""
    end.synchronize()
    if hasattr(start, "elapsed_time"):
        return float(start.elapsed_time(end))
    return float(cupy().cuda.get_elapsed_time(start, end))


def timed(work: Work) -> Work:
    """The work with ``seconds``, from an event before all that it launches to one behind, so that waits count, too.

    ``host_ms`` is the time of a batch until the host was done, which may be before the GPU is.
    """

    def run() -> Figures:
        start, end, began = event(), event(), time.perf_counter()
        start.record()
        figures = work()
        end.record()
        host = 1e3 * (time.perf_counter() - began) / figures["batches"]
        return {**figures, "host_ms": host, "seconds": milliseconds(start, end) / 1e3}

    return run


class Sampling(NamedTuple):
    """``NAME:FANOUTS``: sage, sage of rows that are weighted, or ladies."""

    name: str
    fanouts: list[int]

    @classmethod
    def of(cls, inputs: Inputs) -> Sampling:
        """That of the cell."""
        name, _, fanouts = str(inputs["sampling"]).partition(":")
        return cls(name, [int(word) for word in fanouts.split(",")])

    def weights(self, inputs: Inputs) -> NDArray[np.float32] | None:
        """Of all entries; None: all alike."""
        if self.name != "weighted":
            return None
        return np.random.default_rng(2).standard_exponential(len(inputs.indices), np.float32)

    def require(self, *names: str) -> None:
        """Of a side that has these alone."""
        if self.name not in names:
            raise AbsentError(f"it does not sample as {self.name}")
