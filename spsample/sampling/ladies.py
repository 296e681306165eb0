"""LADIES: layer-wise, layer-dependent importance sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from spsample.common.checks import require_choice
from spsample.sampling.layerwise import LayerwiseSampler, Values
from spsample.sampling.sampler import DrawLaw, Proportion
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    RowSelector,
    StackedLayer,
    extract,
    its_sample,
    normalize_rows,
    square,
)
from spsample.sparse.operand import Weighting

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
