"""The use of time: seconds by phase, and a trace file of the work of each thread of each rank."""

from __future__ import annotations

from spsample.timeline.phases import Phases, StageTimes, stage_times, waiting_for, work_seconds
from spsample.timeline.timeline import Timeline

__all__ = ["Phases", "StageTimes", "Timeline", "stage_times", "waiting_for", "work_seconds"]
