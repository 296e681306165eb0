"""Loaders, features, and bulks on disk."""

from __future__ import annotations

import copy
from itertools import islice

import numpy as np
from case import Case

import spsample as sp
from spsample.features import CachedFeatures, DiskFeatures, FeatureStore, register_score, score, score_names
from spsample.loading import BulkFiles, PygLoader, bulk_arrays, load_bulk


def loader(make, p=0.06):
    graph = make.sound_graph()
    n = graph.num_nodes
    seeds = lambda: make.choice([make.rng.integers(0, n, make.integer(0, 40)), make.rng.random(n) < 0.5])  # noqa: E731
    return sp.BulkLoader(
        make.either(lambda: graph, p / 4),
        make.either(seeds, p),
        make.either(make.sound_sampler, p / 4),
        batch_size=make.either(lambda: make.choice([1, 3, 10, 10**400]), p),
        **make.options(
            bulk_size=lambda: make.choice([1, 3, "auto", np.array(3), np.int64(2), 10**400]),
            memory_budget=lambda: make.choice(["1GiB", 1 << 30, None, "1", "9" * 400, "1e3"]),
            prefetch=lambda: make.choice([0, 1, 2]),
            features=lambda: make.features(n),
            labels=lambda: make.spoilt(make.rng.integers(0, 3, n)),
            edge_ids=lambda: make.chance(0.5),
            shuffle=lambda: make.chance(0.5),
            random_seed=lambda: make.integer(0, 2**62),
            backend=lambda: make.choice([None, "cpu", "reference"]),
        ),
    )


def fuzz_loader(make, folder):
    made = loader(make)
    len(made), repr(made)
    make.choice([lambda: list(islice(made, 3)), lambda: list(islice(made.bulks(0), 2)), lambda: copy.copy(made)])()
    made.close()


def fuzz_loader_states(make, folder):
    made = loader(make, 0)
    made.set_epoch(make.either(lambda: make.integer(0, 9), 0.3))
    state = made.state_dict()
    for key in list(state):
        if make.chance(0.1):
            state[key] = make.garbage()
        elif make.chance(0.03):
            del state[key]
    made.load_state_dict(make.either(lambda: state))
    list(islice(made.bulks(make.either(lambda: 0, 0.2), make.either(lambda: 0, 0.2)), 1))
    next(iter(made), None)


def fuzz_pyg(make, folder):
    made = make.either(lambda: loader(make, 0), 0.2)
    if isinstance(made, sp.BulkLoader) and make.chance(0.5):
        made.pyg()
    found = PygLoader(made)
    found.set_epoch(make.either(lambda: 1, 0.2))
    found.load_state_dict(make.either(found.state_dict, 0.2))


def fuzz_features(make, folder):
    store = FeatureStore(make.features(9))
    store.gather(make.either(lambda: make.spoilt(make.rng.integers(0, 9, 5)), 0.1))
    store.dim, store.num_nodes if hasattr(store, "num_nodes") else None


def fuzz_cached_features(make, folder):
    store = make.either(lambda: FeatureStore(make.features(9)), 0.1)
    budget = make.either(lambda: make.choice([0, 60, "1KiB", "auto"]), 0.2)
    if make.chance(0.5):
        name = make.either(lambda: make.choice(["posterior", "out-degree", "replay"]), 0.1)
        workload = make.options(
            0.9,
            graph=lambda: sp.Graph.from_edge_index(make.rng.integers(0, 9, (2, 20)), num_nodes=9),
            seeds=lambda: make.rng.integers(0, 9, 4),
            sampler=make.sound_sampler,
            batch_size=lambda: 2,
        )
        CachedFeatures(store, budget, name, **workload)
    cached = CachedFeatures(store, budget, make.either(lambda: make.spoilt(make.rng.random(9)), 0.2))
    cached.gather(make.either(lambda: make.spoilt(make.rng.integers(0, 9, 5)), 0.1))
    cached.duplicate().close()


