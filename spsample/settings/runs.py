"""Settings of a command that trains: which runs it makes, what each writes, and how a graph lies on ranks."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from spsample.common.checks import require_path
from spsample.common.options import Option, at_least, check_settings
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.settings.sampling import bytes_option
from spsample.settings.training import METRIC_NAMES, data_option, not_negative

if TYPE_CHECKING:
    from spsample.comm import Communicator

_run = partial(Option, panel="Run")
rank_option = partial(Option, panel="Ranks")

REPLICATION = rank_option("Ranks that hold the same block row, a divisor of their number: c.", common=True)
ALGORITHM = rank_option("How rows of other ranks are reached; changes no sample.", choices=("auto", "column", "stages"))
"""In a plan the first can be ``all`` too, and the second has other choices: each command gives its type."""

ReplicateHubs = Annotated[
    str | None,
    bytes_option("Memory for rows of hubs that every rank holds; changes no sample.", panel="Ranks", unset="none"),
]


def _trace(argument: str, value: Any) -> None:
    if require_path(argument, value).suffix != ".json":
        raise InputError(argument=argument, given=repr(value), expected="a file that ends in .json")


@dataclass(frozen=True)
class Runs:
    """The runs that are made: on what of the data set, and how often."""

    metric: Annotated[
        str, data_option("Metric of the evaluation; auto: what the data set says.", choices=("auto", *METRIC_NAMES))
    ] = "auto"
    split: Annotated[int | None, data_option("Which published split, from 0 on.", unset="0")] = None
    all_splits: Annotated[bool, data_option("Train on every published split.", flags="--all-splits")] = False
    rewire: Annotated[
        bool,
        data_option(
            "Control: permute the edges' sources first; on a planted graph no model does better than chance then.",
            flags="--rewire",
        ),
    ] = False
    features_on_disk: Annotated[
        str | None,
        data_option(
            "Leave the features of a store on its disk, with at most this much of them in memory, as in 2GiB.",
            unset="memory maps",
            check=require_bytes,
            decisive=False,
        ),
    ] = None
    """On one rank; changes no sample and no loss."""
    repeats: Annotated[
        int, _run("Train this often, with the random seeds from --random-seed on.", check=at_least(1))
    ] = 1


@dataclass(frozen=True)
class Recording:
    """Intervals at which a run writes to its folder, and what else it writes."""

    checkpoint_minutes: Annotated[float, _run("Minutes between two checkpoints; 0 for none.", check=not_negative)] = (
        10.0
    )
    checkpoint_batches: Annotated[int, _run("Batches between two checkpoints; 0 for none.", check=at_least(0))] = 0
    checkpoint_epochs: Annotated[int, _run("Epochs between two checkpoints; 0 for none.", check=at_least(0))] = 1
    log_every: Annotated[
        int, _run("Batches per line of metrics.jsonl; 0: lines per epoch alone.", check=at_least(0))
    ] = 0
    tensorboard: Annotated[bool, _run("Write TensorBoard's files into the folder too.", flags="--tensorboard")] = False
    trace: Annotated[
        str | None,
        _run(
            "File for what each thread of each rank did and when, in Chrome's trace format, which Perfetto opens.",
            values="file that ends in `.json`",
            unset="none",
            check=_trace,
        ),
    ] = None
    """Of this command alone: the settings of a run's folder do not name it."""

    def __post_init__(self) -> None:
        """Refuse what is no interval."""
        check_settings(self)


@dataclass(frozen=True)
class RankOptions:
    """Placement of a graph and its features on the ranks, and the connection between these."""

    partitioned: Annotated[
        bool,
        rank_option(
            "On several ranks: each holds block rows of graph and features, or all of them.",
            flags="--partitioned/--replicated",
            common=True,
        ),
    ] = True
    replication: Annotated[int, REPLICATION] = 1
    algorithm: Annotated[str, ALGORITHM] = "auto"
    replicate_hubs: ReplicateHubs = None
    feature_dtype: Annotated[
        str | None,
        rank_option(
            "Type of partitioned features, in memory and on their way.",
            choices=("float32", "float16", "bfloat16", "int8"),
            unset="as stored",
        ),
    ] = None
    partition: Annotated[
        str | None,
        rank_option(
            "Block row of each vertex, of `spsample partition`; changes no samples but those of local batches.",
            values="file (`.npy`)",
            unset="ranges of vertices",
        ),
    ] = None
    parts: Annotated[
        str | None,
        rank_option(
            "Each rank samples its own part alone, and gradients are averaged: PaGraph's trainers. The whole graph is "
            "evaluated.",
            values="folder of `spsample partition --stores`",
            unset="all ranks sample one graph",
        ),
    ] = None
    backend_comm: Annotated[
        str, rank_option("What connects the ranks.", choices=("auto", "mpi", "gloo", "nccl", "local"))
    ] = "auto"

    @property
    def of_block_rows(self) -> list[str]:
        """The options given that place block rows."""
        names = "replication", "replicate_hubs", "feature_dtype", "partition", "algorithm"
        given = [name for name in names if getattr(self, name) != getattr(RankOptions, name)]
        return [f"--{name.replace('_', '-')}" for name in given]

    def describe(self, comm: "Communicator") -> str:
        """In words, for a header."""
        where = f"{comm.size} ranks ({comm.name}), "
        if self.parts is not None:
            where += f"each samples its part of {self.parts}; for evaluation "
        if not self.partitioned:
            return where + "graph and features on each"
        blocks = f"graph and features in {comm.size // self.replication} block rows"
        copies = "" if self.replication == 1 else f", each on {self.replication} ranks"
        hubs = f", {self.replicate_hubs} of hub rows on all" if self.replicate_hubs else ""
        blocks += f" of {self.partition}" if self.partition else ""
        return f"{where}{blocks}{copies}; algorithm {self.algorithm}{hubs}"
