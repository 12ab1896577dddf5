"""Brownian noise reduction: the boundary holds along the whole path, the loss is exact, the walk is Brownian."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from adaptive_dp.accuracy_first import BrownianBoundary, brownian_levels, brownian_nr, brownian_walk
from adaptive_dp.datasets import Dataset
from adaptive_dp.privacy import Domain, Neighbours

DELTAS = (1e-12, 1e-6, 0.01, 0.1, 0.4)
BOUNDARY = BrownianBoundary(1.3, 0.1, 0.7)


# ---------------------------------------------------------------- the boundary


def crossing_count(curve, *, rho, paths, rng, decades=6, steps=2500):
    """How many of ``paths`` Brownian motions exceed ``curve`` somewhere on a fine geometric grid of s."""
    s = rho * np.geomspace(10.0**-3, 10.0**decades, steps)
    spread = np.sqrt(np.diff(s, prepend=0.0))
    bound = curve(s)
    crossed = 0
    for start in range(0, paths, 1000):
        size = min(1000, paths - start)
        motion = np.cumsum(rng.standard_normal((size, steps)) * spread, axis=1)
        crossed += int((motion > bound).any(axis=1).sum())
    return crossed


def assert_crossed_rarely(curve, delta, *, rho, paths=4000, seed=31):
    """Crossing chance at most delta; a right curve fails with chance below 1e-6."""
    crossed = crossing_count(curve, rho=rho, paths=paths, rng=np.random.default_rng(seed))
    assert stats.binomtest(crossed, paths, delta, alternative="greater").pvalue > 1e-6
    return crossed / paths


@pytest.mark.parametrize("delta", [0.05, 0.1, 0.4])
def test_motion_stays_below_the_envelope_at_all_precisions_at_once(delta):
    """AF-24: Ville's bound is kept, and nearly attained (at least 0.6 delta on the grid): 4000 paths."""
    boundary = BrownianBoundary(1.0, delta, 0.5)
    rate = assert_crossed_rarely(boundary.envelope, delta, rho=boundary.rho)
    assert rate > 0.6 * delta


def test_crossing_check_finds_planted_curves():
    """A quantile of each fixed s, a lost factor 2 in the martingale, and 80% of the envelope are refused."""
    boundary = BrownianBoundary(1.0, 0.1, 0.5)
    for curve in (
        lambda s: np.sqrt(s) * stats.norm.isf(0.1),
        lambda s: BrownianBoundary(1.0, 0.2, 0.5).envelope(s),
        lambda s: 0.8 * boundary.envelope(s),
    ):
        with pytest.raises(AssertionError):
            assert_crossed_rarely(curve, 0.1, rho=boundary.rho)


def mixture(w, s, rho):
    """The mixture martingale by quadrature: half-normal t of variance 1/rho over exp(t w - t^2 s/2)."""
    centre, width = max(w / (s + rho), 0.0), 1 / math.sqrt(s + rho)

    def integrand(t):
        return 2 * math.sqrt(rho / (2 * math.pi)) * math.exp(t * w - t * t * (s + rho) / 2)

    ends = [max(centre - 12 * width, 0.0), centre, centre + 12 * width]
    return sum(
        integrate.quad(integrand, *piece)[0] for piece in itertools.pairwise(ends) if piece[1] > piece[0]
    )


@pytest.mark.parametrize("delta", DELTAS)
def test_envelope_is_the_level_set_of_the_mixture_martingale(delta):
    """On the envelope the martingale, integrated numerically, is 1/delta: from s = 0 over six decades."""
    boundary = BrownianBoundary(1.0, delta, 0.3)
    for ratio in (0.0, 1e-3, 1.0, 30.0, 1e3):
        s = ratio * boundary.rho
        value = mixture(float(boundary.envelope(s)), s, boundary.rho)
        assert value == pytest.approx(1 / delta, rel=1e-6)


def test_mixture_is_a_martingale_that_starts_at_one():
    """E M(s) = 1 over W(s) ~ N(0, s), the condition of Ville's inequality; the closed form is the mixture."""
    rho = 0.4

    def log_mixture(w, s):
        x = w / math.sqrt(s + rho)
        return math.log(2) + math.log(rho / (s + rho)) / 2 + x * x / 2 + stats.norm.logcdf(x)

    assert mixture(0.0, 0.0, rho) == pytest.approx(1.0)
    for s in (0.01, 0.4, 5.0):
        for w in (-2.0, 0.0, 0.3, 4.0):
            assert mixture(w, s, rho) == pytest.approx(math.exp(log_mixture(w, s)), rel=1e-6)
        spread = math.sqrt(s * (s + rho) / rho)
        w, weight = np.polynomial.legendre.leggauss(400)
        values = [math.exp(log_mixture(12 * spread * x, s) - (12 * spread * x) ** 2 / (2 * s)) for x in w]
        mean = 12 * spread * float(weight @ values) / math.sqrt(2 * math.pi * s)
        assert mean == pytest.approx(1.0, rel=1e-9)


