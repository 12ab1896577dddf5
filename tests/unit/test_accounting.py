"""The Gaussian profile and its inverses against 60 digits of mpmath and against dp-accounting."""

import math
import pickle

import mpmath
import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from adaptive_dp.accounting import (
    FAR,
    LARGE_MU,
    SMALL_MU,
    GaussianCurve,
    compose_gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    mills_ratio,
)
from adaptive_dp.privacy import Guarantee, Neighbours, PrivacyCurve

reproducible = settings(deadline=None, max_examples=150, derandomize=True)
# Every branch, both sides of each border, and the far ends.
MUS = [
    1e-200,
    1e-12,
    1e-6,
    1e-3,
    0.05,
    0.3,
    SMALL_MU * (1 - 1e-9),
    SMALL_MU,
    0.7,
    1.0,
    2.0,
    5.0,
    30.0,
    1e3,
    1e7,
]
TS = [-30.0, -3.0, -0.6, -0.1, 0.0, 0.2, 1.0, 4.0, FAR * (1 - 1e-9), FAR * (1 + 1e-9), 20.0, 36.0]
PAIRS = [(mu * (t + mu / 2), mu) for mu in MUS for t in TS if t + mu / 2 >= 0]
DELTAS = [1e-100, 1e-20, 1e-15, 1e-10, 1e-5, 1e-3, 0.1, 0.5, 0.9]


def exact_delta(epsilon, mu):
    """The two terms as they stand in the paper, with digits enough for what cancels."""
    with mpmath.workdps(900 if mu < 1e-20 else 120):
        e, m = mpmath.mpf(float(epsilon)), mpmath.mpf(float(mu))
        first = mpmath.erfc((e / m - m / 2) / mpmath.sqrt(2)) / 2
        return first - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / mpmath.sqrt(2)) / 2


def exact_delta_at_scale(epsilon, sigma, sensitivity=1.0):
    """The same with mu = sensitivity / sigma formed in many digits: what the mechanism really does."""
    with mpmath.workdps(120):
        return exact_delta_of_mpf(mpmath.mpf(epsilon), mpmath.mpf(sensitivity) / mpmath.mpf(sigma))


def exact_delta_of_mpf(e, m):
    first = mpmath.erfc((e / m - m / 2) / mpmath.sqrt(2)) / 2
    return first - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / mpmath.sqrt(2)) / 2


def condition(epsilon, mu):
    """By how much an error of one unit in the last place of the arguments moves log delta, in such units."""
    t, s = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return 10 + max(t, 0.0) ** 2 + (1 + max(t, 0.0)) * s


# --- the profile --------------------------------------------------------------------------------------


def test_values_that_went_wrong_elsewhere():
    """Field reports 8 and 19: a sign slip, and too little noise at a tiny delta."""
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.126936737507, abs=1e-12)
    assert gaussian_sigma(1.0, 1e-15, 1.0) == pytest.approx(7.4870094680, abs=1e-10)
    assert float(exact_delta(1.0, 1.0)) == pytest.approx(0.126936737507, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "mu"), PAIRS)
def test_delta_to_all_the_digits_that_the_arguments_determine(epsilon, mu):
    exact = exact_delta(epsilon, mu)
    if exact > 1e-300:
        error = abs(mpmath.mpf(gaussian_delta(epsilon, mu)) / exact - 1)
        units = condition(epsilon, mu) + abs(float(mpmath.log(exact)))  # the exponential of log delta
        assert error <= 2 * np.finfo(float).eps * units
        if mu <= 5:
            assert error < 1e-12
    else:
        assert 0 <= gaussian_delta(epsilon, mu) < 1e-299


@reproducible
@given(st.floats(-30, 30), st.floats(1e-6, 20))
def test_delta_for_any_sign_of_epsilon(epsilon, mu):
    delta, exact = gaussian_delta(epsilon, mu), exact_delta(epsilon, mu)
    assert 0 <= delta <= 1
    assert abs(mpmath.mpf(delta) - exact) <= 1e-12 * exact + mpmath.mpf(1e-300)
    assert delta >= max(0.0, -math.expm1(epsilon)) * (1 - 1e-15)


