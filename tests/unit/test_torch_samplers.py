"""torch's samplers as the order of a `NeighborLoader`'s epochs."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import ImbalancedSampler  # noqa: E402

from spsample.errors import DTypeError, InputError  # noqa: E402
from spsample.pyg import NeighborLoader  # noqa: E402

N = 40
IDS = torch.arange(N).flip(0)[:20]  # 39, 38, ..., 20
DATA = Data(
    x=torch.arange(N).float()[:, None],
    y=(torch.arange(N) < 5).long(),
    edge_index=torch.randint(0, N, (2, 300), generator=torch.Generator().manual_seed(0)),
)


def loader_of(sampler=None, **options):
    return NeighborLoader(DATA, [2], **{"input_nodes": IDS, "batch_size": 4, "sampler": sampler, **options})


def positions_of(loader):
    """Positions among the input nodes that a pass visits."""
    batches = list(loader)
    assert len(batches) == len(loader)
    for batch in batches:
        assert torch.equal(batch.n_id[: batch.batch_size], loader.input_nodes[batch.input_id])
    return [i for batch in batches for i in batch.input_id.tolist()]


class Own:
    """Every second position, each pass one further."""

    def __init__(self):
        self.passes = 0

    def __len__(self):
        return 5

    def __iter__(self):
        self.passes += 1
        return iter(range(self.passes, self.passes + 10, 2))


def seeded(make, seed=3):
    return make(torch.Generator().manual_seed(seed))


SAMPLERS = {
    "weighted": lambda g: WeightedRandomSampler(torch.arange(20.0), 30, generator=g),
    "subset": lambda g: SubsetRandomSampler([7, 3, 5, 11, 2], generator=g),
    "random": lambda g: RandomSampler(range(20), generator=g),
    "tensors": lambda g: [torch.tensor(3), torch.tensor(1)],
    "own": lambda g: Own(),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_its_order_is_that_of_the_epoch(name):
    loader, twin = loader_of(seeded(SAMPLERS[name])), seeded(SAMPLERS[name])
    for _ in range(3):
        assert positions_of(loader) == [int(i) for i in twin]


def test_imbalanced_classes():
    torch.manual_seed(0)
    sampler = ImbalancedSampler((torch.arange(20) < 2).long(), num_samples=400)
    rare = sum(position < 2 for position in positions_of(loader_of(sampler, batch_size=50)))
    assert 150 < rare < 250  # of 400: half; without the sampler 40


def test_ranks_share_the_seeds():
    loaders = [loader_of(DistributedSampler(IDS, 2, rank, shuffle=True, seed=1)) for rank in (0, 1)]
    orders = []
    for epoch in (0, 1):
        for loader in loaders:
            loader.sampler.set_epoch(epoch)
        seen = [positions_of(loader) for loader in loaders]
        assert sorted(seen[0] + seen[1]) == list(range(20))
        orders.append(seen)
    assert orders[0] != orders[1]


def test_ranks_draw_neighbours_of_their_own():
    """With one seed of torch on all ranks, as Lightning's `seed_everything` sets it."""

    def edges_of(rank, random_seed):
        torch.manual_seed(0)
        sampler = DistributedSampler(range(1), 2, rank)
        one = loader_of(sampler, input_nodes=[5] * 20 + [6], batch_size=1, random_seed=random_seed)
        return [batch.e_id.tolist() for batch in one]

    assert edges_of(0, None) != edges_of(1, None)
    assert edges_of(0, 7) == edges_of(1, 7)


def test_an_order_is_asked_for_once_in_an_epoch():
    own = Own()
    loader = loader_of(own)
    assert own.passes == 0
    batches = iter(loader)
    next(batches)
    loader.state_dict()
    assert own.passes == 1
    next(iter(loader))  # that pass was left: this one is of the next epoch
    assert own.passes == 2
    assert next(batches).input_id.tolist() == [9]  # the pass before goes on with its order


def test_repeated_seeds_keep_their_places():
    loader = loader_of([4, 4, 4, 0, 4], batch_size=4, random_seed=0)
    batch = next(iter(loader))
    assert batch.n_id[:4].tolist() == [35, 35, 35, 39]
    edges = [batch.e_id[batch.edge_index[1] == place].tolist() for place in range(3)]
    assert edges[0] == edges[1] == edges[2]  # they share one sample
    assert Counter(positions_of(loader)) == {4: 4, 0: 1}


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_resumed_in_the_middle_bit_for_bit(stop, prefetch):
    loader = loader_of(seeded(SAMPLERS["weighted"]), prefetch=prefetch)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    file = io.BytesIO()
    torch.save(loader.state_dict(), file)
    rest = [batch.to_dict() for batch in batches]
    following = positions_of(loader)
    file.seek(0)
    torch.manual_seed(99)
    resumed = loader_of(seeded(SAMPLERS["weighted"], seed=8), bulk_size=2)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.state_dict()["next_batch"] == stop
    for one, other in zip(resumed, rest, strict=True):
        for key in ("n_id", "e_id", "input_id", "edge_index"):
            assert torch.equal(one[key], other[key]), key
    assert positions_of(resumed) != following  # its own generator decides the next epoch


