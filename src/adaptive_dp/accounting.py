"""Exact accounting of the Gaussian mechanism, and what other mechanisms share: Rényi conversion and safe roots.

Everything about a Gaussian mechanism is in one number, mu = sensitivity / sigma: its privacy loss is N(mu^2 / 2, mu^2),
and its profile is (balle2018, Theorem 8; dong2019, Corollary 2.13)

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu).

``dp-accounting`` has this too, and the tests compare with it wherever both answer. It is not called from here for three
reasons. It takes one mechanism at a time, and per-instance privacy asks for the epsilon of each of 30,000 people. It
subtracts the two terms, which agree in all their digits where mu is small: a person on whom the release hardly
depends. And the roots it returns may lie on either side.

A mechanism that is known by its Rényi divergences gets its profile from :class:`RenyiDerivedCurve`, and
:func:`smallest_feasible` is the search behind calibrations.

Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018; Dong, Roth and Su, "Gaussian
differential privacy", 2019; Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, erfinv, ndtr, ndtri

from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

EPS = float(np.finfo(np.float64).eps)
LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
# Below this mu the two terms of the profile are not subtracted but their difference is integrated. Six nodes are then
# exact to rounding: the error is below 2e-16 mu^13 times a derivative of order 12.
SMALL_MU = 0.5
NODES, NODE_WEIGHTS = 0.5 * (np.polynomial.legendre.leggauss(6) + np.array([[1.0], [0.0]]))  # on [0, 1]
# From here on the asymptotic series of 1 - t M(t) is exact to rounding; before, the subtraction loses two digits.
FAR = 12.0
SERIES_TERMS = 16
# From here on the second term of the profile moves epsilon by less than its last place.
LARGE_MU = 1e8
# Where t is this large delta is far below the floats, and its square is still a float.
LARGEST_T = 1e150
# Logarithms of order - 1 among which the best Rényi order is sought before it is refined; huge where epsilon is tiny.
LOG_ORDERS = np.linspace(math.log(1e-6), math.log(1e12), 42)
# Newton's method on a concave function needs about six steps; the limit only keeps the loop finite.
LARGEST_NUMBER_OF_STEPS = 100


@overload
def gaussian_delta(epsilon: float, mu: float) -> float: ...
@overload
def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray: ...
def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> FloatArray | float:
    """Smallest delta for which a Gaussian mechanism is (epsilon, delta)-private, elementwise.

    The relative error is below 1e-12 for every epsilon >= 0 down to the smallest floats, as far as the digits of the
    arguments determine the answer.

    Parameters
    ----------
    epsilon : array_like
        Any finite real numbers; below 0 the hockey-stick divergence is at least 1 - e^epsilon.
    mu : array_like
        Sensitivity over sigma, nonnegative, broadcast against ``epsilon``. At 0 the answer is max(0, 1 - e^epsilon).

    Returns
    -------
    float or ndarray
        In [0, 1], in the broadcast shape; a float where both arguments are numbers.

    Raises
    ------
    TypeError, ValueError
        Entries that are not finite numbers, a negative mu, shapes that do not broadcast.
    """
    e, m = _pair("epsilon", epsilon, mu)
    size = np.abs(e)
    with np.errstate(over="ignore", divide="ignore"):
        delta = np.exp(_log_profile(size, m))
    # delta(-epsilon) = 1 - e^-epsilon + e^-epsilon delta(epsilon): a sum of positive terms.
    below = -np.expm1(-size) + np.exp(-size) * delta
    return _plain(np.minimum(np.where(e < 0, below, delta), 1.0))


@overload
def gaussian_epsilon(delta: float, mu: float) -> float: ...
@overload
def gaussian_epsilon(delta: ArrayLike, mu: ArrayLike) -> FloatArray: ...
def gaussian_epsilon(delta: ArrayLike, mu: ArrayLike) -> FloatArray | float:
    """Smallest epsilon >= 0 with ``gaussian_delta(epsilon, mu) <= delta``, elementwise, rounded to the safe side.

    Parameters
    ----------
    delta : array_like
        In [0, 1]; at 0 the answer is infinite unless mu is 0.
    mu : array_like
        Sensitivity over sigma, nonnegative, broadcast against ``delta``.

    Returns
    -------
    float or ndarray
        In the broadcast shape; a float where both arguments are numbers. The exact profile at the answer is at most
        ``delta``, roundings included, and the answer exceeds the exact root by a few units in the last place of what
        ``delta`` determines. Infinite where mu^2 / 2 is beyond the floats (mu above about 1e154).

    Raises
    ------
    TypeError, ValueError
        Entries that are not finite numbers, delta outside [0, 1], a negative mu, shapes that do not broadcast.
    """
    level, m = _pair("delta", delta, mu)
    if level.size and not (level.min() >= 0 and level.max() <= 1):
        worst = level.min() if level.min() < 0 else level.max()
        raise ValueError(f"delta must lie in [0, 1], got {float(worst)!r}")
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # The first term of the profile alone is at most delta here: never left of the root.
        start = np.where(m > 0, m * (0.5 * m - ndtri(level)), 0.0)
        log_level = np.log(level)
        epsilon = np.where((m >= LARGE_MU) | (start == np.inf), np.maximum(start * (1 + 8 * EPS), 0.0), 0.0)
        todo = (m < LARGE_MU) & (start < np.inf) & (_log_bound(np.zeros_like(m), m) > log_level)
        epsilon[todo] = _epsilon_from_the_right(np.maximum(start[todo], 0.0), log_level[todo], m[todo])
    return _plain(epsilon)


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    """Smallest scale of Gaussian noise that is (epsilon, delta)-private: the analytic Gaussian mechanism.

    balle2018, Algorithm 1 (there by bisection). The classical sqrt(2 log(1.25 / delta)) / epsilon is neither tight
    nor, for epsilon above 1, proved.

    Parameters
    ----------
    epsilon : float
        Between 0 and 1e100; 0 bounds the total variation by ``delta``.
    delta : float
        In [1e-200, 1).
    sensitivity : float
        l2 sensitivity, between 1e-100 and 1e100.

    Returns
    -------
    float
        Rounded up: the exact profile at ``epsilon`` and mu = sensitivity / sigma is at most ``delta``, and
        ``gaussian_epsilon(delta, sensitivity / sigma)`` gives ``epsilon`` back as far as its digits determine
        ``delta``: to 1e-12 for epsilon above 1e-3 and delta up to 1/2.

    Raises
    ------
    TypeError, ValueError
        An argument is not a number or is outside its range.
    """
    e, level = check_real("epsilon", epsilon), check_probability("delta", delta)
    length = check_ordinary("sensitivity", sensitivity)
    if not 0 <= e <= 1e100:
        raise ValueError(f"epsilon must lie between 0 and 1e100, got {e!r}")
    if level < 1e-200:
        raise ValueError(f"delta must be at least 1e-200 for a calibration, got {level!r}")
    goal = math.log(level)

    def excess(log_mu: float) -> float:
        return _log_bound_at(e, math.exp(log_mu)) - goal

    low = math.log(_feasible_mu(e, level))
    width = 1e-12
    while excess(low) > 0:  # it is feasible up to rounding
        low, width = low - width, 2 * width
    high, width = low, 0.01
    while excess(high) <= 0:
        high, width = high + width, 2 * width
    mu = math.exp(brentq(excess, low, high, xtol=1e-300, rtol=4 * EPS))
    sigma, step = length / mu, 2 * EPS
    while _log_bound_at(e, length / sigma) > goal:
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


@dataclass(frozen=True, slots=True)
class GaussianCurve:
    """The privacy profile of a Gaussian mechanism: an exact :class:`~adaptive_dp.privacy.PrivacyCurve`.

    Parameters
    ----------
    mu : float
        Sensitivity over sigma, nonnegative and finite; 0 for a release that does not depend on the record.
    """

    mu: float

    def __post_init__(self) -> None:
        mu = check_real("mu", self.mu)
        if mu < 0:
            raise ValueError(f"mu must be nonnegative, got {mu!r}")
        object.__setattr__(self, "mu", mu)

    def delta(self, epsilon: float) -> float:
        """Smallest delta that goes with ``epsilon`` (any finite real number); see :func:`gaussian_delta`."""
        return gaussian_delta(check_real("epsilon", epsilon), self.mu)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 that goes with ``delta`` in [0, 1]; see :func:`gaussian_epsilon`."""
        return gaussian_epsilon(check_real("delta", delta), self.mu)

    def renyi(self, order: float) -> float:
        """Rényi divergence of ``order`` > 0 between the two Gaussians: order mu^2 / 2.

        Order 1 is the limit, the Kullback-Leibler divergence; no special case is needed. Infinite where the product
        is beyond the floats. (Mironov, "Rényi differential privacy", CSF 2017, Proposition 7.)
        """
        return 0.5 * check_positive("order", order) * self.mu * self.mu


