"""Random graphs, samplers and seeds, and when two bulks are equal."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import available_backends

needs_cpu = pytest.mark.skipif("cpu" not in available_backends(), reason="the compiled core is not built")

MOST_NODES = 40


def examples(count):
    """So many examples; a quarter under the sanitizers, whose part is the memory accesses of each path, not its law."""
    return count // 4 if os.environ.get("HYPOTHESIS_PROFILE") == "sanitize" else count


# --- strategies -----------------------------------------------------------------------------------------------------


class Edges(NamedTuple):
    """A random multigraph, with weights and without."""

    num_nodes: int
    edge_index: Any
    weights: Any


@st.composite
def edge_lists(draw):
    """Multi-edges, self loops, hubs, isolated vertices, weights of 0 and of 12 orders of magnitude."""
    n = draw(st.integers(1, MOST_NODES))
    count = draw(st.integers(0, 6 * n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edge_index = rng.integers(0, n, (2, count))
    for row in draw(st.sampled_from([(), (0,), (1,)])):  # a hub: many edges out of it, or many into it
        edge_index[row, rng.random(count) < 0.5] = rng.integers(0, n)
    if draw(st.booleans()):  # parallel edges
        copied = rng.random(count) < 0.3
        edge_index[:, copied] = edge_index[:, rng.integers(0, max(count, 1), copied.sum())]
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    spread = draw(st.sampled_from([0, 3, 12]))
    weights = rng.exponential(size=count) * 10.0 ** rng.integers(-spread, 1, count)
    weights[rng.random(count) < draw(st.sampled_from([0.0, 0.1, 0.7]))] = 0.0
    if draw(st.booleans()):
        weights = np.ceil(weights)  # equal weights
    return Edges(n, edge_index, weights.astype(dtype))


KINDS = ["unweighted", "row", "weighted", "sym"]


def make_graph(edges, kind, index=np.int32):
    weights = edges.weights if kind == "weighted" else None
    graph = sp.Graph.from_edge_index(edges.edge_index, num_nodes=edges.num_nodes, edge_weight=weights)
    graph = graph.normalized(kind) if kind in ("row", "sym") else graph
    if index == np.int32:
        return graph
    wide = sp.Graph(graph.indptr, graph.indices.astype(index), graph.data, edge_ids=graph.edge_ids)
    return wide.normalized("row") if kind == "row" else wide


sizes = st.lists(st.integers(1, 7), min_size=1, max_size=3)
flags = st.booleans()


def graphsage(layout, **options):
    """GraphSAGE samplers of a layout."""
    fanouts = st.lists(st.sampled_from([-1, 1, 2, 3, 6]), min_size=1, max_size=3)
    weighted = st.sampled_from([None, False])
    return st.builds(sp.GraphSAGE, fanouts, replace=flags, weighted=weighted, layout=st.just(layout), **options)


node_wise = graphsage("blocks", include_targets=flags)
subgraphs = graphsage("subgraph")
drawn_values = st.sampled_from(
    [{"values": "unbiased"}, {"values": "unbiased", "replace": True}, {"values": "reference"}]
)


@st.composite
def layer_wise(draw):
    options = {**draw(drawn_values), "normalize_rows": draw(flags), "include_targets": draw(flags)}
    if draw(flags):
        return sp.FastGCN(draw(sizes), **options)
    return sp.LADIES(draw(sizes), law=draw(st.sampled_from(["norm", "squared_count"])), **options)


samplers = st.one_of(node_wise, subgraphs, layer_wise())


@st.composite
def calls(draw, num_nodes):
    """Keyword arguments of bulk_sample, seeds included."""
    seeds = draw(st.lists(st.integers(0, num_nodes - 1), max_size=24))
    assume(not looks_like_a_mask(seeds, num_nodes))
    return {
        "seeds": seeds,
        "batch_size": draw(st.integers(1, 9)),
        "random_seed": draw(st.integers(0, 2**64 - 1)),
        "epoch": draw(st.integers(0, 2**64 - 1)),
        "first_batch": draw(st.sampled_from([0, 1, 2**31, 2**32 - 24])),
        "edge_ids": draw(flags),
    }


def looks_like_a_mask(seeds, num_nodes):
    """Which is refused."""
    return len(seeds) == num_nodes and max(seeds, default=2) <= 1


def every_sampler(wide=64):
    """One sampler for each law, layout and kind of values, of a size for real graphs."""
    return [
        sp.GraphSAGE([5, 3]),
        sp.GraphSAGE([4, 3], replace=True),
        sp.GraphSAGE([4, 3], weighted=False, layout="subgraph"),
        sp.LADIES([wide, wide]),
        sp.LADIES([wide, wide], replace=True, normalize_rows=True),
        sp.LADIES([wide, wide], law="squared_count", values="reference"),
        sp.FastGCN([wide, wide], include_targets=False),
    ]


# --- comparison -----------------------------------------------------------------------------------------------------


def arrays_of(minibatch):
    """Every array of a minibatch, by name."""
    named = {"seeds": minibatch.seeds, "seed_inverse": minibatch.seed_inverse, "src_nodes": minibatch.src_nodes}
    for number, layer in enumerate(minibatch.layers):
        adj = layer.adj
        named[f"layer {number} shape"] = np.array(adj.shape)
        for name, array in (
            ("dst_nodes", layer.dst_nodes),
            ("src_nodes", layer.src_nodes),
            ("indptr", adj.indptr),
            ("indices", adj.indices),
            ("data", adj.data),
            ("edge_ids", layer.edge_ids),
        ):
            named[f"layer {number} {name}"] = array
    return named


def assert_same(one, other, *, types=True):
    """Equal minibatches, bit for bit; `types=False` lets index types differ."""
    assert one.batch_id == other.batch_id
    left, right = arrays_of(one), arrays_of(other)
    assert left.keys() == right.keys()
    for name, a in left.items():
        b = right[name]
        assert (a is None) == (b is None), name
        if a is None:
            continue
        assert a.shape == b.shape, name
        assert not types or a.dtype == b.dtype, name
        if types or a.dtype.kind == "f":
            assert a.tobytes() == b.tobytes(), name
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def assert_bulks_same(one, other, *, types=True):
    assert len(one) == len(other)
    np.testing.assert_array_equal(one.batch_ids, other.batch_ids)
    assert one.num_edges == other.num_edges
    for a, b in zip(one, other, strict=True):
        assert_same(a, b, types=types)


@contextmanager
def threads(count):
    """The compiled kernels on so many threads."""
    from spsample import _core

    before = _core.get_num_threads()
    _core.set_num_threads(count)
    try:
        yield
    finally:
        _core.set_num_threads(before)
