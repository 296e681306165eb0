"""`LocalCommunicator`: one rank."""

from __future__ import annotations

from spsample.backends.protocol import Int64Array
from spsample.comm.checks import check_blocks, check_exchange, check_gather, check_reduction, check_root
from spsample.comm.communicator import DEFAULT_TIMEOUT, Array, Communicator, Reduction


class LocalCommunicator(Communicator):
    """The only rank of its group; nothing is sent.

    Examples
    --------
    >>> import numpy as np
    >>> LocalCommunicator().all_gather(np.array([3, 4])).tolist()
    [[3, 4]]
    """

    name = "local"
    rank = 0
    size = 1
    timeout = DEFAULT_TIMEOUT
    world = (0,)

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """`send`, copied."""
        check_blocks(self, send)
        return send.copy()

    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """`send`, copied."""
        check_exchange(self, send, send_counts, recv_counts)
        return send.copy()

    def all_gather(self, send: Array, *, phase: str = "other") -> Array:
        """`send` as the only block."""
        return send[None].copy()

    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """`send`, copied."""
        check_gather(self, send, recv_counts)
        return send.copy()

    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """`send`, copied."""
        check_reduction(op)
        return send.copy()

    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """`array`, copied."""
        check_root(self, root)
        return array.copy()

    def split(self, color: int, key: int | None = None) -> LocalCommunicator:
        """Return another such communicator."""
        return LocalCommunicator()
