"""Features near the trainer: stores, caches, disks, scores, and sums made once."""

from __future__ import annotations

import pickle

import numpy as np
from case import Case

import spsample as sp
from spsample.features import (
    CachedFeatures,
    DiskFeatures,
    FeatureStore,
    Lookahead,
    aggregate_features,
    aggregated_dim,
    register_score,
    score,
    score_names,
)

VERTICES = 9


def ids(make):
    """Of a batch."""
    return make.either(lambda: make.spoilt(make.rng.integers(0, VERTICES, 5)), 0.04)


def gathered(make, source):
    """Rows into new memory, or into memory that was given."""
    kind = make.integer(0, 3)
    if kind == 0:
        return source.gather(ids(make))
    out = make.either(
        lambda: np.zeros((make.choice([5, 5, 4]), source.dim), make.choice(["f4", "f4", "f8", "f2"])), 0.1
    )
    if kind == 1:
        return source.gather(ids(make), out)
    return source.gather(ids(make), out, make.either(lambda: make.spoilt(make.rng.permutation(5)), 0.1))


def fuzz_features(make, folder):
    store = FeatureStore(make.features(VERTICES))
    gathered(make, store)
    store.dim, store.shape, store.fingerprint(), store.stored_dtype


def workload(make):
    """What the score of a name is computed for."""
    return make.options(
        0.97,
        graph=lambda: sp.Graph.from_edge_index(make.rng.integers(0, VERTICES, (2, 20)), num_nodes=VERTICES),
        seeds=lambda: make.rng.integers(0, VERTICES, 4),
        sampler=make.sound_sampler,
        batch_size=lambda: 2,
    )


def cached(make, source):
    """By scores, or by the name of a score."""
    budget = make.either(lambda: make.choice([0, 400, "1KiB", "1MiB"]), 0.03)
    options = make.options(0.5, replacement=lambda: make.choice(["static", "lookahead", "lookahead"]))
    if make.chance(0.4):
        name = make.either(lambda: make.choice(["posterior", "out-degree", "presc"]), 0.05)
        budget = make.choice([budget, budget, "auto"])
        return CachedFeatures(source, budget, name, **options, **workload(make))
    return CachedFeatures(source, budget, make.either(lambda: make.spoilt(make.rng.random(VERTICES)), 0.03), **options)


def fuzz_cached_features(make, folder):
    """Caches of caches, told what comes next or not, copied and pickled."""
    source = make.either(lambda: FeatureStore(make.features(VERTICES)), 0.02)
    for _ in range(make.choice([1, 1, 2])):
        source = cached(make, source)
    if make.chance(0.6):
        known = [ids(make) for _ in range(make.integer(0, 3))]
        source.prefetch_hint(make.either(lambda: known, 0.1))
        for one in known:
            source.gather(one)
    gathered(make, source)
    if make.chance(0.3):
        source = pickle.loads(pickle.dumps(source))
    source.counts, source.cached_vertices, source.nbytes, repr(source)
    source.duplicate().close()


def fuzz_disk_features(make, folder):
    x = make.features(VERTICES)
    np.save(folder / "x.npy", x if isinstance(x, np.ndarray) else np.ones((VERTICES, 2)))
    path = make.choice([folder / "x.npy", make.path(folder)])
    options = make.options(
        name=lambda: make.choice(["x", "no"]),
        direct=lambda: make.chance(0.5),
    )
    made = DiskFeatures(path, make.either(lambda: make.choice([0, 1, 10**6, "1MiB", 10**400]), 0.1), **options)
    made.prefetch_hint(make.either(lambda: [ids(make)], 0.1))
    source = cached(make, made) if make.chance(0.3) else made
    gathered(make, source)
    made.close()


def fuzz_features_open(make, folder):
    make.sound_graph().save(folder / "store", overwrite=True)
    path = make.choice([make.path(folder), folder / "store"])
    FeatureStore.open(path, **make.options(name=lambda: make.choice(["x", "indices", "no"]), grid=lambda: None))


def fuzz_scores(make, folder):
    graph = make.sound_graph()
    seeds = make.rng.integers(0, graph.num_nodes, make.integer(0, 20))
    epochs = {"epochs": make.few(lambda: make.choice([1, 2, range(2), [0]]))} if make.chance(0.5) else {}
    options = make.options(
        random_seed=lambda: make.choice([0, 1, 10**400]),
        trace=lambda: [make.spoilt(seeds)],
    )
    score(
        make.either(lambda: make.choice(score_names()), 0.1),
        make.either(lambda: graph, 0.1),
        make.either(lambda: seeds, 0.1),
        make.either(make.sound_sampler, 0.1),
        make.either(lambda: make.choice([1, 3, 10**400]), 0.1),
        **epochs,
        **options,
    )


def fuzz_lookahead(make, folder):
    capacity = make.either(lambda: make.choice([0, 3, 9, 10**400]), 0.2)
    rule = Lookahead(make.either(lambda: make.rng.random(9), 0.2), capacity)
    rule.announce(make.few(lambda: make.either(lambda: make.rng.permutation(9)[:4], 0.3)))
    if rule.known:
        rule.step()


def fuzz_register_score(make, folder):
    name = make.either(lambda: make.choice(["out-degree", "presc"]), 0.5)
    if not isinstance(name, str):  # what is refused, whatever the method
        register_score(name, make.either(lambda: max, 0.5))


def fuzz_aggregated(make, folder):
    graph = make.sound_graph()
    n = graph.num_nodes
    aggregation = make.either(lambda: make.choice(["mean", "gcn"]), 0.1)
    features = make.either(lambda: make.choice([make.features, lambda n: FeatureStore(make.features(n))])(n), 0.1)
    wide = aggregated_dim(make.either(lambda: 3, 0.02), aggregation)
    options = make.options(
        0.3,
        out=lambda: np.zeros((n, min(wide, 9)), make.choice(["f4", "f4", "f8"])),
        memory_budget=lambda: make.choice(["1MiB", 1, 0, "x"]),
    )
    aggregate_features(make.either(lambda: graph, 0.1), features, aggregation, **options)


CASES = {
    "features": Case(fuzz_features, (FeatureStore,)),
    "cached_features": Case(fuzz_cached_features, (CachedFeatures,), 3),
    "disk_features": Case(fuzz_disk_features, (DiskFeatures,), 2),
    "features_open": Case(fuzz_features_open, ()),
    "scores": Case(fuzz_scores, (score, score_names), 2),
    "lookahead": Case(fuzz_lookahead, (Lookahead,)),
    "register_score": Case(fuzz_register_score, (register_score,)),
    "aggregated": Case(fuzz_aggregated, (aggregate_features, aggregated_dim)),
}
