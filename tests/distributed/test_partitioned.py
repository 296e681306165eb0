"""Bulks sampled on p ranks are those of one rank, bit for bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from partitioned_cases import GRAPHS, SAMPLERS, batches_of, divisors, gathered

import spsample as sp
from spsample.comm import run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid

TIMEOUT = 60


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("p", [1, 2, 3, 4, 6])
def test_partitioned_equals_local(graph, sampler, p):
    A = GRAPHS[graph]()
    seeds = np.random.default_rng(1).integers(0, A.num_nodes, 100)
    arguments = {"batch_size": 9, "random_seed": 5, "epoch": 2, "first_batch": 3, "edge_ids": True}
    if getattr(sampler, "weighted", None) and A.weighting == "unweighted":
        pytest.skip("needs weights")
    want = batches_of(sp.bulk_sample(A, seeds, sampler, **arguments))

    def body(comm, c, partition, hubs):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm, c), partition=partition, replicate_hubs=hubs)
        return batches_of(sp.bulk_sample(parts, seeds, sampler, **arguments))

    for c in divisors(p):
        for partition, hubs in ((None, None), (np.random.default_rng(0).integers(0, p // c, A.num_nodes), 1500)):
            got = gathered(run_threads(p, partial(body, c=c, partition=partition, hubs=hubs), TIMEOUT))
            assert got.keys() == want.keys()
            for i in want:
                for mine, other in zip(got[i], want[i], strict=True):
                    np.testing.assert_array_equal(mine, other)
                    assert mine.dtype == other.dtype
