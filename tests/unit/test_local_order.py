"""Local batches: whose seeds they hold, in which order, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.errors import DTypeError, InputError
from spsample.loading.local_order import LocalBatches, ShuffledBatches, batches_of
from spsample.sampling.workload import sample_batches
from spsample.sparse import keys

GRAPH = sp.load_dataset("rmat:8,6").graph
N = GRAPH.num_nodes


@st.composite
def dealt(draw):
    """Parts with at least one seed each, on one rank or more for each part."""
    num_parts = draw(st.integers(1, 5))
    ranks = num_parts * draw(st.integers(1, 3))
    more = draw(st.lists(st.integers(0, num_parts - 1), max_size=60))
    parts = np.array(draw(st.permutations([*range(num_parts), *more])), np.int64)
    return parts, num_parts, ranks, draw(st.integers(1, 20))


@given(dealt(), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_every_seed_once_and_on_a_rank_of_its_part(case, random_seed, epoch):
    parts, num_parts, ranks, batch_size = case
    batches = LocalBatches(*case)
    ordered = batches.ordered(keys.shuffle(len(parts), random_seed, epoch))
    assert sorted(ordered.tolist()) == list(range(len(parts)))
    for i in range(batches.num_batches):
        part = i % ranks // (ranks // num_parts)
        assert (parts[ordered[batches.places(i, i + 1)]] == part).all()
    assert batches.num_batches % ranks == 0
    sizes = np.diff(batches.bounds(0, batches.num_batches)).reshape(-1, ranks)
    assert sizes.max() <= batch_size
    assert (np.ptp(sizes, axis=0) <= 1).all()  # smaller batches before empty ones
    assert -(-sizes.sum(axis=0).max() // batch_size) == batches.steps  # no more steps than the longest rank needs


@given(dealt(), st.integers(0, 2**64 - 1))
def test_equal_keys_give_equal_orders(case, epoch):
    """No state: epochs in between and other objects change nothing."""
    order = keys.shuffle(len(case[0]), 3, epoch)
    one, other = LocalBatches(*case), LocalBatches(*case)
    other.ordered(keys.shuffle(len(case[0]), 3, 0))
    assert np.array_equal(one.ordered(order), other.ordered(order))
    assert one.identity() == other.identity()


@given(dealt())
def test_a_part_keeps_the_order_of_the_epoch(case):
    parts, num_parts, ranks, _ = case
    batches, c = LocalBatches(*case), ranks // num_parts
    ordered = batches.ordered(np.arange(len(parts))[::-1].copy())
    own = [[] for _ in range(ranks)]
    for i in range(batches.num_batches):
        own[i % ranks] += ordered[batches.places(i, i + 1)].tolist()
    for part in range(num_parts):
        of_part = np.flatnonzero(parts == part)[::-1].tolist()
        assert [own[part * c + j] for j in range(c)] == [of_part[j::c] for j in range(c)]


@given(st.integers(0, 40), st.integers(1, 9), st.booleans())
def test_shuffled_batches_are_runs(seeds, batch_size, drop_last):
    batches = ShuffledBatches(seeds, batch_size, drop_last)
    order = np.arange(seeds)
    found = [batches.ordered(order)[batches.places(i, i + 1)].tolist() for i in range(batches.num_batches)]
    runs = [order[i : i + batch_size].tolist() for i in range(0, seeds, batch_size)]
    assert found == [run for run in runs if len(run) == batch_size or not drop_last]


SAMPLERS = [
    sp.GraphSAGE([3, 2]),
    sp.GraphSAGE([3, 2], layout="subgraph"),
    sp.LADIES([4, 5]),
    sp.LADIES([4], law="squared_count"),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@settings(max_examples=15)
@given(sizes=st.lists(st.integers(0, 6), max_size=9), data=st.data())
def test_batches_of_several_sizes_are_those_sampled_alone(sampler, backend, sizes, data):
    """Also empty ones, and seeds that repeat."""
    total = sum(sizes)
    seeds = np.array(data.draw(st.lists(st.integers(0, 9), min_size=total, max_size=total)), np.int64)
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    options = {"batch_size": 6, "backend": backend, "edge_ids": True, "random_seed": 2}
    bulk = sample_batches(GRAPH, seeds, sampler, first_batch=5, batch_ptr=ptr, **options)
    assert bulk.batch_ids.tolist() == list(range(5, 5 + len(sizes)))
    for i, minibatch in enumerate(bulk):
        own = seeds[ptr[i] : ptr[i + 1]]
        assert minibatch.seeds[minibatch.seed_inverse].tolist() == own.tolist()
        if len(own) == 0:
            assert [layer.adj.shape for layer in minibatch.layers] == [(0, 0)] * len(minibatch.layers)
            continue
        alone = sp.bulk_sample(GRAPH, own, sampler, first_batch=5 + i, **options)[0]
        for layer, expected in zip(minibatch.layers, alone.layers, strict=True):
            np.testing.assert_array_equal(layer.src_nodes, expected.src_nodes)
            np.testing.assert_array_equal(layer.edge_ids, expected.edge_ids)
            np.testing.assert_array_equal(layer.adj.indices, expected.adj.indices)


def test_repeated_seeds_of_uneven_batches_are_refused_by_name():
    ptr = np.array([0, 1, 1, 4])
    with pytest.raises(InputError, match=r"7 again at position 3, in batch 2 of the call"):
        sample_batches(GRAPH, [7, 7, 1, 7], SAMPLERS[0], batch_size=3, batch_ptr=ptr, duplicates="error")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batches": "near"}, "^batches: "),
        ({"batches": "shuffled", "parts": np.zeros(N, int)}, "^parts: got parts with batches='shuffled'"),
        (
            {"parts": np.zeros(N - 1, int)},
            r"^parts: got .*shape \(255,\); expected one integer per vertex of the graph",
        ),
        ({"parts": np.zeros(N)}, "^parts: got dtype float64"),
        ({"parts": np.zeros((N, 1), int)}, r"^parts: got .*shape \(256, 1\)"),
        ({"parts": np.full(N, -1)}, "^parts: got parts from -1 to -1 on 1 ranks"),
        ({"parts": np.arange(N) % 2}, "^parts: got parts from 0 to 1 on 1 ranks"),
        ({"drop_last": True}, "^drop_last: got True with batches='local'"),
        ({"seeds": []}, "^batches: got 'local', with no seeds in block row 0 of 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    options = {"seeds": range(20), "batches": "local", "batch_size": 4, **arguments}
    with pytest.raises((InputError, DTypeError), match=message):
        sp.BulkLoader(GRAPH, sampler=SAMPLERS[0], **options)


def test_a_part_without_seeds_is_refused():
    class TwoBlocks(sp.Graph):
        num_block_rows = 2

        def block_rows_of(self, vertices):
            return (vertices >= 128).astype(np.int64)

    graph = TwoBlocks(GRAPH.indptr, GRAPH.indices)
    with pytest.raises(InputError, match=r"^batches: got 'local', with no seeds in block row 1 of 2"):
        batches_of("local", None, graph, np.arange(20), 4, drop_last=False)


def loader(**options):
    given_options = {"batch_size": 7, "batches": "local", "random_seed": 4, **options}
    return sp.BulkLoader(GRAPH, np.arange(0, 200, 3), SAMPLERS[0], **given_options)


def test_on_one_rank_batches_are_of_one_size():
    sizes = [len(batch.seeds) for batch in loader()]
    assert sum(sizes) == 67
    assert set(sizes) == {6, 7}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2), st.integers(0, 10), st.sampled_from([None, "1GiB"]))
def test_bulks_prefetch_and_where_a_pass_was_resumed_change_nothing(bulk_size, prefetch, taken, budget):
    expected = [(b.batch_id, b.seeds.tolist(), b.src_nodes.tolist()) for b in loader()]
    one = loader(bulk_size=bulk_size, prefetch=prefetch, memory_budget=budget)
    batches = iter(one)
    found = [next(batches) for _ in range(taken)]
    state = one.state_dict()
    batches.close()
    other = loader(prefetch=prefetch)
    other.load_state_dict(state)
    found += list(other)
    assert [(b.batch_id, b.seeds.tolist(), b.src_nodes.tolist()) for b in found] == expected


def test_states_name_what_the_batches_are():
    local, shuffled = loader(), loader(batches="shuffled")
    state = local.state_dict()
    assert (state["batches"], state["ranks"], state["num_parts"]) == ("local", 1, 1)
    for one, other in ((local, shuffled), (shuffled, local)):
        with pytest.raises(
            InputError, match=r"^state: got the state of \w+ batches; expected the state of \w+ batches"
        ):
            one.load_state_dict(other.state_dict())
    with pytest.raises(InputError, match=r"^state: got no 'parts_sha256'"):
        local.load_state_dict({key: value for key, value in state.items() if key != "parts_sha256"})


def test_a_state_of_a_release_without_local_batches_is_one_of_shuffled_ones():
    old = {key: value for key, value in loader(batches="shuffled").state_dict().items() if key != "batches"}
    loader(batches="shuffled").load_state_dict(old)
    with pytest.raises(InputError, match="the state of shuffled batches"):
        loader().load_state_dict(old)


def test_a_bulk_beyond_the_plan_is_cut_between_batches():
    """Small budgets: parts of bulks are the same batches."""

    class Plan:
        def most_entries(self, batches):
            return 80

    one = loader(prefetch=0, bulk_size=64)
    one.plan = Plan()
    found = [batch.src_nodes.tolist() for batch in one]
    assert found == [batch.src_nodes.tolist() for batch in loader()]
    assert len(list(one.bulks(0))) > 1
