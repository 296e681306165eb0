"""Ranks that exchange arrays: by threads, MPI or torch.distributed; and what they exchanged, counted."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spsample.comm.channel import Channel, Received, Sent, collective
from spsample.comm.communicator import Communicator, Reduction
from spsample.comm.launch import init
from spsample.comm.objects import all_gather_object, broadcast_object
from spsample.comm.recorder import Recorder, Traffic
from spsample.comm.threads import LocalCommunicator, ThreadCommunicator, run_threads

if TYPE_CHECKING:
    from spsample.comm.mpi import MPICommunicator
    from spsample.comm.torch_distributed import TorchCommunicator

_LAZY = {
    "MPICommunicator": "spsample.comm.mpi",
    "TorchCommunicator": "spsample.comm.torch_distributed",
}
"""Names imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'spsample.comm' has no attribute {name!r}")


__all__ = [
    "Channel",
    "Communicator",
    "LocalCommunicator",
    "MPICommunicator",
    "Received",
    "Recorder",
    "Reduction",
    "Sent",
    "ThreadCommunicator",
    "TorchCommunicator",
    "Traffic",
    "all_gather_object",
    "broadcast_object",
    "collective",
    "init",
    "run_threads",
]
