"""Loaders, and bulks on disk."""

from __future__ import annotations

import copy
from itertools import islice

import numpy as np
from case import Case

import spsample as sp
from spsample.features import CachedFeatures, FeatureStore
from spsample.loading import BulkFiles, DglLoader, PygLoader, bulk_arrays, load_bulk


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
            stage_threads=lambda: make.choice([None, "auto", "2,1", (1, "auto"), [2, 1, 3], "1,2,3,4", (True, 1)]),
            transform=lambda: make.choice([None, repr, repr, lambda batch: batch, 3]),
            prefetch_budget=lambda: make.choice([None, 1, "1KiB", "9" * 400]),
            features=lambda: features(make, n),
            fetch=lambda: make.choice(["batch", "bulk"]),
            batches=lambda: make.choice(["shuffled", "shuffled", "local"]),
            labels=lambda: make.spoilt(make.rng.integers(0, 3, n)),
            edge_ids=lambda: make.chance(0.5),
            shuffle=lambda: make.chance(0.5),
            random_seed=lambda: make.integer(0, 2**62),
            device=lambda: make.choice([None, None, "cpu", "cpu", "cpu", "meta", "cuda:7"]),
            backend=lambda: make.choice([None, "cpu", "reference"]),
        ),
        **make.options(0.1, parts=lambda: make.spoilt(np.zeros(n, np.int64))),
    )


def features(make, n):
    """Rows for n vertices, now and then cached by their next use."""
    rows = make.features(n)
    if make.chance(0.7):
        return rows
    replacement = make.choice(["static", "lookahead"])
    return CachedFeatures(FeatureStore(rows), make.choice([0, "4KiB"]), make.rng.random(n), replacement=replacement)


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


def fuzz_dgl(make, folder):
    made = make.either(lambda: loader(make, 0), 0.2)
    names = [make.either(lambda: "feat", 0.2) for _ in range(make.integer(0, 2))]
    found = make.choice([lambda: DglLoader(made, *names), lambda: made.dgl(*names) if hasattr(made, "dgl") else None])()
    len(found or ())


def bulk(make):
    graph = make.sound_graph()
    seeds = make.rng.integers(0, graph.num_nodes, make.integer(1, 20))
    return sp.bulk_sample(graph, seeds, make.sound_sampler(), batch_size=4, edge_ids=make.chance(0.3))


def fuzz_bulk_files(make, folder):
    where = make.path(folder) if make.chance(0.5) else folder / f"bulks-{make.integer(0, 3)}"
    facts = make.either(lambda: {"a": make.integer(0, 2)}, 0.1)
    files = BulkFiles(where, facts)
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
    "dgl_loader": Case(fuzz_dgl, (DglLoader,)),
    "bulk_files": Case(fuzz_bulk_files, (BulkFiles, bulk_arrays)),
    "load_bulk": Case(fuzz_load_bulk, (load_bulk,)),
}
