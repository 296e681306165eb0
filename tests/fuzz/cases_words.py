"""The words of the algebra, as a sampler of one's own uses them."""

from __future__ import annotations

import numpy as np
from case import Case

import spsample as sp
from spsample import sparse
from spsample.backends import ColumnScale, available_backends, backend_for, get_backend
from spsample.sparse import Draw, ExtractOptions


def operand_and_selector(make):
    """A and Q of a small bulk."""
    graph = make.sound_graph()
    batches = [make.rng.permutation(graph.num_nodes)[: make.integer(0, 6)] for _ in range(make.integer(0, 4))]
    ids = [batch.astype(graph.indices.dtype) for batch in batches]
    return graph.operand(make.choice(["cpu", "reference"])), sparse.stack(ids) if ids else None


def draw(make, sizes=(1, 6)):
    """As `Sampler.run` makes it: a layer gets it, and hands it on."""
    key = sparse.derive_key(make.integer(0, 99), 0, 0)
    return Draw(key, make.integer(0, 9), make.integer(*sizes), make.chance(0.3))


def fuzz_words(make, folder):
    A, Q = operand_and_selector(make)
    if Q is None:
        return
    want = make.either(lambda: ExtractOptions(make.chance(0.5), make.chance(0.3)), 0.03)
    form = make.integer(0, 3)
    one = draw(make)
    if form == 0:
        product = lambda: Q @ (sparse.pattern(make.either(lambda: A, 0.03)) if make.chance(0.5) else A)  # noqa: E731
        P = sparse.normalize_rows(make.either(product, 0.03))
        sample = sparse.its_sample(make.either(lambda: P, 0.03), one, edge_ids=make.either(lambda: False, 0.03))
        sparse.extract(make.either(lambda: sample, 0.03), want)
        return
    right = lambda: Q.per_batch() @ (sparse.square(A) if make.chance(0.5) else A)  # noqa: E731
    if form == 2:
        right = lambda: sparse.column_norms(make.either(lambda: Q, 0.03), make.either(lambda: A, 0.03))  # noqa: E731
    P = sparse.normalize_rows(make.either(right, 0.03))
    sample = sparse.its_sample(make.either(lambda: P, 0.03), one)
    weights = make.choice([sparse.UnbiasedWeights, sparse.ReferenceWeights])(make.either(lambda: True, 0.05))
    layer = sparse.extract(make.either(lambda: sample, 0.03), want, make.either(lambda: weights, 0.03))
    layer.next_selector()


def fuzz_square(make, folder):
    A, Q = operand_and_selector(make)
    sparse.square(make.either(lambda: A if Q is None else Q.per_batch() @ A, 0.3))
    sparse.pattern(make.either(lambda: A, 0.3))
    sparse.column_norms(make.either(lambda: Q, 0.3), make.either(lambda: A, 0.3))


def fuzz_products(make, folder):
    A, Q = operand_and_selector(make)
    if Q is not None:
        Q @ make.either(lambda: A, 0.3)
        Q.per_batch() @ make.either(lambda: A, 0.3)


def fuzz_stack(make, folder):
    batch = lambda: make.either(lambda: make.rng.integers(0, 9, make.integer(0, 5)))  # noqa: E731
    batches = make.either(lambda: [batch() for _ in range(make.integer(0, 4))])
    stacked = sparse.stack(batches, make.either(lambda: make.integer(0, 9)))
    sparse.split(make.either(lambda: stacked.vertices), make.either(lambda: stacked.batch_ptr))


def fuzz_keys(make, folder):
    sparse.derive_key(*(make.either(lambda: make.integer(0, 9), 0.2) for _ in range(3)))


def fuzz_runtime(make, folder):
    before = sparse.get_num_threads()
    try:
        sparse.set_num_threads(make.either(lambda: make.integer(1, 4), 0.5))
    finally:
        sparse.set_num_threads(before)
    with sparse.measured_pool():
        sparse.clear_pool()
    sparse.pool_bytes()


def fuzz_backends(make, folder):
    get_backend(make.either(lambda: make.choice([None, *available_backends()]), 0.4))
    backend_for(make.either(lambda: np.zeros(3), 0.4))


def fuzz_local_operand(make, folder):
    graph = make.sound_graph()
    matrix = sparse.LocalOperand(graph.operand().matrix, graph.edge_ids, get_backend("reference"))
    assert matrix.num_nodes == graph.num_nodes


def fuzz_scaled_operand(make, folder):
    """As `Biased` makes it."""
    A, Q = operand_and_selector(make)
    if Q is None:
        return
    members = make.rng.integers(0, 2**63, make.integer(0, 3)).astype(np.uint64)
    scale = ColumnScale(members, make.choice([1.0, 2.0, 0.25, 1e18]))
    scaled = sparse.ScaledOperand(A, scale, None)
    P = sparse.normalize_rows(make.either(lambda: Q @ scaled, 0.05))
    sparse.its_sample(make.either(lambda: P, 0.05), draw(make))


CASES = {
    "words": Case(
        fuzz_words,
        (
            sparse.extract,
            ExtractOptions,
            sparse.UnbiasedWeights,
            sparse.ReferenceWeights,
            sparse.RowSelector,
            sparse.BatchSelector,
        ),
        3,
    ),
    "square": Case(fuzz_square, (sparse.square, sparse.pattern, sparse.column_norms)),
    "products": Case(fuzz_products, ()),
    "stack": Case(fuzz_stack, (sparse.stack, sparse.split)),
    "keys": Case(fuzz_keys, (sparse.derive_key,)),
    "runtime": Case(
        fuzz_runtime,
        (sp.set_num_threads, sp.clear_pool, sparse.get_num_threads, sparse.measured_pool, sparse.pool_bytes),
    ),
    "backends": Case(fuzz_backends, (available_backends, get_backend, backend_for)),
    "scaled_operand": Case(fuzz_scaled_operand, (sparse.ScaledOperand,)),
    "local_operand": Case(fuzz_local_operand, (sparse.LocalOperand,)),
}
