"""Communicators, grids, and graphs and features over them: ranks are threads, which fail together."""

from __future__ import annotations

import numpy as np
from case import Case

import spsample as sp
from spsample import comm
from spsample.comm import LocalCommunicator, Recorder, Traffic, all_gather_object, broadcast_object, run_threads
from spsample.features import CachedFeatures, CopyPlan, FeatureStore, PartitionedFeatures, RoutedFeatures
from spsample.loading import SamplerCount, samplers_for

TIMEOUT = 20.0


def fuzz_init(make, folder):
    sp.init(
        make.either(lambda: make.choice(["auto", "local"]), 0.3),
        **make.options(timeout=lambda: make.choice([None, 5, 0.5, 1e300, 10**400, float("inf"), -1, "3"])),
    )


def fuzz_run_threads(make, folder):
    size = make.either(lambda: make.integer(1, 4), 0.2)
    if isinstance(size, (int, np.integer)) and size > 8:
        return
    body = make.either(lambda: lambda ranks: ranks.rank, 0.2)
    if callable(body) and body in (int, len):  # which fail by themselves
        return
    run_threads(size, body, make.either(lambda: TIMEOUT, 0.2))


def exchange(make, ranks):
    """A collective call of words between ranks: arrays are the library's own, counts, roots and reductions are not."""
    array = np.arange(ranks.size * 2)
    counts = make.either(lambda: np.full(ranks.size, 2), 0.2)
    phase = {"phase": "fuzz"}
    make.choice(
        [
            lambda: ranks.all_to_all(array, **phase),
            lambda: ranks.all_to_all_v(array, counts, counts, **phase),
            lambda: ranks.all_gather(array, **phase),
            lambda: ranks.all_gather_v(array, np.full(ranks.size, 2 * ranks.size), **phase),
            lambda: ranks.all_reduce(array, make.either(lambda: make.choice(["sum", "max"]), 0.2), **phase),
            lambda: ranks.broadcast(array, make.either(lambda: 0, 0.2), **phase),
            lambda: ranks.split(0, make.choice([None, 0, -ranks.rank])),
            ranks.duplicate,
            ranks.barrier,
            lambda: broadcast_object(ranks, lambda: array),
            lambda: all_gather_object(ranks, {"rank": ranks.rank}),
        ]
    )()


def on_ranks(make, body):
    """The same on each of some ranks: values are drawn anew, and equal, on each."""
    seed = make.integer(0, 2**62)
    run_threads(make.choice([1, 2]), lambda ranks: body(type(make)(seed), ranks), TIMEOUT)


def fuzz_exchanges(make, folder):
    if make.chance(0.3):
        traffic = make.either(Traffic, 0.2)
        exchange(make, Recorder(make.either(LocalCommunicator, 0.2), traffic))
        return
    on_ranks(make, exchange)


def fuzz_grid(make, folder):
    if make.chance(0.2):
        sp.ProcessGrid(make.garbage())
    on_ranks(make, lambda make, ranks: sp.ProcessGrid(ranks, make.either(lambda: make.integer(1, 4), 0.3)).close())


def fuzz_shared_graphs(make, folder):
    def body(make, ranks):
        graph = make.sound_graph()
        grid = sp.ProcessGrid(ranks, 1)
        given = make.either(lambda: graph, 0.1)
        if make.chance(0.3):
            shared = sp.ReplicatedGraph(given, make.either(lambda: ranks, 0.05))
        else:
            algorithms = ["column", "stages", "oblivious"]
            shared = sp.PartitionedGraph.from_graph(
                given,
                make.either(lambda: grid, 0.05),
                **make.options(
                    algorithm=lambda: make.choice(algorithms),
                    replicate_hubs=lambda: make.choice([None, 100, "1KiB"]),
                    partition=lambda: make.spoilt(make.rng.integers(0, grid.num_blocks, graph.num_nodes)),
                ),
            )
        seeds = make.either(lambda: make.rng.integers(0, graph.num_nodes, 9))
        sp.bulk_sample(shared, seeds, make.either(make.sampler, 0.05), batch_size=make.either(lambda: 3))
        shared.close()

    on_ranks(make, body)


