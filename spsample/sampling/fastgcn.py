"""FastGCN: layer-wise sampling from one distribution over the whole graph."""

from __future__ import annotations

from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.sampler import DrawLaw, Proportion
from spsample.sparse import (
    Draw,
    ExtractOptions,
    GraphOperand,
    RowSelector,
    StackedLayer,
    column_norms,
    extract,
    its_sample,
    normalize_rows,
)
from spsample.sparse.operand import Weighting


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
