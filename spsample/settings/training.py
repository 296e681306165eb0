"""Settings of a training run: its model, its pipeline, its optimisation and its evaluation; presets by data set."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from spsample.common.checks import require_choice, require_number, require_path, require_type, short
from spsample.common.options import Option, at_least, check_settings, settings_of, values_of
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.sampling.sampler import require_sizes
from spsample.settings.sampling import (
    Batches,
    BatchSize,
    BulkSize,
    Fetch,
    MemoryBudget,
    Prefetch,
    PrefetchBudget,
    RandomSeed,
    SamplerSizes,
    StageThreads,
    bytes_option,
    sampling_option,
    speed_option,
)

_BUILT_IN = ("sage", "gcn", "gat", "residual", "precomputed-sage", "precomputed-gcn")
ARCHITECTURES = set(_BUILT_IN)
"""Values of `ModelConfig.architecture`: `register_model` adds to them."""


class PipelineRules(NamedTuple):
    """Rules for the settings of a run with a pipeline.

    Attributes
    ----------
    own : tuple of str
        Settings that no other pipeline has.
    only : dict
        Settings that can have one value alone, with that value and the reason.
    works_ahead : bool
        True where stages work ahead, whose threads and memory can be set.
    shares_batches : bool
        True where all ranks work on one batch at a time.
    whole_graph : bool
        True where a rank that samples has all of the graph.
    own_batches : bool
        True where each rank samples and trains batches of its own.
    """

    own: tuple[str, ...] = ()
    only: Mapping[str, tuple[Any, str]] = MappingProxyType({})
    works_ahead: bool = True
    shares_batches: bool = False
    whole_graph: bool = False
    own_batches: bool = False


PIPELINES = {
    "sync": PipelineRules(works_ahead=False, own_batches=True),
    "overlap": PipelineRules(own_batches=True),
    "factored": PipelineRules(
        own=("sampler_ranks", "step_batches", "queue_memory", "staleness", "switches"),
        only={
            "batches": ("shuffled", "any rank may train any batch"),
            "fetch": ("batch", "the batches of a bulk go to several ranks"),
            "cache_replacement": ("static", "a trainer does not know its next batches"),
        },
        works_ahead=False,
        whole_graph=True,
    ),
    "cooperative": PipelineRules(
        only={"batches": ("shuffled", "each batch has seeds of all ranks")}, shares_batches=True
    ),
}
"""Values of `TrainConfig.pipeline`: each is the name of a module of `spsample.pipelines`."""

METRIC_NAMES = {
    "accuracy": "accuracy",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "f1_micro": "micro F1",
    "f1_macro": "macro F1",
}
"""Metrics of an evaluation, and what they are called in texts."""

ADDED_OPTIONS = {
    "batches": "shuffled",
    "step_batches": None,
    "staleness": None,
    "biased": None,
    "importance_weights": False,
}
"""Decisive options that the files of runs of older releases do not name, and what these runs had."""
ADDED_SETTINGS = {**ADDED_OPTIONS, "shares_batches": False}
"""Decisive settings that states of older releases do not name, and what their runs had."""
CACHE_SCORES = ("posterior", "inclusion", "presc", "replay", "out-degree", "reverse-pagerank", "random")
"""Scores that choose cached features; `register_score` adds to what `TrainConfig.cache_score` can be."""

COPY_METHODS = ("best-copies", "interleaved", "replicated", "song-jiang")
"""Methods of `spsample.features.plan_copies`."""

data_option = partial(Option, panel="Data")
_model = partial(Option, panel="Model")
_optim = partial(Option, panel="Optimisation")
_eval = partial(Option, panel="Evaluation")

_positive = partial(require_number, is_right=lambda x: x > 0, expected="a positive number")
not_negative = partial(require_number, is_right=lambda x: x >= 0, expected="a number of at least 0")
_below_one = partial(require_number, is_right=lambda x: 0 <= x < 1, expected="a number in [0, 1)")
_probability = partial(require_number, is_right=lambda x: 0 <= x < 1, expected="a probability in [0, 1)")
_factor = partial(require_number, is_right=lambda x: 0 < x < 1, expected="a number between 0 and 1")
_backend = partial(require_type, types=str, expected="the name of a backend, or None")
_sizes = partial(require_sizes, whole_rows=True)
_cache_score = partial(require_type, types=str, expected="the name of a score")


def _cache_budget(argument: str, value: Any) -> None:
    if not isinstance(value, str) or value != "auto":
        require_bytes(argument, value)


def _number_or_path(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _alpha(argument: str, value: Any) -> None:
    if isinstance(value, str):
        require_path(argument, value)
    else:
        _positive(argument, value)


def _device(argument: str, value: Any) -> None:
    expected = "'cpu', 'cuda', the number of a GPU as in 'cuda:1', or 'auto'"
    require_type(argument, value, str, expected)
    if not re.fullmatch(r"cpu|auto|cuda(:\d{1,4})?", value):
        raise InputError(argument=argument, given=short(value), expected=expected)


def _architecture(argument: str, value: Any) -> None:
    require_choice(argument, value, sorted(ARCHITECTURES))


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model.

    With ``residual`` it is ``h_v + MLP(conv(norm(h))_v)`` in each layer, between a linear encoder and decoder, as in
    Platonov et al., "A critical look at the evaluation of GNNs under heterophily" (2023).

    Raises
    ------
    InputError
        If there is no such architecture, or a number is out of range.
    """

    architecture: Annotated[
        str,
        _model(
            "Architecture: residual is sage with --residual and --layer-norm; or the name of a model of one's own.",
            flags="--model",
            choices=_BUILT_IN,
            check=_architecture,
            common=True,
        ),
    ] = "sage"
    hidden: Annotated[int, _model("Width of the hidden layers.", check=at_least(1), common=True)] = 128
    dropout: Annotated[
        float, _model("Probability of a dropped unit.", values="number in [0, 1)", check=_probability)
    ] = 0.5
    residual: Annotated[bool, _model("Each layer adds to its input.", flags="--residual/--no-residual")] = False
    layer_norm: Annotated[
        bool,
        _model(
            "Normalise each vertex's features: before each convolution and the decoder of a residual model, else after "
            "each convolution but the last.",
            flags="--layer-norm/--no-layer-norm",
        ),
    ] = False
    heads: Annotated[
        int, _model("Attention heads of gat in each hidden layer, a divisor of its width.", check=at_least(1))
    ] = 4

    def __post_init__(self) -> None:
        """Refuse what no model can have."""
        check_settings(self)


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the optimisation and the evaluation.

    Raises
    ------
    InputError
        If a value is out of range.
    """

    epochs: Annotated[int, _optim("Passes over the training vertices, at most.", check=at_least(1), common=True)] = 30
    batch_size: BatchSize = 512
    bulk_size: BulkSize = 64
    memory_budget: MemoryBudget = None
    prefetch: Prefetch = 1
    prefetch_budget: PrefetchBudget = None
    stage_threads: StageThreads = None
    batches: Batches = "shuffled"
    pipeline: Annotated[
        str,
        speed_option(
            "How sampling, fetching and training follow each other: in turn; in threads side by side; on ranks that "
            "sample and ranks that train; or side by side and with all ranks at work on one batch of --batch-size "
            "seeds for each of them.",
            choices=tuple(PIPELINES),
        ),
    ] = "overlap"
    sampler_ranks: Annotated[
        int | None,
        speed_option(
            "factored: ranks that sample; the others train.", unset="chosen by a measured trial", check=at_least(1)
        ),
    ] = None
    step_batches: Annotated[
        int | None,
        sampling_option(
            "factored: batches of a step, whichever rank trains them.",
            unset="as many as there are ranks",
            check=at_least(1),
        ),
    ] = None
    queue_memory: Annotated[
        int | str | None,
        bytes_option("factored: memory for the minibatches of a sampler that wait for a trainer.", unset="1GiB"),
    ] = None
    switches: Annotated[
        bool,
        speed_option(
            "factored: a sampler that has sampled its batches of an epoch trains, where that ends it sooner.",
            flags="--switches/--no-switches",
        ),
    ] = True
    staleness: Annotated[
        int | None,
        _optim(
            "factored: train asynchronously; a gradient may be of weights that are at most this number of updates old.",
            unset="ranks take each step together",
            check=at_least(0),
        ),
    ] = None
    optimizer: Annotated[str, _optim("Optimizer.", choices=("adam", "adamw", "sgd"))] = "adam"
    learning_rate: Annotated[float, _optim("Learning rate.", flags="--lr", check=_positive, common=True)] = 0.005
    weight_decay: Annotated[float, _optim("Weight decay.", check=not_negative)] = 0.0
    momentum: Annotated[float, _optim("Momentum of sgd.", values="number in [0, 1)", check=_below_one)] = 0.9
    schedule: Annotated[
        str,
        _optim(
            "Schedule of the learning rate, by epoch; cosine falls to 0 after the last one.",
            choices=("constant", "cosine", "plateau", "step"),
        ),
    ] = "constant"
    warmup_epochs: Annotated[
        int, _optim("Epochs in which the learning rate first rises linearly.", check=at_least(0))
    ] = 0
    decay_every: Annotated[
        int,
        _optim(
            "Epochs between two steps of the schedule step; evaluations in a row without a better one of plateau.",
            check=at_least(1),
        ),
    ] = 10
    decay_factor: Annotated[
        float, _optim("What step and plateau multiply the learning rate by.", values="number in (0, 1)", check=_factor)
    ] = 0.5
    clip_norm: Annotated[
        float | None,
        _optim("Scale gradients down to this norm, all parameters together.", unset="off", check=_positive),
    ] = None
    patience: Annotated[
        int | None,
        _optim("Stop after this number of evaluations in a row without a better one.", unset="off", check=at_least(1)),
    ] = None
    eval_every: Annotated[
        int, _eval("Epochs between two evaluations; the last epoch is always evaluated.", check=at_least(1))
    ] = 1
    evaluation: Annotated[
        str,
        _eval(
            "With all neighbours, layer by layer, or with sampled ones; both: validation with all, results of both.",
            choices=("full", "sampled", "both"),
        ),
    ] = "full"
    test_sizes: Annotated[
        tuple[int, ...] | None,
        _eval(
            "Fanouts or layer sizes of sampled evaluation, nearest the seeds first.",
            unset="those of training",
            check=_sizes,
        ),
    ] = None
    evaluation_memory: Annotated[
        int | str,
        bytes_option("Memory for what full evaluation computes at once.", panel="Evaluation", decisive=True),
    ] = "1GiB"
    cache_budget: Annotated[
        int | str | None,
        speed_option(
            "Memory of each rank (cuda: of its GPU) for the features needed most often; changes no sample. "
            "Of a factored rank that samples, its graph is taken off.",
            values="bytes, as in `2GiB`, or `auto`",
            unset="none are cached",
            check=_cache_budget,
        ),
    ] = None
    cache_score: Annotated[
        str, speed_option("By what these are chosen, with --cache-budget.", choices=CACHE_SCORES, check=_cache_score)
    ] = "posterior"
    cache_replacement: Annotated[
        str,
        speed_option(
            "Whether these stay, or are kept by their next use, with --cache-budget.", choices=("static", "lookahead")
        ),
    ] = "static"
    copies: Annotated[
        str | None,
        speed_option(
            "Place the rows that ranks keep, within --cache-budget, over all ranks: a rank asks the nearest one that "
            "has a copy.",
            choices=COPY_METHODS,
            unset="each rank caches for itself",
        ),
    ] = None
    alpha: Annotated[
        float | str | None,
        speed_option(
            "With --copies: cost of a row from another rank's copy over that of one from its source.",
            values="number, or a text file with a row of costs for each rank",
            unset="none",
            check=_alpha,
            parse=_number_or_path,
        ),
    ] = None
    biased: Annotated[
        float | None,
        sampling_option(
            "GraphSAGE: neighbours whose features a rank keeps, by --cache-budget, weigh so many times as much.",
            unset="all weigh the same",
            check=_positive,
        ),
    ] = None
    importance_weights: Annotated[
        bool,
        sampling_option(
            "With --biased: weights undo the preference in the means that layers take.",
            flags="--importance-weights/--no-importance-weights",
        ),
    ] = False
    fetch: Fetch = "batch"
    random_seed: RandomSeed = 0
    device: Annotated[
        str | None,
        speed_option(
            "Where the model is; batches are copied there ahead of their use. cuda: the GPU of each rank; auto: a GPU "
            "where there is one.",
            values="`cpu`, `cuda`, `cuda:1` or `auto`",
            unset="where samples are made",
            check=_device,
        ),
    ] = None
    backend: Annotated[
        str | None,
        speed_option(
            "What samples; changes no sample.",
            choices=("cpu", "reference", "cuda"),
            unset="the fastest one",
            check=_backend,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse what cannot be trained with; the loader checks the sizes it gets."""
        check_settings(self)
        rules = PIPELINES[self.pipeline]
        for name, (value, reason) in rules.only.items():
            self._require(name, value, f"{value!r}: {reason}")
        if not rules.works_ahead or self.prefetch == 0:
            ahead = "" if self.prefetch else " and prefetch=0"
            for name in ("stage_threads", "prefetch_budget"):
                self._require(name, None, "none: no stages work ahead then", ahead)
        for other, others in PIPELINES.items():
            for name in others.own if other != self.pipeline else ():
                default = getattr(TrainConfig, name)
                self._require(name, default, f"pipeline={other!r}, or {'none' if default is None else default}")

        self._check_copies()

    def _check_copies(self) -> None:
        """Refuse copies and preferences without the rows that they are of."""
        for name, needed in (("alpha", "copies"), ("importance_weights", "biased")):
            value = getattr(self, name)
            if getattr(self, needed) is None and value != getattr(TrainConfig, name):
                raise InputError(argument=name, given=f"{value} without {needed}", expected=f"{needed} too")
        if self.copies is not None and self.alpha is None:
            expected = "the cost of a row from another rank's copy over that of one from its source"
            raise InputError(argument="alpha", given=f"none with copies={self.copies!r}", expected=expected)
        for name, given in (("copies", self.copies), ("biased", self.biased)):
            if given is None:
                continue
            self.require_own_batches(name)
            if self.cache_budget is None or (name == "copies" and self.cache_budget == "auto"):
                expected = "the bytes of features that each rank keeps"
                raise InputError(argument="cache_budget", given=f"{self.cache_budget} with {name}", expected=expected)
            self._require("cache_replacement", "static", f"'static' with {name}", f" and {name}={given!r}")
            if self.backend == "cuda":
                expected = "a backend of the host, whose memory these rows are in"
                raise InputError(argument="backend", given=f"'cuda' with {name}", expected=expected)

    def require_own_batches(self, what: str) -> None:
        """Refuse a pipeline in which ranks do not each have batches of their own, for what needs these."""
        possible = [name for name, rules in PIPELINES.items() if rules.own_batches]
        if self.pipeline not in possible:
            expected = " or ".join(map(repr, possible))
            raise InputError(argument="pipeline", given=f"{self.pipeline!r} with {what}", expected=expected)

    def _require(self, name: str, value: Any, expected: str, also: str = "") -> None:
        """Refuse any other value of a setting with this pipeline."""
        if getattr(self, name) != value:
            given = f"{getattr(self, name)!r} with pipeline={self.pipeline!r}{also}"
            raise InputError(argument=name, given=given, expected=expected)

    def decisive(self) -> dict[str, Any]:
        """Return the settings that decide the result, as plain values; the others change its speed alone."""
        known = asdict(self)
        known["test_sizes"] = None if self.test_sizes is None else list(self.test_sizes)
        names = [setting.name for setting in settings_of(TrainConfig) if setting.option.decisive]
        return {**{name: known[name] for name in names}, "shares_batches": self.shares_batches}

    @property
    def shares_batches(self) -> bool:
        """True where all ranks work on one batch at a time."""
        return PIPELINES[self.pipeline].shares_batches


# -------------------------------------------------------------------------------------------------------------- presets


@dataclass(frozen=True)
class Preset(SamplerSizes):
    """Sampler sizes, model and optimisation for one data set."""

    scaling: Annotated[
        str,
        data_option(
            "Scaling of the features: as they are, rows of sum 1, or columns of mean 0 and deviation 1.",
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
        model=ModelConfig(hidden=128, dropout=0.3), train=TrainConfig(epochs=30, batch_size=128, learning_rate=0.005)
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
