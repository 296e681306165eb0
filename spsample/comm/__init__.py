"""Ranks that exchange arrays: by threads, MPI or torch.distributed; and what they exchanged, counted."""

from __future__ import annotations

from spsample.comm.channel import Channel, Received, Sent, together
from spsample.comm.communicator import Communicator, Reduction
from spsample.comm.local import LocalCommunicator
from spsample.comm.recorder import Recorder, Traffic
from spsample.comm.threads import ThreadCommunicator, run_threads

__all__ = [
    "Channel",
    "Communicator",
    "LocalCommunicator",
    "Received",
    "Recorder",
    "Reduction",
    "Sent",
    "ThreadCommunicator",
    "Traffic",
    "run_threads",
    "together",
]
