"""The privacy of objective perturbation against exact hockey-sticks of explicit instances, and its calibration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_ndtr

from adaptive_dp.accounting import gaussian_delta, gaussian_sigma
from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import LogisticLoss, SmoothDistanceLoss, SquaredLoss
from adaptive_dp.per_instance import (
    LinearPerturbationCurve,
    Objective,
    SmoothPerturbationCurve,
    kifer_calibration,
    losses_of_members,
    losses_of_outsiders,
    sharp_sigma,
)
from adaptive_dp.per_instance.calibration import perturbation_guarantee
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, PrivacyCurve

EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
DOMAIN = Domain("l2", 1.0, "sign")


# ---------------------------------------------------------------- one-dimensional instances


class Record:
    """f(u; y) with |f'| <= 1 and f'' <= curvature: slope and bend at u = theta x."""

    def __init__(self, name, slope, bend, curvature, x=1.0):
        self.name, self.slope, self.bend, self.curvature, self.x = name, slope, bend, curvature, x

    def gradient(self, theta):
        return self.x * self.slope(self.x * theta)

    def hessian(self, theta):
        return self.x**2 * self.bend(self.x * theta)

    def __repr__(self):
        return self.name


def logistic(y, x=1.0):
    return Record(f"logistic({y:+d})", lambda u: -y * expit(-y * u), lambda u: expit(u) * expit(-u), 0.25, x)


def huber(width, centre=0.0):
    return Record(
        f"huber({width:g})",
        lambda u: np.clip((u - centre) / width, -1, 1),
        lambda u: np.where(np.abs(u - centre) <= width, 1 / width, 0.0),
        1 / width,
    )


def linear(sign=1):
    return Record("linear", lambda u: np.full_like(u, sign), lambda u: np.zeros_like(u), 0.0)


OTHERS = {
    "nobody": [],
    "one like her": [logistic(1)],
    "five against her": [logistic(-1)] * 5,
    "both": [logistic(1), logistic(-1, 0.5)],
}


def hockey_sticks(record, others, lam, sigma, epsilons):
    """Exact divergences (without her against with her, with her against without her), shape (k, 2).

    The density of theta^P is phi(J'(theta) / sigma) J''(theta) / sigma. The integral is taken cell by cell over the
    noise that belongs to ``others``: P(cell) is exact for both data sets, which makes each value a lower bound.
    """
    reach = (11 * sigma + 12) / lam
    theta = np.unique(
        np.concatenate(
            [np.linspace(-reach, reach, 8_001), np.linspace(-8, 8, 8_001), np.linspace(-1, 1, 2_001)]
        )
    )
    slope = lam * theta + sum((each.gradient(theta) for each in others), np.zeros_like(theta))

    def cells(values):
        # P(theta in cell) = Phi(J'(right) / sigma) - Phi(J'(left) / sigma), without cancellation in the right tail.
        scaled = values / sigma
        left, right = scaled[:-1], scaled[1:]
        swap = left > 0
        low, high = np.where(swap, -right, left), np.where(swap, -left, right)
        return np.exp(log_ndtr(high)) - np.exp(log_ndtr(low))

    without, having = cells(slope), cells(slope + record.gradient(theta))
    return np.array(
        [
            [np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((without, having), (having, without))]
            for e in epsilons
        ]
    )


INSTANCES = [
    (record, others, lam, sigma)
    for record in (logistic(1), logistic(-1), huber(1.0), huber(0.2), huber(0.02), huber(0.3, 0.5), linear())
    for others in OTHERS
    for lam, sigma in ((1.0, 1.0), (0.25, 2.0), (5.0, 0.4), (0.02, 3.0))
]


def test_the_curve_is_never_exceeded_by_an_instance():
    tightest = 0.0
    for record, others, lam, sigma in INSTANCES:
        curve = LinearPerturbationCurve(1 / sigma, max(record.curvature / lam, 1e-12))
        bounds = np.array([curve.delta(e) for e in EPSILONS])
        found = hockey_sticks(record, OTHERS[others], lam, sigma, EPSILONS)
        excess = found.max(axis=1) - bounds * (1 + 1e-9)
        assert (excess <= 1e-13).all(), (record, others, lam, sigma, excess)
        tightest = max(tightest, (found.max(axis=1)[bounds > 1e-12] / bounds[bounds > 1e-12]).max())
    assert tightest > 0.99  # an instance that all but attains it is among them


