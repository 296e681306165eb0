"""Layer-wise samplers, which share the values of A^l: LADIES and FastGCN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from spsample.common.checks import require_choice
from spsample.errors import InputError
from spsample.sampling.sampler import Aggregation, DrawLaw, Proportion, Sampler, require_bool, require_sizes
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    ReferenceWeights,
    RowSelector,
    StackedLayer,
    UnbiasedWeights,
    column_norms,
    extract,
    its_sample,
    normalize_rows,
    square,
)
from spsample.sparse.probability import Weighting

Values = Literal["unbiased", "reference"]


class LayerwiseSampler(Sampler):
    """Base of samplers that draw s vertices for a whole frontier and keep every edge between the two.

    Parameters
    ----------
    layer_sizes : sequence of int
        s of each layer, nearest to the seeds first.
    values : {"unbiased", "reference"}
        "unbiased": `A^l x` estimates `A x` without bias (Des Raj's ordered estimator; edges into targets have weight
        1). "reference": `A_iv / (s p_v)` with rows normalised, as the authors of LADIES compute it; biased.
    replace : bool
        Draw with replacement; repeats are merged into one column of weight `count / (s p_v)`.
    normalize_rows : bool
        Rescale the rows of A^l to sum 1. The draw does not change.
    include_targets : bool
        Put each layer's dst vertices first among its src vertices and keep the edges between them.
    """

    aggregation: ClassVar[Aggregation] = "values"

    def __init__(
        self,
        layer_sizes: Sequence[int],
        *,
        values: Values = "unbiased",
        replace: bool = False,
        normalize_rows: bool = False,
        include_targets: bool = True,
    ) -> None:
        super().__init__(
            require_sizes("layer_sizes", layer_sizes, whole_rows=False),
            replace=replace,
            include_targets=include_targets,
        )
        require_choice("values", values, ("unbiased", "reference"))
        if values == "reference" and replace:
            raise InputError(
                argument="values",
                given="'reference' with replace=True",
                expected="'unbiased' when drawing with replacement",
            )
        self.values: Values = values
        self.normalize_rows = require_bool("normalize_rows", normalize_rows)
        self.weights = ReferenceWeights() if values == "reference" else UnbiasedWeights(self.normalize_rows)

    def options(self) -> dict[str, Any]:
        """Keyword options that make the same sampler again."""
        return {**super().options(), "values": self.values, "normalize_rows": self.normalize_rows}


Law = Literal["norm", "squared_count"]


class LADIES(LayerwiseSampler):
    """Each batch draws s vertices from the aggregated in-neighbourhood of its frontier.

    Parameters
    ----------
    layer_sizes : sequence of int
        s of each layer, nearest to the seeds first.
    law : {"norm", "squared_count"}
        "norm": p_v ~ sum_i A_iv^2 over the frontier (the original, and what its authors' code computes).
        "squared_count": p_v ~ (sum_i A_iv)^2, the e_v^2 of the matrix paper's text.
    values, replace, normalize_rows, include_targets
        See `LayerwiseSampler`.

    References
    ----------
    Zou, Hu, Wang, Jiang, Sun, Gu, "Layer-dependent importance sampling for training deep and large graph convolutional
    networks", NeurIPS 2019; as matrices: Tripathy, Yelick, Buluc, MLSys 2024, section 4.2. Its authors sample the
    row-normalised A + I: `graph.with_self_loops().normalized("row")`.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> bulk = spsample.bulk_sample(graph, [0, 1], spsample.LADIES([2]), batch_size=2)
    >>> bulk[0].layers[0].adj.data.tolist()    # two neighbours in all: both are taken, with weight 1
    [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        layer_sizes: Sequence[int],
        *,
        law: Law = "norm",
        values: Values = "unbiased",
        replace: bool = False,
        normalize_rows: bool = False,
        include_targets: bool = True,
    ) -> None:
        super().__init__(
            layer_sizes,
            values=values,
            replace=replace,
            normalize_rows=normalize_rows,
            include_targets=include_targets,
        )
        require_choice("law", law, ("norm", "squared_count"))
        self.law: Law = law
        self.product = _PRODUCTS[law]

    def draw_law(self, weighting: Weighting) -> DrawLaw:
        """Sums that are squared are drawn from by column; for the others see `Sampler.draw_law`."""
        return "column" if self.law == "squared_count" else super().draw_law(weighting)

    def proportion(self, weighting: Weighting) -> Proportion:
        """Sums of squares over the frontier's rows, or squares of sums."""
        return Proportion("frontier", 2) if self.law == "norm" else Proportion("frontier", 1, 2)

    def layer(self, A: GraphOperand, Q: RowSelector, draw: Draw, options: ExtractOptions) -> StackedLayer:
        """P = NORM(Q (A o A)) or NORM((Q A) o (Q A)); Q' = SAMPLE(P, s); A^l = EXTRACT(A, Q, Q')."""
        P = normalize_rows(self.product(A, Q))
        S = its_sample(P, draw)
        return extract(S, options, self.weights)

    def options(self) -> dict[str, Any]:
        """Keyword options that make the same sampler again."""
        return {**super().options(), "law": self.law}


def norm(A: GraphOperand, Q: RowSelector) -> Any:
    """Q (A o A): the law of LADIES and of its authors' code."""
    return Q.per_batch() @ square(A)


def squared_count(A: GraphOperand, Q: RowSelector) -> Any:
    """(Q A) o (Q A): the law of the matrix paper's text."""
    return square(Q.per_batch() @ A)


_PRODUCTS = {"norm": norm, "squared_count": squared_count}


class FastGCN(LayerwiseSampler):
    """Each layer draws s vertices of the graph with p_v ~ ||A(:, v)||^2, whatever the frontier.

    Parameters
    ----------
    layer_sizes, values, replace, normalize_rows, include_targets
        See `LayerwiseSampler`.

    Notes
    -----
    Prefix sums of the squared norms and a guide table that leads to them are made once per graph and kept: at most
    12 bytes per vertex, 16 from 2**31 vertices on (`Graph.kept_nbytes`).

    References
    ----------
    Chen, Ma, Xiao, "FastGCN: fast learning with graph convolutional networks via importance sampling", ICLR 2018.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> bulk = spsample.bulk_sample(graph, [0, 1], spsample.FastGCN([1, 1]), batch_size=2)
    >>> len(bulk[0].layers)
    2
    """

    def draw_law(self, weighting: Weighting) -> DrawLaw:
        """One distribution of the whole graph, the same for every batch."""
        return "graph"

    def proportion(self, weighting: Weighting) -> Proportion:
        """Squared norms of A's columns."""
        return Proportion("graph", 2)

    def layer(self, A: GraphOperand, Q: RowSelector, draw: Draw, options: ExtractOptions) -> StackedLayer:
        """P = NORM(squared norms of A's columns); Q' = SAMPLE(P, s); A^l = EXTRACT(A, Q, Q')."""
        P = normalize_rows(column_norms(Q, A))
        S = its_sample(P, draw)
        return extract(S, options, self.weights)