@pytest.mark.parametrize("has_share", [False, True])
def test_a_state_taken_with_the_last_batch_goes_on_with_the_next_epoch(has_share):
    """Lightning takes its checkpoints there, and begins an epoch after them."""

    def make():
        torch.manual_seed(5)
        sampler = DistributedSampler(IDS, 2, 1, shuffle=True, seed=1) if has_share else seeded(SAMPLERS["weighted"])
        if has_share:
            sampler.set_epoch(3)
        return loader_of(sampler, random_seed=7), sampler

    loader, sampler = make()
    for number, _ in enumerate(loader, 1):
        if number == len(loader):
            state = loader.state_dict()
    if has_share:
        sampler.set_epoch(4)
    following = [batch.n_id.tolist() for batch in loader]
    resumed, other_sampler = make()
    if not has_share:
        positions_of(resumed)  # its generator stands where that of the first one does
    resumed.load_state_dict(state)
    if has_share:
        other_sampler.set_epoch(4)
    assert [batch.n_id.tolist() for batch in resumed] == following


def test_a_state_of_another_rank_gives_the_place_and_not_the_order():
    """Lightning loads the state of rank 0 on all ranks."""

    def make(rank):
        sampler = DistributedSampler(IDS, 2, rank, shuffle=True, seed=1)
        sampler.set_epoch(4)
        torch.manual_seed(5)
        return loader_of(sampler)

    first, other = make(0), make(1)
    whole = [batch.e_id.tolist() for batch in other]
    batches = iter(first)
    next(batches)
    resumed = make(1)
    torch.manual_seed(17)
    resumed.load_state_dict(first.state_dict())
    assert [batch.e_id.tolist() for batch in resumed] == whole[1:]


class Shared(DistributedSampler):
    """A rank's share of what another sampler draws, as Lightning wraps it."""

    def __init__(self, sampler, rank):
        super().__init__(sampler, 2, rank, shuffle=False)

    def __iter__(self):
        drawn = list(self.dataset)
        return (drawn[place] for place in super().__iter__())


def wrapped(name, rank, **options):
    make = SHARED[name]
    return loader_of(**{"batch_size": 3, **make(rank), **options})


