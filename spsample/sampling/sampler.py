"""`Sampler`: the five-line program that every sampler is."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from inspect import signature
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from spsample.common.checks import require_choice, require_int, require_iterable, require_type
from spsample.errors import DTypeError, InputError
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sparse import Draw, ExtractOptions, GraphOperand, RowSelector, StackedLayer
from spsample.sparse.operand import Weighting

Kind = Literal["node-wise", "layer-wise"]
"""Each vertex of a frontier draws neighbours of its own; or each batch draws vertices for its whole frontier."""

Aggregation = Literal["mean", "values"]
Layout = Literal["blocks", "subgraph"]

DrawLaw = Literal["row", "entry", "column", "graph"]
"""The laws of docs/law.md; "graph" is the column law on one distribution of the whole graph for all batches."""


class Proportion(NamedTuple):
    """The proportion a vertex is drawn in: entries of A to the `power`, summed by column, to the `column_power`.

    `rows` are those whose entries are summed: "each" row of the frontier draws for itself, or the batch draws for the
    whole "frontier", or from the whole "graph". With `power` 0 each entry counts 1.
    """

    rows: Literal["each", "frontier", "graph"]
    power: int
    column_power: int = 1


MAX_LAYERS = 255
MAX_SIZE = 2**29


class Sampler(ABC):
    """A sampling algorithm: one `layer` step, repeated from the seeds outwards (algorithm 1 of the paper).

    A new sampler states `layer` in the words of `spsample.sparse`; bulks, threads, ranks and backends are not its
    concern. What training and plans of memory and exchanges have to know of it, it states by the attributes below and
    by `draw_law`; nobody asks for its class. A sampler never changes: attributes are set once, by `__init__`. Two
    samplers are equal where their types, sizes and `options()` are, so one with options of its own adds them there.

    Parameters
    ----------
    sizes : sequence of int
        s of each layer, nearest to the seeds first.
    replace : bool
        Draw with replacement.
    include_targets : bool
        Put each layer's dst vertices first among its src vertices, which self connections need.

    Attributes
    ----------
    kind : {"node-wise", "layer-wise"}
        "node-wise": each vertex of the frontier draws up to s of its entries, whose values are the edges' own weights.
        "layer-wise": each batch draws s vertices for its whole frontier and keeps the edges between the two, with
        values of its own. Unless stated, a sampler whose aggregation is "values" is layer-wise, any other node-wise.
    aggregation : {"mean", "values"}
        How a model reads a layer, stated by the class. "mean", of node-wise samplers: the mean over the entries of a
        row, weighted by `adj.data` where there are weights. "values", of layer-wise samplers: the sum of
        `adj.data` times what comes in, which estimates the mean where the graph is row-normalised.
    layout : {"blocks", "subgraph"}
        "blocks": each layer's arrays are its own. "subgraph": layer 1 holds the edges of all hops, and the other layers
        are parts of it.
    power : {1, 2}
        a, where a layer-wise sampler draws vertex v in proportion to the sum of A_iv^a over rows i, those of the
        frontier or of the whole graph: 2 if its `layer` takes `square(A)` or `column_norms`, 1 if it takes A. Only
        plans read it; what is drawn follows from `layer`.

    Examples
    --------
    >>> import spsample
    >>> sampler = spsample.GraphSAGE([15, 10], replace=True)
    >>> sampler, sampler == spsample.GraphSAGE((15, 10)), sampler.sizes
    (GraphSAGE([15, 10], replace=True), False, (15, 10))
    >>> sampler.kind, sampler.aggregation, sampler.layout
    ('node-wise', 'mean', 'blocks')
    >>> spsample.LADIES([8]).kind, spsample.LADIES([8]).aggregation
    ('layer-wise', 'values')
    """

    aggregation: ClassVar[Aggregation] = "mean"
    layout: Layout = "blocks"
    power: ClassVar[Literal[1, 2]] = 2

    def __init__(self, sizes: Sequence[int], *, replace: bool = False, include_targets: bool = True) -> None:
        self.sizes = require_sizes("sizes", sizes, whole_rows=True)
        self.replace = require_bool("replace", replace)
        self.include_targets = require_bool("include_targets", include_targets)
        require_choice(f"{type(self).__name__}.kind", self.kind, get_args(Kind))

    @property
    def kind(self) -> Kind:
        """Way to draw: "node-wise", each vertex of a frontier for itself; "layer-wise", the batch for all of them."""
        return "layer-wise" if self.aggregation == "values" else "node-wise"

    def draw_law(self, weighting: Weighting) -> DrawLaw:
        """Return which law draws from a graph of that weighting: it decides what a draw takes and exchanges.

        Unless a sampler states another one: "row" where it is node-wise; where it is layer-wise the law of sums over
        the rows of the frontier, which is "entry" where the entries of a row weigh the same and "column" otherwise.

        Examples
        --------
        >>> import spsample as sp
        >>> [sampler.draw_law("unweighted") for sampler in (sp.GraphSAGE([8]), sp.LADIES([8]), sp.FastGCN([8]))]
        ['row', 'entry', 'graph']
        >>> sp.LADIES([8]).draw_law("weighted"), sp.LADIES([8], law="squared_count").draw_law("unweighted")
        ('column', 'column')
        """
        if self.kind == "node-wise":
            return "row"
        return "column" if weighting == "weighted" else "entry"

    def proportion(self, weighting: Weighting) -> Proportion | None:
        """Return what a vertex is drawn in proportion to from a graph of that weighting; None where it is not known.

        A sampler that states it has the score `inclusion`, which is computed without sampling.

        Examples
        --------
        >>> import spsample as sp
        >>> sp.GraphSAGE([8]).proportion("weighted"), sp.LADIES([8]).proportion("weighted")
        (Proportion(rows='each', power=1, column_power=1), Proportion(rows='frontier', power=2, column_power=1))
        """
        return None

    @abstractmethod
    def layer(self, A: GraphOperand, Q: RowSelector, draw: Draw, options: ExtractOptions) -> StackedLayer:
        """P = NORM(Q A); Q' = SAMPLE(P, s); A^l = EXTRACT(A, Q, Q')."""

    def run(self, A: GraphOperand, Q: RowSelector, key: tuple[int, int], edge_ids: bool) -> list[BulkLayer]:
        """A^1 .. A^L of all batches of Q, layer 1 first."""
        options = ExtractOptions(self.include_targets, edge_ids)
        layers: list[BulkLayer] = []
        for hop, s in enumerate(self.sizes):
            layer = self.layer(A, Q, Draw(key, hop, s, self.replace), options)
            if type(layer) is not StackedLayer:
                name = f"{type(self).__name__}.layer"
                require_type(name, layer, StackedLayer, "a StackedLayer, as extract returns")
            Q = layer.next_selector()
            layers.append(BulkLayer.from_stacked(layer))  # what it leaves out is not kept for the next hop
            del layer
        return layers[::-1]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise AttributeError(f"a sampler never changes: make a new {type(self).__name__} with another {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a sampler never changes: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Sampler):
            return NotImplemented
        return self.sizes == other.sizes and self.options() == other.options()

    def __hash__(self) -> int:
        return hash((type(self), self.sizes, tuple(self.options().items())))

    def __repr__(self) -> str:
        parameters = signature(type(self)).parameters
        changed = {n: v for n, v in self.options().items() if n not in parameters or parameters[n].default != v}
        arguments = [str(list(self.sizes)), *(f"{name}={value!r}" for name, value in changed.items())]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def with_sizes(self, sizes: Sequence[int]) -> Sampler:
        """Return the sampler with other sizes and the same options.

        Raises
        ------
        InputError, DTypeError
            If the sizes cannot be used.

        Examples
        --------
        >>> import spsample
        >>> spsample.GraphSAGE([15, 10], replace=True).with_sizes([5])
        GraphSAGE([5], replace=True)
        """
        each = list(require_iterable("sizes", sizes, "a number for each layer"))
        return type(self)(each, **self.options())

    def options(self) -> dict[str, Any]:
        """Keyword options that make the same sampler again."""
        return {"replace": self.replace, "include_targets": self.include_targets}


def require_sizes(argument: str, sizes: Any, *, whole_rows: bool) -> tuple[int, ...]:
    """`sizes` as a tuple of ints >= 1 (or -1 where `whole_rows`), at most 255 of them.

    Examples
    --------
    >>> require_sizes("fanouts", [15, -1], whole_rows=True)
    (15, -1)
    """
    if isinstance(sizes, (str, bytes)) or not isinstance(sizes, (Sequence, np.ndarray)):
        raise DTypeError(
            argument=argument,
            given=reprlib.repr(sizes),
            expected="a list of integers, one per layer, such as [15, 10, 5]",
        )
    if isinstance(sizes, np.ndarray) and sizes.ndim != 1:
        raise InputError(argument=argument, given=f"shape {sizes.shape}", expected="a one-dimensional array")
    if not 1 <= len(sizes) <= MAX_LAYERS:
        raise InputError(
            argument=argument, given=f"{len(sizes)} layers", expected=f"1 to {MAX_LAYERS}, one integer each"
        )
    checked = tuple(
        require_int(f"{argument}[{i}]", size, minimum=-1 if whole_rows else 1, maximum=MAX_SIZE)
        for i, size in enumerate(sizes)
    )
    if 0 in checked:
        raise InputError(
            argument=f"{argument}[{checked.index(0)}]", given="0", expected="an integer >= 1, or -1 for all neighbours"
        )
    return checked


def require_bool(argument: str, value: bool) -> bool:
    """`value` as a bool; anything else is refused."""
    if not isinstance(value, (bool, np.bool_)):
        raise DTypeError(argument=argument, given=reprlib.repr(value), expected="True or False")
    return bool(value)
