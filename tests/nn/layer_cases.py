"""Layers of both libraries on random sampled batches, compared at the seeds: values and all gradients, in float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import spsample.nn as ours
from spsample.pyg import NeighborLoader

DIM, ATTRIBUTES, MOST_HOPS = 4, 3, 3


class Case(NamedTuple):
    """A layer's name and options, what its edges have, and what its targets are."""

    layer: str
    options: dict[str, Any] = {}  # noqa: RUF012
    edges: str = ""
    targets: str = "rows"

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.options.items()]
        words += [self.edges] if self.edges else []
        words += [self.targets] if self.targets != "rows" else []
        return f"{self.layer}({', '.join(words)})"


CASES = [
    Case("SAGEConv"),
    Case("SAGEConv", {"aggr": "sum", "normalize": True}),
    Case("SAGEConv", {"aggr": "add", "bias": False}),
    Case("SAGEConv", {"aggr": "max"}),
    Case("SAGEConv", {"aggr": ["mean", "max"]}),
    Case("SAGEConv", {"project": True}),
    Case("SAGEConv", {"project": True, "root_weight": False}),
    Case("SAGEConv", {"root_weight": False}),
    Case("SAGEConv", {"lazy": True}),
    Case("SAGEConv", targets="pair"),
    Case("SAGEConv", {"lazy": True, "aggr": "max"}, targets="pair"),
    Case("SAGEConv", targets="none"),
    Case("SAGEConv", {"aggr": "max"}, targets="none"),
    Case("GCNConv"),
    Case("GCNConv", edges="weight"),
    Case("GCNConv", edges="weight with a gradient"),
    Case("GCNConv", {"improved": True}),
    Case("GCNConv", {"improved": True}, "weight"),
    Case("GCNConv", {"add_self_loops": False, "bias": False}, "weight with a gradient"),
    Case("GCNConv", {"normalize": False}, "weight with a gradient"),
    Case("GCNConv", {"normalize": False, "lazy": True}),
    Case("GATConv"),
    Case("GATConv", {"heads": 2, "concat": False, "residual": True}),
    Case("GATConv", {"heads": 2, "add_self_loops": False}),
    Case("GATConv", {"edge_dim": ATTRIBUTES}, "attributes"),
    Case("GATConv", {"edge_dim": ATTRIBUTES, "fill_value": 0.5, "heads": 2}, "attributes"),
    Case("GATConv", {"pair": True}, targets="pair"),
    Case("GATConv", {"heads": 2}, targets="none"),
    Case("GATv2Conv"),
    Case("GATv2Conv", {"heads": 2, "concat": False, "share_weights": True, "residual": True}),
    Case("GATv2Conv", {"add_self_loops": False, "edge_dim": ATTRIBUTES}, "attributes"),
    Case("GATv2Conv", {"pair": True, "edge_dim": ATTRIBUTES}, "attributes", "pair"),
    Case("GATv2Conv", {"share_weights": True}, targets="pair"),
    Case("GINConv"),
    Case("GINConv", {"eps": 0.5}),
    Case("GINConv", {"eps": -0.3, "train_eps": True}, targets="pair"),
    Case("GINConv", {"aggr": "max"}, targets="none"),
    Case("GraphConv"),
    Case("GraphConv", edges="weight with a gradient"),
    Case("GraphConv", {"aggr": "mean"}, "weight with a gradient"),
    Case("GraphConv", {"aggr": "mean"}, "weight", "pair"),
    Case("GraphConv", {"aggr": "max"}, "weight with a gradient"),
    Case("GraphConv", {"aggr": "max"}, targets="none"),
]


class Net(nn.Module):
    """Layers one after the other; the last one's width is `DIM`, too."""

    def __init__(self, library: Any, case: Case, layers: int) -> None:
        super().__init__()
        widths, self.targets, self.convs = [DIM], case.targets, nn.ModuleList()
        for _ in range(layers):
            conv = made(library, case.layer, widths[-1], **case.options)
            is_wide = case.layer.startswith("GAT") and case.options.get("concat", True)
            widths.append(DIM * case.options.get("heads", 1) if is_wide else DIM)
            self.convs.append(conv)

    def forward(self, x: Tensor, edge_index: Tensor, *edges: Tensor) -> Tensor:
        for conv in self.convs:
            given: Any = {"rows": x, "pair": (x, x.sin()), "none": (x, None)}[self.targets]
            x = conv(given, edge_index, *edges).tanh()
        return x


