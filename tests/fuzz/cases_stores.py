"""Stores, data sets, generators, conversions and partitions."""

from __future__ import annotations

import numpy as np
from case import Case

import spsample as sp
from spsample import data, features
from spsample.convert import ConvertOptions, convert
from spsample.reorder import reorder, restore
from spsample.store import GraphStore, StoreWriter


def fuzz_graph_files(make, folder):
    graph = make.sound_graph()
    place = folder / f"graph-{make.integer(0, 3)}"
    graph.save(make.choice([place, make.path(folder)]), **make.options(overwrite=lambda: True))
    where = make.choice([place, make.path(folder)])
    sp.Graph.open(where)


def fuzz_graph_options(make, folder):
    graph = make.sound_graph()
    make.choice(
        [
            lambda: graph.normalized(make.either(lambda: "row", 0.5)),
            lambda: graph.operand(make.either(lambda: "cpu", 0.5)),
            lambda: sp.Graph(graph.indptr, graph.indices, validate=make.either(lambda: True, 0.5)),
        ]
    )()


def fuzz_store(make, folder):
    make.sound_graph().save(folder / "store", overwrite=True)
    store = GraphStore.open(make.choice([folder / "store", make.path(folder)]))
    make.choice(
        [
            lambda: store.array(make.either(lambda: make.choice(["indptr", "no"]), 0.3)),
            lambda: store.features(make.either(lambda: make.choice(["x", "indices"]), 0.3)),
            store.graph,
            lambda: store.vertices.names(make.either(lambda: [0, 1], 0.3)),
            lambda: store.vertices.ids(make.either(lambda: [1, 0], 0.3)),
            store.verify,
        ]
    )()


def fuzz_writer(make, folder):
    with StoreWriter(make.path(folder), **make.options(overwrite=lambda: make.chance(0.5))) as writer:
        for _ in range(make.integer(0, 4)):
            name = make.either(lambda: make.choice(["indptr", "indices", "x", "a-b", ""]))
            shape = lambda: make.choice([3, (2, 2), (0,), 10**30, -1])  # noqa: E731
            dtype = lambda: make.choice(["i8", "f4", "O", "U3", "nothing"])  # noqa: E731
            make.choice(
                [
                    lambda n=name: writer.write(n, make.array()),
                    lambda n=name, s=shape, d=dtype: writer.create(n, make.either(d), make.either(s)),
                    lambda n=name: writer.shorten(n, make.either(lambda: 1, 0.3)),
                    lambda n=name: writer.discard(n),
                    lambda: writer.set(**{make.choice(["name", "metric", "format", "num_nodes"]): make.garbage()}),
                ]
            )()


def dataset(make):
    return data.planted(make.integer(20, 60), degree=3, num_classes=2)


def fuzz_planted(make, folder):
    made = data.planted(
        make.either(lambda: make.integer(4, 60), 0.1),
        **make.options(
            degree=lambda: make.integer(0, 9),
            num_classes=lambda: make.integer(1, 5),
            noise=lambda: make.choice([0, 0.5, 1.0, -0.1, float("nan")]),
            random_seed=lambda: make.integer(0, 2**62),
        ),
    )
    made.require_training_data()


def fuzz_changed_data(make, folder):
    made = make.either(lambda: dataset(make), 0.2)
    data.rewire(made, make.either(lambda: make.integer(0, 9), 0.2))
    data.scale_features(made, make.either(lambda: make.choice(["none", "rows", "standard", "x"]), 0.2))


def fuzz_save_dataset(make, folder):
    made = make.either(lambda: dataset(make), 0.2)
    options = make.options(overwrite=lambda: True)
    if isinstance(made, data.Dataset) and make.chance(0.3):
        made.save(make.path(folder), **options)
    data.save_dataset(made, make.path(folder), **options)


def fuzz_load_from(make, folder):
    options = make.options(root=lambda: make.path(folder), split=lambda: 0, random_seed=lambda: 1)
    data.load_dataset(make.choice([make.path(folder), "digits", "no-such-set"]), **options)


def fuzz_partitions(make, folder):
    graph = make.either(make.sound_graph)
    n = graph.num_nodes if isinstance(graph, sp.Graph) else 9
    count = make.either(lambda: make.choice([1, 2, 4, 10**400, 0]), 0.2)
    parts = make.either(lambda: make.spoilt(make.rng.integers(0, 2, n)), 0.2)
    train = {
        "seeds": lambda: make.either(lambda: make.rng.integers(0, max(n, 1), 5), 0.2),
        "hops": lambda: make.choice([1, 2, 3]),
    }
    if make.chance(0.4):
        data.partition_quality(graph, parts, count, **make.options(**train))
        return
    options = make.options(random_seed=lambda: make.integer(0, 9))
    if make.chance(0.3):
        data.metis_partition(graph, count, **options)
    else:
        method = make.either(lambda: make.choice(["metis", "metis-seeds", "pagraph", "ldg", "ranges", "random"]), 0.1)
        data.partition_vertices(graph, count, method, **options, **make.options(**train))


def fuzz_part_stores(make, folder):
    whole = make.either(lambda: data.planted(40, 3, 2))
    parts = make.either(lambda: make.spoilt(make.rng.integers(0, 2, 40)), 0.2)
    count, hops = make.either(lambda: make.choice([1, 2, 50]), 0.2), make.either(lambda: make.choice([1, 2]), 0.2)
    options = {"hops": hops, **make.options(evaluation=lambda: make.chance(0.5))}
    if make.chance(0.5):
        data.part_dataset(whole, parts, count, make.either(lambda: 1, 0.2), **options)
    else:
        path = make.path(folder)
        data.write_part_stores(whole, parts, count, path, **options)
        data.read_part(make.either(lambda: path, 0.2), make.either(lambda: 0, 0.2), make.either(lambda: count, 0.2))


