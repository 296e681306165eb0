"""Tiers of a device, and sources nested behind a graph on one: the bits of the plain source on the host."""

from __future__ import annotations

import numpy as np
from emulated_backend import emulated, needs_compiler
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nested_sources import STORED, Nest, Place, build, ids_of, moved, nests, plain_of, rows_of, same_bits, thinned

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
@given(
    nest=nests(st.just(GRAPH.num_nodes)),
    fetch=st.sampled_from(["batch", "bulk"]),
    prefetch=st.integers(0, 1),
    bulk_size=st.integers(1, 9),
)
def test_sources_behind_a_graph_on_a_device(emulated, tmp_path_factory, nest, fetch, prefetch, bulk_size):
    """Batches are sampled there; rows come from caches, disks and copies on its host."""
    options = {"batch_size": 32, "random_seed": 3}
    seeds, sampler = np.arange(0, GRAPH.num_nodes, 3), sp.GraphSAGE([3, 2])
    plain = sp.BulkLoader(GRAPH, seeds, sampler, features=plain_of(nest), prefetch=0, **options)
    expected = [batch for _ in range(2) for batch in plain]
    options |= {"features": build(nest, tmp_path_factory.mktemp("rows")), "fetch": fetch, "prefetch": prefetch}
    loader = sp.BulkLoader(GRAPH, seeds, sampler, backend="cuda", bulk_size=bulk_size, **options)
    for batch, its in zip((batch for _ in range(2) for batch in loader), expected, strict=True):
        np.testing.assert_array_equal(emulated.to_host(batch.src_nodes), its.src_nodes)
        same_bits(batch.x, its.x)
