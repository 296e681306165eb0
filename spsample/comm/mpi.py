"""`MPICommunicator`: ranks that MPI started, by mpi4py."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import settle_device
from spsample.comm.communicator import Array
from spsample.comm.messages import MessageCommunicator, Part, Pending
from spsample.comm.waiting import Activity, end_soon, timeout_or_default, wait_for
from spsample.common.checks import require_type
from spsample.errors import BackendError, CommunicationError, require_module

MESSAGE_LIMIT = 2**31 - 1
"""Bytes of one message: before its version 4 MPI counts them in 32 bits, and most installations are older."""

_DATA, _ALIVE = 1, 2
_CUDA_AWARE = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "OMPI_MCA_opal_cuda_support", "PSM2_CUDA")


def _mpi() -> Any:
    """mpi4py's module, which starts MPI when it is first imported."""
    return require_module("mpi4py.MPI", needed_for="communication over MPI", extra="mpi")


class MPICommunicator(MessageCommunicator):
    """Ranks of an MPI communicator, of which a private duplicate is used; collective.

    Calls are MPI's nonblocking ones, polled with pauses, so that ranks that share cores do not starve each other and no
    wait is endless. An all-to-allv is messages between the pairs of ranks that have something
    for each other; whatever would pass `limit` is cut into several messages.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        None: MPI.COMM_WORLD.
    timeout : float, optional
        Seconds that a call waits for other ranks. None: SPSAMPLE_TIMEOUT in the environment, else 600.
    limit : int
        Bytes of a message, at most; the same on every rank.
    device_buffers : bool, optional
        True where MPI reads and writes GPU memory by itself ("CUDA-aware"). None: as the environment variables of the
        usual implementations say, else False: arrays of CuPy then go by way of host memory. Not tested on a GPU.

    Raises
    ------
    MissingDependencyError
        Without mpi4py.
    CommunicationError
        If not all ranks of `comm` come in time.

    Examples
    --------
    Started by hand, a program is the only rank::

        >>> comm = MPICommunicator()  # doctest: +SKIP
        >>> comm.rank, comm.size  # doctest: +SKIP
        (0, 1)
    """

    name = "mpi"

    def __init__(
        self,
        comm: Any = None,
        timeout: float | None = None,
        *,
        limit: int = MESSAGE_LIMIT,
        device_buffers: bool | None = None,
    ) -> None:
        MPI = _mpi()
        comm = MPI.COMM_WORLD if comm is None else comm
        require_type("comm", comm, MPI.Comm, "a communicator of mpi4py")
        seconds = timeout_or_default(timeout)
        everyone = range(comm.Get_size())
        world = MPI.Group.Translate_ranks(comm.Get_group(), list(everyone), MPI.COMM_WORLD.Get_group())
        self._set_up(_duplicate(MPI, comm, seconds), seconds, Activity(), world, limit)
        if device_buffers is None:
            device_buffers = any(os.environ.get(name, "").lower() in ("1", "true") for name in _CUDA_AWARE)
        self.takes_device_buffers = device_buffers

    def _set_up(self, comm: Any, timeout: float, activity: Activity, world: Sequence[int], limit: int) -> None:
        """Own a communicator of MPI."""
        MPI = _mpi()
        super().__init__(comm.Get_rank(), comm.Get_size(), timeout, activity, world)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        self._mpi = MPI
        self._comm = comm
        self._limit = limit
        self._notices: list[Any] = []  # messages that this rank is alive, until they are sent
        self._alive: dict[int, int] = {}  # the last call in which each other rank was known to be alive
        self.transport_errors = (MPI.Exception,)

    def duplicate(self) -> MPICommunicator:
        """Another communicator of the same ranks, for another thread.

        Raises
        ------
        BackendError
            If MPI was started for one thread only.
        """
        MPI = self._mpi
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise BackendError(
                "MPI was started for calls of one thread at a time (its thread level is below MULTIPLE), so that no "
                "second thread can communicate. Set MPI4PY_RC_THREAD_LEVEL=multiple, or mpi4py.rc.thread_level = "
                '"multiple" before mpi4py.MPI is first imported, if this MPI offers it; or use prefetch=0'
            )
        return self.split(0)  # type: ignore[return-value]

    def close(self) -> None:
        """Free MPI's communicator."""
        if not self._broken:
            self._comm.Free()
            self._broken = "it was closed"

    def abort(self, message: str) -> None:
        """Print the message and end all ranks of the job."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201
        self._mpi.COMM_WORLD.Abort(1)

    # ------------------------------------------------------------------------------------------- what moves bytes

    def _start_blocks(self, send: Array, received: Array) -> Pending:
        if len(send) <= self._limit:
            settle_device(send)
            return _Requests(self._mpi, [self._comm.Ialltoall(self._bytes(send), self._bytes(received))])
        sizes = np.full(self.size, len(send) // self.size)
        return self._start_exchange(send, sizes, received, sizes)

    def _start_exchange(
        self, send: Array, send_bytes: Int64Array, received: Array, received_bytes: Int64Array
    ) -> Pending:
        return self._start_messages(send, np.cumsum(send_bytes) - send_bytes, send_bytes, received, received_bytes)

    def _start_gather(self, send: Array, received: Array) -> Pending:
        if len(received) <= self._limit:
            settle_device(send)
            return _Requests(self._mpi, [self._comm.Iallgather(self._bytes(send), self._bytes(received))])
        return self._start_gather_v(send, received, np.full(self.size, len(send)))

    def _start_gather_v(self, send: Array, received: Array, received_bytes: Int64Array) -> Pending:
        if len(received) <= self._limit:
            settle_device(send)
            starts = np.cumsum(received_bytes) - received_bytes
            parts = [received, received_bytes.tolist(), starts.tolist(), self._mpi.BYTE]
            return _Requests(self._mpi, [self._comm.Iallgatherv(self._bytes(send), parts)])
        same = np.full(self.size, len(send))
        return self._start_messages(send, np.zeros_like(same), same, received, received_bytes)

    def _start_broadcast(self, buffer: Array, root: int) -> Pending:
        settle_device(buffer)
        pieces = self._pieces(0, len(buffer))
        return _Requests(self._mpi, [self._comm.Ibcast(self._bytes(buffer[a:b]), root) for a, b in pieces])

    def _start_messages(
        self, send: Array, starts: Int64Array, send_bytes: Int64Array, received: Array, received_bytes: Int64Array
    ) -> Pending:
        """Send messages between pairs of ranks: of nothing, none; of much, several, which MPI keeps in order."""
        settle_device(send)
        begins = np.cumsum(received_bytes) - received_bytes
        me = self.rank
        mine = received[begins[me] : begins[me] + received_bytes[me]]
        mine[:] = send[starts[me] : starts[me] + send_bytes[me]]
        pending = _Requests(self._mpi, [])
        for step in range(1, self.size):  # each rank begins with another one
            q = (me - step) % self.size
            for a, b in self._pieces(begins[q], received_bytes[q]):
                request = self._comm.Irecv(self._bytes(received[a:b]), q, _DATA)
                pending.expect(request, q, b - a)
        for step in range(1, self.size):
            q = (me + step) % self.size
            for a, b in self._pieces(starts[q], send_bytes[q]):
                pending.requests.append(self._comm.Isend(self._bytes(send[a:b]), q, _DATA))
        return pending

    def _pieces(self, start: int, size: int) -> Iterator[tuple[int, int]]:
        start, size = int(start), int(size)
        for a in range(start, start + size, self._limit):
            yield a, min(a + self._limit, start + size)

    def _bytes(self, array: Array) -> list[Any]:
        return [array, self._mpi.BYTE]

    def _part(self, part: Part) -> MPICommunicator:
        comm = MPICommunicator.__new__(MPICommunicator)
        world = [self.world[rank] for rank in part.members]
        comm._set_up(self._comm.Split(part.number, part.rank), self.timeout, self.activity, world, self._limit)
        comm.takes_device_buffers = self.takes_device_buffers
        return comm

    # ------------------------------------------------------------------------------------------------- lost ranks

    def _say_alive(self, call: int) -> None:
        """Send a small message to each other rank, without waiting for any."""
        word = np.array([call], np.int64)
        requests = [self._comm.Isend(word, rank, _ALIVE) for rank in range(self.size) if rank != self.rank]
        self._notices = [notice for notice in self._notices if not self._mpi.Request.Testall(notice[1])]
        self._notices.append((word, requests))
        self._listen()

    def _heard_of(self, call: int) -> set[int]:
        self._listen()
        return {rank for rank, last in self._alive.items() if last >= call}

    def _listen(self) -> None:
        """Receive the messages of others, so that they do not pile up."""
        status, word = self._mpi.Status(), np.zeros(1, np.int64)
        while self._comm.Iprobe(self._mpi.ANY_SOURCE, _ALIVE, status):
            source = status.Get_source()
            self._comm.Recv(word, source, _ALIVE)
            self._alive[source] = int(word[0])

    def _let_go(self) -> None:
        atexit.register(end_soon)


def _duplicate(MPI: Any, comm: Any, timeout: float) -> Any:
    """Duplicate a communicator of MPI; all its ranks have to make the call in time."""
    twin, request = comm.Idup()
    if wait_for(request.Test, timeout):
        return twin
    atexit.register(end_soon)  # MPI_Finalize would wait for the others
    raise CommunicationError(
        f"rank {comm.Get_rank()} of {comm.Get_size()}: not all of the others came to connect ({timeout:g} s): each "
        "rank that MPI started has to make its communicator, by spsample.init() or MPICommunicator"
    )


class _Requests:
    """Requests of MPI, and the sizes of the messages that some of them receive."""

    def __init__(self, MPI: Any, requests: list[Any]) -> None:
        self._mpi = MPI
        self.requests = requests
        self._expected: list[tuple[int, int]] = []  # source and bytes of the first requests, which receive
        self._statuses: list[Any] = []

    def expect(self, request: Any, rank: int, size: int) -> None:
        """Add a request that receives; before those that do not."""
        self.requests.append(request)
        self._expected.append((rank, size))

    def done(self) -> bool:
        if not self._expected:
            return bool(self._mpi.Request.Testall(self.requests))
        if not self._statuses:
            self._statuses = [self._mpi.Status() for _ in self.requests]
        if not self._mpi.Request.Testall(self.requests, self._statuses):
            return False
        for (rank, size), status in zip(self._expected, self._statuses, strict=False):
            if status.Get_count(self._mpi.BYTE) != size:
                sent = status.Get_count(self._mpi.BYTE)
                raise CommunicationError(f"a message of rank {rank} has {sent} bytes, not the {size} expected")
        return True

    def unanswered(self) -> list[int]:
        receiving = zip(self.requests, self._expected, strict=False)
        return sorted({rank for request, (rank, _) in receiving if not request.Test()})
