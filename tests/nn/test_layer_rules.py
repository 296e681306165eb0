"""What layers do with the rows of a sampled batch: which hop, what ends it, and what is computed as PyG does."""

from __future__ import annotations

import pickle
import re
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from layer_cases import DIM, Case, both, difference, random_batches
from torch import nn
from torch_geometric.data import Data

import spsample as sp
import spsample.nn as ours
from spsample.errors import InputError
from spsample.pyg import NeighborLoader
from spsample.sampling.hops import Hops

N = 60
# A path into vertex 0 makes hops of one vertex each; the rest is random.
EDGES = torch.randint(0, N, (2, 300), generator=torch.Generator().manual_seed(0))
DATA = Data(x=torch.randn(N, DIM, generator=torch.Generator().manual_seed(1)).double(), edge_index=EDGES)
DATA.edge_weight = torch.rand(300, generator=torch.Generator().manual_seed(2)).double() + 0.1


def loader(fanouts=(3, 2), batch_size=6, data=DATA, **options):
    return NeighborLoader(data, list(fanouts), batch_size=batch_size, random_seed=0, **options)


def batch_of(*arguments, **options):
    return next(iter(loader(*arguments, **options)))


def sage(layers=2):
    return both(Case("SAGEConv"), layers)


def assert_right(theirs, mine, batch, edges=""):
    assert difference(theirs, mine, batch, edges) < 1e-12


def are_fast(model):
    return all(fast and not slow for fast, slow in ours.calls(model).values())


def are_slow(model):
    return all(slow and not fast for fast, slow in ours.calls(model).values())


def with_hops(edge_index, nodes, edges):
    return Hops.put_on(edge_index, nodes, edges)


def test_of_hops_with_equal_counts_it_is_the_farthest():
    """Vertices 0 <- 1 <- 2, and 1 <- 0: the second hop adds nothing."""
    edge_index = with_hops(torch.tensor([[1, 0], [0, 1]]), [1, 1, 0], [1, 1])
    conv = ours.SAGEConv(DIM, DIM)
    assert edge_index.hops.nodes == (1, 2, 2)
    assert len(conv(torch.randn(2, DIM), edge_index)) == 2
    edge_index = with_hops(torch.tensor([[2, 0, 1], [0, 1, 2]]), [2, 1, 0], [2, 1])
    theirs, mine = sage(2)
    x = torch.randn(3, DIM).double()
    torch.testing.assert_close(mine(x, edge_index)[:2], theirs(x, edge_index.clone())[:2])
    assert len(mine(x, edge_index)) == 3
    assert are_fast(mine)


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATConv"])
def test_hops_that_are_empty(name):
    """Sparse graphs, of which most batches run out of vertices before hops."""
    random_edges = torch.Generator().manual_seed(3)
    sparse = Data(x=torch.randn(40, DIM).double(), edge_index=torch.randint(0, 40, (2, 25), generator=random_edges))
    theirs, mine = both(Case(name), 4)
    empty = 0
    for batch_size in (1, 2, 5):
        for batch in loader((2, 2, 2, 2), batch_size, sparse):
            empty += 0 in batch.num_sampled_nodes
            assert_right(theirs, mine, batch)
    assert empty > 40
    assert are_fast(mine)


def test_more_layers_than_hops():
    batch, (theirs, mine) = batch_of(), sage(3)
    with pytest.raises(InputError, match=r"^x: got the seeds' rows alone.*expected at most 2 layers") as raised:
        mine(batch.x, batch.edge_index)
    assert "trim=False" in str(raised.value)
    assert_right(theirs, mine, batch_of(trim=False))
    assert not hasattr(batch_of(trim=False).edge_index, "hops")
    mine.convs[0] = copied = ours.SAGEConv(DIM, DIM, trim=False).double()
    copied.load_state_dict(theirs.convs[0].state_dict())
    assert_right(theirs, mine, batch)


def test_fewer_layers_than_hops():
    batch, (theirs, mine) = batch_of((3, 2, 2)), sage(2)
    out = mine(batch.x, batch.edge_index)
    assert len(out) == sum(batch.num_sampled_nodes[:2]) > batch.batch_size
    assert_right(theirs, mine, batch)
    assert are_fast(mine)


def test_a_batch_of_one_seed_keeps_all_rows():
    for batch in loader((3, 2), batch_size=1):
        theirs, mine = sage(3)
        assert len(mine(batch.x, batch.edge_index)) == batch.num_nodes
        assert_right(theirs, mine, batch)
        assert are_fast(mine)


def doubled(output):
    output.row = output.row.clone()
    return output


