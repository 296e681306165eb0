"""The entry law and the column law (LADIES, FastGCN) against exact enumeration on merged columns (law, section 3)."""

from __future__ import annotations

import checks
import laws
import numpy as np
import pytest
from checks import FRONTIER, SAMPLERS, WEIGHTINGS
from draws import KEY, operand, repeated

from spsample import LADIES, FastGCN, Graph, bulk_sample
from spsample.backends import Draw
from spsample.sparse import its_sample, normalize_rows

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_without_replacement(backend, draws, sampler, weighting, size):
    assert checks.layer_columns(backend, draws, sampler, weighting, size) > laws.SMALLEST_P


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("size", [1, 3])
def test_with_replacement(backend, draws, sampler, weighting, size):
    assert checks.layer_columns_with_replacement(backend, draws, sampler, weighting, size) > laws.SMALLEST_P


def test_rounds_of_redraws(backend, draws):
    """One column holds nearly all entries: most samples take it out and draw on."""
    assert checks.dominated_frontier(backend, draws) > laws.SMALLEST_P


def test_the_two_laws_of_ladies_differ():
    """The tests above can tell `norm` from `squared_count`, and merged columns from separate parallel edges."""
    norm, squared = (checks.column_weights(s, "unweighted") for s in ("norm", "squared_count"))
    assert [int(w) for w in norm] == [1, 4, 1, 3, 1, 0, 0]
    assert [int(w) for w in squared] == [1, 16, 1, 9, 1, 0, 0]
    assert [int(w) for w in checks.column_weights("fastgcn", "unweighted")] == [3, 5, 1, 3, 1, 3, 2]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_small_supports_are_taken_whole(backend, sampler, weighting):
    """Where the support has no more than s columns all of it is taken, ascending, without a draw."""
    A, size = operand(checks.small_graph(weighting), backend), len(FRONTIER) + 3
    sample = its_sample(normalize_rows(checks.product_of(sampler, A, repeated(FRONTIER, 2))), Draw(KEY, 0, size))
    support = [v for v, w in enumerate(checks.column_weights(sampler, weighting)) if w]
    assert sample.whole.all()
    assert sample.columns.tolist() == support * 2


@pytest.mark.parametrize("law", ["norm", "squared_count"])
@pytest.mark.parametrize("replace", [False, True])
def test_frontier_of_empty_rows(backend, law, replace):
    """Nothing to draw from: no columns, with and without replacement."""
    graph = checks.small_graph("unweighted")
    bulk = bulk_sample(graph, [3], LADIES([4], law=law, replace=replace), batch_size=1, backend=backend.name)
    assert bulk[0].layers[0].adj.nnz == 0
    assert bulk[0].src_nodes.tolist() == [3]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_zero_weights_are_never_drawn(backend, draws, sampler):
    """A column all of whose entries weigh 0 is outside the support, though it is stored."""
    graph = Graph(np.array([0, 4, 6, 6, 6]), np.array([0, 1, 2, 3, 0, 1], np.int32), np.array([0.0, 2, 0, 1, 0, 1]))
    A = operand(graph, backend)
    P = normalize_rows(checks.product_of(sampler, A, repeated([0, 1], min(draws, 20_000))))
    assert set(its_sample(P, Draw(KEY, 0, 1)).columns.tolist()) == {1, 3}
    assert its_sample(P, Draw(KEY, 0, 3)).whole.all()


def test_the_public_call_draws_these_columns(backend, calls):
    """bulk_sample with include_targets=False: the src vertices are the drawn columns."""
    graph = checks.small_graph("row")
    for sampler, law in (
        (LADIES([2], include_targets=False), "norm"),
        (FastGCN([2], include_targets=False), "fastgcn"),
    ):
        bulk = bulk_sample(graph, FRONTIER * calls, sampler, batch_size=len(FRONTIER), backend=backend.name)
        exact = laws.sets_of(laws.successive(checks.column_weights(law, "row"), 2))
        assert laws.outcome_p_value(bulk.layers[0].src.reshape(calls, 2), exact) > laws.SMALLEST_P
