"""From edge lists, matrices and data sets to graph stores, in bounded memory."""

from __future__ import annotations

from spsample.convert.conversion import Conversion, convert
from spsample.convert.options import ConvertOptions

__all__ = ["Conversion", "ConvertOptions", "convert"]
