"""Clipped losses: continuous, convex, smooth, with the clipped gradient as derivative, for records nobody chose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_dp.losses import HuberLoss, LogisticLoss, Loss, SquaredLoss
from adaptive_dp.objective_perturbation.clipping import (
    ClippedLoss,
    ClippedProblem,
    bisected_limits,
    clipping_limits,
)
from adaptive_dp.privacy import Domain

PROFILE = settings(max_examples=80, deadline=None, derandomize=True)


@dataclass(frozen=True)
class SmoothAbsoluteLoss(Loss):
    """sqrt(1 + (u - y)^2): no closed form is registered, so that the root finder is at work."""

    curvature: ClassVar[float] = 1.0
    self_concordance: ClassVar[float | None] = None

    def value(self, prediction, label):
        return np.hypot(1.0, np.subtract(prediction, label))

    def derivative(self, prediction, label):
        residual = np.subtract(prediction, label)
        return residual / np.hypot(1.0, residual)

    def second_derivative(self, prediction, label):
        return np.hypot(1.0, np.subtract(prediction, label)) ** -3.0

    def largest_slope(self, prediction_bound, domain):
        return 1.0

    def largest_value(self, prediction_bound, domain):
        return math.inf


@dataclass(frozen=True)
class ExponentialLoss(SmoothAbsoluteLoss):
    """exp(-y u): unbounded slopes on one side, overflow far out."""

    def value(self, prediction, label):
        return np.exp(-np.multiply(prediction, label))

    def derivative(self, prediction, label):
        return -np.asarray(label) * self.value(prediction, label)

    def second_derivative(self, prediction, label):
        return self.value(prediction, label)


@dataclass(frozen=True)
class OpenLoss(SmoothAbsoluteLoss):
    """A straight line of slope 2 y."""

    def value(self, prediction, label):
        return 2.0 * np.multiply(prediction, label)

    def derivative(self, prediction, label):
        return 2.0 * np.asarray(label) + np.zeros_like(np.asarray(prediction, dtype=float))

    def second_derivative(self, prediction, label):
        return np.zeros(np.broadcast_shapes(np.shape(prediction), np.shape(label)))


SMOOTH = [LogisticLoss(), SquaredLoss(), HuberLoss(0.7), SmoothAbsoluteLoss()]
clips = st.floats(-4, 2).map(lambda e: 10.0**e)
norms = st.floats(-2, 1).map(lambda e: 10.0**e)
signs = st.sampled_from([-1.0, 1.0])


@given(st.sampled_from(SMOOTH), clips, norms, signs)
@PROFILE
def test_continuous_convex_and_smooth(loss, clip, norm, label):
    clipped = ClippedLoss(loss, clip)
    low, high = (float(limit) for limit in clipped.limits(label, norm))
    assert low <= high
    slope = clip / norm
    for limit, sign in ((low, -1), (high, 1)):
        if math.isfinite(limit):
            assert float(loss.derivative(limit, label)) == pytest.approx(sign * slope, rel=1e-9)
            step = 1e-9 * (1 + abs(limit))
            left, right = clipped.value(np.array([limit - step, limit + step]), label, norm)
            assert abs(right - left) <= 2.5 * step * slope + 1e-12 * (1 + abs(right))
    ends = [e for e in (low, high) if math.isfinite(e)] or [0.0]
    width = max(8.0, 2 * abs(ends[0] - ends[-1]))
    u = np.linspace(min(ends) - width, max(ends) + width, 4001)
    values, derivatives = clipped.value(u, label, norm), clipped.derivative(u, label, norm)
    assert np.abs(derivatives).max() <= slope * (1 + 1e-12)
    rises = np.diff(derivatives)
    assert rises.min() >= -1e-15
    assert rises.max() <= loss.curvature * np.diff(u).max() * (1 + 1e-9) + 1e-15
    # Convex, and with the right derivative: each value lies above the tangent of its neighbours, on both sides.
    gaps = np.diff(values)
    rounding = 1e-13 * (1 + np.abs(values).max())
    assert (gaps >= derivatives[:-1] * np.diff(u) - rounding).all()
    assert (gaps <= derivatives[1:] * np.diff(u) + rounding).all()


@given(st.sampled_from(SMOOTH), clips, norms, signs, st.floats(-30, 30))
@PROFILE
def test_the_gradient_is_the_clipped_one(loss, clip, norm, label, u):
    raw = float(loss.derivative(u, label)) * norm
    factor = 1.0 if abs(raw) <= clip else clip / abs(raw)
    clipped = ClippedLoss(loss, clip)
    assert float(clipped.derivative(u, label, norm)) * norm == pytest.approx(
        factor * raw, rel=1e-12, abs=1e-300
    )
    second = float(clipped.second_derivative(u, label, norm))
    assert second == (float(loss.second_derivative(u, label)) if abs(raw) / norm <= clip / norm else 0.0)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    features = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 1, (n, 1))
    features[rng.random(n) < 0.2] = 0.0
    loss = draw(st.sampled_from([*SMOOTH, ExponentialLoss()]))
    clip = draw(clips)
    theta = rng.standard_normal(d)
    return ClippedProblem(loss, features, rng.choice([-1.0, 1.0], n), clip), theta


@given(problems())
@PROFILE
def test_problem_is_the_sum_of_its_records(case):
    problem, theta = case
    clipped = ClippedLoss(problem.loss, problem.clip)
    total, gradient = 0.0, np.zeros(theta.size)
    for x, y in zip(problem.features, problem.labels, strict=True):
        norm = float(np.linalg.norm(x))
        total += float(clipped.value(x @ theta, y, norm))
        raw = float(problem.loss.derivative(x @ theta, y)) * x
        size = float(np.linalg.norm(raw))
        assert np.linalg.norm(float(clipped.derivative(x @ theta, y, norm)) * x) <= problem.clip * (1 + 1e-12)
        gradient += min(1.0, problem.clip / size) * raw if size > 0 else raw
    assert problem.value(theta) == pytest.approx(total, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(problem.gradient(theta), gradient, rtol=1e-9, atol=1e-12 * (1 + problem.clip))


@given(problems())
@PROFILE
def test_derivatives_are_those_of_the_value(case):
    problem, theta = case
    u = problem.features @ theta
    kinks = np.minimum(np.abs(u - problem.low), np.abs(u - problem.high))
    if isinstance(problem.loss, HuberLoss):
        kinks = np.minimum(kinks, np.abs(np.abs(u - problem.labels) - problem.loss.width))
    h = 1e-5
    if kinks.min() < 2 * h * np.abs(problem.features).max() or np.abs(u).max() > 20:
        return
    step = h * np.eye(theta.size)
    first = np.array([(problem.value(theta + e) - problem.value(theta - e)) / (2 * h) for e in step])
    scale = 1 + problem.value(theta)
    np.testing.assert_allclose(problem.gradient(theta), first, rtol=1e-5, atol=1e-8 * scale)
    second = np.array([(problem.gradient(theta + e) - problem.gradient(theta - e)) / (2 * h) for e in step])
    hessian = problem.hessian(theta)
    assert (hessian == hessian.T).all()
    np.testing.assert_allclose(hessian, second, rtol=1e-4, atol=1e-6 * (1 + np.abs(hessian).max()))


@given(st.sampled_from(SMOOTH[:3]), st.lists(st.tuples(clips, norms, signs), min_size=1, max_size=6))
@PROFILE
def test_closed_forms_agree_with_the_root_finder(loss, records):
    clip, norm, labels = (np.array(column) for column in zip(*records, strict=True))
    slopes = clip / norm
    found = clipping_limits(loss, slopes, labels)
    general = bisected_limits(loss, slopes, labels)
    for closed, bisected in zip(found, general, strict=True):
        steep = np.isfinite(closed)
        assert (steep == np.isfinite(bisected)).all()
        # The steepness at the limit is what counts: where f is flat its inverse has few digits.
        first, second = (loss.derivative(limit[steep], labels[steep]) for limit in (closed, bisected))
        np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-15)


def test_a_clipped_squared_loss_is_a_huber_loss():
    """On rows of one norm; with the right constants there is no offset either."""
    rng = np.random.default_rng(3)
    u, y = 5 * rng.standard_normal(400), rng.uniform(-1, 1, 400)
    clipped, huber = ClippedLoss(SquaredLoss(), 1.2), HuberLoss(1.2 / 0.75)
    for name in ("value", "derivative", "second_derivative"):
        np.testing.assert_allclose(
            getattr(clipped, name)(u, y, 0.75), getattr(huber, name)(u, y), rtol=1e-13, atol=1e-14
        )
    assert clipped.lipschitz(Domain("l2", 0.75, "real")) == 1.2
    assert clipped.smoothness(Domain("l2", 0.75, "real")) == 0.75**2


def test_a_line_too_steep_everywhere_becomes_a_line():
    clipped = ClippedLoss(OpenLoss(), 0.5)
    u = np.linspace(-3, 3, 7)
    np.testing.assert_array_equal(clipped.value(u, 1.0, 1.0), 0.5 * u)
    np.testing.assert_array_equal(clipped.value(u, -1.0, 1.0), -0.5 * u)
    np.testing.assert_array_equal(clipped.second_derivative(u, 1.0, 1.0), 0.0)


def test_a_large_clip_changes_not_one_bit():
    rng = np.random.default_rng(5)
    features, labels = rng.standard_normal((300, 4)), rng.choice([-1.0, 1.0], 300)
    features[:3] = 0.0
    largest = float(np.linalg.norm(features, axis=1).max())
    for loss, clip in (
        (LogisticLoss(), largest * (1 + 1e-12)),
        (HuberLoss(0.7), 0.7 * largest * (1 + 1e-12)),
    ):
        clipped, plain = (ClippedProblem(loss, features, labels, c) for c in (clip, None))
        assert (clipped.low == -np.inf).all()
        assert (clipped.high == np.inf).all()
        for theta in 100 * rng.standard_normal((20, 4)):
            assert clipped.value(theta) == plain.value(theta)
            assert (clipped.gradient(theta) == plain.gradient(theta)).all()
            assert (clipped.hessian(theta) == plain.hessian(theta)).all()
            assert clipped.clipped_share(theta) == 0.0


def test_the_density_of_a_kinked_objective_integrates_to_one():
    """Erratum 26: theta -> b(theta) is Lipschitz both ways, so the change of variables holds with kinks."""
    rng = np.random.default_rng(7)
    features, labels = rng.uniform(-1.4, 1.4, (6, 1)), rng.choice([-1.0, 1.0], 6)
    lam, sigma = 0.3, 1.0
    for clip in (0.1, 0.3, 0.6):
        problem = ClippedProblem(LogisticLoss(), features, labels, clip)
        assert np.isfinite(problem.low).any()
        # Between kinks the integrand is smooth: 40 Gauss-Legendre nodes on pieces of a fine grid that contains them.
        limits = np.concatenate([problem.low, problem.high]) / np.tile(features[:, 0], 2)
        edges = np.union1d(np.linspace(-60, 60, 1201), limits[np.isfinite(limits)])
        nodes, weights = np.polynomial.legendre.leggauss(8)
        half = 0.5 * np.diff(edges)[:, np.newaxis]
        theta = edges[:-1, np.newaxis] + half * (1 + nodes)
        points = theta.reshape(-1, 1)
        b = -np.array([problem.gradient(t)[0] for t in points]).reshape(theta.shape) - lam * theta
        slope = np.array([problem.hessian(t)[0, 0] for t in points]).reshape(theta.shape) + lam
        density = np.exp(-0.5 * (b / sigma) ** 2) / (math.sqrt(2 * math.pi) * sigma) * slope
        assert float((half * weights * density).sum()) == pytest.approx(1.0, abs=1e-11)


def test_refusals():
    rows, labels = np.ones((2, 2)), np.array([1.0, -1.0])
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="clip"):
            ClippedLoss(LogisticLoss(), bad)
        with pytest.raises(ValueError, match="clip"):
            ClippedProblem(LogisticLoss(), rows, labels, bad)
    with pytest.raises(TypeError, match="generalised linear"):
        ClippedLoss("logistic", 1.0)
    with pytest.raises(ValueError, match="labels must have one entry"):
        ClippedProblem(LogisticLoss(), rows, np.ones(3))
    with pytest.raises(ValueError, match="features must be finite"):
        ClippedProblem(LogisticLoss(), [[math.nan]], [1.0])


def test_huber_constants_are_attained():
    loss, domain = HuberLoss(0.7), Domain("l2", 2.0, "real", 3.0)
    assert loss.lipschitz(domain, math.inf) == pytest.approx(1.4)
    assert loss.largest_slope(0.0001, Domain("l2", 2.0, "real", 0.5)) == pytest.approx(0.5001)
    assert loss.smoothness(domain) == 4.0
    assert loss.largest_value(1.0, domain) == pytest.approx(0.7 * (4 - 0.35))
    assert loss.largest_value(math.inf, domain) == math.inf
    assert float(loss.value(0.5, 0.0)) == 0.125
    with pytest.raises(ValueError, match="width"):
        HuberLoss(0.0)


# --- what a problem trusts, and what it refuses -------------------------------------------------------


class DoubledLoss(LogisticLoss):
    """Twice as steep as its base, whose closed form is therefore not its own."""

    def value(self, prediction, label):
        return 2 * super().value(prediction, label)

    def derivative(self, prediction, label):
        return 2 * super().derivative(prediction, label)


def test_a_subclass_does_not_inherit_the_closed_form():
    clipped = ClippedLoss(DoubledLoss(), 0.8)
    low, high = clipped.limits(1.0, 1.0)
    assert float(high) == np.inf
    assert float(DoubledLoss().derivative(low, 1.0)) == pytest.approx(-0.8, rel=1e-9)
    left, right = clipped.value(np.array([low - 1e-9, low + 1e-9]), 1.0, 1.0)
    assert abs(left - right) < 1e-8


def test_every_array_of_a_problem_is_locked():
    problem = ClippedProblem(LogisticLoss(), np.eye(3), np.ones(3), 0.3)
    for name in ("features", "labels", "slopes_allowed", "low", "high"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(problem, name)[...] = 0.0
    plain = ClippedProblem(LogisticLoss(), np.eye(3), np.ones(3))
    for name in ("features", "labels", "low", "high"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(plain, name)[...] = 0.0


def test_a_locked_array_is_looked_at_and_a_view_of_an_open_one_is_copied():
    spoilt = np.array([[1.0, math.nan]])
    spoilt.setflags(write=False)
    with pytest.raises(ValueError, match="features must be finite"):
        ClippedProblem(LogisticLoss(), spoilt, [1.0])
    base = np.eye(2)
    view = base[:]
    view.setflags(write=False)
    problem = ClippedProblem(LogisticLoss(), view, [1.0, -1.0])
    base[:] = 7.0
    np.testing.assert_array_equal(problem.features, np.eye(2))
    own = np.eye(2)
    own.setflags(write=False)
    assert ClippedProblem(LogisticLoss(), own, [1.0, -1.0]).features is own


def test_labels_that_the_loss_does_not_know():
    with pytest.raises(ValueError, match=r"labels must be -1 or \+1 .* got .*0.0"):
        ClippedProblem(LogisticLoss(), np.eye(2), [0.0, 1.0])
    clipped = ClippedLoss(LogisticLoss(), 0.3)
    for name in ("value", "derivative", "second_derivative"):
        with pytest.raises(ValueError, match="label must be -1"):
            getattr(clipped, name)(0.2, 0.0, 1.0)
    with pytest.raises(ValueError, match="label must be -1"):
        clipped.limits(0.0, 1.0)
    assert ClippedProblem(SquaredLoss(), np.eye(2), [0.0, 0.3]).rows == 2


@pytest.mark.parametrize("norm", [-1.0, math.nan, math.inf, [1.0, -2.0]])
def test_norms_that_are_none(norm):
    with pytest.raises(ValueError, match="norm must be"):
        ClippedLoss(LogisticLoss(), 1.0).slope(norm)


@pytest.mark.parametrize("size", [1e-170, 1e-300, 1e160, 1e300])
def test_norms_whose_squares_leave_the_range(size):
    problem = ClippedProblem(
        SquaredLoss(), [[3.0 * size, 4.0 * size], [0.0, 0.0], [3.0, 4.0]], np.ones(3), 1e-3
    )
    np.testing.assert_allclose(problem.slopes_allowed, [1e-3 / (5 * size), np.inf, 2e-4], rtol=1e-12)
