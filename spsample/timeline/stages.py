"""Stages of a pipeline: how long each worked, and how long it waited for its input, for room or for other ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spsample.common.checks import require_type

__all__ = ["KINDS", "StageTimes", "stage_times", "waiting_for", "work_seconds"]

KINDS = ("input", "room", "ranks")
"""What a stage waits for: what the stage before makes, a free place in the queue after it, the other ranks."""

_WAITING = " waiting for "


class StageTimes(NamedTuple):
    """Seconds of one stage.

    Attributes
    ----------
    stage : str
        ``"sampling"``, ``"features"``, ``"copies"`` or ``"training"``.
    worked : float
    waited : dict
        By what was waited for: ``"input"`` (the stage is starved by the one before), ``"room"`` (it is ahead of the one
        after) and ``"ranks"``. What a stage never waits for is not in it.
    """

    stage: str
    worked: float
    waited: dict[str, float]


def waiting_for(kind: str, stage: str) -> str:
    """Name the phase in which a stage waits.

    Examples
    --------
    >>> waiting_for("room", "sampling")
    'sampling waiting for room'
    """
    return f"{stage}{_WAITING}{kind}"


def work_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, without those in which threads beside the training wait.

    Examples
    --------
    >>> work_seconds({"sampling": 2.0, "sampling waiting for room": 1.0})
    {'sampling': 2.0}
    """
    return {phase: value for phase, value in seconds.items() if _WAITING not in phase}


def stage_times(seconds: Mapping[str, float]) -> list[StageTimes]:
    """Read the stages of a pipeline off its seconds by phase; none where nothing waits for anything.

    Parameters
    ----------
    seconds
        As of `BulkLoader`, `Trainer` or `TrainResult`.

    Raises
    ------
    DTypeError
        If these are no seconds by phase.

    Examples
    --------
    >>> seconds = {"sampling": 2.0, "training": 3.0, "waiting": 0.5, "sampling waiting for room": 1.5}
    >>> for stage in stage_times(seconds):
    ...     print(stage.stage, stage.worked, stage.waited)
    sampling 2.0 {'room': 1.5}
    training 3.0 {'input': 0.5}
    """
    require_type("seconds", seconds, Mapping, "seconds by phase")
    waited: dict[str, dict[str, float]] = {}
    for phase, value in seconds.items():
        require_type("seconds", phase, str, "names of phases")
        stage, is_waiting, kind = phase.partition(_WAITING)
        if is_waiting:
            waited.setdefault(stage, {})[kind] = value
    if not waited:
        return []
    if "training" in seconds:
        waited["training"] = {"input": seconds.get("waiting", 0.0), **waited.get("training", {})}
    order = [*seconds]
    stages = sorted(waited, key=lambda stage: order.index(stage) if stage in order else len(order))
    return [StageTimes(stage, seconds.get(stage, 0.0), waited[stage]) for stage in stages]
