"""Tiers of a device, and sources nested behind a graph on one: the bits of the plain source on the host."""

from __future__ import annotations

import numpy as np
from emulated_backend import emulated, needs_compiler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nested_sources import (
    STORED,
    Nest,
    OnHost,
    Place,
    agrees,
    build,
    ids_of,
    moved,
    nests,
    on_device,
    plain_of,
    rows_of,
    same_bits,
    thinned,
)

import spsample as sp
from spsample.comm import LocalCommunicator, run_threads
from spsample.data import load_dataset
from spsample.features import DeviceFeatures, PartitionedDeviceFeatures
from spsample.features.formats import DTYPES

pytestmark = needs_compiler
__all__ = ["emulated"]

GRAPH = sp.load_dataset("rmat:8,6").graph
KEPT = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


@KEPT
@given(
    base=st.sampled_from(["array", "sparse", "reordered"]),
    numbers=st.sampled_from([*STORED, *(f"coded {name}" for name in DTYPES)]),
    shape=st.tuples(st.integers(1, 60), st.integers(1, 5)),
    hot=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_tiers_of_a_device(emulated, tmp_path_factory, base, numbers, shape, hot, seed):
    """Rows on the device and in memory of its host, in every form; ids and places on either side."""
    nest = Nest("array" if base == "reordered" else base, numbers, shape, (), seed)
    rng = np.random.default_rng([seed, 4])
    x, plain = rows_of(nest), plain_of(nest)
    if base == "sparse":
        x = thinned(x)
    elif base == "reordered":
        place = Place(tmp_path_factory.mktemp("rows"), sp.ProcessGrid(LocalCommunicator()), rng)
        x = load_dataset(str(moved(x, place))).x
    coded = numbers.removeprefix("coded ") if "coded" in numbers else None
    source = DeviceFeatures(x, hot, rng.random(shape[0]), dtype=coded)
    gathers_the_same(emulated, source, plain, rng)


@KEPT
@given(
    numbers=st.sampled_from([*STORED, *(f"coded {name}" for name in DTYPES)]),
    shape=st.tuples(st.integers(1, 60), st.integers(1, 5)),
    grid=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_on_devices(emulated, tmp_path_factory, numbers, shape, grid, seed):
    """Block rows of ranks, each with a device."""
    nest, folder = Nest("blocks", numbers, shape, (), seed), tmp_path_factory.mktemp("rows")

    def body(comm):
        source = PartitionedDeviceFeatures(build(nest, folder, comm, grid[1]))
        gathers_the_same(emulated, source, plain_of(nest), np.random.default_rng([seed, comm.rank]))

    run_threads(grid[0], body)


def gathers_the_same(emulated, source, plain, rng):
    """Into new memory of the device and into given one; ids and places on either side."""
    n, dim = plain.shape
    for _ in range(4):
        ids = ids_of(n, rng)
        at = rng.permutation(len(ids) + 2)[: len(ids)]
        out = np.full((len(ids) + 2, dim), 7, np.float32)
        place = emulated.to_device if rng.random() < 0.5 else np.asarray
        same_bits(emulated.to_host(source.gather(place(ids))), plain.gather(ids))
        mine = source.gather(place(ids), emulated.to_device(out), place(at))
        same_bits(emulated.to_host(mine), plain.gather(ids, out, at))


@KEPT
@given(nest=nests())
def test_a_device_over_a_nest(emulated, tmp_path_factory, nest):
    """Hot rows on the device, the others from memory, caches, disks, copies; told what comes, pickled, duplicated."""
    features = on_device(build(nest, tmp_path_factory.mktemp("rows")), nest.seed)
    agrees(OnHost(features, emulated), plain_of(nest), nest.seed)


@KEPT
@given(nest=nests(), grid=st.sampled_from([(2, 1), (3, 1), (4, 2)]))
def test_devices_over_nests_on_ranks(emulated, tmp_path_factory, nest, grid):
    """A rank whose rows all lie on its device takes part in what the others fetch."""
    folder, plain = tmp_path_factory.mktemp("rows"), plain_of(nest)

    def body(comm):
        features = on_device(build(nest, folder, comm, grid[1]), nest.seed, comm)
        agrees(OnHost(features, emulated), plain, nest.seed, comm)

    run_threads(grid[0], body, 60.0)


LOADED = given(
    nest=nests(st.just(GRAPH.num_nodes)),
    fetch=st.sampled_from(["batch", "bulk"]),
    prefetch=st.integers(0, 1),
    bulk_size=st.integers(1, 9),
)
CALL = {"seeds": np.arange(0, GRAPH.num_nodes, 3), "sampler": sp.GraphSAGE([3, 2]), "batch_size": 32, "random_seed": 3}


@KEPT
@LOADED
def test_sources_behind_a_graph_on_a_device(emulated, tmp_path_factory, nest, fetch, prefetch, bulk_size):
    """Batches are sampled there; rows come from caches, disks and copies on its host."""
    features = build(nest, tmp_path_factory.mktemp("rows"))
    options = {"fetch": fetch, "prefetch": prefetch, "bulk_size": bulk_size}
    loader = sp.BulkLoader(new_graph(), features=features, backend="cuda", **options, **CALL)
    for batch, its in zip((batch for _ in range(2) for batch in loader), epochs_of(nest), strict=True):
        np.testing.assert_array_equal(emulated.to_host(batch.src_nodes), its.src_nodes)
        same_bits(batch.x, its.x)


@KEPT
@LOADED
def test_batches_with_a_device_over_a_nest(emulated, tmp_path_factory, nest, fetch, prefetch, bulk_size):
    """Rows are on the device, with the batches that are sampled there."""
    features = on_device(build(nest, tmp_path_factory.mktemp("rows")), nest.seed)
    options = {"fetch": fetch, "prefetch": prefetch, "bulk_size": bulk_size}
    loader = sp.BulkLoader(sp.DeviceGraph(GRAPH), features=features, **options, **CALL)
    for batch, its in zip((batch for _ in range(2) for batch in loader), epochs_of(nest), strict=True):
        np.testing.assert_array_equal(emulated.to_host(batch.src_nodes), its.src_nodes)
        same_bits(emulated.to_host(batch.x), its.x)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@LOADED
def test_batches_of_ranks_with_devices_over_nests(emulated, tmp_path_factory, nest, fetch, prefetch, bulk_size):
    """Each rank gets its share of the batches of one."""
    folder, expected, shared = tmp_path_factory.mktemp("rows"), epochs_of(nest), new_graph()

    def body(comm):
        features = on_device(build(nest, folder, comm), nest.seed, comm)
        options = {"fetch": fetch, "prefetch": prefetch, "bulk_size": 2 * bulk_size}
        graph = sp.ReplicatedGraph(shared, comm)
        loader = sp.BulkLoader(graph, features=features, backend="cuda", **options, **CALL)
        found = [{batch.batch_id: batch.x for batch in loader if len(batch.seeds)} for _ in range(2)]
        loader.close()
        return found

    of_ranks = run_threads(2, body, 60.0)
    for number, its in enumerate(expected):
        epoch, step = divmod(number, len(expected) // 2)
        rows = next(found[epoch][its.batch_id] for found in of_ranks if its.batch_id in found[epoch])
        assert its.batch_id == step
        same_bits(emulated.to_host(rows), its.x)


def new_graph():
    """Without the copy that a graph keeps on the device of the test before."""
    return sp.Graph(GRAPH.indptr, GRAPH.indices)


def epochs_of(nest):
    """The batches of two epochs, with the features of the plain source on the host."""
    plain = sp.BulkLoader(GRAPH, features=plain_of(nest), prefetch=0, **CALL)
    return [batch for _ in range(2) for batch in plain]
