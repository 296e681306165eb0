"""Rows kept in memory in front of any source: a fixed set, or the rows that are used next."""

from __future__ import annotations

from spsample.features.caching.lookahead import Lookahead

__all__ = ["Lookahead"]