def without_loops(batch):
    batch.edge_index = batch.edge_index[:, batch.edge_index[0] != batch.edge_index[1]]
    return batch


def without_first_edge(batch):
    batch.edge_index[:, 0] = batch.edge_index[:, 1]
    return batch


@pytest.mark.parametrize(
    "options",
    [
        {"subgraph_type": "bidirectional"},
        {"transform_sampler_output": doubled},
        {"transform": without_loops},
        {"trim": False},
    ],
    ids=lambda options: next(iter(options)),
)
def test_batches_with_other_edges_are_not_trimmed(options):
    theirs, mine = sage(3)
    for batch in loader(**options):
        assert_right(theirs, mine, batch)
    assert are_slow(mine)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("GCNConv", {"normalize": False}),
        ("GCNConv", {"add_self_loops": False}),
        ("SAGEConv", {"aggr": "sum"}),
    ],
)
def test_layers_of_other_options_share_no_values_of_a_batch(name, options):
    batch = batch_of()
    for theirs, mine in (both(Case(name), 2), both(Case(name, options), 2)):
        assert_right(theirs, mine, batch)


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv", "GATv2Conv"])
def test_edges_that_were_edited_in_place(name):
    theirs, mine = both(Case(name), 2)
    for batch in loader(transform=without_first_edge):
        with pytest.warns(UserWarning, match="^edge_index was changed, copied or pickled"):
            assert_right(theirs, mine, batch)
    assert are_slow(mine)


def test_an_edit_after_a_layer_has_seen_the_edges():
    batch, (theirs, mine) = batch_of(), both(Case("GCNConv"), 1)
    assert_right(theirs, mine, batch)
    batch.edge_index[0, :4] = 0
    with pytest.warns(UserWarning, match="^edge_index was changed"):
        assert_right(theirs, mine, batch)
    assert ours.calls(mine) == {"convs.0": (1, 1)}


def test_weights_that_were_edited_in_place():
    """What is made of weights once per batch is made anew."""
    batch, (theirs, mine) = batch_of(), both(Case("GCNConv", {}, "weight"), 1)
    for _ in range(2):
        out = mine(batch.x, batch.edge_index, batch.edge_weight)
        expected = theirs(batch.x, batch.edge_index.clone(), batch.edge_weight)[: len(out)]
        torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
        batch.edge_weight *= torch.rand(len(batch.edge_weight))


def test_lost_hops_are_said_once():
    batch, mine = pickle.loads(pickle.dumps(batch_of())), sage()[1]
    assert batch.edge_index.hops is None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            mine(batch.x, batch.edge_index)
    assert len(said) == 1
    assert are_slow(mine)


def test_edges_of_another_loader_are_not_spoken_of():
    mine = sage()[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine(DATA.x, DATA.edge_index)
    assert are_slow(mine)


class Branches(nn.Module):
    """A variational encoder: two layers on one hidden state; `tied`: the first layer twice."""

    def __init__(self, library, tied=False):
        super().__init__()
        self.first, self.mu, self.logstd = (library.SAGEConv(DIM, DIM) for _ in range(3))
        self.tied = tied

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).tanh()
        h = self.first(h, edge_index).tanh() if self.tied else h
        return self.mu(h, edge_index) + self.logstd(h, edge_index).exp()


@pytest.mark.parametrize("tied", [False, True])
def test_parallel_branches_and_tied_layers(tied):
    theirs, mine = (Branches(library, tied).double() for library in (pyg, ours))
    mine.load_state_dict(theirs.state_dict())
    for batch in loader((3, 2, 2) if tied else (3, 2)):
        assert_right(theirs, mine, batch)
    assert are_fast(mine)


class Residual(nn.Module):
    def __init__(self, library, join):
        super().__init__()
        self.convs, self.join = nn.ModuleList(library.SAGEConv(DIM, DIM) for _ in range(2)), join

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = self.join(x, conv(x, edge_index))
        return x


def test_residuals_raise_or_are_right():
    """With one row left an addition would broadcast."""
    theirs, mine = (Residual(library, lambda x, h: x + h).double() for library in (pyg, ours))
    mine.load_state_dict(theirs.state_dict())
    raised = 0
    for size in (1, 2, 7):
        for batch in loader((2, 2), size):
            try:
                found = difference(theirs, mine, batch, "")
            except RuntimeError as error:
                assert re.search("size of tensor|must match", str(error))  # noqa: PT017
                raised += 1
            else:
                assert found < 1e-12
    assert raised > 30


