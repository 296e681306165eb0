"""Works on a GPU, timed by events on the stream that CuPy or torch works on."""

from __future__ import annotations

from typing import Any

from peers.task import Figures, Work


def timed(work: Work, events: Any) -> Work:
    """The work with `seconds`: from an event before all that it launches to one behind it; then it has ended, too.

    `events` makes an event: `cupy.cuda.Event`, or torch's with timing enabled.
    """

    def run() -> Figures:
        start, end = events(), events()
        start.record()
        figures = work()
        end.record()
        end.synchronize()
        return {**figures, "seconds": milliseconds(start, end) / 1e3}

    return run


def milliseconds(start: Any, end: Any) -> float:
    """Between two events of CuPy or of torch."""
    if hasattr(start, "elapsed_time"):
        return float(start.elapsed_time(end))
    import cupy

    return float(cupy.cuda.get_elapsed_time(start, end))
