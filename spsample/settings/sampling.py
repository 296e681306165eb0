"""Options of sampling that several commands have.

Each is declared here, at a field or as an annotated type. A dataclass that has a field of that type gives the default.
"""

from dataclasses import dataclass
from typing import Annotated

from spsample.common.checks import require_bulk_size
from spsample.common.options import Option, at_least
from spsample.common.stage_threads import require_stage_threads
from spsample.common.units import require_bytes

SAMPLERS = ("graphsage", "ladies", "fastgcn")
_PANEL = "Sampling"


def _number_or_word(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


Layout = Annotated[str, Option("GraphSAGE: blocks or subgraph.", _PANEL, common=True)]

Seeds = Annotated[
    str, Option("train, val, test or all vertices; auto: train where there is a split, else all.", _PANEL, common=True)
]

EdgeIds = Annotated[bool, Option("Also each entry's position in the input.", _PANEL, flags="--edge-ids")]

BatchSize = Annotated[int, Option("Seeds per minibatch.", _PANEL, check=at_least(1), common=True)]

Batches = Annotated[
    str,
    Option(
        "Seeds of a rank's batches: from anywhere, or of its own block row.",
        _PANEL,
        choices=("shuffled", "local"),
    ),
]

BulkSize = Annotated[
    int | str,
    Option(
        "Minibatches sampled at once, at most; changes no sample.",
        _PANEL,
        values="integer, `auto`",
        check=require_bulk_size,
        parse=_number_or_word,
        decisive=False,
    ),
]

MEMORY_BUDGET = Option(
    "Memory for bulks; changes no sample.",
    _PANEL,
    values="bytes, or as in `2GiB`",
    unset="half of what is available where it decides the bulk size, else all of it",
    check=require_bytes,
    decisive=False,
)
MemoryBudget = Annotated[int | str | None, MEMORY_BUDGET]

Prefetch = Annotated[int, Option("Bulks sampled ahead; changes no sample.", _PANEL, check=at_least(0), decisive=False)]

StageThreads = Annotated[
    str | None,
    Option(
        "Threads of sampling, of features and perhaps of torch, with threads side by side. Changes no sample.",
        _PANEL,
        values="as in `2,1` or `2,1,4`",
        unset="as many as OMP_NUM_THREADS says, for each",
        check=require_stage_threads,
        decisive=False,
    ),
]

PrefetchBudget = Annotated[
    int | str | None,
    Option(
        "Memory for bulks and features that are finished and wait; changes no sample.",
        _PANEL,
        values="bytes, or as in `2GiB`",
        unset="that for bulks, if any",
        check=require_bytes,
        decisive=False,
    ),
]

Fetch = Annotated[
    str,
    Option(
        "Rows of features are fetched for each batch, or once for all batches of a bulk; changes no sample.",
        _PANEL,
        choices=("batch", "bulk"),
        decisive=False,
    ),
]

RandomSeed = Annotated[
    int,
    Option(
        "Decides generated data, orders and samples; in training also rewiring, initial weights and dropout.",
        "Run",
        check=at_least(0, 2**64 - 1),
        common=True,
    ),
]


@dataclass(frozen=True)
class SamplerChoice:
    """The sampler."""

    sampler: Annotated[str, Option("Sampler.", _PANEL, choices=SAMPLERS, common=True)] = "graphsage"


@dataclass(frozen=True)
class SamplerSizes:
    """Sizes of samples per layer."""

    fanouts: Annotated[
        tuple[int, ...],
        Option("GraphSAGE: in-neighbours per layer, nearest the seeds first; -1 = all.", _PANEL, common=True),
    ] = (15, 10)
    layer_sizes: Annotated[
        tuple[int, ...],
        Option("LADIES, FastGCN: vertices per layer, nearest the seeds first.", _PANEL, common=True),
    ] = (512, 512)
