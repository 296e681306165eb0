"""Lets the tests of this folder import its modules by name, and jobs of several processes from those of `comm`."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

sys.path[:0] = [str(HERE), str(HERE.parent / "comm"), str(HERE.parent / "conformance")]
