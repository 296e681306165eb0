"""Plans of copies over devices: their optimum by exhaustive search, published examples, bad input."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from spsample.errors import DTypeError, InputError
from spsample.features import CopyPlan, copy_cost, plan_copies
from spsample.features.copies import METHODS, CopyRequest, greedy, link_costs
from spsample.features.scores.order import hottest
from tests.unit.copies_search import least_largest, least_mean, most_spared

ALPHAS = (0.1, 0.3, 0.5, 0.8, 1.0, 2.0)


def zipf(n, exponent=1.0, seed=0):
    """Scores of a power law, shuffled."""
    return np.random.default_rng(seed).permutation(np.arange(1, n + 1) ** -float(exponent))


def uniform_links(alpha, devices):
    links = np.full((devices, devices), min(alpha, 1.0))
    np.fill_diagonal(links, 0)
    return links


def small_case(rng):
    """Devices, vertices and budget of at most some thousand plans, and scores with zeros and ties among them."""
    two = [(2, 6, 1), (2, 6, 2), (2, 6, 3), (2, 5, 4), (2, 4, 4)]
    more = [(3, 5, 1), (3, 5, 2), (3, 4, 3), (4, 4, 1), (4, 4, 2), (4, 5, 1), (5, 4, 1)]
    devices, n, budget = rng.choice([(1, 5, 2), (1, 6, 6), *two, *more])
    scores = [rng.random, lambda k: rng.integers(0, 4, k) * 1.0, lambda k: rng.random(k) ** 8, np.ones, np.zeros]
    kind = scores[rng.choice(5, p=[0.4, 0.3, 0.2, 0.05, 0.05])]
    return int(devices), int(n), int(budget), kind


@pytest.mark.parametrize("block", range(10))
def test_best_copies_is_the_optimum_of_the_mean(block):
    rng = np.random.default_rng(block)
    for _ in range(60):
        devices, n, budget, kind = small_case(rng)
        scores, alpha = kind(n), float(rng.choice([*ALPHAS, rng.random(), 1e-6, 100.0]))
        plan = plan_copies(scores, devices, budget, alpha)
        least = least_mean(scores, devices, budget, uniform_links(alpha, devices))
        assert copy_cost(plan, scores, alpha).mean == pytest.approx(least, rel=1e-9, abs=1e-12)
        for method in ("replicated", "interleaved", "song-jiang"):
            other = plan_copies(scores, devices, budget, alpha, method=method)
            assert copy_cost(other, scores, alpha).mean >= least - 1e-12
        of_matrices = plan_copies([scores] * devices, devices, budget, np.full((devices, devices), alpha))
        assert all(map(np.array_equal, of_matrices.vertices, plan.vertices))


@pytest.mark.parametrize("kind", ["scores by device", "links by device", "both"])
def test_greedy_is_near_the_optimum(kind):
    """Greedy spares 0.85 at least of what the best plan spares, and 0.98 on average."""
    rng = np.random.default_rng(7)
    shares = []
    for _ in range(150):
        devices, n, budget, _ = small_case(rng)
        scores = rng.random((devices, n)) ** 2 if kind != "links by device" else rng.random(n) ** 2
        alpha = rng.random((devices, devices)) + 0.05 if kind != "scores by device" else float(rng.random())
        links = uniform_links(1.0, devices) * np.minimum(alpha, 1.0)
        total = np.broadcast_to(scores, (devices, n)).sum() / devices
        plan = plan_copies(scores, devices, budget, alpha)
        least = least_mean(scores, devices, budget, links)
        shares.append((total - copy_cost(plan, scores, alpha).mean) / (total - least))
    assert max(shares) <= 1 + 1e-9
    assert min(shares) > 0.85
    assert np.mean(shares) > 0.98


def one_by_one(scores, links, budget):
    """`greedy`, one copy at a time: the set of (device, vertex)."""
    devices, n = scores.shape
    paid, taken = np.ones((devices, n)), set()
    for _ in range(devices * budget):
        spared = {
            (i, v): float(scores[:, v] @ np.maximum(paid[:, v] - links[:, i], 0))
            for i, v in product(range(devices), range(n))
            if (i, v) not in taken and sum(j == i for j, _ in taken) < budget
        }
        i, v = max(spared, key=spared.__getitem__)
        taken.add((i, v))
        paid[:, v] = np.minimum(paid[:, v], links[:, i])
    return taken


def test_greedy_takes_the_copy_that_spares_most():
    rng = np.random.default_rng(3)
    for _ in range(40):
        devices, n, budget = int(rng.integers(1, 5)), 7, int(rng.integers(1, 8))
        scores, alpha = rng.random((devices, n)), rng.random((devices, devices)) + 0.05
        plan = plan_copies(scores, devices, budget, alpha)
        links = uniform_links(1.0, devices) * np.minimum(alpha, 1.0)
        made = {(i, int(v)) for i, one in enumerate(plan.vertices) for v in one}
        assert made == one_by_one(scores, links, budget)


@pytest.mark.parametrize("alpha", [0.2, 0.7, 1.5])
def test_greedy_with_equal_links_gives_the_optimum_and_even_devices(alpha):
    scores = zipf(2000)
    found = copy_cost(CopyPlan.of(greedy(CopyRequest(scores, 4, 100, alpha)), 2000), scores, alpha)
    assert found.mean == pytest.approx(copy_cost(plan_copies(scores, 4, 100, alpha), scores, alpha).mean, rel=1e-12)
    assert found.largest < 1.005 * found.mean


def test_the_bound_of_large_cases_holds():
    """`most_spared` is no less than what the best plan spares, and near it."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        devices, n, budget, _ = small_case(rng)
        scores, links = rng.random((devices, n)), link_costs(rng.random((devices, devices)) + 0.05, devices)
        most = scores.sum() / devices - least_mean(scores, devices, budget, links)
        assert most * (1 - 1e-12) <= most_spared(scores, devices, budget, links) < 1.05 * most


