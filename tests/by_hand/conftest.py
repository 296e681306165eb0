"""Lets the tests of this folder import its programs by name, and jobs of several processes from those of `comm`.

The programs of this folder are slow, and run by hand; each says in its docstring how, and what its exit status means.
Tests run some of them on small cases.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

sys.path[:0] = [str(HERE), str(HERE.parent / "comm"), str(HERE.parent / "distributed")]