def made(library: Any, layer: str, width: int, *, lazy: bool = False, pair: bool = False, **options: Any) -> nn.Module:
    """A layer; `lazy`: it sees the width of its input by itself, `pair`: it has weights for the targets."""
    if layer == "GINConv":
        return library.GINConv(nn.Sequential(nn.Linear(width, DIM), nn.Tanh(), nn.Linear(DIM, DIM)), **options)
    channels: Any = -1 if lazy else (width, width) if pair else width
    return getattr(library, layer)(channels, DIM, **options)


def both(case: Case, layers: int) -> tuple[Net, Net]:
    """PyG's layers and ours, with the same parameters."""
    theirs, mine = (Net(library, case, layers).double() for library in (pyg, ours))
    if case.options.get("lazy"):
        x, edge_index = torch.ones(1, DIM).double(), torch.zeros(2, 1, dtype=torch.int64)
        theirs(x, edge_index)  # mine see their sizes in the state
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def random_data(random: np.random.Generator) -> Data:
    """A graph with isolated vertices, self loops, parallel edges."""
    n = int(random.integers(1, 50))
    count = int(random.integers(0, 4 * n))
    edges = np.stack([random.integers(0, n, count), random.integers(0, max(int(n * random.uniform(0.3, 1)), 1), count)])
    loops = random.integers(0, n, int(random.integers(0, 4)))
    edges = np.concatenate([edges, np.stack([loops, loops]), edges[:, : count // 4]], axis=1)
    edge_index, e = torch.from_numpy(edges), edges.shape[1]
    x, w, a = (torch.from_numpy(random.standard_normal(shape)) for shape in ((n, DIM), e, (e, ATTRIBUTES)))
    return Data(x=x, edge_index=edge_index, edge_weight=w.abs() + 0.1, edge_attr=a)


def random_batches(random: np.random.Generator, **options: Any) -> Iterator[Data]:
    """Batches of one loader, with few seeds, one seed, repeated ones."""
    data = random_data(random)
    fanouts = random.choice([-1, 1, 2, 3], int(random.integers(1, MOST_HOPS + 1))).tolist()
    seeds = torch.from_numpy(random.integers(0, data.num_nodes, int(random.integers(1, 20))))
    if random.random() < 0.5:
        options["weight_attr"] = "edge_weight"
    options["replace"] = bool(random.random() < 0.3) and -1 not in fanouts
    loader = NeighborLoader(
        data,
        fanouts,
        input_nodes=seeds,
        batch_size=int(random.choice([1, 2, 5, 20])),
        random_seed=int(random.integers(2**32)),
        prefetch=0,
        **options,
    )
    yield from loader


def results(net: Net, batch: Data, edge_index: Tensor, edges: str, towards: Tensor) -> dict[str, Tensor]:
    """What a model makes of the seeds, and all its gradients."""
    x = batch.x.clone().requires_grad_()
    given = [] if not edges else [(batch.edge_attr if edges == "attributes" else batch.edge_weight).clone()]
    for one in given:
        one.requires_grad_("gradient" in edges or edges == "attributes")
    out = net(x, edge_index, *given)[: batch.batch_size]
    net.zero_grad()
    (out * towards).sum().backward()
    gradients = {name.removeprefix("_orig_mod."): one.grad for name, one in net.named_parameters()}
    gradients |= {"x": x.grad, "edges": given[0].grad if given else None}
    found = {f"gradient of {name}": one for name, one in gradients.items()} | {"values": out.detach()}
    return {name: torch.zeros(()) if one is None else one for name, one in found.items()}


def difference(theirs: Net, mine: Net, batch: Data, edges: str) -> float:
    """The largest difference of all results, as a part of the largest number."""
    towards = torch.randn(batch.batch_size, 1).double()
    expected = results(theirs, batch, batch.edge_index.clone(), edges, towards)
    found = results(mine, batch, batch.edge_index, edges, towards)
    return max(
        float((found[name] - one).abs().max() / one.abs().max().clamp(min=1)) if one.numel() else 0.0
        for name, one in expected.items()
    )


def worst_of(case: Case, seed: int, batches: int) -> float:
    """The largest difference over some batches of several graphs, of models of as many layers as hops, or fewer."""
    random, worst = np.random.default_rng(seed), 0.0
    torch.manual_seed(seed)
    while batches > 0:
        nets: dict[int, tuple[Net, Net]] = {}
        for batch in random_batches(random):
            layers = int(random.integers(1, len(batch.num_sampled_nodes)))
            theirs, mine = nets.setdefault(layers, both(case, layers))
            worst = max(worst, difference(theirs, mine, batch, case.edges))
            assert all(slow == 0 for _, slow in ours.calls(mine).values()), "a slow call"
            batches -= 1
            if batches == 0:
                break
    return worst
