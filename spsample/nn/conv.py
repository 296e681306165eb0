"""PyG's layers by their names, fast on sampled batches: each is PyG's, with another way through `forward`.

Arguments, defaults, parameters and ``state_dict`` are PyG's, and so is the result at the seeds of a batch. What a layer
does not do here, PyG's own does, on the rows that are needed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.typing import OptPairTensor, OptTensor, PairTensor

from spsample.errors import InputError
from spsample.nn.functional import dropout
from spsample.nn.products import linear
from spsample.nn.sums import AttentionEntries, attention_weights, sum_by_head
from spsample.nn.trimming import Calls, Trimmed, trimmed

_METHODS = "message", "message_and_aggregate", "aggregate", "update", "edge_update"
_SUMS = "sum", "add", "mean"
_HALVES = torch.bfloat16, torch.float16


class _OnSampledBatches(pyg.MessagePassing):  # type: ignore[misc]  # torch_geometric has no types
    """The common part of the layers; goes before PyG's class.

    Parameters
    ----------
    arguments, options
        Those of PyG's layer.
    trim
        False: compute all rows, as PyG's layer does.
    """

    # PyG writes these anew for each class, and explains by those that it finds: by default those it wrote for its own.
    propagate, edge_updater = pyg.MessagePassing.propagate, pyg.MessagePassing.edge_updater

    def __init__(self, *arguments: Any, trim: bool = True, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.trim, self.trimmed_calls = trim, Calls()

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``.

        Raises
        ------
        InputError
        """
        given, expected = f"torch.jit.script of {type(self).__name__}", "a model of PyG's own layers"
        raise InputError(argument="model", given=given, expected=expected, hint="torch.compile takes these layers.")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Any, edge_index: Any, *arguments: Any, **options: Any) -> Any:
        """Return the rows of PyG's layer; of a batch of spsample's loaders those that later layers read.

        ``torch.compile`` leaves it as it is: batches differ in their counts, of which a graph would be made for each.
        """
        is_plain = _is_plain(type(self)) and not self._has_hooks() and _is_summed_in_full(x)
        part = trimmed(self, x, edge_index) if self.trim and self._can_trim(is_plain) else None
        self.trimmed_calls.count(part is not None)
        if part is None:
            return super().forward(x, edge_index, *arguments, **options)
        return (self._on if is_plain else self._by_pyg)(part, x, *arguments, **options)

    def _can_trim(self, is_plain: bool) -> bool:
        """Return whether rows can be left out; `is_plain`: by a way of our own, not by PyG's with a pair."""
        return True

    def _has_hooks(self) -> bool:
        """Return whether there are PyG's hooks, as of messages; torch's are called around `forward`."""
        return any(hooks for name, hooks in vars(self).items() if name.endswith("_hooks") and "_forward_" in name[1:])

    def _by_pyg(self, part: Trimmed, x: Any, *arguments: Any, **options: Any) -> Any:
        """PyG's own layer, of the rows and edges that are needed."""
        inputs = x, part.edge_index, *arguments
        inputs, options = part.arguments(super().forward.__func__, inputs, options)
        return super().forward(*inputs, **options)

    def _on(self, part: Trimmed, x: Any, *arguments: Any, **options: Any) -> Any:
        """The layer's result on a part of a batch."""
        return self._by_pyg(part, x, *arguments, **options)


def _is_plain(layer: type[pyg.MessagePassing]) -> bool:
    """Return whether a class has PyG's own messages, and not a user's."""
    base = next(base for base in layer.__mro__ if base.__module__.startswith("torch_geometric.nn.conv"))
    propagate = layer.propagate  # PyG writes one for each class, in a module of this name
    is_pygs = propagate is pyg.MessagePassing.propagate or propagate.__module__.endswith("_propagate")
    return is_pygs and all(getattr(layer, name) is getattr(base, name) for name in _METHODS)