def test_best_copies_of_many_rows_spare_as_much_as_any_plan_can():
    scores, links = zipf(5000), uniform_links(0.4, 4)
    spared = scores.sum() - copy_cost(plan_copies(scores, 4, 250, 0.4), scores, 0.4).mean
    assert spared == pytest.approx(most_spared(scores, 4, 250, links), rel=1e-6)


def largest_of_both(scores, devices, budget, alpha):
    """The cost of the device that pays most by each objective: by "mean", by "max"."""
    plans = (plan_copies(scores, devices, budget, alpha, objective=objective) for objective in ("mean", "max"))
    return [copy_cost(plan, scores, alpha).largest for plan in plans]


@pytest.mark.parametrize("kind", ["scores by device", "links by device", "both"])
def test_exchanges_bring_the_largest_device_near_its_least(kind):
    """It pays at most 1.6 times the least and 1.03 on average, the median the least; less than by objective "mean"."""
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(70):
        devices, n, budget, _ = small_case(rng)
        scores = rng.random((devices, n)) ** 2 * rng.choice([1, 3], (devices, 1)) if kind[0] != "l" else rng.random(n)
        alpha = rng.random((devices, devices)) + 0.05 if kind != "scores by device" else float(rng.random())
        least = least_largest(scores, devices, budget, uniform_links(1.0, devices) * np.minimum(alpha, 1.0))
        if least > 0:
            ratios.append(np.array(largest_of_both(scores, devices, budget, alpha)) / least)
    by_mean, by_max = np.transpose(ratios)
    assert by_max.min() >= 1 - 1e-9
    assert np.median(by_max) == pytest.approx(1.0)
    assert by_max.max() < 1.6
    assert by_max.mean() < min(1.03, by_mean.mean())


