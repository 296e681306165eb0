"""What a measurement is made of: cases, sides, peers and plots, as files of `cases/` and `peers/` declare them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inputs import Inputs

Value = int | float | str
Values = dict[str, Value]
Figures = dict[str, float]
Work = Callable[[], Figures]
"""Does the work once; returns how many ``batches`` it did, and whatever else it counted or measured.

A ``note``, text, stands below the plots.
"""
Task = Callable[["Inputs"], Work]
"""Makes all preparations; named and documented at the top of a module, so that another process finds it."""


@dataclass(frozen=True)
class Side:
    """One of those compared.

    Attributes
    ----------
    name : str
        For people.
    task : callable
        What it does.
    options : dict
        Values that it gets beside those of the cell, or in their place.
    environment : dict
        Variables of its process.
    """

    name: str
    task: Task
    options: Values = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """Another library, or a limit of the machine: one file in `peers/`, which names it ``PEER``.

    A case's peers are all that have its job. Their modules import their packages within the tasks.

    Attributes
    ----------
    title : str
        For people.
    packages : tuple of str
        Whose versions are noted; where one cannot be imported the peer is missing.
    jobs : dict
        Sides by the job of a case.
    is_limit : bool
        Whether it is what no library passes, as the rate of the memory.
    """

    title: str
    packages: tuple[str, ...]
    jobs: Mapping[str, tuple[Side, ...]]
    is_limit: bool = False


@dataclass(frozen=True)
class Plot:
    """A picture of a case: `y` over `x`, a line or a bar for each `color`, a panel for each `facet`.

    `y` is a figure of a side, or several that are stacked. Of several names in `x` or `color` those that vary are put
    together. `only` is the beginning of the names of the sides that are shown.
    """

    y: str | tuple[str, ...]
    x: str | tuple[str, ...] = "side"
    color: str | tuple[str, ...] = "side"
    facet: str | None = None
    kind: str = "bar"
    logarithmic: bool = False
    title: str = ""
    only: str = ""

    @property
    def figures(self) -> tuple[str, ...]:
        """Those of `y`."""
        return (self.y,) if isinstance(self.y, str) else self.y


@dataclass(frozen=True)
class Case:
    """A measurement: one file in `cases/`, which names it ``CASE``.

    Attributes
    ----------
    about, claim : str
        What is measured, and what it is to show.
    parameters : dict
        Values by name; all their combinations are cells. Each is an option of the command line.
    sides : tuple of Side
        Ours; peers with the same `job` come beside them.
    quick : dict
        Parameters of ``--quick``.
    job : str
        Of the peers; values of the cell may stand in it, as in "loader-{layout}".
    baselines : tuple of str
        Beginnings of names: the first side so named that was measured is what times are compared with.
    count : callable, optional
        Run once in each cell before all else; its figures become values of all sides.
    few : dict
        How many batches a slow side does, by the beginning of its name.
    plots : tuple of Plot
    ranks : bool
        Whether it runs under a launcher, too.
    exact : bool
        Whether its figures are counts, the same in each round: one is enough.
    valid : callable, optional
        Whether a combination of values is a cell.
    simulation : str
        The case that goes on where ranks end, on ``--simulate P``.
    """

    about: str
    claim: str
    parameters: Mapping[str, tuple[Value, ...]]
    sides: tuple[Side, ...]
    quick: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    job: str = ""
    baselines: tuple[str, ...] = ()
    count: Task | None = None
    few: Mapping[str, int] = field(default_factory=dict)
    plots: tuple[Plot, ...] = (Plot("ms"),)
    ranks: bool = False
    exact: bool = False
    valid: Callable[[Values], bool] | None = None
    simulation: str = ""

    def baseline_of(self, sides: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The side of a line that the others are compared with; None where none of `baselines` was measured."""
        for beginning in self.baselines:
            for side in sides:
                if side["side"].startswith(beginning) and side.get("seconds"):
                    return side
        return None


def names_in(room: str) -> list[str]:
    """The files of ``cases``, ``peers`` or ``papers``."""
    package = importlib.import_module(f".{room}", __package__)
    return [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]


def declared(room: str, name: str) -> Any:
    """What a file of ``cases``, ``peers`` or ``papers`` declares.

    Raises
    ------
    InputError
        If there is none; the nearest is named.
    """
    known, kind = names_in(room), room.removesuffix("s")
    module = name.replace("-", "_")
    if module not in known:
        raise unknown(kind, name, [one.replace("_", "-") for one in known])
    return getattr(importlib.import_module(f".{room}.{module}", __package__), kind.upper())


def unknown(argument: str, given: str, known: list[str]) -> Exception:
    """The error about a name that is none of those known."""
    from spsample.errors import InputError

    near = get_close_matches(given, known, 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else ""
    return InputError(argument=argument, given=repr(given), expected=f"one of {', '.join(known)}", hint=hint)
