"""Copies of the reference with one fault each, for `test_planted_faults.py`.

A fault is a change of the source text of one module, in the form that `ast.unparse` gives it (one statement a line,
single quotes, no comments), so that it does not depend on how the source is laid out. Changed modules live in a
temporary package.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import checks

from spsample.backends import Backend, reference

_numbers = itertools.count()
Check = Callable[[Backend, int], float]


class Fault(NamedTuple):
    """In the copy of `module`, `old` becomes `new`; the check that must see it."""

    name: str
    module: str
    old: str
    new: str
    check: Check


def copy_of_reference(folder: Path, module: str = "", old: str = "", new: str = "") -> Backend:
    """A ReferenceBackend made of copies of its modules under `folder`, with the change planted in one of them."""
    name = f"copied_reference_{next(_numbers)}"
    (folder / name).mkdir()
    for path in Path(reference.__file__).parent.glob("*.py"):
        text = planted(path, old, new) if path.stem == module else path.read_text()
        (folder / name / path.name).write_text(text.replace("spsample.backends.reference", name))
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        backend: Backend = importlib.import_module(name).ReferenceBackend()
        return backend
    finally:
        sys.path.remove(str(folder))


def planted(path: Path, old: str, new: str) -> str:
    """The source of a module with one change; AssertionError where `old` is not there exactly once."""
    text = ast.unparse(ast.parse(path.read_text()))
    count = text.count(old)
    if count != 1:
        raise AssertionError(f"{path.name} holds {old!r} {count} times: adapt the planted fault to the changed source")
    return text.replace(old, new)


def uniform(degree: int, size: int) -> Check:
    """A uniform row."""
    return lambda backend, draws: checks.uniform_row(backend, draws, degree, size)


def weighted(weights: list[float], size: int) -> Check:
    """A weighted row."""
    return lambda backend, draws: checks.weighted_row(backend, draws, weights, size)


def numerators(N: list[int], size: int) -> Check:
    """Explicit numerators: the column law."""
    return lambda backend, draws: checks.explicit_numerators(backend, draws, N, size)


def layer(sampler: str, weighting: str, size: int) -> Check:
    """Columns of a layer-wise sampler."""
    return lambda backend, draws: checks.layer_columns(backend, draws, sampler, weighting, size)


def multiset(sampler: str, weighting: str, size: int) -> Check:
    """The same with replacement."""
    return lambda backend, draws: checks.layer_columns_with_replacement(backend, draws, sampler, weighting, size)


def values(sampler: str, draw: tuple[int, bool], targets: bool) -> Check:
    """Exact mean of the values."""
    return lambda backend, draws: checks.small_estimate_is_unbiased(backend, draws, sampler, "weighted", draw, targets)


def positions(degree: int) -> Check:
    """Positions in a long row, ten times as many."""
    return lambda backend, draws: checks.fine_positions(backend, 10 * draws, degree)


def total(N: list[int]) -> Check:
    """Explicit numerators of a large total, ten times as many draws."""
    return lambda backend, draws: checks.large_total(backend, 10 * draws, N)


def many(check: Check) -> Check:
    """Ten times as many draws, where they come from one row and are cheap."""
    return lambda backend, draws: check(backend, 10 * draws)


BACKWARDS = [1e-12, 1e-12, 1e-12, 7e-12, 1.0]
NEXT_ENTRY = (
    "for y in its(remaining, x).tolist():\n"
    "            while y in chosen and len(chosen) < len(numerators):\n"
    "                y = (y + 1) % len(numerators)\n"
    "            chosen[y] = None"
)

FIRST_AND_LAST = [
    Fault(
        "Floyd never chooses the first neighbour",
        "row_law",
        "if t in chosen else t)",
        "if t in chosen else max(t, 1))",
        uniform(5, 1),
    ),
    Fault(
        "ITS never chooses the first entry",
        "row_law",
        "side='right').astype(np.int64)",
        "side='right').astype(np.int64).clip(1)",
        weighted([1.0, 2.0, 3.0], 1),
    ),
    Fault(
        "Floyd chooses the last neighbour too often",
        "row_law",
        "stream.integers(j, last + 1, degree > NARROW_LIMIT)",
        "np.minimum(stream.integers(j, last + 2, degree > NARROW_LIMIT), last.astype(np.uint64))",
        uniform(5, 2),
    ),
    Fault(
        "Floyd draws from a range that is one too short",
        "row_law",
        "stream.integers(j, last + 1, degree > NARROW_LIMIT)",
        "stream.integers(j, last, degree > NARROW_LIMIT)",
        uniform(5, 2),
    ),
    Fault(
        "ITS chooses the last entry too often",
        "row_law",
        "np.searchsorted(np.cumsum(numerators, dtype=np.uint64), x, side='right')",
        "np.searchsorted(np.cumsum(numerators, dtype=np.uint64)[:-1], x + np.uint64(1), side='right')",
        numerators([2, 3, 2], 1),
    ),
    Fault(
        "the upper bound is off by one (column law)",
        "row_law",
        "side='right'",
        "side='left'",
        numerators([1, 2, 3, 1], 2),
    ),
    Fault(
        "the upper bound is off by one (shared row)",
        "row_law",
        "side='right'",
        "side='left'",
        lambda backend, draws: checks.shared_numerators(backend, draws, [0, 3, 1, 2, 0], 1),
    ),
    Fault(
        "the upper bound is off by one (entry law)",
        "row_law",
        "side='right'",
        "side='left'",
        layer("norm", "unweighted", 2),
    ),
]

RANDOM_BITS = [
    Fault(
        "remainder in the place of Lemire's product, narrow",
        "random",
        "np.where(wide, multiply_high(word, total), narrow_product >> HALF)",
        "word % total",
        total([2**30] * 3),
    ),
    Fault(
        "remainder in the place of Lemire's product, wide",
        "random",
        "np.where(wide, multiply_high(word, total), narrow_product >> HALF)",
        "word % total",
        total([2**60] * 3),
    ),
    Fault("nothing is rejected", "random", "low >= threshold", "low >= 0", positions(3 * 2**30)),
    Fault(
        "a rejected draw takes the next draw's word",
        "random",
        "j[pending], wide[pending], attempt)",
        "j[pending] + attempt, wide[pending], 0)",
        many(checks.rejected_draws_borrow_nothing),
    ),
    Fault(
        "all batches share a counter",
        "random",
        "np.asarray(stream.batch).astype(np.uint64)",
        "0",
        checks.batches_are_independent,
    ),
    Fault(
        "the batch id loses its high bits",
        "random",
        "np.asarray(stream.batch).astype(np.uint64)",
        "np.asarray(stream.batch).astype(np.uint64) & np.uint64(65535)",
        checks.far_batches_are_independent,
    ),
    Fault("all hops share a counter", "random", "stream.hop << 16", "0", checks.hops_are_independent),
    Fault("all vertices share a counter", "random", "vertex & LOW", "0", checks.vertices_are_independent),
    Fault(
        "all blocks of draws share a counter", "random", "number // per_block", "0", many(checks.draws_are_independent)
    ),
    Fault(
        "the draws of a block share a word",
        "random",
        "2 * slot, slot",
        "2 * slot, 0 * slot",
        many(checks.draws_are_independent),
    ),
    Fault(
        "the wide draws of a block share a word",
        "random",
        "2 * slot + 1",
        "1 + 0 * slot",
        many(checks.wide_draws_are_independent),
    ),
    Fault(
        "the key is left out",
        "random",
        "k = [int(key[0]), int(key[1])]",
        "k = [0, 0]",
        checks.epochs_and_seeds_are_independent,
    ),
]

DUPLICATES = [
    Fault(
        "Floyd drops a duplicate",
        "row_law",
        "chosen.append(top if t in chosen else t)",
        "chosen.extend([] if t in chosen else [t])",
        uniform(5, 3),
    ),
    Fault(
        "Floyd replaces a duplicate by the smallest position left",
        "row_law",
        "chosen.append(top if t in chosen else t)",
        "chosen.append(min(set(range(degree)) - set(chosen)) if t in chosen else t)",
        uniform(6, 2),
    ),
    Fault(
        "duplicates count towards s",
        "row_law",
        "chosen.update(dict.fromkeys(its(remaining, x).tolist()))",
        "chosen.update(dict.fromkeys(its(remaining, x).tolist()[:size]))\n        break",
        weighted([5.0, 1.0, 1.0, 3.0], 2),
    ),
    Fault(
        "a duplicate is replaced by the next entry",
        "row_law",
        "chosen.update(dict.fromkeys(its(remaining, x).tolist()))",
        NEXT_ENTRY,
        weighted([5.0, 1.0, 1.0, 3.0], 2),
    ),
    Fault(
        "a later round makes the same draws again",
        "row_law",
        "first += ROUND_DRAWS * size",
        "first += 0",
        lambda backend, draws: checks.weighted_row(backend, 4 * draws, [90.0, 9.0, 1.0], 2),
    ),
    Fault(
        "a later round makes the same draws again (entry law)",
        "entry_law",
        "first += ROUND_DRAWS * size",
        "first += 0",
        lambda backend, draws: checks.dominated_frontier(backend, 4 * draws),
    ),
    Fault(
        "what was drawn is not taken out of the total in proportion",
        "row_law",
        "remaining[list(chosen)] = 0",
        "remaining[:] = numerators > 0\n        remaining[list(chosen)] = 0",
        weighted([90.0, 7.0, 2.0, 1.0], 2),
    ),
    Fault(
        "repeats with replacement count once",
        "column_law",
        "for c in counter.values()]",
        "for c in [1] * len(counter)]",
        multiset("norm", "row", 3),
    ),
]

PROBABILITIES = [
    Fault(
        "weights are ignored",
        "quantisation",
        "return quantize(weights, ",
        "return quantize(np.sign(weights), ",
        weighted([1.0, 2.0, 3.0], 1),
    ),
    Fault(
        "small totals of rows are always narrow",
        "quantisation",
        "if narrow else WIDE_BITS",
        "if True else WIDE_BITS",
        weighted(BACKWARDS, 2),
    ),
    Fault(
        "tiny weights are lost", "quantisation", "np.maximum(scaled, 1.0)", "scaled", checks.tiny_weight_is_never_lost
    ),
    Fault(
        "weights are not squared (LADIES)",
        "quantisation",
        "m if power == 1 else m * m, power * e + shift",
        "m, e + shift",
        layer("norm", "weighted", 1),
    ),
    Fault(
        "weights are not squared (FastGCN)",
        "quantisation",
        "m if power == 1 else m * m, power * e + shift",
        "m, e + shift",
        layer("fastgcn", "weighted", 1),
    ),
    Fault(
        "column sums are not squared",
        "column_law",
        "numerators.append(sums[sums > 0] ** rule.column_power)",
        "numerators.append(sums[sums > 0])",
        layer("squared_count", "unweighted", 1),
    ),
    Fault(
        "FastGCN sees the first rows only",
        "column_law",
        "for row in range(rows)",
        "for row in range(len(totals) - 2)",
        layer("fastgcn", "row", 1),
    ),
    Fault(
        "parallel edges are merged (entry law)",
        "entry_law",
        "[A.indices[A.indptr[v]:A.indptr[v + 1]] for v in Q.vertices[lo:hi]]",
        "[np.unique(A.indices[A.indptr[v]:A.indptr[v + 1]]) for v in Q.vertices[lo:hi]]",
        layer("norm", "unweighted", 1),
    ),
    Fault(
        "rows of the frontier count the same (entry law)",
        "entry_law",
        "np.repeat(q[lo:hi], [len(r) for r in rows])",
        "np.concatenate([np.full(len(r), 12 // max(len(r), 1), np.uint64) for r in rows])",
        layer("norm", "unweighted", 1),
    ),
    Fault(
        "row normalisation is left out (entry law)",
        "entry_law",
        "np.repeat(q[lo:hi], [len(r) for r in rows])",
        "np.repeat(q[lo:hi] // q[lo:hi].clip(1), [len(r) for r in rows])",
        layer("norm", "row", 1),
    ),
]

REMAINING = "np.cumsum(numerators[lo:hi - 1], dtype=np.uint64)"
VALUES = [
    Fault(
        "Des Raj without the remaining mass",
        "values",
        REMAINING,
        f"0 * {REMAINING}",
        values("norm", (2, False), False),
    ),
    Fault(
        "Des Raj without the rank",
        "values",
        "(size - rank)",
        "0 * (size - rank)",
        values("squared_count", (2, False), False),
    ),
    Fault(
        "targets weigh as if drawn",
        "values",
        "sources.local >= np.repeat(num_targets, np.diff(sample.indptr))",
        "sources.local >= 0",
        values("norm", (2, False), True),
    ),
    Fault(
        "counts with replacement are left out",
        "values",
        "sample.counts.astype(np.float64) * totals",
        "totals",
        values("norm", (3, True), False),
    ),
    Fault(
        "whole supports get weights",
        "values",
        "np.where(np.repeat(sample.whole, drawn), 1.0, weights)",
        "weights",
        values("fastgcn", (7, False), False),
    ),
]