def test_exchanges_of_many_rows_come_near_what_any_plan_can_spare():
    """Of weighted costs no plan can spare more than `most_spared`, and the largest is no less than a weighted mean."""
    scores = np.stack([zipf(5000, seed=i) * (1 + i / 3) for i in range(4)])
    plan = plan_copies(scores, 4, 250, 0.3, objective="max")
    found = copy_cost(plan, scores, 0.3)
    weights = (found.devices / found.largest) ** 300
    weighted = scores * (weights / weights.sum())[:, None]
    least = weighted.sum() - 4 * most_spared(weighted, 4, 250, uniform_links(0.3, 4))
    assert least * (1 - 1e-9) <= found.largest < 1.035 * least
    assert found.largest < 1.01 * found.mean
    assert found.largest < 0.9 * copy_cost(plan_copies(scores, 4, 250, 0.3), scores, 0.3).largest


@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 12), st.booleans(), st.data())
def test_exchanges_keep_budgets_and_never_raise_the_largest(devices, n, budget, by_link, data):
    scores = np.array(data.draw(st.lists(values, min_size=devices * n, max_size=devices * n))).reshape(devices, n)
    entries = st.lists(st.floats(0.01, 3), min_size=devices**2, max_size=devices**2)
    alpha = np.array(data.draw(entries)).reshape(devices, devices) if by_link else data.draw(alphas)
    plan = plan_copies(scores, devices, budget, alpha, objective="max")
    assert [len(one) for one in CopyPlan.of(plan.vertices, n).vertices] == [min(budget, n)] * devices
    by_mean, by_max = largest_of_both(scores, devices, budget, alpha)
    assert by_max <= by_mean
    again = plan_copies(scores, devices, budget, alpha, objective="max")
    assert all(map(np.array_equal, plan.vertices, again.vertices))


@pytest.mark.parametrize("alpha", [0.3, [[9, 0.3], [0.3, 9]], 1.5])
@pytest.mark.parametrize("rows", [1, 2])
def test_devices_that_are_alike_keep_the_plan_of_least_mean(alpha, rows):
    scores = zipf(200) if rows == 1 else np.stack([zipf(200)] * 2)
    plans = [plan_copies(scores, 2, 20, alpha, objective=objective).vertices for objective in ("mean", "max")]
    assert all(map(np.array_equal, *plans))


def test_a_device_is_helped_by_a_peer_near_it():
    """Device 1 needs nothing: it gives up a row of its own for one that device 0 reads from it."""
    plan = plan_copies([[9, 8, 7, 0], [0, 0, 1, 3]], 2, 1, [[0, 0.1], [2, 0]], objective="max")
    assert [one.tolist() for one in plan.vertices] == [[0], [1]]


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("by_device", [False, True])
def test_greedy_of_many_rows_is_near_what_any_plan_can_spare(by_device, share):
    """Two groups of devices with fast links, and one score or one for each."""
    matrix = np.kron(np.eye(2), np.full((2, 2), 0.2)) + np.kron(1 - np.eye(2), np.full((2, 2), 0.6))
    scores = np.stack([zipf(5000, seed=i if by_device else 0) for i in range(4)])
    budget = int(share * 5000)
    spared = scores.sum() / 4 - copy_cost(plan_copies(scores, 4, budget, matrix), scores, matrix).mean
    most = most_spared(scores, 4, budget, link_costs(matrix, 4))
    assert 0.98 * most < spared <= most * (1 + 1e-9)


def test_two_groups_of_devices_pay_nearly_the_same():
    matrix = np.kron(np.eye(2), np.full((4, 4), 0.2)) + np.kron(1 - np.eye(2), np.full((4, 4), 0.6))
    scores = zipf(20_000)
    found = copy_cost(plan_copies(scores, 8, 1000, matrix), scores, matrix)
    assert found.largest < 1.005 * found.mean