# ---------------------------------------------------------------- the loss


def reveal(value, variances, rng):
    return np.array(list(brownian_walk(value, variances, rng)))


def test_loss_of_the_whole_path_is_that_of_its_last_value():
    """Exact densities: all values seen, covariance min(u, v), have the density ratio of the last one alone."""
    rng = np.random.default_rng(32)
    variances = np.array([9.0, 4.0, 1.5, 0.2])
    covariance = np.minimum.outer(variances, variances)
    shift = 0.8
    for _ in range(20):
        seen = reveal([0.0], variances, rng)[:, 0]
        for last in range(1, 5):
            law = stats.multivariate_normal(cov=covariance[:last, :last])
            ratio = law.logpdf(seen[:last]) - law.logpdf(seen[:last] - shift)
            y, v = seen[last - 1], variances[last - 1]
            assert ratio == pytest.approx((shift**2 - 2 * shift * y) / (2 * v), abs=1e-9)
            assert ratio == pytest.approx(
                stats.norm.logpdf(y, 0, math.sqrt(v)) - stats.norm.logpdf(y, shift, math.sqrt(v)), abs=1e-9
            )


def test_loss_formula_is_the_gaussian_ratio_at_the_envelope():
    """loss(v) is log N(f, v)/N(f', v) at the outcome where -B(v)/v equals the envelope, for |f - f'| = Delta."""
    for variance in (0.05, 1.0, 40.0):
        precision = 1 / variance
        outcome = -variance * float(BOUNDARY.envelope(precision))
        scale = math.sqrt(variance)
        ratio = stats.norm.logpdf(outcome, 0, scale) - stats.norm.logpdf(outcome, BOUNDARY.sensitivity, scale)
        assert float(BOUNDARY.loss(variance)) == pytest.approx(ratio, rel=1e-12)


def assert_path_loss_exceeds_the_bound_rarely(bound, delta, *, directions=1, paths=4000):
    """Someone who watches the path and stops when the loss is worst: beyond the bound with chance <= delta.

    The walk of the library, 300 variances over six decades; a right bound fails with chance below 1e-6.
    """
    rng = np.random.default_rng(33)
    variances = np.geomspace(1e3, 1e-3, 300)
    shift = np.full(directions, BOUNDARY.sensitivity / math.sqrt(directions))
    beyond = np.zeros(paths, dtype=bool)
    for variance, seen in zip(
        variances, brownian_walk(np.zeros((paths, directions)), variances, rng), strict=True
    ):
        loss = (np.square(seen - shift).sum(axis=1) - np.square(seen).sum(axis=1)) / (2 * variance)
        beyond |= loss > bound(variance)
    assert stats.binomtest(int(beyond.sum()), paths, delta, alternative="greater").pvalue > 1e-6
    return beyond.mean()


@pytest.mark.parametrize("directions", [1, 5])
def test_loss_of_the_walk_stays_below_the_bound_wherever_it_stops(directions):
    """AF-24: the exact loss exceeds `loss` anywhere along the path with chance at most delta; l2 in 5 dimensions."""
    rate = assert_path_loss_exceeds_the_bound_rarely(BOUNDARY.loss, BOUNDARY.delta, directions=directions)
    assert rate > BOUNDARY.delta / 2


def test_path_check_finds_planted_bounds():
    """The bound of one fixed variance, half the sensitivity, and a forgotten drift term are refused."""
    delta, sensitivity = BOUNDARY.delta, BOUNDARY.sensitivity

    def one_variance(variance):
        s = 1 / variance
        return sensitivity**2 * s / 2 + sensitivity * math.sqrt(s) * stats.norm.isf(delta)

    for bound in (
        one_variance,
        BrownianBoundary(sensitivity / 2, delta, 0.7).loss,
        lambda v: sensitivity * BOUNDARY.envelope(1 / v),
    ):
        with pytest.raises(AssertionError):
            assert_path_loss_exceeds_the_bound_rarely(bound, delta)


