"""Graph convolutions on sampled layers.

A convolution is a module with ``forward(h, block)``: the features ``h`` of a block's sources, whose first
``block.num_dst`` rows are the targets, to new features of the targets. What is GraphSAGE's and what is LADIES' or
FastGCN's lies in the block's values, not here: they estimate the mean over a target's neighbours in either case.

Why these are not `spsample.nn.SAGEConv` and its like: PyG's layers take neither the sampler's values as weights of a
mean or of an attention, nor the degrees of the whole graph for a sampled part of it. On whole neighbourhoods they are
equal to PyG's ``SAGEConv``, ``GCNConv`` and ``GATConv``, which the tests hold. A PyG layer runs in a user's own
convolution on ``block.rows`` and ``block.indices`` (docs/training.md).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from spsample.common.checks import require_int
from spsample.errors import InputError
from spsample.nn.blocks import Block
from spsample.nn.products import linear


def _check_dims(in_dim: int, out_dim: int) -> None:
    require_int("in_dim", in_dim, minimum=1)
    require_int("out_dim", out_dim, minimum=1)


class BlockSAGEConv(nn.Module):
    """``W_self h_v + W_neigh (A h)_v + b``, A the mean over the neighbours.

    ``W_neigh`` and ``A`` commute: what comes first is what takes less work on the block (`Block.sums_first`). Where A
    does, both weights are one product.

    Parameters
    ----------
    in_dim, out_dim
        Features of a vertex before and after.

    References
    ----------
    W. Hamilton, R. Ying and J. Leskovec, Inductive representation learning on large graphs, 2017.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        _check_dims(in_dim, out_dim)
        self.root = nn.Linear(in_dim, out_dim)
        self.neighbours = nn.Linear(in_dim, out_dim, bias=False)

    def forward(self, h: Tensor, block: Block) -> Tensor:
        """Return the targets' next features."""
        root, weight = self.root, self.neighbours.weight
        if block.sums_first(self.root.in_features, self.root.out_features):
            return linear(block.with_targets(h), torch.cat([root.weight, weight], 1), root.bias)
        return linear(h[: block.num_dst], root.weight, root.bias) + block.aggregate(linear(h, weight))


class BlockGCNConv(nn.Module):
    """``W D^(-1/2) (A + I) D^(-1/2) h + b``, with D the row sums of A + I in the whole graph.

    The weight of a sampled edge from u to v is ``a_vu d_v / sqrt((d_v + 1) (d_u + 1))``, where ``a_vu`` is the block's
    value, an estimate of the mean, and d are degrees in the whole graph: the sampled sum estimates the whole one, and
    is it where no neighbour is left out. Normalising by the degrees within a sampled block would do neither.

    Parameters
    ----------
    in_dim, out_dim
        Features of a vertex before and after.

    References
    ----------
    T. Kipf and M. Welling, Semi-supervised classification with graph convolutional networks, 2017.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        _check_dims(in_dim, out_dim)
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, h: Tensor, block: Block) -> Tensor:
        """Return the targets' next features."""
        scaled, weight = h * (block.require_degrees() + 1).rsqrt()[:, None], self.linear.weight
        if block.sums_first(self.linear.in_features, self.linear.out_features):
            return linear(self._propagate(scaled, block), weight, self.bias)
        return self._propagate(linear(scaled, weight), block) + self.bias

    @staticmethod
    def _propagate(scaled: Tensor, block: Block) -> Tensor:
        degrees = block.require_degrees()[: block.num_dst, None]
        return (block.aggregate(scaled) * degrees + scaled[: block.num_dst]) * (degrees + 1).rsqrt()


class BlockGATConv(nn.Module):
    """Attention over a target's neighbours and itself, by several heads side by side.

    Sampled neighbours stand for those left out: in the softmax an edge counts ``a_vu d_v`` times, where ``a_vu`` is the
    block's value and d_v the target's degree in the whole graph, so that numerator and denominator estimate those of
    the whole neighbourhood. Where no neighbour is left out of an unweighted graph every count is 1, as in the paper;
    edge weights count too. A value below 0 cannot be a count and is taken for 0 (no sampler of the library gives one).

    Parameters
    ----------
    in_dim, out_dim
        Features of a vertex before and after, ``out_dim`` for all heads together.
    heads
        Number of heads, a divisor of ``out_dim``.

    References
    ----------
    P. Velickovic et al., Graph attention networks, 2018.
    """

    def __init__(self, in_dim: int, out_dim: int, heads: int) -> None:
        super().__init__()
        _check_dims(in_dim, out_dim)
        require_int("heads", heads)
        if heads < 1 or out_dim % heads:
            given = f"{heads} for a width of {out_dim}"
            raise InputError(argument="heads", given=given, expected="a divisor of that width")
        self.heads = heads
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.source = nn.Parameter(torch.empty(heads, out_dim // heads))
        self.target = nn.Parameter(torch.empty(heads, out_dim // heads))
        self.bias = nn.Parameter(torch.zeros(out_dim))
        for weight in (self.linear.weight, self.source, self.target):
            nn.init.xavier_uniform_(weight)

    def forward(self, h: Tensor, block: Block) -> Tensor:
        """Return the targets' next features."""
        from torch_geometric.utils import softmax

        z = self.linear(h).unflatten(1, (self.heads, -1))  # of 0 rows, too
        targets = torch.arange(block.num_dst, device=h.device)
        rows, sources = torch.cat([block.rows, targets]), torch.cat([block.indices, targets])
        # index_select: its gradient is added up in one order, whatever the number of threads
        towards = (z[: block.num_dst] * self.target).sum(-1).index_select(0, rows)
        logits = (z * self.source).sum(-1).index_select(0, sources) + towards
        counts = torch.cat([block.values * block.require_degrees()[block.rows], h.new_ones(block.num_dst)])
        logits = functional.leaky_relu(logits, 0.2) + counts.clamp(min=0).log()[:, None]
        attention = softmax(logits, rows, num_nodes=block.num_dst)
        out = z.new_zeros(block.num_dst, *z.shape[1:]).index_add(
            0, rows, z.index_select(0, sources) * attention[:, :, None]
        )
        result: Tensor = out.flatten(1) + self.bias
        return result
