"""The checks of the suite as plain functions of a backend: each returns a p-value, or raises AssertionError.

The tests call them on the backends that ship, `test_planted_faults.py` calls them on copies of the reference with one
fault each. A right backend gives p-values that are uniform in [0, 1]; one below `laws.SMALLEST_P` fails a check.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import laws
import numpy as np
from draws import (
    KEY,
    column_draws,
    hub,
    numerator_draws,
    operand,
    repeated,
    require,
    row_draws,
    shared_draws,
    virtual_row,
)

from spsample import Graph
from spsample.backends import Backend, ColumnSample, Draw
from spsample.sparse import (
    ExtractOptions,
    LayerSample,
    LocalOperand,
    RowSelector,
    UnbiasedWeights,
    column_norms,
    derive_key,
    extract,
    its_sample,
    normalize_rows,
    square,
)
from spsample.sparse.keys import SAMPLING
from spsample.sparse.probability import frontier_rule

# A small graph with parallel edges, an empty row, and rows outside the frontier; the frontier is in no order.
ROWS = [[0, 5, 5, 5, 6], [6], [0, 1], [], [0, 1, 1, 1, 3], [1, 2, 3, 4], [3]]
WEIGHTS = [[0.5, 1.0, 1.0, 0.5, 1.75], [2.0], [1.0, 0.3], [], [1.0, 0.5, 0.25, 1.25, 2.0], [3.0, 0.7, 1.0, 1.0], [1.5]]
FRONTIER = [6, 4, 5, 3]
WEIGHTINGS = ("unweighted", "row", "weighted")
SAMPLERS = ("norm", "squared_count", "fastgcn")


def small_graph(weighting: str) -> Graph:
    """ROWS as a graph, with WEIGHTS where it is weighted."""
    indptr = np.cumsum([0, *(len(r) for r in ROWS)])
    indices = np.concatenate(ROWS).astype(np.int32)
    graph = Graph(indptr, indices, np.concatenate(WEIGHTS) if weighting == "weighted" else None)
    return graph.normalized("row") if weighting == "row" else graph


def small_rows(weighting: str) -> list[laws.Row]:
    """The same for the exact laws; `1/d` exactly."""
    if weighting == "weighted":
        return [list(zip(r, w, strict=True)) for r, w in zip(ROWS, WEIGHTS, strict=True)]
    return [[(v, Fraction(1, len(r) if weighting == "row" else 1)) for v in r] for r in ROWS]


def column_weights(sampler: str, weighting: str) -> list[Fraction]:
    """What the columns of the small graph are drawn in proportion to, by the definition of each sampler."""
    rows = small_rows(weighting)
    if sampler == "fastgcn":
        return laws.norm_weights(rows, len(ROWS))
    frontier = [rows[i] for i in FRONTIER]
    return (laws.norm_weights if sampler == "norm" else laws.squared_count_weights)(frontier, len(ROWS))


def product_of(sampler: str, A: LocalOperand, Q: RowSelector) -> Any:
    """Q A as each sampler writes it."""
    if sampler == "fastgcn":
        return column_norms(Q, A)
    return Q.per_batch() @ square(A) if sampler == "norm" else square(Q.per_batch() @ A)


# --- row law ------------------------------------------------------------------------------------------------------


def uniform_row(backend: Backend, draws: int, degree: int, size: int) -> float:
    """Row law, uniform, without replacement: every ordered outcome of Floyd's algorithm, whose sets are uniform."""
    A = operand(hub(degree), backend)
    return laws.outcome_p_value(row_draws(A, repeated([0], draws), Draw(KEY, 0, size)), laws.floyd(degree, size))


def uniform_row_with_replacement(backend: Backend, draws: int, degree: int, size: int) -> float:
    """Row law, uniform, with replacement."""
    A = operand(hub(degree), backend)
    samples = row_draws(A, repeated([0], draws), Draw(KEY, 0, size, True))
    return laws.outcome_p_value(samples, laws.independent([1] * degree, size))


def weighted_row(backend: Backend, draws: int, weights: Sequence[float], size: int) -> float:
    """Row law, weighted, without replacement: successive sampling in proportion to the weights."""
    A = operand(hub(len(weights), weights), backend)
    samples = row_draws(A, repeated([0], draws), Draw(KEY, 0, size))
    return laws.outcome_p_value(samples, laws.successive([Fraction(w) for w in weights], size))


