"""A PyG script in five forms, beside PyG's own and DGL's: what a user gets for each line that he changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..case import Case, Plot, Side, Work
from ..gpu import AbsentError
from ..inputs import Inputs
from ..script import counting_slow_calls, layers_of, loader_of, net_of, run


def one_import(inputs: Inputs) -> Work:
    """PyG's layers; the loader is spsample's."""
    import torch
    import torch_geometric.nn

    convs = layers_of(torch_geometric.nn, inputs)
    return run(_loader(inputs), net_of(convs, inputs, torch.nn.functional.dropout))


def one_import_and_trim(inputs: Inputs) -> Work:
    """PyG's layers, of which `spsample.pyg.trim` was called."""
    import torch
    import torch_geometric.nn

    from spsample.pyg import trim

    if inputs["model"] == "gcn":
        raise AbsentError("GCNConv takes no pairs")
    convs = layers_of(torch_geometric.nn, inputs)
    net = trim(net_of(convs, inputs, torch.nn.functional.dropout))
    return counting_slow_calls(run(_loader(inputs), net), net)


def two_imports(inputs: Inputs) -> Work:
    """The layers, too, are spsample's."""
    import torch

    return _with_layers(inputs, torch.nn.functional.dropout)


def two_imports_and_dropout(inputs: Inputs) -> Work:
    """And so is dropout."""
    from spsample.nn import functional

    return _with_layers(inputs, functional.dropout)


def trainer(inputs: Inputs) -> Work:
    """What ``spsample train`` does, with layers that know the degrees of the whole graph."""
    from ..trainer import Epochs

    return Epochs(inputs)


def _with_layers(inputs: Inputs, dropout: Any) -> Work:
    from spsample.nn import GATConv, GCNConv, SAGEConv

    layers = SimpleNamespace(GATConv=GATConv, GCNConv=GCNConv, SAGEConv=SAGEConv)
    net = net_of(layers_of(layers, inputs), inputs, dropout)
    return counting_slow_calls(run(_loader(inputs), net), net)


def _loader(inputs: Inputs) -> Any:
    from spsample.pyg import NeighborLoader

    return loader_of(NeighborLoader, inputs)


CASE = Case(
    about="Steps of a training script as PyG's examples write it: with PyG alone, and with more and more of spsample.",
    claim="Two imports and dropout make a PyG script several times as fast.",
    parameters={
        "graph": ("rmat:19,16",),
        "model": ("sage", "gcn", "gat"),
        "threads": (2,),
        "batches": (32,),
        "batch_size": (1024,),
        "fanouts": ("15,10,5",),
        "dim": (100,),
        "hidden": (128,),
        "dropout": (0.5,),
    },
    quick={"graph": ("rmat:14,16",), "model": ("sage",), "batches": (8,), "batch_size": (256,), "hidden": (64,)},
    sides=(
        Side("one import", one_import),
        Side("one import and trim", one_import_and_trim),
        Side("two imports", two_imports),
        Side("two imports and dropout", two_imports_and_dropout),
        Side("spsample train", trainer, {"bulk_size": 16, "prefetch": 1}),
    ),
    job="scripts",
    baselines=("PyG", "one import"),
    few={"PyG": 6, "DGL": 12, "one import": 8},
    plots=(
        Plot("ms", facet="model", title="ms a step"),
        Plot("step_mib", facet="model", title="peak of a step beyond the data, MiB"),
    ),
)
