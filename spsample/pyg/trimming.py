"""`trim`: PyG's own layers compute, of a sampled batch, the rows that later layers read."""

from __future__ import annotations

import inspect
import typing
import warnings
from typing import Any

import torch
from torch import nn
from torch_geometric.nn import JumpingKnowledge, MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from spsample.common.checks import require_type
from spsample.errors import InputError
from spsample.nn.trimming import Calls, names_of, trimmed

_HANDLE = "_trim_handle"


def trim(model: nn.Module) -> nn.Module:
    """Make the PyG layers of a model leave out the rows of a sampled batch that no later layer reads; return the model.

    ``forward`` stays as it is, and so do results at the seeds. Before each layer that takes a pair of sources and
    targets, a hook cuts ``(x, edge_index)`` to ``((x, x[:n]), edge_index[:, :e])``, and edge weights and attributes
    with the edges. Layers that take no pairs, as ``GCNConv``, are left as they are, with a warning. `untrim`
    takes the hooks away again. Batches are those of `spsample.pyg.NeighborLoader` or ``BulkLoader(...).pyg()``; of
    others all rows are computed.

    The model may use at most as many layers, one after the other, as the batch has hops. What is added to a layer's
    result needs as many rows: ``spsample.nn.rows(h, like)``.

    Raises
    ------
    InputError
        If no layer takes pairs, or the model joins the results of several layers (``jk``).
    DTypeError
        If it is no module.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from torch_geometric.nn import GraphSAGE
    >>> from spsample.pyg import NeighborLoader, trim
    >>> data = Data(x=torch.eye(5), edge_index=torch.tensor([[1, 2, 3, 0, 4], [0, 0, 1, 3, 2]]))
    >>> batch = next(iter(NeighborLoader(data, [2, 2], batch_size=2, input_nodes=torch.tensor([0, 3]))))
    >>> model = GraphSAGE(5, 8, num_layers=2, out_channels=3)
    >>> whole = model(batch.x, batch.edge_index)
    >>> part = trim(model)(batch.x, batch.edge_index)
    >>> whole.shape, part.shape, torch.equal(whole[:2], part)
    (torch.Size([5, 3]), torch.Size([2, 3]), True)
    """
    require_type("model", model, nn.Module, "a torch.nn.Module")
    joining = [layer for layer in model.modules() if isinstance(layer, BasicGNN) and layer.jk_mode]
    if joining or any(isinstance(layer, JumpingKnowledge) for layer in model.modules()):
        expected = "a model whose last layer's result is its own"
        given = "one with jk, which joins the rows of all layers"
        hint = "Without jk a model may join them itself: torch.cat([spsample.nn.rows(h, hs[-1]) for h in hs], dim=-1)."
        raise InputError(argument="model", given=given, expected=expected, hint=hint)
    layers = [layer for layer in model.modules() if isinstance(layer, MessagePassing)]
    fresh = [layer for layer in layers if not hasattr(layer, "trimmed_calls")]
    takers = [layer for layer in fresh if _takes_pairs(layer)]
    others = sorted({type(layer).__name__ for layer in fresh if not _takes_pairs(layer)})
    if not takers and fresh == layers:
        given = f"no layer that takes a pair of sources and targets{': ' + ', '.join(others) if others else ''}"
        hint = "spsample.nn has layers by PyG's names, GCNConv among them, that need no hooks."
        raise InputError(argument="model", given=given, expected="at least one, as SAGEConv", hint=hint)
    for layer in takers:
        layer.trimmed_calls = Calls()
        setattr(layer, _HANDLE, layer.register_forward_pre_hook(_cut, with_kwargs=True))
    if others:
        warnings.warn(f"left as they are, since they take no pairs: {', '.join(others)}", stacklevel=2)
    return model


def untrim(model: nn.Module) -> nn.Module:
    """Take back what `trim` did; return the model.

    Examples
    --------
    >>> from torch_geometric.nn import SAGEConv
    >>> layer = SAGEConv(2, 2)
    >>> len(trim(layer)._forward_pre_hooks), len(untrim(layer)._forward_pre_hooks)
    (1, 0)
    """
    require_type("model", model, nn.Module, "a torch.nn.Module")
    for layer in model.modules():
        handle = vars(layer).pop(_HANDLE, None)
        if handle is not None:
            handle.remove()
            del layer.trimmed_calls
    return model


def _takes_pairs(layer: MessagePassing) -> bool:
    """Return whether x may be a pair by the annotations of the layer's ``forward``."""
    parameters = inspect.signature(type(layer).forward).parameters
    is_usual = layer.flow == "source_to_target" and layer.node_dim in (-2, 0)
    if not is_usual or "x" not in parameters or "pos" in parameters:  # positions would have to be cut, too
        return False
    try:
        hint: Any = typing.get_type_hints(type(layer).forward).get("x")
    except NameError:  # of a name that is imported for type checkers only
        return False
    return any(typing.get_origin(hint_part) is tuple for hint_part in (hint, *typing.get_args(hint)))


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _cut(layer: MessagePassing, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A layer's arguments, of the rows and edges that are needed."""
    named = {**dict(zip(names_of(type(layer).forward), arguments, strict=False)), **options}
    part = trimmed(layer, named.get("x"), named.get("edge_index"))
    layer.trimmed_calls.count(part is not None)
    return None if part is None else part.arguments(type(layer).forward, arguments, options)
