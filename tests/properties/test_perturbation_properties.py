"""Properties of the exact privacy of objective perturbation: losses, data and shifts that nobody chose."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.losses import HuberLoss, LogisticLoss, SquaredLoss
from adaptive_dp.objective_perturbation.certified import certified_delta, certified_renyi
from adaptive_dp.objective_perturbation.clipping import ClippedLoss
from adaptive_dp.objective_perturbation.exact import (
    attained_deltas,
    attained_renyi,
    exact_delta,
    line_pair,
    plane_pair,
)
from adaptive_dp.objective_perturbation.profiles import ReducedCurve
from adaptive_dp.objective_perturbation.reduction import DIRECTIONS
from adaptive_dp.objective_perturbation.worst_cases import HuberPair, privacy_loss_density
from adaptive_dp.per_instance.calibration import LinearPerturbationCurve

PROFILE = settings(max_examples=30, deadline=None, derandomize=True)
SLOW = settings(max_examples=12, deadline=None, derandomize=True)


def powers(low, high):
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@dataclasses.dataclass(frozen=True)
class Stairs:
    """f' rises piecewise linearly through (corners, heights): any convex loss, as nearly as one likes."""

    corners: tuple
    heights: tuple

    def derivative(self, prediction, label):
        return np.interp(label * np.asarray(prediction, dtype=float), self.corners, self.heights) * label

    def second_derivative(self, prediction, label):
        at = np.searchsorted(self.corners, label * np.asarray(prediction, dtype=float)) - 1
        slopes = np.diff(self.heights) / np.diff(self.corners)
        return np.where((at >= 0) & (at < len(slopes)), slopes[np.clip(at, 0, len(slopes) - 1)], 0.0)

    def turning_points(self, label):
        return label * np.array(self.corners)


@st.composite
def stairs(draw):
    widths = draw(st.lists(powers(-2, 0.5), min_size=1, max_size=4))
    rises = draw(st.lists(st.floats(0.01, 0.5), min_size=len(widths), max_size=len(widths)))
    corners = draw(st.floats(-2, 2)) + np.concatenate([[0.0], np.cumsum(widths)])
    heights = draw(st.floats(-1, 0.5)) + np.concatenate([[0.0], np.cumsum(rises)])
    return Stairs(tuple(corners.tolist()), tuple(heights.tolist()))


LOSSES = st.one_of(
    stairs(),
    st.just(LogisticLoss()),
    powers(-1, 0.5).map(HuberLoss),
    powers(-1, 0.5).map(lambda clip: ClippedLoss(SquaredLoss(), clip)),
    st.floats(0.1, 0.9).map(lambda clip: ClippedLoss(LogisticLoss(), clip)),
)


@st.composite
def line_pairs(draw):
    rows = draw(st.integers(0, 4))
    features = draw(st.lists(st.integers(-100, 100), min_size=rows, max_size=rows))
    labels = draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=rows, max_size=rows))
    weights = draw(st.lists(st.sampled_from([1.0, 5.0, 50.0]), min_size=rows, max_size=rows))
    record = draw(st.floats(0.05, 1)), draw(st.sampled_from([-1.0, 1.0]))
    return line_pair(
        draw(LOSSES), record, features=np.array(features) / 100, labels=labels, weights=weights,
        lam=draw(powers(-3, 3)), sigma=draw(powers(-0.7, 0.7)),
    )  # fmt: skip


@PROFILE
@given(line_pairs(), st.floats(0, 1), st.floats(1.05, 30))
def test_bounds_are_above_the_exact_divergences(pair, share, order):
    mu, kappa = pair.mu, pair.kappa
    curve = ReducedCurve(mu, kappa, sharper=True)
    epsilon = share * (math.log1p(kappa) + mu**2 / 2 + 3 * mu)
    absent, present = (float(side[0]) * (1 - 1e-9) for side in attained_deltas(pair, [epsilon]))
    assert absent <= curve.absent(epsilon)
    assert present <= curve.present(epsilon)
    absent, present = (value * (1 - 1e-9) for value in attained_renyi(pair, order))
    assert absent <= curve.renyi_absent(order) + 1e-12
    assert present <= curve.renyi_present(order) + 1e-12


@PROFILE
@given(line_pairs(), st.floats(-1, 1))
def test_the_two_directions_mirror_each_other(pair, epsilon):
    """delta(-e) of one direction is 1 - e^-e + e^-e delta(e) of the other, in any enclosure."""
    absent, present = exact_delta(pair, epsilon)
    mirrored = exact_delta(pair, -epsilon)[::-1]
    for found, other in zip((absent, present), mirrored, strict=True):
        assert 0 <= found.lower <= found.upper <= 1
        low, high = (-math.expm1(epsilon) + math.exp(epsilon) * end for end in other)
        assert max(found.lower, low) <= min(found.upper, high) + 1e-12


@SLOW
@given(line_pairs(), st.floats(0.05, 1))
def test_no_instance_exceeds_the_certified_worst_case(pair, share):
    mu, kappa = pair.mu, pair.kappa
    epsilon = share * (math.log1p(kappa) + mu)
    for values, direction in zip(attained_deltas(pair, [epsilon]), DIRECTIONS, strict=True):
        if values[0] < 1e-9:  # certifying less than that takes long
            continue
        worst = certified_delta(mu, kappa, epsilon=epsilon, direction=direction, tolerance=0.5)
        assert values[0] * (1 - 1e-9) <= worst.upper


