"""What Lightning does to a loader: makes it anew of its attributes with a sampler, and PyG's `LightningNodeData`."""

from __future__ import annotations

import copy
import inspect

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import NodeLoader  # noqa: E402

from spsample import Graph  # noqa: E402
from spsample.errors import InputError  # noqa: E402
from spsample.pyg import NeighborLoader, NeighborSampler  # noqa: E402

N = 40
EDGES = torch.randint(0, N, (2, 300), generator=torch.Generator().manual_seed(0))
DATA = Data(x=torch.arange(N).float()[:, None], edge_index=EDGES, w=torch.rand(300) + 0.1)
DATA.train_mask = torch.arange(N) < 30


def identity(batch):
    return batch


GIVEN = {
    "input_nodes": torch.arange(30),
    "replace": True,
    "subgraph_type": "bidirectional",
    "weight_attr": "w",
    "transform": identity,
    "transform_sampler_output": identity,
    "filter_per_worker": True,
    "random_seed": 3,
    "bulk_size": 2,
    "memory_budget": "64MiB",
    "prefetch": 0,
    "backend": "reference",
    "graph": Graph.from_pyg(DATA, "w"),
    "trim": False,
    "batch_size": 5,
    "drop_last": True,
    "input_id": torch.arange(30) + 100,
}
WITHOUT_CHOICE = {
    "input_time",
    "disjoint",
    "temporal_strategy",
    "time_attr",
    "neighbor_sampler",
    "directed",
    "is_sorted",
}


def made_anew(loader, sampler):
    """As `_update_dataloader` of Lightning 2.6, of the loader's attributes that are no defaults."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    parameters.update(inspect.signature(DataLoader.__init__).parameters)
    names = {name for name, one in parameters.items() if name in attributes and one.default is not attributes[name]}
    options = {name: value for name, value in attributes.items() if name in {*names, "dataset"}}
    return type(loader)(**{**options, "sampler": sampler, "shuffle": False, "batch_sampler": None})


def test_every_argument_is_an_attribute():
    names = set(inspect.signature(NeighborLoader.__init__).parameters) - {"self", "options"} - WITHOUT_CHOICE
    assert names == {"data", "num_neighbors", *GIVEN} - {"batch_size", "drop_last"}
    loader = NeighborLoader(DATA, [2, 1], **GIVEN)
    assert names <= vars(loader).keys()
    again = made_anew(loader, list(range(30)))
    for name in GIVEN:
        assert getattr(again, name) is getattr(loader, name) or torch.equal(getattr(again, name), getattr(loader, name))
    plain = NeighborLoader(DATA, [2, 1], **GIVEN)
    for one, other in zip(again, plain, strict=True):
        assert torch.equal(one.e_id, other.e_id)
        assert torch.equal(one.input_id, other.input_id)


def test_two_devices_see_each_seed_once():
    loader = NeighborLoader(DATA, [2], input_nodes=DATA.train_mask, batch_size=4, shuffle=True)
    ranks = [made_anew(loader, DistributedSampler(loader.dataset, 2, rank, shuffle=True)) for rank in (0, 1)]
    assert [len(one) for one in ranks] == [4, 4]
    seen = [[i for batch in one for i in batch.n_id[: batch.batch_size].tolist()] for one in ranks]
    assert sorted(seen[0] + seen[1]) == list(range(30))


def batches_of(workers, **changes):
    torch.manual_seed(0)
    sampler = NeighborSampler(DATA, [2, 1], random_seed=1)
    for name, value in changes.items():
        setattr(sampler, name, value)
    loader = NodeLoader(DATA, sampler, input_nodes=DATA.train_mask, batch_size=10, num_workers=workers)
    return [list(loader) for _ in range(2)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_for_pygs_loaders(workers):
    epochs, again = batches_of(workers), batches_of(workers)
    for epoch, same in zip(epochs, again, strict=True):
        for batch, other in zip(epoch, same, strict=True):
            assert torch.equal(batch.n_id[batch.edge_index], EDGES[:, batch.e_id])
            assert torch.equal(batch.x[:, 0].long(), batch.n_id)
            assert torch.equal(batch.e_id, other.e_id)
    drawn = [batch.e_id.tolist() for epoch in epochs for batch in epoch]
    assert len({str(one) for one in drawn}) == len(drawn) == 6  # workers are made anew for each epoch


def test_what_pyg_sets_for_an_evaluation_counts():
    whole = batches_of(0, num_neighbors=[-1, -1])[0][0]
    degrees = torch.bincount(EDGES[1], minlength=N)
    assert whole.num_sampled_edges[0] == int(degrees[:10].sum())
    assert batches_of(0, subgraph_type="bidirectional")[0][0].is_undirected()
    sampler = copy.copy(NeighborSampler(DATA, [2]))
    for name, value in (("num_neighbors", [0]), ("replace", 3), ("subgraph_type", "induced"), ("weight_attr", "w")):
        with pytest.raises(InputError, match=f"^{name}"):
            setattr(sampler, name, value)
    assert (sampler.num_neighbors, sampler.replace, sampler.weight_attr) == ([2], False, None)


def test_a_sampler_refuses_what_a_loader_refuses():
    for options in ({"num_neighbors": []}, {"weight_attr": "nope"}, {"random_seed": -1}, {"graph": 3}):
        with pytest.raises(InputError):
            NeighborSampler(**{"data": DATA, "num_neighbors": [2], **options})
    with pytest.raises(TypeError, match=r"^data"):
        NeighborSampler(3, [2])


def test_lightning_node_data():
    pytest.importorskip("pytorch_lightning")
    from torch_geometric.data.lightning import LightningNodeData

    module = LightningNodeData(
        DATA,
        node_sampler=NeighborSampler(DATA, [2]),
        input_val_nodes=[30, 31],
        eval_loader_kwargs={"num_neighbors": [-1]},
        batch_size=8,
        pin_memory=False,
    )
    seeds = [i for batch in module.train_dataloader() for i in batch.n_id[: batch.batch_size].tolist()]
    assert sorted(seeds) == list(range(30))
    (batch,) = module.val_dataloader()
    assert batch.num_sampled_edges == [int((EDGES[1] == 30).sum() + (EDGES[1] == 31).sum())]
