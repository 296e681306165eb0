"""Settings that fit a data set, by its name."""

from dataclasses import dataclass, field
from typing import Annotated

from spsample.common.checks import require_type
from spsample.common.options import Option, values_of
from spsample.settings.sampling import SamplerSizes
from spsample.settings.training import ModelConfig, TrainConfig


@dataclass(frozen=True)
class Preset(SamplerSizes):
    """Sampler sizes, model and optimisation for one data set."""

    scaling: Annotated[
        str,
        Option(
            "Scaling of the features: as they are, rows of sum 1, or columns of mean 0 and deviation 1.",
            "Data",
            choices=("none", "rows", "standard"),
        ),
    ] = "none"
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


_BAGS_OF_WORDS = Preset(
    fanouts=(10, 10),
    scaling="rows",
    model=ModelConfig(hidden=64, dropout=0.6),
    train=TrainConfig(epochs=100, batch_size=140, learning_rate=0.01, weight_decay=5e-4, eval_every=2),
)

PRESETS: dict[str, Preset] = {
    "digits": Preset(
        model=ModelConfig(hidden=128, dropout=0.3),
        train=TrainConfig(epochs=30, batch_size=128, learning_rate=0.005),
    ),
    "planted": Preset(
        fanouts=(15, 5),
        layer_sizes=(4096, 4096),
        model=ModelConfig(hidden=64, dropout=0.0),
        train=TrainConfig(epochs=20, batch_size=512, learning_rate=0.01),
    ),
    "tolokers": Preset(
        fanouts=(10, 10),
        layer_sizes=(1024, 1024),
        model=ModelConfig(architecture="residual", hidden=128, dropout=0.2),
        train=TrainConfig(epochs=60, batch_size=512, learning_rate=0.002, eval_every=5),
    ),
    "planetoid_cora": _BAGS_OF_WORDS,
    "planetoid_citeseer": _BAGS_OF_WORDS,
}


def preset_for(name: str) -> Preset:
    """Return the preset of the data set ``name``, or a general one; ``planted-rewired`` is as ``planted``.

    Examples
    --------
    >>> preset_for("tolokers").model.architecture
    'residual'
    """
    require_type("name", name, str, "the name of a data set")
    return PRESETS.get(name.removesuffix("-rewired"), Preset())


def differing() -> set[str]:
    """Return the names of the settings that are not the same in all presets.

    Examples
    --------
    >>> "hidden" in differing(), "optimizer" in differing()
    (True, False)
    """
    general = values_of(Preset())
    return {name for preset in PRESETS.values() for name, value in values_of(preset).items() if value != general[name]}