@st.composite
def shifts(draw):
    """A nonincreasing s with |s| <= mu and -kappa <= s' <= 0, through random points."""
    mu, kappa = draw(powers(-1, 0.5)), draw(powers(-1.5, 1))
    t = np.sort(draw(st.lists(st.floats(-6, 6), min_size=2, max_size=12, unique=True)))
    shares = np.array(draw(st.lists(st.floats(0, 1), min_size=t.size - 1, max_size=t.size - 1)))
    start = draw(st.floats(-1, 1)) * mu
    s = np.maximum(start - np.concatenate([[0.0], np.cumsum(shares * kappa * np.diff(t))]), -mu)
    return mu, kappa, t, s


@SLOW
@given(shifts(), st.floats(-0.5, 1.5), st.floats(1.2, 12))
def test_no_admissible_shift_exceeds_the_certified_worst_case(drawn, epsilon, order):
    """Cells of both laws, straight from the shift: no loss, no data, no closed form in between."""
    mu, kappa, t, s = drawn
    edges = np.linspace(-9, 9, 2001)
    moved = edges - np.interp(edges, t, s)
    ends = np.array([-np.inf]), np.array([np.inf])
    p, q = (np.diff(special.ndtr(np.concatenate([ends[0], part, ends[1]]))) for part in (edges, moved))
    for direction, (a, b) in zip(DIRECTIONS, ((p, q), (q, p)), strict=True):
        delta = np.maximum(0.0, a - math.exp(epsilon) * b).sum()
        found = certified_delta(mu, kappa, epsilon=epsilon, direction=direction, tolerance=0.3)
        assert delta <= found.upper + 1e-12
        assert found.upper >= gaussian_delta(epsilon, mu)
        inner = (a > 1e-12) & (b > 1e-12)
        divergence = math.log((a[inner] ** order * b[inner] ** (1 - order)).sum()) / (order - 1)
        assert divergence <= certified_renyi(mu, kappa, order=order, direction=direction).upper + 1e-9


@PROFILE
@given(powers(-1.5, 0.6), powers(-2, 2), st.floats(0, 1))
def test_certified_brackets_respect_the_closed_bounds(mu, kappa, share):
    epsilon = share * (math.log1p(kappa) + mu)
    curve = LinearPerturbationCurve(mu, kappa)
    for direction in DIRECTIONS:
        found = certified_delta(mu, kappa, epsilon=epsilon, direction=direction, tolerance=0.9)
        closed = curve.absent(epsilon) if direction == "absent" else curve.present(epsilon)
        assert 0 <= found.lower <= found.upper <= 1
        assert found.lower <= closed * (1 + 1e-12)
        assert found.upper >= gaussian_delta(epsilon, mu)


@PROFILE
@given(powers(-1.5, 0.6), powers(-2, 2), st.floats(-1, 3))
def test_the_huber_pair_is_a_pair(mu, kappa, epsilon):
    """Mirror identity of the closed profiles, and both below their bounds."""
    pair = HuberPair(mu, kappa)
    mirrored = -math.expm1(epsilon) + math.exp(epsilon) * pair.present(-epsilon)
    assert math.isclose(pair.absent(epsilon), mirrored, rel_tol=1e-9, abs_tol=1e-12 * math.exp(abs(epsilon)))
    if epsilon >= 0:
        curve = LinearPerturbationCurve(mu, kappa)
        assert pair.absent(epsilon) <= curve.absent(epsilon) * (1 + 1e-9) + 1e-15
        assert pair.present(epsilon) <= curve.present(epsilon) * (1 + 1e-9) + 1e-15


@PROFILE
@given(powers(-1, 0.5), powers(-1.5, 1), st.integers(2, 60))
def test_densities_are_never_negative_and_never_more_than_one(mu, kappa, count):
    grid = np.linspace(-2 * mu, 3 * mu, count)
    frame = privacy_loss_density(mu, kappa, grid)
    assert (frame["density"].dropna() >= -1e-12).all()
    step = grid[1] - grid[0]
    mass = frame.assign(mass=frame["density"].fillna(0.0) * step + frame["atom"])
    assert (mass.groupby(["law", "direction"])["mass"].sum() <= 1 + 1e-9).all()


@SLOW
@given(LOSSES, st.integers(0, 3), powers(-1.5, 2), powers(-0.5, 0.5), st.integers(0, 2**32 - 1))
def test_losses_in_the_plane_obey_the_proofs_pointwise(loss, rows, lam, sigma, seed):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-0.7, 0.7, (rows, 2))
    labels = rng.choice([-1.0, 1.0], rows)
    record = rng.uniform(-0.7, 0.7, 2)
    size = float(np.hypot(*record))
    pair = plane_pair(loss, (record, 1.0), features=features, labels=labels, lam=lam, sigma=sigma)
    line = line_pair(loss, (size, 1.0), lam=lam, sigma=sigma)
    mu, kappa = line.mu, line.kappa
    along, across = np.linspace(-5, 5, 21), np.linspace(-4, 4, 9)
    absent = pair.nodes(along, across, present=False)
    assert (absent.loss <= mu**2 / 2 + mu * np.abs(absent.along) + 1e-7).all()
    present = pair.nodes(along, across, present=True)
    bound = math.log1p(kappa) + mu**2 / 2 + mu * np.abs(present.along)
    assert (present.loss <= bound + 1e-7).all()
