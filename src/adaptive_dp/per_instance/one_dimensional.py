"""Exact divergences of two neighbouring data sets: objective perturbation of logistic regression in one dimension.

The mechanism is

    theta = argmin sum_i log(1 + exp(-y_i x_i theta)) + lam theta^2 / 2 + b theta,   b ~ N(0, sigma^2).

Nothing has to be sampled. A record enters through c = y x only, b(theta) = -J'(theta) is strictly decreasing, so the
probability of an interval of theta is a difference of normal distribution functions, for D and for its neighbour
alike. With t = b/sigma, s = c expit(-c theta)/sigma, H = J'' and h = c^2 expit(c theta) expit(-c theta), the loss is

    l = log p_D / p_{D+z} = s t + s^2/2 - log(1 + h/H),

where s and t are monotone and h and H are even and fall away from theta = 0, which is a grid point. So each cell of a
grid encloses the loss (:mod:`~adaptive_dp.per_instance.cells`), and the grid is refined where the bounds differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from adaptive_dp.losses import LogisticLoss
from adaptive_dp.per_instance.cells import Cells, Interval, normal_cells
from adaptive_dp.validation import FloatArray, as_finite_array, check_probability, check_real

LOSS = LogisticLoss()
REACH = 39.0
"""Standard deviations that the grid covers; the normal tail beyond is below the smallest double."""
SMALLEST_DELTA = 1e-250
BLOCK = 1 << 20  # entries of the largest intermediate matrix
REFINEMENTS = 12
LARGEST_GRID = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Data1D:
    """Data in one dimension as the mechanism sees them: distinct c = y x and how often each occurs."""

    products: FloatArray
    weights: FloatArray
    lam: float
    sigma: float

    def scores(self, theta: FloatArray) -> FloatArray:
        """Return t = b/sigma for the noise b that makes each ``theta`` the minimiser; decreasing, same shape."""
        slopes = self._sum(theta, LOSS.derivative, self.weights * self.products)
        return -(slopes + self.lam * theta) / self.sigma

    def curvatures(self, theta: FloatArray) -> FloatArray:
        """Second derivative H of the objective at each ``theta``."""
        return self._sum(theta, LOSS.second_derivative, self.weights * self.products**2) + self.lam

    def _sum(
        self, theta: FloatArray, function: Callable[[ArrayLike, ArrayLike], FloatArray], factors: FloatArray
    ) -> FloatArray:
        total = np.empty(theta.shape)
        step = max(1, BLOCK // max(1, self.products.size))
        for start in range(0, theta.size, step):
            part = slice(start, start + step)
            total[part] = function(np.outer(theta[part], self.products), 1.0) @ factors
        return total

    def minimiser(self) -> float:
        """The minimiser without noise."""
        return self.theta_at(0.0)

    def theta_at(self, score: float) -> float:
        """The theta that noise of ``score`` standard deviations makes the minimiser."""
        bound = (1.01 * abs(score) * self.sigma + self.largest_slope()) / self.lam
        if bound == 0:
            return 0.0

        def excess(theta: float) -> float:
            return float(self.scores(np.array([theta]))[0]) - score

        # With a strong ridge all of theta may lie below brentq's default tolerance.
        return float(optimize.brentq(excess, -bound, bound, xtol=1e-15 * bound))

    def largest_slope(self) -> float:
        """Bound of the derivative of the sum of losses."""
        return float(self.weights @ np.abs(self.products))

    def mu(self, product: float) -> float:
        """Supremum over theta of a record's |gradient| / sigma."""
        return abs(product) / self.sigma

    def kappa(self, product: float) -> float:
        """Supremum over theta of a record's second derivative / lam."""
        return LOSS.curvature * product**2 / self.lam

    def without(self, product: float) -> Data1D:
        """The data with one record ``product`` removed, which must be there."""
        left = self.weights - (self.products == product)
        return Data1D(self.products[left > 0], left[left > 0], self.lam, self.sigma)


def record_terms(theta: FloatArray, products: FloatArray, sigma: float) -> tuple[FloatArray, FloatArray]:
    """Return s and h of each record at each theta, shape (m, K)."""
    predictions, column = np.outer(products, theta), products[:, np.newaxis]
    shifts = -column * LOSS.derivative(predictions, 1.0) / sigma
    return shifts, column**2 * LOSS.second_derivative(predictions, 1.0)


# ---------------------------------------------------------------- grids