def test_plain_subtraction_is_what_it_improves_on():
    """A person with mu = 1e-7: the textbook formula has no right digit, and at times is negative."""
    mu = 1e-7
    for t in (1.0, 3.0, 6.0):
        epsilon = mu * (t + mu / 2)
        textbook = special.ndtr(-t) - math.exp(epsilon) * special.ndtr(-t - mu)
        exact = float(exact_delta(epsilon, mu))
        assert abs(textbook / exact - 1) > 1e-10
        assert gaussian_delta(epsilon, mu) == pytest.approx(exact, rel=1e-13)


def test_delta_falls_in_epsilon_and_grows_in_mu():
    epsilons, mus = np.linspace(-5, 40, 2_001), np.geomspace(1e-4, 50, 301)
    table = gaussian_delta(epsilons[:, np.newaxis], mus)
    assert table.shape == (2_001, 301)
    slack = 1e-12 * table
    assert (np.diff(table, axis=0) <= slack[:-1]).all()
    assert (np.diff(table, axis=1) >= -slack[:, 1:]).all()
    # Total variation, at epsilon = 0.
    np.testing.assert_allclose(gaussian_delta(0, mus), special.erf(mus / math.sqrt(8)), rtol=1e-14)


def test_delta_at_the_ends():
    np.testing.assert_allclose(gaussian_delta([1, 0, -1, -800], 0), [0, 0, 1 - math.exp(-1), 1])
    assert gaussian_delta(1e308, 1e-300) == 0.0
    assert gaussian_delta(-1e308, 1e-300) == 1.0
    assert gaussian_delta(1e308, 5e-324) == 0.0
    assert gaussian_delta(0.0, 1e300) == 1.0
    assert gaussian_delta(0, 5e-324) == 0.0  # 0.4 of the smallest float
    assert gaussian_delta(1e5, 1e5) == 1.0
    assert gaussian_delta(50.0, 0.1) == 0.0  # exp(-125000)


def test_delta_against_dp_accounting():
    for mu in (0.05, 0.3, 1.0, 4.0):
        library = GaussianPrivacyLoss(1 / mu)
        for epsilon in (-1.0, 0.0, 0.1, 1.0, 3.0):
            # The library subtracts: good to rounding of 1, no further.
            expected = library.get_delta_for_epsilon(epsilon)
            assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_mills_ratio():
    x = np.array([-10.0, -1.0, 0.0, 0.5, 3.0, 30.0, 1e10])
    exact = [mpmath.ncdf(-mpmath.mpf(v)) / mpmath.npdf(mpmath.mpf(v)) for v in x[:-1]]
    np.testing.assert_allclose(mills_ratio(x), [*map(float, exact), 1e-10], rtol=1e-13)


# --- epsilon ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [mu for mu in MUS if mu > 1e-100])
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_is_safe_and_tight(mu, delta):
    epsilon = gaussian_epsilon(delta, mu)
    assert exact_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu) <= delta
    if epsilon == 0:
        assert exact_delta(0.0, mu) <= delta
        return
    # A little to the left, by what rounding of the arguments and of log delta may cost, the bound fails.
    slope = (
        float(mpmath.log(exact_delta(epsilon, mu))) - float(mpmath.log(exact_delta(0.999 * epsilon, mu)))
    ) / (0.001 * epsilon)
    noise = 40 * np.finfo(float).eps * (condition(epsilon, mu) + abs(math.log(delta)))
    less = epsilon * (1 - 1e-14) + noise / slope
    assert less < 0 or exact_delta(less, mu) > delta


