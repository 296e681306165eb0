"""Where the time goes: seconds by phase, and which thread of which rank did what, and when, as a file and a picture."""

from __future__ import annotations

from spsample.timeline.phases import Phases
from spsample.timeline.picture import plot_timeline
from spsample.timeline.stages import StageTimes, stage_times
from spsample.timeline.timeline import Timeline

__all__ = ["Phases", "StageTimes", "Timeline", "plot_timeline", "stage_times"]
