"""The loader: order, batch ids, independence of bulk size, resumption, errors."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from scipy import sparse

import spsample as sp
from spsample.data import planted
from spsample.errors import DTypeError, InputError
from spsample.features import FeatureStore
from spsample.loading import BulkLoader
from spsample.sparse import keys

DATA = planted(300, degree=6, random_seed=1)
SEEDS = np.arange(0, 300, 3)
GRAPH = DATA.graph


def make(**changes):
    options = {"batch_size": 16, "bulk_size": 3, "features": DATA.x, "labels": DATA.y, "random_seed": 5}
    options.update(changes)
    sampler = options.pop("sampler", sp.GraphSAGE([3, 2]))
    return BulkLoader(options.pop("graph", DATA.graph), options.pop("seeds", SEEDS), sampler, **options)


def fingerprint(batch):
    """Everything a batch consists of, as plain lists."""
    layers = [
        [layer.adj.indptr.tolist(), layer.adj.indices.tolist(), layer.src_nodes.tolist()] for layer in batch.layers
    ]
    return [batch.batch_id, batch.seeds.tolist(), batch.src_nodes.tolist(), batch.y.tolist(), layers]


def epoch_of(loader):
    return [fingerprint(batch) for batch in loader]


def test_an_epoch_visits_every_seed_once():
    loader = make()
    batches = list(loader)
    assert len(loader) == len(batches) == 7
    assert [batch.batch_id for batch in batches] == list(range(7))
    assert [len(batch.seeds) for batch in batches] == [16] * 6 + [4]
    assert sorted(np.concatenate([batch.seeds for batch in batches])) == SEEDS.tolist()


def test_order_is_that_of_the_shuffling_law():
    seeds = np.concatenate([batch.seeds for batch in make()])
    assert seeds.tolist() == SEEDS[keys.shuffle(len(SEEDS), 5, 0)].tolist()


def test_without_shuffling_seeds_come_as_given():
    loader = make(shuffle=False)
    first, second = epoch_of(loader), epoch_of(loader)
    for epoch in (first, second):
        assert [seed for batch in epoch for seed in batch[1]] == SEEDS.tolist()
    assert first != second  # the samples are new


def test_features_and_labels_belong_to_the_vertices():
    for batch in make():
        assert batch.x.dtype == np.float32
        assert np.array_equal(batch.x, DATA.x[batch.src_nodes])
        assert np.array_equal(batch.y, DATA.y[batch.seeds])


@pytest.mark.parametrize("prefetch", [0, 1])
def test_drop_last_leaves_out_the_short_batch_alone(prefetch):
    loader = make(drop_last=True, prefetch=prefetch)
    assert len(loader) == loader.num_batches == 6
    for epoch in range(2):
        assert epoch_of(loader) == epoch_of_epoch(epoch)[:6]
    assert epoch_of(make(drop_last=True, batch_size=20)) == epoch_of(make(batch_size=20))
    few = make(drop_last=True, batch_size=101, prefetch=prefetch)
    assert (len(few), epoch_of(few), few.epoch) == (0, [], 1)
    assert len(list(make(drop_last=True).bulks(0))) == 2


def test_drop_last_belongs_to_the_state():
    loader = make(drop_last=True)
    batches = iter(loader)
    seen = [fingerprint(next(batches)) for _ in range(6)]
    resumed = make(drop_last=True, bulk_size=4)
    resumed.load_state_dict(loader.state_dict())
    assert seen + epoch_of(resumed) + epoch_of(resumed) == [b for e in range(2) for b in epoch_of_epoch(e)[:6]]
    with pytest.raises(InputError, match=r"^state: got \{'drop_last': True\}; expected \{'drop_last': False\}"):
        make().load_state_dict(loader.state_dict())


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, 2]), sp.LADIES([20, 20]), sp.FastGCN([20, 20])])
def test_bulk_size_changes_nothing(sampler):
    expected = epoch_of(make(sampler=sampler, bulk_size=1))
    for bulk_size in (2, 7, 100):
        assert epoch_of(make(sampler=sampler, bulk_size=bulk_size)) == expected


def test_epochs_advance_and_can_be_chosen():
    loader = make()
    epochs = [epoch_of(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    loader.set_epoch(1)
    assert epoch_of(loader) == epochs[1]
    assert loader.epoch == 2


def test_a_pass_left_early_starts_again():
    loader = make()
    first = fingerprint(next(iter(loader)))
    assert fingerprint(next(iter(loader))) == first


@pytest.mark.parametrize("delivered", [0, 1, 3, 5, 7])
def test_resumption(delivered):
    expected = [batch for epoch in range(2) for batch in epoch_of_epoch(epoch)]
    loader = make()
    batches = iter(loader)
    seen = [fingerprint(next(batches)) for _ in range(delivered)]
    resumed = make(bulk_size=4)
    resumed.load_state_dict(loader.state_dict())
    rest = epoch_of(resumed) + epoch_of(resumed)
    assert seen + rest == expected


def epoch_of_epoch(epoch):
    loader = make()
    loader.set_epoch(epoch)
    return epoch_of(loader)


def test_state_of_another_loader_is_refused():
    state = make().state_dict()
    with pytest.raises(InputError, match=r"^state: got .*'batch_size': 16"):
        make(batch_size=8).load_state_dict(state)
    with pytest.raises(InputError, match=r"^next_batch"):
        make().load_state_dict({**state, "next_batch": 8})
    with pytest.raises(InputError, match=r"^epoch"):
        make().load_state_dict({**state, "epoch": 2**64})
    with pytest.raises(InputError, match=r"'law_version': 0"):
        make().load_state_dict({**state, "law_version": 0})


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sampler": sp.GraphSAGE([3, 3])}, "sampler"),
        ({"sampler": sp.LADIES([3, 2])}, "sampler"),
        ({"seeds": SEEDS[::-1]}, "seeds_sha256"),
        ({"seeds": SEEDS[1:]}, "num_seeds"),
        ({"random_seed": 6}, "random_seed"),
        ({"shuffle": False}, "shuffle"),
        ({"graph": DATA.graph.with_self_loops()}, "num_edges"),
    ],
)
def test_state_of_other_batches_is_refused(changes, key):
    with pytest.raises(InputError, match=f"^state: got .*'{key}'.*; expected .*'{key}'"):
        make(**changes).load_state_dict(make().state_dict())


def test_states_that_are_none():
    for state in (None, 3, [1, 2]):
        with pytest.raises(DTypeError, match=r"^state: got an object of type"):
            make().load_state_dict(state)
    state = make().state_dict()
    for key in state.keys() - {"batches"}:  # without it: a state of a release that had shuffled batches alone
        loader = make()
        with pytest.raises(InputError, match=f"^state: got no '{key}'"):
            loader.load_state_dict({k: v for k, v in state.items() if k != key})
        assert loader.state_dict() == state
    assert json.loads(json.dumps(state)) == state


def test_seeds_are_copied():
    seeds = SEEDS.copy()
    loader, expected = make(seeds=seeds), epoch_of(make())
    seeds[:] = 0
    assert epoch_of(loader) == expected
    with pytest.raises(ValueError, match="read-only"):
        loader.seeds[0] = 1


def test_the_last_epoch():
    loader = make()
    loader.set_epoch(2**64 - 1)
    with pytest.raises(InputError, match=r"^epoch"):
        loader.set_epoch(2**64)


def test_features_may_be_a_store_sparse_or_missing():
    for features in (FeatureStore(DATA.x), sparse.csr_array(DATA.x)):
        batch = next(iter(make(features=features)))
        assert np.array_equal(batch.x, DATA.x[batch.src_nodes])
    batch = next(iter(make(features=None, labels=None)))
    assert batch.x is None
    assert batch.y is None


def test_a_source_that_is_not_derived_is_told_of_its_base():
    own = type("Own", (), {"num_rows": len(DATA.x), "dim": 3, "gather": lambda self, ids, out=None, at=None: out})
    with pytest.raises(DTypeError, match=r"^features: got an object of type Own; .* spsample.features.FeatureSource"):
        make(features=own())


def test_duplicate_seeds_are_merged_in_a_batch():
    batch = next(iter(make(seeds=[7, 3, 7, 3], shuffle=False)))
    assert batch.seeds.tolist() == [7, 3]
    assert batch.y.tolist() == DATA.y[[7, 3]].tolist()
    assert batch.minibatch.seed_inverse.tolist() == [0, 1, 0, 1]


def test_no_seeds_no_batches():
    loader = make(seeds=np.empty(0, dtype=np.int64))
    assert len(loader) == 0
    assert list(loader) == []


def test_time_is_taken():
    loader = make()
    list(loader)
    assert loader.seconds["sampling"] > 0
    assert loader.seconds["features"] > 0


@pytest.mark.parametrize(
    ("changes", "argument", "words"),
    [
        ({"seeds": [0, 300]}, "seeds", "300 at position 1"),
        ({"seeds": [0.5]}, "seeds", "float64"),
        ({"batch_size": 0}, "batch_size", "0"),
        ({"bulk_size": 0}, "bulk_size", "0"),
        ({"bulk_size": "all"}, "bulk_size", "all"),
        ({"bulk_size": 2.0}, "bulk_size", "2.0"),
        ({"features": DATA.x[:-1]}, "features", "299 rows"),
        ({"labels": DATA.y[:-1]}, "labels", "(299,)"),
        ({"labels": DATA.x[None]}, "labels", "(1, 300, 4)"),
        ({"graph": None}, "graph", "NoneType"),
        ({"graph": sp.Graph}, "graph", "type"),
        ({"sampler": None}, "sampler", "None"),
        ({"sampler": sp.GraphSAGE}, "sampler", "GraphSAGE"),
        ({"backend": "gpu"}, "backend", "'gpu'"),
        ({"shuffle": "no"}, "shuffle", "'no'"),
        ({"drop_last": 1}, "drop_last", "1"),
        ({"random_seed": 2**64}, "random_seed", str(2**64)),
    ],
)
def test_bad_arguments(changes, argument, words):
    with pytest.raises(InputError) as caught:
        make(**changes)
    assert caught.value.argument == argument
    assert words in caught.value.given


def test_a_state_loaded_during_a_pass_is_kept() -> None:
    loader = BulkLoader(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=2, bulk_size=3)
    states = []
    for batch in loader:
        states.append(loader.state_dict())
        if batch.batch_id == 2:
            loader.load_state_dict(states[0])
    assert [batch.batch_id for batch in loader] == [1, 2, 3]
    assert loader.epoch == 1


def test_an_epoch_chosen_during_a_pass_is_kept() -> None:
    loader = BulkLoader(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=2)
    for batch in loader:
        if batch.batch_id == 1:
            loader.set_epoch(10)
    assert loader.epoch == 10


def test_the_last_epoch_ends_quietly() -> None:
    loader = BulkLoader(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=2)
    loader.set_epoch(2**64 - 1)
    assert len(list(loader)) == 4
    assert loader.epoch == 2**64 - 1


def test_a_state_of_the_normalised_graph_is_refused() -> None:
    state = BulkLoader(GRAPH, range(8), sp.LADIES([2]), batch_size=2).state_dict()
    other = BulkLoader(GRAPH.normalized("row"), range(8), sp.LADIES([2]), batch_size=2)
    with pytest.raises(InputError, match="weighting"):
        other.load_state_dict(state)
    with pytest.raises(InputError, match="seeds_sha256"):
        other.load_state_dict({**other.state_dict(), "seeds_sha256": np.zeros(3)})


def test_a_copied_loader_keeps_its_seeds_read_only() -> None:
    copied = pickle.loads(pickle.dumps(BulkLoader(GRAPH, range(8), sp.GraphSAGE([2]), batch_size=2)))
    assert not copied.seeds.flags.writeable


def test_a_mask_stands_for_its_vertices() -> None:
    mask = np.zeros(300, bool)
    mask[SEEDS] = True
    assert epoch_of(make(seeds=mask)) == epoch_of(make())
    torch = pytest.importorskip("torch")
    assert epoch_of(make(seeds=torch.from_numpy(mask))) == epoch_of(make())
    with pytest.raises(InputError, match=r"^seeds: got a mask of shape \(299,\)"):
        make(seeds=mask[:-1])


def test_labels_may_be_rows() -> None:
    labels = np.arange(900).reshape(300, 3)
    for batch in make(labels=labels):
        assert np.array_equal(batch.y, labels[batch.seeds])


def test_positions_lead_back_to_the_seeds_given() -> None:
    for batch in make():
        assert np.array_equal(SEEDS[batch.input_id], batch.seeds)
    batch = next(iter(make(seeds=[7, 3, 7, 3], shuffle=False)))
    assert batch.input_id.tolist() == [0, 1]


def test_edge_ids_where_asked_for() -> None:
    assert all(layer.edge_ids is None for layer in next(iter(make())).layers)
    assert all(layer.edge_ids is not None for layer in next(iter(make(edge_ids=True))).layers)


def test_a_state_names_the_graph_where_its_content_is_known() -> None:
    loader, state = make(), make().state_dict()
    assert "graph_digest" in state
    known = {**state, "graph_digest": "a"}
    if state["graph_digest"] is None:
        loader.load_state_dict(known)  # this side does not know
    else:
        with pytest.raises(InputError, match="graph_digest"):
            loader.load_state_dict(known)


class TestPyg:
    """The subgraph layout as PyG's NeighborLoader gives it."""

    sampler = sp.GraphSAGE([3, 2], layout="subgraph")

    @pytest.mark.parametrize("prefetch", [0, 1])
    def test_attributes(self, prefetch: int) -> None:
        torch = pytest.importorskip("torch")
        pytest.importorskip("torch_geometric")
        loader = make(sampler=self.sampler, edge_ids=True, prefetch=prefetch).pyg()
        plain = list(make(sampler=self.sampler, edge_ids=True))
        batches = list(loader)
        assert len(loader) == len(batches) == len(plain)
        graph_edges = np.stack(
            [DATA.graph.indices, np.repeat(np.arange(300), DATA.graph.in_degrees())]
        )  # in the order of the graph
        ids = np.arange(DATA.graph.num_edges) if DATA.graph.edge_ids is None else DATA.graph.edge_ids
        by_id = graph_edges[:, np.argsort(ids)]
        for data, batch in zip(batches, plain, strict=True):
            assert data.n_id.tolist() == batch.src_nodes.tolist()
            assert torch.equal(data.x, torch.from_numpy(DATA.x[batch.src_nodes]))
            assert data.y.tolist() == DATA.y[batch.src_nodes].tolist()
            assert data.input_id.tolist() == batch.input_id.tolist()
            assert data.batch_size == len(batch.seeds)
            assert data.n_id[: data.batch_size].tolist() == SEEDS[data.input_id].tolist()
            assert sum(data.num_sampled_nodes) == data.num_nodes == len(data.n_id)
            assert sum(data.num_sampled_edges) == data.edge_index.shape[1]
            assert np.array_equal(by_id[:, data.e_id], data.n_id[data.edge_index].numpy())

    def test_state_and_epochs_are_the_loaders(self) -> None:
        pytest.importorskip("torch_geometric")
        loader = make(sampler=self.sampler).pyg()
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        rest = [data.n_id.tolist() for data in batches]
        resumed = make(sampler=self.sampler).pyg()
        resumed.load_state_dict({**loader.state_dict(), "epoch": 0, "next_batch": 2})
        assert [data.n_id.tolist() for data in resumed] == rest
        resumed.set_epoch(0)
        assert [data.n_id.tolist() for data in resumed][2:] == rest

    def test_blocks_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"^sampler: got GraphSAGE\(\[3, 2\]\)"):
            make().pyg()