def compose_gaussian(*curves: GaussianCurve) -> GaussianCurve:
    """Profile of several Gaussian mechanisms run on the same records, each allowed to depend on what came before.

    mu is the root of the sum of the squares (dong2019, Corollary 3.3), exactly and for adaptive choices too, as long
    as each mu is a constant that was fixed before the first run. Nothing composed is perfect privacy, mu = 0.

    Raises
    ------
    TypeError
        An argument is not a ``GaussianCurve``.
    ValueError
        The root is beyond the floats.
    """
    for curve in curves:
        if not isinstance(curve, GaussianCurve):
            raise TypeError(f"curves must be GaussianCurve, got {type(curve).__name__}: {curve!r}")
    return GaussianCurve(math.hypot(*(curve.mu for curve in curves)))


# --- from Rényi divergences to pairs, and roots on the safe side --------------------------------------------


def log_delta_of_orders(orders: ArrayLike, divergences: ArrayLike, epsilon: ArrayLike) -> FloatArray:
    """Return log delta at real ``epsilon`` from each Rényi divergence alone, elementwise; it may be above 0.

    Canonne, Kamath and Steinke 2020, Proposition 12: (a - 1)(renyi - epsilon) - log a + (a - 1) log(1 - 1/a), rounded
    up. Orders a above 1.
    """
    order, loss = np.asarray(orders, dtype=np.float64), np.asarray(divergences, dtype=np.float64)
    rest = order - 1
    level = np.asarray(epsilon, dtype=np.float64)
    value = rest * (loss - level) - np.log1p(rest) - rest * np.log1p(1 / rest)
    return np.asarray(value + 8 * EPS * (rest * (loss + np.abs(level)) + np.log1p(rest) + 1))


