"""What a bulk moves over the network: bytes by phase and rank, as formulas of its counts.

Three things are kept apart: *counts* (`RankCounts`), which are counted from a bulk (`count_bulk`) or predicted
(`Pilot.counts`); the *formulas* here, one small function for each exchange of a protocol; and *time* (`Network`).

`bulk_traffic` puts the formulas of an algorithm together. The algorithms:

"column"
    Every rank asks the owners in its own column group, in one all-to-allv. Node-wise: the owner of a row draws. Entry
    law: row totals to the batch's rank, positions to the owners, columns back. Column law: per block row the cheaper
    of distinct rows and the owner's sums. Then the masked extraction.
"stages"
    Algorithm 2 of the paper: distinct rows of a row group's batches, stage by stage, then the all-reduce of P over the
    row group: of every batch its rows, or (column law) its sums by column and later the extracted edges.
"oblivious"
    Whole block rows of A are broadcast instead, whatever is needed of them.

References
----------
Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from spsample.comm.headers import HEADER_WORDS
from spsample.common.checks import require_choice
from spsample.distributed.algorithms import ALGORITHMS
from spsample.planning.cluster.column_traffic import COLUMN_EXCHANGES
from spsample.planning.cluster.exchanges import (
    PHASES,
    Algorithm,
    Exchange,
    Phase,
    all_gather,
    header,
    reply,
    request,
    ring_reduction,
    stages_header,
)
from spsample.planning.cluster.grid_shape import FloatArray, GridShape
from spsample.planning.cluster.rank_counts import HopCounts, RankCounts
from spsample.planning.cluster.stages_traffic import stages_exchanges
from spsample.planning.cluster.wire_widths import WireWidths
from spsample.sampling import Sampler
from spsample.sampling.sampler import DrawLaw


def bulk_traffic(
    counts: RankCounts,
    sampler: Sampler,
    law: DrawLaw,
    wire: WireWidths,
    algorithm: Algorithm = "column",
    *,
    feature_bytes: int = 0,
    model_bytes: int = 0,
) -> list[Exchange]:
    """Every exchange that sampling a bulk and a training step on each of its batches takes.

    Parameters
    ----------
    counts : RankCounts
    sampler : Sampler
    law : str
        What `sampler.draw_law` tells of the graph; it decides what is exchanged.
    wire : WireWidths
    algorithm : str
        One of `spsample.distributed.algorithms.ALGORITHMS`.
    feature_bytes : int
        Bytes of a vertex's features; 0: no features are fetched.
    model_bytes : int
        Bytes of the gradients; 0: none are averaged.

    Returns
    -------
    list of Exchange

    Raises
    ------
    InputError
        If there is no such algorithm.
    """
    require_choice("algorithm", algorithm, tuple(ALGORITHMS))
    sampling: list[Exchange] = []
    if counts.shape.ranks > 1:
        if counts.shape.num_blocks > 1 or algorithm != "column":
            steps = zip(counts.hops, sampler.sizes, strict=True)
            sampling += [one for hop, s in steps for one in _layer(counts, hop, s, law, wire, algorithm)]
        sampling += status(counts.shape, algorithm, len(counts.hops) * rounds_of(law, algorithm))
    return sampling + list(_training(counts, wire, feature_bytes, model_bytes))


def _layer(
    counts: RankCounts, hop: HopCounts, s: int, law: DrawLaw, wire: WireWidths, algorithm: Algorithm
) -> Iterator[Exchange]:
    if algorithm == "column":
        yield from COLUMN_EXCHANGES[law](counts, hop, s, wire)
    else:
        yield from stages_exchanges(counts, hop, law, wire, algorithm)


def _training(counts: RankCounts, wire: WireWidths, feature_bytes: int, model_bytes: int) -> Iterator[Exchange]:
    steps = int(counts.batches.max())
    if feature_bytes and counts.shape.ranks > 1:
        yield from features(counts.shape, counts.inputs, wire, feature_bytes, steps)
    if model_bytes and counts.shape.ranks > 1:
        yield gradients(counts.shape, model_bytes, steps)


_ROUNDS: dict[DrawLaw, int] = {"row": 0, "entry": 2, "column": 0, "graph": 1}
"""How often the ranks ask each other in a layer whether one of them has to go on drawing, at least."""


def rounds_of(law: DrawLaw, algorithm: Algorithm) -> int:
    """How often ranks ask each other in a layer; where every rank has the rows of its batches, nobody is asked."""
    return 0 if law == "entry" and algorithm != "column" else _ROUNDS[law]


def status(shape: GridShape, algorithm: Algorithm, rounds: int = 0) -> Iterator[Exchange]:
    """Whether all ranks have the same arguments; `rounds` times whether a draw goes on; how the call ended."""
    yield all_gather("status", shape, HEADER_WORDS)  # the checks of one rank, then the comparison
    yield all_gather("status", shape, HEADER_WORDS)
    yield header(shape, 1 + rounds) if algorithm == "column" else stages_header(shape, 1 + rounds)
    yield all_gather("status", shape, HEADER_WORDS)


def features(
    shape: GridShape, inputs: FloatArray, wire: WireWidths, feature_bytes: int, steps: int
) -> Iterator[Exchange]:
    """Ids out and rows of features back, a batch at a time; a share 1 - c/p of them is on other ranks.

    All ranks tell each other before either exchange and twice at the end of a batch that none has failed.
    """
    exchanges = 2 if shape.num_blocks > 1 else 0
    if exchanges:
        yield _per_step(request("features", shape, inputs * wire.id_bytes), steps)
        yield _per_step(reply("features", shape, inputs * feature_bytes), steps)
    yield stages_header(shape, (exchanges + 2) * steps)


def _per_step(exchange: Exchange, steps: int) -> Exchange:
    """As many bytes in `steps` times as many messages."""
    return replace(exchange, messages=steps * exchange.messages)


def gradients(shape: GridShape, model_bytes: int, steps: int) -> Exchange:
    """The ring all-reduce of every step."""
    return ring_reduction("gradients", shape, model_bytes).scaled(steps)


# ------------------------------------------------------------------------------------------------------------ by phase


@dataclass(frozen=True)
class PhaseBytes:
    """Sums over all exchanges of a phase: bytes of a rank, in the mean and at most, and the most messages."""

    sent_mean: float
    sent_max: float
    received_mean: float
    received_max: float
    messages_max: float


def by_phase(traffic: Iterable[Exchange]) -> dict[Phase, PhaseBytes]:
    """Sums by phase, in the order of `PHASES`; phases without exchanges are left out.

    Examples
    --------
    >>> from spsample.planning.cluster.exchanges import ring_reduction
    >>> by_phase([ring_reduction("gradients", GridShape(4), 100)])["gradients"].sent_max
    150.0
    """
    listed = list(traffic)
    grouped = {phase: [one for one in listed if one.phase == phase] for phase in PHASES}
    return {phase: _summed(ones) for phase, ones in grouped.items() if ones}


def _summed(traffic: list[Exchange]) -> PhaseBytes:
    sent, received, messages = (
        np.sum([getattr(one, name) for one in traffic], axis=0) for name in ("sent", "received", "messages")
    )
    return PhaseBytes(
        float(sent.mean()), float(sent.max()), float(received.mean()), float(received.max()), float(messages.max())
    )


__all__ = ["PhaseBytes", "bulk_traffic", "by_phase", "features", "gradients"]