def fuzz_shared_loader(make, folder):
    def body(make, ranks):
        graph = make.sound_graph()
        grid = sp.ProcessGrid(ranks)
        parts = make.rng.integers(0, ranks.size, graph.num_nodes)
        if make.chance(0.5):
            shared = sp.ReplicatedGraph(graph, ranks)
            own = {"parts": lambda: make.spoilt(parts)}
        else:
            shared = sp.PartitionedGraph.from_graph(graph, grid, partition=parts)
            own = {}
        local = {"batches": "local", **make.options(0.7, **own)} if make.chance(0.4) else {}
        made = sp.BulkLoader(
            shared,
            make.either(lambda: make.rng.integers(0, graph.num_nodes, 20)),
            make.sound_sampler(),
            batch_size=make.either(lambda: 3),
            **make.options(
                bulk_size=lambda: make.choice([1, 4, "auto", np.array(3)]),
                memory_budget=lambda: make.choice(["1GiB", None]),
                prefetch=lambda: make.choice([0, 1]),
                features=lambda: shared_rows(make, graph.num_nodes, grid),
                fetch=lambda: make.choice(["batch", "bulk"]),
                device=lambda: make.choice([None, "cpu", "cuda:7"]),
            ),
            **local,
        )
        for _ in made:
            pass
        made.load_state_dict(made.state_dict())
        made.close()

    on_ranks(make, body)


def fuzz_factored_loader(make, folder):
    def body(make, ranks):
        graph = make.sound_graph()
        made = sp.FactoredLoader(
            make.either(lambda: sp.ReplicatedGraph(graph, ranks), 0.05),
            make.either(lambda: make.rng.integers(0, graph.num_nodes, 20), 0.1),
            make.either(make.sound_sampler, 0.05),
            batch_size=make.either(lambda: 3, 0.1),
            **make.options(
                sampler_ranks=lambda: make.choice([1, 1, 1, 2, 0]),
                step_batches=lambda: make.choice([None, 1, 3, 10**400]),
                bulk_size=lambda: make.choice([1, 4, "auto", np.array(3)]),
                queue_memory=lambda: make.choice(["1GiB", "1MiB", 100, -1]),
                memory_budget=lambda: make.choice(["1GiB", None, 1]),
                switches=lambda: make.chance(0.5),
                features=lambda: make.features(graph.num_nodes),
                labels=lambda: make.spoilt(make.rng.integers(0, 3, graph.num_nodes)),
                edge_ids=lambda: make.chance(0.5),
                drop_last=lambda: make.chance(0.5),
            ),
        )
        for _ in made:
            pass
        made.load_state_dict(made.state_dict())
        if make.chance(0.3):
            made.set_sampler_ranks(make.either(lambda: 1, 0.3))
        made.close()

    on_ranks(make, body)


def fuzz_samplers_for(make, folder):
    seconds = lambda: make.either(lambda: make.choice([1e-9, 0.1, 3, 1e300]), 0.3)  # noqa: E731
    count = samplers_for(make.either(lambda: make.choice([2, 5, 2**40]), 0.3), seconds(), seconds())
    SamplerCount(*count)


def shared_rows(make, n, grid):
    """Features of all ranks' own, or in block rows, cached on each or not."""
    rows = make.features(n)
    if make.chance(0.3):
        return rows
    source = PartitionedFeatures.of(rows, grid)
    if make.chance(0.3):
        return source
    replacement = make.choice(["static", "lookahead"])
    return CachedFeatures(source, make.choice([0, "4KiB"]), make.rng.random(n), replacement=replacement)