def test_the_absent_branch_is_attained_by_huber_loss():
    """2 G(epsilon, mu) exactly, where epsilon / mu - mu / 2 >= mu / kappa."""
    sigma, lam, width = 2.0, 1.0, 0.02
    mu, kappa = 1 / sigma, 1 / (width * lam)
    for epsilon in (0.2, 0.5, 1.0):
        assert epsilon / mu - mu / 2 >= mu / kappa
        ((absent, _),) = hockey_sticks(huber(width), [], lam, sigma, [epsilon])
        expected = 2 * gaussian_delta(epsilon, mu)
        assert absent == pytest.approx(expected, rel=1e-9)
    curve = LinearPerturbationCurve(mu, 1e-9)
    assert curve.delta(0.5) == pytest.approx(2 * gaussian_delta(0.5, mu), rel=1e-12)


def test_half_the_curve_is_exceeded():
    """The instances would find a curve that lacks the factor 2, or the determinant."""
    ((absent, _),) = hockey_sticks(huber(0.02), [], 1.0, 2.0, [0.5])
    assert absent > 1.9 * gaussian_delta(0.5, 0.5)
    ((_, present),) = hockey_sticks(huber(1.0), [], 1.0, 4.0, [0.6])
    assert present > 2 * gaussian_delta(0.6, 0.25)
    assert present <= LinearPerturbationCurve(0.25, 1.0).delta(0.6)


def test_linear_loss_is_the_gaussian_mechanism():
    """Without curvature the exact profile is G; the closed curve is at most twice that."""
    for mu in (0.1, 0.5, 1.5):
        found = hockey_sticks(linear(), [], 1.0, 1 / mu, EPSILONS)
        for epsilon, pair in zip(EPSILONS, found, strict=True):
            exact = gaussian_delta(epsilon, mu)
            np.testing.assert_allclose(pair, exact, rtol=1e-2, atol=1e-12)
            closed = LinearPerturbationCurve(mu, 1e-14).delta(epsilon)
            assert exact <= closed <= 2 * exact * (1 + 1e-9)


# ---------------------------------------------------------------- the closed forms


def test_the_formulas():
    curve = LinearPerturbationCurve(0.5, 0.2)
    for epsilon in (0.2, 0.5, 2.0):  # from mu^2 / 2 and log(1 + kappa) on
        a, b = 2 * gaussian_delta(epsilon, 0.5), gaussian_delta(epsilon - math.log(1.2), 0.5)
        assert curve.delta(epsilon) == pytest.approx(max(a, b), rel=1e-13)
    half_normal = stats.halfnorm()
    mu, epsilon = 1.2, 0.3  # below mu^2 / 2
    expected, _ = integrate.quad(
        lambda r: half_normal.pdf(r) * max(0.0, 1 - math.exp(epsilon - mu**2 / 2 - mu * r)), 0, 30
    )
    assert LinearPerturbationCurve(mu, 1e-12).delta(epsilon) == pytest.approx(expected, abs=1e-9)
    # Below log(1 + kappa) a chord in e^epsilon from the total variation to the Gaussian profile at 0.
    whole, end = 2 * stats.norm.cdf(0.1) - 1, 2 * stats.norm.cdf(0.05) - 1
    chord = whole - (whole - end) * (math.e - 1) / 5
    assert LinearPerturbationCurve(0.1, 5.0).delta(1.0) == pytest.approx(chord)
    assert LinearPerturbationCurve(0.1, 5.0).delta(0.0) == pytest.approx(whole)


@pytest.mark.parametrize("mu", [1e-8, 0.01, 0.3, 1.0, 4.0, 37.0, 40.0, 100.0, 1e4, 1e6])
@pytest.mark.parametrize("kappa", [1e-6, 0.1, 3.0, 1e4])
def test_curves_are_probabilities_that_fall(mu, kappa):
    scale = mu + mu**2 + math.log1p(kappa)
    levels = np.concatenate([[0.0], scale * np.geomspace(1e-3, 1e2, 60)])
    for curve in (LinearPerturbationCurve(mu, kappa), SmoothPerturbationCurve(mu, kappa, 3)):
        assert isinstance(curve, PrivacyCurve)
        deltas = np.array([curve.delta(e) for e in levels])
        assert (deltas >= 0).all()
        assert (deltas <= 1).all()
        assert (np.diff(deltas) <= 1e-12).all()
        assert curve.delta(levels[-1]) < 1e-3
        assert curve.delta(0.0) > 0


