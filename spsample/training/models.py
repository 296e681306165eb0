"""Models by name: stacks of convolutions, with or without residual connections and layer norm.

Every model is a `GNN`: *encoder, convolutions, decoder*; the first and the last act on one vertex at a time, each
convolution takes the features of a block's sources to those of its targets. The same pieces therefore run on sampled
minibatches and, layer by layer, on the whole graph (`full_logits`).

A model of one's own is a function under `register_model`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from torch import Tensor, nn

from spsample.common.checks import require_int, require_type
from spsample.errors import InputError
from spsample.nn.block_convolutions import BlockGATConv, BlockGCNConv, BlockSAGEConv
from spsample.nn.blocks import Block
from spsample.nn.dropout import RectifiedDropout, Rowwise, VertexDropout
from spsample.settings.training import ARCHITECTURES, ModelConfig


class GNN(nn.Module):
    """Encoder, one convolution per sampled layer, decoder.

    Parameters
    ----------
    encoder, decoder
        Pointwise modules.
    convs
        Modules with ``forward(h, block)``, layer 1 (farthest from the seeds) first, as ``minibatch.layers``.
    """

    def __init__(self, encoder: nn.Module, convs: Sequence[nn.Module], decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.convs = nn.ModuleList(convs)
        self.decoder = decoder
        for site, module in enumerate(module for module in self.modules() if isinstance(module, VertexDropout)):
            module.site = site

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
        h: Tensor = self.encoder(x, blocks[0].owned_rows) if isinstance(self.encoder, Rowwise) else self.encoder(x)
        for conv, block in zip(self.convs, blocks, strict=True):
            h = conv(block.sources(h), block)
        logits: Tensor = self.decoder(h)
        return logits


Architecture: TypeAlias = Callable[[int, int, int, ModelConfig], GNN]
_MODELS: dict[str, Architecture] = {}


def register_model(name: str) -> Callable[[Architecture], Architecture]:
    """Make a model known by a name, for `ModelConfig.architecture` and ``spsample train --model``.

    Decorates a function of the number of features, of classes and of layers, and a `ModelConfig`, that returns a
    `GNN`; `stack` makes one of any convolution.

    Raises
    ------
    InputError
        If the name is taken.

    Examples
    --------
    >>> from torch import nn
    >>> class SumConv(nn.Module):
    ...     def __init__(self, in_dim, out_dim):
    ...         super().__init__()
    ...         self.linear = nn.Linear(in_dim, out_dim)
    ...
    ...     def forward(self, h, block):
    ...         return self.linear(h[: block.num_dst] + block.aggregate(h))
    >>> @register_model("sum")
    ... def sum_model(in_dim, out_dim, num_layers, config):
    ...     return stack(SumConv, in_dim, out_dim, num_layers, config)
    >>> model = build_model(8, 3, 2, ModelConfig("sum", hidden=16))
    """
    require_type("name", name, str, "a name that no model has yet")
    if name in _MODELS:
        raise InputError(argument="name", given=repr(name), expected="a name that no model has yet")

    def register(make: Architecture) -> Architecture:
        _MODELS[name] = make
        ARCHITECTURES.add(name)
        return make

    return register


def model_names() -> list[str]:
    """Return the names of all models.

    Examples
    --------
    >>> {"gat", "gcn", "residual", "sage"} <= set(model_names())
    True
    """
    return sorted(_MODELS)


def build_model(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    """Return a freshly initialised model (torch's global generator decides its weights).

    Examples
    --------
    >>> model = build_model(8, 3, 2, ModelConfig(hidden=16))
    >>> sum(p.numel() for p in model.parameters())
    371
    """
    require_type("config", config, ModelConfig, "a ModelConfig")
    for name, size in (("in_dim", in_dim), ("out_dim", out_dim), ("num_layers", num_layers)):
        require_int(name, size, minimum=1)
    return _MODELS[config.architecture](in_dim, out_dim, num_layers, config)


def stack(
    make_conv: Callable[[int, int], nn.Module], in_dim: int, out_dim: int, num_layers: int, config: ModelConfig
) -> GNN:
    """Return convolutions one upon the other, with what ``config`` asks for between them.

    Parameters
    ----------
    make_conv
        From the numbers of features before and after to a module with ``forward(h, block)``.
    in_dim, out_dim
        Numbers of features and of classes.
    num_layers
        Number of convolutions.
    config
        Width, dropout, residual connections and layer norm.
    """
    if config.residual:
        return _residual_stack(make_conv, in_dim, out_dim, num_layers, config)
    dims = [in_dim, *[config.hidden] * (num_layers - 1), out_dim]
    after = [*(_activation(config) for _ in range(num_layers - 1)), Rowwise()]
    convs = [_PlainLayer(make_conv(dims[i], dims[i + 1]), last) for i, last in enumerate(after)]
    return GNN(Rowwise(VertexDropout(config.dropout)), convs, nn.Identity())


class _PlainLayer(nn.Module):
    """Convolution, then what acts on one row at a time."""

    def __init__(self, conv: nn.Module, after: Rowwise) -> None:
        super().__init__()
        self.conv = conv
        self.after = after

    def forward(self, h: Tensor, block: Block) -> Tensor:
        result: Tensor = self.after(self.conv(h, block), block.target_rows)
        return result


class _ResidualLayer(nn.Module):
    """``h_v + MLP(conv(norm(h))_v)``."""

    def __init__(self, conv: nn.Module, norm: nn.Module, dim: int, dropout: float) -> None:
        super().__init__()
        self.norm = norm
        self.conv = conv
        self.mlp = Rowwise(VertexDropout(dropout), nn.GELU(), nn.Linear(dim, dim), VertexDropout(dropout))

    def forward(self, h: Tensor, block: Block) -> Tensor:
        result: Tensor = h[: block.num_dst] + self.mlp(self.conv(self.norm(h), block), block.target_rows)
        return result


def _norm(dim: int, config: ModelConfig) -> nn.Module:
    return nn.LayerNorm(dim) if config.layer_norm else nn.Identity()


def _activation(config: ModelConfig) -> Rowwise:
    """Return the module between two convolutions: norm, ReLU, dropout."""
    return Rowwise(_norm(config.hidden, config), RectifiedDropout(config.dropout))


def _residual_stack(
    make_conv: Callable[[int, int], nn.Module], in_dim: int, out_dim: int, num_layers: int, config: ModelConfig
) -> GNN:
    hidden = config.hidden
    encoder = Rowwise(nn.Linear(in_dim, hidden), VertexDropout(config.dropout), nn.GELU())
    convs = [
        _ResidualLayer(make_conv(hidden, hidden), _norm(hidden, config), hidden, config.dropout)
        for _ in range(num_layers)
    ]
    return GNN(encoder, convs, nn.Sequential(_norm(hidden, config), nn.Linear(hidden, out_dim)))


def _precomputed(make: Architecture, in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    """One layer more than is sampled: the first one takes features that are aggregated already.

    They are what `spsample.features.aggregate_features` makes: of "mean" for SAGE, where one matrix for (x, A x) is
    ``W_self`` and ``W_neigh``, of "gcn" for GCN.
    """
    if config.residual:
        expected = "False: a residual model aggregates what its encoder has made of the features"
        raise InputError(argument="residual", given="True with a precomputed first layer", expected=expected)
    first = Rowwise(VertexDropout(config.dropout), nn.Linear(in_dim, config.hidden), *_activation(config))
    rest = make(config.hidden, out_dim, num_layers, config)
    return GNN(first, list(rest.convs), rest.decoder)


@register_model("sage")
def _sage(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    return stack(BlockSAGEConv, in_dim, out_dim, num_layers, config)


@register_model("precomputed-sage")
def _precomputed_sage(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    return _precomputed(_sage, in_dim, out_dim, num_layers, config)


@register_model("precomputed-gcn")
def _precomputed_gcn(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    return _precomputed(_gcn, in_dim, out_dim, num_layers, config)


@register_model("residual")
def _residual(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    return _sage(in_dim, out_dim, num_layers, replace(config, residual=True, layer_norm=True))


@register_model("gcn")
def _gcn(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    return stack(BlockGCNConv, in_dim, out_dim, num_layers, config)


@register_model("gat")
def _gat(in_dim: int, out_dim: int, num_layers: int, config: ModelConfig) -> GNN:
    def attention(dim: int, width: int) -> nn.Module:
        return BlockGATConv(dim, width, config.heads if width == config.hidden else 1)  # logits come from one head

    return stack(attention, in_dim, out_dim, num_layers, config)
