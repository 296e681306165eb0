"""Graphs in memory: `Graph`, and checks of what users hand in (`spsample.store.validation`)."""

from __future__ import annotations

from spsample.store.graph import Graph

__all__ = ["Graph"]
