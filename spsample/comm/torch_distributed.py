"""`TorchCommunicator`: ranks that torch.distributed connects, over gloo or NCCL."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import namespace, on_device
from spsample.comm.communicator import Array, Communicator
from spsample.comm.messages import MessageCommunicator, Part, Pending
from spsample.comm.waiting import Activity, end_soon, timeout_or_default, wait_for
from spsample.errors import InputError, require_module

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_GRACE = 2.0
"""Seconds in which ranks that lost one hear of each other."""

_PADDED = 1 << 20
_MARGIN = 60.0


def _distributed() -> Any:
    return require_module("torch.distributed", needed_for="communication over gloo or NCCL", extra="pyg")


class TorchCommunicator(MessageCommunicator):
    """Ranks of a process group of torch.distributed, beside which a private one is opened; collective.

    Messages are bytes, so that any dtype goes over gloo. NumPy arrays go over gloo without a copy, over NCCL by way of
    the GPU; arrays of CuPy go over NCCL as they are. NCCL is not tested for want of machines with several GPUs.

    Process groups are made here with names of their own in the job's store, not by `torch.distributed.new_group`:
    a split concerns its own ranks only, ranks of a part are ordered by their keys, and splits may be nested.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        None: all ranks.
    timeout : float, optional
        Seconds that a call waits for other ranks. None: SPSAMPLE_TIMEOUT in the environment, else 600.
    backend : str, optional
        "gloo" or "nccl". None: NCCL where the group has nothing else.

    Raises
    ------
    InputError
        If torch.distributed is not initialised: see `spsample.init`.
    MissingDependencyError
        Without torch.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, timeout: float | None = None, *, backend: str | None = None
    ) -> None:
        dist = _distributed()
        seconds = timeout_or_default(timeout)
        if not dist.is_initialized():
            raise InputError(
                argument="group",
                given="no process group",
                expected="torch.distributed to be initialised",
                hint="Call spsample.init() in a program that torchrun, mpirun or srun started.",
            )
        world = dist.get_process_group_ranks(group or dist.group.WORLD)
        chosen = ("nccl" if dist.get_backend(group) == "nccl" else "gloo") if backend is None else backend
        names = [f"spsample-{uuid4().hex}"]
        dist.broadcast_object_list(names, src=world[0], group=group)
        store = dist.distributed_c10d._get_default_store()
        self._set_up(dist.get_rank(group), world, seconds, Activity(), (chosen, store, names[0]))

    def _set_up(
        self, rank: int, world: Sequence[int], timeout: float, activity: Activity, place: tuple[str, Any, str]
    ) -> None:
        """Open a process group of these ranks, in a place of its own in the store."""
        import torch

        super().__init__(rank, len(world), timeout, activity, world)
        self.name, self._store, self._prefix = place
        self.takes_device_buffers = self.name == "nccl"
        self.transport_errors = (RuntimeError,)
        self._splits = 0
        is_nccl = self.name == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")
        self._held = [_process_group(self)] if self.size > 1 else []
        weakref.finalize(self, self._held.clear)  # threads of gloo must not outlive the interpreter

    def split(self, color: int, key: int | None = None) -> Communicator:
        """Split; the ranks of a part meet, so that none closes it while others still connect."""
        part = super().split(color, key)
        part.barrier(phase="split")
        return part

    def close(self) -> None:
        """Close the connections."""
        self._held.clear()
        self._broken = self._broken or "it was closed"

    def abort(self, message: str) -> None:
        """Print the message and end this process at once: the others find their connections closed."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201
        os._exit(1)

    # ------------------------------------------------------------------------------------------- what moves bytes

    def _start_blocks(self, send: Array, received: Array) -> Pending:
        return self._all_to_all(send, [], received, [])

    def _start_exchange(
        self, send: Array, send_bytes: Int64Array, received: Array, received_bytes: Int64Array
    ) -> Pending:
        return self._all_to_all(send, send_bytes.tolist(), received, received_bytes.tolist())

    def _all_to_all(self, send: Array, sizes: list[int], received: Array, received_sizes: list[int]) -> Pending:
        mine, theirs = self._tensor(send), self._tensor(received, empty=True)
        work = self._held[0].alltoall_base(theirs, mine, received_sizes, sizes)
        return _Works([work], [(theirs, received)])

    def _start_gather(self, send: Array, received: Array, then: Callable[[], None] = lambda: None) -> Pending:
        theirs = self._tensor(received, empty=True)
        work = self._held[0]._allgather_base(theirs, self._tensor(send))
        return _Works([work], [(theirs, received)], then)

    def _start_gather_v(self, send: Array, received: Array, received_bytes: Int64Array) -> Pending:
        """Gather arrays padded to the longest where they are short; else broadcast that of each rank."""
        longest = int(received_bytes.max())
        if longest * self.size <= _PADDED:
            return self._start_padded(send, received, received_bytes, longest)
        begins = np.cumsum(received_bytes) - received_bytes
        received[begins[self.rank] : begins[self.rank] + len(send)] = send
        ends = begins + received_bytes
        parts = [received[begin:end] for begin, end in zip(begins, ends, strict=True)]
        tensors = [self._tensor(part) for part in parts]
        works = [self._broadcast(tensor, root) for root, tensor in enumerate(tensors) if len(tensor)]
        return _Works(works, list(zip(tensors, parts, strict=True)))

    def _start_padded(self, send: Array, received: Array, received_bytes: Int64Array, longest: int) -> Pending:
        xp = namespace(send)
        mine = xp.zeros(longest, np.uint8)
        mine[: len(send)] = send
        blocks = xp.empty((self.size, longest), np.uint8)

        def unpad() -> None:
            received[:] = xp.concatenate([block[:n] for block, n in zip(blocks, received_bytes, strict=True)])

        return self._start_gather(mine, blocks.reshape(-1), unpad)

    def _start_broadcast(self, buffer: Array, root: int) -> Pending:
        tensor = self._tensor(buffer)
        return _Works([self._broadcast(tensor, root)], [(tensor, buffer)])

    def _broadcast(self, tensor: torch.Tensor, root: int) -> Any:
        options = _distributed().BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        return self._held[0].broadcast([tensor], options)

    def _tensor(self, array: Array, *, empty: bool = False) -> torch.Tensor:
        """Return bytes as a tensor where the transport works: the array's own memory on the host, a copy on the GPU."""
        import torch

        if on_device(array):
            return torch.as_tensor(array, device=self._device)
        if empty and self._device.type != "cpu":
            return torch.empty(len(array), dtype=torch.uint8, device=self._device)
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)

    def _part(self, part: Part) -> TorchCommunicator:
        self._splits += 1
        comm = TorchCommunicator.__new__(TorchCommunicator)
        prefix = f"{self._prefix}/{self._splits}.{part.number}"
        world = [self.world[rank] for rank in part.members]
        comm._set_up(part.rank, world, self.timeout, self.activity, (self.name, self._store, prefix))
        return comm

    # ------------------------------------------------------------------------------------------------- lost ranks

    def _say_alive(self, call: int) -> None:
        """Write the call to the job's store."""
        with suppress(RuntimeError):  # the store is lost, too
            self._store.set(self._word(self.rank), str(call))

    def _heard_of(self, call: int) -> set[int] | None:
        heard: set[int] = set()
        others = set(range(self.size)) - {self.rank}

        def all_heard() -> bool:
            words = {rank: self._word(rank) for rank in others - heard}
            known = {rank: word for rank, word in words.items() if self._store.check([word])}
            heard.update(rank for rank, word in known.items() if int(self._store.get(word)) >= call)
            return heard == others

        try:
            wait_for(all_heard, _GRACE)
        except RuntimeError:
            return None
        return heard

    def _word(self, rank: int) -> str:
        return f"{self._prefix}/waits/{rank}"

    def _let_go(self) -> None:
        if self.name == "nccl":
            self._held[0].abort()
        atexit.register(end_soon, *self._held)  # a group of gloo that is freed waits for what is under way


def _process_group(comm: TorchCommunicator) -> Any:
    """Connect the ranks, each of which makes this call.

    The transport's own time-out is longer than the communicator's, whose error names the lost ranks.
    """
    dist = _distributed()
    store = dist.PrefixStore(comm._prefix, comm._store)
    timeout = timedelta(seconds=comm.timeout + _MARGIN)
    if comm.name == "gloo":
        return dist.ProcessGroupGloo(store, comm.rank, comm.size, timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, comm.rank, comm.size, options)


class _Works:
    """Work of torch.distributed, the arrays on the host for results that came to a GPU, and a function called then."""

    def __init__(
        self,
        works: list[Any],
        results: list[tuple[torch.Tensor, Array]],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        self._works, self._results, self._then = works, results, then

    def done(self) -> bool:
        if not all(work.is_completed() for work in self._works):
            return False
        for work in self._works:
            work.wait()
        for tensor, array in self._results:
            if tensor.is_cuda and not on_device(array):
                array[:] = tensor.cpu().numpy()
        self._then()
        return True

    def unanswered(self) -> list[int]:
        return []
