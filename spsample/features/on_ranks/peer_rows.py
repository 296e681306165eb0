"""`PeerRows`: the exchanges by which ranks give each other copies of rows that they keep."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import Channel, Communicator, Sent, collective
from spsample.features.gathering import row_reader
from spsample.features.on_ranks.partitioned import id_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.distributed.grid import ProcessGrid
    from spsample.features.kept_rows import KeptRows

__all__ = ["PeerRows"]


class PeerRows:
    """Rows that other ranks of a grid keep copies of: one all-to-allv of vertices, and one of rows.

    Parameters
    ----------
    grid : ProcessGrid
        All its ranks exchange, and fail together.
    rows : KeptRows
        The rows of this rank.
    num_rows : int
        Number of all vertices.
    phase : str
        What a recorder counts the rows as; requests for them as "`phase` requests".
    """

    def __init__(self, grid: ProcessGrid, rows: KeptRows, num_rows: int, phase: str = "copies") -> None:
        self.grid = grid
        self.rows = rows
        self.num_rows = num_rows
        self.phase = phase
        self._channel = Channel(grid.comm)
        self._is_duplicate = False

    @property
    def comm(self) -> Communicator:
        """All ranks of the grid."""
        return self.grid.comm

    def gathering(self) -> AbstractContextManager[None]:
        """Around a gather: where one rank fails, all do."""
        return collective(self.comm, self._channel, call="gather of copies")

    def read(self, ids: NDArray[Any], holders: NDArray[Any], to: tuple[Any, NDArray[np.int64]]) -> None:
        """Write the rows of vertices, repeats allowed, each from the rank that holds it. Collective.

        Each distinct row travels once, as it is kept.

        Parameters
        ----------
        ids : int array
            The vertices, none of them this rank's.
        holders : int array (len(ids),)
            A rank that keeps each of them; the same for the same vertex.
        to : pair of arrays
            Where the rows go: an array in C order, and the row in it for each id.
        """
        distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        asked_of = holders[first]
        by_rank = np.argsort(asked_of, kind="stable")
        counts = np.bincount(asked_of, minlength=self.comm.size)
        wanted = distinct[by_rank].astype(id_dtype(self.num_rows))
        asked = self._channel.exchange([Sent(wanted, counts)], phase=f"{self.phase} requests")[0]
        sent = np.empty((len(asked.rows), self.rows.reader.dim), self.rows.dtype)
        self.rows.reader.gather(self.rows.slots.find(asked.rows).slots, sent)
        received = self._channel.exchange([Sent(sent, asked.counts)], phase=self.phase)[0].rows
        place = np.empty(len(distinct), np.int64)
        place[by_rank] = np.arange(len(distinct))
        row_reader(received).gather(place[inverse.reshape(-1)], *to)

    def duplicate(self) -> PeerRows:
        """These rows over duplicated communicators, for another thread; collective."""
        twin = PeerRows(self.grid.duplicate(), self.rows, self.num_rows, self.phase)
        twin._is_duplicate = True
        return twin

    def close(self) -> None:
        """Free the communicators of a duplicate's grid; another grid is its maker's. Collective."""
        if self._is_duplicate:
            self.grid.close()
