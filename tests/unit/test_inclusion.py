"""The score `inclusion` against a naive program, and against exact enumeration where vertices are independent."""

import math
from collections import defaultdict
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.errors import InputError
from spsample.features import score
from spsample.sampling.sampler import Proportion
from spsample.store import to_scipy


def a_graph(kind, seed=0, num_nodes=30, num_edges=140):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, num_edges))
    weights = (rng.random(num_edges) * (rng.random(num_edges) < 0.9)).astype(np.float32)
    graph = sp.Graph.from_edge_index(
        edges, num_nodes=num_nodes, edge_weight=weights * 8 if kind == "weighted" else None
    )
    return graph.normalized("row") if kind == "row" else graph


def rows_of(graph):
    """Columns and weights of each row, in plain Python."""
    matrix = to_scipy(graph)
    bounds = zip(matrix.indptr[:-1].tolist(), matrix.indptr[1:].tolist(), strict=True)
    return [(matrix.indices[a:b].tolist(), matrix.data[a:b].astype(float).tolist()) for a, b in bounds]


def with_factor(weights, most, s):
    """r (1 - exp(-lambda w / r)), lambda by bisection so that they sum to s."""
    if sum(most) <= s or sum(weights) == 0:
        return list(most)
    low, high = 0.0, 1.0
    found = lambda factor: [m and m * (1 - math.exp(-factor * w / m)) for w, m in zip(weights, most, strict=True)]  # noqa: E731
    while sum(found(high)) < s:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(found(middle)) < s else (low, middle)
    return found(high)


def naive_rows(rows, frontier, s, sampler, weighted):
    miss = [1.0] * len(rows)
    for u, (columns, weights) in enumerate(rows):
        total, positive = sum(weights), sum(w > 0 for w in weights)
        if s == -1:
            q = [1.0] * len(columns)
        elif not weighted:
            d = len(columns)
            q = [1 - (1 - 1 / d) ** s if sampler.replace else min(1, s / d)] * d
        elif sampler.replace:
            q = [1 - (1 - w / total) ** s if total else 0.0 for w in weights]
        elif positive <= s:
            q = [float(w > 0) for w in weights]
        else:
            q = with_factor(weights, [float(w > 0) for w in weights], s)
        for v, one in zip(columns, q, strict=True):
            miss[v] *= 1 - frontier[u] * one
    return [1 - one for one in miss]


def naive_batches(rows, frontier, s, sampler, kind):
    n = len(rows)
    sums, squares, miss = [0.0] * n, [0.0] * n, [1.0] * n
    for u, (columns, weights) in enumerate(rows):
        x = 1.0 if kind == "graph" else frontier[u]
        for v, w in zip(columns, weights, strict=True):
            sums[v] += x * (w if kind == "squared_count" else w * w)
            squares[v] += x * (1 - x) * w * w
            miss[v] *= 1 - x * (w > 0)
    if kind == "squared_count":
        sums = [one * one + square for one, square in zip(sums, squares, strict=True)]
    most = [float(w > 0) if kind == "graph" else 1 - m for w, m in zip(sums, miss, strict=True)]
    if sampler.replace:
        return [m and m * (1 - (1 - w / m / sum(sums)) ** s) for w, m in zip(sums, most, strict=True)]
    return with_factor(sums, most, s)