def test_loss_grows_as_variance_falls_from_the_floor():
    """Monotone over 24 decades, floor in the limit of infinite noise, Gaussian growth for small variances."""
    for delta in DELTAS:
        boundary = BrownianBoundary(2.0, delta, 1.0)
        variances = np.geomspace(1e12, 1e-12, 400) / boundary.rho
        loss = boundary.loss(variances)
        assert (np.diff(loss) > 0).all()
        assert loss[0] >= boundary.floor > 0
        assert loss[0] == pytest.approx(boundary.floor, rel=1e-5)
        assert loss[-1] == pytest.approx(boundary.sensitivity**2 / variances[-1] / 2, rel=0.05)


def test_loss_depends_on_variance_over_squared_sensitivity():
    """Units: scaling the statistic scales the noise."""
    one, thousand = BrownianBoundary(1.0, 1e-6, 0.5), BrownianBoundary(1000.0, 1e-6, 0.5)
    for variance in (0.01, 1.0, 300.0):
        assert float(thousand.loss(1e6 * variance)) == pytest.approx(float(one.loss(variance)), rel=1e-12)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sensitivity", [1e-6, 3.0])
@pytest.mark.parametrize("tuned", [0.05, 10.0])
def test_variance_inverts_the_loss_on_the_safe_side(delta, sensitivity, tuned):
    """From just above the floor to epsilon 50: loss(variance(epsilon)) <= epsilon, and equal to 1e-9."""
    boundary = BrownianBoundary(sensitivity, delta, tuned)
    above = boundary.floor * (1 + np.array([1e-12, 1e-6, 1e-3]))
    for epsilon in [*above, *np.geomspace(boundary.floor * 1.1, max(50.0, 2 * boundary.floor), 5)]:
        variance = boundary.variance(epsilon)
        assert 0 < variance < math.inf
        # one unit in the last place of epsilon is the accuracy of evaluating the loss itself
        assert float(boundary.loss(variance)) <= epsilon * (1 + 1e-15)
        assert float(boundary.loss(variance)) == pytest.approx(epsilon, rel=1e-9)


def test_epsilons_at_or_below_the_floor_are_refused():
    """No amount of noise gets below the floor of a boundary."""
    for epsilon in (BOUNDARY.floor, BOUNDARY.floor / 2):
        with pytest.raises(ValueError, match=r"epsilon must exceed .*, the boundary's floor"):
            BOUNDARY.variance(epsilon)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0.1), "sensitivity must be positive"),
        ((math.inf, 0.1), "sensitivity must be finite"),
        ((1.0, 0.0), "delta must lie strictly between 0 and 1"),
        ((1.0, 1.0), "delta must lie strictly between 0 and 1"),
        ((1.0, math.nan), "delta must be finite"),
        ((1.0, 0.1, 0.0), "tuned_epsilon must be positive"),
    ],
)
def test_bad_boundaries_are_refused(arguments, message):
    """Errors name the argument."""
    with pytest.raises(ValueError, match=message):
        BrownianBoundary(*arguments)


# ---------------------------------------------------------------- the walk


def assert_brownian(sample, variances):
    """Covariance min(u, v) at all pairs and normal marginals; false-fail rate below 1e-6."""
    size = sample.shape[1]
    for i, u in enumerate(variances):
        assert stats.kstest(sample[i], stats.norm(scale=math.sqrt(u)).cdf).pvalue > 1e-7
        for j, v in enumerate(variances[:i]):
            product = sample[i] * sample[j]
            spread = math.sqrt((u * v + min(u, v) ** 2) / size)
            assert abs(product.mean() - min(u, v)) < 5.6 * spread


def test_walk_has_the_covariance_of_brownian_motion():
    """AF-24: cov(B(u), B(v)) = min(u, v) along falling variances, 40000 independent coordinates."""
    variances = np.array([50.0, 7.0, 6.9, 1.0, 1e-3])
    sample = reveal(np.zeros(40_000), variances, np.random.default_rng(34))
    assert_brownian(sample, variances)


def test_covariance_check_finds_planted_walks():
    """Independent draws, and a bridge without its shrinking factor, are refused."""
    rng = np.random.default_rng(35)
    variances = np.array([4.0, 2.0, 1.0])
    independent = np.sqrt(variances)[:, None] * rng.standard_normal((3, 40_000))
    motion, rows = 2.0 * rng.standard_normal(40_000), []
    for v, u in [(4.0, 4.0), (4.0, 2.0), (2.0, 1.0)]:
        motion = motion + math.sqrt(u * (v - u) / v) * rng.standard_normal(40_000)
        rows.append(motion)
    for sample in (independent, np.array(rows)):
        with pytest.raises(AssertionError):
            assert_brownian(sample, variances)


