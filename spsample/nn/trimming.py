"""What a layer computes of a sampled batch: the rows that later layers read, and no others."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spsample.errors import InputError
from spsample.nn.attention import Entries
from spsample.nn.blocks import Block
from spsample.sampling.hops import Hops

__all__ = ["Calls", "Trimmed", "calls", "rows", "trimmed"]

_ABSENT = object()


def rows(h: Tensor, like: Tensor) -> Tensor:
    """The first rows of ``h``, as many as ``like`` has: what a layer left, of what was put into it.

    A layer of `spsample.nn` returns the rows that later layers read, which are the first ones. A residual connection,
    or a concatenation of layers, needs the same rows of both.

    Examples
    --------
    >>> before, after = torch.arange(8.0).view(4, 2), torch.ones(2, 2)
    >>> rows(before, after) + after
    tensor([[1., 2.],
            [3., 4.]])

    Raises
    ------
    InputError
        If ``like`` has more rows.
    """
    if len(like) > len(h):
        raise InputError(argument="like", given=f"{len(like)} rows", expected=f"at most those of h: {len(h)}")
    return h[: len(like)]


class Trimmed(NamedTuple):
    """The part of a batch that a layer reads: its input has the rows of some hop, its result those of the hop before.

    Attributes
    ----------
    hops : Hops
    edge_index : Tensor
        Of the whole batch.
    num_src, num_dst, num_edges : int
        Rows of the input and of the result; the first edges, whose targets are the result's rows.
    """

    hops: Hops
    edge_index: Tensor
    num_src: int
    num_dst: int
    num_edges: int

    def edges(self) -> Tensor:
        """The edges to the targets."""
        return self.edge_index[:, : self.num_edges]

    def of_edges(self, attribute: Any) -> Any:
        """Cut what has an entry per edge of the batch to those of `edges`; anything else stays as it is."""
        is_per_edge = isinstance(attribute, Tensor) and attribute.ndim and len(attribute) == self.edge_index.shape[1]
        return attribute[: self.num_edges] if is_per_edge else attribute

    def pair(self, x: Any) -> tuple[Tensor, Tensor | None]:
        """Rows of the sources, and of the targets."""
        source, target = x if isinstance(x, (tuple, list)) else (x, x)
        return source, None if target is None else target[: self.num_dst]

    def block(self, values: Tensor) -> Block:
        """The edges as an operator, of a value per edge."""
        return Block(
            self.pointers()[: self.num_dst + 1],
            self.edge_index[0, : self.num_edges],
            values[: self.num_edges],
            self.num_src,
        )

    def pointers(self) -> Tensor:
        """Where the edges of each vertex of the batch begin, and where the last one's end."""
        pointers: Tensor = self.hops.once("pointers", lambda: _pointers(self.edge_index[1], self.hops.nodes[-1]))
        return pointers

    def entries(self, has_own_loops: bool) -> Entries:
        """The edges as a sparse matrix, as they are or with one loop of each target in place of those that it has."""
        key = "entries", has_own_loops, self.num_dst, self.num_src
        entries: Entries = self.hops.once(key, lambda: self._entries(has_own_loops))
        return entries

    def _entries(self, has_own_loops: bool) -> Entries:
        pointers, sources = self.pointers(), self.edge_index[0]
        if has_own_loops:
            make = lambda: _with_own_loops(self.edge_index, self.hops.nodes[-1])  # noqa: E731
            pointers, sources = self.hops.once("loops", make)
        pointers = pointers[: self.num_dst + 1]
        return Entries(pointers, sources[: int(pointers[-1])], self.num_src)

    def counts(self) -> Tensor:
        """Edges of each vertex of the batch."""
        return self.pointers().diff()

    def by_edge(self, of_targets: Tensor) -> Tensor:
        """A value per vertex of the batch at each of its edges."""
        return torch.repeat_interleave(of_targets, self.counts(), output_size=self.edge_index.shape[1])


def _pointers(targets: Tensor, num_nodes: int) -> Tensor:
    pointers = torch.zeros(num_nodes + 1, dtype=torch.int64, device=targets.device)
    torch.cumsum(torch.bincount(targets, minlength=num_nodes), 0, out=pointers[1:])
    return pointers


def _with_own_loops(edge_index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Pointers and sources of the edges between two vertices, and, as the last of each vertex, its own loop."""
    sources, targets = edge_index[:, edge_index[0] != edge_index[1]]
    own = torch.arange(num_nodes + 1, device=sources.device)
    pointers = _pointers(targets, num_nodes) + own
    both = own.new_empty(len(sources) + num_nodes)
    both[pointers[1:] - 1] = own[:-1]
    both[torch.arange(len(sources), device=sources.device) + targets] = sources
    return pointers, both


def trimmed(x: Any, edge_index: Any) -> Trimmed | None:
    """What a layer has to compute of its input, which says by its number of rows at which hop it is; None: all of it.

    Where two hops have as many vertices it is the farthest of them. A batch of one seed is not trimmed: its one row
    would add to any number of others.

    Raises
    ------
    InputError
        If the input has the rows of no hop, or no hop is left: a model has at most as many layers as the batch hops.
    """
    hops = getattr(edge_index, "hops", _ABSENT)
    if hops is _ABSENT:
        return None
    if not (isinstance(hops, Hops) and hops.is_of(edge_index)):
        warnings.warn(
            "edge_index was changed, copied or pickled since it was sampled: layers compute all rows from here on",
            stacklevel=3,
        )
        return None
    num_rows = len(x[0] if isinstance(x, (tuple, list)) else x)
    if hops.nodes[0] == 1 and num_rows == hops.nodes[-1]:
        return Trimmed(hops, edge_index, num_rows, num_rows, hops.edges[-1])
    hop = _hop_of(hops, num_rows)
    return Trimmed(hops, edge_index, num_rows, hops.nodes[hop - 1], hops.edges[hop])


def _hop_of(hops: Hops, num_rows: int) -> int:
    """The farthest hop with that many vertices, 1 or more."""
    if num_rows not in hops.nodes:
        raise InputError(
            argument="x",
            given=f"{num_rows} rows",
            expected=f"as many as the batch has vertices within some hop: {hops.nodes}",
            hint="A layer keeps the rows that later layers read. What is added or joined to its result needs the same "
            "rows: spsample.nn.rows(h, like).",
        )
    hop = len(hops.nodes) - 1 - hops.nodes[::-1].index(num_rows)
    if hop == 0:
        raise InputError(
            argument="x",
            given="the seeds' rows alone: the layers before this one have used up all hops",
            expected=f"at most {len(hops.nodes) - 1} layers, the hops of the batch",
            hint="Sample more hops, or make the loader with trim=False: then layers compute all rows.",
        )
    return hop


class Calls:
    """How often a layer computed the rows that are needed, and how often all of them."""

    def __init__(self) -> None:
        self.fast = self.slow = 0

    def count(self, is_fast: bool) -> None:
        """Count one."""
        self.fast, self.slow = self.fast + is_fast, self.slow + (not is_fast)


def calls(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return, by layer of a model, how many calls left out rows and how many computed all of them.

    Examples
    --------
    >>> from spsample.nn import SAGEConv
    >>> conv = SAGEConv(2, 3)
    >>> conv(torch.ones(2, 2), torch.tensor([[0], [1]])).shape  # not edges of one of spsample's loaders
    torch.Size([2, 3])
    >>> calls(conv)
    {'': (0, 1)}
    """
    found = {name: getattr(module, "trimmed_calls", None) for name, module in model.named_modules()}
    return {name: (one.fast, one.slow) for name, one in found.items() if isinstance(one, Calls)}
