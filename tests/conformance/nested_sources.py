"""Feature sources nested in one another at random, and what each of their gathers has to give: the plain source's bits.

On one rank, in threads as ranks and in jobs of processes alike: all of them draw `Nest`s, build them with `build`, and
let `agrees` gather from them.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from spsample.backends import get_backend
from spsample.comm import LocalCommunicator
from spsample.distributed import ProcessGrid
from spsample.features import (
    CachedFeatures,
    CopyPlan,
    DeviceFeatures,
    DiskFeatures,
    FeatureSource,
    FeatureStore,
    PartitionedFeatures,
    RoutedFeatures,
)
from spsample.features.cached import replacement_named
from spsample.features.disk import READS_AT_A_TIME
from spsample.features.formats import DTYPES, format_for
from spsample.reorder import reorder
from spsample.store import StoreWriter

STORED = ("float32", "float16", "float64", "int8", "int64", "bool")
"""Types of numbers that stand for themselves; `formats.DTYPES` has those that do not."""


class Wrapper(NamedTuple):
    """A cache or routes around a source: which, and the share of the rows that it keeps."""

    kind: str
    share: float


class Nest(NamedTuple):
    """Sources nested in one another: the innermost, and what is around it, from the inside to the outside.

    `numbers` is a type of `STORED`, or a coded one: ``"coded bfloat16"``.
    """

    base: str
    numbers: str
    shape: tuple[int, int]
    wrappers: tuple[Wrapper, ...]
    seed: int


class Place(NamedTuple):
    """Where a nest is built: a folder of this rank's own, its grid, and random numbers that all ranks share."""

    folder: Path
    grid: ProcessGrid
    rng: np.random.Generator


class Own(FeatureSource):
    """A source of a user's own: what the base asks for, and no more."""

    def __init__(self, x):
        self.num_rows, self.dim = x.shape
        self.store = FeatureStore(x)

    def _read(self, ids, out, at=None):
        self.store.gather(ids, out, at)


class Told(Own):
    """One that is told what comes, and refuses to be told what it is not asked for."""

    looks_ahead = True

    def __init__(self, x):
        super().__init__(x)
        self.known = []

    def _hint(self, batches):
        self.known = [] if batches is None else [*self.known, *map(np.array, batches)]


# ---------------------------------------------------------------------------------------------- the innermost sources


def rows_of(nest: Nest) -> np.ndarray:
    """The numbers, with those among them that conversions get wrong."""
    rng = np.random.default_rng([nest.seed, 0])
    x = rng.standard_normal(nest.shape) * 10.0 ** rng.integers(-3, 2, nest.shape)
    if nest.numbers in ("float32", "float16", "float64"):
        odd = rng.random(nest.shape) < 0.1
        x[odd] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 6e-8, 65504.0, -1e-7], int(odd.sum()))
    return x.astype(nest.numbers if coded_of(nest) is None else np.float32)


def coded_of(nest: Nest) -> str | None:
    """The name of the form in which numbers are coded; None where they stand for themselves."""
    return nest.numbers.removeprefix("coded ") if nest.numbers.startswith("coded ") else None


def form_of(x: np.ndarray, name: str) -> Any:
    return format_for(name, np.abs(x).max(axis=0, initial=0) if name == "int8" else None)


def plain_of(nest: Nest) -> FeatureStore:
    """The plain source, whose bits all others have to give."""
    x, coded = rows_of(nest), coded_of(nest)
    if nest.base == "sparse":
        x = thinned(x).toarray()
    if coded is None:
        return FeatureStore(x)
    form = form_of(x, coded)
    kept = form.encode(x)
    return FeatureStore(kept if nest.base == "disk" and not form.is_coded else form.decode(kept))


def thinned(x):
    x = x.astype(np.float32) if x.dtype == np.float16 else x  # which SciPy has not
    return sparse.csr_array(np.where(np.arange(x.size).reshape(x.shape) % 3 == 0, x, np.zeros((), x.dtype)))


