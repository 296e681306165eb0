"""Grids of ranks, the bytes of their exchanges by rank, and a network's seconds for these (the alpha-beta model)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.comm.headers import HEADER_WORDS
from spsample.common.checks import require_int, require_number, require_type, short
from spsample.distributed.blocks import hub_row_bytes, hub_threshold
from spsample.distributed.grid import require_divisor
from spsample.distributed.stages.fetch_plan import stage_columns
from spsample.errors import InputError
from spsample.store import Graph

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class GridShape:
    """p ranks as p/c rows of c columns; rank r is P(r // c, r mod c), as in `ProcessGrid`, which needs a communicator.

    Parameters
    ----------
    ranks : int
        p.
    replication : int
        c, a divisor of p.

    Raises
    ------
    InputError
        If c does not divide p.

    Examples
    --------
    >>> shape = GridShape(8, 2)
    >>> shape.num_blocks, shape.rows.tolist(), shape.batches(10).tolist()
    (4, [0, 0, 1, 1, 2, 2, 3, 3], [2, 2, 1, 1, 1, 1, 1, 1])
    """

    ranks: int
    replication: int = 1

    def __post_init__(self) -> None:
        p = require_int("ranks", self.ranks, minimum=1)
        require_divisor(self.replication, p)

    @property
    def num_blocks(self) -> int:
        """p/c, the number of block rows."""
        return self.ranks // self.replication

    @property
    def rows(self) -> Int64Array:
        """i of each rank P(i, j)."""
        return np.arange(self.ranks) // self.replication

    def batches(self, bulk_size: int) -> Int64Array:
        """Batches of each rank in a bulk: rank r gets those at the positions that are r modulo p."""
        return (bulk_size - np.arange(self.ranks) + self.ranks - 1) // self.ranks

    def group_batches(self, bulk_size: int) -> Int64Array:
        """Batches of each row group."""
        sums: Int64Array = self.batches(bulk_size).reshape(self.num_blocks, self.replication).sum(axis=1)
        return sums

    @property
    def stage_columns(self) -> Int64Array:
        """For each block row, the column of the grid in whose stages it takes part.

        Column j has the p/c^2 block rows from j p/c^2 on where c^2 divides p; else block row k goes to column k mod c.

        Examples
        --------
        >>> GridShape(8, 2).stage_columns.tolist(), GridShape(6, 2).stage_columns.tolist()
        ([0, 0, 1, 1], [0, 1, 0])
        """
        return stage_columns(self.num_blocks, self.replication)

    def __str__(self) -> str:
        return f"{self.num_blocks} x {self.replication}"


def grouped(shape: GridShape, by_rank: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p/c, ...): sums over the ranks of each row group, or another reduction, from (p, ...).

    Examples
    --------
    >>> grouped(GridShape(4, 2), np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [3.0, 7.0]
    """
    by_group = by_rank.reshape(shape.num_blocks, shape.replication, *by_rank.shape[1:])
    reduced: FloatArray = op.reduce(by_group, axis=1)
    return reduced


def in_columns(shape: GridShape, by_group: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p,): of rank (i, j) what row group i has in the block rows of column j, from (p/c, p/c).

    Examples
    --------
    >>> in_columns(GridShape(4, 2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    sums = np.zeros((shape.replication, shape.num_blocks))
    op.at(sums, shape.stage_columns, by_group.T)
    return sums.T.reshape(shape.ranks)


class BlockRows:
    """Contiguous block rows of A, and hub rows, which every rank holds.

    Parameters
    ----------
    starts : int64 array (p/c + 1,)
        Block row i has the rows from starts[i] to starts[i + 1].
    hubs : int64 array, optional
        Vertices, ascending.

    Examples
    --------
    >>> BlockRows(np.array([0, 2, 5]), hubs=np.array([3])).owners(np.array([1, 2, 3])).tolist()
    [0, 1, -1]
    """

    def __init__(self, starts: Int64Array, hubs: Int64Array | None = None) -> None:
        self.starts = np.asarray(starts, np.int64)
        self.hubs = np.zeros(0, np.int64) if hubs is None else np.asarray(hubs, np.int64)
        self.num_blocks = len(self.starts) - 1

    def owners(self, vertices: Int64Array) -> Int64Array:
        """Block row of each vertex; -1 for hubs."""
        owners = np.searchsorted(self.starts, vertices, side="right") - 1
        if len(self.hubs):
            at = np.minimum(np.searchsorted(self.hubs, vertices), len(self.hubs) - 1)
            owners[self.hubs[at] == vertices] = -1
        return owners


def hub_rows(graph: Graph, budget: int, entry_bytes: int) -> Int64Array:
    """The vertices that are sources of the most edges and whose rows fit in the budget, ascending.

    They are chosen as a partitioned graph chooses those that it replicates. `entry_bytes` is that of the graph planned
    for, which may differ from `graph`.
    """
    if budget == 0:
        return np.zeros(0, np.int64)
    times = np.bincount(graph.indices, minlength=graph.num_nodes)
    costs = hub_row_bytes(np.diff(graph.indptr), entry_bytes)
    hubs: Int64Array = np.flatnonzero(times >= hub_threshold(times, costs, budget))
    return hubs


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
    messages = asked(shape, np.sign(needed))
    return ExchangeCost(phase, "request", "column", sent, received, messages, _most(sent, received))


def reply(phase: Phase, shape: GridShape, needed: FloatArray) -> ExchangeCost:
    """The other way: bytes `needed[r, i]` from the owner of block row i to rank r."""
    sent, received = answered(shape, needed), asked(shape, needed)
    messages = answered(shape, np.sign(needed))
    return ExchangeCost(phase, "reply", "column", sent, received, messages, _most(sent, received))


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
    answers = np.zeros((shape.num_blocks, shape.replication))
    answers[np.arange(shape.num_blocks), shape.stage_columns] = others.sum(axis=0)
    return in_columns(shape, others), answers.reshape(-1)


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


_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {f"{prefix}B/s": 10.0**power for prefix, power in (("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12))}
_RATES |= {f"{prefix}bit/s": 10.0**power / 8 for prefix, power in (("k", 3), ("M", 6), ("G", 9), ("T", 12))}
_NUMBER = r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z/]+)\s*"


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes `alpha` + n / `beta` seconds."""

    alpha: float
    beta: float

    def seconds(self, messages: float, num_bytes: float) -> float:
        """Time of messages, one after the other, with `num_bytes` bytes in all.

        Examples
        --------
        >>> Link(alpha=2e-6, beta=25e9).seconds(3, 25e9)
        1.000006
        """
        return self.alpha * messages + num_bytes / self.beta


@dataclass(frozen=True)
class Network:
    """The links of a cluster.

    Attributes
    ----------
    name : str
    inside : Link
        From a rank to the others of its node.
    between : Link
        From one adapter of a node to other nodes.
    adapters : int
        Network adapters of a node, which its ranks share.
    ranks_per_node : int
        Where the user does not say how many.
    duplex : float
        What is left of the bandwidth each way where all ranks send and receive: 1; 0.5 where a link carries one of the
        two at a time; less where the ranks share what carries them.
    """

    name: str
    inside: Link
    between: Link
    adapters: int
    ranks_per_node: int
    duplex: float = 1.0

    def to_other_nodes(self, ranks_per_node: int) -> Link:
        """The link of one rank to other nodes: an adapter, or its share where ranks are more than adapters."""
        share = min(1.0, self.adapters / ranks_per_node)
        return Link(self.between.alpha, self.between.beta * share)

    def seconds(self, exchange: ExchangeCost, shape: GridShape, ranks_per_node: int) -> float:
        """Time of one exchange: of the rank that has most, by the share of its peers that are on its own node.

        Examples
        --------
        >>> from spsample.planning.cluster.exchanges import ring_reduction
        >>> shape = GridShape(8)
        >>> NETWORKS["perlmutter"].seconds(ring_reduction("gradients", shape, 8e6), shape, ranks_per_node=4)
        0.000672
        """
        share = share_inside(exchange.scope, shape, ranks_per_node)
        messages, away = float(exchange.messages.max()), self.to_other_nodes(ranks_per_node)
        serial = max(exchange.serial, exchange.both_ways / (2 * self.duplex))
        inside = self.inside.seconds(share * messages, share * serial)
        return inside + away.seconds((1 - share) * messages, (1 - share) * serial)


PERLMUTTER = Network("perlmutter", Link(2e-6, 100e9), Link(8e-6, 25e9), adapters=4, ranks_per_node=4)
ETHERNET = Network("ethernet", Link(1e-6, 10e9), Link(30e-6, 25e9 / 8), adapters=1, ranks_per_node=1)
SHARED_MEMORY = Network("shared-memory", Link(1e-6, 5e9), Link(30e-6, 125e6), adapters=1, ranks_per_node=2**31)
NETWORKS = {network.name: network for network in (PERLMUTTER, ETHERNET, SHARED_MEMORY)}
"""Perlmutter-like: four GPUs on NVLink 3 and four Slingshot-11 adapters a node. Ethernet: 25 Gbit/s a node. Shared
memory: one machine."""


def share_inside(scope: Scope, shape: GridShape, ranks_per_node: int) -> float:
    """The share of a rank's peers that are on its own node; ranks are numbered node by node.

    Examples
    --------
    >>> shape = GridShape(16, 2)
    >>> [round(share_inside(scope, shape, 4), 3) for scope in ("column", "row", "all", "ring")]
    [0.143, 1.0, 0.2, 0.0]
    """
    p, c, node = shape.ranks, shape.replication, min(ranks_per_node, shape.ranks)
    if scope == "ring":  # it waits for the slowest link
        return float(node >= p)
    inside = {"column": -(-node // c) - 1, "row": min(node, c) - 1, "all": node - 1}[scope]
    peers = peers_of(scope, shape)
    return inside / peers if peers else 1.0


def peers_of(scope: Scope, shape: GridShape) -> int:
    """Return the number of ranks that a rank sends to in one exchange.

    Examples
    --------
    >>> [peers_of(scope, GridShape(16, 2)) for scope in ("column", "row", "all", "ring")]
    [7, 1, 15, 1]
    """
    return {
        "column": shape.num_blocks - 1,
        "row": shape.replication - 1,
        "all": shape.ranks - 1,
        "ring": min(shape.ranks - 1, 1),
    }[scope]


def network_named(name: str, alpha: str | None = None, bandwidth: str | None = None, duplex: float = 1.0) -> Network:
    """The network of that name, with another latency and bandwidth between nodes where they are given.

    Parameters
    ----------
    name : str
        One of `NETWORKS`.
    alpha : str, optional
        Seconds per message, as "2us".
    bandwidth : str, optional
        Bytes or bits per second of an adapter, as "25GB/s" or "100Gbit/s".
    duplex : float
        Share of the bandwidth that is left each way where all ranks send and receive.

    Raises
    ------
    InputError
        If there is no such network, or an amount is not understood.

    Examples
    --------
    >>> network_named("ethernet", bandwidth="100Gbit/s").between
    Link(alpha=3e-05, beta=12500000000.0)
    """
    require_type("network", name, str, "a name")
    if name not in NETWORKS:
        raise InputError(argument="network", given=repr(name), expected="one of " + ", ".join(NETWORKS))
    duplex = require_number("duplex", duplex, lambda share: 0 < share <= 1, "a share above 0 and up to 1")
    network = replace(NETWORKS[name], duplex=duplex)
    if alpha is None and bandwidth is None:
        return network
    link = Link(
        network.between.alpha if alpha is None else parse_seconds("alpha", alpha),
        network.between.beta if bandwidth is None else parse_bandwidth("bandwidth", bandwidth),
    )
    inside = link if name == SHARED_MEMORY.name else network.inside
    return replace(network, name=f"{name}, custom", inside=inside, between=link)


def parse_seconds(argument: str, text: str) -> float:
    """Seconds, from "2us".

    Examples
    --------
    >>> parse_seconds("alpha", "1.5 ms")
    0.0015
    """
    return _parse(argument, text, _TIMES, "a time, as 2us or 0.03ms")


def parse_bandwidth(argument: str, text: str) -> float:
    """Bytes per second, from "25GB/s" or "200Gbit/s"; prefixes are powers of ten.

    Examples
    --------
    >>> parse_bandwidth("bandwidth", "25Gbit/s")
    3125000000.0
    """
    return _parse(argument, text, _RATES, "bytes or bits per second, as 25GB/s or 200Gbit/s")


def _parse(argument: str, text: str, units: dict[str, float], expected: str) -> float:
    require_type(argument, text, str, expected)
    match = re.fullmatch(_NUMBER, text)
    amount = 0.0 if match is None else float(match[1]) * units.get(match[2], 0.0)
    if amount == 0 or math.isinf(amount):
        raise InputError(argument=argument, given=short(text), expected=expected)
    return amount


def require_ranks_per_node(network: Network, ranks_per_node: int | None) -> int:
    """`ranks_per_node`, or what is usual in the network."""
    return (
        network.ranks_per_node if ranks_per_node is None else require_int("ranks_per_node", ranks_per_node, minimum=1)
    )
