"""What DP-SGD costs: the Gaussian mechanism on a Poisson sample of the records, many times over.

One step looks at each record with probability q, independently, and adds N(0, sigma^2) to a sum in which one record
counts for at most 1 (sigma is the noise multiplier). Neighbours add or remove one record. The worst pair is then
(1 - q) N(0, sigma^2) + q N(1, sigma^2) against N(0, sigma^2), in both directions.

Rényi divergences are computed by quadrature at all orders at once. ``dp-accounting`` sums the series of Mironov, Talwar
and Zhang one order at a time. At whole orders the two agree to all digits. At fractional orders its version 0.6 adds
the absolute values of alternating terms: an upper bound, 3 % above the truth at order 1.5 with q = 0.01 and
sigma = 1.1, a factor of 3 with q = 0.007 and sigma = 30, and infinite where that sum does not settle. The tests show
both. Privacy loss distributions are ``dp-accounting``'s; it must be installed for the accountant ``"numerical"``.

Mironov, Talwar and Zhang, "Rényi differential privacy of the sampled Gaussian mechanism", 2019; Canonne, Kamath and
Steinke, "The discrete Gaussian for differential privacy", 2020, Proposition 12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logsumexp

from adaptive_dp.ptr.selection_bounds import check_unit
from adaptive_dp.ptr.selection_renyi import ORDERS
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

ACCOUNTANTS = ("renyi", "numerical")
LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
# Quadrature. Twelve standard deviations leave e^-72 outside. The integrand is analytic in the strip |Im t| < pi sigma,
# that the trapezoidal rule with steps of 0.4 of the smaller of 1 and sigma is exact to rounding.
REACH = 12.0
STEP = 0.4
# Beyond this many nodes (orders far above sigma, where sampling no longer helps) the convexity bound is used instead.
LARGEST_NODES = 3_000
# Orders that share one grid of nodes.
GROUP = 16
# Roundings of the quadrature, relative: the divergences are an upper bound with it.
SLACK = 1e-9
SMALLEST_SIGMA, LARGEST_SIGMA = 1e-4, 1e8
# A calibration looks for the neighbourhood of its root with these.
COARSE_ORDERS = ORDERS[::8]
# Privacy losses beyond which there is nothing to gain from a distribution of them.
LARGEST_REACH = 1e4

SMALLEST_SAMPLING = 1e-12


def check_sampling(value: object) -> float:
    """Return a sampling probability in [1e-12, 1]: below, gaps between picks would not fit into integers."""
    number = check_positive("sampling", value)
    if not SMALLEST_SAMPLING <= number <= 1:
        raise ValueError(f"sampling must be at least {SMALLEST_SAMPLING:g} and at most 1, got {number!r}")
    return number


def sampled_gaussian_renyi(orders: ArrayLike, *, sampling: float, sigma: float) -> FloatArray:
    """Rényi divergences of one step, the larger of both directions, at every order.

    log E (1 + u)^a / (a - 1) with u = q (e^((2 z - 1) / (2 sigma^2)) - 1) and z ~ N(0, sigma^2) (mironov2019, Theorem 5
    for the direction). As E u = 0, what is integrated is (1 + u)^a - 1 - a u >= 0: nothing cancels where q or
    1 / sigma is tiny.

    Parameters
    ----------
    orders : array_like, shape (orders,)
        At least 1; 1 is the limit, the Kullback-Leibler divergence.
    sampling : float
        q in (0, 1].
    sigma : float
        Noise multiplier.

    Returns
    -------
    ndarray, shape (orders,)
        Relative error below 2e-9, on the safe side. At orders so far above sigma that the quadrature would need more
        than 3,000 nodes the upper bound log(1 - q + q e^(a (a - 1) / (2 sigma^2))) / (a - 1) is returned.

    Raises
    ------
    TypeError, ValueError
        An order below 1, parameters out of range.
    """
    a = as_finite_array("orders", orders, ndim=1)
    if a.size and a.min() < 1:
        raise ValueError(f"orders must be at least 1, got {a.min()!r}")
    q, s = check_sampling(sampling), check_ordinary("sigma", sigma)
    if q == 1:
        return np.asarray(a / (2 * s * s))
    result = _convexity_bound(a, q, s)
    step = STEP * min(1.0, s)
    feasible = np.flatnonzero((a / s + 2 * REACH) / step <= LARGEST_NODES)
    feasible = feasible[np.argsort(a[feasible], kind="stable")]
    for start in range(0, feasible.size, GROUP):
        chosen = feasible[start : start + GROUP]
        nodes = np.arange(-REACH, a[chosen[-1]] / s + REACH, step)
        exact = _by_quadrature(a[chosen, np.newaxis], nodes, step, q, s) * (1 + SLACK)
        result[chosen] = np.minimum(result[chosen], exact)
    return result


def _convexity_bound(a: FloatArray, q: float, s: float) -> FloatArray:
    """E (1 + u)^a <= 1 - q + q E e^(a ...), as the power is convex; at order 1 the limit of the quotient."""
    eta, size = a - 1, a * (a - 1) / (2 * s * s)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        bound = np.where(size < 1, np.log1p(q * np.expm1(np.minimum(size, 1))), 0.0) / eta
        far = (size + math.log(q) + np.log1p((1 - q) / q * np.exp(-size))) / eta
    return np.asarray(np.where(eta > 0, np.where(size < 1, bound, far), q / (2 * s * s)))


def _by_quadrature(a: FloatArray, t: FloatArray, step: float, q: float, s: float) -> FloatArray:
    """Divergences at orders (k, 1) from nodes t = z / sigma."""
    eta = a - 1
    x = t / s - 1 / (2 * s * s)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        near = x < 30
        u = q * np.expm1(np.minimum(x, 30.0))
        log_ratio = np.where(
            near, np.log1p(u), math.log(q) + x + np.log1p((1 - q) / q * np.exp(-np.maximum(x, 30.0)))
        )
        log_density = -0.5 * t * t - LOG_ROOT_TWO_PI
        density = np.exp(log_density)
        # u times the density, as a difference of two densities: it does not overflow.
        weighted = q * (np.exp(-0.5 * np.square(t - 1 / s) - LOG_ROOT_TWO_PI) - density)
        power = eta * log_ratio
        exponents = (eta + 1) * log_ratio + log_density
        # expm1(eta L) / eta with its limit L at order 1.
        slope = np.where(eta > 0, np.expm1(np.minimum(power, 1.0)) / np.where(eta > 0, eta, 1.0), log_ratio)
        # Where a u is tiny the difference cancels; its series does not.
        order = eta + 1
        series = order * u * u * (0.5 + u * (order - 2) / 6 * (1 + u * (order - 3) / 4))
        small = density * np.where(np.abs(order * u) < 1e-4, series, (1 + u) * slope - u)
        large = (np.exp(np.minimum(exponents, 600.0)) - density - (eta + 1) * weighted) / np.where(
            eta > 0, eta, 1.0
        )
        gain = step * np.where((power < 1) & near, small, large).sum(axis=1)
        direct = np.where(
            eta[:, 0] > 0, np.log1p(eta[:, 0] * gain) / np.where(eta[:, 0] > 0, eta[:, 0], 1), gain
        )
        if exponents.max() > 500:
            huge = exponents.max(axis=1) > 500
            direct[huge] = (logsumexp(exponents[huge], axis=1) + math.log(step)) / eta[huge, 0]
    return np.asarray(direct)


@dataclass(frozen=True)
class SampledGaussianCurve:
    """Privacy profile of ``steps`` steps from Rényi divergences: the accounting of the thesis.

    Parameters
    ----------
    sampling : float
        q in (0, 1].
    sigma : float
        Noise multiplier, standard deviation over clipping threshold.
    steps : int
        Number of steps.
    extra_mu : float
        Sensitivity over noise of one further Gaussian release without sampling, such as a noisy score; 0 for none.
    orders : sequence of float
        Rényi orders above 1.
    """

    sampling: float
    sigma: float
    steps: int
    extra_mu: float = 0.0
    orders: tuple[float, ...] = ORDERS

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling", check_sampling(self.sampling))
        object.__setattr__(self, "sigma", check_ordinary("sigma", self.sigma))
        object.__setattr__(self, "steps", check_count("steps", self.steps))
        extra = check_real("extra_mu", self.extra_mu)
        if extra < 0:
            raise ValueError(f"extra_mu must be nonnegative, got {extra!r}")
        object.__setattr__(self, "extra_mu", extra)
        levels = as_finite_array("orders", np.asarray(self.orders), ndim=1)
        if not levels.size or levels.min() <= 1 or (np.diff(levels) <= 0).any():
            raise ValueError(f"orders must increase and lie above 1, got {self.orders!r}")

    def divergences(self, orders: ArrayLike) -> FloatArray:
        """Rényi divergences of all steps together at ``orders`` >= 1, shape (orders,)."""
        one = sampled_gaussian_renyi(orders, sampling=self.sampling, sigma=self.sigma)
        return np.asarray(self.steps * one + 0.5 * np.asarray(orders) * self.extra_mu**2)

    @cached_property
    def _table(self) -> dict[float, float]:
        return dict(zip(self.orders, self.divergences(self.orders).tolist(), strict=True))

    @cached_property
    def _columns(self) -> tuple[FloatArray, FloatArray]:
        return np.array(self.orders), np.array(list(self._table.values()))

    def renyi(self, order: float) -> float:
        """Rényi divergence of ``order`` >= 1, the larger of both directions."""
        known = self._table.get(order)
        return float(self.divergences([check_positive("order", order)])[0]) if known is None else known

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at ``epsilon`` >= 0."""
        return float(self.deltas(np.array([check_real("epsilon", epsilon)]))[0])

    def deltas(self, epsilons: ArrayLike) -> FloatArray:
        """The bound of ``delta`` at several ``epsilons``, shape (k,)."""
        levels = as_finite_array("epsilons", epsilons, ndim=1)
        if levels.size and levels.min() < 0:
            raise ValueError(f"epsilon must be nonnegative, got {levels.min()!r}")
        a, losses = self._columns
        logs = (a - 1) * (losses - levels[:, np.newaxis] + np.log1p(-1 / a)) - np.log(a)
        return np.asarray(np.exp(np.minimum(logs.min(axis=1) + 1e-12, 0.0)))

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]; infinite at 0."""
        level = check_unit("delta", delta)
        if level == 0:
            return math.inf
        a, losses = self._columns
        found = losses + np.log1p(-1 / a) - (math.log(level) + np.log(a)) / (a - 1)
        # The conversion may fall below 0; a true epsilon does not.
        return max(0.0, float(found.min()) * (1 + 1e-12) + 1e-12)


@dataclass(frozen=True)
class NumericalSampledGaussianCurve(SampledGaussianCurve):
    """The same mechanism by its privacy loss distribution (``dp-accounting``): tighter profile, same Rényi divergences.

    The discretised losses are rounded to the pessimistic side, so that every answer is an upper bound; where the
    distribution is cut off (delta below about 1e-15, privacy losses above 10,000) the Rényi bound takes over.
    """

    @cached_property
    def _distribution(self) -> Any:
        """Privacy loss distribution of all steps; None where the losses are hopelessly large."""
        # Two seconds of import, and only this accountant needs it.
        from dp_accounting.pld import privacy_loss_distribution as pld  # type: ignore[import-untyped]

        reach = max(SampledGaussianCurve.epsilon(self, 1e-10), 0.5 / self.sigma**2 + REACH / self.sigma)
        if reach > LARGEST_REACH:
            return None
        interval = max(min(1e-3, 0.04 * self.sampling / self.sigma), reach / 4e4)
        found = pld.from_gaussian_mechanism(
            self.sigma, sampling_prob=self.sampling, value_discretization_interval=interval
        ).self_compose(self.steps)
        if self.extra_mu > 0:
            found = found.compose(
                pld.from_gaussian_mechanism(1 / self.extra_mu, value_discretization_interval=interval)
            )
        return found

    def deltas(self, epsilons: ArrayLike) -> FloatArray:
        """Upper bounds of the smallest delta at several ``epsilons`` >= 0, shape (k,)."""
        fallback = super().deltas(epsilons)
        if self._distribution is None:
            return fallback
        levels = np.asarray(epsilons, dtype=np.float64)
        order = np.argsort(levels, kind="stable")
        found = np.empty_like(fallback)
        found[order] = self._distribution.get_delta_for_epsilon(levels[order])
        return np.minimum(found, fallback)

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]; infinite at 0."""
        fallback = super().epsilon(delta)
        if delta == 0 or self._distribution is None:
            return fallback
        return min(fallback, max(0.0, float(self._distribution.get_epsilon_for_delta(delta)) + 1e-12))