def weighted_row_with_replacement(backend: Backend, draws: int, weights: Sequence[float], size: int) -> float:
    """Row law, weighted, with replacement."""
    A = operand(hub(len(weights), weights), backend)
    samples = row_draws(A, repeated([0], draws), Draw(KEY, 0, size, True))
    return laws.outcome_p_value(samples, laws.independent([Fraction(w) for w in weights], size))


def tiny_weight_is_never_lost(backend: Backend, draws: int) -> float:
    """Row law, weighted: a positive weight is in the support however small, a weight of 0 never is."""
    weights = [0.0, 1.0, 5e-324, 0.0, 1e-30, 1e300, 0.0]
    A = operand(hub(len(weights), weights), backend)
    found = row_draws(A, repeated([0], 3), Draw(KEY, 0, 4))
    require(bool((found == [1, 2, 4, 5]).all()), f"the support of {weights} was drawn as {found.tolist()}")
    return 1.0


# --- layer-wise laws ------------------------------------------------------------------------------------------------


def layer_columns(backend: Backend, draws: int, sampler: str, weighting: str, size: int) -> float:
    """LADIES and FastGCN without replacement: successive sampling of the merged columns."""
    A = operand(small_graph(weighting), backend)
    samples = column_draws(product_of(sampler, A, repeated(FRONTIER, draws)), Draw(KEY, 0, size))
    return laws.outcome_p_value(samples, laws.successive(column_weights(sampler, weighting), size))


def layer_columns_with_replacement(backend: Backend, draws: int, sampler: str, weighting: str, size: int) -> float:
    """LADIES and FastGCN with replacement: counts of independent draws of merged columns."""
    A = operand(small_graph(weighting), backend)
    samples = column_draws(product_of(sampler, A, repeated(FRONTIER, draws)), Draw(KEY, 0, size, True))
    law = laws.sets_of(laws.independent(column_weights(sampler, weighting), size))
    return laws.outcome_p_value(np.sort(samples, axis=1), law)


def dominated_frontier(backend: Backend, draws: int) -> float:
    """Entry law where one column holds nearly all entries, so that most samples need a second round of draws."""
    graph = Graph(np.array([0, 90, 100, 100]), np.repeat(np.arange(3, dtype=np.int32), [90, 9, 1]))
    samples = column_draws(repeated([0, 1], draws).per_batch() @ square(operand(graph, backend)), Draw(KEY, 0, 2))
    return laws.outcome_p_value(samples, laws.successive([90, 9, 1], 2))


def explicit_numerators(backend: Backend, draws: int, numerators: Sequence[int], size: int) -> float:
    """Column law on numerators so small that every x in [0, T) is drawn: 0, T - 1 and every boundary between."""
    samples = numerator_draws(backend, numerators, draws, Draw(KEY, 0, size))
    return laws.outcome_p_value(samples, laws.successive(numerators, size))


def shared_numerators(backend: Backend, draws: int, numerators: Sequence[int], size: int) -> float:
    """The same on one shared row, which holds numerators of 0 at its ends and between."""
    samples = shared_draws(backend, numerators, draws, Draw(KEY, 0, size))
    return laws.outcome_p_value(samples, laws.successive(numerators, size))


# --- integers in [0, T) -----------------------------------------------------------------------------------------------


def large_total(backend: Backend, draws: int, numerators: Sequence[int]) -> float:
    """Draws from totals near 2^32 and up to 2^62, all of one batch."""
    samples = numerator_draws(backend, numerators, 1, Draw(KEY, 0, draws, True))
    return laws.chi_square(samples.reshape(-1, 1), laws.independent(numerators, 1))


