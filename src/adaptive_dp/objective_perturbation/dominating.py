"""Dominating pairs of objective perturbation, and their discretised privacy losses.

A pair (P, Q) dominates a mechanism when its hockey-stick divergence bounds the mechanism's at *every* real epsilon,
negative ones included; then products of pairs dominate adaptive compositions (redberg2023, Theorem C.4.1, after Zhu,
Dong and Wang 2022), and privacy losses add up by convolution. Two pairs are here, for generalised linear losses and
neighbours that add or remove one record. mu and kappa are as in :mod:`adaptive_dp.per_instance.calibration`, G is the
Gaussian profile.

*The half-normal pair* of redberg2023, Lemma C.4.6 (erratum 25): one pair for both directions, kappa < 1.

*The reduced pair* (errata S1; referee's report, A1 - A3): one profile for each direction, any kappa.

A, the record is absent from the data at hand. With t ~ N(0, 1), an unknown number s0 in [-mu, mu] (the gradient at
t = 0) and an unknown slope in [-kappa, 0], the loss is at most mu^2/2 + |t| min(mu, kappa |t| - s0 sgn t). Hence
:func:`half_normal_deltas` (all of the minimum replaced by mu), and the sharper :func:`absent_sharp`.

B, the record is present. (0) What follows from the Rényi bounds of
:mod:`~adaptive_dp.objective_perturbation.general_loss`: less than (i) for large kappa. (i) delta is at most G(epsilon
- log(1 + kappa), mu) for epsilon >= log(1 + kappa) (A2). (ii) The loss is at most log(1 + kappa) + mu^2/2 + r N with
N ~ N(0, 1) and an unknown r in [0, mu] (proof of A3), so delta is at most the largest h(r) = E(1 - e^(a - r N))_+, a
= epsilon - log(1 + kappa) - mu^2/2. **It is largest at an end**, so that for every real epsilon delta <=
max(G(epsilon - log(1 + kappa), mu), 1 - e^a). Proof: h'(r) has the sign of F(r) = H(x) - r with x = r + a/r and H the
hazard rate of the normal law, H' = H (H - x). For a >= 0 F > 0, as H(x) > x. Let a < 0. F < 0 near 0. Where F = 0, F'
= a^2/r^2 - 1 - a. If a <= -1 that is positive: F crosses zero once at most, upwards. If -1 < a < 0 it is positive for
r < r1 = -a / sqrt(1 + a) and negative beyond; but F > 0 for large r, hence no zero lies beyond r1 once F(r1) > 0, and
before r1 there is only one. F(r1) > 0: with s = sqrt(1 + a), r1 = 1/s - s and x = 1/s - 2s > -1, where Sampford's
inequality (1953) H(x) > (3x + sqrt(x^2 + 8)) / 4 holds; its right side is exactly r1, as x^2 + 8 = (1/s + 2s)^2. So h
falls and then grows.

*Both from both.* delta_A(-e) = 1 - e^-e + e^-e delta_B(e): every bound of one direction bounds the other one too
(:func:`absent_delta`, :func:`present_delta`). And a hockey-stick divergence is convex in e^epsilon: with the true curve
below some points it is below every chord between them, that is, below their greatest convex minorant. A convex
decreasing curve from (0, 1) that stays above 1 - e^epsilon *is* the divergence of a pair (Zhu, Dong and Wang 2022), so
the minorant is again a dominating pair: that is what :func:`discretise` hands to dp-accounting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr

from adaptive_dp.accounting import EPS, gaussian_delta, log_delta_of_orders
from adaptive_dp.objective_perturbation.profiles import ReducedCurve
from adaptive_dp.validation import FloatArray, as_finite_array, check_positive, check_real

LOG_TWO = math.log(2.0)
# The grid ends where the normal tail is 1e-18: what lies beyond is counted as an infinite loss.
REACH = 8.8
# Cells of s0 in the sharper bound of direction A: the unknown number is only known to its cell.
CELLS = 24
# Beyond this epsilon e^epsilon magnifies the rounding of 1 - delta, and reflection gains nothing.
LARGEST_REFLECTED = 20.0
LARGEST_GRID = 1_000_000
# Orders at which Rényi bounds are turned into pairs: any are valid. Rows of the table that is held at once.
ORDERS = 1 + np.geomspace(1e-2, 1e5, 160)
BLOCK = 4096
# Below, certified suprema take seconds and change nothing that is read off a composition.
SMALLEST_CERTIFIED = 1e-10
# Between its bends a profile is nearly a chord.
POINTS_BETWEEN = 200
# Corners of a profile in one standard deviation, at most; the error of the chords is of the second order.
POINTS = 100


# --- the half-normal pair ------------------------------------------------------------------------------


def half_normal_deltas(epsilon: ArrayLike, mu: float) -> FloatArray:
    """E(1 - e^(epsilon - mu^2/2 - mu |N|))_+ for any real ``epsilon``, elementwise, N ~ N(0, 1).

    2 G(epsilon, mu) from mu^2/2 on and 1 - 2 e^epsilon Phi(-mu) below (referee's report, A1): the same as
    :func:`~adaptive_dp.per_instance.calibration.half_normal_delta`, for whole grids.
    """
    e, size = as_finite_array("epsilon", epsilon), check_positive("mu", mu)
    above = 2 * np.asarray(gaussian_delta(e, np.full(e.shape, size)))
    below = -np.expm1(np.minimum(LOG_TWO + e + log_ndtr(-size), 0.0))
    return np.minimum(np.where(e >= 0.5 * size * size, above, below), 1.0)


@dataclass(frozen=True, slots=True)
class HalfNormalPair:
    """The dominating pair of redberg2023, Lemma C.4.6, with the sign of erratum 25; in units of sigma.

    P is the law of |N(0, 1)|. Q has the density e^-c 2 phi(x + mu) on [0, inf), c = -log(1 - kappa), and the rest of
    its mass at -infinity. The print has phi(x - mu): see :mod:`~adaptive_dp.objective_perturbation.flaws_dominating`.

    Parameters
    ----------
    mu : float
        sup |f'| ||x|| / sigma, positive (L / sigma in the thesis).
    kappa : float
        sup f'' ||x||^2 / lam in (0, 1) (beta / lambda in the thesis).
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        object.__setattr__(self, "kappa", check_positive("kappa", self.kappa))
        if self.kappa >= 1:
            raise ValueError(f"kappa must be below 1 for the half-normal pair, got {self.kappa!r}")

    @property
    def shift(self) -> float:
        """The constant c = |log(1 - kappa)| that every privacy loss contains."""
        return -math.log1p(-self.kappa)

    @property
    def lower_mass(self) -> float:
        """Mass of Q on [0, inf): e^-c 2 Phi(-mu)."""
        return (1 - self.kappa) * 2 * float(ndtr(-self.mu))

    @property
    def lower_atom(self) -> float:
        """Mass of Q at -infinity."""
        return 1 - self.lower_mass

    def upper_density(self, x: ArrayLike) -> FloatArray:
        """Density of P at ``x`` (sigma times the thesis's P(sigma x)), elementwise."""
        return _half_density(as_finite_array("x", x), 0.0)

    def lower_density(self, x: ArrayLike) -> FloatArray:
        """Density of Q at ``x`` on the real line, without the atom, elementwise."""
        return (1 - self.kappa) * _half_density(as_finite_array("x", x), self.mu)

    def loss(self, x: ArrayLike) -> FloatArray:
        """Privacy loss log P(x) / Q(x) = c + mu^2/2 + mu x for x >= 0, elementwise."""
        return self.shift + 0.5 * self.mu**2 + self.mu * as_finite_array("x", x)

    def delta(self, epsilon: ArrayLike) -> FloatArray:
        """Hockey-stick divergence at any real ``epsilon``: Theorem 4.3.1 with the right sign, elementwise."""
        return half_normal_deltas(as_finite_array("epsilon", epsilon) - self.shift, self.mu)


def _half_density(x: FloatArray, shift: float) -> FloatArray:
    density = math.sqrt(2 / math.pi) * np.exp(-0.5 * np.square(x + shift))
    return np.where(x >= 0, density, 0.0)


# --- the reduced pair ----------------------------------------------------------------------------------


def absent_sharp(epsilon: ArrayLike, mu: float, kappa: float, *, cells: int = CELLS) -> FloatArray:
    """Upper bound of sup_{|s0| <= mu} E(1 - e^(epsilon - mu^2/2 - |t| min(mu, kappa |t| - s0 sgn t)))_+, elementwise.

    s0 >= 0 by symmetry. In a cell of s0 the lower end is put where a small s0 makes a large loss (t > 0) and the upper
    end where a large one does (t < 0): an upper bound whatever the number of cells. The integrals are closed. For whole
    grids; :func:`~adaptive_dp.objective_perturbation.sharper.sharper_absent_delta` halves cells for one epsilon.
    """
    e = as_finite_array("epsilon", epsilon)
    size, bend = check_positive("mu", mu), check_positive("kappa", kappa)
    c = np.ravel(e)[:, np.newaxis] - 0.5 * size * size
    edges = np.linspace(0.0, size, cells + 1)
    right = _half_line(c, edges[:-1], size, bend)
    left = _half_line(c, -edges[1:], size, bend)
    best = (right + left).max(axis=1) + 1e-300
    return np.asarray(np.minimum(best, 1.0).reshape(e.shape))


def _half_line(c: FloatArray, s: FloatArray, mu: float, kappa: float) -> FloatArray:
    """int_0^inf phi(u) (1 - e^(c - g(u)))_+ du with g(u) = u min(mu, kappa u - s); c (n, 1), s (m,)."""
    joint = (mu + s) / kappa  # the parabola up to here, the line beyond
    root = np.sqrt(np.maximum(s * s + 4 * kappa * c, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The larger root of kappa u^2 - s u = c without cancellation; where there is none, nothing is excluded.
        high = np.where(s >= 0, (s + root) / (2 * kappa), 2 * c / (root - s))
        low = np.where(s > 0, -2 * c / (s + root), 0.0)
    none = (c < 0) & ((s <= 0) | (s * s + 4 * kappa * c <= 0))
    high = np.where(none | ~np.isfinite(high), 0.0, high)
    low = np.where(none | (c >= 0), 0.0, low)
    inner = _parabola(c, s, np.zeros_like(high), low, kappa)
    middle = _parabola(c, s, np.minimum(high, joint), np.broadcast_to(joint, high.shape), kappa)
    start = np.maximum(joint, c / mu)
    line = _difference(log_ndtr(-start), c + 0.5 * mu * mu + log_ndtr(-(start + mu)), np.abs(c) + mu * mu)
    return inner + middle + line


def _parabola(c: FloatArray, s: FloatArray, low: FloatArray, high: FloatArray, kappa: float) -> FloatArray:
    """int_low^high phi(u) (1 - e^(c - kappa u^2 + s u)) du from upper tails; 0 unless low < high."""
    v = 1 + 2 * kappa
    weight = c + s * s / (2 * v) - 0.5 * math.log(v)
    first, last = (math.sqrt(v) * (edge - s / v) for edge in (low, high))
    size = np.abs(c) + s * s
    gained = _difference(
        np.logaddexp(log_ndtr(-low), weight + log_ndtr(-last)),
        np.logaddexp(log_ndtr(-high), weight + log_ndtr(-first)),
        size,
    )
    return np.where(high > low, gained, 0.0)


def _difference(plus: FloatArray, minus: FloatArray, size: FloatArray) -> FloatArray:
    """e^plus - e^minus >= 0, and what their roundings can be; ``size``: of a term inside the exponents."""
    first, second = np.exp(plus), np.exp(minus)
    slack = first * (2 + np.abs(np.maximum(plus, -1e3))) + second * (2 + np.abs(np.maximum(minus, -1e3)))
    return np.asarray(np.maximum(first - second, 0.0) + 8 * EPS * (slack + size * (first + second)))


def present_closed(epsilon: ArrayLike, mu: float, kappa: float) -> FloatArray:
    """G(epsilon - log(1 + kappa), mu), and below log(1 + kappa) the larger of it and 1 - e^a: see the module.

    Any real ``epsilon``, elementwise.
    """
    e, size = as_finite_array("epsilon", epsilon), check_positive("mu", mu)
    rest = e - math.log1p(check_positive("kappa", kappa))
    gaussian = np.asarray(gaussian_delta(rest, np.full(rest.shape, size)))
    other = -np.expm1(np.minimum(rest - 0.5 * size * size, 0.0))
    return np.where(rest >= 0, gaussian, np.maximum(gaussian, other))


def present_tilted(epsilon: ArrayLike, mu: float, kappa: float) -> FloatArray:
    """What follows for direction B from its Rényi bounds, at any real ``epsilon``: less than G for large kappa."""
    e = as_finite_array("epsilon", epsilon)
    curve = ReducedCurve(mu, kappa)
    divergences = np.array([curve.renyi_present(float(order)) for order in ORDERS])
    flat, found = e.reshape(-1), np.empty(e.size)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK, np.newaxis]
        logs = log_delta_of_orders(ORDERS, divergences, part).min(axis=1)
        found[start : start + BLOCK] = np.exp(np.minimum(logs, 0.0)) * (1 + 1e-12)
    return np.minimum(found, 1.0).reshape(e.shape)


def reduced_deltas(
    epsilon: ArrayLike, mu: float, kappa: float, *, sharp: bool = True
) -> tuple[FloatArray, FloatArray]:
    """Best proved bounds of direction A at any real ``epsilon``, and of direction B at *minus* ``epsilon``.

    Parameters
    ----------
    epsilon : array_like
        Finite.
    mu, kappa : float
        Positive.
    sharp : bool
        Whether :func:`absent_sharp` and :func:`present_tilted` may be used beside the closed forms.

    Returns
    -------
    absent, present_mirrored : ndarray
        In the shape of ``epsilon``.
    """
    e = as_finite_array("epsilon", epsilon)
    absent, present = np.array(half_normal_deltas(e, mu)), present_closed(-e, mu, kappa)
    if sharp:
        near = np.abs(e) <= largest_gaussian_loss(mu)
        absent[near] = np.minimum(absent[near], absent_sharp(e[near], mu, kappa))
        present = np.minimum(present, present_tilted(-e, mu, kappa))
    return np.minimum(absent, _reflected(e, present)), np.minimum(present, _reflected(-e, absent))


def absent_delta(epsilon: ArrayLike, mu: float, kappa: float, *, sharp: bool = True) -> FloatArray:
    """Best proved bound of direction A (data at hand without the record); see :func:`reduced_deltas`."""
    return reduced_deltas(epsilon, mu, kappa, sharp=sharp)[0]


def present_delta(epsilon: ArrayLike, mu: float, kappa: float, *, sharp: bool = True) -> FloatArray:
    """Best proved bound of direction B (data at hand with the record); see :func:`reduced_deltas`."""
    return reduced_deltas(-as_finite_array("epsilon", epsilon), mu, kappa, sharp=sharp)[1]


def _reflected(e: FloatArray, mirrored: FloatArray) -> FloatArray:
    """1 - e^e + e^e mirrored, where ``mirrored`` bounds the other direction at -e; roundings added."""
    level = np.minimum(e, LARGEST_REFLECTED)
    bound = -np.expm1(level) + np.exp(level) * (mirrored + 8 * EPS) + 4 * EPS
    return np.where(e <= LARGEST_REFLECTED, np.clip(bound, 0.0, 1.0), 1.0)


# --- from profiles to discretised privacy losses -------------------------------------------------------


def convex_minorant(epsilons: ArrayLike, deltas: ArrayLike) -> NDArray[np.intp]:
    """Indices of the corners of the greatest convex minorant in e^epsilon of the points and (0, 1).

    Parameters
    ----------
    epsilons : array_like, shape (n,)
        Strictly increasing.
    deltas : array_like, shape (n,)
        In [0, 1], nonincreasing, at least 1 - e^epsilon.

    Returns
    -------
    ndarray of int, shape (corners,)
        Increasing; the last point is always a corner.

    Notes
    -----
    Slopes are compared in logarithms, as e^epsilon may be huge.
    """
    e = as_finite_array("epsilons", epsilons, ndim=1)
    d = as_finite_array("deltas", deltas, ndim=1)
    if e.shape != d.shape or not e.size or (np.diff(e) <= 0).any():
        raise ValueError(f"epsilons must increase strictly, one for each delta, got {e.size} and {d.size}")
    levels: list[float] = e.tolist()
    values: list[float] = d.tolist()

    def log_slope(left: int, right: int) -> float:
        """Logarithm of the fall from one point to another, a unit of e^epsilon; -1 is the point (0, 1)."""
        fall = (values[left] if left >= 0 else 1.0) - values[right]
        if fall <= 0:
            return -math.inf
        width = levels[right]
        if left >= 0:
            width = levels[left] + _log_expm1(levels[right] - levels[left])
        return math.log(fall) - width

    corners, slopes = [-1], [math.inf]  # the slope that ends in each corner
    for point in range(e.size):
        slope = log_slope(corners[-1], point)
        while slope > slopes[-1]:
            corners.pop()
            slopes.pop()
            slope = log_slope(corners[-1], point)
        corners.append(point)
        slopes.append(slope)
    return np.array(corners[1:], dtype=np.intp)


def _log_expm1(x: float) -> float:
    return math.log(math.expm1(x)) if x < 40 else x


def loss_grid(interval: float, low: float, high: float) -> NDArray[np.intp]:
    """Integers whose multiples of ``interval`` cover ``low`` to ``high``, rounded outwards."""
    step = check_positive("interval", interval)
    bottom, top = math.floor(check_real("low", low) / step), math.ceil(check_real("high", high) / step)
    if not 0 <= top - bottom <= LARGEST_GRID:
        raise ValueError(f"interval {step!r} is too small for losses from {low:.4g} to {high:.4g}")
    return np.arange(bottom, top + 1)


def discretise(deltas: ArrayLike, *, interval: float, grid: NDArray[np.intp]) -> Any:
    """Pessimistic discretised privacy loss of any valid upper bounds of a hockey-stick divergence.

    Parameters
    ----------
    deltas : array_like, shape (n,)
        Upper bounds at the epsilons ``grid * interval``; they need not be convex, the minorant is taken.
    interval : float
        Losses are multiples of it.
    grid : ndarray of int, shape (n,)
        Strictly increasing. What may lie below goes to the first loss, what may lie above is infinite.

    Returns
    -------
    dp_accounting.pld.pld_pmf.PLDPmf
        Its divergence is at least that of the minorant at every epsilon, and equals it at the corners ("connect the
        dots", Doroshenko et al. 2022).
    """
    from dp_accounting.pld import pld_pmf  # type: ignore[import-untyped]

    epsilons = np.asarray(grid * check_positive("interval", interval), dtype=np.float64)
    # The true divergence falls, and is at least 1 - e^epsilon: neither line makes a valid bound invalid.
    bounds = np.maximum(as_finite_array("deltas", deltas, ndim=1), -np.expm1(np.minimum(epsilons, 0.0)))
    bounds = np.minimum.accumulate(np.clip(bounds, 0.0, 1.0))
    kept = convex_minorant(epsilons, bounds)
    return pld_pmf.create_pmf_pessimistic_connect_dots(interval, grid[kept], bounds[kept])


def largest_gaussian_loss(mu: float) -> float:
    """Loss mu^2/2 + mu z that a Gaussian or half-normal loss exceeds with probability 1e-18."""
    return 0.5 * mu * mu + REACH * mu


@lru_cache(maxsize=64)
def reduced_pld(mu: float, kappa: float, *, interval: float, sharp: bool = True) -> Any:
    """Privacy loss distribution of the reduced pair, any mu > 0 and kappa > 0.

    dp-accounting's ``remove`` direction has the data set *with* the record as the upper distribution: direction B. Its
    ``add`` direction is A.

    Returns
    -------
    dp_accounting.pld.privacy_loss_distribution.PrivacyLossDistribution
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    without, shift = largest_gaussian_loss(mu), math.log1p(kappa)
    grid = _useful(loss_grid(interval, -shift - without, without), interval, shift, without)
    absent, present = reduced_deltas(grid * interval, mu, kappa, sharp=sharp)
    return library.PrivacyLossDistribution(
        discretise(present[::-1], interval=interval, grid=-grid[::-1]),
        discretise(absent, interval=interval, grid=grid),
    )


@lru_cache(maxsize=16)
def certified_pld(
    mu: float,
    kappa: float,
    *,
    interval: float,
    points: int = 40,
    smallest: float = SMALLEST_CERTIFIED,
    tolerance: float = 0.05,
) -> Any:
    """Privacy loss distribution of the worst case itself, a few percent above it: certified suprema joined by chords.

    At ``points`` values of epsilon in each direction the supremum over all losses and data
    (:mod:`~adaptive_dp.objective_perturbation.certified`), each to ``tolerance`` relatively, is put beside the bounds
    of :func:`reduced_pld`, down to delta = ``smallest``. A twentieth of a second a point where delta is large, a second
    where it is 1e-10.
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    from adaptive_dp.objective_perturbation.certified import certified_delta

    without, shift = largest_gaussian_loss(mu), math.log1p(kappa)
    grid = _useful(loss_grid(interval, -shift - without, without), interval, shift, without)
    levels = np.asarray(grid * interval, dtype=np.float64)
    absent, present = reduced_deltas(levels, mu, kappa)
    for at in _spread(np.flatnonzero((levels >= 0) & (absent > smallest)), points):
        found = certified_delta(mu, kappa, epsilon=float(levels[at]), direction="absent", tolerance=tolerance)
        absent[at] = min(absent[at], found.upper)
    for at in _spread(np.flatnonzero((levels <= 0) & (present > smallest)), points):
        found = certified_delta(
            mu, kappa, epsilon=float(-levels[at]), direction="present", tolerance=tolerance
        )
        present[at] = min(present[at], found.upper)
    absent, present = (
        np.minimum(absent, _reflected(levels, present)),
        np.minimum(present, _reflected(-levels, absent)),
    )
    return library.PrivacyLossDistribution(
        discretise(present[::-1], interval=interval, grid=-grid[::-1]),
        discretise(absent, interval=interval, grid=grid),
    )


def _spread(places: NDArray[np.intp], points: int) -> NDArray[np.intp]:
    """At most ``points`` of the ``places``, evenly spread, both ends among them."""
    chosen = np.unique(np.linspace(0, places.size - 1, points).round().astype(np.intp))
    return np.asarray(places[chosen[chosen >= 0]])


def _useful(grid: NDArray[np.intp], interval: float, shift: float, width: float) -> NDArray[np.intp]:
    """All points within ``width`` of the losses 0 and -shift, where the profiles bend, and some in between."""
    losses = grid * interval
    kept = (np.abs(losses) <= width) | (np.abs(losses + shift) <= width)
    kept &= grid % max(1, int(width / REACH / (POINTS * interval))) == 0
    kept[:: max(1, grid.size // POINTS_BETWEEN)] = True
    kept[[0, -1]] = True
    return np.asarray(grid[kept])


@lru_cache(maxsize=64)
def half_normal_pld(mu: float, kappa: float, *, interval: float) -> Any:
    """Privacy loss distribution of the half-normal pair (one pair for both directions); kappa < 1."""
    from dp_accounting.pld import privacy_loss_distribution as library

    pair = HalfNormalPair(mu, kappa)
    start = float(pair.loss(0.0))
    grid = loss_grid(interval, start, start + REACH * pair.mu)
    return library.PrivacyLossDistribution(
        discretise(pair.delta(grid * interval), interval=interval, grid=grid)
    )