def sampled_gaussian_curve(
    *,
    sampling: float,
    sigma: float,
    steps: int,
    accountant: str = "renyi",
    extra_mu: float = 0.0,
    orders: tuple[float, ...] = ORDERS,
) -> SampledGaussianCurve:
    """Profile of ``steps`` steps by the accountant ``"renyi"`` or ``"numerical"``; the last few are remembered."""
    numerical = check_choice("accountant", accountant, ACCOUNTANTS) == "numerical"
    kind = NumericalSampledGaussianCurve if numerical else SampledGaussianCurve
    return _remembered(kind(sampling, sigma, steps, extra_mu, orders))


@lru_cache(maxsize=32)
def _remembered(curve: SampledGaussianCurve) -> SampledGaussianCurve:
    """Return the first curve that was equal to ``curve``: its tables are filled already."""
    return curve


def noise_multiplier(
    *, epsilon: float, delta: float, sampling: float, steps: int, accountant: str = "renyi"
) -> float:
    """Smallest noise multiplier with which ``steps`` steps are (epsilon, delta)-private, add/remove.

    For a run whose learning rate was fixed beforehand. Choosing among several runs is not covered: see
    :func:`~adaptive_dp.objective_perturbation.tuning.honest_noise_multiplier`.

    Parameters
    ----------
    epsilon, delta : float
        epsilon > 0, delta in (0, 1).
    sampling : float
        q in (0, 1].
    steps : int
    accountant : {"renyi", "numerical"}

    Returns
    -------
    float
        Standard deviation of the noise over the clipping threshold, rounded up: the curve of the same accountant
        needs at most ``epsilon`` at ``delta``, and less by a relative 1e-9 only. For ``"numerical"`` both answers of
        the curve hold, ``curve.epsilon(delta) <= epsilon`` and ``curve.delta(epsilon) <= delta``, with 1e-4 to spare
        at most; more for delta below about 1e-12, where the two answers of a discretised distribution drift apart.

    Raises
    ------
    TypeError, ValueError
        A parameter out of range, or a noise multiplier outside 1e-4 ... 1e8.
    """
    e, d = check_positive("epsilon", epsilon), check_probability("delta", delta)
    q, t = check_sampling(sampling), check_count("steps", steps)
    return _noise_multiplier(e, d, q, t, check_choice("accountant", accountant, ACCOUNTANTS))


