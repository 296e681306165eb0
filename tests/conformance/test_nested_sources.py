"""Feature sources nested in any order give the bits of the plain one, whatever is asked for and announced."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nested_sources import agrees, build, nests, plain_of, same_batch

import spsample as sp
from spsample.reorder import reorder

GRAPH = sp.load_dataset("rmat:8,6").graph
SAMPLERS = (sp.GraphSAGE([3, 2]), sp.LADIES([20, 20]), sp.GraphSAGE([3, 2], layout="subgraph"))


@settings(max_examples=150)
@given(nest=nests())
def test_nests_have_the_bits_of_the_plain_source(tmp_path_factory, nest):
    agrees(build(nest, tmp_path_factory.mktemp("rows")), plain_of(nest), nest.seed)


@pytest.fixture(scope="module")
def reordered(tmp_path_factory):
    """The graph of a store whose rows were moved."""
    folder = tmp_path_factory.mktemp("graphs")
    GRAPH.save(folder / "plain")
    reorder(folder / "plain", folder / "moved", np.random.default_rng(0).random(GRAPH.num_nodes))
    return sp.Graph.open(folder / "moved")


@settings(max_examples=40)
@given(
    nest=nests(st.just(GRAPH.num_nodes)),
    sampler=st.sampled_from(SAMPLERS),
    fetch=st.sampled_from(["batch", "bulk"]),
    prefetch=st.integers(0, 2),
    bulk_size=st.integers(1, 9),
    stop=st.integers(0, 6),
)
def test_batches_have_the_bits_of_plain_ones(
    tmp_path_factory, reordered, nest, sampler, fetch, prefetch, bulk_size, stop
):
    """Two epochs, after a pass that was left: of a reordered store, from nested sources, fetched by the bulk or not."""
    options = {"batch_size": 16, "labels": np.arange(GRAPH.num_nodes), "random_seed": nest.seed % 100}
    seeds = np.arange(0, GRAPH.num_nodes, 2)
    plain = sp.BulkLoader(GRAPH, seeds, sampler, features=plain_of(nest), prefetch=0, **options)
    expected = [batch for _ in range(2) for batch in plain]
    nested = build(nest, tmp_path_factory.mktemp("rows"))
    options |= {"features": nested, "fetch": fetch, "prefetch": prefetch, "bulk_size": bulk_size}
    loader = sp.BulkLoader(reordered, seeds, sampler, **options)
    for _, batch in zip(range(stop), loader, strict=False):
        assert batch.x is not None
    loader.set_epoch(0)
    for batch, its in zip((batch for _ in range(2) for batch in loader), expected, strict=True):
        same_batch(batch, its)