def naive(graph, seeds, sampler, batch_size):
    rows, n = rows_of(graph), graph.num_nodes
    batches = -(-len(seeds) // batch_size)
    known = [1 - (1 - 1 / batches) ** seeds.count(v) for v in range(n)]
    before = [0.0] * n
    for s in sampler.sizes:
        frontier = [a - b for a, b in zip(known, before, strict=True)] if sampler.layout == "subgraph" else known
        if sampler.kind == "node-wise":
            weighted = graph.weighting == "weighted" and sampler.weighted is not False
            drawn = naive_rows(rows, frontier, s, sampler, weighted)
        else:
            kind = "graph" if isinstance(sampler, sp.FastGCN) else sampler.law
            drawn = naive_batches(rows, frontier, s, sampler, kind)
        before = known
        known = [1 - (1 - a) * (1 - b) if sampler.include_targets else b for a, b in zip(known, drawn, strict=True)]
    return known


SAMPLERS = [
    sp.GraphSAGE([3, 2]),
    sp.GraphSAGE([3, 2, 1], layout="subgraph"),
    sp.GraphSAGE([2, -1, 1], include_targets=False),
    sp.GraphSAGE([3, 2], replace=True),
    sp.GraphSAGE([3, 2], weighted=False),
    sp.LADIES([6, 9]),
    sp.LADIES([6, 300]),
    sp.LADIES([6, 9], law="squared_count"),
    sp.LADIES([6, 9], replace=True, include_targets=False),
    sp.FastGCN([6, 9]),
    sp.FastGCN([6, 300]),
    sp.FastGCN([6, 9], replace=True),
]


@pytest.mark.parametrize("kind", ["unweighted", "row", "weighted"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_equal_to_a_naive_program(sampler, kind):
    graph, seeds = a_graph(kind), [*range(0, 30, 2), 4, 4]
    found = score("inclusion", graph, seeds, sampler, 4)
    np.testing.assert_allclose(found, naive(graph, seeds, sampler, 4), rtol=1e-8, atol=1e-12)


# ------------------------------------------------------------------------------------------------- exact enumeration


def outcomes(columns, s, replace):
    """Sets that a uniform row draws, with their probabilities."""
    if s == -1 or (not replace and len(columns) <= s):
        return {frozenset(columns): 1.0}
    found = defaultdict(float)
    draws = list(product(columns, repeat=s) if replace else combinations(columns, s)) if columns else [()]
    for draw in draws:
        found[frozenset(draw)] += 1 / len(draws)
    return found


def enumerated(graph, seeds, sampler):
    """The probability of each vertex to be among the src vertices of a batch of these seeds."""
    rows = [columns for columns, _ in rows_of(graph)]
    states = {(frozenset(seeds), frozenset(seeds)): 1.0}  # known vertices, and those that draw
    for s in sampler.sizes:
        after = defaultdict(float)
        for (known, frontier), chance in states.items():
            choices = [outcomes(rows[u], s, sampler.replace) for u in frontier]
            for drawn in product(*(choice.items() for choice in choices)):
                united = frozenset().union(*(vertices for vertices, _ in drawn))
                united |= known if sampler.include_targets else frozenset()
                drawing = united - known if sampler.layout == "subgraph" else united
                after[united, drawing] += chance * math.prod(p for _, p in drawn)
        states = after
    inclusion = np.zeros(graph.num_nodes)
    for (known, _), chance in states.items():
        inclusion[list(known)] += chance
    return inclusion


def a_tree(parents):
    """Vertex v + 1 is an in-neighbour of `parents[v]`, which comes before it."""
    return sp.Graph.from_edge_index([list(range(1, len(parents) + 1)), parents], num_nodes=len(parents) + 1)


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(1, 8), st.booleans(), st.sampled_from(["subgraph", "no targets", "two layers"]))
def test_exact_on_trees(data, num_edges, replace, form):
    """A vertex has one target, the root is the seed, and no vertex is drawn twice: nothing depends on anything else."""
    graph = a_tree([data.draw(st.integers(0, v)) for v in range(num_edges)])
    sizes = [data.draw(st.sampled_from([1, 2, -1])) for _ in range(2 if form == "two layers" else 3)]
    layout = "subgraph" if form == "subgraph" else "blocks"
    sampler = sp.GraphSAGE(sizes, replace=replace, layout=layout, include_targets=form != "no targets")
    found = score("inclusion", graph, [0], sampler, 1)
    np.testing.assert_allclose(found, enumerated(graph, [0], sampler), atol=1e-9)


def test_seeds_are_in_one_of_the_batches():
    """Exact for those that are no seeds themselves, over all ways to cut the seeds in two batches."""
    graph = a_tree([0, 0, 1, 1, 2])
    sampler = sp.GraphSAGE([1], include_targets=False)
    pairs = list(combinations([0, 1, 2, 3], 2))
    expected = sum(enumerated(graph, pair, sampler) for pair in pairs) / len(pairs)
    np.testing.assert_allclose(score("inclusion", graph, [0, 1, 2, 3], sampler, 2), expected)


def test_whole_frontiers_are_exact():
    """Where a layer is no larger than its support, everything is taken."""
    graph = a_tree([0, 0, 1, 1, 2])
    for sampler in (sp.LADIES([10, 10]), sp.LADIES([2, 5]), sp.GraphSAGE([-1, -1])):
        np.testing.assert_array_equal(score("inclusion", graph, [0], sampler, 1), np.ones(6))
    np.testing.assert_array_equal(score("inclusion", graph, [0], sp.FastGCN([5]), 1), np.ones(6))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(SAMPLERS), st.sampled_from(["unweighted", "row", "weighted"]))
def test_a_probability_and_0_only_where_nothing_leads(seed, sampler, kind):
    rng = np.random.default_rng(seed)
    graph = a_graph(kind, seed, int(rng.integers(1, 40)), int(rng.integers(0, 200)))
    seeds = rng.integers(0, graph.num_nodes, int(rng.integers(0, 20)))
    found = score("inclusion", graph, seeds, sampler, 3)
    assert ((found >= 0) & (found <= 1)).all()
    if len(seeds):
        visits = score("presc", graph, seeds, sampler, 3)
        assert (found[visits > 0] > 0).all()


def test_equal_however_many_entries_are_taken_at_once(monkeypatch):
    for kind in ("unweighted", "row", "weighted"):
        for sampler in SAMPLERS:
            monkeypatch.setattr("spsample.features.scores.column_sums.ENTRIES_AT_ONCE", 1 << 24)
            whole = score("inclusion", a_graph(kind), range(20), sampler, 3)
            monkeypatch.setattr("spsample.features.scores.column_sums.ENTRIES_AT_ONCE", 7)
            np.testing.assert_array_equal(score("inclusion", a_graph(kind), range(20), sampler, 3), whole)


class OwnSampler(sp.GraphSAGE):
    """Draws in its own way, and does not say how."""

    def layer(self, A, Q, draw, options):
        return super().layer(A, Q, draw, options)


def test_a_sampler_that_does_not_say_is_refused_by_name():
    with pytest.raises(InputError, match=r"sampler: got a OwnSampler.*'presc' and 'replay' take any sampler, OwnSamp"):
        score("inclusion", a_graph("unweighted"), [0], OwnSampler([2]), 3)
    assert score("presc", a_graph("unweighted"), [0], OwnSampler([2]), 3).sum() > 0
    assert score("replay", a_graph("unweighted"), [0], OwnSampler([2]), 3, epochs=[0]).sum() > 0


class Stating(OwnSampler):
    """Says that it draws as its base does, or whatever it is made to say."""

    stated = Proportion("each", 1)

    def proportion(self, weighting):
        return self.stated


@pytest.mark.parametrize("kind", ["unweighted", "row", "weighted"])
def test_a_sampler_that_states_what_it_draws_by(kind):
    found = score("inclusion", a_graph(kind), range(20), Stating([3, 2]), 3)
    np.testing.assert_array_equal(found, score("inclusion", a_graph(kind), range(20), sp.GraphSAGE([3, 2]), 3))


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (3, "proportion: got 3"),
        (Proportion("some", 1), "proportion.rows: got 'some'"),
        (Proportion("each", 3), "proportion.power: got 3"),
        (Proportion("each", 1, 0), "proportion.column_power: got 0"),
    ],
)
def test_wrong_statements_are_refused(stated, words, monkeypatch):
    monkeypatch.setattr(Stating, "stated", stated)
    with pytest.raises(InputError, match=words):
        score("inclusion", a_graph("unweighted"), [0], Stating([2]), 3)


def test_weights_of_a_graph_without_weights_are_refused():
    with pytest.raises(InputError, match="weighted: got True on a graph without weights"):
        score("inclusion", a_graph("unweighted"), [0], sp.GraphSAGE([2], weighted=True), 3)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_tiny_and_huge_weights(scale):
    graph = a_graph("weighted")
    scaled = sp.Graph(graph.indptr, graph.indices, graph.data.astype(np.float64) * scale)
    plain = sp.Graph(graph.indptr, graph.indices, graph.data.astype(np.float64))
    for sampler in (sp.LADIES([6, 9]), sp.FastGCN([6]), sp.GraphSAGE([2])):
        expected = score("inclusion", plain, range(20), sampler, 3)
        np.testing.assert_allclose(score("inclusion", scaled, range(20), sampler, 3), expected, rtol=1e-9)