@lru_cache(maxsize=256)
def _noise_multiplier(e: float, d: float, q: float, t: int, accountant: str) -> float:
    """Calibrate with checked arguments; an experiment asks for the same ones at every repetition."""
    what = f"epsilon {e!r} and delta {d!r} with Rényi orders up to {ORDERS[-1]:g}"

    def spent(sigma: float, orders: tuple[float, ...] = ORDERS) -> float:
        return SampledGaussianCurve(q, sigma, t, orders=orders).epsilon(d) - e

    def failing(sigma: float) -> float:
        found = NumericalSampledGaussianCurve(q, sigma, t).delta(e)
        return math.log(max(found, 1e-300)) - math.log(d)

    def over(sigma: float) -> float:
        return min(NumericalSampledGaussianCurve(q, sigma, t).epsilon(d) - e, 1e6)

    near = smallest_sigma(lambda sigma: spent(sigma, COARSE_ORDERS), tolerance=1e-3, what=what)
    first = smallest_sigma(spent, start=near, width=1.002, what=what)
    if accountant == "renyi":
        return first
    sigma = smallest_sigma(failing, start=first, tolerance=1e-6, what=what)
    if over(sigma) <= 0:
        return sigma
    # Far out in the tail the distribution is cut off, and delta(e) <= d does not imply epsilon(d) <= e.
    return smallest_sigma(
        lambda s: max(failing(s), over(s)), start=sigma, width=1 + 1e-5, tolerance=1e-6, what=what
    )