@reproducible
@given(st.floats(-20, 6), st.floats(-60, -0.01))
def test_epsilon_is_safe_everywhere(log_mu, log_delta):
    mu, delta = math.exp(log_mu), math.exp(log_delta)
    epsilon = gaussian_epsilon(delta, mu)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 0:
        assert exact_delta(epsilon * (1 - 1e-6), mu) > delta * (1 - 1e-6)
        assert exact_delta(epsilon * (1 - 1e-5) - 1e-9 * mu, mu) > delta


def test_epsilon_against_dp_accounting():
    for sigma in (0.05, 0.3, 1.0, 5.0, 100.0):
        for delta in (1e-15, 1e-8, 1e-5, 0.01, 0.3):
            expected = get_epsilon_gaussian(sigma, delta)
            assert gaussian_epsilon(delta, 1 / sigma) == pytest.approx(expected, rel=1e-9, abs=2e-12)


def test_epsilon_is_never_negative_and_0_where_the_total_variation_is_small():
    """Field report 14: a very large sigma and a large delta."""
    assert gaussian_epsilon(0.5, 1e-6) == 0.0
    assert gaussian_epsilon(0.1, 0.25) == 0.0  # erf(0.25 / sqrt(8)) = 0.0995
    assert gaussian_epsilon(0.0994, 0.25) > 0
    mus = np.geomspace(1e-300, 1e3, 200)
    for delta in (1e-12, 0.3, 0.999999):
        epsilon = gaussian_epsilon(delta, mus)
        assert (epsilon >= 0).all()
        assert (np.diff(epsilon) >= 0).all()
        assert epsilon[0] == 0


def test_epsilon_is_monotone_and_safe_for_very_small_delta():
    """Field report 16: no jumps between 1e-20 and 1e-10."""
    deltas = np.geomspace(1e-20, 1e-10, 1_001)
    for mu in (1e-6, 0.01, 0.133, 1.0, 10.0):
        epsilon = gaussian_epsilon(deltas, mu)
        steps = np.diff(epsilon)
        assert (steps < 0).all()
        assert (np.abs(steps / steps.mean() - 1) < 0.6).all()
    sigmas = np.array([gaussian_sigma(1.0, delta, 1.0) for delta in deltas])
    assert (np.diff(sigmas) < 0).all()
    assert (np.abs(np.diff(sigmas) / np.diff(sigmas).mean() - 1) < 0.6).all()


def test_epsilon_at_the_ends():
    inf = math.inf
    np.testing.assert_array_equal(
        gaussian_epsilon([0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, 0.0]), [0, inf, 0, 0]
    )
    np.testing.assert_array_equal(gaussian_epsilon([1.0, 0.0, 0.5], [1e200, 1e200, 1e200]), [0, inf, inf])
    assert gaussian_epsilon(5e-324, 1.0) == pytest.approx(0.5 + 38.5, abs=0.5)
    assert gaussian_epsilon(1e-6, 5e-324) == 0.0


@pytest.mark.parametrize("mu", [LARGE_MU * (1 - 1e-9), LARGE_MU, 1e10, 1e20, 1e100, 1e153])
def test_epsilon_of_huge_mu(mu):
    """Field report 15: without noise to speak of, epsilon is mu^2 / 2 and the next term, and not an overflow."""
    for delta in (1e-10, 0.5, 0.99):
        epsilon = gaussian_epsilon(delta, mu)
        tail = -float(special.ndtri(delta))
        assert epsilon == pytest.approx(mu * mu / 2 + tail * mu, rel=1e-14)
        with mpmath.workdps(400):  # delta is a difference of a number near it and of something below 1 / mu
            t = mpmath.mpf(epsilon) / mpmath.mpf(mu) - mpmath.mpf(mu) / 2
            assert mpmath.ncdf(-t) <= delta


