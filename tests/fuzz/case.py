"""`Case`: what is thrown at a part of the public face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A function of a `Maker` and a folder; the public objects it covers; how often it is drawn beside the others."""

    run: Callable[[Any, Any], None]
    covers: tuple[Any, ...]
    weight: int = 1