def fuzz_copies(make, folder):
    devices, n = make.choice([1, 2, 3]), make.integer(1, 40)
    shape = make.choice([(n,), (n,), (devices, n), (2, n)])
    scores = make.either(lambda: make.spoilt(make.rng.random(shape)), 0.2)
    alpha = lambda: make.either(  # noqa: E731
        lambda: make.choice([0.5, 1, 2.0, 0, make.rng.random((devices, devices)), 10**400]), 0.2
    )
    count = make.either(lambda: make.choice([devices, devices, 0, -1]), 0.2)
    budget = make.either(lambda: make.choice([0, 1, n // 2, n, 10**400, -1]), 0.2)
    method = lambda: make.choice(["best-copies", "replicated", "interleaved", "song-jiang", "none"])  # noqa: E731
    objective = lambda: make.choice(["mean", "max", "least"])  # noqa: E731
    options = make.options(0.2, method=method, objective=objective, head=lambda: make.integer(0, 3))
    features.copy_cost(features.plan_copies(scores, count, budget, alpha(), **options), scores, alpha())
    own = [make.spoilt(make.rng.integers(0, n, 3)) for _ in range(devices)]
    features.copy_cost(features.CopyPlan.of(make.either(lambda: own), n), scores, alpha())


def fuzz_reorder(make, folder):
    whole = data.planted(make.integer(20, 40), 3, 2)
    where = folder / "whole"
    whole.save(where, overwrite=True)
    scores = make.either(lambda: make.spoilt(make.rng.random(whole.graph.num_nodes)), 0.1)
    target = make.choice([make.path(folder), folder / f"moved-{make.integer(0, 10**9)}"])
    source = make.choice([where, where, where, make.path(folder)])
    options = make.options(
        0.3,
        relabel=lambda: make.chance(0.5),
        exact=lambda: make.chance(0.5),
        name=lambda: "fuzz",
        memory_budget=lambda: make.choice([1 << 20, "1MiB", 1]),
    )
    made = reorder(source, target, scores, **options)
    back = make.choice([make.path(folder), folder / f"back-{make.integer(0, 10**9)}"])
    restore(make.either(lambda: made.path, 0.1), back, **make.options(0.1, memory_budget=lambda: "1MiB"))


def convert_options(make, folder):
    path = lambda: make.choice([None, folder / "none.npy", make.path(folder)])  # noqa: E731
    return ConvertOptions(
        **make.options(
            0.2,
            format=lambda: make.choice(["auto", "text", "npy", "int32"]),
            columns=lambda: make.choice([("0", "1"), ("0", "0"), ("a", "b", "c"), (1, 2), "01"]),
            weights=lambda: make.choice([None, "2", 2]),
            header=lambda: make.choice([None, True, False]),
            string_ids=lambda: make.chance(0.5),
            renumber=lambda: make.choice(["no", "sorted"]),
            num_nodes=lambda: make.choice([None, 50, 2**60]),
            symmetrise=lambda: make.chance(0.5),
            deduplicate=lambda: make.choice(["no", "sum", "first", "max"]),
            drop_self_loops=lambda: make.chance(0.5),
            add_self_loops=lambda: make.chance(0.5),
            edge_ids=lambda: make.chance(0.5),
            nodes=path,
            node_id=lambda: make.choice([None, "id", 2]),
            features=path,
            labels=path,
            splits=path,
            features_order=lambda: make.choice([None, "first-appearance", "ascending"]),
            memory_budget=lambda: make.choice([None, "1GiB", 1 << 30]),
            threads=lambda: make.choice([None, 1]),
            random_seed=lambda: make.choice([0, 2**70]),
            overwrite=lambda: True,
        )
    )


def fuzz_convert_options(make, folder):
    repr(convert_options(make, folder).merge)


def fuzz_convert(make, folder):
    source = folder / make.choice(["edges.txt", "edges.npy"])
    edges = make.rng.integers(0, 30, (make.integer(0, 40), 2))
    if source.suffix == ".npy":
        np.save(source, make.spoilt(edges))
    else:
        source.write_text("".join(f"{a} {b} 1.5\n" for a, b in edges))
    options = make.either(lambda: convert_options(make, folder), 0.1)
    convert(make.choice([source, make.path(folder)]), make.path(folder), options)


CASES = {
    "graph_files": Case(fuzz_graph_files, ()),
    "graph_options": Case(fuzz_graph_options, ()),
    "store": Case(fuzz_store, (GraphStore,)),
    "store_writer": Case(fuzz_writer, (StoreWriter,), 2),
    "planted": Case(fuzz_planted, (data.planted,)),
    "changed_data": Case(fuzz_changed_data, (data.rewire, data.scale_features)),
    "save_dataset": Case(fuzz_save_dataset, (data.save_dataset, data.Dataset)),
    "load_from": Case(fuzz_load_from, ()),
    "partitions": Case(fuzz_partitions, (data.partition_quality, data.metis_partition, data.partition_vertices)),
    "part_stores": Case(fuzz_part_stores, (data.part_dataset, data.read_part, data.write_part_stores)),
    "copies": Case(fuzz_copies, (features.CopyPlan, features.copy_cost, features.plan_copies)),
    "reorder": Case(fuzz_reorder, (reorder, restore)),
    "convert_options": Case(fuzz_convert_options, (ConvertOptions,)),
    "convert": Case(fuzz_convert, (convert,)),
}