def saved(x, folder):
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def stored(x, folder):
    """A store of features, of vertices with an edge or two."""
    n = len(x)
    with StoreWriter(folder / "store") as writer:
        writer.write("indptr", np.arange(n + 1))
        writer.write("indices", (np.arange(n) * 7 + 1) % n)
        writer.write("x", x)
    return folder / "store"


def moved(x, place):
    """The same with its rows in another order."""
    reorder(stored(x, place.folder), place.folder / "moved", place.rng.integers(0, 5, len(x)))
    return place.folder / "moved"


def on_disk(x, place, form=None):
    """As much in memory as is drawn."""
    share = place.rng.choice([0.0, 0.1, 0.5, 2.0])
    budget = 0 if share == 0 else int(share * x.nbytes) + READS_AT_A_TIME * (1 << 20) // 4
    path = stored(x, place.folder) if place.rng.random() < 0.3 else saved(x, place.folder)
    return DiskFeatures(path, budget, form=form, direct=bool(place.rng.random() < 0.5))


def coded_on_disk(x, place, name):
    form = form_of(x, name)
    return on_disk(form.encode(x), place, form)


def in_blocks(x, place, name=None):
    """In block rows, of vertices in order or dealt out, from memory or from a store."""
    n, blocks = len(x), place.grid.num_blocks
    parts = place.rng.integers(0, blocks, n) if place.rng.random() < 0.5 else None
    if place.rng.random() < 0.5:
        return PartitionedFeatures.of(x, place.grid, partition=parts, dtype=name)
    path = moved(x, place) if place.rng.random() < 0.5 else stored(x, place.folder)
    return FeatureStore.open(path, grid=place.grid, partition=parts, dtype=name)


BASES = {
    "array": lambda x, place: FeatureStore(x),
    "transposed": lambda x, place: FeatureStore(np.asfortranarray(x)),
    "sparse": lambda x, place: FeatureStore(thinned(x)),
    "map": lambda x, place: FeatureStore(np.load(saved(x, place.folder), mmap_mode="r")),
    "store": lambda x, place: FeatureStore.open(stored(x, place.folder)),
    "reordered": lambda x, place: FeatureStore.open(moved(x, place)),
    "disk": on_disk,
    "own": lambda x, place: Own(x),
    "told": lambda x, place: Told(x),
    "blocks": in_blocks,
}
CODED_BASES = {"disk": coded_on_disk, "blocks": in_blocks}


# ------------------------------------------------------------------------------------------------ what is around them


class OnHost(FeatureSource):
    """Features of a device as a source on the host, that any nest may be compared with."""

    def __init__(self, features, device):
        self.features, self.device = features, device
        self.num_rows, self.dim = features.shape
        self.source = features.source

    def __reduce__(self):
        return _read_back, (self.features,)

    def _read(self, ids, out, at=None):
        """By ids and places on the host, or on the device."""
        place = self.device.to_device if len(ids) % 2 and ids.dtype.kind == "i" else np.asarray
        at = None if at is None else place(at)
        there = self.device.to_device(out)
        assert self.features.gather(place(ids), there, at) is there
        out[...] = self.device.to_host(there)

    def _hint(self, batches):
        self.features.prefetch_hint(batches)

    @property
    def looks_ahead(self):
        return self.features.looks_ahead

    def duplicate(self):
        return OnHost(self.features.duplicate(), self.device)

    def close(self):
        self.features.close()


def _read_back(features):
    return OnHost(features, get_backend("cuda").device)


def on_device(source: Any, seed: int, comm: Any = None) -> DeviceFeatures:
    """Hot rows on a device in front of a source; ranks have others, and other numbers of them. Collective."""
    rng = np.random.default_rng([seed, 5, 0 if comm is None else comm.rank])
    return DeviceFeatures(source, float(rng.choice([0.0, 0.1, 0.5, 1.0])), rng.integers(0, 4, source.num_rows))


