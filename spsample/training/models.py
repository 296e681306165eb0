"""Models that aggregate with the values of the sampled adjacency.

Every model is *encoder, graph convolutions, decoder*: the first and the last act on one vertex at a time,
each convolution is a pointwise ``message``, a linear aggregation by a `Block` and a pointwise ``combine``. The same
pieces therefore run on sampled minibatches and, layer by layer, on the full graph (`full_logits`).

What is GraphSAGE's and what is LADIES' or FastGCN's lies in the block's values, not in the model: the mean
over the sampled entries for the first, the sampler's unbiased values of the row-normalised graph for the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from spsample.errors import InputError
from spsample.store.validation import require_int
from spsample.training.blocks import Block

__all__ = ["GNN", "MODELS", "Convolution", "GraphConv", "ModelConfig", "ResidualConv", "build_model"]


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a model.

    Attributes
    ----------
    architecture
        ``"sage"``: plain stack, ``relu(W_self h_v + W_neigh (A h)_v + b)``; ``"residual"``: layer norm, a
        two-layer perceptron on the same two terms and a skip connection, after Platonov et al., "A critical
        look at the evaluation of GNNs under heterophily" (2023).
    hidden
        Width of the hidden layers.
    dropout
        Probability of a dropped unit.

    Raises
    ------
    InputError
        If there is no such architecture, or a number is out of range.
    """

    architecture: str = "sage"
    hidden: int = 128
    dropout: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what no model can have."""
        if self.architecture not in MODELS:
            raise InputError(
                argument="architecture",
                given=repr(self.architecture),
                expected="one of " + ", ".join(sorted(MODELS)),
            )
        require_int("hidden", self.hidden, minimum=1)
        if not 0 <= self.dropout < 1:
            raise InputError(argument="dropout", given=str(self.dropout), expected="a probability in [0, 1)")


class Convolution(nn.Module):
    """A pointwise ``message``, the aggregation by a block, and a pointwise ``combine``."""

    def message(self, h: Tensor) -> Tensor:
        """Pointwise on the sources, before the aggregation."""
        raise NotImplementedError

    def combine(self, aggregated: Tensor, h_dst: Tensor) -> Tensor:
        """Pointwise on the targets, after the aggregation."""
        raise NotImplementedError

    def forward(self, h: Tensor, block: Block) -> Tensor:
        """Return the targets' next features; the targets come first among the sources ``h``."""
        return self.combine(block.aggregate(self.message(h)), h[: block.num_dst])


class GraphConv(Convolution):
    """``W_self h_v + W_neigh (A h)_v + b``.

    ``W_neigh`` and ``A`` commute, so it is applied to the sources first where that makes them narrower.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.root = nn.Linear(in_dim, out_dim)
        self.neighbours = nn.Linear(in_dim, out_dim, bias=False)
        self.narrows = out_dim < in_dim

    def message(self, h: Tensor) -> Tensor:
        """See `Convolution`."""
        result: Tensor = self.neighbours(h) if self.narrows else h
        return result

    def combine(self, aggregated: Tensor, h_dst: Tensor) -> Tensor:
        """See `Convolution`."""
        neighbours = aggregated if self.narrows else self.neighbours(aggregated)
        result: Tensor = self.root(h_dst) + neighbours
        return result


class PlainConv(GraphConv):
    """A `GraphConv` with dropout on its input and, unless it is the last one, a ReLU on its output."""

    def __init__(self, in_dim: int, out_dim: int, dropout: float, *, last: bool) -> None:
        super().__init__(in_dim, out_dim)
        self.dropout = nn.Dropout(dropout)
        self.activation: nn.Module = nn.Identity() if last else nn.ReLU()

    def message(self, h: Tensor) -> Tensor:
        """See `Convolution`."""
        return super().message(self.dropout(h))

    def combine(self, aggregated: Tensor, h_dst: Tensor) -> Tensor:
        """See `Convolution`."""
        result: Tensor = self.activation(super().combine(aggregated, self.dropout(h_dst)))
        return result


class ResidualConv(Convolution):
    """``h_v + MLP(norm(h)_v, (A norm(h))_v)``: for graphs whose neighbours often differ in class."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = GraphConv(dim, dim)
        self.mlp = nn.Sequential(nn.Dropout(dropout), nn.GELU(), nn.Linear(dim, dim), nn.Dropout(dropout))

    def message(self, h: Tensor) -> Tensor:
        """See `Convolution`."""
        return self.conv.message(self.norm(h))

    def combine(self, aggregated: Tensor, h_dst: Tensor) -> Tensor:
        """See `Convolution`."""
        update: Tensor = self.mlp(self.conv.combine(aggregated, self.norm(h_dst)))
        return h_dst + update


class GNN(nn.Module):
    """Encoder, one convolution per sampled layer, decoder.

    Parameters
    ----------
    encoder, decoder
        Pointwise modules.
    convs
        Layer 1 (farthest from the seeds) first, as ``minibatch.layers``.
    """

    def __init__(self, encoder: nn.Module, convs: Sequence[Convolution], decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.convs = nn.ModuleList(convs)
        self.decoder = decoder

    def forward(self, x: Tensor, blocks: Sequence[Block]) -> Tensor:
        """Return the logits of the seeds.

        Parameters
        ----------
        x
            float32 features of ``minibatch.src_nodes``.
        blocks
            One per layer, in the order of ``minibatch.layers``; each layer's targets come first among its
            sources (``include_targets=True``).
        """
        h: Tensor = self.encoder(x)
        for conv, block in zip(self.convs, blocks, strict=True):
            h = conv(h, block)
        logits: Tensor = self.decoder(h)
        return logits


def _plain(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    dims = [in_dim, *[config.hidden] * (num_layers - 1), out_dim]
    convs = [PlainConv(dims[i], dims[i + 1], config.dropout, last=i == num_layers - 1) for i in range(num_layers)]
    return GNN(nn.Identity(), convs, nn.Identity())


def _residual(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    hidden = config.hidden
    encoder = nn.Sequential(nn.Linear(in_dim, hidden), nn.Dropout(config.dropout), nn.GELU())
    convs = [ResidualConv(hidden, config.dropout) for _ in range(num_layers)]
    decoder = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, out_dim))
    return GNN(encoder, convs, decoder)


MODELS: dict[str, Callable[[int, int, int, ModelConfig], GNN]] = {
    "sage": _plain,
    "residual": _residual,
}


def build_model(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    """Return a freshly initialised model (torch's global generator decides its weights).

    Examples
    --------
    >>> model = build_model(8, 3, 2, ModelConfig(hidden=16))
    >>> sum(p.numel() for p in model.parameters())
    371
    """
    return MODELS[config.architecture](in_dim, out_dim, num_layers, config)
