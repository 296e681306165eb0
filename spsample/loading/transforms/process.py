"""What a process of a transform does: wait for a batch, transform it, send back what came of it."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from spsample.common.packing import Packed, Span, pack, unpack
from spsample.loading.transforms.blocks import OthersBlock
from spsample.sparse import set_num_threads

__all__ = ["Done", "Failed", "NeedsRoom", "Room", "Task", "run_process"]


class Task(NamedTuple):
    """A batch to transform: its pickle, the block that has its arrays, and where in it; and a block for the result."""

    head: bytes
    block: str
    spans: list[Span]
    result: str
    result_bytes: int


class NeedsRoom(NamedTuple):
    """The result needs a block of that many bytes."""

    nbytes: int


class Room(NamedTuple):
    """The block for it."""

    block: str


class Done(NamedTuple):
    """The result: its pickle, and where its arrays are in the block."""

    head: bytes
    spans: list[Span]


class Failed(NamedTuple):
    """What the transform raised: in words, with its traceback, and itself where it can be pickled."""

    words: str
    trace: str
    error: bytes


def run_process(connection: Connection, transform: bytes) -> None:
    """Transform batches until the other end of the connection is closed. A Ctrl-C is for the main process alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"  # of libraries that the transform imports
    set_num_threads(1)
    batch_block, result_block = OthersBlock(), OthersBlock()
    function: Any = None
    try:
        while True:
            task: Task = connection.recv()
            try:
                if function is None:
                    function = pickle.loads(transform)
                packed = pack(function(unpack(task.head, batch_block.view(task.block), task.spans)))
            except Exception as error:
                connection.send(_failed(error))
                continue
            _send(connection, packed, task, result_block)
            del packed
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        batch_block.close()
        result_block.close()


def _send(connection: Connection, packed: Packed, task: Task, block: OthersBlock) -> None:
    name = task.result
    if packed.nbytes > task.result_bytes:
        connection.send(NeedsRoom(packed.nbytes))
        name = connection.recv().block
    if packed.nbytes:
        packed.write(block.view(name))
    connection.send(Done(packed.head, packed.spans))


def _failed(error: Exception) -> Failed:
    words = "".join(traceback.format_exception_only(type(error), error)).strip()
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)  # some can be pickled and not be loaded
    except Exception:
        pickled = b""
    return Failed(words, trace, pickled)