def test_curves_rise_with_mu_and_kappa():
    grid = np.geomspace(1e-3, 30, 7)
    for epsilon in (0.0, 0.3, 1.0, 5.0):
        for kind in (LinearPerturbationCurve, lambda mu, kappa: SmoothPerturbationCurve(mu, kappa, 4)):
            table = np.array([[kind(mu, kappa).delta(epsilon) for kappa in grid] for mu in grid])
            assert (np.diff(table, axis=0) >= -1e-12).all()
            assert (np.diff(table, axis=1) >= -1e-12).all()


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 50.0])
@pytest.mark.parametrize("kappa", [1e-6, 0.25, 10.0])
def test_epsilon_is_on_the_safe_side_and_sharp(delta, mu, kappa):
    for curve in (LinearPerturbationCurve(mu, kappa), SmoothPerturbationCurve(mu, kappa, 2)):
        epsilon = curve.epsilon(delta)
        assert curve.delta(epsilon) <= delta
        assert epsilon == 0 or curve.delta(epsilon * (1 - 1e-9)) > delta
        Guarantee("ex-ante", epsilon, Neighbours.ADD_REMOVE, delta=delta, curve=curve)


def test_the_smooth_curve_is_the_expectation_over_a_chi_law():
    for mu, kappa, d in ((0.1, 0.01, 20), (1.0, 0.1, 3), (3.0, 2.0, 1), (60.0, 0.5, 4), (3000.0, 0.5, 4)):
        law = stats.chi(d)
        shift = d * math.log1p(kappa) + mu**2 / 2
        for level in shift + mu * np.array([-1.0, 0.5, 2.0, 5.0]):
            if level < 0:
                continue
            start = max(0.0, (level - shift) / mu)
            edges = [start, start + 5 / mu, start + 40 / mu, max(start + 40 / mu, start + 3), start + 40]
            rest = level - shift
            pieces = [
                integrate.quad(
                    lambda r, m=mu, c=rest, f=law: f.pdf(r) * -math.expm1(c - m * r), a, b, limit=200
                )
                for a, b in itertools.pairwise(edges)
                if b > a
            ]
            found = SmoothPerturbationCurve(mu, kappa, d).delta(float(level))
            assert found == pytest.approx(sum(piece for piece, _ in pieces), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_smooth_curve_bounds_an_instance(columns):
    """Monte Carlo of both directions: E (1 - exp(epsilon - loss))_+ under the data at hand."""
    rng = np.random.default_rng(7)
    lam, sigma, width = 1.0, 1.2, 2.0
    loss = SmoothDistanceLoss(width)
    x = np.zeros((1, columns))
    x[0, 0] = 1.0
    other = Dataset(-x, [1.0], DOMAIN)
    both = Dataset(np.vstack([-x, x]), [1.0, 1.0], DOMAIN)
    curve = SmoothPerturbationCurve(1 / sigma, 1 / (width * lam), columns)
    signed = {"with": [], "without": []}
    for _ in range(150):
        b = rng.normal(0, sigma, columns)
        for name, people in (("with", both), ("without", other)):
            objective = Objective(people, loss, lam)
            point = objective.at(objective.minimise(b).theta)
            terms = (
                losses_of_members(point, sigma=sigma).signed[1]
                if name == "with"
                else losses_of_outsiders(point, features=x, labels=[1], sigma=sigma).signed[0]
            )
            signed[name].append(terms)
    for name in signed:
        values = np.array(signed[name])
        ceiling = columns * math.log1p(curve.kappa) + curve.mu**2 / 2
        assert (values <= ceiling + curve.mu * 6).all()
        for epsilon in (0.0, 0.5, 1.0):
            gain = np.maximum(-np.expm1(epsilon - values), 0)
            assert gain.mean() - 4 * gain.std() / math.sqrt(values.size) <= curve.delta(epsilon), name


# ---------------------------------------------------------------- calibration


@pytest.mark.parametrize(("kappa", "sigma"), [(0.25, 5.3421), (0.01, 4.3652), (0.5, 6.8546), (0.1, 4.6364)])
def test_sharp_sigma_of_the_referee(kappa, sigma):
    found = sharp_sigma(epsilon=1, delta=1e-6, slope=1, curvature=kappa, lam=1)
    assert found == pytest.approx(sigma, abs=5e-5)
    assert LinearPerturbationCurve(1 / found, kappa).delta(1.0) <= 1e-6
    assert LinearPerturbationCurve(1 / (found * (1 - 1e-9)), kappa).delta(1.0) > 1e-6
    # Never below the Gaussian mechanism, and below Kifer et al. at their own lam.
    assert found > gaussian_sigma(1.0, 1e-6, 1.0)
    if kappa == 0.5:
        kifer = kifer_calibration(epsilon=1, delta=1e-6, slope=1, curvature=0.5)
        assert kifer.lam == 1.0
        assert found < kifer.sigma


def test_kifer_is_the_root_of_what_is_printed():
    found = kifer_calibration(epsilon=0.5, delta=1e-5, slope=0.1, curvature=0.25)
    assert found.sigma == pytest.approx(math.sqrt(0.1**2 * (8 * math.log(2e5) + 2) / 0.25))
    assert found.lam == 1.0
    assert kifer_calibration(epsilon=1, delta=1e-6, slope=1, curvature=1).sigma == pytest.approx(
        10.9576, abs=1e-4
    )
    for epsilon in (0.1, 1.0, 8.0):
        for delta in (1e-2, 1e-6):
            sigma, lam = kifer_calibration(epsilon=epsilon, delta=delta, slope=1, curvature=0.25)
            assert LinearPerturbationCurve(1 / sigma, 0.25 / lam).delta(epsilon) <= delta


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e5])
def test_calibrations_scale_with_the_loss(factor):
    plain = {"epsilon": 0.7, "delta": 1e-5}
    one = kifer_calibration(**plain, slope=1, curvature=0.25)
    other = kifer_calibration(**plain, slope=factor, curvature=0.25 * factor)
    assert other == pytest.approx((factor * one.sigma, factor * one.lam))
    assert sharp_sigma(**plain, slope=factor, curvature=0.25 * factor, lam=2 * factor) == pytest.approx(
        factor * sharp_sigma(**plain, slope=1, curvature=0.25, lam=2), rel=1e-9
    )