def test_many_people_at_once_are_the_people_one_by_one():
    rng = np.random.default_rng(20261)
    mus = np.concatenate([rng.lognormal(-4, 2, 29_000), np.zeros(500), rng.uniform(1, 1e4, 500)])
    epsilon = gaussian_epsilon(1e-6, mus)
    assert (gaussian_delta(epsilon, mus) <= 1e-6).all()
    for i in (0, 17, 29_999):
        assert epsilon[i] == gaussian_epsilon(1e-6, mus[i])


# --- sigma --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 8.0, 50.0])
@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("sensitivity", [1.0, 0.003, 70])
def test_there_and_back_and_always_on_the_safe_side(epsilon, delta, sensitivity):
    """Field reports 9 and 18."""
    sigma = gaussian_sigma(epsilon, delta, sensitivity)
    assert exact_delta_at_scale(epsilon, sigma, sensitivity) <= delta
    assert exact_delta_at_scale(epsilon, sigma * (1 - 1e-11), sensitivity) > delta
    mu = sensitivity / sigma
    back = gaussian_epsilon(delta, mu)
    assert back == pytest.approx(epsilon, rel=1e-9, abs=1e-15)
    # Neither is below what the other needs.
    assert exact_delta(back, mu) <= delta
    assert exact_delta_at_scale(back, sigma, sensitivity) <= delta
    again = gaussian_sigma(back, delta, sensitivity)
    assert again == pytest.approx(sigma, rel=1e-9)


def test_sigma_against_dp_accounting_and_by_brute_force():
    for epsilon in (1e-3, 0.1, 0.5, 1.0, 2.0, 8.0, 30.0):
        for delta in (1e-15, 1e-10, 1e-5, 0.01, 0.3):
            expected = get_sigma_gaussian(epsilon, delta)
            assert gaussian_sigma(epsilon, delta, 1) == pytest.approx(expected, rel=1e-9)
    root = optimize.brentq(lambda s: float(exact_delta(0.7, 1 / s)) - 1e-4, 1.0, 10.0, xtol=1e-13)
    assert gaussian_sigma(0.7, 1e-4, 3.0) == pytest.approx(3 * root, rel=1e-10)


def test_the_classical_formula_is_not_used():
    """sqrt(2 log(1.25 / delta)) / epsilon is too much noise at 0.5 and too little at 8."""
    delta = 1e-5
    classical = math.sqrt(2 * math.log(1.25 / delta))
    assert gaussian_sigma(0.5, delta, 1) < 0.9 * classical / 0.5
    assert gaussian_sigma(30.0, delta, 1) > classical / 30.0
    assert gaussian_delta(30.0, 30.0 / classical) > delta


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-12, 1e6, 1e16, 1e100])
@pytest.mark.parametrize("delta", [1e-200, 1e-12, 0.5, 1 - 1e-9, 1 - 2**-53])
def test_sigma_at_the_ends_is_a_positive_number(epsilon, delta):
    """Field report 10: never 0, never infinite, and never for long."""
    for sensitivity in (1e-100, 1.0, 1e100):
        sigma = gaussian_sigma(epsilon, delta, sensitivity)
        assert 0 < sigma < math.inf
        assert gaussian_delta(epsilon, sensitivity / sigma) <= delta
    if epsilon == 0 and delta < 0.9:
        mu = math.sqrt(8) * float(special.erfinv(delta))
        assert gaussian_sigma(epsilon, delta, 1.0) == pytest.approx(1 / mu, rel=1e-10)


# --- curves -------------------------------------------------------------------------------------------


def test_a_curve_is_a_privacy_curve_with_its_own_guarantees():
    curve = GaussianCurve(1)
    assert isinstance(curve, PrivacyCurve)
    assert type(curve.mu) is float
    assert curve.delta(1) == gaussian_delta(1.0, 1.0)
    assert type(curve.delta(np.float64(1))) is type(curve.epsilon(1e-5)) is float
    epsilon = curve.epsilon(1e-5)
    guarantee = Guarantee("ex-ante", epsilon, Neighbours.ADD_REMOVE, 1e-5, curve=curve)
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    assert pickle.loads(pickle.dumps(curve)) == curve
    with pytest.raises(ValueError, match="curve needs delta"):
        Guarantee("ex-ante", epsilon * (1 - 1e-6), Neighbours.ADD_REMOVE, 1e-5, curve=curve)
    assert Guarantee("ex-ante", 0.0, Neighbours.ADD_REMOVE, curve=GaussianCurve(0)).curve == GaussianCurve(0)
    with pytest.raises(AttributeError):
        curve.mu = 2.0