def epsilon_of_orders(orders: ArrayLike, divergences: ArrayLike, delta: float) -> FloatArray:
    """Return the epsilon, of either sign, at which :func:`log_delta_of_orders` is log ``delta``, rounded up."""
    order, loss = np.asarray(orders, dtype=np.float64), np.asarray(divergences, dtype=np.float64)
    rest = order - 1
    tail = (np.log1p(rest) - math.log(delta)) / rest
    value = loss - np.log1p(1 / rest) + (-math.log(delta) - np.log1p(rest)) / rest
    return np.asarray(value + 32 * EPS * (loss + tail + 1 / rest))


@dataclass(frozen=True, slots=True)
class RenyiDerivedCurve:
    """The privacy profile that follows from bounds of all Rényi divergences: each pair from the best order.

    Any order gives a valid pair; the best one is found on a grid and refined by Brent's method. With a bound whose
    (order - 1) renyi(order) is convex, as it is for an exact divergence, that is the smallest over all orders between
    1 + 1e-6 and 1e12.

    Parameters
    ----------
    renyi : callable
        ``order -> divergence``, for all orders above 1; infinity is allowed.
    """

    renyi: Callable[[float], float]

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at any real ``epsilon``."""
        e = check_real("epsilon", epsilon)
        least = self._best(lambda order, loss: log_delta_of_orders(order, loss, e))
        return math.exp(min(least, 0.0))

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]; infinite at 0."""
        level = check_real("delta", delta)
        if not 0 <= level <= 1:
            raise ValueError(f"delta must lie in [0, 1], got {level!r}")
        if level == 0:
            return math.inf
        found = max(self._best(lambda order, loss: epsilon_of_orders(order, loss, level)), 0.0)
        return step_until_safe(lambda epsilon: self.delta(epsilon) <= level, found)

    def _best(self, value: Callable[[ArrayLike, ArrayLike], FloatArray]) -> float:
        """Return the smallest value over the orders."""
        orders = 1 + np.exp(LOG_ORDERS)
        losses = np.array([self.renyi(float(order)) for order in orders])
        some = losses < math.inf
        if not some.any():
            return math.inf
        values = np.full(orders.shape, math.inf)
        values[some] = value(orders[some], losses[some])
        place = int(np.argmin(values))
        wall = abs(float(values[place])) + 1e100  # of finite height: Brent's method fits parabolas

        def at(log_rest: float) -> float:
            order = 1 + math.exp(log_rest)
            loss = self.renyi(order)
            return min(float(value(order, loss)), wall) if loss < math.inf else wall

        low, high = LOG_ORDERS[max(place - 1, 0)], LOG_ORDERS[min(place + 1, values.size - 1)]
        refined = minimize_scalar(at, bounds=(low, high), method="bounded", options={"xatol": 1e-8})
        return min(float(values[place]), float(refined.fun))


