"""What a training is told: settings with their defaults, checks and descriptions, and presets by data set.

Commands and the documentation take their options from here; nothing here needs torch.
"""

from __future__ import annotations

from spsample.settings.presets import PRESETS, Preset, SamplerSizes, differing, preset_for
from spsample.settings.training import ARCHITECTURES, ModelConfig, Recording, TrainConfig

__all__ = [
    "ARCHITECTURES",
    "PRESETS",
    "ModelConfig",
    "Preset",
    "Recording",
    "SamplerSizes",
    "TrainConfig",
    "differing",
    "preset_for",
]