def fuzz_disk_features(make, folder):
    x = make.features(9)
    np.save(folder / "x.npy", make.either(lambda: x, 0.1) if isinstance(x, np.ndarray) else np.ones((9, 2)))
    path = make.choice([folder / "x.npy", make.path(folder)])
    options = make.options(
        name=lambda: make.choice(["x", "no"]),
        page_rows=lambda: make.choice([1, 3, 4, 10**400]),
        direct=lambda: make.chance(0.5),
    )
    made = DiskFeatures(path, make.either(lambda: make.choice([0, 1, 10**6, "1MiB", 10**400]), 0.1), **options)
    made.announce(make.either(lambda: [make.spoilt(make.rng.integers(0, 9, 5))], 0.1))
    made.gather(make.either(lambda: make.spoilt(make.rng.integers(0, 9, 5)), 0.1))
    made.close()


def fuzz_features_open(make, folder):
    make.sound_graph().save(folder / "store", overwrite=True)
    path = make.choice([make.path(folder), folder / "store"])
    FeatureStore.open(path, **make.options(name=lambda: make.choice(["x", "indices", "no"]), grid=lambda: None))


def fuzz_scores(make, folder):
    graph = make.sound_graph()
    seeds = make.rng.integers(0, graph.num_nodes, make.integer(0, 20))
    options = make.options(
        epochs=lambda: make.choice([1, 2, range(2), [0]]),
        random_seed=lambda: make.choice([0, 1, 10**400]),
        trace=lambda: [make.spoilt(seeds)],
    )
    score(
        make.either(lambda: make.choice(score_names()), 0.1),
        make.either(lambda: graph, 0.1),
        make.either(lambda: seeds, 0.1),
        make.either(make.sound_sampler, 0.1),
        make.either(lambda: make.choice([1, 3, 10**400]), 0.1),
        **options,
    )


def fuzz_register_score(make, folder):
    name = make.either(lambda: make.choice(["out-degree", "presc"]), 0.5)
    if not isinstance(name, str):  # what is refused, whatever the method
        register_score(name, make.either(lambda: max, 0.5))


def bulk(make):
    graph = make.sound_graph()
    seeds = make.rng.integers(0, graph.num_nodes, make.integer(1, 20))
    return sp.bulk_sample(graph, seeds, make.sound_sampler(), batch_size=4, edge_ids=make.chance(0.3))


def fuzz_bulk_files(make, folder):
    where = make.path(folder) if make.chance(0.5) else folder / f"bulks-{make.integer(0, 3)}"
    facts = make.either(lambda: {"a": make.integer(0, 2)}, 0.1)
    files = BulkFiles(where, facts, make.either(lambda: make.choice(["npz", "arrow"]), 0.1))
    path = files.write(make.either(lambda: bulk(make), 0.1))
    files.next_batch()
    load_bulk(path)


def fuzz_load_bulk(make, folder):
    path = folder / "bulk.npz"
    np.savez(path, **bulk_arrays(make.either(lambda: bulk(make), 0.2)))
    load_bulk(make.choice([path, make.path(folder)]))


CASES = {
    "loader": Case(fuzz_loader, (sp.BulkLoader,), 3),
    "loader_states": Case(fuzz_loader_states, (), 2),
    "pyg_loader": Case(fuzz_pyg, (PygLoader,)),
    "features": Case(fuzz_features, (FeatureStore,)),
    "cached_features": Case(fuzz_cached_features, (CachedFeatures,)),
    "disk_features": Case(fuzz_disk_features, (DiskFeatures,)),
    "features_open": Case(fuzz_features_open, ()),
    "scores": Case(fuzz_scores, (score, score_names), 2),
    "register_score": Case(fuzz_register_score, (register_score,)),
    "bulk_files": Case(fuzz_bulk_files, (BulkFiles, bulk_arrays)),
    "load_bulk": Case(fuzz_load_bulk, (load_bulk,)),
}
