"""Stores with their rows in another order: moved behind a map, or with vertices numbered anew; and back."""

from __future__ import annotations

from spsample.reorder.reordering import Reordering, reorder, restore

__all__ = ["Reordering", "reorder", "restore"]