def test_two_pairs_of_devices_keep_a_copy_each():
    """The 2 + 2 topology of Song and Jiang: pairs with a fast link, the host between them."""
    matrix = np.full((4, 4), 3.0)
    matrix[:2, :2] = matrix[2:, 2:] = 0.1
    scores = zipf(1000)
    plan = plan_copies(scores, 4, 50, matrix)
    pairs = [set(np.concatenate(plan.vertices[first : first + 2]).tolist()) for first in (0, 2)]
    assert len(pairs[0] & pairs[1]) > 0.95 * len(pairs[0])
    alone = copy_cost(plan_copies(scores, 2, 50, 0.1), scores, 0.1)
    assert alone.mean * (1 - 1e-12) <= copy_cost(plan, scores, matrix).mean < 1.001 * alone.mean


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.5])
@pytest.mark.parametrize("n", [10**4, 10**5])
def test_devices_pay_the_same(n, exponent):
    """The largest device pays at most 0.1 % more than the mean."""
    scores = zipf(n, exponent)
    for devices, share, alpha in product((2, 4, 8), (0.05, 0.2), ALPHAS):
        found = copy_cost(plan_copies(scores, devices, int(n * share), alpha), scores, alpha)
        assert found.largest <= 1.001 * found.mean


def test_the_worked_example_of_song_and_jiang():
    """Two devices of two rows, alpha 0.3, vertices by probability 1, 2, 3, 4, 5, 0: then 1 3 and 4 2."""
    p = np.array([1, 9, 8, 6, 5, 3]) / 6
    plan = plan_copies(p, 2, 2, 0.3, method="song-jiang")
    assert [one.tolist() for one in plan.vertices] == [[1, 3], [4, 2]]


@pytest.mark.parametrize("alpha", [1.0, 1.7])
def test_case_1_of_song_and_jiang_keeps_the_hottest_everywhere(alpha):
    plan = plan_copies([1, 5, 3, 4], 3, 2, alpha, method="song-jiang")
    assert [one.tolist() for one in plan.vertices] == [[1, 3]] * 3


def test_case_2_of_song_and_jiang_stops_where_a_replacement_does_not_pay():
    plan = plan_copies([10, 9, 8, 3, 1, 1], 2, 3, 0.35, method="song-jiang")
    assert [sorted(one.tolist()) for one in plan.vertices] == [[0, 1, 3], [0, 1, 2]]  # 3 > 0.35 * 8, 1 < 0.35 * 9


def test_case_2_of_song_and_jiang_turns_to_the_device_that_got_least():
    plan = plan_copies(np.arange(9.0, 0, -1), 3, 3, 0.01, method="song-jiang")
    got = [set(one.tolist()) - {0, 1, 2} for one in plan.vertices]
    assert got == [{3, 8}, {4, 6}, {5, 7}]  # sums 6, 5, 0, then 6, 8, 4


def test_interleaved_takes_turns_behind_its_head():
    scores = np.arange(8.0, 0, -1)
    plans = [plan_copies(scores, 2, 3, 0.5, method="interleaved", head=head) for head in range(4)]
    assert [[one.tolist() for one in plan.vertices] for plan in plans] == [
        [[0, 2, 4], [1, 3, 5]],
        [[0, 1, 3], [0, 2, 4]],
        [[0, 1, 2], [0, 1, 3]],
        [[0, 1, 2], [0, 1, 2]],
    ]
    roomy = plan_copies(scores[:4], 2, 3, 0.5, method="interleaved")
    assert [one.tolist() for one in roomy.vertices] == [[0, 1, 2], [0, 1, 3]]


def test_replicated_by_device():
    plan = plan_copies([[1, 2, 3], [3, 2, 1]], 2, 2, 0.5, method="replicated")
    assert [one.tolist() for one in plan.vertices] == [[2, 1], [0, 1]]


values = st.one_of(st.integers(0, 5).map(float), st.floats(0, 1e300))
vectors = st.lists(values, min_size=1, max_size=30).map(np.array)
alphas = st.floats(1e-6, 10)


