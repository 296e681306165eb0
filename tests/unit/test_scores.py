"""Scores of vertices against plain Python, and what they refuse."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.errors import DTypeError, InputError
from spsample.features import register_score, score, score_names
from spsample.features.scores import registry
from spsample.features.scores.inclusion import GROUP, shrunk
from spsample.sparse import keys


def a_graph(num_nodes=60, num_edges=400, kind="unweighted", seed=0):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, num_edges))
    weights = rng.random(num_edges).astype(np.float32) if kind == "weighted" else None
    graph = sp.Graph.from_edge_index(edges, num_nodes=num_nodes, edge_weight=weights)
    return graph.normalized("row") if kind == "row" else graph


SAMPLERS = [
    sp.GraphSAGE([3, 2]),
    sp.GraphSAGE([3, 2], layout="subgraph"),
    sp.GraphSAGE([2, -1], replace=True, include_targets=False),
    sp.LADIES([8, 8]),
    sp.FastGCN([8, 8]),
]


def counted(graph, seeds, sampler, batch_size, random_seed, epochs):
    """Visits of the epochs of a loader, one vertex after the other."""
    counts = np.zeros(graph.num_nodes)
    loader = sp.BulkLoader(
        graph, seeds, sampler, batch_size=batch_size, shuffle=True, random_seed=random_seed, bulk_size=2, prefetch=0
    )
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            for v in batch.src_nodes.tolist():
                counts[v] += 1
    return counts


def test_out_degree():
    graph = a_graph()
    expected = np.zeros(60)
    for source in graph.indices.tolist():
        expected[source] += 1
    np.testing.assert_array_equal(score("out-degree", graph, [0], SAMPLERS[0], 4), expected)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seeds", [[3, 7, 7, 9], []])
def test_reverse_pagerank(weighted, seeds):
    graph, n = a_graph(), 60
    rows = [graph.indices[a:b].tolist() for a, b in zip(graph.indptr[:-1], graph.indptr[1:], strict=True)]
    scores = [1 / n] * n
    for v in set(seeds) if weighted else ():
        scores[v] *= n / len(set(seeds))
    for _ in range(5):
        spread = [0.0] * n
        for v, sources in enumerate(rows):
            for u in sources:
                spread[u] += scores[v] / len(sources)
        scores = [(1 - 0.85) / n + 0.85 * one for one in spread]
    found = score("reverse-pagerank", graph, seeds, SAMPLERS[0], 4, weighted=weighted)
    np.testing.assert_allclose(found, scores, rtol=1e-11)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("seeds", [[], list(range(0, 60, 3))])
def test_posterior(sampler, seeds):
    """The formula, a sum after the other, from counts of the trial and from `inclusion`."""
    graph, epochs = a_graph(), 2
    p = score("inclusion", graph, seeds, sampler, 7).tolist()
    counts = score("presc", graph, seeds, sampler, 7, epochs=epochs).tolist()
    m = epochs * -(-len(seeds) // 7)
    found = score("posterior", graph, seeds, sampler, 7, epochs=epochs)
    np.testing.assert_allclose(found, two_steps(counts, m, p, GROUP), rtol=1e-9)


def factors(counts, expected, variances):
    """What multiplies each p, a sum after the other."""
    below = sum((c - e) ** 2 - v for c, e, v in zip(counts, expected, variances, strict=True))
    if below <= 0:
        return [1.0] * len(counts)
    a = sum(e * e for e in expected) / below
    return [(c + a) / (e + a) for c, e in zip(counts, expected, strict=True)]


def two_steps(counts, m, p, size):
    """The posterior of groups, then of the vertices of each."""
    order = sorted((v for v in range(len(p)) if p[v] > 0), key=lambda v: -p[v])
    scores = [c / max(m, 1) for c in counts]
    cuts = [*range(0, max(len(order) // size, 1) * size, size), len(order)]
    groups = [order[a:b] for a, b in itertools.pairwise(cuts)] if order else []
    terms = [counts, [m * q for q in p], [m * q * (1 - q) for q in p]]
    for factor, group in zip(factors(*([sum(t[v] for v in g) for g in groups] for t in terms)), groups, strict=True):
        level = [min(p[v] * factor, 1.0) for v in group]
        seen = [counts[v] for v in group], [m * q for q in level], [m * q * (1 - q) for q in level]
        for v, q, own in zip(group, level, factors(*seen), strict=True):
            scores[v] = q * own
    return scores


@settings(deadline=None, max_examples=60)
@given(n=st.integers(0, 40), m=st.integers(0, 30), size=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_shrinkage_in_groups(n, m, size, seed):
    rng = np.random.default_rng(seed)
    p = rng.random(n) * (rng.random(n) < 0.8)
    counts = rng.binomial(m, np.clip(p * rng.gamma(2, 0.5, n) + 0.1 * rng.random(n), 0, 1))
    found = shrunk(counts, m, p, size)
    np.testing.assert_allclose(found, two_steps(counts.tolist(), m, p.tolist(), size), rtol=1e-7, atol=1e-12)
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def test_one_wrong_group_leaves_the_others_their_level():
    """Counts of a group are believed where they have in common what p has not."""
    p = np.repeat([0.4, 0.2], 500)
    counts = np.random.default_rng(0).binomial(100, np.repeat([0.4, 0.05], 500))
    found = shrunk(counts, 100, p)
    np.testing.assert_allclose(found[:500].mean(), 0.4, rtol=0.02)
    np.testing.assert_allclose(found[500:].mean(), 0.05, rtol=0.1)


def test_shrinkage_at_its_ends():
    p = np.array([0.5, 0.25, 0.0])
    np.testing.assert_array_equal(shrunk(np.array([5, 2, 0]), 10, p), p)  # no more than chance
    far = shrunk(np.array([0, 10**6, 0]), 10**6, p)  # nothing but the counts
    np.testing.assert_allclose(far, [0.0, 1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(shrunk(np.array([9, 0, 4]), 10, p)[2], 0.4)  # what p has overlooked


def test_a_sampler_that_does_not_state_its_law():
    class Own(sp.Sampler):
        def layer(self, A, Q, draw, options):
            return sp.GraphSAGE([1]).layer(A, Q, draw, options)

    assert score("presc", a_graph(), [0], Own([2]), 1).sum() > 0
    with pytest.raises(InputError, match="sampler: got a Own, which does not state"):
        score("posterior", a_graph(), [0], Own([2]), 1)


def test_random_is_a_permutation_that_the_seed_decides():
    first, again, other = (score("random", a_graph(), [0], SAMPLERS[0], 4, random_seed=r) for r in (1, 1, 2))
    assert sorted(first.tolist()) == [i / 60 for i in range(60)]
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_presc_counts_trial_epochs(sampler):
    graph, seeds = a_graph(), np.arange(0, 60, 2)
    expected = counted(graph, seeds, sampler, 7, keys.trial_seed(5), range(2))
    np.testing.assert_array_equal(score("presc", graph, seeds, sampler, 7, epochs=2, random_seed=5), expected)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_replay_counts_the_epochs_of_a_loader(sampler, monkeypatch):
    graph, seeds = a_graph(), np.arange(0, 60, 2)
    expected = counted(graph, seeds, sampler, 7, 5, [3, 4])
    np.testing.assert_array_equal(score("replay", graph, seeds, sampler, 7, epochs=[3, 4], random_seed=5), expected)
    monkeypatch.setattr("spsample.features.scores.visits.ENTRIES_AT_ONCE", 40)
    np.testing.assert_array_equal(score("replay", graph, seeds, sampler, 7, epochs=[3, 4], random_seed=5), expected)


def test_replay_without_shuffling_and_last_batch():
    graph, sampler = a_graph(), SAMPLERS[0]
    loader = sp.BulkLoader(graph, np.arange(10), sampler, batch_size=4, drop_last=True, shuffle=False)
    expected = np.zeros(60)
    for batch in loader:
        expected[batch.src_nodes] += 1
    found = score("replay", graph, range(10), sampler, 4, epochs=range(1), shuffle=False, drop_last=True)
    np.testing.assert_array_equal(found, expected)


def test_a_trial_is_no_epoch_of_training():
    """Neither its order nor its draws are those of any of the first epochs."""
    graph, seeds, sampler = a_graph(), np.arange(60), SAMPLERS[0]
    trial = score("presc", graph, seeds, sampler, 7, epochs=1)
    for epoch in range(5):
        assert (trial != score("replay", graph, seeds, sampler, 7, epochs=[epoch])).any()
        order = keys.shuffle(60, keys.trial_seed(0), 0)
        assert (order != keys.shuffle(60, 0, epoch)).any()


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 20), st.integers(0, 40), st.integers(1, 9), st.integers(0, 2**31))
def test_visits_are_within_their_number_of_batches(num_nodes, num_edges, batch_size, seed):
    graph = a_graph(num_nodes, num_edges, seed=seed)
    seeds = np.random.default_rng(seed).permutation(num_nodes)
    counts = score("presc", graph, seeds, sp.GraphSAGE([2, 2]), batch_size, random_seed=seed)
    assert (counts >= 3).all()
    assert (counts <= 3 * -(-num_nodes // batch_size)).all()


def test_a_score_of_ones_own(monkeypatch):
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    seen = []

    def mine(graph, seeds, sampler, batch_size, *, factor=1.0):
        seen.append((seeds.dtype, seeds.tolist(), batch_size))
        return np.arange(graph.num_nodes, dtype=np.float32) * factor

    register_score("mine", mine)
    found = score("mine", a_graph(), [3, 1], SAMPLERS[0], 4, factor=2.0)
    assert found.dtype == np.float64
    assert found.tolist() == [2.0 * i for i in range(60)]
    assert seen == [(np.dtype(np.int64), [3, 1], 4)]
    assert "mine" in score_names()
    with pytest.raises(InputError, match="name: got 'mine'; expected a name that is not taken"):
        register_score("mine", mine)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.ones(59), "got length 59; expected length 60"),
        (np.ones((60, 1)), r"got shape \(60, 1\)"),
        ([np.nan, *[0.0] * 59], "got nan at position 0"),
        ([0.0, -1.0, *[0.0] * 58], "got -1.0 at position 1"),
        ([0.0, np.inf, *[0.0] * 58], "got inf at position 1"),
        (["a"] * 60, "score 'mine': got"),
        ([1j] * 60, "score 'mine': got dtype complex128"),
    ],
)
def test_bad_scores_are_refused(values, words, monkeypatch):
    monkeypatch.setattr(registry, "_METHODS", {"mine": lambda *_: values})
    with pytest.raises(InputError, match=words):
        score("mine", a_graph(), [0], SAMPLERS[0], 4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda g, s: score("degree", g, [0], s, 4), "name: got 'degree'; expected one of 'posterior', 'inclusion'"),
        (lambda g, s: score("out-degree", 3, [0], s, 4), "graph: got"),
        (lambda g, s: score("out-degree", g, [60], s, 4), "seeds: got 60"),
        (lambda g, s: score("out-degree", g, [0], 3, 4), "sampler: got 3"),
        (lambda g, s: score("out-degree", g, [0], s, 0), "batch_size: got 0"),
        (lambda g, s: score("out-degree", g, [0], s, 4, epochs=3), "epochs: got a value; expected an option of"),
        (lambda g, s: score("presc", g, [0], s, 4, epochs=0), "epochs: got 0"),
        (lambda g, s: score("presc", g, [0], s, 4, random_seed=-1), "random_seed: got -1"),
        (lambda g, s: score("posterior", g, [0], s, 4, epochs=1.5), "epochs: got 1.5"),
        (lambda g, s: score("reverse-pagerank", g, [0], s, 4, weighted=1), "weighted: got 1"),
        (lambda g, s: score("reverse-pagerank", g, [0], s, 4, damping=1.5), "damping: got 1.5"),
        (lambda g, s: score("reverse-pagerank", g, [0], s, 4, iterations=-1), "iterations: got -1"),
        (lambda g, s: score("random", g, [0], s, 4, random_seed=0.5), "random_seed: got 0.5"),
        (lambda g, s: score("replay", g, [0], s, 4), "epochs: got nothing"),
        (lambda g, s: score("replay", g, [0], s, 4, epochs=3), "epochs: got 3"),
        (lambda g, s: score("replay", g, [0], s, 4, epochs=[-1]), "epochs: got -1"),
        (lambda g, s: score("replay", g, [0], s, 4, epochs=[0], shuffle=2), "shuffle: got 2"),
        (lambda g, s: register_score(3, max), "name: got 3"),
        (lambda g, s: register_score("three", 3), "method: got a int"),
    ],
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(InputError, match=words):
        call(a_graph(), SAMPLERS[0])


def test_bad_types_are_type_errors():
    with pytest.raises(DTypeError):
        score(3, a_graph(), [0], SAMPLERS[0], 4)


@pytest.mark.parametrize("name", ["posterior", "inclusion", "presc", "reverse-pagerank"])
def test_equal_on_any_number_of_threads(name):
    graph = a_graph(2000, 30_000, "weighted")

    def scores(threads):
        sp.set_num_threads(threads)  # of the thread that runs this
        return [score(name, graph, range(500), sampler, 64) for sampler in SAMPLERS]

    found = []
    for threads in (1, 2, 4):
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(scores, threads).result())
    for other in found[1:]:
        for mine, reference in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(mine, reference)
