"""Where the time goes: seconds by phase, and which thread of which rank did what, and when, as a trace file."""

from __future__ import annotations

from spsample.timeline.phases import Phases, StageTimes, stage_times, waiting_for, work_seconds
from spsample.timeline.timeline import Timeline

__all__ = ["Phases", "StageTimes", "Timeline", "stage_times", "waiting_for", "work_seconds"]
