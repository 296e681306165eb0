"""What a call takes beside its result: stated and measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.sampling import scratch_bytes
from spsample.sparse import measured_pool

pytest.importorskip("spsample._core", reason="the compiled core is not built")


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize(
    "sampler",
    [sp.GraphSAGE([10, 5]), sp.GraphSAGE([10, 5], layout="subgraph"), sp.LADIES([64, 64]), sp.FastGCN([64, 64])],
    ids=str,
)
def test_the_pool_stays_within_the_result_and_the_stated_scratch(sampler: Any, edge_ids: bool) -> None:
    graph = sp.load_dataset("rmat:14,8").graph
    sp.clear_pool()
    with measured_pool() as memory:
        bulk = sp.bulk_sample(graph, np.arange(8192), sampler, batch_size=256, edge_ids=edge_ids, backend="cpu")
    output = sum(layer.nbytes for layer in bulk.layers)
    assert memory.peak_bytes <= 1.15 * output + scratch_bytes(graph, bulk, threads=64)
