"""What a budget for features on a disk is spent on: pages, where they are, known batches, buffers of reads."""

from __future__ import annotations

from typing import NamedTuple

from spsample.common.memory import available_memory
from spsample.common.units import format_bytes
from spsample.errors import CapacityError, InputError

__all__ = ["BLOCK_BYTES", "DiskPlan", "disk_plan"]

BLOCK_BYTES = 4096
"""What reads begin and end with."""

READS_AT_A_TIME = 32
_PAGE_BYTES = 512  # below which rows share a page
_MOST_SHIFT = 20
_BYTES_PER_PAGE = 2  # six sets of 1 bit, three of them with places, and a count of 1 byte
_BYTES_PER_FRAME = 8  # beside the page: two numbers that lead to it
_STACK_BYTES = 16 << 10
_LARGEST_READ = 256 << 10
_BUFFER_PART = 64  # of the budget, for buffers of larger reads than a page needs
_MOST_BUFFER_PART = 16
_SET_PART = 8  # of the budget, for what each page of the file takes: pages are made larger instead
_KNOWN_PART = 16
_MOST_KNOWN = 32


class DiskPlan(NamedTuple):
    """How a budget is spent.

    Attributes
    ----------
    shift : int
        A page is 2^shift rows.
    frames : int
        Pages that are kept.
    readers : int
        Reads at a time.
    buffer_blocks : int
        Blocks of the largest read.
    known_batches : int
        Announced batches whose pages are remembered.
    nbytes : int
        Memory of all of it.
    """

    shift: int
    frames: int
    readers: int
    buffer_blocks: int
    known_batches: int
    nbytes: int


def disk_plan(budget: int, num_rows: int, row_bytes: int, page_rows: int | None = None, map_bytes: int = 0) -> DiskPlan:
    """How `budget` bytes are spent on rows of a file; with a budget of 0 on nothing but reading them.

    Parameters
    ----------
    budget, num_rows, row_bytes : int
    page_rows : int, optional
        Rows of a page, a power of two. By default as many as fit in 512 bytes, at least one; more where the budget is
        too small for what each page of the file takes.
    map_bytes : int, optional
        What leads from vertices to rows, where these lie in another order; part of the budget, if that is not 0.

    Raises
    ------
    InputError
        If the budget is above 0, and not enough for one page and what is needed beside it.
    CapacityError
        If so much memory is not available.

    Examples
    --------
    >>> plan = disk_plan(64 << 20, num_rows=500_000, row_bytes=512)
    >>> 1 << plan.shift, plan.frames, plan.known_batches, plan.nbytes <= 64 << 20
    (1, 120261, 32, True)
    """
    plan = _plan(budget, num_rows, row_bytes, page_rows, map_bytes)
    if budget > 0 and plan.frames < 1:
        expected = f"0, or {format_bytes(_enough(budget, num_rows, row_bytes, page_rows, map_bytes))}, which is enough"
        raise InputError(argument="budget", given=format_bytes(budget), expected=expected)
    free = available_memory()
    if plan.nbytes > free:
        expected = f"at most the {format_bytes(free)} that are available"
        raise CapacityError(argument="budget", given=f"{format_bytes(budget)}", expected=expected)
    return plan


def _plan(budget: int, num_rows: int, row_bytes: int, page_rows: int | None, map_bytes: int) -> DiskPlan:
    """The plan; with fewer than one frame where the budget is too small."""
    shift = _shift(budget, num_rows, row_bytes) if page_rows is None else page_rows.bit_length() - 1
    page_bytes, num_pages = row_bytes << shift, -(-num_rows >> shift)
    readers, blocks = _buffers(budget, page_bytes)
    beside = map_bytes + _BYTES_PER_PAGE * num_pages + readers * (blocks * BLOCK_BYTES + _STACK_BYTES)
    set_bytes = 8 * -(-num_pages // 64)
    known = 0 if budget == 0 else max(1, min(_MOST_KNOWN, budget // _KNOWN_PART // set_bytes))
    frame_bytes = page_bytes + _BYTES_PER_FRAME
    frames = 0 if budget == 0 else (budget - beside - known * set_bytes) // frame_bytes
    frames = min(frames, num_pages)
    nbytes = frames * frame_bytes + beside + known * set_bytes
    return DiskPlan(shift, frames, readers, blocks, known, nbytes)


def _enough(budget: int, num_rows: int, row_bytes: int, page_rows: int | None, map_bytes: int) -> int:
    """A budget that is not too small: the first power of two."""
    size = 1 << budget.bit_length()
    while _plan(size, num_rows, row_bytes, page_rows, map_bytes).frames < 1:
        size *= 2
    return size


def _shift(budget: int, num_rows: int, row_bytes: int) -> int:
    shift = max(_PAGE_BYTES // row_bytes, 1).bit_length() - 1
    while budget and shift < _MOST_SHIFT and (_BYTES_PER_PAGE * num_rows >> shift) > budget // _SET_PART:
        shift += 1
    return shift


def _buffers(budget: int, page_bytes: int) -> tuple[int, int]:
    """Reads at a time, and blocks of each: a page may lie on two blocks more than it is long."""
    least = -(-(page_bytes + 2 * BLOCK_BYTES - 2) // BLOCK_BYTES)
    wanted = min(budget // _BUFFER_PART // READS_AT_A_TIME, _LARGEST_READ) // BLOCK_BYTES
    blocks = max(least, wanted)
    fitting = budget // _MOST_BUFFER_PART // (blocks * BLOCK_BYTES + _STACK_BYTES)
    return max(1, min(READS_AT_A_TIME, fitting if budget else READS_AT_A_TIME)), blocks