@pytest.mark.parametrize("mu", [1e-3, 0.5, 2.0])
def test_every_guarantee_that_is_read_off_a_curve_is_accepted(mu):
    curve = GaussianCurve(mu)
    for delta in np.geomspace(1e-30, 0.5, 60):
        Guarantee("ex-ante", curve.epsilon(float(delta)), Neighbours.ADD_REMOVE, float(delta), curve=curve)


@pytest.mark.parametrize("order", [1 + 1e-8, 1.0, 1.5, 2.0, 64, 1e6])
def test_renyi_divergence_by_integration(order):
    """Field report 11: nothing special happens near order 1."""
    mu = 0.7
    assert GaussianCurve(mu).renyi(order) == pytest.approx(order * mu**2 / 2, rel=1e-15)
    if order <= 2:
        with mpmath.workdps(40):
            a, m = mpmath.mpf(order), mpmath.mpf(mu)
            if order == 1:
                integrand = lambda x: mpmath.npdf(x, m) * (m * x - m * m / 2)  # noqa: E731
                expected = mpmath.quad(integrand, [-15, 0, 15])
            else:
                integrand = lambda x: mpmath.npdf(x, m) ** a * mpmath.npdf(x) ** (1 - a)  # noqa: E731
                expected = mpmath.log(mpmath.quad(integrand, [-15, 0, 15])) / (a - 1)
        assert GaussianCurve(mu).renyi(order) == pytest.approx(float(expected), rel=1e-12)


def test_renyi_is_monotone_and_refuses():
    values = [GaussianCurve(3).renyi(order) for order in (0.5, 1, 1 + 1e-8, 2, 1e6)]
    assert values == sorted(set(values))
    assert GaussianCurve(0).renyi(1e6) == 0.0
    assert GaussianCurve(1e200).renyi(2) == math.inf
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="order"):
            GaussianCurve(1.0).renyi(bad)
    with pytest.raises(TypeError, match="order"):
        GaussianCurve(1.0).renyi(True)


def test_composition():
    assert compose_gaussian(GaussianCurve(3), GaussianCurve(4)) == GaussianCurve(5)
    assert compose_gaussian() == GaussianCurve(0)
    assert compose_gaussian(GaussianCurve(0.3)) == GaussianCurve(0.3)
    many = compose_gaussian(*[GaussianCurve(0.01)] * 10_000)
    assert many.mu == pytest.approx(1.0, rel=1e-14)
    assert compose_gaussian(GaussianCurve(1e-200), GaussianCurve(1e-200)).mu > 0  # the squares underflow
    assert compose_gaussian(GaussianCurve(1e200), GaussianCurve(1e200)).mu < math.inf
    with pytest.raises(ValueError, match="mu must be finite"):
        compose_gaussian(GaussianCurve(1.7e308), GaussianCurve(1.7e308))
    for bad in (1.0, None, [GaussianCurve(1)]):
        with pytest.raises(TypeError, match="curves must be GaussianCurve"):
            compose_gaussian(GaussianCurve(1), bad)


