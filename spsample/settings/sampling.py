"""Options of sampling that several commands have.

Each is declared here, at a field or as an annotated type. A dataclass that has a field of that type gives the default.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from spsample.common.checks import require_bulk_size
from spsample.common.options import Option, at_least
from spsample.common.stage_threads import require_stage_threads
from spsample.common.units import require_bytes

SAMPLERS = ("graphsage", "ladies", "fastgcn")

sampling_option = partial(Option, panel="Sampling")
speed_option = partial(Option, panel="Sampling", decisive=False)
"""Of what changes no sample and no result."""
bytes_option = partial(speed_option, values="bytes, or as in `2GiB`", check=require_bytes)


def _number_or_word(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


Layout = Annotated[str, sampling_option("GraphSAGE: blocks or subgraph.", common=True)]

Seeds = Annotated[
    str, sampling_option("train, val, test or all vertices; auto: train where there is a split, else all.", common=True)
]

EdgeIds = Annotated[bool, sampling_option("Also each entry's position in the input.", flags="--edge-ids")]

BatchSize = Annotated[int, sampling_option("Seeds per minibatch.", check=at_least(1), common=True)]

Batches = Annotated[
    str,
    sampling_option(
        "Seeds of a rank's batches: from anywhere, or of its own block row.", choices=("shuffled", "local")
    ),
]

BulkSize = Annotated[
    int | str,
    speed_option(
        "Minibatches sampled at once, at most; changes no sample.",
        values="integer, `auto`",
        check=require_bulk_size,
        parse=_number_or_word,
    ),
]

MEMORY_BUDGET = bytes_option(
    "Memory for bulks; changes no sample.",
    unset="half of what is available where it decides the bulk size, else all of it",
)
MemoryBudget = Annotated[int | str | None, MEMORY_BUDGET]

Prefetch = Annotated[int, speed_option("Bulks sampled ahead; changes no sample.", check=at_least(0))]

StageThreads = Annotated[
    str | None,
    speed_option(
        "Threads of sampling, of features and perhaps of torch, with threads side by side. Changes no sample.",
        values="as in `2,1` or `2,1,4`",
        unset="as many as OMP_NUM_THREADS says, for each",
        check=require_stage_threads,
    ),
]

PrefetchBudget = Annotated[
    int | str | None,
    bytes_option(
        "Memory for bulks and features that are finished and wait; changes no sample.", unset="that for bulks, if any"
    ),
]

Fetch = Annotated[
    str,
    speed_option(
        "Rows of features are fetched for each batch, or once for all batches of a bulk; changes no sample.",
        choices=("batch", "bulk"),
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

    sampler: Annotated[str, sampling_option("Sampler.", choices=SAMPLERS, common=True)] = "graphsage"


@dataclass(frozen=True)
class SamplerSizes:
    """Sizes of samples per layer."""

    fanouts: Annotated[
        tuple[int, ...],
        sampling_option("GraphSAGE: in-neighbours per layer, nearest the seeds first; -1 = all.", common=True),
    ] = (15, 10)
    layer_sizes: Annotated[
        tuple[int, ...], sampling_option("LADIES, FastGCN: vertices per layer, nearest the seeds first.", common=True)
    ] = (512, 512)