def step_until_safe(safe: Callable[[float], bool], start: float, *, rtol: float = 4 * EPS) -> float:
    """Raise ``start`` by doubling steps, the first ``rtol`` long, until ``safe`` holds; infinite if it never does."""
    if start == math.inf:
        return start
    value, step = start, rtol * max(abs(start), 1e-12)
    while not safe(value):
        value, step = value + step, 2 * step
        if not value < 1e300:
            return math.inf
    return value


def smallest_feasible(
    excess: Callable[[float], float], low: float, high: float, *, rtol: float = 4 * EPS
) -> float:
    """Smallest x in [low, high] with ``excess(x) <= 0``, on the side where that holds.

    Parameters
    ----------
    excess : callable
        Falls (or stays) as x grows; typically log delta(x) less the logarithm of what is allowed. May be infinite.
    low, high : float
        Positive; ``excess(high) <= 0``. If ``excess(low) <= 0`` the answer is ``low``.
    rtol : float
        Relative precision, above the root: larger where each evaluation is dear.

    Raises
    ------
    ValueError
        ``excess(high) > 0``.
    """
    at_low = excess(low)
    if at_low <= 0:
        return low
    at_high = excess(high)
    if not at_high <= 0:
        raise ValueError(f"high must be feasible, got {high!r} with an excess of {at_high!r}")
    ends = math.log(low), math.log(high)
    if not ends[0] < ends[1]:
        return high

    def bounded(log_x: float) -> float:
        # The ends are known, and their logarithms may round to the other side of the root. Clipped, as the search
        # interpolates.
        if log_x <= ends[0]:
            return min(at_low, 1e3)
        return max(min(at_high, -1e-300) if log_x >= ends[1] else min(excess(math.exp(log_x)), 1e3), -1e3)

    root = math.exp(brentq(bounded, *ends, xtol=max(rtol, 1e-14), rtol=4 * EPS))
    return min(step_until_safe(lambda x: excess(x) <= 0, root, rtol=rtol), high)