@pytest.mark.parametrize("seeds", [1, 2, 7])
def test_residuals_of_the_same_rows(seeds):
    theirs = Residual(pyg, lambda x, h: x + h).double()
    mine = Residual(ours, lambda x, h: ours.rows(x, h) + h).double()
    mine.load_state_dict(theirs.state_dict())
    for batch in loader((2, 2), seeds):
        assert_right(theirs, mine, batch)
    assert are_fast(mine)


def test_rows_names_what_is_wrong():
    with pytest.raises(InputError, match=r"^like: got 3 rows; expected at most those of h: 2"):
        ours.rows(torch.ones(2, 1), torch.ones(3, 1))


@pytest.mark.parametrize("mode", ["cat", "max", "lstm"])
def test_jumping_knowledge_raises_or_is_right(mode):
    jump = pyg.JumpingKnowledge(mode, DIM, 2).double()
    theirs, mine = sage(2)
    raised = 0
    for batch in loader((2, 2), 5):
        parts = {}
        for net, edge_index in ((theirs, batch.edge_index.clone()), (mine, batch.edge_index)):
            parts[net], h = [], batch.x
            for conv in net.convs:
                h = conv(h, edge_index)
                parts[net].append(h)
        try:
            found = jump(parts[mine])[: batch.batch_size]
        except RuntimeError:
            raised += 1
            found = jump([ours.rows(h, parts[mine][-1]) for h in parts[mine]])[: batch.batch_size]
        torch.testing.assert_close(found, jump(parts[theirs])[: batch.batch_size])
    assert raised


def test_rows_of_no_hop_name_what_to_do():
    batch, conv = batch_of(), ours.SAGEConv(DIM, DIM).double()
    with pytest.raises(InputError, match=r"spsample\.nn\.rows\(h, like\)"):
        conv(batch.x[:-1], batch.edge_index)
    with pytest.raises(InputError, match=r"^x: got 3 rows of targets; expected rows of all"):
        conv((batch.x, batch.x[:3]), batch.edge_index)


@pytest.mark.parametrize(
    "conv",
    [
        ours.GCNConv(DIM, DIM),
        ours.GCNConv(DIM, DIM, normalize=False),
        ours.GraphConv(DIM, DIM),
        ours.GraphConv(DIM, DIM, aggr="mean"),
    ],
)
def test_weights_of_other_edges_are_refused(conv):
    batch = batch_of()
    with pytest.raises(InputError, match=r"^edge_weight: got 300 numbers; expected one for each"):
        conv.double()(batch.x, batch.edge_index, DATA.edge_weight)


def test_an_input_with_dimensions_before_the_rows_is_pygs():
    batch, (theirs, mine) = batch_of(), sage(1)
    x = torch.randn(batch.batch_size, batch.num_nodes, DIM).double()
    torch.testing.assert_close(mine(x, batch.edge_index), theirs(x, batch.edge_index.clone()))


def test_a_size_is_taken():
    batch, (theirs, mine) = batch_of(), sage(1)
    size = batch.num_nodes, batch.num_nodes
    expected = theirs.convs[0](batch.x, batch.edge_index.clone(), size)
    for conv in (mine.convs[0], ours.SAGEConv(DIM, DIM, aggr="max").double()):
        conv.load_state_dict(theirs.convs[0].state_dict())
        out = conv(batch.x, batch.edge_index, size)
        if conv.aggr == "mean":
            torch.testing.assert_close(out, expected[: len(out)])
    gat = ours.GATConv(DIM, DIM).double()
    by_place, by_name = gat(batch.x, batch.edge_index, None, size), gat(batch.x, batch.edge_index, size=size)
    assert torch.equal(by_place, by_name)
    assert len(by_place) < batch.num_nodes


def test_batches_of_bulk_loaders():
    graph = sp.Graph.from_edge_index(EDGES, num_nodes=N)
    theirs, mine = sage(2)
    bulk_loader = sp.BulkLoader(graph, torch.arange(N).numpy(), sp.GraphSAGE([3, 2], layout="subgraph"), batch_size=7)
    for batch in bulk_loader.pyg():
        batch.x = DATA.x[batch.n_id]
        assert_right(theirs, mine, batch)
    assert are_fast(mine)


class OwnMessage:
    """A user's own message, in a layer of either library."""

    def message(self, x_j):
        return x_j.square()


class OwnAggregate:
    def aggregate(self, inputs, index, ptr=None, dim_size=None):
        return 2 * super().aggregate(inputs, index, ptr=ptr, dim_size=dim_size)


class OwnUpdate:
    def update(self, inputs):
        return inputs + 1


def subclassed(mixin, layer):
    """A layer of a user's class; PyG reads the type of `propagate` from the class."""
    return type(f"{mixin.__name__}{layer.__module__.split('.')[0]}", (mixin, layer), {"__module__": __name__})


