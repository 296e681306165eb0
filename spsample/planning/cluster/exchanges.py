"""Bytes of numbers and of exchanges by rank, from what each rank needs of each block row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spsample.comm.headers import HEADER_WORDS
from spsample.planning.cluster.grid_shape import FloatArray, GridShape

WORD_BYTES = 8  # bytes of a number that is not packed: counts, batch ids, requests
EXPONENT_BYTES = 4
NORM_BYTES = 2  # bytes of a squared column norm, about


@dataclass(frozen=True)
class WireWidths:
    """Bytes of what is sent.

    Attributes
    ----------
    id_bytes : int
        A vertex id, 4 or 8.
    weight_bytes : int
        An entry's weight; 0 where entries have none.
    edge_id_bytes : int
        An edge id, 8; 0 where they were not asked for.
    numerator_bytes : int
        A sum of numerators at least; counts take more where they are larger.
    row_normalized : bool
        Whether entries weigh one over the length of their row, which then travels too.
    """

    id_bytes: int = 4
    weight_bytes: int = 0
    edge_id_bytes: int = 0
    numerator_bytes: int = 1
    row_normalized: bool = False

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of a row of A."""
        return self.id_bytes + self.weight_bytes + self.edge_id_bytes

    @classmethod
    def of(cls, id_bytes: int, weight_bytes: int, weighting: str, *, edge_ids: bool = False) -> WireWidths:
        """The widths for entries of a graph, with edge ids where they are asked for."""
        return cls(id_bytes, weight_bytes, 8 * edge_ids, 1 if weighting == "unweighted" else 4, weighting == "row")


def widths(largest: NDArray[Any]) -> FloatArray:
    """Bytes of numbers up to `largest`: 1, 2, 4 or 8.

    Examples
    --------
    >>> widths(np.array([0, 255, 256, 2.0**32])).tolist()
    [1.0, 1.0, 2.0, 8.0]
    """
    sizes: FloatArray = np.array([1.0, 2.0, 4.0, 8.0])[np.searchsorted([255.0, 65535.0, 2.0**32 - 1], largest)]
    return sizes


def length_bytes(most: int) -> int:
    """Bytes of a number up to `most`; -1: not known.

    Examples
    --------
    >>> length_bytes(255), length_bytes(256), length_bytes(-1)
    (1, 2, 4)
    """
    return 4 if most < 0 or most > 65535 else 1 + (most > 255)


def numerator_bytes(most: FloatArray, wire: WireWidths) -> FloatArray:
    """Bytes of sums of up to `most` entries."""
    return np.maximum(widths(most), wire.numerator_bytes)


