"""From edge lists, matrices and data sets to graph stores, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spsample.convert.options import ConvertOptions

if TYPE_CHECKING:
    from spsample.convert.conversion import Conversion, convert


def __getattr__(name: str) -> Any:
    """Import what converts on first use: every command reads the options."""
    if name not in __all__:
        raise AttributeError(f"module 'spsample.convert' has no attribute {name!r}")
    from spsample.convert import conversion

    return getattr(conversion, name)


__all__ = ["Conversion", "ConvertOptions", "convert"]