# --- the profile, without cancellation ----------------------------------------------------------------
#
# With t = epsilon / mu - mu / 2, s = t + mu, the standard normal density phi and Mills' ratio
# M(x) = (1 - Phi(x)) / phi(x), the factor e^epsilon phi(s) is phi(t), so that
#
#     delta = phi(t) (M(t) - M(s)) = phi(t) int_t^s (1 - x M(x)) dx,      d delta / d epsilon = -phi(t) M(s).
#
# Nothing in it overflows for large epsilon, phi(t) carries the tiny deltas, and the integrand is positive.


def _log_profile(epsilon: FloatArray, mu: FloatArray) -> FloatArray:
    """Return log delta for epsilon >= 0 and mu >= 0 of one shape; -inf where mu = 0."""
    result = np.full(mu.shape, -np.inf)
    some = mu > 0
    m, ratio = mu[some], epsilon[some] / mu[some]
    result[some] = _log_profile_at(np.minimum(ratio - 0.5 * m, LARGEST_T), ratio + 0.5 * m, m)
    return result


def _log_profile_at(t: FloatArray, s: FloatArray, mu: FloatArray) -> FloatArray:
    """Return log delta in the variables above, mu > 0; one-dimensional arrays. -inf beyond the floats is allowed."""
    result = np.empty(t.shape)
    near = (t < 0) & (mu >= SMALL_MU)
    a = t[near]
    result[near] = np.log(ndtr(-a) - _density(a) * mills_ratio(s[near]))
    a = t[~near]
    difference = _mills_difference(a, s[~near], mu[~near])
    result[~near] = -0.5 * a * a - LOG_ROOT_TWO_PI + np.log(difference)
    return result


def _mills_difference(t: FloatArray, s: FloatArray, mu: FloatArray) -> FloatArray:
    """Return M(t) - M(s) > 0 with s = t + mu; t above -SMALL_MU."""
    result = np.empty(t.shape)
    small = mu < SMALL_MU
    width = mu[small]
    points = t[small] + np.multiply.outer(NODES, width)
    result[small] = width * (NODE_WEIGHTS @ _mills_slope(points.ravel()).reshape(points.shape))
    # Far out, where delta is below the floats anyway, rounding may leave less than nothing.
    result[~small] = np.maximum(mills_ratio(t[~small]) - mills_ratio(s[~small]), 0.0)
    return result


def _mills_slope(x: FloatArray) -> FloatArray:
    """Return -M'(x) = 1 - x M(x) > 0, which falls like 1 / x^2; one-dimensional, x not far below 0."""
    result = 1.0 - x * mills_ratio(x)
    far = x > FAR
    if far.any():
        square = np.square(1.0 / x[far])
        series = np.ones_like(square)
        for k in range(SERIES_TERMS, 0, -1):  # 1 - 3 / x^2 (1 - 5 / x^2 (1 - ...
            series = 1.0 - (2 * k + 1) * square * series
        result[far] = square * series
    return result


