"""`spsample.pyg.trim`: PyG's own layers leave out rows, whatever calls them, and `untrim` takes it back."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
import torch_geometric.nn as pyg
from layer_cases import CASES, DIM, Case, both, difference, random_batches
from test_layer_rules import DATA, batch_of, loader
from torch import nn

import spsample.nn as ours
from spsample.errors import DTypeError, InputError
from spsample.pyg import trim, untrim


def trimmed(case, layers=2):
    """A model as it is, and trimmed."""
    theirs = both(case, layers)[0]
    return theirs, trim(copy.deepcopy(theirs))


def is_trimmed(model):
    return all(fast and not slow for fast, slow in ours.calls(model).values())


@pytest.mark.parametrize("case", [one for one in CASES if one.layer != "GCNConv"], ids=str)
def test_values_and_gradients_are_those_without(case):
    import numpy as np

    random, worst = np.random.default_rng(CASES.index(case)), 0.0
    for _ in range(3):
        for batch in random_batches(random):
            theirs, mine = trimmed(case, len(batch.num_sampled_nodes) - 1)
            worst = max(worst, difference(theirs, mine, batch, case.edges))
            assert is_trimmed(mine)
    assert worst < 1e-12


@pytest.mark.parametrize("make", [pyg.GraphSAGE, pyg.GAT, pyg.GIN], ids=lambda make: make.__name__)
@pytest.mark.parametrize("options", [{}, {"norm": "BatchNorm"}], ids=str)
def test_models_of_pyg(make, options):
    whole = make(DIM, 8, num_layers=2, out_channels=3, **options).double().eval()
    part = trim(copy.deepcopy(whole))
    for batch in loader():
        out = part(batch.x, batch.edge_index)
        expected = whole(batch.x, batch.edge_index.clone())
        torch.testing.assert_close(out[: batch.batch_size], expected[: batch.batch_size])
    assert len(out) < len(expected)
    assert is_trimmed(part)


@pytest.mark.parametrize("make", [pyg.GraphSAGE, pyg.GAT], ids=lambda make: make.__name__)
def test_inference_of_pygs_models(make):
    whole = make(DIM, 8, num_layers=3, out_channels=3).double().eval()
    part = trim(copy.deepcopy(whole))
    with torch.no_grad():
        expected = whole(DATA.x, DATA.edge_index)
        found = part.inference(loader([-1]), torch.device("cpu"))
        torch.testing.assert_close(found, expected)
    assert is_trimmed(part)


class OwnConv(pyg.MessagePassing):
    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="sum")
        self.lin_l, self.lin_r = nn.Linear(in_channels, out_channels), nn.Linear(in_channels, out_channels)

    def message(self, x_j, w):
        return x_j * w[:, None]

    def forward(self, x, edge_index, w):
        x = x if isinstance(x, tuple) else (x, x)
        return self.lin_l(self.propagate(edge_index, x=x, w=w)) + self.lin_r(x[1])


class AnyPlaces(OwnConv):
    def forward(self, edge_index, x: torch.Tensor | tuple[torch.Tensor, torch.Tensor], *weights, scale=None):
        out = super().forward(x, edge_index, *weights)
        return out if scale is None else out * scale


class Hinted(OwnConv):
    def forward(self, x: torch.Tensor | tuple[torch.Tensor, torch.Tensor], edge_index, w):
        return super().forward(x, edge_index, w)


def test_subclasses_and_their_arguments():
    batch = batch_of()
    e = batch.edge_index.clone()
    for conv, calls in (
        (
            Hinted(DIM, DIM),
            [
                lambda c, e: c(batch.x, e, batch.edge_weight),
                lambda c, e: c(w=batch.edge_weight, x=batch.x, edge_index=e),
            ],
        ),
        (
            AnyPlaces(DIM, DIM),
            [lambda c, e: c(e, batch.x, batch.edge_weight), lambda c, e: c(e, batch.x, batch.edge_weight, scale=2)],
        ),
    ):
        conv = conv.double()
        wholes = [call(conv, e) for call in calls]
        trim(conv)
        for call, whole in zip(calls, wholes, strict=True):
            part = call(conv, batch.edge_index)
            assert len(part) == sum(batch.num_sampled_nodes[:2])
            torch.testing.assert_close(part, whole[: len(part)])
        assert ours.calls(conv) == {"": (2, 0)}


def test_a_subclass_that_does_not_say_that_it_takes_pairs():
    model = nn.ModuleList([OwnConv(DIM, DIM), pyg.SAGEConv(DIM, DIM)])
    with pytest.warns(UserWarning, match="left as they are, since they take no pairs: OwnConv"):
        trim(model)
    assert list(ours.calls(model)) == ["1"]


def test_hints_of_names_that_are_not_there():
    class Hidden(pyg.SAGEConv):
        def forward(self, x: OfTypeCheckers, edge_index):  # noqa: F821
            return super().forward(x, edge_index)

    with pytest.raises(InputError, match="no layer that takes a pair of sources and targets: Hidden"):
        trim(Hidden(2, 2))


def test_layers_that_take_no_pairs():
    with pytest.raises(InputError, match=r"no layer that takes a pair.*GCNConv"):
        trim(pyg.GCN(DIM, 8, 2))
    with pytest.raises(InputError, match="no layer that takes a pair"):
        trim(nn.Linear(2, 2))
    with pytest.raises(DTypeError, match="model"):
        trim(lambda x: x)


class Mixed(nn.Module):
    def __init__(self, *convs):
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
        return x


def mixed(*names):
    return Mixed(*(getattr(pyg, name)(DIM, DIM) for name in names)).double()


def test_a_mix_with_layers_that_take_no_pairs_is_right_or_raises():
    """`GCNConv` after a trimmed layer would read rows that are not there."""
    first, last = mixed("GCNConv", "SAGEConv"), mixed("SAGEConv", "GCNConv")
    raised = 0
    for whole in (first, last):
        with pytest.warns(UserWarning, match="GCNConv"):
            part = trim(copy.deepcopy(whole))
        for size in (1, 2, 7):
            for batch in loader((2, 2), size):
                try:
                    found = difference(whole, part, batch, "")
                except (IndexError, RuntimeError, ValueError):
                    assert whole is last
                    raised += 1
                else:
                    assert found < 1e-12
    assert raised > 30


@pytest.mark.parametrize("mode", ["cat", "max", "last"])
def test_jk_is_refused(mode):
    with pytest.raises(InputError, match=r"^model: got one with jk"):
        trim(pyg.GraphSAGE(DIM, 8, 2, jk=mode))
    with pytest.raises(InputError, match=r"^model: got one with jk"):
        trim(nn.ModuleList([pyg.SAGEConv(2, 2), pyg.JumpingKnowledge("cat")]))


def test_untrim():
    whole, part = trimmed(Case("SAGEConv"), 3)
    batch = batch_of()
    with pytest.raises(InputError, match="hops"):
        part(batch.x, batch.edge_index)
    assert untrim(part) is part
    assert torch.equal(part(batch.x, batch.edge_index), whole(batch.x, batch.edge_index))
    assert ours.calls(part) == {}
    untrim(part)


def test_twice():
    whole, part = trimmed(Case("SAGEConv"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trim(part)
    part.convs.append(pyg.SAGEConv(DIM, DIM).double())
    trim(part)
    assert len(ours.calls(part)) == 3
    assert all(len(conv._forward_pre_hooks) == 1 for conv in part.convs)
    del part.convs[2]
    assert difference(whole, part, batch_of(), "") < 1e-12
    untrim(part)
    assert not any(conv._forward_pre_hooks for conv in part.convs)


def test_our_layers_need_none():
    model = nn.ModuleList([ours.SAGEConv(DIM, DIM), ours.GCNConv(DIM, DIM)])
    assert trim(model) is model
    assert not any(conv._forward_pre_hooks for conv in model)


def test_copies_are_trimmed():
    whole, part = trimmed(Case("SAGEConv"))
    file = io.BytesIO()
    torch.save(part, file)
    file.seek(0)
    for made in (copy.deepcopy(part), torch.load(file, weights_only=False)):
        batch = batch_of()
        assert len(made(batch.x, batch.edge_index)) == batch.batch_size
        assert difference(whole, made, batch, "") < 1e-12
        untrim(made)
        assert len(made(batch.x, batch.edge_index)) == batch.num_nodes
    assert len(part(batch.x, batch.edge_index)) == batch.batch_size
    assert list(part.state_dict()) == list(whole.state_dict())


def test_a_layer_that_is_explained_computes_all_rows():
    conv, batch = trim(pyg.SAGEConv(DIM, DIM).double()), batch_of()
    conv.explain = True
    conv._edge_mask, conv._apply_sigmoid = torch.ones(batch.num_edges), False
    assert len(conv(batch.x, batch.edge_index)) == batch.num_nodes
    assert ours.calls(conv) == {"": (0, 1)}
