"""Graphs in memory and on disk, as stores of memory maps; checks of what is handed in (`spsample.store.validation`)."""

from __future__ import annotations

from spsample.store.graph import Graph, GraphStore, from_dgl, to_scipy
from spsample.store.writer import StoreWriter

__all__ = ["Graph", "GraphStore", "StoreWriter", "from_dgl", "to_scipy"]
