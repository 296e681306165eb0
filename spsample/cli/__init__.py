"""The command ``spsample``."""

from __future__ import annotations
