"""Draws of different batches, hops, vertices, epochs and seeds are independent (law, section 1)."""

from __future__ import annotations

import checks
import laws
import numpy as np
import pytest

from spsample import GraphSAGE, bulk_sample

pytestmark = pytest.mark.statistical

PAIRS = [
    checks.batches_are_independent,
    checks.far_batches_are_independent,
    checks.hops_are_independent,
    checks.vertices_are_independent,
    checks.epochs_and_seeds_are_independent,
    checks.draws_are_independent,
    checks.wide_draws_are_independent,
    checks.rejected_draws_borrow_nothing,
]


@pytest.mark.parametrize("check", PAIRS, ids=lambda check: check.__name__)
def test_joint_table(backend, draws, check):
    assert check(backend, 3 * draws) > laws.SMALLEST_P


@pytest.mark.parametrize("sampler", checks.SAMPLERS)
def test_layer_wise_hops(backend, draws, sampler):
    assert checks.layers_are_independent(backend, 3 * draws, sampler) > laws.SMALLEST_P


@pytest.mark.parametrize("layout", ["blocks", "subgraph"])
def test_hops_of_one_minibatch(backend, calls, layout):
    """GraphSAGE from end to end: what a vertex draws at hop 1 does not depend on which vertex was drawn at hop 0.

    In a clique of six, seed 0 draws v at hop 0 and v draws w at hop 1 (in the subgraph layout only where v is not 0).
    """
    bulk = bulk_sample(
        checks.clique(6),
        [0] * (2 * calls),
        GraphSAGE([1, 1], layout=layout),
        batch_size=1,
        edge_ids=True,
        backend=backend.name,
    )
    far, near = bulk.layers
    last = far.entry_ranges.begin + far.entry_ranges.size - 1  # the row of the newest vertex is the last one
    v = near.edge_ids[near.entry_ranges.begin] % 6
    w = far.edge_ids[last] % 6
    new = v != 0
    assert laws.joint_uniform_p_value(v[new] - 1, w[new], 5, 6) > laws.SMALLEST_P


def test_shuffling_is_uniform(backend):
    """Every order of four positions is as likely as any other; epochs are shuffled independently (law, section 5)."""
    from spsample import shuffle

    orders = np.array([shuffle(4, random_seed=9, epoch=epoch, backend=backend.name) for epoch in range(4000)])
    law = laws.successive([1, 1, 1, 1], 4)
    assert laws.chi_square(orders, law) > laws.SMALLEST_P
    place = np.argmin(orders, axis=1)
    assert laws.chi_square(place.reshape(-1, 2), laws.independent([1] * 4, 2)) > laws.SMALLEST_P
