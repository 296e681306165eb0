"""`ObliviousOperand`: the baseline that broadcasts all of A (`algorithm="oblivious"`)."""

from __future__ import annotations

from spsample.distributed.published.row_fetch import BroadcastRows
from spsample.distributed.published.stages import StagesOperand


class ObliviousOperand(StagesOperand):
    """The published 1.5D algorithm without regard to which rows are needed: each stage broadcasts a whole block row.

    References
    ----------
    Koanantakool et al., IPDPS 2016, and Tripathy, Yelick, Buluc, SC 2020, for dense right-hand sides; the baseline of
    MLSys 2024, section 5.2.1.
    """

    fetch_rows = BroadcastRows


__all__ = ["ObliviousOperand"]
