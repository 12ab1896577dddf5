"""Properties of data-dependent bounds and private components, for parameters that nobody chose."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptive_dp.datasets import Dataset
from adaptive_dp.privacy import Refused
from adaptive_dp.ptr.eigenvalue import GlmConstants
from adaptive_dp.ptr.glm import GlmCurve, calibrate_gamma, logistic_ptr, movement
from adaptive_dp.ptr.glm_experiment import DOMAIN, gaussian_pair_delta, optimum, pair_delta
from adaptive_dp.ptr.pca import private_pca, projector_sensitivity, top_eigenvectors

PROFILE = settings(max_examples=60, deadline=None, derandomize=True)


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@st.composite
def constants(draw):
    concordance, slope, curvature = draw(powers(-2, 1)), draw(powers(-1, 1)), draw(powers(-2, 1))
    return GlmConstants(concordance, slope, curvature, concordance * slope + curvature)


@given(powers(-2, 4), powers(0, 4), powers(-3, 3), constants())
@PROFILE
def test_more_curvature_means_more_privacy(lam, factor, noise, values):
    """A lower bound of alpha is safe: r falls, epsilon falls, delta falls."""
    alpha, more = lam, lam * factor
    assert movement(more, lam, values) <= movement(alpha, lam, values) * (1 + 1e-9)
    low, high = (GlmCurve(a, lam, noise * lam, values) for a in (alpha, more))
    assert high.epsilon(1e-6) <= low.epsilon(1e-6) * (1 + 1e-9)
    assert high.delta(1.0) <= low.delta(1.0) * (1 + 1e-9)


@given(powers(-1, 4), powers(0, 3), powers(-3, 1), constants(), powers(-9, -1))
@PROFILE
def test_epsilon_and_delta_are_inverse(lam, factor, noise, values, delta):
    curve = GlmCurve(lam * factor, lam, noise * lam * factor, values)
    epsilon = curve.epsilon(delta)
    assume(math.isfinite(epsilon) and epsilon < 1e6)
    assert curve.delta(epsilon) <= delta * (1 + 1e-6)
    assert epsilon <= curve.closed_epsilon(delta) * (1 + 1e-9)
    assert curve.delta(epsilon + 1) <= curve.delta(epsilon)


@given(powers(-1, 4), powers(0, 3), constants(), powers(-1, 1), powers(-9, -1))
@PROFILE
def test_the_calibrated_gamma_keeps_the_promise(lam, factor, values, epsilon, delta):
    gamma = calibrate_gamma(alpha=lam * factor, lam=lam, constants=values, epsilon=epsilon, delta=delta)
    assume(gamma > 0)
    assert GlmCurve(lam * factor, lam, gamma, values).delta(epsilon) <= delta * (1 + 1e-9)


@st.composite
def neighbours(draw):
    """Data on a coarse grid, so that duplicates and zeros occur, and a record more."""
    columns = draw(st.integers(1, 2))
    rows = draw(st.integers(1, 5))
    cells = draw(st.lists(st.integers(-4, 4), min_size=rows * columns, max_size=rows * columns))
    features = np.array(cells, dtype=float).reshape(rows, columns) / 4
    features /= np.maximum(np.linalg.norm(features, axis=1), 1)[:, np.newaxis]
    labels = np.array(draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=rows, max_size=rows)))
    counts = np.array(draw(st.lists(st.integers(0, 3_000), min_size=rows, max_size=rows)), dtype=float)
    lam = draw(powers(-2, 3))
    before = optimum(features, labels, counts, lam)
    counts[0] += 1
    return lam, before, optimum(features, labels, counts, lam)


@given(neighbours(), powers(-3, 0.5), powers(-8, -1))
@PROFILE
def test_claimed_deltas_hold_for_neighbours(pair, noise, claimed):
    lam, before, after = pair
    values = GlmConstants(1.0, 1.0, 0.25, 1.0)
    assert abs(after.smallest - before.smallest) <= 1 + 1e-6
    for hand, other in ((before, after), (after, before)):
        alpha = max(hand.smallest, lam)
        curve = GlmCurve(alpha, lam, noise * alpha, values)
        epsilon = curve.epsilon(claimed)
        if epsilon < 300:
            assert pair_delta(hand, other, gamma=noise * alpha, epsilon=epsilon) <= claimed


@given(st.floats(-3, 3), powers(-1, 1), st.floats(0, 3))
@PROFILE
def test_profiles_of_two_gaussians(mean, precision, epsilon):
    """Between 0 and 1, falling, and the two directions are tied by delta(-e) = 1 - e^-e + e^-e delta'(e)."""
    here = gaussian_pair_delta(epsilon, [mean], [precision])
    assert 0 <= here <= gaussian_pair_delta(0.0, [mean], [precision]) + 1e-12 <= 1 + 1e-12
    scale = math.sqrt(precision)
    back = gaussian_pair_delta(epsilon, [-mean * scale], [1 / precision])
    tied = -math.expm1(-epsilon) + math.exp(-epsilon) * back
    assert math.isclose(gaussian_pair_delta(-epsilon, [mean], [precision]), tied, abs_tol=1e-10)


@given(powers(0.001, 6), powers(0.001, 6))
@PROFILE
def test_sensitivity_of_projectors_falls(first, second):
    low, high = sorted((first, second))
    assert projector_sensitivity(high) <= projector_sensitivity(low) <= 1
    assert projector_sensitivity(low) <= math.sqrt(2) / low


@st.composite
def grams(draw):
    d = draw(st.integers(2, 4))
    cells = st.lists(st.floats(-3, 3), min_size=6 * d, max_size=6 * d)
    rows = np.array(draw(cells)).reshape(6, d)
    record = np.array(draw(st.lists(st.floats(-1, 1), min_size=d, max_size=d)))
    return rows.T @ rows, record / max(np.linalg.norm(record), 1), draw(st.integers(1, d - 1))


@given(grams())
@PROFILE
def test_projectors_of_neighbours(scene):
    matrix, record, k = scene
    first, gap = top_eigenvectors(matrix, k)
    second, other = top_eigenvectors(matrix + np.outer(record, record), k)
    assert abs(gap - other) <= 1 + 1e-9
    for here in (gap, other):
        if here > 1 + 1e-9:
            distance = np.linalg.norm(first @ first.T - second @ second.T)
            assert distance <= projector_sensitivity(here) * (1 + 1e-7) + 1e-10


@given(powers(-1, 1), powers(-9, -2), powers(-2, 3), st.floats(0.05, 0.95), st.integers(0, 1_000))
@PROFILE
def test_guarantees_are_what_was_asked_for(epsilon, delta, lam, share, seed):
    rng = np.random.default_rng(seed)
    people = Dataset([[0.6, 0.0], [0.0, -0.5], [0.3, 0.3]], [1, -1, 1], DOMAIN)
    for release in (
        logistic_ptr(people, lam=lam, epsilon=epsilon, delta=delta, rng=rng, share=share),
        private_pca(people, components=1, epsilon=epsilon, delta=delta, rng=rng, share=share),
    ):
        assert math.isclose(release.guarantee.epsilon, epsilon)
        assert math.isclose(release.guarantee.delta, delta)
        assert isinstance(release.value, Refused) or release.trace["bound"] is not None