def mills_ratio(x: ArrayLike) -> FloatArray:
    """Mills' ratio (1 - Phi(x)) / phi(x) of the standard normal law, elementwise; 1 / x in the right tail."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(np.asarray(x, dtype=np.float64) / math.sqrt(2.0)))


def _density(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * x * x - LOG_ROOT_TWO_PI))


# --- roots on the safe side ---------------------------------------------------------------------------


def _log_bound(epsilon: FloatArray, mu: FloatArray) -> FloatArray:
    """Return an upper bound of log delta that holds for the exact profile, roundings included; mu >= 0.

    t = epsilon / mu - mu / 2 is right to two roundings of its terms (and one more for a mu that is itself a rounded
    quotient); the rest loses at most the square of t, by which the integrand is small, and the last place of log delta.
    """
    result = np.full(mu.shape, -np.inf)
    some = mu > 0
    m, ratio = mu[some], epsilon[some] / mu[some]
    s = ratio + 0.5 * m
    t = np.minimum(ratio - 0.5 * m - 3 * EPS * s, LARGEST_T)
    profile = _log_profile_at(t, s, m)
    slack = np.square(2.0 + np.maximum(t, 0.0)) + np.minimum(np.abs(profile), 1e3)
    result[some] = profile + 4 * EPS * slack
    return result


def _log_bound_at(epsilon: float, mu: float) -> float:
    with np.errstate(over="ignore", divide="ignore"):
        return float(_log_bound(np.array([epsilon]), np.array([mu]))[0])


def _epsilon_from_the_right(start: FloatArray, log_level: FloatArray, mu: FloatArray) -> FloatArray:
    """Root in epsilon of the bound on log delta, from a ``start`` at or above it; one-dimensional arrays, mu > 0.

    log delta is concave in epsilon (delta is the tail integral of the log-concave e^epsilon Phi(-s)) and falls, so that
    Newton's method stays on the right of the root and comes down to it.
    """
    epsilon = start.copy()
    active = np.arange(epsilon.size)
    for _ in range(LARGEST_NUMBER_OF_STEPS):
        if not active.size:
            break
        e, m = epsilon[active], mu[active]
        bound = _log_bound(e, m)
        new = np.maximum(e + (bound - log_level[active]) / _steepness(e, m, bound), 0.0)
        epsilon[active] = np.minimum(new, e)
        # The error after a step is about the square of the step.
        active = active[new < e * (1 - 1e-9)]
    return _step_up(epsilon, log_level, mu)


def _step_up(epsilon: FloatArray, log_level: FloatArray, mu: FloatArray) -> FloatArray:
    """Raise what the last rounding left below the root, by as little as it takes."""
    bad = np.flatnonzero(_log_bound(epsilon, mu) > log_level)
    step = 2 * EPS
    while bad.size:
        e, m = epsilon[bad], mu[bad]
        bound = _log_bound(e, m)
        # One unit of the last place of epsilon, or of log delta, whichever is more; then twice that, and so on.
        epsilon[bad] = e + step * np.maximum(e, np.maximum(1.0, np.abs(bound)) / _steepness(e, m, bound))
        bad = bad[_log_bound(epsilon[bad], mu[bad]) > log_level[bad]]
        step *= 2
    return epsilon


def _steepness(epsilon: FloatArray, mu: FloatArray, log_delta: FloatArray) -> FloatArray:
    """Return -d log delta / d epsilon = phi(t) M(s) / delta, positive."""
    ratio = epsilon / mu
    t = ratio - 0.5 * mu
    log_slope = -0.5 * t * t - LOG_ROOT_TWO_PI + np.log(mills_ratio(ratio + 0.5 * mu))
    return np.asarray(np.exp(log_slope - log_delta))


def _feasible_mu(epsilon: float, delta: float) -> float:
    """Return a mu > 0 at which the profile is at most ``delta``: the better of two bounds of it."""
    # delta(epsilon) <= Phi(-t), and <= delta(0) = erf(mu / sqrt(8)).
    tail = -float(ndtri(delta))
    root = math.sqrt(tail * tail + 2 * epsilon)
    first = 2 * epsilon / (tail + root) if tail > 0 else root - tail
    return max(first, math.sqrt(8.0) * float(erfinv(delta)))


def _pair(name: str, value: ArrayLike, mu: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check ``value`` and ``mu`` and give them one shape."""
    first, second = as_finite_array(name, value), as_finite_array("mu", mu)
    if second.size and second.min() < 0:
        raise ValueError(f"mu must be nonnegative, got {float(second.min())!r}")
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ValueError(f"{name} and mu must broadcast, got shapes {first.shape}, {second.shape}") from None
    return np.broadcast_to(first, shape), np.broadcast_to(second, shape)


def _plain(values: FloatArray) -> FloatArray | float:
    """Return a float for a single number, for formatting and for a ``Guarantee``."""
    return values if values.ndim else float(values)