def smallest_sigma(
    excess: Callable[[float], float],
    *,
    start: float = 1.0,
    width: float = 1.1,
    tolerance: float = 1e-13,
    what: str,
) -> float:
    """Root of a decreasing function of the noise, on the side where it is at most 0.

    Parameters
    ----------
    excess : callable ``sigma -> float``
        Positive where there is too little noise.
    start, width : float
        A guess, and the factor by which it is moved at first.
    tolerance : float
        Relative, of the answer.
    what : str
        What was asked for, for the message.

    Raises
    ------
    ValueError
        No root between 1e-4 and 1e8.
    """
    low = high = start
    if excess(start) > 0:
        while excess(high) > 0:
            low, high, width = high, high * width, width**1.5
            if high > LARGEST_SIGMA:
                raise ValueError(f"no noise multiplier below {LARGEST_SIGMA:g} gives {what}")
    else:
        while excess(low) <= 0:
            low, high, width = low / width, low, width**1.5
            if low < SMALLEST_SIGMA:
                raise ValueError(f"{what} would need a noise multiplier below {SMALLEST_SIGMA:g}")
    sigma = math.exp(brentq(lambda v: excess(math.exp(v)), math.log(low), math.log(high), xtol=tolerance))
    step = tolerance
    while excess(sigma) > 0:
        sigma, step = sigma * (1 + step), 2 * step
    return sigma
