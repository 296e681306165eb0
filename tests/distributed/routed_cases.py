"""Routed features on ranks, and what each of their gathers has to give: in threads and in jobs of processes."""

from __future__ import annotations

import numpy as np

from spsample.distributed import ProcessGrid
from spsample.features import CachedFeatures, CopyPlan, FeatureStore, PartitionedFeatures, RoutedFeatures

DTYPES = (np.float32, np.float16, np.float64, np.int8)


def rows_of(n, dim, dtype, seed):
    return (np.random.default_rng(seed).standard_normal((n, dim)) * 50).astype(dtype)


def plan_of(n, devices, seed):
    """Copies anywhere: on some ranks none, on some all."""
    rng = np.random.default_rng([seed, 1])
    sizes = rng.choice([0, n, *rng.integers(0, n + 1, 4)], devices)
    return CopyPlan.of([rng.permutation(n)[:size] for size in sizes], n)


def links_of(devices, seed):
    """One alpha for all links or one for each, of those that are never used too."""
    rng = np.random.default_rng([seed, 2])
    if rng.random() < 0.4:
        return float(rng.choice([0.1, 0.5, 1.0, 2.0]))
    return rng.choice([0.1, 0.2, 0.8, 1.0, 3.0], (devices, devices))


def source_of(kind, x, grid):
    if kind == "host":
        return FeatureStore(x)
    source = PartitionedFeatures.of(x, grid)
    return source if kind == "owners" else CachedFeatures(source, "1KiB", np.arange(len(x)))


def routed_on(comm, x, c=1, kind="owners", seed=0):
    grid = ProcessGrid(comm, c)
    plan, alpha = plan_of(len(x), comm.size, seed), links_of(comm.size, seed)
    return RoutedFeatures(source_of(kind, x, grid), plan, alpha, grid)


def gathers_right(comm, routed, x, seed):
    """Ids of this rank's own, with repeats or none, into new memory and into given one."""
    rng = np.random.default_rng([seed, comm.rank])
    n, dim = x.shape
    local = FeatureStore(x)
    for count in rng.choice([0, 1, n, 3 * n], 3):
        ids, at = rng.integers(0, n, count), rng.permutation(count + 2)[:count]
        np.testing.assert_array_equal(routed.gather(ids), local.gather(ids), strict=True)
        for dtype in (np.float32, routed.stored_dtype):
            out = np.full((count + 2, dim), 7, dtype)
            assert routed.gather(ids, out, at) is out
            np.testing.assert_array_equal(out[at], x[ids].astype(dtype))
            assert (np.delete(out, at, axis=0) == 7).all()
