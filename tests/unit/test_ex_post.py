"""The smallest ex-post private search, and what growth factors cost."""

import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.accuracy_first.ex_post import (
    ask_until_yes,
    ask_until_yes_loss,
    ask_until_yes_probability,
    worst_case_growth,
    worst_case_search_loss,
)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_loss_of_each_outcome_is_the_exact_log_ratio(epsilon):
    """Definition 2.2 on the example: log P_1(k)/P_0(k), in absolute value, is |k - 2| epsilon."""
    k = np.arange(1, 30)
    ratio = np.log(
        ask_until_yes_probability(k, 1, epsilon=epsilon) / ask_until_yes_probability(k, 0, epsilon=epsilon)
    )
    np.testing.assert_allclose(np.abs(ratio), ask_until_yes_loss(k, epsilon=epsilon), atol=1e-10)


def test_no_finite_ex_ante_epsilon_covers_all_outcomes():
    """The largest loss over the outcomes that occur with probability 1 - 1e-6 grows without bound as epsilon falls."""
    needed = []
    for epsilon in (1.0, 0.1):
        last = stats.geom.isf(1e-6, 1 / (1 + math.exp(epsilon)))
        needed.append(float(ask_until_yes_loss(last, epsilon=epsilon)) / epsilon)
    assert needed[0] > 18
    assert float(ask_until_yes_loss(10**6, epsilon=0.1)) > 99_999 * 0.99


def test_draws_follow_the_exact_law():
    """Chi-square over the first eight outcomes, 20,000 draws; false-fail rate 1e-4 at a fixed seed."""
    rng = np.random.default_rng(7)
    draws = np.array([ask_until_yes(1, epsilon=0.5, rng=rng).value for _ in range(20_000)])
    expected = ask_until_yes_probability(np.arange(1, 9), 1, epsilon=0.5) * draws.size
    seen = np.array([(draws == k).sum() for k in range(1, 9)])
    tail = draws.size - expected.sum()
    statistic = ((seen - expected) ** 2 / expected).sum() + (draws.size - seen.sum() - tail) ** 2 / tail
    assert stats.chi2.sf(statistic, 8) > 1e-4


@pytest.mark.parametrize("bad", [2, -1])
def test_bit_is_zero_or_one(bad):
    """Anything else has no meaning."""
    with pytest.raises(ValueError, match="bit"):
        ask_until_yes(bad, epsilon=1.0, rng=np.random.default_rng(0))


@pytest.mark.parametrize("bad", [0, 1.5, -3])
def test_questions_are_counted_from_one(bad):
    """No outcome without a question."""
    with pytest.raises(ValueError, match="questions"):
        ask_until_yes_loss(bad, epsilon=1.0)


def test_huge_epsilon_is_refused():
    """The number of questions would not fit an integer."""
    with pytest.raises(ValueError, match="epsilon must be at most 30"):
        ask_until_yes(0, epsilon=800.0, rng=np.random.default_rng(0))


def test_doubling_is_the_best_growth_factor_when_tests_are_free():
    """Claim B.1: F^2/(F - 1) is smallest at 2, where it is 4, and equals the geometric series it stands for."""
    factors = np.linspace(1.05, 20, 4_000)
    values = np.array([worst_case_growth(float(f)) for f in factors])
    assert abs(factors[values.argmin()] - 2) < 0.01
    assert worst_case_growth(2.0) == 4.0
    for r in (0.2, 0.5, 0.9):
        assert math.isclose(worst_case_growth(1 / r), sum(r**j for j in range(5_000)) / r, rel_tol=1e-12)


def test_paid_tests_favour_larger_factors():
    """Erratum AF-8: with the printed test at alpha = 0.05 the best factor is far above two."""
    common = {
        "needed": 0.05,
        "first": 1e-5,
        "last": 50.0,
        "failure": 0.1,
        "sensitivity_over_alpha": 0.0023 / 0.05,
    }
    factors = np.geomspace(1.2, 400, 4_000)
    losses = np.array([worst_case_search_loss(float(f), **common) for f in factors])
    assert 15 < factors[losses.argmin()] < 20
    assert math.isclose(losses.min(), 2.472, rel_tol=0.01)
    assert math.isclose(worst_case_search_loss(2.0, **common), 7.259, rel_tol=0.01)