def grid(data: Data1D, products: FloatArray, reach: float, core: int = 300) -> FloatArray:
    """Points of theta that resolve the laws of the data and of the data with each of ``products`` added.

    They need not be equally spaced in anything: probabilities of the cells are exact wherever the points are.
    ``core`` points lie within ten standard deviations of each law, fewer between there and ``reach``.
    """
    width = float(np.abs(products).max(initial=0.0))
    span = (reach * data.sigma + data.largest_slope() + width) / data.lam * 1.01
    centre = data.minimiser()
    scale = min(data.sigma / float(data.curvatures(np.array([centre]))[0]), 1 / max(width, 1e-100), span) / 20
    arcs = np.arange(-math.asinh(2 * span / scale), math.asinh(2 * span / scale) + 0.2, 0.2)
    coarse = np.concatenate([centre + scale * np.sinh(arcs), scale * np.sinh(arcs), [0.0]])
    table = np.unique(np.clip(coarse, -span, span))
    inner = np.linspace(-10, 10, core)
    outer = np.linspace(10, reach, core // 6)[1:] if reach > 10 else np.empty(0)
    targets = np.concatenate([-outer[::-1], inner, outer])
    scores = data.scores(table)
    shifts, _ = record_terms(table, np.append(products, 0.0), data.sigma)
    wanted = [np.interp(-targets, -(scores + s), table) for s in shifts]
    return _thin(np.unique(np.concatenate([*wanted, table])), data)


def _thin(points: FloatArray, data: Data1D) -> FloatArray:
    """Drop points whose scores are equal up to rounding; 0 stays, the curvatures are monotone on either side."""
    scores = data.scores(points)
    step = 1e-11 * np.maximum(1.0, np.abs(scores))
    cells = np.floor(np.concatenate([[0.0], np.cumsum(np.maximum(0.0, -np.diff(scores)) / step[1:])]))
    keep = np.concatenate([[True], np.diff(cells) > 0])
    keep[points == 0] = True
    return np.asarray(points[keep])


def _split(points: FloatArray, chosen: NDArray[np.bool_]) -> FloatArray:
    """Three more points in each chosen cell."""
    left, width = points[:-1][chosen], np.diff(points)[chosen]
    added = left[:, np.newaxis] + width[:, np.newaxis] * np.array([0.25, 0.5, 0.75])
    return np.unique(np.concatenate([points, added.ravel()]))


def renyi_reach(order: float, mu: float, kappa: float) -> float:
    """Where to end the grid so that the tail of the Renyi integral is below e^-40."""
    power = order - 1
    return power * mu + math.sqrt(2 * (41 + power * order * mu * mu / 2 + power * math.log1p(kappa)))


# ---------------------------------------------------------------- two neighbours


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours1D:
    """Two neighbouring data sets of the mechanism: one without a record z, one with it.

    Build it with :func:`~adaptive_dp.per_instance.definitions.neighbouring_pair`. The methods return an
    :class:`~adaptive_dp.per_instance.cells.Interval` that encloses the number; the *two directions* are P = data
    without z, and P = data with z.
    """

    base: Data1D
    product: float

    @property
    def mu(self) -> float:
        """Supremum over theta of |gradient of z| / sigma."""
        return self.base.mu(self.product)

    @property
    def kappa(self) -> float:
        """Supremum over theta of z's second derivative / lam."""
        return self.base.kappa(self.product)

    def log_ratio(self, theta: ArrayLike) -> FloatArray:
        """Exact log p_without(theta) / p_with(theta), shape of ``theta``."""
        points = as_finite_array("theta", theta)
        flat = points.reshape(-1)
        shifts, bends = record_terms(flat, np.array([self.product]), self.base.sigma)
        gradient = shifts[0] * (self.base.scores(flat) + shifts[0] / 2)
        return np.asarray((gradient - np.log1p(bends[0] / self.base.curvatures(flat))).reshape(points.shape))

    def epsilon(self, delta: float, *, tolerance: float = 1e-4) -> tuple[Interval, Interval]:
        """Smallest epsilon at ``delta``, in each of the two directions.

        Parameters
        ----------
        delta : float
            In [1e-250, 1).
        tolerance : float
            The grid is refined until the bounds agree to this relative accuracy, or ``REFINEMENTS`` times.
        """
        budget, wanted = check_delta(delta), check_probability("tolerance", tolerance)

        def enclose(cells: Cells) -> tuple[Interval, FloatArray]:
            found = cells.epsilon(budget)
            at = found.lower if math.isinf(found.upper) else 0.5 * (found.lower + found.upper)
            return found, cells.hockey_upper(at) - cells.hockey_lower(at)

        return self._enclose(enclose, REACH, wanted)

    def delta(self, epsilon: float) -> tuple[Interval, Interval]:
        """Hockey-stick divergence at ``epsilon`` (any real number), in each of the two directions."""
        level = check_real("epsilon", epsilon)

        def enclose(cells: Cells) -> tuple[Interval, FloatArray]:
            low, high = cells.hockey_lower(level), cells.hockey_upper(level)
            return Interval(float(low.sum()), float(min(1.0, high.sum()))), high - low

        return self._enclose(enclose, REACH, 1e-4)

    def renyi(self, order: float, *, tolerance: float = 1e-4) -> tuple[Interval, Interval]:
        """Renyi divergence of ``order`` > 1 in each of the two directions; ``tolerance`` as in :meth:`epsilon`."""
        alpha, wanted = check_order(order), check_probability("tolerance", tolerance)

        def enclose(cells: Cells) -> tuple[Interval, FloatArray]:
            upper = float(cells.renyi_upper(alpha, self.mu, math.log1p(self.kappa)))
            return Interval(float(cells.renyi_lower(alpha)), upper), cells.renyi_gaps(alpha, upper)

        return self._enclose(enclose, renyi_reach(alpha, self.mu, self.kappa), wanted)

    def attained_epsilon(self, delta: float) -> float:
        """Lower bound of epsilon at ``delta``, the larger direction, on the first grid: quick, for searches."""
        return max(cells.lower_epsilon(delta) for cells in self._cells_at(self._first_grid(REACH)))

    def attained_renyi(self, order: float) -> float:
        """Lower bound of the Renyi divergence, the larger direction, on the first grid."""
        points = self._first_grid(renyi_reach(order, self.mu, self.kappa))
        return max(float(cells.renyi_lower(order)) for cells in self._cells_at(points))

    def exceedance(self, level: float, *, present: bool) -> Interval:
        """Probability that the ex-post loss |log_ratio| exceeds ``level``, for data with or without the record."""
        bar = check_real("level", level)

        def enclose(cells: Cells) -> tuple[Interval, FloatArray]:
            mass, (small, large) = np.exp(cells.log_mass), cells.absolute()
            sure, maybe = small > bar, large > bar
            answer = Interval(float(mass[sure].sum()), float(min(1.0, mass[maybe].sum())))
            return answer, np.where(maybe & ~sure, mass, 0.0)

        return self._enclose(enclose, REACH, 1e-6)[int(present)]

    def quantile(self, share: float, *, present: bool) -> Interval:
        """Quantile of the ex-post loss |log_ratio| at ``share``, for data with or without the record."""
        wanted = check_probability("share", share)

        def quantile_of(values: FloatArray, mass: FloatArray) -> float:
            order = np.argsort(values)
            at = int(np.searchsorted(np.cumsum(mass[order]), wanted))
            return float(values[order[min(at, order.size - 1)]])

        def enclose(cells: Cells) -> tuple[Interval, FloatArray]:
            mass, (small, large) = np.exp(cells.log_mass), cells.absolute()
            found = Interval(quantile_of(small, mass), quantile_of(large, mass))
            mixed = (small <= found.upper) & (large >= found.lower)
            return found, np.where(mixed, mass, 0.0)

        return self._enclose(enclose, REACH, 1e-4)[int(present)]

    def _enclose(
        self, enclose: Callable[[Cells], tuple[Interval, FloatArray]], reach: float, tolerance: float
    ) -> tuple[Interval, Interval]:
        """Refine the grid where the gaps are until both directions are enclosed to ``tolerance``."""
        points = self._first_grid(reach)
        answers = [Interval(-math.inf, math.inf)] * 2
        for _ in range(REFINEMENTS):
            worst = np.zeros(points.size - 1)
            for side, cells in enumerate(self._cells_at(points)):
                found, gaps = enclose(cells)
                # Each grid gives valid bounds: the best of all are kept.
                lower = max(answers[side].lower, found.lower)
                answers[side] = Interval(lower, max(lower, min(answers[side].upper, found.upper)))
                if found.upper - found.lower > tolerance * max(abs(found.upper), 1e-12):
                    inner = gaps[1:-1]
                    worst = np.maximum(worst, inner / max(float(inner.sum()), 1e-300))
            chosen = worst > 0.2 / worst.size
            if not chosen.any() or points.size > LARGEST_GRID:
                break
            points = _thin(_split(points, chosen), self.base)
        return answers[0], answers[1]

    def _first_grid(self, reach: float) -> FloatArray:
        return grid(self.base, np.array([self.product]), reach)

    def _cells_at(self, points: FloatArray) -> tuple[Cells, Cells]:
        shifts, bends = record_terms(points, np.array([self.product]), self.base.sigma)
        return normal_cells(self.base.scores(points), shifts[0], self.base.curvatures(points), bends[0])


def pair_of(data: Data1D, product: float, *, member: bool) -> Neighbours1D:
    """The pair D, D+-z: the record ``product`` is removed if it is a ``member``, and added otherwise."""
    return Neighbours1D(data.without(product) if member else data, product)


def check_delta(delta: float) -> float:
    """Return ``delta`` as a float in [1e-250, 1)."""
    budget = check_probability("delta", delta)
    if budget < SMALLEST_DELTA:
        raise ValueError(f"delta must be at least {SMALLEST_DELTA:g}, got {budget!r}")
    return budget


def check_order(order: float) -> float:
    """Return the order of a Renyi divergence as a float in (1, 1e6]."""
    number = check_real("order", order)
    if not 1 < number <= 1e6:
        raise ValueError(f"order must lie in (1, 1e6], got {number!r}")
    return number
