"""Lemmas 9 and 10 of neel2019: exact counterexample, corrected Hoeffding version, Bernstein's bound and its proof."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import rel_entr

from adaptive_dp.oracle_perturbation.concentration import (
    average_failure,
    bernstein_average,
    bernstein_calls,
    hoeffding_calls,
    hoeffding_sensitivity,
    printed_calls,
    segment_failure,
    simulated_segment_failure,
)
from adaptive_dp.oracle_perturbation.sampled_flaws import lemma9_frame, printed_suffices
from adaptive_dp.oracle_perturbation.stability import printed_stability_bound, stability_bound


def chernoff(mean, calls, failure):
    """Largest average of m numbers in [0, 1] that Hoeffding's Theorem 1 (1963) leaves possible: relative entropy."""
    goal = -math.log(failure) / calls

    def lacking(x):
        return float(rel_entr(x, mean) + rel_entr(1 - x, 1 - mean)) - goal

    return 1.0 if lacking(1.0) <= 0 else brentq(lacking, mean, 1.0)


# ---------------------------------------------------------------- Lemma 9 as printed


def test_lemma_9_fails_from_three_dimensions_on():
    frame = lemma9_frame().set_index("dimension")
    printed = frame["printed"]
    assert printed[2] == pytest.approx(2.75e-10, rel=2e-3)
    assert printed[2] <= frame.loc[2, "allowed"]
    expected = {3: 2.16e-5, 5: 9.92e-3, 10: 0.194, 20: 0.499, 50: 0.780}
    for d, value in expected.items():
        assert printed[d] == pytest.approx(value, rel=3e-3)
        assert printed[d] > 1000 * frame.loc[d, "allowed"]
    assert (frame["corrected"] <= frame["allowed"]).all()


def test_the_oracle_itself_shows_it():
    calls = printed_calls(0.05, 10, 1e-8)
    exact = segment_failure(calls=calls, dimension=10, radius=0.1)
    runs, rng = 400, np.random.default_rng(1)
    share = simulated_segment_failure(calls=calls, dimension=10, radius=0.1, eta=0.01, runs=runs, rng=rng)
    assert abs(share - exact) < 5 * math.sqrt(exact * (1 - exact) / runs)


@pytest.mark.parametrize("calls", [1, 2, 7, 40, 41])
@pytest.mark.parametrize("radius", [0.1, 0.5, 0.75, 1.5, 2.0])
def test_segment_failure_counts_what_it_says(calls, radius):
    counts = np.arange(calls + 1)
    far = 3 * np.abs(counts / calls - 0.5) > radius + 1e-12
    assert segment_failure(calls=calls, dimension=3, radius=radius) == pytest.approx(
        float(stats.binom.pmf(counts, calls, 0.5)[far].sum()), abs=1e-12
    )


# ---------------------------------------------------------------- Hoeffding, corrected


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.floats(0.02, 0.5), st.floats(-9, -1))
def test_corrected_hoeffding_holds_for_the_segment_and_for_independent_coordinates(d, gamma, log_failure):
    failure = 10.0**log_failure
    m = hoeffding_calls(gamma, d, failure)
    assert segment_failure(calls=m, dimension=d, radius=d * gamma) <= failure
    # Each coordinate by itself, worst case a fair coin, and a union bound over d.
    assert d * segment_failure(calls=m, dimension=1, radius=gamma) <= failure
    assert m >= math.log(2 * d / failure) / (2 * gamma**2) > m - 1


def test_hoeffding_sensitivity_adds_the_two_averages():
    assert hoeffding_sensitivity(stability=0.1, gamma=0.05, dimension=3, diameter=2.0) == pytest.approx(0.7)


# ---------------------------------------------------------------- Bernstein


@settings(max_examples=80, deadline=None)
@given(st.floats(-6, -0.01), st.integers(1, 10_000_000), st.floats(-14, -0.5), st.floats(-3, 3))
def test_bernstein_is_above_the_best_exponential_bound(log_share, calls, log_failure, log_largest):
    share, failure, largest = 10.0**log_share, 10.0**log_failure, 10.0**log_largest
    bound = bernstein_average(mean=share * largest, largest=largest, calls=calls, failure=failure)
    assert bound <= largest
    assert bound >= largest * chernoff(share, calls, failure) * (1 - 1e-6)
    assert average_failure(mean=share * largest, largest=largest, calls=calls, bound=bound) <= failure


@settings(max_examples=60, deadline=None)
@given(st.floats(-4, 0), st.floats(-12, -0.5), st.floats(0.1, 50))
def test_the_choice_of_m(log_share, log_failure, oversampling):
    share, failure, largest = 10.0**log_share, 10.0**log_failure, 3.0
    facts = {"mean": share * largest, "largest": largest, "failure": failure}
    m = bernstein_calls(**facts, oversampling=oversampling)
    most = 1 + math.sqrt(2 / oversampling) + 1 / (3 * oversampling)
    assert bernstein_average(**facts, calls=m) <= most * share * largest * (1 + 1e-12)
    if m > 100:  # rounding up matters little
        assert bernstein_average(**facts, calls=m) >= min(largest, 0.99 * most * share * largest)


