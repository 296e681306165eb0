"""Settings of runs, with their defaults, checks and descriptions, and presets by data set.

Commands and the documentation take their options from here; nothing here needs torch. An option that several commands
have is declared once, in `sampling` or `runs`.
"""

from __future__ import annotations

from spsample.settings.runs import RankOptions, Recording, Runs
from spsample.settings.sampling import SamplerChoice, SamplerSizes
from spsample.settings.training import (
    METRIC_NAMES,
    PRESETS,
    ModelConfig,
    Preset,
    TrainConfig,
    differing,
    preset_for,
)

__all__ = [
    "METRIC_NAMES",
    "PRESETS",
    "ModelConfig",
    "Preset",
    "RankOptions",
    "Recording",
    "Runs",
    "SamplerChoice",
    "SamplerSizes",
    "TrainConfig",
    "differing",
    "preset_for",
]