def test_a_ridge_too_small_for_the_wanted_epsilon_is_said_or_paid_for():
    """Below log(1 + kappa) the total variation alone decides: much noise, and beyond 1e12 an error."""
    found = sharp_sigma(epsilon=0.5, delta=1e-4, slope=1, curvature=1, lam=0.1)
    assert LinearPerturbationCurve(1 / found, 10.0).delta(0.5) <= 1e-4
    assert found > 1000
    with pytest.raises(ValueError, match=r"epsilon 0.5.*take a larger lam"):
        sharp_sigma(epsilon=0.5, delta=1e-15, slope=1, curvature=1, lam=0.1)


@pytest.mark.parametrize("name", ["epsilon", "delta", "slope", "curvature", "lam"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "x", None, True])
def test_bad_calibrations_are_refused_by_name(name, value):
    good = {"epsilon": 1.0, "delta": 1e-6, "slope": 1.0, "curvature": 0.25, "lam": 1.0}
    with pytest.raises((ValueError, TypeError), match=name):
        sharp_sigma(**{**good, name: value})
    good.pop("lam")
    if name != "lam":
        with pytest.raises((ValueError, TypeError), match=name):
            kifer_calibration(**{**good, name: value})


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf, "x", None])
def test_bad_epsilon_and_delta_of_a_curve(value):
    for curve in (LinearPerturbationCurve(1.0, 0.1), SmoothPerturbationCurve(1.0, 0.1, 3)):
        with pytest.raises((ValueError, TypeError), match="epsilon"):
            curve.delta(value)
        with pytest.raises((ValueError, TypeError), match="delta"):
            curve.epsilon(value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0.0, 0.1, 3), "mu"),
        ((1.0, -0.1, 3), "kappa"),
        ((1.0, 0.1, 0), "dimension"),
        ((math.inf, 0.1, 3), "mu"),
    ],
)
def test_bad_curves(arguments, words):
    with pytest.raises(ValueError, match=words):
        SmoothPerturbationCurve(*arguments)
    if words != "dimension":
        with pytest.raises(ValueError, match=words):
            LinearPerturbationCurve(*arguments[:2])


def test_the_guarantee_of_a_loss():
    common = {"dimension": 3, "lam": 2.0, "sigma": 4.0, "delta": 1e-5}
    linear_one = perturbation_guarantee(LogisticLoss(), DOMAIN, **common)
    assert linear_one.curve == LinearPerturbationCurve(0.25, 0.125)
    general = perturbation_guarantee(SmoothDistanceLoss(2.0), DOMAIN, **common)
    assert general.curve == SmoothPerturbationCurve(0.25, 0.25, 3)
    assert general.epsilon > linear_one.epsilon
    assert perturbation_guarantee(SquaredLoss(), DOMAIN, **common).epsilon == math.inf
