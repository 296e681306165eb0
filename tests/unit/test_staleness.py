"""The bound on how old the weights of a gradient may be, and gradients that are added in the order of batches."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from spsample.comm import run_threads  # noqa: E402
from spsample.errors import DTypeError, InputError  # noqa: E402
from spsample.pipelines.asynchronous import Apply, Grant, StalenessBound  # noqa: E402
from spsample.pipelines.gradients import CommunicatorGradients  # noqa: E402
from spsample.training import FactoredGradients  # noqa: E402

SCHEDULES = 100_000


def run_schedule(seed):
    """Ranks train random numbers of batches; one at random asks for weights, or its gradient comes.

    The staleness is counted anew: updates between the grant of weights and the gradient of the rank that got them.
    """
    draw = random.Random(seed)
    ranks, bound = draw.randint(1, 8), draw.randint(0, 16)
    rule = StalenessBound(bound)
    left = [draw.randint(1, 2) for _ in range(ranks)]
    total = sum(left)
    granted, computing, wanting = {}, set(), set()
    able = list(range(ranks))  # may act: want weights, or push
    updates = largest = 0
    while able:
        rank = able.pop(draw.randrange(len(able)))
        if rank in computing:
            computing.remove(rank)
            left[rank] -= 1
            if left[rank]:
                able.append(rank)  # it wants new weights before its gradient is applied
            events = rule.came(rank)
        else:
            wanting.add(rank)
            events = rule.want(rank)
        for event in events:
            if isinstance(event, Grant):
                wanting.remove(event.rank)
                assert event.rank not in granted
                assert event.version == updates
                granted[event.rank] = updates
                computing.add(event.rank)
                able.append(event.rank)
            else:
                late = updates - granted.pop(event.rank)
                assert late == event.staleness <= bound, (seed, late)
                updates += 1
                largest = max(largest, late)
    assert updates == rule.version == total, (seed, left)
    assert rule.largest == largest
    assert not granted
    assert not wanting


@pytest.mark.slow
def test_the_bound_is_never_passed():
    """In 10^5 schedules of 1 to 8 ranks and bounds from 0 to 16; all ranks finish."""
    for seed in range(SCHEDULES):
        run_schedule(seed)


def test_staleness_that_is_allowed_is_used():
    """A rank may be late by as much as the bound says: the rule does not only take turns."""
    rule = StalenessBound(2)
    assert [rule.want(rank) for rank in range(4)] == [[Grant(0, 0)], [Grant(1, 0)], [Grant(2, 0)], []]
    assert rule.came(2) == [Apply(2, 0), Grant(3, 1)]
    assert rule.came(3) == []
    assert rule.came(0) == [Apply(0, 1)]
    assert rule.came(1) == [Apply(1, 2), Apply(3, 2)]


def test_a_rank_whose_gradient_waits_gets_no_weights():
    rule = StalenessBound(1)
    assert rule.want(0) + rule.want(1) == [Grant(0, 0), Grant(1, 0)]
    assert rule.came(1) == [Apply(1, 0)]
    assert rule.want(1) == [Grant(1, 1)]
    assert rule.came(1) == []  # that of rank 0 would be two updates late
    assert rule.want(1) == []
    assert rule.came(0) == [Apply(0, 1), Apply(1, 1), Grant(1, 3)]


def test_a_step_that_failed_is_forgotten():
    rule = StalenessBound(0)
    assert rule.want(0) == [Grant(0, 0)]
    assert rule.want(1) == []
    rule.start_anew()
    assert rule.want(1) == [Grant(1, 0)]
    assert rule.came(1) == [Apply(1, 0)]


@pytest.mark.parametrize("bound", [-1, 1.5, "much"])
def test_bounds_that_cannot_be(bound):
    with pytest.raises(InputError, match="staleness: got"):
        StalenessBound(bound)


# ------------------------------------------------------------------------------------------- gradients in order


def linear():
    """The same on all ranks, which are threads and share torch's generator."""
    model, draw = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 1)), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.normal(size=tuple(parameter.shape))))
    return model


INPUTS = [torch.from_numpy(np.random.default_rng(n).normal(size=(n + 1, 5)).astype(np.float32)) for n in range(7)]


def loss_of(model, batch):
    return (model(INPUTS[batch]) ** 2).mean()


def bits(model):
    return [parameter.grad.numpy().tobytes() for parameter in model.parameters()]


def of_own_batches(batches):
    def body(comm):
        model = linear()
        gradients = CommunicatorGradients(model, comm)
        loss = loss_of(model, comm.rank)
        gradients.prepare(loss)
        return gradients.finish(loss, len(INPUTS[comm.rank])), bits(model)

    return run_threads(batches, body, 20.0)[0]


OF_RANKS_WITH_A_BATCH_EACH = {batches: of_own_batches(batches) for batches in (2, 4, 7)}


@settings(max_examples=30)
@given(st.sampled_from([2, 4, 7]), st.integers(1, 5), st.data())
def test_bits_do_not_depend_on_who_trained_what(batches, ranks, data):
    """Nor on the order in which a rank trained them."""
    order = data.draw(st.permutations(range(batches)))
    owners = {batch: data.draw(st.integers(0, ranks - 1)) for batch in order}

    def body(comm):
        model = linear()
        gradients = FactoredGradients(model, comm)
        for batch in (batch for batch in order if owners[batch] == comm.rank):
            loss = loss_of(model, batch)
            gradients.prepare(loss)
            gradients.keep(10 + batch, loss, len(INPUTS[batch]))
        return gradients.finish_step(), bits(model)

    for told in run_threads(ranks, body, 20.0):
        assert told == OF_RANKS_WITH_A_BATCH_EACH[batches]


def test_gradients_that_are_dropped_count_for_nothing():
    def body(comm):
        model = linear()
        gradients = FactoredGradients(model, comm)
        for batch in (3, comm.rank):
            gradients.drop()
            loss = loss_of(model, batch)
            gradients.prepare(loss)
            gradients.keep(batch, loss, len(INPUTS[batch]))
        return gradients.finish_step(), bits(model)

    assert run_threads(2, body, 20.0) == [OF_RANKS_WITH_A_BATCH_EACH[2]] * 2


def test_a_step_without_batches_changes_nothing():
    def body(comm):
        gradients = FactoredGradients(model := linear(), comm)
        return gradients.finish_step(), [parameter.grad.abs().sum().item() for parameter in model.parameters()]

    assert run_threads(2, body, 20.0) == [((0.0, 0), [0.0] * 4)] * 2


def test_models_and_communicators_are_some():
    with pytest.raises(DTypeError, match="model: got"):
        FactoredGradients(0.5, 3)
    with pytest.raises(DTypeError, match="comm: got"):
        FactoredGradients(linear(), 3)
