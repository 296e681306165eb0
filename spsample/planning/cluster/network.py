"""The network between ranks: latency and bandwidth inside of a node and between nodes (the alpha-beta model)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from spsample.common.checks import require_int, require_number, require_type, short
from spsample.errors import InputError
from spsample.planning.cluster.exchanges import ExchangeCost, Scope
from spsample.planning.cluster.grid_shape import GridShape

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
    per_exchange : float
        Seconds that an exchange takes in any case, beside those of its messages.
    """

    name: str
    inside: Link
    between: Link
    adapters: int
    ranks_per_node: int
    duplex: float = 1.0
    per_exchange: float = 0.0

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
        exchanges = messages / max(peers_of(exchange.scope, shape), 1)
        return self.per_exchange * exchanges + inside + away.seconds((1 - share) * messages, (1 - share) * serial)


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