SHARED = {
    "subset": lambda rank: {"sampler": Shared(seeded(lambda g: SubsetRandomSampler(range(20), generator=g)), rank)},
    "random": lambda rank: {"sampler": Shared(seeded(lambda g: RandomSampler(range(20), generator=g)), rank)},
    "without replacement": lambda rank: {
        "sampler": Shared(seeded(lambda g: WeightedRandomSampler([1.0] * 20, 20, False, generator=g)), rank)
    },
    "in batches": lambda rank: {
        "batch_size": 1,
        "batch_sampler": BatchSampler(
            Shared(seeded(lambda g: RandomSampler(range(20), generator=g)), rank), 3, drop_last=False
        ),
    },
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("stop", [0, 2, 4])
def test_after_a_resume_ranks_share_the_seeds_as_before(name, epochs, stop):
    """All ranks load the state of rank 0, in this epoch and later ones."""
    ranks = [wrapped(name, rank) for rank in (0, 1)]
    for loader in ranks:
        for _ in range(epochs):
            list(loader)
    passes = [iter(loader) for loader in ranks]
    seen = [[i for _ in range(stop) for i in next(one).input_id.tolist()] for one in passes]
    state = ranks[0].state_dict()
    resumed = [wrapped(name, rank) for rank in (0, 1)]
    for loader in resumed:
        loader.load_state_dict(state)
        loader.load_state_dict(state)  # twice is as once
    for one, loader in zip(seen, resumed, strict=True):
        one += positions_after(loader) if stop < len(loader) else []  # with the last batch the epoch has ended
    assert sorted(seen[0] + seen[1]) == list(range(20))
    for one in passes:
        list(one)
    for _ in range(2):
        following = [positions_of(loader) for loader in resumed]
        assert sorted(following[0] + following[1]) == list(range(20))
        if stop:
            assert following == [positions_of(loader) for loader in ranks]


def positions_after(loader):
    return [i for batch in loader for i in batch.input_id.tolist()]


def test_a_state_of_draws_that_is_none():
    loader = wrapped("subset", 0)
    state = loader.state_dict()
    assert "order" not in state
    for draws in (-1, 1.5, "two"):
        with pytest.raises(InputError, match=r"^draws"):
            loader.load_state_dict({**state, "draws": draws})


def test_an_order_of_the_epoch_before_is_not_of_this_one():
    own = Own()
    loader = loader_of(own)
    list(loader)
    assert loader.state_dict()["order"] is None
    loader.set_epoch(5)
    assert positions_of(loader) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("sampler", [np.array([3, 2]), torch.tensor([3, 2]), (3, 2), range(3, 1, -1)])
def test_arrays_are_samplers(sampler):
    assert positions_of(loader_of(sampler)) == [3, 2]
    with pytest.raises(ValueError, match=r"mutually exclusive with shuffle"):
        loader_of(sampler, shuffle=True)


def test_a_sampler_whose_length_changes():
    class Growing(Own):
        def __len__(self):
            return 5 + self.passes

        def __iter__(self):
            return iter(range(len(self)))

    sampler = Growing()
    loader = loader_of(sampler)
    sampler.passes = 3
    with pytest.raises(
        InputError, match=r"got more positions .*5, the length that the sampler had when the loader was"
    ):
        list(loader)


def test_states_of_other_orders_are_refused():
    states = {"sampler": loader_of([1, 2]).state_dict(), "shuffled": loader_of(shuffle=True).state_dict()}
    with pytest.raises(InputError, match=r"^state: .*'shuffle'.*sampler"):
        loader_of(shuffle=True).load_state_dict(states["sampler"])
    with pytest.raises(InputError, match=r"^state: got no 'num_positions'"):
        loader_of([1, 2]).load_state_dict(states["shuffled"])
    with pytest.raises(InputError, match=r"^state: .*num_positions"):
        loader_of([1, 2, 3]).load_state_dict(states["sampler"])
    for order in ([5], torch.tensor([1, 99]), torch.tensor([1.5, 2.0]), torch.tensor([1])):
        with pytest.raises(InputError):
            loader_of([1, 2]).load_state_dict({**states["sampler"], "order": order})


def test_a_loader_without_a_random_seed_goes_on_with_that_of_the_state():
    torch.manual_seed(1)
    loader = loader_of(shuffle=True)
    batches = iter(loader)
    next(batches)
    torch.manual_seed(2)
    resumed = loader_of(shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert [batch.e_id.tolist() for batch in resumed] == [batch.e_id.tolist() for batch in batches]
    with pytest.raises(InputError, match=r"^state: .*random_seed"):
        loader_of(shuffle=True, random_seed=3).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_batch_sampler_of_torch(drop_last):
    batch_sampler = BatchSampler(SequentialSampler(range(20)), 6, drop_last)
    loader = loader_of(None, batch_sampler=batch_sampler, batch_size=1)
    assert [batch.input_id.tolist() for batch in loader] == list(batch_sampler)
    assert len(loader) == len(batch_sampler)
    with pytest.raises(ValueError, match=r"mutually exclusive"):
        loader_of(None, batch_sampler=batch_sampler, batch_size=4)


class Uneven(BatchSampler):
    def __iter__(self):
        return iter([[0], [1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_sampler": [[1], [2, 3]], "batch_size": 1}, r"^batch_sampler: got \[\[1\], .*torch's BatchSampler"),
        ({"sampler": 3}, r"^sampler: got an object of type int without __iter__"),
        ({"sampler": iter([1, 2])}, r"^sampler: got an object of type list_iterator without a length"),
    ],
)
def test_refused_when_made(options, message):
    with pytest.raises(InputError, match=message):
        loader_of(**{"batch_size": 4, **options})


class Short(Own):
    def __iter__(self):
        return iter([1])


class Endless(Own):
    def __iter__(self):
        while True:
            yield 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sampler": [1, 20]}, InputError, r"^sampler: got 20 at position 1; expected positions among input_nodes in"),
        ({"sampler": [-1]}, InputError, r"^sampler: got -1"),
        ({"sampler": [1.5]}, DTypeError, r"^sampler: got 1.5; expected positions"),
        ({"sampler": [[1, 2]]}, DTypeError, r"^sampler: got \[1, 2\]"),
        ({"sampler": Short()}, InputError, r"^sampler: got 1 positions in an epoch; expected 5"),
        ({"sampler": Endless()}, InputError, r"^sampler: got more positions in an epoch; expected 5"),
        (
            {"batch_sampler": Uneven(range(5), 2, False), "batch_size": 1},
            InputError,
            r"^batch_sampler: got a batch of 1 positions; expected 2 in each but the last. Call loader\(positions\)",
        ),
    ],
)
def test_refused_when_drawn(options, error, message):
    with pytest.raises(error, match=message):
        list(loader_of(**options))


@pytest.mark.parametrize("nodes", [[], torch.zeros(N, dtype=torch.bool), torch.zeros(0, dtype=torch.int64), ()])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_input_nodes(nodes, shuffle):
    with pytest.raises(InputError, match=r"^input_nodes: got (no vertices|a mask that is true nowhere); expected at"):
        loader_of(input_nodes=nodes, shuffle=shuffle)