def cached(source: Any, wrapper: Wrapper, place: Place) -> CachedFeatures:
    """Ranks keep other rows, and other numbers of them; a lookahead cache on one may be a static one on another."""
    comm = place.grid.comm
    own = np.random.default_rng([int(place.rng.integers(1 << 30)), comm.rank])
    n, kind = source.num_rows, wrapper.kind
    if comm.rank == 1 and own.random() < 0.3:
        kind = "static"
    row_bytes = source.dim * source.stored_dtype.itemsize
    of_all, of_each = replacement_named(kind).map_bytes(n, row_bytes)
    rows = round(wrapper.share * n * own.choice([1, 1, 0.5]))
    budget = 0 if rows == 0 else of_all + rows * (row_bytes + of_each)
    return CachedFeatures(source, budget, own.integers(0, 4, n), replacement=kind)


def routed(source: Any, wrapper: Wrapper, place: Place) -> RoutedFeatures:
    """Copies anywhere: on some ranks none, on some all. Links that all cost the same, or each another price."""
    n, devices, rng = source.num_rows, place.grid.comm.size, place.rng
    sizes = rng.choice([0, n, int(wrapper.share * n), n // 3], devices)
    plan = CopyPlan.of([rng.permutation(n)[:size] for size in sizes], n)
    alpha = 0.5 if rng.random() < 0.4 else rng.choice([0.1, 0.2, 0.8, 1.0, 3.0], (devices, devices))
    return RoutedFeatures(source, plan, alpha, place.grid)


WRAPPERS = {"static": cached, "lookahead": cached, "routed": routed}


SIZES = st.sampled_from([60, 45, 20, 7, 2, 1])


def nests(num_rows: st.SearchStrategy[int] | None = None) -> st.SearchStrategy[Nest]:
    """Any base with any numbers, or coded ones where there are such, and up to three sources around it.

    Most rows are wide. The map of a cache that looks ahead takes more than all narrow rows, so that it would keep all.
    """
    wrapper = st.builds(
        Wrapper,
        st.sampled_from(["lookahead", "static", "routed", "lookahead"]),
        st.sampled_from([0.3, 0.1, 0.6, 0.0, 1.0]),
    )
    either = [(base, numbers) for base in BASES for numbers in STORED]
    either += [(base, f"coded {name}") for base in CODED_BASES for name in DTYPES]
    return st.builds(
        lambda base_and_numbers, *others: Nest(*base_and_numbers, *others),
        st.sampled_from(either),
        st.tuples(SIZES if num_rows is None else num_rows, st.sampled_from([40, 70, 1, 3])),
        st.sampled_from([2, 1, 3, 0]).flatmap(lambda count: st.tuples(*[wrapper] * count)),
        st.integers(0, 2**32 - 1),
    )


def takes_all_ranks(nest: Nest) -> bool:
    """Whether ranks gather from it together."""
    return nest.base == "blocks" or any(wrapper.kind == "routed" for wrapper in nest.wrappers)


def build(nest: Nest, folder: Path, comm: Any = None, replication: int = 1) -> Any:
    """The nest on the ranks of a communicator; each has a folder of its own. Collective."""
    comm = LocalCommunicator() if comm is None else comm
    own = folder / f"rank {comm.rank}"
    own.mkdir()
    place = Place(own, ProcessGrid(comm, replication), np.random.default_rng([nest.seed, 1]))
    x, coded = rows_of(nest), coded_of(nest)
    source = BASES[nest.base](x, place) if coded is None else CODED_BASES[nest.base](x, place, coded)
    for wrapper in nest.wrappers:
        source = WRAPPERS[wrapper.kind](source, wrapper, place)
    return source


# ----------------------------------------------------------------------------------------------------- what they give


def agrees(source: Any, plain: FeatureStore, seed: int, comm: Any = None, steps: int = 16) -> None:
    """Gather whatever may be asked for, announced or not, and compare each bit. All ranks take the same steps."""
    comm = LocalCommunicator() if comm is None else comm
    shared, own = np.random.default_rng([seed, 2]), np.random.default_rng([seed, 3, comm.rank])
    assert isinstance(source, FeatureSource)
    assert (source.num_rows, source.dim) == plain.shape
    coming: list[np.ndarray] = []
    for _ in range(steps):
        step = shared.choice(["announced", "other", "twin"], p=[0.75, 0.18, 0.07])
        if len(coming) < 2 and own.random() < 0.8:
            coming += told(source, plain.num_rows, own)
        if own.random() < 0.05:  # as a pass that is left, and perhaps begun again
            source.prefetch_hint(None)
            coming = coming if own.random() < 0.5 else []
            source.prefetch_hint(coming)
        elif coming and own.random() < 0.03:  # announced, and never asked for
            coming.pop(0)
        if step == "twin":
            source = twin_agrees(source, plain, own, comm)
            coming = [] if comm.size == 1 else coming
        ids = coming.pop(0) if step == "announced" and coming else ids_of(plain.num_rows, own)
        gathers_the_same(source, plain, ids, own)


def told(source, n, rng):
    """Announce some batches; gives their ids."""
    batches = [ids_of(n, rng) for _ in range(rng.integers(1, 4))]
    source.prefetch_hint(batches)
    return batches


def ids_of(n, rng):
    """With repeats or without, none, one, some or more than there are, of either type."""
    count = rng.choice([0, 1, n // 4, n // 3, n // 2, n, 2 * n])
    ids = rng.integers(0, n, count) if rng.random() < 0.5 else rng.permutation(n)[:count]
    return ids.astype(rng.choice([np.int32, np.int64]))


def gathers_the_same(source, plain, ids, rng):
    """Into new memory or into given one, as numbers or as they are stored; the rest of it is left as it was."""
    count = len(ids)
    dtype = rng.choice([np.dtype(np.float32), source.stored_dtype])
    extra = int(rng.integers(1, 4))
    way = rng.integers(4)
    if way == 0:
        same_bits(source.gather(ids), plain.gather(ids))
    elif way == 1:
        same_bits(source.gather(ids.tolist() if count else ids), plain.gather(ids))
    else:
        at = rng.permutation(count + extra)[:count].astype(rng.choice([np.int32, np.int64])) if way == 3 else None
        mine, its = (np.full((count + extra * (way == 3), plain.dim), 7, dtype) for _ in range(2))
        assert source.gather(ids, mine, at) is mine
        same_bits(mine, plain.gather(ids, its, at))


def facts(batch):
    """All arrays of a batch."""
    layers = [array for layer in batch.layers for array in (layer.adj.indptr, layer.adj.indices, layer.src_nodes)]
    return [np.array([batch.batch_id]), batch.seeds, batch.src_nodes, batch.input_id, batch.x, batch.y, *layers]


def same_batch(mine, its):
    for one, other in zip(facts(mine), facts(its), strict=True):
        same_bits(one, other)


def same_bits(mine, its):
    assert (mine.dtype, mine.shape) == (its.dtype, its.shape)
    np.testing.assert_array_equal(mine.view(np.uint8), its.view(np.uint8))


def twin_agrees(source, plain, rng, comm):
    """A duplicate gathers the same, and closing it leaves the source as it was; on one rank nests are pickled, too."""
    twin = source.duplicate()
    if twin is not source:
        gathers_the_same(twin, plain, ids_of(plain.num_rows, rng), rng)
        twin.close()
    return pickle.loads(pickle.dumps(source)) if comm.size == 1 and is_pickled(source) else source


def is_pickled(source: Any) -> bool:
    """Features in block rows are not, nor what is around them."""
    return not isinstance(innermost(source), PartitionedFeatures)


def innermost(source: Any) -> Any:
    while hasattr(source, "source"):
        source = source.source
    return source
