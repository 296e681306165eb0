"""GraphSAGE: node-wise sampling."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from spsample.common.checks import require_choice
from spsample.errors import DTypeError, InputError
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.sampler import Layout, Proportion, Sampler, require_sizes
from spsample.sampling.subgraph import run_subgraph
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    RowSelector,
    StackedLayer,
    extract,
    its_sample,
    normalize_rows,
    pattern,
)
from spsample.sparse.operand import Weighting


class GraphSAGE(Sampler):
    """Each vertex of the frontier draws up to s of its in-neighbours.

    Parameters
    ----------
    fanouts : sequence of int
        s of each layer, nearest to the seeds first, as in PyG (DGL lists them the other way round); -1 takes all
        neighbours.
    replace : bool
        With replacement: exactly s entries from each non-empty row, repeats kept.
    weighted : bool or None
        Draw in proportion to the edge weights; None does so where the graph has weights. False draws uniformly; the
        weights are still in `adj.data`.
    layout : {"blocks", "subgraph"}
        "blocks": every layer draws its whole frontier anew (as DGL). "subgraph": each vertex is drawn once, at the hop
        that found it, and a layer's matrix is the union of the hops it uses (as PyG's NeighborLoader).
    include_targets : bool
        Put each layer's dst vertices first among its src vertices.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    References
    ----------
    Hamilton, Ying, Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017; as matrices: Tripathy,
    Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 4.1.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> bulk = spsample.bulk_sample(graph, [0, 2], spsample.GraphSAGE([2, 1]), batch_size=2)
    >>> bulk[0].layers[-1].adj.shape
    (2, 3)
    """

    def __init__(
        self,
        fanouts: Sequence[int],
        *,
        replace: bool = False,
        weighted: bool | None = None,
        layout: Layout = "blocks",
        include_targets: bool = True,
    ) -> None:
        super().__init__(
            require_sizes("fanouts", fanouts, whole_rows=True), replace=replace, include_targets=include_targets
        )
        if not (weighted is None or isinstance(weighted, (bool, np.bool_))):
            raise DTypeError(
                argument="weighted", given=reprlib.repr(weighted), expected="True, False or None (follow the graph)"
            )
        require_choice("layout", layout, ("blocks", "subgraph"))
        if layout == "subgraph" and not include_targets:
            raise InputError(
                argument="include_targets",
                given="False",
                expected="True with layout='subgraph', whose vertex list starts with the seeds",
            )
        self.weighted = None if weighted is None else bool(weighted)
        self.layout: Layout = layout

    def product(self, A: GraphOperand, Q: RowSelector) -> Any:
        """Q A, lazily, with A's weights or without."""
        _require_weights(self.weighted, A.weighting)
        return Q @ (pattern(A) if self.weighted is False else A)

    def proportion(self, weighting: Weighting) -> Proportion:
        """Each row by its own entries, or uniformly: on a graph without weights entries of a row weigh the same."""
        _require_weights(self.weighted, weighting)
        return Proportion("each", power=0 if self.weighted is False or weighting != "weighted" else 1)

    def layer(self, A: GraphOperand, Q: RowSelector, draw: Draw, options: ExtractOptions) -> StackedLayer:
        """P = NORM(Q A); Q' = SAMPLE(P, s); A^l = EXTRACT(A, Q, Q')."""
        P = normalize_rows(self.product(A, Q))
        S = its_sample(P, draw, edge_ids=options.edge_ids)
        return extract(S, options)

    def run(self, A: GraphOperand, Q: RowSelector, key: tuple[int, int], edge_ids: bool) -> list[BulkLayer]:
        """A^1 .. A^L of all batches of Q, layer 1 first, in the layout asked for."""
        if self.layout == "subgraph":
            return run_subgraph(self, A, Q, key, edge_ids)
        return super().run(A, Q, key, edge_ids)

    def options(self) -> dict[str, Any]:
        """Keyword options that make the same sampler again."""
        return {**super().options(), "weighted": self.weighted, "layout": self.layout}


def _require_weights(weighted: bool | None, weighting: Weighting) -> None:
    """Refuse to draw by weights where there are none."""
    if weighted and weighting == "unweighted":
        raise InputError(
            argument="weighted",
            given="True on a graph without weights",
            expected="a graph built with edge_weight, or weighted=None",
        )