def test_walk_is_lazy_and_yields_arrays_that_can_be_kept():
    """Nothing is drawn that is not asked for; earlier arrays do not change."""
    rng = np.random.default_rng(36)
    walk = brownian_walk(np.zeros((2, 3)), [4.0, 2.0, 1.0], rng)
    assert rng.random() == np.random.default_rng(36).random()
    first = next(walk)
    kept = first.copy()
    assert first.shape == (2, 3)
    next(walk)
    np.testing.assert_array_equal(first, kept)
    assert len(list(walk)) == 1


@pytest.mark.parametrize(
    ("value", "variances", "error", "message"),
    [
        ([math.nan], [2.0, 1.0], ValueError, "value must be finite"),
        ([0.0], [1.0, 2.0], ValueError, "variances must be positive and strictly falling"),
        ([0.0], [2.0, 2.0], ValueError, "variances must be positive and strictly falling"),
        ([0.0], [1.0, 0.0], ValueError, "variances must be positive and strictly falling"),
        ([0.0], [], ValueError, "variances must be positive and strictly falling"),
        ([0.0], [math.inf, 1.0], ValueError, "variances must be finite"),
        ([0.0], [[2.0, 1.0]], ValueError, "variances must have 1 dimension"),
        (["a"], [2.0, 1.0], TypeError, "value must be numeric"),
    ],
)
def test_bad_walks_are_refused_at_once(value, variances, error, message):
    """Errors name the argument when the walk is made, not when it is first used."""
    with pytest.raises(error, match=message):
        brownian_walk(value, variances, np.random.default_rng(1))
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        brownian_walk([0.0], [2.0, 1.0], 5)


# ---------------------------------------------------------------- levels and search


def test_levels_are_the_losses_of_the_variances_used():
    """What is charged is the bound at the very variance that is drawn; the last one is ``largest``."""
    for delta in DELTAS:
        boundary = BrownianBoundary(0.01, delta, 0.1)
        levels, variances = brownian_levels(boundary, largest=16.0, count=50)
        losses = np.array(list(levels))
        np.testing.assert_array_equal(losses, boundary.loss(variances))
        assert (np.diff(losses) > 0).all()
        assert (np.diff(variances) < 0).all()
        assert losses[-1] == pytest.approx(16.0, rel=1e-8)
        assert losses[0] > boundary.floor


@pytest.mark.parametrize(
    ("mechanism", "labels"), [("covariance", "real"), ("output", "real"), ("output", "sign")]
)
def test_search_charges_test_and_path_and_states_delta(mechanism, labels):
    """(epsilon, delta) ex-post: pure test plus loss of the path at the variance that was reached; delta once."""
    rng = np.random.default_rng(37)
    features = rng.uniform(-1, 1, (4000, 3)) / 3
    target = np.sign(features[:, 0] + 1e-9) if labels == "sign" else np.clip(2 * features[:, 0], -1, 1)
    data = Dataset(features, target, domain=Domain("l1", 1.0, labels, 1.0))
    release = brownian_nr(
        data, mechanism=mechanism, lam=0.1, alpha=0.2, failure=0.1, delta=1e-6, count=100, rng=rng
    )
    guarantee = release.guarantee
    assert not release.refused
    assert (guarantee.kind, guarantee.delta) == ("ex-post", 1e-6)
    assert guarantee.neighbours is Neighbours.REPLACE_ONE
    assert guarantee.epsilon == pytest.approx(guarantee.parts["test"] + guarantee.parts["generate"])
    assert release.value.shape == (3,)
    assert 0 <= release.index < 100


def test_boundary_names_what_it_cannot_use():
    """Zero precision is fine, zero variance and negative precision are not, nor a mixture that underflows."""
    boundary = BrownianBoundary(1.0, 0.1)
    assert boundary.envelope(0.0) > 0
    for call, name in (
        (lambda: boundary.loss(0.0), "variance"),
        (lambda: boundary.envelope(-1.0), "precision"),
    ):
        with pytest.raises(ValueError, match=name):
            call()
    with pytest.raises(ValueError, match="tuned_epsilon"):
        BrownianBoundary(1.0, 0.1, 1e-200)