class _OfSums(_OnSampledBatches):
    """Layers of weighted sums over the neighbours."""

    def _sum_values(self, part: Trimmed, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """A value per edge of the batch, whose sums over the edges of a vertex are its aggregation by `aggr`."""
        key = "values", self.aggr == "mean", x.dtype

        def made() -> Tensor:
            weights = part.weights(weight, x.dtype)
            return weights * part.shares(x.dtype) if self.aggr == "mean" else weights

        return part.of_weights(key, weight, made)

    def _is_sum(self, x: Any) -> bool:
        return self.aggr in _SUMS and _source(x).ndim == 2 and _source(x).is_floating_point()


class SAGEConv(_OfSums, pyg.SAGEConv):  # type: ignore[misc]
    """`torch_geometric.nn.SAGEConv`, fast on sampled batches.

    Means and sums are one pass over the rows of the sources; other aggregations are PyG's.

    References
    ----------
    W. Hamilton, R. Ying and J. Leskovec, Inductive representation learning on large graphs, 2017.

    Examples
    --------
    >>> from torch_geometric.data import Data
    >>> from spsample.nn import SAGEConv
    >>> from spsample.pyg import NeighborLoader
    >>> data = Data(x=torch.eye(5), edge_index=torch.tensor([[1, 2, 3, 0, 4], [0, 0, 1, 3, 2]]))
    >>> batch = next(iter(NeighborLoader(data, [2, 2], batch_size=2, input_nodes=torch.tensor([0, 3]))))
    >>> one, two = SAGEConv(5, 8), SAGEConv(8, 2)
    >>> h = one(batch.x, batch.edge_index)
    >>> batch.num_nodes, h.shape, two(h, batch.edge_index).shape
    (5, torch.Size([4, 8]), torch.Size([2, 2]))
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def _on(self, part: Trimmed, x: Any, size: Any = None) -> Any:
        if not self._is_sum(x):
            return self._by_pyg(part, x)
        source, target = _in_full(part.pair(x))
        if self.project:
            source = _linear(self.lin, source).relu()
        block = part.block(self._sum_values(part, source))
        has_root = self.root_weight and target is not None
        is_one = isinstance(x, Tensor) and not self.project  # the targets are the first sources
        if has_root and is_one and _is_usual(self.lin_l) and _is_usual(self.lin_r):
            out = linear(
                block.with_targets(source), torch.cat([self.lin_r.weight, self.lin_l.weight], 1), self.lin_l.bias
            )
        else:
            out = _linear(self.lin_l, block.aggregate(source))
            out = out + _linear(self.lin_r, target) if has_root else out
        return torch.nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out


class GraphConv(_OfSums, pyg.GraphConv):  # type: ignore[misc]
    """`torch_geometric.nn.GraphConv`, fast on sampled batches; edge weights may ask for a gradient.

    References
    ----------
    C. Morris et al., Weisfeiler and Leman go neural: higher-order graph neural networks, 2019.
    """

    propagate_type: ClassVar = {"x": OptPairTensor, "edge_weight": OptTensor}

    def _on(self, part: Trimmed, x: Any, edge_weight: Any = None, size: Any = None) -> Any:
        if not self._is_sum(x):
            return self._by_pyg(part, x, edge_weight)
        source, target = _in_full(part.pair(x))
        values = self._sum_values(part, source, edge_weight)
        out = _linear(self.lin_rel, part.block(values).aggregate(source))
        return out if target is None else out + _linear(self.lin_root, target)


class GINConv(_OfSums, pyg.GINConv):  # type: ignore[misc]
    """`torch_geometric.nn.GINConv`, fast on sampled batches.

    References
    ----------
    K. Xu, W. Hu, J. Leskovec and S. Jegelka, How powerful are graph neural networks?, 2019.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def _on(self, part: Trimmed, x: Any, size: Any = None) -> Any:
        if not self._is_sum(x):
            return self._by_pyg(part, x)
        source, target = _in_full(part.pair(x))
        out = part.block(self._sum_values(part, source)).aggregate(source)
        return self.nn(out if target is None else out + (1 + self.eps) * target)


class GCNConv(_OnSampledBatches, pyg.GCNConv):  # type: ignore[misc]
    """`torch_geometric.nn.GCNConv`, fast on sampled batches.

    The normalisation is that of all sampled edges and weights of the batch, as without trimming: it is made once per
    batch. Self loops that the batch lacks are added.

    References
    ----------
    T. Kipf and M. Welling, Semi-supervised classification with graph convolutional networks, 2017.
    """

    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}

    def _can_trim(self, is_plain: bool) -> bool:
        return is_plain and not self.cached and self.aggr in ("add", "sum")

    def _on(self, part: Trimmed, x: Any, edge_weight: Any = None) -> Any:
        (x,) = _in_full((x,))
        key = "gcn", self.normalize, self.improved, self.add_self_loops, x.dtype
        values = part.of_weights(key, edge_weight, lambda: self._values(part, edge_weight, x.dtype))
        block = part.block(values, self.add_self_loops)
        if block.sums_first(x.shape[1], self.out_channels):
            out = _linear(self.lin, block.aggregate(x))
        else:
            out = block.aggregate(*_in_full((_linear(self.lin, x),)))
        return out if self.bias is None else out + self.bias

    def _values(self, part: Trimmed, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """A value per edge of the batch, with loops where these are added."""
        source, target = part.edge_index
        values = part.weights(weight, dtype)
        if not self.normalize:
            return values
        degrees = values.new_zeros(part.hops.nodes[-1])
        if not self.add_self_loops:
            scale = _inverse_root(degrees.index_add(0, target, values))
            return scale[source] * values * scale[target]
        is_loop = source == target
        fill = 2.0 if self.improved and weight is not None else 1.0  # PyG's loops weigh 1 where edges have no weights
        own = torch.full_like(degrees, fill).index_put((target[is_loop],), values[is_loop])
        scale = _inverse_root(own.index_add(0, target, values.masked_fill(is_loop, 0.0)))
        return part.with_loops(scale[source] * values * scale[target], scale * own * scale)


def _inverse_root(degrees: Tensor) -> Tensor:
    """D^(-1/2), and 0 where D is."""
    root = degrees.pow(-0.5)
    return root.masked_fill(root == float("inf"), 0.0)


class _OfAttention(_OnSampledBatches):
    """Layers of sums that are weighted by an attention; features of edges are PyG's to attend to."""

    def _is_attention(self, target: Tensor | None, *others: Any) -> bool:
        is_two = target is not None and target.ndim == 2 and target.is_floating_point()
        return is_two and self.aggr in ("add", "sum") and all(other is None for other in others)

    def _attended(self, part: Trimmed, h: Tensor, target: Tensor, scored: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """The result, of what the attention reads: rows of the sources, of the targets, and a vector."""
        # not kept with the batch: it refers to the edges, and they to what is kept
        entries = AttentionEntries(*part.matrix(self.add_self_loops), part.num_src)
        h, of_source, of_target, vector = _in_full((h, *scored))
        weights = attention_weights(entries, of_source, of_target, vector, self.negative_slope)
        out = sum_by_head(entries, dropout(weights, self.dropout, self.training), h)
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(1)
        if self.res is not None:
            out = out + _linear(self.res, target)
        return out if self.bias is None else out + self.bias


class GATConv(_OfAttention, pyg.GATConv):  # type: ignore[misc]
    """`torch_geometric.nn.GATConv`, fast on sampled batches.

    Dropout of the attention is `spsample.nn.functional.dropout`. Features of edges, and attention weights as a result,
    are PyG's.

    References
    ----------
    P. Velickovic et al., Graph attention networks, 2018.
    """

    propagate_type: ClassVar = {"x": OptPairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar = {"alpha": OptPairTensor, "edge_attr": OptTensor}

    def _on(self, part: Trimmed, x: Any, *others: Any, **options: Any) -> Any:
        source, target = _in_full(part.pair(x))
        of_source, of_target = (self.lin_src, self.lin_dst) if self.lin is None else (self.lin, self.lin)
        if not (
            self._is_attention(target, *others, *options.values()) and _is_usual(of_source) and _is_usual(of_target)
        ):
            return self._by_pyg(part, x, *others, **options)
        scored = (
            linear(source, self._folded(of_source, self.att_src)),
            linear(target, self._folded(of_target, self.att_dst)),
        )
        return self._attended(
            part, linear(source, of_source.weight), target, (*scored, scored[0].new_ones(self.heads, 1))
        )

    def _folded(self, layer: Linear, attention: Tensor) -> Tensor:
        """The layer's weight times the attention's vector: of each head one row."""
        return torch.einsum("hci,hc->hi", layer.weight.view(self.heads, self.out_channels, -1), attention[0])


class GATv2Conv(_OfAttention, pyg.GATv2Conv):  # type: ignore[misc]
    """`torch_geometric.nn.GATv2Conv`, fast on sampled batches, as `GATConv` is.

    References
    ----------
    S. Brody, U. Alon and E. Yahav, How attentive are graph attention networks?, 2022.
    """

    propagate_type: ClassVar = {"x": PairTensor, "alpha": Tensor}
    edge_updater_type: ClassVar = {"x": PairTensor, "edge_attr": OptTensor}

    def _on(self, part: Trimmed, x: Any, *others: Any, **options: Any) -> Any:
        source, target = _in_full(part.pair(x))
        if not self._is_attention(target, *others, *options.values()):
            return self._by_pyg(part, x, *others, **options)
        h = _linear(self.lin_l, source)
        of_target = h[: part.num_dst] if self.share_weights and source is x else _linear(self.lin_r, target)
        return self._attended(part, h, target, (h, of_target, self.att[0]))


def _source(x: Any) -> Tensor:
    source: Tensor = x[0] if isinstance(x, (tuple, list)) else x
    return source


def _in_full(tensors: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """Tensors of half precision as float32: products may be of fewer bits, sums are not."""
    return tuple(x.float() if x is not None and x.dtype in _HALVES else x for x in tensors)


def _is_summed_in_full(x: Any) -> bool:
    """Return whether sums are in float32 or more: a model of half precision itself has them in PyG's way."""
    source = _source(x)
    return source.dtype not in _HALVES or torch.is_autocast_enabled(source.device.type)


def _is_usual(layer: Any) -> bool:
    """Return whether this is PyG's own linear layer, of known size, which its parameters alone define."""
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return type(layer) is Linear and not has_hooks


def _linear(layer: Any, x: Tensor) -> Tensor:
    result: Tensor = linear(x, layer.weight, layer.bias) if _is_usual(layer) else layer(x)
    return result
