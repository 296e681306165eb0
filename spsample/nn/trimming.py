"""Layers on sampled batches: they compute the rows that later layers read, and no others."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Iterable
from contextlib import nullcontext
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spsample.errors import InputError
from spsample.nn.blocks import Block
from spsample.nn.private import is_untransformed, outside_of_transforms
from spsample.sampling.hops import Hops

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

    def pair(self, x: Any) -> tuple[Tensor, Tensor | None]:
        """Rows of the sources, and of the targets."""
        source, target = x if isinstance(x, (tuple, list)) else (x, x)
        if target is not None and len(target) < self.num_dst:
            expected = f"rows of all {self.num_dst} targets, or None"
            raise InputError(argument="x", given=f"{len(target)} rows of targets", expected=expected)
        return source, None if target is None else target[: self.num_dst]

    def arguments(
        self, forward: Callable[..., Any], arguments: Iterable[Any], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a layer's ``forward``, of the rows and edges that are needed."""
        names = names_of(forward)
        options = {name: self._argument(name, value) for name, value in options.items()}
        named = zip(chain(names, repeat("")), arguments, strict=False)
        placed = tuple(self._argument(name, value) for name, value in named)
        if "size" in names[len(placed) :]:  # PyG makes a row for each source where the targets have none
            options["size"] = self.num_src, self.num_dst
        return placed, options

    def _argument(self, name: str, value: Any) -> Any:
        """Return an argument with the entries of the edges that are needed, where it has one per edge of the batch."""
        if name == "x":
            return self.pair(value)
        if name == "edge_index":
            return self.edge_index[:, : self.num_edges]
        if name == "size":
            return self.num_src, self.num_dst
        is_per_edge = isinstance(value, Tensor) and value.ndim and len(value) == self.edge_index.shape[1]
        return value[: self.num_edges] if is_per_edge else value

    def weights(self, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """A number per edge of the batch: 1 where there are no weights."""
        count = self.edge_index.shape[1]
        if weight is None:
            return torch.ones(count, dtype=dtype, device=self.edge_index.device)
        if weight.numel() != count:
            expected = f"one for each of the batch's {count} edges"
            raise InputError(argument="edge_weight", given=f"{weight.numel()} numbers", expected=expected)
        return weight.view(-1).to(dtype)

    def block(self, values: Tensor, has_own_loops: bool = False) -> Block:
        """The entries of `matrix` as an operator, of a value per entry of the whole batch."""
        with outside_of_transforms() if is_untransformed(values) else nullcontext():
            pointers, sources = self.matrix(has_own_loops)
            return Block(pointers, sources, values[: len(sources)], self.num_src)

    def matrix(self, has_own_loops: bool) -> tuple[Tensor, Tensor]:
        """Pointers and columns of the targets' rows: the edges, or those `with_loops`."""
        if not has_own_loops:
            return self.pointers()[: self.num_dst + 1], self.edge_index[0, : self.num_edges]
        own = torch.arange(self.hops.nodes[-1], device=self.edge_index.device)
        sources: Tensor = self.once("loop sources", lambda: self.with_loops(self.edge_index[0], own))
        pointers = self.pointers(has_own_loops)[: self.num_dst + 1]
        return pointers, sources[: int(pointers[-1])]

    def pointers(self, has_own_loops: bool = False) -> Tensor:
        """Return the first edges of the vertices, or entries in results of `with_loops`, and the end of the last's."""

        def made() -> Tensor:
            (sources, targets), num_nodes = self.edge_index, self.hops.nodes[-1]
            counted = targets[sources != targets] if has_own_loops else targets
            pointers = torch.zeros(num_nodes + 1, dtype=torch.int64, device=targets.device)
            torch.cumsum(torch.bincount(counted, minlength=num_nodes), 0, out=pointers[1:])
            return pointers + torch.arange(num_nodes + 1, device=targets.device) if has_own_loops else pointers

        pointers: Tensor = self.once(("pointers", has_own_loops), made)
        return pointers

    def with_loops(self, of_edges: Tensor, of_loops: Tensor) -> Tensor:
        """Return the values of edges between two vertices, and, as the last of each vertex, that of its own loop."""
        is_between = self.edge_index[0] != self.edge_index[1]
        targets = self.edge_index[1, is_between]
        places = targets + torch.arange(len(targets), device=targets.device)
        both = of_edges.new_empty(len(targets) + len(of_loops))
        both = both.index_put((self.pointers(has_own_loops=True)[1:] - 1,), of_loops)
        return both.index_put((places,), of_edges[is_between])

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the result of the first call of `make`, on untransformed tensors, for `key` of this batch."""
        with torch.inference_mode(False), outside_of_transforms():  # it may be saved for a gradient later
            return self.hops.once(key, make) if is_untransformed(torch.empty(0, device="cpu")) else make()

    def of_weights(self, key: Hashable, weight: Tensor | None, make: Callable[[], Tensor]) -> Tensor:
        """Return the result of `make` on edge weights; without weights it is called once in a batch.

        With weights each time: they may ask for a gradient, and torch does not count every way to change them.
        """
        if weight is None:
            values: Tensor = self.once(key, make)
            return values
        with nullcontext() if weight.requires_grad or not is_untransformed(weight) else outside_of_transforms():
            return make()

    def shares(self, dtype: torch.dtype) -> Tensor:
        """The weight of each edge of the batch in the mean over those of its target."""
        counts = self.pointers().diff()
        return torch.repeat_interleave(1 / counts.clamp(min=1).to(dtype), counts, output_size=self.edge_index.shape[1])


@cache
def names_of(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the arguments of a layer's ``forward`` that have a place."""
    parameters = [*inspect.signature(forward).parameters.values()][1:]
    return tuple(param.name for param in parameters if param.kind is param.POSITIONAL_OR_KEYWORD)


def trimmed(layer: Any, x: Any, edge_index: Any) -> Trimmed | None:
    """Return the part of its input that a layer has to compute, by the hop that its number of rows is of; None: all.

    Where two hops have as many vertices it is the farthest of them. A batch of one seed is not trimmed: its one row
    would add to any number of others.

    Raises
    ------
    InputError
        If the input has the rows of no hop, or no hop is left: a model has at most as many layers as the batch hops.
    """
    hops, source = getattr(edge_index, "hops", _ABSENT), x[0] if isinstance(x, (tuple, list)) else x
    if hops is _ABSENT or not (isinstance(source, Tensor) and _has_rows_first(layer, source)):
        return None
    if not (isinstance(hops, Hops) and hops.is_of(edge_index)):
        warnings.warn(
            "edge_index was changed, copied or pickled since it was sampled: layers compute all rows from here on",
            stacklevel=3,
        )
        return None
    num_rows = len(source)
    if hops.nodes[0] == 1 and num_rows == hops.nodes[-1]:
        return Trimmed(hops, edge_index, num_rows, num_rows, hops.edges[-1])
    hop = _hop_of(hops, num_rows)
    return Trimmed(hops, edge_index, num_rows, hops.nodes[hop - 1], hops.edges[hop])


def _has_rows_first(layer: Any, source: Tensor) -> bool:
    """Return whether a layer of PyG goes from sources to targets in one step, on a row for each vertex."""
    is_usual = layer.flow == "source_to_target" and layer.decomposed_layers == 1 and not layer.explain
    return is_usual and source.ndim > 0 and layer.node_dim % source.ndim == 0


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
    """Counts of the calls of a layer that computed the rows that are needed, and of those that computed all."""

    def __init__(self) -> None:
        self.fast = self.slow = 0

    def count(self, is_fast: bool) -> None:
        """Count a call."""
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
    counts = {name: getattr(module, "trimmed_calls", None) for name, module in model.named_modules()}
    return {name: (count.fast, count.slow) for name, count in counts.items() if isinstance(count, Calls)}