@pytest.mark.parametrize("mixin", [OwnMessage, OwnAggregate, OwnUpdate])
@pytest.mark.parametrize("name", ["SAGEConv", "GINConv"])
def test_subclasses_of_users(mixin, name):
    theirs, mine = both(Case(name), 2)
    for net, library in ((theirs, pyg), (mine, ours)):
        for conv in net.convs:
            conv.__class__ = subclassed(mixin, getattr(library, name))
    changed = both(Case(name), 2)[0]
    changed.load_state_dict(theirs.state_dict())
    batch = batch_of()
    assert_right(theirs, mine, batch)
    assert difference(changed, mine, batch, "") > 1e-3
    assert are_fast(mine)


def test_a_subclass_of_gcn_computes_all_rows():
    theirs, mine = both(Case("GCNConv"), 2)

    class Theirs(pyg.GCNConv):
        def message(self, x_j, edge_weight):
            return 3 * x_j

    class Mine(ours.GCNConv):
        def message(self, x_j, edge_weight):
            return 3 * x_j

    for net, kind in ((theirs, Theirs), (mine, Mine)):
        for conv in net.convs:
            conv.__class__ = kind
    for batch in loader((3, 2)):
        assert_right(theirs, mine, batch)
    assert are_slow(mine)


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv"])
@pytest.mark.parametrize("hook", ["propagate", "message", "aggregate"])
def test_hooks_of_messages(name, hook):
    theirs, mine = both(Case(name), 2)
    for net in (theirs, mine):
        for conv in net.convs:
            getattr(conv, f"register_{hook}_forward_hook")(lambda layer, inputs, out: 2 * out)
    for batch in loader():
        assert_right(theirs, mine, batch)


@pytest.mark.parametrize("name", ["SAGEConv", "GCNConv"])
def test_hooks_of_torch_change_nothing(name):
    theirs, mine = both(Case(name), 2)
    seen = []
    mine.convs[1].register_forward_hook(lambda layer, inputs, out: seen.append(len(out)))
    batch = batch_of()
    assert_right(theirs, mine, batch)
    assert seen == [batch.batch_size]
    assert are_fast(mine)


def test_hooks_of_a_linear_layer_are_called():
    theirs, mine = sage(1)
    for net in (theirs, mine):
        net.convs[0].lin_l.register_forward_hook(lambda layer, inputs, out: 2 * out)
    assert_right(theirs, mine, batch_of())


def test_a_model_that_is_explained():
    from torch_geometric.explain import Explainer, GNNExplainer

    batch = batch_of()
    masks = []
    for net, edge_index in zip(sage(2), (batch.edge_index.clone(), batch.edge_index), strict=True):
        torch.manual_seed(0)
        net.load_state_dict({name: torch.full_like(one, 0.3) for name, one in net.state_dict().items()})
        explainer = Explainer(
            net.float(),
            GNNExplainer(epochs=3),
            explanation_type="model",
            edge_mask_type="object",
            model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
        )
        masks.append(explainer(batch.x.float(), edge_index, index=0).edge_mask)
    torch.testing.assert_close(*masks)
    assert masks[0].any()


@pytest.mark.parametrize("make", [lambda: ours.SAGEConv(2, 2), lambda: nn.Sequential(ours.GCNConv(2, 2))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_are_refused_by_name(make):
    with pytest.raises(InputError, match=r"torch\.jit\.script of (SAGE|GCN)Conv"):
        torch.jit.script(make())


def test_calls_of_a_model():
    model, batch = nn.ModuleDict({"a": ours.SAGEConv(DIM, DIM), "b": nn.Linear(DIM, 2)}).double(), batch_of()
    model["a"](batch.x, batch.edge_index)
    model["a"](batch.x, batch.edge_index.clone())
    assert ours.calls(model) == {"a": (1, 1)}


def test_random_batches_have_the_odd_ones():
    """What the comparisons of `layer_cases` are about does come up."""
    import numpy as np

    random, seen = np.random.default_rng(0), {"one seed": 0, "repeated": 0, "empty": 0, "loops": 0, "parallel": 0}
    for _ in range(60):
        for batch in random_batches(random):
            seeds = batch.n_id[: batch.batch_size]
            seen["one seed"] += batch.batch_size == 1
            seen["repeated"] += len(seeds.unique()) < len(seeds)
            seen["empty"] += 0 in batch.num_sampled_nodes
            seen["loops"] += bool((batch.edge_index[0] == batch.edge_index[1]).any())
            seen["parallel"] += batch.edge_index.unique(dim=1).shape[1] < batch.edge_index.shape[1]
    assert min(seen.values()) > 10, seen
