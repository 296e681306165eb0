"""Graphs over many ranks: replicated, or partitioned in 1.5D over a process grid."""

from __future__ import annotations

from spsample.distributed.grid import ProcessGrid

__all__ = ["ProcessGrid"]