def fuzz_shared_features(make, folder):
    def body(make, ranks):
        grid = sp.ProcessGrid(ranks)
        features = PartitionedFeatures.of(
            make.features(9),
            make.either(lambda: grid, 0.05),
            **make.options(dtype=lambda: make.choice([None, "float32", "float16", "bfloat16", "int8"])),
        )
        if make.chance(0.4):
            features = cached_on_ranks(make, features)
        features.gather(make.either(lambda: make.spoilt(make.rng.integers(0, 9, 5)), 0.1))
        getattr(features, "source", features).close()

    on_ranks(make, body)


def cached_on_ranks(make, source):
    """Ranks may have budgets and scores of their own, and know other batches."""
    replacement = make.either(lambda: make.choice(["static", "lookahead"]), 0.1)
    budget = make.either(lambda: make.choice([0, "1KiB", "2KiB"]), 0.1)
    cached = CachedFeatures(source, budget, make.either(lambda: make.rng.random(9), 0.1), replacement=replacement)
    cached.prefetch_hint(make.either(lambda: [make.spoilt(make.rng.integers(0, 9, 5))], 0.1))
    return cached


def fuzz_opened_on_ranks(make, folder):
    make.sound_graph().save(folder / "shared", overwrite=True)
    path = make.choice([folder / "shared", make.path(folder)])

    def body(make, ranks):
        grid = sp.ProcessGrid(ranks)
        make.choice(
            [
                lambda: sp.PartitionedGraph.open(path, grid),
                lambda: PartitionedFeatures.open(path, make.either(lambda: grid, 0.1)),
                lambda: sp.FeatureStore.open(path, grid=make.either(lambda: grid, 0.1)),
            ]
        )()

    on_ranks(make, body)


def fuzz_communicators(make, folder):
    """Without a launcher."""
    timeout = make.either(lambda: 5.0, 0.3)
    make.choice(
        [
            lambda: comm.TorchCommunicator(make.either(lambda: None, 0.3), timeout),
            lambda: comm.MPICommunicator(make.garbage(), timeout),
        ]
    )()


def fuzz_routed_features(make, folder):
    def body(one, ranks):
        x = one.features(9)
        own = [one.spoilt(one.rng.permutation(9)[:3]) for _ in range(ranks.size)]
        plan = one.either(lambda: CopyPlan.of(own, one.choice([9, 9, 8])), 0.1)
        alpha = one.either(lambda: one.choice([0.5, 1, 0, one.rng.random((ranks.size, ranks.size))]), 0.2)
        routed = RoutedFeatures(one.either(lambda: FeatureStore(x), 0.1), plan, alpha, sp.ProcessGrid(ranks))
        routed.gather(one.either(lambda: one.spoilt(one.rng.integers(0, 9, 5)), 0.1))
        routed.duplicate().close()

    on_ranks(make, body)


CASES = {
    "init": Case(fuzz_init, (sp.init,)),
    "run_threads": Case(fuzz_run_threads, (run_threads,)),
    "exchanges": Case(fuzz_exchanges, (Recorder, Traffic, LocalCommunicator, comm.ThreadCommunicator)),
    "objects": Case(fuzz_exchanges, (all_gather_object, broadcast_object)),
    "communicators": Case(fuzz_communicators, (comm.TorchCommunicator, comm.MPICommunicator)),
    "grid": Case(fuzz_grid, (sp.ProcessGrid,)),
    "shared_graphs": Case(fuzz_shared_graphs, (sp.ReplicatedGraph, sp.PartitionedGraph), 2),
    "shared_loader": Case(fuzz_shared_loader, ()),
    "factored_loader": Case(fuzz_factored_loader, (sp.FactoredLoader,)),
    "samplers_for": Case(fuzz_samplers_for, (samplers_for, SamplerCount)),
    "shared_features": Case(fuzz_shared_features, (PartitionedFeatures,)),
    "routed_features": Case(fuzz_routed_features, (RoutedFeatures,)),
    "opened_on_ranks": Case(fuzz_opened_on_ranks, ()),
}
