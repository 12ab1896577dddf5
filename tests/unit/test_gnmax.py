"""Rényi losses of a noisy vote and their smooth sensitivity, against exact laws and brute force."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from scipy import integrate, stats

from adaptive_dp.ptr import gnmax, smooth_sensitivity
from adaptive_dp.ptr.gnmax import (
    answer_log_probabilities,
    check_votes,
    data_independent_renyi,
    exact_renyi,
    gnmax_renyi,
    log_wrong_answer,
    neighbouring_votes,
    renyi_epsilon,
    renyi_given_wrong_answer,
)
from adaptive_dp.ptr.smooth_sensitivity import (
    discounted_maximum,
    effective_gap,
    local_sensitivities,
    loss_of_gap,
    reachable_gaps,
)
from benchmarks import propose_test_release as bench

MNIST_LIKE = [372, 11, 5, 4, 3, 2, 1, 1, 1, 0]
LOW = [90, 85, 25, 25, 25]


def _rng(seed=0):
    return np.random.default_rng(seed)


def _all_votes(teachers, classes):
    if classes == 1:
        yield (teachers,)
        return
    for first in range(teachers + 1):
        for rest in _all_votes(teachers - first, classes - 1):
            yield (first, *rest)


# --- the law of the answer ----------------------------------------------------------------------------


def test_two_classes_have_a_closed_form():
    votes = np.array([[60, 40], [51, 49], [100, 0]])
    got = answer_log_probabilities(votes, sigma=7.0)
    gap = (votes[:, 0] - votes[:, 1]) / (math.sqrt(2) * 7.0)
    assert got[:, 0] == pytest.approx(stats.norm.logcdf(gap), rel=1e-11)
    assert got[:, 1] == pytest.approx(stats.norm.logsf(gap), rel=1e-11)


def test_probabilities_sum_to_one_and_match_a_simulation():
    votes, sigma = np.array([30, 25, 20, 5]), 6.0
    probabilities = np.exp(answer_log_probabilities(votes, sigma=sigma)[0])
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-14)
    answers = (votes + sigma * _rng().standard_normal((200_000, 4))).argmax(axis=1)
    shares = np.bincount(answers, minlength=4) / 200_000
    assert np.abs(shares - probabilities).max() < 5 * math.sqrt(0.25 / 200_000)


def test_probabilities_match_adaptive_quadrature():
    votes, sigma = [9, 7, 3], 2.5

    def density(x, answer):
        others = [stats.norm.cdf(x, votes[j], sigma) for j in range(3) if j != answer]
        return stats.norm.pdf(x, votes[answer], sigma) * math.prod(others)

    exact = [integrate.quad(density, -20, 40, args=(j,), epsabs=1e-13)[0] for j in range(3)]
    assert np.exp(answer_log_probabilities(votes, sigma=sigma)[0]) == pytest.approx(exact, rel=1e-10)


def test_union_bound_is_a_bound_and_equal_for_two_classes():
    votes = _rng(1).multinomial(60, [0.5, 0.3, 0.2], size=200)
    exact = 1 - np.exp(answer_log_probabilities(votes, sigma=9.0).max(axis=1))
    bound = np.exp(log_wrong_answer(votes, sigma=9.0))
    assert (bound >= exact * (1 - 1e-9)).all()
    two = np.array([[40, 20]])
    assert log_wrong_answer(two, sigma=9.0)[0] == pytest.approx(
        answer_log_probabilities(two, sigma=9.0)[0, 1], rel=1e-11
    )


def test_union_bound_agrees_with_the_published_code():
    """Reference value pate.logq.mnist_like."""
    assert log_wrong_answer(MNIST_LIKE, sigma=60.0)[0] == pytest.approx(-9.673497314988676, rel=1e-12)


def test_union_bound_never_exceeds_its_cap():
    assert np.exp(log_wrong_answer([25] * 10, sigma=3.0)[0]) == pytest.approx(0.9)


# --- Rényi losses -------------------------------------------------------------------------------------


def test_data_independent_loss_is_that_of_a_gaussian_of_sensitivity_root_two():
    orders = [1.5, 2.0, 30.0]
    accountant = rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_event.GaussianDpEvent(noise_multiplier=7.0 / math.sqrt(2)))
    expected = accountant.get_epsilon(1e-5)
    losses = data_independent_renyi(orders, sigma=7.0)
    assert renyi_epsilon(losses, orders, delta=1e-5)[0] == pytest.approx(expected, rel=1e-12)


def _theorem_six(log_q, mu_1, mu_2, sigma, order):
    """papernot2018, Theorem 6, in its own variables; None where its conditions fail."""
    e_1, e_2, q = mu_1 / sigma**2, mu_2 / sigma**2, math.exp(log_q)
    limit = (mu_2 - 1) * e_2 - mu_2 * math.log(mu_1 / (mu_1 - 1) * mu_2 / (mu_2 - 1))
    if not (order <= mu_1 and mu_2 > 1 and log_q <= limit):
        return None
    a = (1 - q) / (1 - (q * math.exp(e_2)) ** ((mu_2 - 1) / mu_2))
    b = math.exp(e_1) / q ** (1 / (mu_1 - 1))
    return math.log((1 - q) * a ** (order - 1) + q * b ** (order - 1)) / (order - 1)


def test_simplified_loss_is_theorem_six_with_the_orders_of_proposition_ten():
    rng, used = _rng(2), 0
    for _ in range(500):
        sigma, log_q = rng.uniform(1, 60), -rng.uniform(0.2, 20)
        order = 1 + rng.uniform(0.05, 30)
        mu_2 = sigma * math.sqrt(-log_q)
        expected = _theorem_six(log_q, mu_2 + 1, mu_2, sigma, order) if mu_2 > 1 else None
        got = renyi_given_wrong_answer(log_q, sigma=sigma, orders=order)[0]
        independent = order / sigma**2
        if expected is None:
            assert got == pytest.approx(independent, rel=1e-14)
        else:
            assert got == pytest.approx(min(expected, independent), rel=1e-9, abs=1e-13 / (order - 1))
            used += expected < independent
    assert used > 100


def test_data_dependent_loss_covers_the_exact_loss():
    """400 random votes of three classes, all neighbours, five orders: no violation (erratum 16a)."""
    rng, orders, ratios = _rng(), np.array([2.0, 4.0, 8.0, 16.0, 32.0]), []
    for _ in range(400):
        sigma, votes = rng.uniform(3, 40), rng.multinomial(100, rng.dirichlet([3, 1, 0.5]))
        exact = exact_renyi(votes, sigma=sigma, orders=orders)
        bound = gnmax_renyi(votes, sigma=sigma, orders=orders)[0]
        assert (bound >= exact * (1 - 1e-9) - 1e-15).all()
        ratios.append(bound / np.maximum(exact, 1e-15))
    assert 1.8 < np.median(ratios) < 2.3


def test_data_dependent_loss_covers_more_classes():
    rng, orders = _rng(3), np.array([1.5, 3.0, 10.0, 60.0])
    for _ in range(25):
        sigma, votes = rng.uniform(2, 12), rng.multinomial(40, rng.dirichlet([4, 1, 1, 0.5, 0.5]))
        exact = exact_renyi(votes, sigma=sigma, orders=orders)
        assert (gnmax_renyi(votes, sigma=sigma, orders=orders)[0] >= exact * (1 - 1e-9) - 1e-15).all()


def test_reverse_direction_can_exceed_the_bound():
    """The bound is one-sided (erratum 16b): votes (100, 60, 5), sigma 5, order 10."""
    arguments = {"sigma": 5.0, "orders": 10.0}
    bound = gnmax_renyi([100, 60, 5], **arguments)[0, 0]
    assert exact_renyi([100, 60, 5], **arguments)[0] < bound
    assert exact_renyi([100, 60, 5], direction="reverse", **arguments)[0] > bound


def test_loss_is_stable_for_tiny_probabilities_and_large_orders():
    logs = -np.array([1e-3, 1.0, 50.0, 700.0, 1e5, 1e12])
    losses = renyi_given_wrong_answer(logs, sigma=40.0, orders=[1.0001, 2.0, 100.0, 1e6])
    assert np.isfinite(losses).all()
    assert (losses >= 0).all()
    assert losses[3, 1] < 1e-290
    # Where q is far below everything, the loss is carried by its smallest term.
    small = renyi_given_wrong_answer(-300.0, sigma=40.0, orders=2.0)[0]
    assert small == pytest.approx(math.exp(-((math.sqrt(300) - 1 / 40) ** 2)), rel=0.7)


def test_loss_never_rises_with_agreement():
    for sigma, order in itertools.product([1.5, 3.0, 10.0, 40.0, 300.0], [1.1, 2.0, 5.0, 22.0, 100.0]):
        losses = renyi_given_wrong_answer(-np.geomspace(1e-3, 1e4, 20_001), sigma=sigma, orders=order)[:, 0]
        assert (np.diff(losses) <= 1e-12 * losses[:-1] + 1e-14 / (order - 1)).all()


def test_losses_are_computed_for_all_queries_and_orders_at_once():
    votes = _rng(4).multinomial(50, [0.6, 0.3, 0.1], size=7)
    both = gnmax_renyi(votes, sigma=8.0, orders=[2.0, 5.0])
    assert both.shape == (7, 2)
    one_by_one = [[gnmax_renyi(v, sigma=8.0, orders=a)[0, 0] for a in (2.0, 5.0)] for v in votes]
    assert both == pytest.approx(np.array(one_by_one))


def test_conversion_agrees_with_dp_accounting():
    orders = gnmax.default_orders()
    losses = orders / 30.0
    epsilon, order = renyi_epsilon(losses, orders, delta=1e-5)
    expected, best = rdp.compute_epsilon(list(orders), list(losses), 1e-5)
    assert epsilon == pytest.approx(expected, rel=1e-12)
    assert order == best
    classical, _ = renyi_epsilon(losses, orders, delta=1e-5, conversion="classical")
    assert classical == pytest.approx(np.min(losses + math.log(1e5) / (orders - 1)))
    assert classical > epsilon


# --- smooth sensitivity -------------------------------------------------------------------------------


@pytest.mark.parametrize(("teachers", "classes", "sigma"), [(12, 3, 1.5), (9, 4, 3.0), (30, 2, 4.0)])
def test_one_vote_moves_the_effective_gap_by_at_most_two(teachers, classes, sigma):
    for votes in _all_votes(teachers, classes):
        around = np.array(list(neighbouring_votes(votes)))
        moved = effective_gap(around, sigma=sigma) - effective_gap(votes, sigma=sigma)
        assert np.abs(moved).max() <= 2 + 1e-9


def test_effective_gap_of_two_classes_is_their_gap_even_in_the_far_tail():
    votes = np.array([[200, 200], [230, 170], [400, 0]])
    assert effective_gap(votes, sigma=5.0) == pytest.approx([0.0, 60.0, 400.0], abs=1e-9)


def test_loss_of_the_gap_is_the_loss_of_the_votes():
    votes = _rng(5).multinomial(100, [0.7, 0.2, 0.05, 0.05], size=50)
    direct = gnmax_renyi(votes, sigma=9.0, orders=7.0)[:, 0]
    gaps = effective_gap(votes, sigma=9.0)
    assert loss_of_gap(gaps, sigma=9.0, order=7.0, classes=4) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize(("teachers", "classes", "sigma"), [(10, 3, 1.5), (7, 4, 3.0), (24, 2, 4.0)])
def test_reachable_gaps_are_those_of_the_votes_within_reach(teachers, classes, sigma):
    everything = np.array(list(_all_votes(teachers, classes)))
    gaps = effective_gap(everything, sigma=sigma)
    low, high = reachable_gaps(everything, sigma=sigma)
    for i, votes in enumerate(everything):
        distances = np.abs(everything - votes).sum(axis=1) // 2
        first, second = np.sort(votes)[::-1][:2]
        for d in range(teachers + 1):
            near = gaps[distances <= d]
            assert high[i, d] == pytest.approx(near.max(), abs=1e-9)
            if d <= (first - second) // 2:
                assert low[i, d] == pytest.approx(near.min(), abs=1e-9)
            else:
                assert low[i, d] == 0


SMALL_DOMAINS = [
    (12, 3, 1.5, 4.0, 0.05),
    (30, 2, 3.0, 6.0, 0.03),
    (8, 4, 1.0, 3.0, 0.1),
    (25, 2, 2.0, 5.0, 0.02),
]


@pytest.mark.parametrize(("teachers", "classes", "sigma", "order", "beta"), SMALL_DOMAINS)
def test_smooth_sensitivity_is_smooth_and_covers_the_local_one(teachers, classes, sigma, order, beta):
    """All pairs of neighbours of a small domain."""
    everything = list(_all_votes(teachers, classes))
    smooth = {
        v: smooth_sensitivity.smooth_sensitivity(v, sigma=sigma, order=order, beta=beta) for v in everything
    }
    loss = {v: gnmax_renyi(v, sigma=sigma, orders=order)[0, 0] for v in everything}
    assert max(loss.values()) > 2 * min(loss.values())
    for votes in everything:
        for other in neighbouring_votes(votes):
            near = tuple(int(x) for x in other)
            assert smooth[votes] <= smooth[near] * math.exp(beta) * (1 + 1e-12)
            assert abs(loss[votes] - loss[near]) <= smooth[votes] * (1 + 1e-9)


def test_smooth_sensitivity_of_several_queries():
    """One teacher may change its vote in all queries at once: all triples of votes of random walks."""
    rng, sigma, order, beta = _rng(6), 1.8, 5.0, 0.04
    for _ in range(40):
        votes = rng.multinomial(14, rng.dirichlet([2, 1, 1]), size=3)
        others = np.array([list(neighbouring_votes(v))[rng.integers(2)] for v in votes])
        values, losses = [], []
        for table in (votes, others):
            values.append(smooth_sensitivity.smooth_sensitivity(table, sigma=sigma, order=order, beta=beta))
            losses.append(gnmax_renyi(table, sigma=sigma, orders=order).sum())
        assert abs(math.log(values[0] / values[1])) <= beta * (1 + 1e-12)
        assert abs(losses[0] - losses[1]) <= min(values)


REFERENCES = [
    (LOW, 40.0, 22.0, 0.009090909090909092, 0.00043198897454139887),
    (LOW, 40.0, 22.0, 0.020454545454545454, 0.00020874790729587692),
    (MNIST_LIKE, 60.0, 22.0, 0.009090909090909092, 0.00012549914952800193),
    (MNIST_LIKE, 60.0, 22.0, 0.020454545454545454, 4.113771998873817e-05),
    ([130, 120], 40.0, 10.0, 0.02, 0.00014587734360962685),
]


@pytest.mark.parametrize(("votes", "sigma", "order", "beta", "published"), REFERENCES)
def test_smooth_sensitivity_approaches_the_published_code_from_above(votes, sigma, order, beta, published):
    """Reference values pate.smooth_sens.*: their supremum, which the grid bounds from above."""
    options = {"sigma": sigma, "order": order, "beta": beta}
    usual = smooth_sensitivity.smooth_sensitivity(votes, **options)
    fine = smooth_sensitivity.smooth_sensitivity(votes, resolution=4096, **options)
    assert published * 1.002 < usual < published * 1.005
    assert published < fine < published * 1.0002


def test_local_sensitivities_agree_with_the_published_code():
    """Reference value pate.local_sens.low5.order22.0."""
    local = local_sensitivities(LOW, sigma=40.0, order=22.0, teachers=250, resolution=4096)
    assert (local[[0, 1, 5, 20, 50]] == 0).all()
    assert local[249] == pytest.approx(0.000772953002452309, rel=2e-4)
    assert (np.diff(local) >= 0).all()


def test_smooth_sensitivity_is_zero_only_where_no_votes_help():
    assert smooth_sensitivity.smooth_sensitivity([5, 5], sigma=50.0, order=40.0, beta=0.01) == 0
    assert smooth_sensitivity.smooth_sensitivity([5, 5], sigma=0.5, order=4.0, beta=0.01) > 0


def test_discounted_maximum():
    assert discounted_maximum([0.0, 1.0, 1.5], beta=0.5) == pytest.approx(math.exp(-0.5))


def test_range_maxima_match_a_loop():
    rng = _rng(8)
    values = rng.normal(size=101)
    first = rng.integers(0, 101, size=(20, 10))
    last = np.minimum(first + rng.integers(0, 101, size=first.shape), 100)
    expected = [
        [values[i : j + 1].max() for i, j in zip(f, e, strict=True)] for f, e in zip(first, last, strict=True)
    ]
    assert (smooth_sensitivity._range_maxima(values, first, last) == np.array(expected)).all()


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("votes", "teachers", "message"),
    [
        ([[3, -1]], None, "nonnegative whole"),
        ([[1.5, 1.5]], None, "nonnegative whole"),
        ([[3, 1], [2, 1]], None, "sum to the 4 teachers"),
        ([[3, 1]], 5, "sum to the 5 teachers"),
        ([[1, 0]], None, "at least 2 teachers"),
        ([[1, 0]], 1, "teachers must be at least 2"),
        ([[4]], None, "at least 2 classes"),
        ([[0, 0]], None, "at least 2 teachers"),
        (np.empty((0, 3)), None, "one row a query"),
        (np.ones((2, 2, 2)), None, "one row a query"),
        ([[math.nan, 1]], None, "finite"),
    ],
)
def test_broken_votes_are_refused(votes, teachers, message):
    with pytest.raises(ValueError, match=message):
        check_votes(votes, teachers=teachers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gnmax_renyi([3, 1], sigma=0.0, orders=2.0), "sigma must be positive"),
        (lambda: gnmax_renyi([3, 1], sigma=-1.0, orders=2.0), "sigma must be positive"),
        (lambda: gnmax_renyi([3, 1], sigma=1.0, orders=1.0), "orders must be above 1"),
        (lambda: gnmax_renyi([3, 1], sigma=1.0, orders=[]), "orders must be a list"),
        (lambda: renyi_given_wrong_answer(0.0, sigma=1.0, orders=2.0), "log_q must be negative"),
        (lambda: renyi_epsilon([1.0], [2.0], delta=0.0), "delta must lie"),
        (lambda: renyi_epsilon([1.0, 2.0], [2.0], delta=0.1), "one entry an order"),
        (lambda: renyi_epsilon([-1.0], [2.0], delta=0.1), "losses must be nonnegative"),
        (lambda: renyi_epsilon([1.0], [2.0], delta=0.1, conversion="loose"), "conversion must be one of"),
        (lambda: exact_renyi([[3, 1], [2, 2]], sigma=1.0, orders=2.0), "votes of one query"),
        (lambda: exact_renyi([3, 1], sigma=1.0, orders=2.0, direction="up"), "direction must be one of"),
        (
            lambda: smooth_sensitivity.smooth_sensitivity([3, 1], sigma=1.0, order=2.0, beta=0.0),
            "beta must be",
        ),
        (lambda: local_sensitivities([3, 1], sigma=1.0, order=2.0, resolution=0), "resolution must be"),
        (lambda: discounted_maximum([-1.0], beta=1.0), "local must hold"),
        (lambda: loss_of_gap(1.0, sigma=1.0, order=2.0, classes=1), "classes must be at least 2"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_exact_renyi_of_a_known_pair():
    """Two classes, five teachers: the divergence of two coins, by hand."""
    sigma, order = 2.0, 3.0
    p = stats.norm.sf(-1 / (math.sqrt(2) * sigma))
    losses = []
    for gap in (3, -1):
        r = stats.norm.cdf(gap / (math.sqrt(2) * sigma))
        losses.append(
            math.log(p**order / r ** (order - 1) + (1 - p) ** order / (1 - r) ** (order - 1)) / (order - 1)
        )
    worst = max(losses)
    assert exact_renyi([3, 2], sigma=sigma, orders=order)[0] == pytest.approx(worst, rel=1e-10)


# --- benchmarks ---------------------------------------------------------------------------------------


def test_the_benchmarks_of_the_chapter_run_and_their_baselines_agree(tmp_path):
    """Each comparison refuses to time two computations of different things; no time is asserted."""
    assert bench.main(["--quick", "--record", str(tmp_path / "ratios.json")]) == 0
    record = json.loads((tmp_path / "ratios.json").read_text(encoding="utf-8"))
    assert len(record["ratios"]) == 3
    assert record["parameters"]["teachers"] == bench.QUICK.teachers
    assert all(each["ratio"] > 0 for each in record["ratios"])
    with pytest.raises(AssertionError, match="losses must agree"):
        bench.agree("losses", np.zeros(2), np.array([0.0, 1e-3]))
