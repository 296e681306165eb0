"""Rows that are kept in memory in front of any source: a set that stays, or the rows that are used next."""

from __future__ import annotations

from spsample.features.caching.lookahead import Lookahead

__all__ = ["Lookahead"]
