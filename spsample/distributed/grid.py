"""`ProcessGrid`: p ranks as p/c rows of c columns."""

from __future__ import annotations

from typing import Any

from spsample.comm import Communicator, collective
from spsample.comm.objects import require_same
from spsample.common.checks import require_int, require_type
from spsample.errors import InputError


class ProcessGrid:
    """A p/c x c grid of ranks, for a matrix in 1.5D block rows: rank r is P(i, j) with i = r // c and j = r mod c.

    Making one is collective.

    The c ranks of row i, its *row group*, all hold block row i of A (the replication c). The p/c ranks of column j, its
    *column group*, together hold all of A. Ranks of one row group are neighbours, so that copies of a block row lie on
    one machine where ranks are numbered machine by machine.

    Parameters
    ----------
    comm : Communicator
        All p ranks.
    replication : int
        c, a divisor of p.

    Attributes
    ----------
    comm : Communicator
        All ranks.
    replication : int
        c.
    num_blocks : int
        p/c, the number of block rows.
    row, column : int
        i and j of this rank.
    row_group : Communicator
        The c ranks that hold this rank's block row, by column.
    column_group : Communicator
        The p/c ranks that hold all of A with this one, by row.

    Raises
    ------
    InputError
        If c does not divide p, or is not the same on every rank.

    References
    ----------
    Koanantakool et al., "Communication-avoiding parallel sparse-dense matrix-matrix multiplication", IPDPS 2016; for
    sampling: Tripathy, Yelick, Buluc, MLSys 2024, section 5.2.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> def body(comm):
    ...     grid = ProcessGrid(comm, replication=2)
    ...     return grid.row, grid.column, grid.row_group.size, grid.column_group.size
    >>> run_threads(6, body)
    [(0, 0, 2, 3), (0, 1, 2, 3), (1, 0, 2, 3), (1, 1, 2, 3), (2, 0, 2, 3), (2, 1, 2, 3)]
    """

    def __init__(self, comm: Communicator, replication: int = 1) -> None:
        require_type("comm", comm, Communicator, "an spsample Communicator")
        p = comm.size
        with collective(comm):
            c = require_divisor(replication, p)
        require_same(comm, replication=c)
        self.comm = comm
        self.replication = c
        self.num_blocks = p // c
        self.row, self.column = divmod(comm.rank, c)
        self.row_group = comm.split(self.row, self.column)
        self.column_group = comm.split(self.column, self.row)
        self._made = [self.row_group, self.column_group]

    def duplicate(self) -> ProcessGrid:
        """Return this grid over duplicated communicators, for another thread; collective."""
        grid = ProcessGrid(self.comm.duplicate(), self.replication)
        grid._made.append(grid.comm)
        return grid

    def close(self) -> None:
        """Free the communicators that were made for the grid, `comm` only where it is a duplicate's; collective.

        Nothing that uses the grid may be called after it. MPI has a few thousand communicators at a time, and a grid
        takes two: a program that makes many grids closes those it no longer needs.
        """
        for comm in self._made:
            comm.close()

    def __repr__(self) -> str:
        return f"ProcessGrid({self.num_blocks} x {self.replication}, this rank at ({self.row}, {self.column}))"


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    Examples
    --------
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [d for d in range(1, number + 1) if number % d == 0]


def require_divisor(replication: Any, p: int) -> int:
    """Refuse a replication that does not divide the number of ranks."""
    c = require_int("replication", replication, minimum=1)
    if p % c:
        raise InputError(
            argument="replication",
            given=f"c = {c} for p = {p} ranks",
            expected=f"p mod c = 0, which is {p % c} here",
            hint=f"Divisors of {p}: {', '.join(map(str, divisors(p)))}.",
        )
    return c