Phase = Literal[
    "frontier",
    "totals",
    "rows",
    "positions",
    "columns",
    "sums",
    "extraction",
    "reduction",
    "features",
    "gradients",
    "status",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The purposes of communication, in the order of a training step."""

Algorithm = Literal["column", "stages", "oblivious"]
"""Ways to reach rows of other ranks; see `spsample.planning.cluster.traffic`."""

Kind = Literal["request", "reply", "reduction"]
Scope = Literal["column", "row", "all", "ring"]
"""The ranks that exchange: those of a column group, of a row group, all; or all, each with the next one."""


@dataclass(frozen=True, eq=False)
class ExchangeCost:
    """One exchange: bytes that each rank sends to and receives from others, and the messages that it sends.

    Attributes
    ----------
    phase : str
        One of `PHASES`.
    kind : {"request", "reply", "reduction"}
    scope : {"column", "row", "all", "ring"}
    sent, received, messages : array (p,)
    serial : float
        Bytes that move one after the other: for an all-to-all the most that a rank sends or receives; where ranks
        wait for each other stage by stage, the sum over the stages.
    """

    phase: Phase
    kind: Kind
    scope: Scope
    sent: FloatArray
    received: FloatArray
    messages: FloatArray
    serial: float

    @property
    def both_ways(self) -> float:
        """The most bytes that a rank sends and receives."""
        return float((self.sent + self.received).max())

    @property
    def recorded(self) -> str:
        """Name of the phase under which a `spsample.comm.Recorder` counts it."""
        return f"{self.phase} requests" if self.kind == "request" else self.phase

    def scaled(self, factor: float) -> ExchangeCost:
        """Repeat the exchange `factor` times."""
        sent, received, messages = factor * self.sent, factor * self.received, factor * self.messages
        return replace(self, sent=sent, received=received, messages=messages, serial=factor * self.serial)


def remote(shape: GridShape, needed: FloatArray) -> FloatArray:
    """Needs of ranks of the block rows that they do not hold.

    Examples
    --------
    >>> remote(GridShape(4, 2), np.array([[1, 2], [3, 4], [5, 6], [7, 8]])).tolist()
    [[0.0, 2.0], [0.0, 4.0], [5.0, 0.0], [7.0, 0.0]]
    """
    others = np.array(needed, np.float64)
    others[np.arange(shape.ranks), shape.rows] = 0.0
    return others


def asked(shape: GridShape, needed: FloatArray) -> FloatArray:
    """(p,): what each rank needs of other ranks.

    Examples
    --------
    >>> asked(GridShape(4, 2), np.array([[1, 2], [3, 4], [5, 6], [7, 8]])).tolist()
    [2.0, 4.0, 5.0, 7.0]
    """
    sums: FloatArray = remote(shape, needed).sum(axis=1)
    return sums


def answered(shape: GridShape, needed: FloatArray) -> FloatArray:
    """(p,): what other ranks of its column group need of each rank.

    Examples
    --------
    >>> answered(GridShape(4, 2), np.array([[1, 2], [3, 4], [5, 6], [7, 8]])).tolist()
    [5.0, 7.0, 2.0, 4.0]
    """
    blocks, c = shape.num_blocks, shape.replication
    by_column = remote(shape, needed).reshape(blocks, c, blocks).sum(axis=0)
    answers: FloatArray = by_column.T.reshape(shape.ranks)
    return answers


def request(phase: Phase, shape: GridShape, needed: FloatArray) -> ExchangeCost:
    """Bytes `needed[r, i]` from rank r to the owner of block row i in its column group."""
    sent, received = asked(shape, needed), answered(shape, needed)
    return _all_to_all(phase, "request", sent, received, asked(shape, np.sign(needed)))


def reply(phase: Phase, shape: GridShape, needed: FloatArray) -> ExchangeCost:
    """The other way: bytes `needed[r, i]` from the owner of block row i to rank r."""
    sent, received = answered(shape, needed), asked(shape, needed)
    return _all_to_all(phase, "reply", sent, received, answered(shape, np.sign(needed)))


def _all_to_all(phase: Phase, kind: Kind, sent: FloatArray, received: FloatArray, messages: FloatArray) -> ExchangeCost:
    return ExchangeCost(phase, kind, "column", sent, received, messages, _most(sent, received))


def stages_request(phase: Phase, shape: GridShape, needed: FloatArray) -> ExchangeCost:
    """Bytes `needed[i, k]` from row group i to the owner of block row k, stage by stage (algorithm 2)."""
    asks, answers, messages, serial = _in_stages(shape, needed)
    return ExchangeCost(phase, "request", "column", asks, answers, messages[0], serial)


def stages_reply(phase: Phase, shape: GridShape, needed: FloatArray) -> ExchangeCost:
    """The other way; in each stage all wait for the one rank of their column that sends."""
    asks, answers, messages, serial = _in_stages(shape, needed)
    return ExchangeCost(phase, "reply", "column", answers, asks, messages[1], serial)


def _in_stages(shape: GridShape, needed: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray], float]:
    """By rank what it asks for and is asked for, messages either way, and the bytes of the longest column's stages."""
    others = np.array(needed, np.float64)
    np.fill_diagonal(others, 0.0)
    asks, answers = _by_rank(shape, others)
    messages = list(_by_rank(shape, (others > 0).astype(np.float64)))
    return asks, answers, messages, _longest(shape, others.sum(axis=0))


def _by_rank(shape: GridShape, others: FloatArray) -> tuple[FloatArray, FloatArray]:
    columns, blocks = shape.stage_columns, shape.num_blocks
    asks = np.zeros((blocks, shape.replication))
    answers = np.zeros_like(asks)
    np.add.at(asks.T, columns, others.T)
    answers[np.arange(blocks), columns] = others.sum(axis=0)
    return asks.reshape(-1), answers.reshape(-1)


def _longest(shape: GridShape, stage: FloatArray) -> float:
    """Sum over the stages of the column that has most to move; `stage[k]` is that of block row k."""
    return float(np.bincount(shape.stage_columns, stage, shape.replication).max())


def broadcasts(phase: Phase, shape: GridShape, block_bytes: FloatArray) -> ExchangeCost:
    """Every block row to all ranks of the column that it has its stage in (the sparsity-oblivious variant)."""
    needed = np.tile(block_bytes, (shape.num_blocks, 1))
    asks, answers, messages, _ = _in_stages(shape, needed)
    serial = tree_sends(shape.num_blocks) * _longest(shape, block_bytes)
    return ExchangeCost(phase, "reply", "column", answers, asks, messages[1], serial)


def tree_sends(ranks: int) -> int:
    """Return how often an array passes a link, one time after the other, in a binomial tree that takes it to all ranks.

    The root of a tree of d levels sends to d ranks at once, so the first of them has it after d times the time of one,
    and is then the root of d - 1 levels (gloo; MPI libraries cut large arrays in pieces, and are faster).

    Examples
    --------
    >>> [tree_sends(n) for n in (1, 2, 4, 5, 16)]
    [0, 1, 3, 6, 10]
    """
    levels = (ranks - 1).bit_length()
    return levels * (levels + 1) // 2


def row_gather(shape: GridShape, own: FloatArray) -> ExchangeCost:
    """Bytes `own[r]` of rank r to all other ranks of its row group."""
    c = shape.replication
    received = np.repeat(own.reshape(-1, c).sum(axis=1), c) - own
    sent = own * (c - 1)
    messages = np.where(own > 0, c - 1.0, 0.0)
    return ExchangeCost("reduction", "reduction", "row", sent, received, messages, _most(sent, received))


def ring_reduction(phase: Phase, shape: GridShape, num_bytes: float) -> ExchangeCost:
    """All-reduce of `num_bytes` bytes over all ranks: 2 (p - 1) / p of them each way, in 2 (p - 1) messages.

    Examples
    --------
    >>> ring_reduction("gradients", GridShape(4), 100).sent.tolist()
    [150.0, 150.0, 150.0, 150.0]
    """
    steps = 2.0 * (shape.ranks - 1)
    moved = np.full(shape.ranks, steps * num_bytes / shape.ranks)
    return ExchangeCost(phase, "reduction", "ring", moved, moved, np.full(shape.ranks, steps), float(moved[0]))


def header(shape: GridShape, exchanges: int = 1) -> ExchangeCost:
    """Headers of `exchanges` exchanges: counts and the status, to every other rank of the column group."""
    return _words("status", "reply", "column", shape, (shape.num_blocks - 1.0) * exchanges, HEADER_WORDS)


def stages_header(shape: GridShape, exchanges: int) -> ExchangeCost:
    """Headers of `exchanges` exchanges in stages: counts and the status, to every other rank."""
    return _words("status", "reply", "all", shape, (shape.ranks - 1.0) * exchanges, HEADER_WORDS)


def all_gather(phase: Phase, shape: GridShape, words: int) -> ExchangeCost:
    """A number of words from every rank to every other."""
    return _words(phase, "reply", "all", shape, shape.ranks - 1.0, words)


def _words(phase: Phase, kind: Kind, scope: Scope, shape: GridShape, messages: float, words: int) -> ExchangeCost:
    moved = np.full(shape.ranks, messages * words * WORD_BYTES)
    return ExchangeCost(phase, kind, scope, moved, moved, np.full(shape.ranks, messages), float(moved[0]))


def _most(sent: FloatArray, received: FloatArray) -> float:
    return float(max(sent.max(), received.max()))