@pytest.mark.parametrize(("dimension", "mean", "calls"), [(2, 0.05, 1106), (5, 0.2, 691), (10, 0.5, 553)])
def test_thirteen_sixths(dimension, mean, calls):
    facts = {"mean": mean, "largest": float(dimension), "failure": 1e-6}
    assert bernstein_calls(**facts) == calls
    bound = bernstein_average(**facts, calls=calls)
    assert bound == pytest.approx(13 / 6 * mean, rel=1e-3)
    worst = average_failure(mean=mean, largest=float(dimension), calls=calls, bound=bound)
    assert 1e-9 < worst < 1e-7


def test_bernstein_holds_for_numbers_that_depend_on_the_past():
    """A martingale that gambles: mean s always, but the stake follows the sum. False alarm: probability below 1e-9."""
    rng, runs, calls, mean, failure = np.random.default_rng(2), 20_000, 200, 0.05, 0.01
    total = np.zeros(runs)
    for _ in range(calls):
        stake = np.where(total > mean * calls, 1.0, 0.2)
        total += stake * (rng.random(runs) < mean / stake)
    bound = bernstein_average(mean=mean, largest=1.0, calls=calls, failure=failure)
    late = int(np.sum(total / calls > bound))
    assert late <= stats.binom.isf(1e-9, runs, failure)
    assert total.max() / calls > 0.8 * bound


def test_the_steps_of_the_proof():
    x = np.linspace(0, 2.999, 5_000)
    assert (np.exp(x) <= (1 + x + x**2 / (2 * (1 - x / 3))) * (1 + 1e-12)).all()
    # The chosen t: the exponent is -L.
    for calls, s, largest, failure in ((50, 0.1, 1.0, 1e-3), (5_000, 0.02, 4.0, 1e-9)):
        log = -math.log(failure)
        v = calls * largest * s
        r = math.sqrt(2 * log / v)
        t = r / (1 + r * largest / 3)
        above = math.sqrt(2 * v * log) + largest * log / 3
        assert t < 3 / largest
        assert v * t**2 / (2 * (1 - t * largest / 3)) - t * above == pytest.approx(-log)
        bound = bernstein_average(mean=s, largest=largest, calls=calls, failure=failure)
        assert bound == pytest.approx(min(largest, s + above / calls))


# ---------------------------------------------------------------- what is left of Theorem 11


def test_printed_sensitivity_suffices_where_it_is_said_to():
    rng, kept = np.random.default_rng(3), 0
    for _ in range(400):
        d, gamma = int(rng.integers(1, 60)), float(rng.uniform(0.001, 1.0))
        diameter, eta, delta = float(10 ** rng.uniform(-2, 1)), float(10 ** rng.uniform(-9, 0)), 1e-8
        facts = {"eta": eta, "dimension": d, "diameter": diameter, "lipschitz": 1.0}
        printed = 4 * diameter * gamma + printed_stability_bound(**facts)
        proved = bernstein_average(
            mean=stability_bound(**facts), largest=d * diameter, calls=printed_calls(gamma, d, delta), failure=delta
        )  # fmt: skip
        if printed_suffices(dimension=d, gamma=gamma, diameter=diameter):
            kept += 1
            assert printed >= proved
    assert kept > 40
    assert not printed_suffices(dimension=50, gamma=0.2, diameter=1.0)
    assert not printed_suffices(dimension=2, gamma=0.1, diameter=0.5)


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: printed_calls(0.0, 2, 0.1), ValueError, "gamma must be positive"),
        (lambda: printed_calls(1e-9, 2, 0.1), ValueError, "gamma asks for"),
        (lambda: printed_calls(0.1, 2, 1.0), ValueError, "delta must lie strictly"),
        (lambda: hoeffding_calls(0.1, 0, 0.1), ValueError, "dimension must be at least"),
        (
            lambda: bernstein_average(mean=0.0, largest=1.0, calls=3, failure=0.1),
            ValueError,
            "mean must be positive",
        ),
        (
            lambda: bernstein_average(mean=0.1, largest=1.0, calls=0, failure=0.1),
            ValueError,
            "calls must be at least",
        ),
        (
            lambda: bernstein_average(mean=0.1, largest=1.0, calls=3, failure=0.0),
            ValueError,
            "failure must lie strictly",
        ),
        (
            lambda: bernstein_calls(mean=1e-20, largest=1.0, failure=0.1),
            ValueError,
            "oversampling asks for",
        ),
        (
            lambda: average_failure(mean=2.0, largest=1.0, calls=3, bound=0.5),
            ValueError,
            "mean must be at most",
        ),
        (
            lambda: segment_failure(calls=3.0, dimension=2, radius=0.1),
            TypeError,
            "calls must be an integer",
        ),
    ],
)
def test_impossible_parameters_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