@given(vectors, st.integers(1, 6), st.integers(0, 40), alphas, st.sampled_from(sorted(METHODS)))
def test_every_plan_keeps_its_budget(scores, devices, budget, alpha, method):
    plan = plan_copies(scores, devices, budget, alpha, method=method)
    again = CopyPlan.of(plan.vertices, len(scores))  # each vertex once, ids in range
    sizes = [len(one) for one in plan.vertices]
    assert plan.devices == devices == again.devices
    room = min(budget, len(scores))
    assert max(sizes) <= room
    assert method == "interleaved" or min(sizes) == room
    assert sum(sizes) > devices * (room - 1)
    if room == len(scores) and method != "interleaved":
        assert copy_cost(plan, scores, alpha).largest == 0


@given(vectors, st.integers(1, 6), st.integers(0, 40), alphas, st.sampled_from(sorted(METHODS)))
def test_nothing_costs_less_than_best_copies(scores, devices, budget, alpha, method):
    best = copy_cost(plan_copies(scores, devices, budget, alpha), scores, alpha).mean
    other = copy_cost(plan_copies(scores, devices, budget, alpha, method=method), scores, alpha).mean
    assert best <= other * (1 + 1e-9)


@given(vectors, st.integers(1, 4), st.integers(1, 40), st.data())
def test_greedy_fills_every_device(scores, devices, budget, data):
    entries = st.lists(st.floats(0.01, 3), min_size=devices**2, max_size=devices**2)
    alpha = np.array(data.draw(entries)).reshape(devices, devices)
    plan = CopyPlan.of(plan_copies(scores, devices, budget, alpha).vertices, len(scores))
    assert [len(one) for one in plan.vertices] == [min(budget, len(scores))] * devices
    assert (
        copy_cost(plan, scores, alpha).mean <= copy_cost(CopyPlan.of([[]] * devices, len(scores)), scores, alpha).mean
    )


@given(vectors, st.data())
def test_hottest_is_a_stable_sort(scores, data):
    count = data.draw(st.integers(0, len(scores)))
    assert np.array_equal(hottest(scores, count), np.argsort(-scores, kind="stable")[:count])


def test_hottest_tells_scores_apart_that_differ_in_the_last_bit():
    rng = np.random.default_rng(0)
    scores = 1 + rng.integers(0, 50, 5000) * 2.0**-52
    for count in (5000, 1234):
        assert np.array_equal(hottest(scores, count), np.argsort(-scores, kind="stable")[:count])


def test_negative_zero_is_zero():
    assert hottest(np.array([-0.0, 0.0, 1e-320, -0.0]), 4).tolist() == [2, 0, 1, 3]


def test_scores_of_zero_cost_nothing():
    for method in METHODS:
        plan = plan_copies(np.zeros(9), 3, 2, 0.5, method=method)
        assert copy_cost(plan, np.zeros(9), 0.5).largest == 0


def test_a_single_device_keeps_the_hottest():
    for method in METHODS:
        for budget in range(6):
            plan = plan_copies([3, 1, 5, 4, 2], 1, budget, 0.5, method=method)
            assert plan.vertices[0].tolist() == [2, 3, 0, 4, 1][:budget]


def test_more_than_all_rows_are_all_rows():
    plan = plan_copies([3, 1, 2], 2, 10**9, 0.5)
    assert plan.copies().tolist() == [2, 2, 2]


def test_cost_of_a_plan_by_hand():
    plan = CopyPlan.of([[0], [1], [1, 2]], num_rows=4)
    alpha = [[7, 0.5, 0.25], [0.1, 7, 2.0], [0.2, 0.3, 7]]
    scores = [[1, 2, 4, 8], [1, 2, 4, 8], [8, 4, 2, 1]]
    # the least link: vertex 1 is 0.25 to device 0; vertex 2 is nearer to device 1 from the host
    assert copy_cost(plan, scores, alpha).devices.tolist() == pytest.approx([0.5 + 1 + 8, 0.1 + 4 + 8, 1.6 + 1])