def fine_positions(backend: Backend, draws: int, degree: int) -> float:
    """Positions in a row so long that Lemire's rejection matters: their thirds, and their remainders by 3.

    Without rejection (multiply and shift) each third remainder would be drawn twice as often as the others, with a
    remainder in the place of a product the first third would be.
    """
    A = LocalOperand(virtual_row(degree), None, backend)
    x = row_draws(A, repeated([0], 1), Draw(KEY, 0, draws, True))[0]
    require(bool(((x >= 0) & (x < degree)).all()), "a position lies outside its row")
    parts = [np.bincount(x // -(-degree // 3), minlength=3), np.bincount(x % 3, minlength=3)]
    exact = [np.diff([0, -(-degree // 3), 2 * -(-degree // 3), degree]), (degree + 2 - np.arange(3)) // 3]
    p_values = [laws.cells_p_value(zip(o, e / degree * draws, strict=True)) for o, e in zip(parts, exact, strict=True)]
    return laws.smallest(p_values)


# --- independence -----------------------------------------------------------------------------------------------------


def single_draws(backend: Backend, Q: RowSelector, hop: int = 0, key: tuple[int, int] = KEY) -> np.ndarray:
    """One draw of each stacked row of a graph whose five vertices all have the same five in-neighbours."""
    return row_draws(operand(clique(5), backend), Q, Draw(key, hop, 1))[:, 0]


def clique(n: int) -> Graph:
    """Every vertex is an in-neighbour of every vertex, itself included."""
    return Graph(np.arange(n + 1) * n, np.tile(np.arange(n, dtype=np.int32), n))


def batches_are_independent(backend: Backend, draws: int) -> float:
    """Batches i and i + 1 draw independently at the same vertex and hop."""
    x = single_draws(backend, repeated([0], draws))
    return laws.joint_uniform_p_value(x[0::2], x[1::2], 5, 5)


def far_batches_are_independent(backend: Backend, draws: int) -> float:
    """So do batches whose ids differ by 2^16 and 2^31."""
    x = single_draws(backend, repeated([0], draws // 3))
    p_values = [
        laws.joint_uniform_p_value(x, single_draws(backend, repeated([0], draws // 3, offset)), 5, 5)
        for offset in (2**16, 2**31)
    ]
    return laws.smallest(p_values)


def hops_are_independent(backend: Backend, draws: int) -> float:
    """Hops 0 and 1 draw independently in the same batch, at the same vertex."""
    Q = repeated([0], draws // 2)
    return laws.joint_uniform_p_value(single_draws(backend, Q), single_draws(backend, Q, hop=1), 5, 5)


def vertices_are_independent(backend: Backend, draws: int) -> float:
    """Two vertices of a batch draw independently."""
    x = single_draws(backend, repeated([3, 1], draws // 2)).reshape(-1, 2)
    return laws.joint_uniform_p_value(x[:, 0], x[:, 1], 5, 5)


def epochs_and_seeds_are_independent(backend: Backend, draws: int) -> float:
    """Epochs 0 and 1, random seeds 0 and 1, and epochs 2^32 apart draw independently."""
    Q = repeated([0], draws // 4)
    keys = [derive_key(*pair, SAMPLING) for pair in [(0, 0), (0, 1), (1, 0), (0, 2**32)]]
    x = [single_draws(backend, Q, key=key) for key in keys]
    return laws.smallest([laws.joint_uniform_p_value(x[0], other, 5, 5) for other in x[1:]])


def draws_are_independent(backend: Backend, draws: int) -> float:
    """Draws j and j + 1, j + 2, j + 4 (of the next block) of one row are independent, with words of 32 bits."""
    return _lags_p_value(row_draws(operand(hub(5), backend), repeated([0], 1), Draw(KEY, 0, draws, True))[0])


def wide_draws_are_independent(backend: Backend, draws: int) -> float:
    """The same with words of 64 bits, which a row needs whose weights are far apart."""
    A = operand(hub(6, [1.0] * 5 + [1e-15]), backend)
    return _lags_p_value(row_draws(A, repeated([0], 1), Draw(KEY, 0, draws, True))[0])


def _lags_p_value(x: np.ndarray) -> float:
    return laws.smallest([laws.joint_uniform_p_value(*_lagged(x, lag), 5, 5) for lag in (1, 2, 4)])


def _lagged(x: np.ndarray, lag: int) -> tuple[np.ndarray, np.ndarray]:
    """Disjoint pairs (x_j, x_(j + lag))."""
    blocks = x[: len(x) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
    return blocks[:, 0].ravel(), blocks[:, 1].ravel()


def rejected_draws_borrow_nothing(backend: Backend, draws: int) -> float:
    """A rejected word is made again under another attempt: it is not replaced by a word of another draw.

    T = 3 2^30 rejects a quarter of all words; draws 4j .. 4j + 3, their pairs in particular, stay independent.
    """
    A = LocalOperand(virtual_row(3 * 2**30), None, backend)
    x = row_draws(A, repeated([0], 1), Draw(KEY, 0, draws, True))[0] // 2**28
    return laws.joint_uniform_p_value(*_lagged(x, 1), 12, 12)


def layers_are_independent(backend: Backend, draws: int, sampler: str) -> float:
    """LADIES and FastGCN: one column at each of two hops, which does not depend on the frontier in a clique."""
    A, Q = operand(clique(5), backend), repeated([0, 4], draws // 2)
    columns = [column_draws(product_of(sampler, A, Q), Draw(KEY, hop, 1))[:, 0] for hop in (0, 1)]
    return laws.joint_uniform_p_value(columns[0], columns[1], 5, 5)


# --- values -----------------------------------------------------------------------------------------------------------


def estimate_is_unbiased(A: LocalOperand, frontier: Sequence[int], sampler: str, draw: Draw, targets: bool) -> float:
    """The mean of A^l over every outcome, each with its exact probability, is A itself, entry by entry.

    The outcomes' probabilities are those of the integers that are drawn from, so that quantisation does not enter.
    """
    numerators = drawn_numerators(A, frontier, sampler)
    support = tuple(v for v, N in enumerate(numerators) if N)
    whole = not draw.replace and len(support) <= draw.size
    law = (laws.independent if draw.replace else laws.successive)(numerators, draw.size)
    if whole:
        law = {support: Fraction(1)}
    P = normalize_rows(product_of(sampler, A, repeated(frontier, len(law))))
    require(int(its_sample(P, draw).totals[0]) == sum(numerators), "T is not the sum of the numerators")
    sample = sample_of(list(law), sum(numerators), A, whole)
    layer = extract(LayerSample(P, draw, sample), ExtractOptions(targets), UnbiasedWeights())
    mean = mean_adjacency(layer, [float(p) for p in law.values()], A.num_nodes)
    expected = dense_rows(A, frontier)
    tolerance = 1e-6 if layer.data.dtype == np.float32 else 1e-12
    require(np.allclose(mean, expected, rtol=tolerance, atol=0), f"the mean of A^l is\n{mean}\nnot\n{expected}")
    return 1.0


def small_estimate_is_unbiased(
    backend: Backend, draws: int, sampler: str, weighting: str, draw: tuple[int, bool], targets: bool
) -> float:
    """The same on the small graph; `draw` is (size, replace)."""
    A = operand(small_graph(weighting), backend)
    return estimate_is_unbiased(A, FRONTIER, sampler, Draw(KEY, 0, *draw), targets)


def drawn_numerators(A: LocalOperand, frontier: Sequence[int], sampler: str) -> list[int]:
    """N of each vertex, as the library has it."""
    if sampler == "fastgcn":
        return A.column_norms.numerators(np.arange(A.num_nodes, dtype=A.index_dtype)).tolist()
    Q = repeated(frontier, 1)
    a, c = (2, 1) if sampler == "norm" else (1, 2)
    F = A.frontier(Q)
    merged = F.merge_columns(frontier_rule(A.weighting, F.batch_statistics, a, c))
    N = np.zeros(A.num_nodes, np.uint64)
    N[merged.columns] = merged.numerators
    return N.tolist()


def sample_of(outcomes: list[tuple[int, ...]], total: int, A: LocalOperand, whole: bool) -> ColumnSample:
    """All outcomes as the batches of one ColumnSample."""
    merged = [dict.fromkeys(outcome) for outcome in outcomes]
    return ColumnSample(
        np.cumsum([0, *(len(m) for m in merged)]),
        np.array([v for m in merged for v in m], A.index_dtype),
        np.array([o.count(v) for o, m in zip(outcomes, merged, strict=True) for v in m], np.int64),
        np.full(len(outcomes), total, np.uint64),
        np.full(len(outcomes), whole),
    )


def mean_adjacency(layer: Any, probabilities: Sequence[float], n: int) -> np.ndarray:
    """(frontier, n) dense sum of the batches' matrices, each times its probability."""
    k, rows = len(probabilities), layer.rows
    lengths = np.diff(rows.indptr.reshape(k, -1), axis=1).ravel()
    row = np.repeat(np.tile(np.arange(lengths.size // k), k), lengths)
    batch = np.repeat(np.arange(k), np.diff(rows.entry_ptr))
    column = layer.src[layer.src_ptr[batch] + rows.columns]
    mean = np.zeros((lengths.size // k, n))
    np.add.at(mean, (row, column), layer.data.astype(np.float64) * np.asarray(probabilities)[batch])
    return mean


def dense_rows(A: LocalOperand, frontier: Sequence[int]) -> np.ndarray:
    """The frontier's rows of A, entries of the same column added up."""
    dense = np.zeros((len(frontier), A.num_nodes))
    for i, vertex in enumerate(frontier):
        lo, hi = A.matrix.indptr[vertex : vertex + 2]
        weight = 1.0 / (hi - lo) if A.weighting == "row" and hi > lo else 1.0
        values = np.full(hi - lo, weight) if A.matrix.data is None else A.matrix.data[lo:hi]
        np.add.at(dense[i], A.matrix.indices[lo:hi], values)
    return dense
