"""Plots are beside the point: where matplotlib is missing, the tables and the JSON lines are all the same."""

from __future__ import annotations

import sys
from typing import Any


def pyplot() -> Any:
    """`matplotlib.pyplot` that draws into files; None, and a line that says so, where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        print("no plot without matplotlib: pip install matplotlib", file=sys.stderr)
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
