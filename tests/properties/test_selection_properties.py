"""Properties of private selection and private voting, for settings that nobody chose."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.ptr.selection_bounds import GeometricRounds, PairCurve, SelectionCurve, selection_law
from adaptive_dp.ptr.selection_renyi import NegativeBinomialRounds, PoissonRounds
from adaptive_dp.ptr.voting import (
    approximate_loss,
    class_zero_probability,
    generalized_ptr_law,
    largest_delta,
    loss_above,
    pure_loss,
    report_noisy_max_law,
)

PROFILE = settings(max_examples=60, deadline=None, derandomize=True)
TAUS = st.floats(-3, 0).map(lambda exponent: 10.0**exponent)
CUTOFFS = st.one_of(st.none(), st.integers(1, 5000))
CURVES = st.one_of(
    st.floats(-2, 1).map(lambda exponent: GaussianCurve(10.0**exponent)),
    st.tuples(st.floats(0, 4), st.floats(0, 0.5)).map(lambda pair: PairCurve(*pair)),
)


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@given(CURVES, TAUS, CUTOFFS, st.floats(0, 30), powers(-12, 0))
@PROFILE
def test_the_two_sides_of_a_selection_curve_agree(curve, tau, cutoff, epsilon, delta):
    selected = SelectionCurve(curve, tau, cutoff)
    level = selected.epsilon(delta)
    assert level >= 0
    if math.isfinite(level) and delta < 1:
        assert selected.delta(level) <= delta * (1 + 1e-9)
    value = selected.delta(epsilon)
    assert 0 <= value <= 1
    assert value >= selected.delta(epsilon + 0.1) - 1e-15
    assert value >= curve.delta(epsilon) * (1 - 1e-9)  # selecting cannot be proved better than one round
    assert selected.cut <= value or value == 1


@given(CURVES, TAUS, powers(-10, -0.1))
@PROFILE
def test_more_rounds_and_a_cutoff_cost_more(curve, tau, delta):
    selected = SelectionCurve(curve, tau)
    assert selected.shift <= SelectionCurve(curve, tau / 2).shift * (1 + 1e-6) + 1e-9
    assert selected.epsilon(delta) <= SelectionCurve(curve, tau, 1000).epsilon(delta) * (1 + 1e-12)
    single = SelectionCurve(curve, 1.0)
    assert single.shift <= 1e-9
    assert single.epsilon(delta) <= curve.epsilon(delta) * (1 + 1e-9) + 1e-8


@st.composite
def finite_laws(draw):
    m = draw(st.integers(1, 6))
    weights = np.array(draw(st.lists(st.integers(0, 9), min_size=m, max_size=m)), dtype=float)
    weights[draw(st.integers(0, m - 1))] += 1
    scores = draw(st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 2.0]), min_size=m, max_size=m))
    return weights / weights.sum(), np.array(scores)


ROUNDS = st.one_of(
    st.builds(GeometricRounds, TAUS, st.one_of(st.none(), st.integers(1, 200))),
    st.builds(NegativeBinomialRounds, st.floats(-0.9, 6), st.floats(0.01, 0.9)),
    powers(0, 2).map(PoissonRounds),
)


@given(finite_laws(), ROUNDS)
@PROFILE
def test_the_selected_law_is_a_law_and_prefers_better_scores(scene, rounds):
    law, scores = scene
    selected = selection_law(law, scores, rounds)
    assert (selected >= 0).all()
    none = float(rounds.generating(0.0))
    assert abs(selected.sum() - (1 - none)) <= 1e-9
    # Probability of at least score s: 1 - E P(score < s)^K.
    for s in (0.0, 1.0, 2.0):
        expected = 1 - float(rounds.generating(min(law[scores < s].sum(), 1.0)))
        assert abs(selected[scores >= s].sum() - expected) <= 1e-9


@given(TAUS, CUTOFFS, st.integers(1, 200))
@PROFILE
def test_numbers_of_rounds(tau, cutoff, proposals):
    rounds = GeometricRounds(tau, cutoff)
    assert abs(float(rounds.generating(1.0)) - 1) <= 1e-9
    assert 1 - 1e-9 <= rounds.mean <= (1 / tau if cutoff is None else min(1 / tau, cutoff)) * (1 + 1e-9)
    quantile = rounds.expected_quantile()
    # Jensen: K / (K + 1) is concave.
    assert 0.5 - 1e-12 <= quantile <= rounds.mean / (rounds.mean + 1) + 1e-9
    tried = rounds.probability_tried(proposals)
    assert -1e-12 <= tried <= min(1.0, rounds.mean / proposals) + 1e-9


@given(st.integers(-300, 300), powers(-2, 1))
@PROFILE
def test_votes_are_symmetric_and_their_pure_loss_is_exact(gap, epsilon):
    here = class_zero_probability([gap, -gap], epsilon=epsilon)
    assert abs(here.sum() - 1) <= 1e-15
    loss = float(pure_loss(gap, epsilon=epsilon))
    assert 0 < loss < epsilon * (1 + 1e-15)
    laws = report_noisy_max_law([gap - 1, gap, gap + 1], epsilon=epsilon)
    assert largest_delta(laws, loss).max() <= 1e-15


@given(st.integers(0, 200), powers(-1.5, 1), powers(-9, -0.1), st.booleans())
@PROFILE
def test_loss_above_is_safe_for_every_larger_gap(gap, epsilon, delta, one_sided):
    proved = float(loss_above(gap - 0.5, epsilon=epsilon, delta=delta, one_sided=one_sided))
    larger = approximate_loss(np.arange(gap, gap + 300), epsilon=epsilon, delta=delta, one_sided=one_sided)
    assert larger.max() <= proved
    assert proved <= epsilon * (1 + 1e-12)


@given(st.floats(0, 1), powers(-8, -0.5), powers(-1, 0.9), powers(-1.5, 0.9), powers(-8, -0.5), st.booleans())
@PROFILE
def test_generalized_ptr_for_votes_is_private(share, delta, noise, test, test_delta, one_sided):
    law = generalized_ptr_law(
        np.arange(-150, 151),
        epsilon=share * noise,
        delta=delta,
        noise_epsilon=noise,
        test_epsilon=test,
        test_delta=test_delta,
        one_sided=one_sided,
    )
    assert largest_delta(law, share * noise + test).max() <= max(delta, test_delta) * (1 + 1e-9)
