"""What to train with unless told otherwise, by data set."""

from __future__ import annotations

from dataclasses import dataclass, field

from spsample.common.checks import require_type
from spsample.training.models import ModelConfig
from spsample.training.settings import TrainConfig

__all__ = ["PRESETS", "Preset", "preset_for"]


@dataclass(frozen=True)
class Preset:
    """Sampler sizes, model and optimisation for one data set.

    Attributes
    ----------
    fanouts
        For GraphSAGE, nearest to the seeds first.
    layer_sizes
        For LADIES and FastGCN, nearest to the seeds first.
    scaling
        See `spsample.data.scale_features`.
    model, train
        Settings of the model and of the training.
    """

    fanouts: tuple[int, ...] = (15, 10)
    layer_sizes: tuple[int, ...] = (512, 512)
    scaling: str = "none"
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