def test_composition_is_the_law_of_the_summed_losses():
    """The losses N(m^2 / 2, m^2) add up: the profile of the sum by integration over the first of two losses."""
    first, second, epsilon = 0.6, 1.1, 0.9
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    loss = first**2 / 2 + first * nodes
    inner = gaussian_delta(epsilon - loss, second)  # E[(1 - e^(epsilon - L1 - L2))_+ | L1]
    expected = weights @ inner / math.sqrt(2 * math.pi)
    composed = compose_gaussian(GaussianCurve(first), GaussianCurve(second))
    assert composed.delta(epsilon) == pytest.approx(float(expected), rel=1e-10)


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [gaussian_delta, gaussian_epsilon])
def test_arrays_broadcast_and_numbers_stay_numbers(function):
    assert type(function(0.5, 1.0)) is type(function(np.float32(0.5), np.int8(1))) is float
    assert function(np.full((3, 1), 0.5), np.ones(4)).shape == (3, 4)
    assert function([], 1.0).shape == (0,)
    assert function(0.5, np.empty((0, 2))).shape == (0, 2)
    assert function([1, 0], np.array([2, 3], dtype=np.int8)).shape == (2,)
    np.testing.assert_array_equal(function([[0.5]], [[1, 2]]), [[function(0.5, 1), function(0.5, 2)]])
    # What is handed in stays as it is.
    mus = np.array([0.0, 1.0, 2.0])
    mus.setflags(write=False)
    function(0.5, mus)


@pytest.mark.parametrize("function", [gaussian_delta, gaussian_epsilon])
@pytest.mark.parametrize(
    ("value", "mu", "error", "message"),
    [
        (0.5, -1e-300, ValueError, "mu must be nonnegative"),
        (0.5, [1.0, -1.0], ValueError, "mu must be nonnegative, got -1.0"),
        (0.5, math.nan, ValueError, "mu must be finite"),
        (0.5, math.inf, ValueError, "mu must be finite"),
        (math.nan, 1.0, ValueError, "must be finite"),
        ([0.5, math.inf], 1.0, ValueError, "must be finite, got .* at index"),
        ("0.5", 1.0, TypeError, "must be numeric"),
        (0.5, None, TypeError, "mu must be numeric"),
        (0.5, 1j, TypeError, "mu must be numeric"),
        ([0.5, 0.5], [1.0, 1.0, 1.0], ValueError, r"must broadcast, got shapes \(2,\), \(3,\)"),
        (np.ma.masked_array([0.5], [1]), 1.0, TypeError, "masked"),
    ],
)
def test_arrays_that_are_refused(function, value, mu, error, message):
    with pytest.raises(error, match=message):
        function(value, mu)


def test_levels_that_are_refused():
    for bad in (-1e-300, 1.0000001, [0.5, 2.0], [0.5, -1.0]):
        with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\]"):
            gaussian_epsilon(bad, 1.0)


@pytest.mark.parametrize("name", ["epsilon", "delta", "sensitivity"])
def test_calibration_refuses(name):
    good = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1.0}
    for bad in (math.nan, math.inf, -math.inf, -1.0):
        with pytest.raises(ValueError, match=name):
            gaussian_sigma(**(good | {name: bad}))
    for bad in (True, "1", None, [1.0], np.ones(2), 1j):
        with pytest.raises(TypeError, match=f"{name} must be a real number"):
            gaussian_sigma(**(good | {name: bad}))
    out = {"epsilon": [1e101], "delta": [0.0, 1.0, 1e-250], "sensitivity": [0.0, 1e101, 1e-101]}
    for bad in out[name]:
        with pytest.raises(ValueError, match=name):
            gaussian_sigma(**(good | {name: bad}))


def test_curves_refuse():
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="mu"):
            GaussianCurve(bad)
    for bad in (True, "1", [1.0], np.ones(1)):
        with pytest.raises(TypeError, match="mu must be a real number"):
            GaussianCurve(bad)
    curve = GaussianCurve(1.0)
    with pytest.raises(TypeError, match="epsilon must be a real number"):
        curve.delta([1.0])
    with pytest.raises(TypeError, match="delta must be a real number"):
        curve.epsilon(True)
    with pytest.raises(ValueError, match=r"delta must lie in \[0, 1\]"):
        curve.epsilon(1.5)