@pytest.mark.parametrize(
    ("arguments", "error", "argument"),
    [
        ({"scores": [1, np.nan]}, InputError, "scores"),
        ({"scores": [1, -1]}, InputError, "scores"),
        ({"scores": [1, np.inf]}, InputError, "scores"),
        ({"scores": []}, InputError, "scores"),
        ({"scores": 3.0}, InputError, "scores"),
        ({"scores": [[1, 2, 3]]}, InputError, "scores"),
        ({"scores": [[[1, 2, 3]]]}, InputError, "scores"),
        ({"scores": ["a"]}, DTypeError, "scores"),
        ({"scores": [1j]}, DTypeError, "scores"),
        ({"scores": None}, DTypeError, "scores"),
        ({"devices": 0}, InputError, "devices"),
        ({"devices": 10**9}, InputError, "devices"),
        ({"devices": 2.0}, DTypeError, "devices"),
        ({"budget": -1}, InputError, "budget"),
        ({"budget": 1.5}, DTypeError, "budget"),
        ({"alpha": 0}, InputError, "alpha"),
        ({"alpha": -1.0}, InputError, "alpha"),
        ({"alpha": np.inf}, InputError, "alpha"),
        ({"alpha": np.nan}, InputError, "alpha"),
        ({"alpha": None}, DTypeError, "alpha"),
        ({"alpha": "1"}, DTypeError, "alpha"),
        ({"alpha": [1, 1]}, InputError, "alpha"),
        ({"alpha": [[1, 0], [1, 1]]}, InputError, "alpha"),
        ({"alpha": [[1, np.nan], [1, 1]]}, InputError, "alpha"),
        ({"alpha": [[True, True], [True, True]]}, DTypeError, "alpha"),
        ({"method": "best"}, InputError, "method"),
        ({"method": None}, DTypeError, "method"),
        ({"objective": "least"}, InputError, "objective"),
        ({"objective": None}, DTypeError, "objective"),
        ({"objective": "max", "method": "song-jiang"}, InputError, "objective"),
        ({"objective": "max", "method": "replicated"}, InputError, "objective"),
        ({"head": 1}, InputError, "head"),
        ({"head": 3, "method": "interleaved"}, InputError, "head"),
        ({"scores": [[1, 2, 3]] * 2, "method": "song-jiang"}, InputError, "scores"),
        ({"scores": [[1, 2, 3]] * 2, "method": "interleaved"}, InputError, "scores"),
        ({"alpha": [[1, 1], [1, 1]], "method": "song-jiang"}, InputError, "alpha"),
    ],
)
def test_bad_input_is_refused_by_name(arguments, error, argument):
    right = {"scores": [3, 1, 2], "devices": 2, "budget": 2, "alpha": 0.5}
    with pytest.raises(error) as raised:
        plan_copies(**{**right, **arguments})
    assert raised.value.argument == argument


@pytest.mark.parametrize(
    ("plan", "scores", "alpha", "argument"),
    [
        ("plan", [1, 2, 3], 1, "plan"),
        (None, [1, 2], 1, "scores"),
        (None, [[1, 2, 3]] * 3, 1, "scores"),
        (None, [1, 2, 3], [[1]], "alpha"),
    ],
)
def test_cost_refuses_what_does_not_fit_the_plan(plan, scores, alpha, argument):
    with pytest.raises((InputError, DTypeError)) as raised:
        copy_cost(plan or CopyPlan.of([[0], [1]], 3), scores, alpha)
    assert raised.value.argument == argument


@pytest.mark.parametrize("vertices", [[], [[3]], [[-1]], [[1, 0, 1]], [[0.5]], 7])
def test_a_plan_of_ones_own_is_checked(vertices):
    with pytest.raises((InputError, DTypeError)):
        CopyPlan.of(vertices, 3)
