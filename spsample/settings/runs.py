"""Settings of a command that trains: which runs it makes, and what each writes."""

from dataclasses import dataclass
from typing import Annotated, Any

from spsample.common.checks import require_path
from spsample.common.options import Option, at_least, check_settings
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.settings.training import METRIC_NAMES, not_negative

_RUN = "Run"


def _trace(argument: str, value: Any) -> None:
    if require_path(argument, value).suffix != ".json":
        raise InputError(argument=argument, given=repr(value), expected="a file that ends in .json")


@dataclass(frozen=True)
class Runs:
    """The runs that are made: on what of the data set, and how often."""

    metric: Annotated[
        str,
        Option(
            "Metric of the evaluation; auto: what the data set says.",
            "Data",
            choices=("auto", *METRIC_NAMES),
        ),
    ] = "auto"
    split: Annotated[int | None, Option("Which published split, from 0 on.", "Data", unset="0")] = None
    all_splits: Annotated[bool, Option("Train on every published split.", "Data", flags="--all-splits")] = False
    rewire: Annotated[
        bool,
        Option(
            "Control: permute the edges' sources first; on a planted graph no model does better than chance then.",
            "Data",
            flags="--rewire",
        ),
    ] = False
    features_on_disk: Annotated[
        str | None,
        Option(
            "Leave the features of a store on its disk, with at most this much of them in memory, as in 2GiB.",
            "Data",
            unset="memory maps",
            check=require_bytes,
            decisive=False,
        ),
    ] = None
    """On one rank; changes no sample and no loss."""
    repeats: Annotated[
        int, Option("Train this often, with the random seeds from --random-seed on.", _RUN, check=at_least(1))
    ] = 1


@dataclass(frozen=True)
class Recording:
    """Intervals at which a run writes to its folder, and what else it writes."""

    checkpoint_minutes: Annotated[
        float, Option("Minutes between two checkpoints; 0 for none.", _RUN, check=not_negative)
    ] = 10.0
    checkpoint_batches: Annotated[
        int, Option("Batches between two checkpoints; 0 for none.", _RUN, check=at_least(0))
    ] = 0
    checkpoint_epochs: Annotated[
        int, Option("Epochs between two checkpoints; 0 for none.", _RUN, check=at_least(0))
    ] = 1
    log_every: Annotated[
        int, Option("Batches per line of metrics.jsonl; 0: lines per epoch alone.", _RUN, check=at_least(0))
    ] = 0
    tensorboard: Annotated[
        bool, Option("Write TensorBoard's files into the folder too.", _RUN, flags="--tensorboard")
    ] = False
    trace: Annotated[
        str | None,
        Option(
            "File for what each thread of each rank did and when, in Chrome's trace format, which Perfetto opens.",
            _RUN,
            values="file that ends in `.json`",
            unset="none",
            check=_trace,
        ),
    ] = None
    """Of this command alone: the settings of a run's folder do not name it."""

    def __post_init__(self) -> None:
        """Refuse what is no interval."""
        check_settings(self)
