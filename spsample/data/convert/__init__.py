"""From edge lists, matrices and data sets to graph stores, in bounded memory."""

from __future__ import annotations

from spsample.data.convert.conversion import Conversion, convert
from spsample.data.convert.options import ConvertOptions

__all__ = ["Conversion", "ConvertOptions", "convert"]
