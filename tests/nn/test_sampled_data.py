"""`SampledData` keeps the hops of its edges where it is moved, and drops them where they are changed."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from test_layer_rules import are_fast, assert_right, batch_of, loader, sage

from spsample.sampling.hops import Hops
from spsample.sampling.sampled_data import SampledData


def hops_of(batch):
    hops = getattr(batch.edge_index, "hops", None)
    return hops.nodes if isinstance(hops, Hops) and hops.is_of(batch.edge_index) else None


@pytest.mark.parametrize(
    "moved",
    [
        lambda batch: batch.to("cpu"),
        lambda batch: batch.cpu(),
        lambda batch: batch.to(torch.device("cpu"), "x", "edge_index", non_blocking=True),
        lambda batch: batch.clone(),
        lambda batch: copy.copy(batch),
        lambda batch: batch.apply(torch.clone),
        lambda batch: batch.apply(lambda tensor: tensor + 0),
        lambda batch: batch.apply_(lambda tensor: tensor),
        lambda batch: batch.contiguous(),
        lambda batch: batch.detach_(),
        lambda batch: batch.share_memory_(),
    ],
)
def test_what_keeps_them(moved):
    batch = batch_of()
    nodes = hops_of(batch)
    assert nodes == (6, *nodes[1:])
    after = moved(batch)
    assert isinstance(after, SampledData)
    assert hops_of(after) == nodes
    theirs, mine = sage(2)
    assert_right(theirs, mine, after)
    assert are_fast(mine)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU of torch")
@pytest.mark.parametrize("moved", ["cuda", "to", "pin_memory"])
def test_what_keeps_them_on_a_device(moved):
    batch = batch_of()
    nodes = hops_of(batch)
    after = batch.to("cuda") if moved == "to" else getattr(batch, moved)()
    assert hops_of(after) == nodes
    theirs, mine = sage(2)
    device = after.edge_index.device
    assert_right(theirs.to(device), mine.to(device), after)
    assert are_fast(mine)


@pytest.mark.parametrize(
    "changed",
    [
        lambda batch: batch.apply(lambda tensor: tensor.flip(0)),
        lambda batch: batch.apply(lambda tensor: tensor.roll(1, 0) if tensor.ndim == 2 else tensor),
        lambda batch: batch.apply(lambda tensor: tensor.float()),
        lambda batch: batch.apply_(lambda tensor: tensor.zero_()),
        lambda batch: pickle.loads(pickle.dumps(batch)),
        lambda batch: copy.deepcopy(batch),
        lambda batch: batch.update({"edge_index": batch.edge_index.flip(1)}),
    ],
)
def test_what_drops_them(changed):
    assert hops_of(changed(batch_of())) is None


def test_an_edit_is_not_forgotten_by_moving():
    batch = batch_of()
    batch.edge_index[0, 0] = 0
    for moved in (batch.clone(), batch.to("cpu"), batch.apply(torch.clone)):
        assert hops_of(moved) is None


def test_loaders_that_do_not_trim_make_pygs_data():
    assert not isinstance(batch_of(trim=False), SampledData)


@pytest.mark.parametrize("where", [None, True, False])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_batches_made_under_inference_mode(where, prefetch):
    theirs, mine = sage(2)
    with torch.inference_mode():
        for batch in loader(filter_per_worker=where, prefetch=prefetch):
            for moved in (batch, batch.clone()):
                out = mine(moved.x, moved.edge_index)
                expected = theirs(batch.x, batch.edge_index.clone())[: len(out)]
                torch.testing.assert_close(out, expected)
        assert len(out) == batch.batch_size
    assert are_fast(mine)
    batch.edge_index[0, 0] = 0
    assert hops_of(batch) is None
