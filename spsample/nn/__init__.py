"""PyG's layers by their names, fast on sampled batches, and what trains on blocks. Needs torch.

Examples
--------
>>> from spsample.nn import SAGEConv
>>> SAGEConv(16, 32)
SAGEConv(16, 32, aggr=mean)
"""

from __future__ import annotations

from contextlib import suppress as _suppress
from typing import TYPE_CHECKING, Any

from spsample.common.threads import compiled_core as _compiled_core
from spsample.errors import require_module

require_module("torch", needed_for="spsample.nn", extra="pyg")

from spsample.nn import functional  # noqa: E402  (after the check)
from spsample.nn.functional import Dropout  # noqa: E402
from spsample.nn.trimming import calls, rows  # noqa: E402

if TYPE_CHECKING:
    from spsample.nn.conv import GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv

with _suppress(ImportError):  # a broken core is reported where it is used
    _compiled_core()  # now, not in a thread's first step: a process that is forked meanwhile would wait for its import

__all__ = [
    "Dropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GINConv",
    "GraphConv",
    "SAGEConv",
    "calls",
    "functional",
    "rows",
]


def __getattr__(name: str) -> Any:
    """A layer; torch_geometric is imported where one is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_module("torch_geometric", needed_for=f"spsample.nn.{name}", extra="pyg")
    from spsample.nn import conv

    return getattr(conv, name)
