"""The family of definitions of privacy, computed for one mechanism and one data set (redberg2023, Table A.1).

The mechanism is objective perturbation of logistic regression in one dimension,

    theta = argmin sum_i log(1 + exp(-y_i x_i theta)) + lam theta^2 / 2 + b theta,   b ~ N(0, sigma^2),

neighbours add or remove one record, and the table says what each definition holds fixed and what that costs.

In one dimension nothing has to be sampled. A record enters through c = y x only, b(theta) = -J'(theta) is strictly
decreasing, so the probability of an interval of theta is a difference of normal distribution functions, for D and
for its neighbour alike. On a cell of a grid the loss l = log p_D / p_{D+z} is enclosed by interval arithmetic: with
t = b/sigma, s = c expit(-c theta)/sigma, H = J'' and h = c^2 expit(c theta) expit(-c theta),

    l = s t + s^2/2 - log(1 + h/H),

where s and t are monotone and h and H are even and fall away from theta = 0, which is a grid point. Hockey-stick and
Renyi divergences are means of convex functions of the likelihood ratio: Jensen's inequality on every cell bounds them
from below, the chord between the ends of the enclosure from above. Both bounds hold for any grid, up to the rounding
of floating point, and the grid is refined where they differ.

What cannot be enclosed is a supremum over *all* data sets. There the upper value is the theorem of the errata (one-
dimensional reduction, section S1), the lower one the worst pair of neighbours that was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.per_instance.calibration import LinearPerturbationCurve
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_ordinary,
    check_probability,
    check_real,
)

LOSS = LogisticLoss()
REACH = 39.0
"""Standard deviations that the grid covers; the normal tail beyond is below the smallest double."""
BLOCK = 1 << 20
BISECTIONS = 60
SMALLEST_DELTA = 1e-250
MOST_PARTS = 256
STEEPEST = 1.1
"""Above sup |d/dc c expit(-c theta)| = sup |expit(-u) - u expit(u) expit(-u)| = 1.0998."""


class Interval(NamedTuple):
    """A number that is known to lie between two bounds."""

    lower: float
    upper: float


def _larger(first: Interval, second: Interval) -> Interval:
    return Interval(max(first.lower, second.lower), max(first.upper, second.upper))


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
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
        """Second derivative of the objective at each ``theta``."""
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
        bound = float(self.weights @ np.abs(self.products)) / self.lam
        if bound == 0:
            return 0.0
        return float(optimize.brentq(lambda x: float(self.scores(np.array([x]))[0]), -bound, bound))

    def change(self, product: float, times: int) -> _Data:
        """The data with a record added (``times`` = 1) or removed (-1)."""
        counts = dict(zip(self.products.tolist(), self.weights.tolist(), strict=True))
        counts[product] = counts.get(product, 0.0) + times
        kept = {c: w for c, w in counts.items() if w > 0}
        return _Data(np.array(list(kept)), np.array(list(kept.values())), self.lam, self.sigma)


def _record_terms(theta: FloatArray, products: FloatArray, sigma: float) -> tuple[FloatArray, FloatArray]:
    """Return s and h of each record at each theta, shape (m, K)."""
    predictions, column = np.outer(products, theta), products[:, np.newaxis]
    shifts = -column * LOSS.derivative(predictions, 1.0) / sigma
    return shifts, column**2 * LOSS.second_derivative(predictions, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Log-probabilities of the cells and bounds of the loss on them, one direction; cells in the last axis."""

    log_mass: FloatArray
    mean: FloatArray
    """log P(cell) / Q(cell): by Jensen the loss of the cell as a whole."""
    low: FloatArray
    high: FloatArray
    ends: FloatArray
    """Smallest |t| in the two unbounded cells, in the coordinate in which P is standard normal; shape (...)."""

    def reverse(self, log_mass: FloatArray, ends: FloatArray) -> _Cells:
        return _Cells(log_mass, -self.mean, -self.high, -self.low, ends)

    def chord(self) -> FloatArray:
        """Weight of the end with the larger loss on the chord; the mean of the likelihood ratio is exact."""
        with np.errstate(over="ignore", invalid="ignore"):
            far, near = np.expm1(self.mean - self.low), np.expm1(self.mean - self.high)
            weight = far / (far - near)
        return np.asarray(np.where(np.isfinite(far), np.nan_to_num(weight, nan=1.0), 1.0))

    def hockey_lower(self, epsilon: FloatArray) -> FloatArray:
        """Each cell's share of the lower bound of the hockey-stick divergence at ``epsilon`` (...)."""
        with np.errstate(over="ignore"):
            gain = np.maximum(0.0, -np.expm1(epsilon[..., np.newaxis] - self.mean))
        return np.asarray(np.exp(self.log_mass) * gain)

    def hockey_upper(self, epsilon: FloatArray, weight: FloatArray | None = None) -> FloatArray:
        """Each cell's share of the upper bound; ``weight`` is the chord, if it is there already."""
        level = epsilon[..., np.newaxis]
        with np.errstate(over="ignore"):
            mixed = (self.chord() if weight is None else weight) * np.maximum(
                0.0, -np.expm1(level - self.high)
            )
            whole = -np.expm1(level - self.mean)
        return np.asarray(np.exp(self.log_mass) * np.where(self.low >= level, whole, mixed))

    def lower_epsilon(self, delta: float) -> FloatArray:
        """Lower bound of the smallest epsilon >= 0 at ``delta``, shape (...)."""
        return self._root(self.hockey_lower, delta, lower=True)

    def epsilon(self, delta: float) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the smallest epsilon >= 0 at ``delta``, shape (...)."""
        upper = partial(self.hockey_upper, weight=self.chord())
        return self.lower_epsilon(delta), self._root(upper, delta, lower=False)

    def _root(self, share: Callable[[FloatArray], FloatArray], delta: float, *, lower: bool) -> FloatArray:
        inside = np.isfinite(self.high)
        top = np.maximum(0.0, np.where(inside, self.high, 0.0).max(axis=-1))
        low, high = np.zeros(top.shape), top
        reached = share(high).sum(axis=-1) <= delta
        done = share(low).sum(axis=-1) <= delta
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            enough = share(middle).sum(axis=-1) <= delta
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(np.where(done, 0.0, low if lower else np.where(reached, high, math.inf)))

    def renyi(self, order: float, mu: ArrayLike, extra: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of the Renyi divergence of ``order`` > 1, shape (...).

        Beyond the grid the loss is at most ``extra`` + mu^2/2 + mu |t|: the tail is added in closed form.
        """
        power = order - 1
        inside = np.isfinite(self.high) & np.isfinite(self.low)
        low, high = np.where(inside, self.low, 0.0), np.where(inside, self.high, 0.0)
        weight = self.chord()
        plain = _log_mean_exp(self.log_mass, power * self.mean)
        with np.errstate(divide="ignore"):
            logs = np.logaddexp(np.log(weight) + power * high, np.log1p(-weight) + power * low)
        body = _log_mean_exp(np.where(inside, self.log_mass, -math.inf), logs)
        tail = self.tail(order, mu, extra)
        return np.asarray(np.maximum(plain, 0.0) / power), np.asarray(np.logaddexp(body, tail) / power)

    def tail(self, order: float, mu: ArrayLike, extra: ArrayLike) -> FloatArray:
        """Log of the bound of what lies beyond the grid."""
        power, shift = order - 1, np.asarray(mu)
        envelope = power * (np.asarray(extra) + shift**2 / 2) + (power * shift) ** 2 / 2
        return np.asarray(math.log(2) + envelope + special.log_ndtr(power * shift - self.ends))


def _log_mean_exp(log_mass: FloatArray, exponents: FloatArray) -> FloatArray:
    """Log of the sum of mass exp(exponent), exact also when it is close to the total mass of 1."""
    plain = special.logsumexp(log_mass + exponents, axis=-1)
    with np.errstate(over="ignore"):
        excess = (np.exp(log_mass) * np.expm1(np.minimum(exponents, 700.0))).sum(axis=-1)
    small = (np.abs(excess) < 0.5) & (np.where(log_mass > -math.inf, exponents, 0.0).max(axis=-1) < 700)
    # A mass that was left out counts as one with exponent 0 here: larger, never smaller.
    return np.asarray(np.where(small, np.log1p(np.where(small, excess, 0.0)), plain))


def _log_normal_mass(high: FloatArray, low: FloatArray) -> FloatArray:
    """log(Phi(high) - Phi(low)) for high > low, without cancellation in either tail."""
    flip = low > 0
    top, bottom = np.where(flip, -low, high), np.where(flip, -high, low)
    ceiling = special.log_ndtr(top)
    with np.errstate(divide="ignore"):
        return np.asarray(ceiling + np.log(-np.expm1(special.log_ndtr(bottom) - ceiling)))


def _cells(
    scores: FloatArray, shifts: FloatArray, base: FloatArray, bends: FloatArray
) -> tuple[_Cells, _Cells]:
    """Both directions, first the one in which the record is absent from P.

    Parameters
    ----------
    scores : ndarray, shape (..., K)
        t without the record at the grid points, strictly decreasing.
    shifts, bends : ndarray, shape (..., K)
        s and h of the record.
    base : ndarray, shape (..., K)
        H without the record.
    """
    with_record = scores + shifts
    edges = [_with_ends(scores), _with_ends(with_record)]
    absent, present = (_log_normal_mass(t[..., :-1], t[..., 1:]) for t in edges)
    middle = scores + shifts / 2
    corners = [
        a * b for a in (shifts[..., :-1], shifts[..., 1:]) for b in (middle[..., :-1], middle[..., 1:])
    ]
    h, H = (np.stack([part[..., :-1], part[..., 1:]]) for part in (bends, base))
    low = np.min(corners, axis=0) - np.log1p(h.max(axis=0) / H.min(axis=0))
    high = np.max(corners, axis=0) - np.log1p(h.min(axis=0) / H.max(axis=0))
    pad = [(0, 0)] * (low.ndim - 1) + [(1, 1)]
    low = np.pad(low, pad, constant_values=-math.inf)
    high = np.pad(high, pad, constant_values=math.inf)
    empty = ~np.isfinite(absent) | ~np.isfinite(present)
    mean = np.where(empty, 0.0, absent) - np.where(empty, 0.0, present)
    # On a narrow cell the difference of two rounded masses is worse than what interval arithmetic knows already.
    mean = np.clip(np.where(empty, 0.0, mean), low, np.maximum(low, high))
    first, second = (np.minimum(np.abs(t[..., 0]), np.abs(t[..., -1])) for t in (scores, with_record))
    forward = _Cells(absent, mean, low, high, first)
    return forward, forward.reverse(present, second)


def _with_ends(scores: FloatArray) -> FloatArray:
    pad = [(0, 0)] * (scores.ndim - 1)
    left = np.pad(scores, [*pad, (1, 0)], constant_values=math.inf)
    return np.pad(left, [*pad, (0, 1)], constant_values=-math.inf)


def _grid(data: _Data, products: FloatArray, reach: float, core: int = 300) -> FloatArray:
    """Points of theta that resolve the laws of the data and of the data with each of ``products`` added.

    They need not be equally spaced in anything: probabilities of the cells are exact wherever the points are.
    """
    width = float(np.abs(products).max(initial=0.0))
    span = (reach * data.sigma + float(data.weights @ np.abs(data.products)) + width) / data.lam * 1.01
    centre = data.minimiser()
    scale = min(data.sigma / float(data.curvatures(np.array([centre]))[0]), 1 / max(width, 1e-100), span) / 20
    arcs = np.arange(-math.asinh(2 * span / scale), math.asinh(2 * span / scale) + 0.2, 0.2)
    table = np.unique(
        np.clip(np.concatenate([centre + scale * np.sinh(arcs), scale * np.sinh(arcs)]), -span, span)
    )
    table = np.unique(np.append(table, 0.0))
    inner = np.linspace(-10, 10, core)
    outer = np.linspace(10, reach, core // 6)[1:] if reach > 10 else np.empty(0)
    targets = np.concatenate([-outer[::-1], inner, outer])
    scores = data.scores(table)
    shifts, _ = _record_terms(table, np.append(products, 0.0), data.sigma)
    wanted = [np.interp(-targets, -(scores + s), table) for s in shifts]
    return _thin(np.unique(np.concatenate([*wanted, table])), data)


def _thin(points: FloatArray, data: _Data) -> FloatArray:
    """Drop points whose scores are equal up to rounding; 0 stays, the curvatures are monotone on either side."""
    scores = data.scores(points)
    step = 1e-11 * np.maximum(1.0, np.abs(scores))
    cells = np.floor(np.concatenate([[0.0], np.cumsum(np.maximum(0.0, -np.diff(scores)) / step[1:])]))
    keep = np.concatenate([[True], np.diff(cells) > 0])
    keep[points == 0] = True
    return np.asarray(points[keep])


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours1D:
    """Two neighbouring data sets of the mechanism: one without a record z, one with it.

    Build it with :func:`neighbouring_pair`. All methods return an :class:`Interval` that encloses the number; the
    *two directions* are P = data without z, and P = data with z.
    """

    base: _Data
    product: float

    @property
    def mu(self) -> float:
        """Supremum over theta of |gradient of z| / sigma."""
        return abs(self.product) / self.base.sigma

    @property
    def kappa(self) -> float:
        """Supremum over theta of z's second derivative / lam."""
        return LOSS.curvature * self.product**2 / self.base.lam

    def log_ratio(self, theta: ArrayLike) -> FloatArray:
        """Exact log p_without(theta) / p_with(theta), shape of ``theta``."""
        points = as_finite_array("theta", theta)
        flat = points.reshape(-1)
        shifts, bends = _record_terms(flat, np.array([self.product]), self.base.sigma)
        gradient = shifts[0] * (self.base.scores(flat) + shifts[0] / 2)
        return np.asarray((gradient - np.log1p(bends[0] / self.base.curvatures(flat))).reshape(points.shape))

    def epsilon(self, delta: float, *, tolerance: float = 1e-4) -> tuple[Interval, Interval]:
        """Smallest epsilon at ``delta``, in each of the two directions.

        Parameters
        ----------
        delta : float
            In [1e-250, 1).
        tolerance : float
            The grid is refined until the bounds agree to this relative accuracy, or 12 times.
        """
        budget, wanted = _check_delta(delta), check_probability("tolerance", tolerance)

        def enclose(cells: _Cells) -> tuple[Interval, FloatArray]:
            low, high = cells.epsilon(budget)
            at = np.asarray(low if not np.isfinite(high) else 0.5 * (low + high))
            gaps = cells.hockey_upper(at) - cells.hockey_lower(at)
            return Interval(float(low), float(high)), gaps

        return self._enclose(enclose, REACH, wanted)

    def delta(self, epsilon: float, *, tolerance: float = 1e-4) -> tuple[Interval, Interval]:
        """Hockey-stick divergence at ``epsilon`` (any real number), in each of the two directions."""
        level, wanted = np.asarray(check_real("epsilon", epsilon)), check_probability("tolerance", tolerance)

        def enclose(cells: _Cells) -> tuple[Interval, FloatArray]:
            low, high = cells.hockey_lower(level), cells.hockey_upper(level)
            return Interval(float(low.sum()), float(min(1.0, high.sum()))), high - low

        return self._enclose(enclose, REACH, wanted)

    def renyi(self, order: float, *, tolerance: float = 1e-4) -> tuple[Interval, Interval]:
        """Renyi divergence of ``order`` > 1 in each of the two directions."""
        power, wanted = _check_order(order) - 1, check_probability("tolerance", tolerance)
        extra = math.log1p(self.kappa)

        def enclose(cells: _Cells) -> tuple[Interval, FloatArray]:
            low, high = cells.renyi(order, self.mu, extra)
            weight = cells.chord()
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                ends = np.logaddexp(
                    np.log(weight) + power * cells.high, np.log1p(-weight) + power * cells.low
                )
                upper, lower = cells.log_mass + ends, cells.log_mass + power * cells.mean
                gaps = np.exp(upper - power * high) - np.exp(lower - power * high)
            return Interval(float(low), float(high)), np.nan_to_num(gaps, nan=0.0, posinf=0.0)

        return self._enclose(enclose, _renyi_reach(order, self.mu, self.kappa), wanted)

    def attained_epsilon(self, delta: float) -> float:
        """Lower bound of epsilon at ``delta``, the larger direction, on the first grid: quick, for searches."""
        points = _grid(self.base, np.array([self.product]), REACH)
        return max(float(cells.lower_epsilon(delta)) for cells in self._cells_at(points))

    def attained_renyi(self, order: float) -> float:
        """Lower bound of the Renyi divergence, the larger direction, on the first grid."""
        points = _grid(self.base, np.array([self.product]), _renyi_reach(order, self.mu, self.kappa))
        extra = math.log1p(self.kappa)
        return max(float(cells.renyi(order, self.mu, extra)[0]) for cells in self._cells_at(points))

    def exceedance(self, level: float, *, present: bool) -> Interval:
        """Probability that the ex-post loss |log_ratio| exceeds ``level``, for data with or without the record."""
        bar = check_real("level", level)

        def enclose(cells: _Cells) -> tuple[Interval, FloatArray]:
            mass, (small, large) = np.exp(cells.log_mass), _absolute(cells)
            sure, maybe = small > bar, large > bar
            answer = Interval(float(mass[sure].sum()), float(min(1.0, mass[maybe].sum())))
            return answer, np.where(maybe & ~sure, mass, 0.0)

        return self._enclose(enclose, REACH, 1e-6)[int(present)]

    def quantile(self, share: float, *, present: bool) -> Interval:
        """Quantile of the ex-post loss |log_ratio| at ``share``, for data with or without the record."""
        wanted = check_probability("share", share)

        def enclose(cells: _Cells) -> tuple[Interval, FloatArray]:
            mass, ends = np.exp(cells.log_mass), _absolute(cells)
            found = []
            for values in ends:
                order = np.argsort(values)
                at = int(np.searchsorted(np.cumsum(mass[order]), wanted))
                found.append(float(values[order[min(at, order.size - 1)]]))
            mixed = (ends[0] <= found[1]) & (ends[1] >= found[0])
            return Interval(*found), np.where(mixed, mass, 0.0)

        return self._enclose(enclose, REACH, 1e-4)[int(present)]

    def _enclose(
        self, enclose: Callable[[_Cells], tuple[Interval, FloatArray]], reach: float, tolerance: float
    ) -> tuple[Interval, Interval]:
        """Refine the grid where the gaps are until both directions are enclosed to ``tolerance``."""
        points = _grid(self.base, np.array([self.product]), reach)
        answers = [Interval(-math.inf, math.inf)] * 2
        for _ in range(12):
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
            if not chosen.any() or points.size > 100_000:
                break
            points = _thin(_split(points, chosen), self.base)
        return answers[0], answers[1]

    def _cells_at(self, points: FloatArray) -> tuple[_Cells, _Cells]:
        shifts, bends = _record_terms(points, np.array([self.product]), self.base.sigma)
        return _cells(self.base.scores(points), shifts[0], self.base.curvatures(points), bends[0])


def _split(points: FloatArray, chosen: NDArray[np.bool_]) -> FloatArray:
    left, width = points[:-1][chosen], np.diff(points)[chosen]
    added = left[:, np.newaxis] + width[:, np.newaxis] * np.array([0.25, 0.5, 0.75])
    return np.unique(np.concatenate([points, added.ravel()]))


def _absolute(cells: _Cells) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest |loss| that each cell allows."""
    small = np.maximum(0.0, np.maximum(cells.low, -cells.high))
    return small, np.maximum(np.abs(cells.low), np.abs(cells.high))


def _renyi_reach(order: float, mu: float, kappa: float) -> float:
    """Where to end the grid so that the tail of the Renyi integral is below e^-40."""
    power = order - 1
    return power * mu + math.sqrt(2 * (41 + power * order * mu * mu / 2 + power * math.log1p(kappa)))


def _check_delta(delta: float) -> float:
    budget = check_probability("delta", delta)
    if budget < SMALLEST_DELTA:
        raise ValueError(f"delta must be at least {SMALLEST_DELTA:g}, got {budget!r}")
    return budget


def _check_order(order: float) -> float:
    number = check_real("order", order)
    if not 1 < number <= 1e6:
        raise ValueError(f"order must lie in (1, 1e6], got {number!r}")
    return number


def neighbouring_pair(
    dataset: Dataset, *, feature: float, label: float, lam: float, sigma: float
) -> Neighbours1D:
    """The pair D, D+-z: the record z = (feature, label) is removed if it is in the data, and added if it is not.

    Parameters
    ----------
    dataset : Dataset
        One feature, labels in {-1, +1}.
    feature, label : float
        The record; must obey the domain of ``dataset``.
    lam : float
        Factor of theta^2 / 2, beside the *sum* of the losses; between 1e-100 and 1e100, as is ``sigma``.
    sigma : float
        Standard deviation of the noise b.

    Raises
    ------
    ValueError, TypeError
        More than one feature, other labels, a record outside the domain, parameters that are not positive.
    """
    data = _data_of(dataset, lam, sigma)
    product, member = _record_of(dataset, feature, label)
    return Neighbours1D(data.change(product, -1) if member else data, product)


def log_density(theta: ArrayLike, dataset: Dataset, *, lam: float, sigma: float) -> FloatArray:
    """Log-density of the published theta, log phi(b(theta)/sigma) + log(J''(theta)/sigma); shape of ``theta``."""
    data, points = _data_of(dataset, lam, sigma), as_finite_array("theta", theta)
    flat = points.reshape(-1)
    logs = -0.5 * data.scores(flat) ** 2 - 0.5 * math.log(2 * math.pi) + np.log(data.curvatures(flat) / sigma)
    return np.asarray(logs.reshape(points.shape))


def log_ratio_growth(
    dataset: Dataset, *, feature: float, label: float, lam: float, sigma: float
) -> pd.DataFrame:
    """Why no finite pure epsilon exists: the log-ratio at outcomes that need more and more noise.

    As theta runs to the side on which z is misclassified its gradient tends to c, and the log-ratio grows like
    |c| |b| / sigma^2 without end. Arguments as in :func:`neighbouring_pair`.

    Returns
    -------
    pandas.DataFrame
        ``noise`` (|b| / sigma needed, on the data without z), ``theta``, ``log_ratio`` (absolute), ``bound``
        (mu^2/2 + mu |b|/sigma, the asymptote up to a constant) and ``probability`` of needing at least that much.
    """
    pair = neighbouring_pair(dataset, feature=feature, label=label, lam=lam, sigma=sigma)
    side = 1.0 if pair.product >= 0 else -1.0
    levels = np.array([0.0, 1, 2, 4, 8, 16, 32])
    span = (
        levels[-1] * pair.base.sigma + float(pair.base.weights @ np.abs(pair.base.products)) + 1
    ) / pair.base.lam
    theta = np.array(
        [
            optimize.brentq(lambda x, t=t: float(pair.base.scores(np.array([x]))[0]) - side * t, -span, span)
            for t in levels
        ]
    )
    return pd.DataFrame(
        {
            "noise": levels,
            "theta": theta,
            "log_ratio": np.abs(pair.log_ratio(theta)),
            "bound": pair.mu**2 / 2 + pair.mu * levels,
            "probability": special.ndtr(-levels),
        }
    )


def renyi_bound(order: float, mu: float, kappa: float) -> float:
    """Renyi divergence of objective perturbation of a generalised linear loss: a bound for both directions, any lam.

    Without z in P: the smaller of alpha mu^2/2 + log(2 Phi((alpha-1) mu))/(alpha-1) and, where 2 (alpha-1) kappa < 1,
    mu^2/2 + (alpha-1) mu^2/(2 w) - log(w)/(2 (alpha-1)) with w = 1 - 2 (alpha-1) kappa. With z in P:
    log(1+kappa) + alpha mu^2/2.

    Parameters
    ----------
    order : float
        alpha in (1, 1e6].
    mu, kappa : float
        sup |f'| ||x|| / sigma and sup f'' ||x||^2 / lam; nonnegative.

    Notes
    -----
    Errata to redberg2023, section S1 (the "with z" proof is the referee's: the printed one does not give it).
    """
    alpha = _check_order(order)
    shift, bend = check_real("mu", mu), check_real("kappa", kappa)
    for name, number in (("mu", shift), ("kappa", bend)):
        if number < 0:
            raise ValueError(f"{name} must be nonnegative, got {number!r}")
    power = alpha - 1
    absent = alpha * shift**2 / 2 + (math.log(2) + float(special.log_ndtr(power * shift))) / power
    left = 1 - 2 * power * bend
    if left > 0:
        absent = min(absent, shift**2 / 2 + power * shift**2 / (2 * left) - math.log(left) / (2 * power))
    return max(absent, math.log1p(bend) + alpha * shift**2 / 2)


def definitions_table(
    dataset: Dataset,
    *,
    feature: float,
    label: float,
    lam: float,
    sigma: float,
    delta: float,
    order: float = 2.0,
    outcome: float | None = None,
) -> pd.DataFrame:
    """Every definition of Table A.1 as a number, for one data set and one person.

    Parameters
    ----------
    dataset, feature, label, lam, sigma
        As in :func:`neighbouring_pair`. The domain's bound R on the absolute feature is the one suprema run over.
    delta : float
        In [1e-250, 1).
    order : float
        Order alpha > 1 of the Renyi rows.
    outcome : float, optional
        The theta of the ex-post row; by default the minimiser without noise.

    Returns
    -------
    pandas.DataFrame
        A row for each definition: ``definition``, ``fixed`` (what is held fixed), ``quantity``, ``lower`` and
        ``value`` (the number lies between them; ``value`` is the guarantee, ``lower`` is attained by a pair of data
        sets that was looked at), ``note``. For one quantity the rows are ordered:

            per-instance <= data-dependent <= approximate,   per-instance <= personalized <= approximate,

        in both columns, and for the Renyi rows likewise. The ex-post loss is a random variable: no order holds at
        an outcome; its last row says how often it exceeds the per-instance epsilon.
    """
    data = _data_of(dataset, lam, sigma)
    product, member = _record_of(dataset, feature, label)
    budget, alpha = _check_delta(delta), _check_order(order)
    theta = data.minimiser() if outcome is None else check_real("outcome", outcome)
    pair = Neighbours1D(data.change(product, -1) if member else data, product)
    bound = dataset.domain.feature_bound
    rows: list[tuple[str, str, str, float, float, str]] = []

    sides = pair.epsilon(budget)
    instance = _larger(*sides)
    by_data, by_person, worst = _epsilon_rows(data, pair, bound, budget, instance)
    renyi_sides = pair.renyi(alpha)
    renyi_instance = _larger(*renyi_sides)
    renyi_data, renyi_printed, renyi_person, renyi_worst = _renyi_rows(
        data, pair, bound, alpha, renyi_instance, renyi_sides[int(member)]
    )
    growth = float(
        np.abs(
            log_ratio_growth(dataset, feature=feature, label=label, lam=lam, sigma=sigma)["log_ratio"]
        ).max()
    )
    at, renyi = f"epsilon at delta = {budget:g}", f"Renyi divergence of order {alpha:g}"
    either = "both directions"
    theorem = "value: theorem for all data; lower: worst pair found"
    sup = "value: no neighbour exceeds it; lower: worst neighbour found"
    rows += [
        (
            "pure DP",
            "nothing",
            "epsilon",
            growth,
            math.inf,
            "the log-ratio grows with the noise without end; lower: at 32 sigma",
        ),
        ("approximate DP", "nothing", at, *worst, theorem),
        ("data-dependent DP", "D", at, *by_data, f"{sup}; {either}"),
        ("personalized DP", "z", at, *by_person, theorem),
        ("per-instance DP", "D and z", at, *instance, f"enclosed; {either}"),
        ("Rényi DP", "nothing", renyi, *renyi_worst, theorem),
        ("data-dependent DP", "D", renyi, *renyi_data, f"{sup}; {either}"),
        (
            "data-dependent DP",
            "D",
            f"{renyi}, D first",
            *renyi_printed,
            f"{sup}; one direction, as in Table A.1",
        ),
        ("personalized DP", "z", renyi, *renyi_person, theorem),
        ("per-instance DP", "D and z", renyi, *renyi_instance, f"enclosed; {either}"),
    ]
    loss = float(np.abs(pair.log_ratio(theta)))
    fixed = "D, z and outcome"
    rows.append(("ex-post per-instance DP", fixed, f"loss at theta = {theta:.6g}", loss, loss, "exact"))
    for share in (0.5, 0.95):
        found = pair.quantile(share, present=member)
        rows.append(
            ("ex-post per-instance DP", "D and z", f"{share:.0%} quantile of the loss", *found, "under D")
        )
    above = pair.exceedance(instance.upper, present=member)
    rows.append(
        (
            "ex-post per-instance DP",
            "D and z",
            "probability that the loss exceeds the per-instance epsilon",
            *above,
            "under D; no order holds outcome by outcome",
        )
    )
    return pd.DataFrame.from_records(
        rows, columns=["definition", "fixed", "quantity", "lower", "value", "note"]
    )


def _epsilon_rows(
    data: _Data, pair: Neighbours1D, bound: float, delta: float, instance: Interval
) -> tuple[Interval, Interval, Interval]:
    """Epsilon at ``delta``: data-dependent, personalized, approximate."""
    ceiling = _theorem_epsilon(bound, data, delta)
    by_data = _NeighboursOf(data, bound).epsilon(delta, instance, ceiling)
    found = max([instance.lower, *(p.attained_epsilon(delta) for p in _hard_pairs(data, pair.product))])
    own = max(_theorem_epsilon(abs(pair.product), data, delta), instance.upper)
    worst = max([found, by_data.lower, *(p.attained_epsilon(delta) for p in _hard_pairs(data, bound))])
    return by_data, Interval(found, own), Interval(worst, max(ceiling, by_data.upper, own))


def _renyi_rows(
    data: _Data, pair: Neighbours1D, bound: float, order: float, instance: Interval, printed: Interval
) -> tuple[Interval, Interval, Interval, Interval]:
    """Renyi divergence: data-dependent in both directions and in one, personalized, worst case."""

    def theorem(size: float) -> float:
        return renyi_bound(order, size / data.sigma, LOSS.curvature * size**2 / data.lam)

    search = _NeighboursOf(
        data, bound, _renyi_reach(order, bound / data.sigma, LOSS.curvature * bound**2 / data.lam)
    )
    one = search.renyi(order, printed, theorem(bound), both=False)
    both = search.renyi(order, _larger(instance, Interval(one.lower, 0.0)), theorem(bound), both=True)
    found = max([instance.lower, *(p.attained_renyi(order) for p in _hard_pairs(data, pair.product))])
    own = max(theorem(abs(pair.product)), instance.upper)
    worst = max([found, both.lower, *(p.attained_renyi(order) for p in _hard_pairs(data, bound))])
    return both, one, Interval(found, own), Interval(worst, max(theorem(bound), both.upper, own))


def _hard_pairs(data: _Data, product: float) -> Iterator[Neighbours1D]:
    """Pairs that are known to be hard: nobody else, copies of z, and people who pull against z; then D itself."""
    if product == 0:
        return
    for copies in ((0, 0), (1, 0), (0, 1), (5, 0), (0, 5), (5, 5)):
        kept = [(c, float(k)) for c, k in zip((product, -product), copies, strict=True) if k]
        products, weights = np.array([c for c, _ in kept]), np.array([k for _, k in kept])
        yield Neighbours1D(_Data(products, weights, data.lam, data.sigma), product)
    yield Neighbours1D(data, product)


def _theorem_epsilon(size: float, data: _Data, delta: float) -> float:
    if size == 0:
        return 0.0
    return LinearPerturbationCurve(size / data.sigma, LOSS.curvature * size**2 / data.lam).epsilon(delta)


class _NeighboursOf:
    """All neighbours of one data set: any record of the domain added, any member removed.

    Members are finitely many. Records to add form the interval c in [-R, R]: on |c' - c| <= r the loss moves by at most

        rho = r (1.1 T / sigma + R / (2 H)),

    where T bounds |t + s| and H bounds J'' from below on all theta but a set of probability ``tail``; then
    delta_{c'}(epsilon) <= tail + e^rho delta_c(epsilon - rho) in either direction. Intervals of c that this does not
    rule out are halved: branch and bound.
    """

    def __init__(self, data: _Data, bound: float, reach: float = REACH) -> None:
        self.data, self.bound = data, bound
        self.points = _grid(data, np.array([bound, -bound]), reach, core=160)
        self.scores, self.curvatures = data.scores(self.points), data.curvatures(self.points)

    def added(self, products: FloatArray) -> tuple[_Cells, _Cells]:
        """Cells for each record added, leading axis (m,); P = the data first."""
        shifts, bends = _record_terms(self.points, products, self.data.sigma)
        return _cells(
            np.broadcast_to(self.scores, shifts.shape),
            shifts,
            np.broadcast_to(self.curvatures, bends.shape),
            bends,
        )

    def removed(self, products: FloatArray) -> tuple[_Cells, _Cells]:
        """Cells for each member removed; P = the data without her first."""
        shifts, bends = _record_terms(self.points, products, self.data.sigma)
        base = np.maximum(self.curvatures - bends, self.data.lam)
        return _cells(self.scores - shifts, shifts, base, bends)

    def pairs(self) -> Iterator[tuple[float, bool]]:
        """Records to try: a grid of additions with both ends, then every distinct member."""
        yield from ((float(c), False) for c in np.linspace(-self.bound, self.bound, 17))
        yield from ((float(c), True) for c in self.data.products)

    def pair(self, product: float, member: bool) -> Neighbours1D:
        return Neighbours1D(self.data.change(product, -1) if member else self.data, product)

    def blocks(self) -> Iterator[tuple[FloatArray, bool, tuple[_Cells, _Cells]]]:
        """The records to try, with their cells, in blocks that fit in memory."""
        for member in (False, True):
            chosen = np.array([c for c, m in self.pairs() if m == member])
            for start in range(0, chosen.size, 64):
                part = chosen[start : start + 64]
                yield part, member, self.removed(part) if member else self.added(part)

    def move(self, radius: float, reach: float) -> float:
        """Return rho for a half-width ``radius``, on theta whose t is within ``reach`` for D and D+c."""
        mu = self.bound / self.data.sigma
        inside = np.flatnonzero(np.abs(self.scores) <= reach + mu)
        first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, self.points.size - 1)
        lowest = min(float(self.curvatures[first]), float(self.curvatures[last]))
        return radius * (STEEPEST * (reach + 2 * mu) / self.data.sigma + self.bound / (2 * lowest))

    def epsilon(self, delta: float, start: Interval, ceiling: float) -> Interval:
        """Supremum of epsilon at ``delta`` over all neighbours, at least ``start`` and at most ``ceiling``."""
        best = start
        for product in (self.bound, -self.bound):
            best = _larger(best, _larger(*self.pair(product, False).epsilon(delta, tolerance=1e-3)))
        for part, member, cells in self.blocks():
            for _ in range(part.size):
                level = np.asarray(best.lower)
                shares = np.max([side.hockey_lower(level).sum(axis=-1) for side in cells], axis=0)
                at = int(np.argmax(shares))
                if shares[at] <= delta * (1 + 1e-3):
                    break
                found = _larger(*self.pair(float(part[at]), member).epsilon(delta, tolerance=1e-3))
                if found.lower <= best.lower:
                    break
                best = _larger(best, found)
        tail = 1e-4 * delta
        reach = -float(special.ndtri(tail / 2))
        for slack in (0.005, 0.02, 0.1):
            target = max(best.upper, best.lower * (1 + slack) + 1e-9)

            def safe(cells: tuple[_Cells, _Cells], rho: float, target: float = target) -> NDArray[np.bool_]:
                level = np.asarray(target - rho)
                over = np.max([side.hockey_upper(level).sum(axis=-1) for side in cells], axis=0)
                return np.asarray(over <= (delta - tail) * math.exp(-rho))

            if target >= ceiling:
                break
            if self._certify(safe, reach):
                return Interval(best.lower, target)
        return Interval(best.lower, max(ceiling, start.upper))

    def renyi(self, order: float, start: Interval, ceiling: float, *, both: bool) -> Interval:
        """Supremum of the Renyi divergence over all neighbours; ``both`` directions, or the data first."""
        best, power = start, order - 1

        def bounds(
            cells: tuple[_Cells, _Cells], sizes: FloatArray, member: bool
        ) -> list[tuple[FloatArray, FloatArray]]:
            extra = np.log1p(LOSS.curvature * sizes**2 / self.data.lam)
            chosen = cells if both else cells[int(member) : int(member) + 1]
            return [side.renyi(order, sizes / self.data.sigma, extra) for side in chosen]

        for part, member, cells in self.blocks():
            lows = np.max([low for low, _ in bounds(cells, np.abs(part), member)], axis=0)
            at = int(np.argmax(lows))
            if lows[at] > best.lower:
                sides = self.pair(float(part[at]), member).renyi(order, tolerance=1e-3)
                best = _larger(best, _larger(*sides) if both else sides[int(member)])
        reach = _renyi_reach(
            order, self.bound / self.data.sigma, LOSS.curvature * self.bound**2 / self.data.lam
        )
        for slack in (0.05, 0.25):
            target = max(best.upper, best.lower * (1 + slack) + 1e-12)

            def safe(cells: tuple[_Cells, _Cells], rho: float, target: float = target) -> NDArray[np.bool_]:
                # rho = 0 marks members, who may be enclosed as they are.
                sizes = np.full(cells[0].ends.shape, self.bound)
                highs = [high for _, high in bounds(cells, sizes, rho == 0)]
                over = np.logaddexp(order * rho + power * np.max(highs, axis=0), -40.0) / power
                return np.asarray(over <= target)

            if target >= ceiling:
                break
            if self._certify(safe, reach):
                return Interval(best.lower, target)
        return Interval(best.lower, max(ceiling, start.upper))

    def _certify(
        self, safe: Callable[[tuple[_Cells, _Cells], float], NDArray[np.bool_]], reach: float
    ) -> bool:
        """Whether ``safe`` holds for every neighbour; False also if that could not be settled in time."""
        for start in range(0, self.data.products.size, 64):
            if not safe(self.removed(self.data.products[start : start + 64]), 0.0).all():
                return False
        parts = 16
        centres = (np.arange(parts) + 0.5) * 2 * self.bound / parts - self.bound
        for _ in range(14):
            radius = self.bound / parts
            rho = self.move(radius, reach)
            fine = [safe(self.added(centres[k : k + 64]), rho) for k in range(0, centres.size, 64)]
            left = centres[~np.concatenate(fine)]
            if left.size == 0:
                return True
            if left.size > MOST_PARTS:
                return False
            centres, parts = np.concatenate([left - radius / 2, left + radius / 2]), 2 * parts
        return False


def _data_of(dataset: Dataset, lam: float, sigma: float) -> _Data:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be a Dataset, got {type(dataset).__name__}")
    if dataset.columns != 1:
        raise ValueError(f"dataset must have one feature, got {dataset.columns}")
    if dataset.domain.labels != "sign":
        raise ValueError(f"dataset must have labels in {{-1, +1}}, got {dataset.domain.describe_labels()}")
    products, counts = np.unique(dataset.features[:, 0] * dataset.labels, return_counts=True)
    return _Data(
        products, counts.astype(np.float64), check_ordinary("lam", lam), check_ordinary("sigma", sigma)
    )


def _record_of(dataset: Dataset, feature: float, label: float) -> tuple[float, bool]:
    """The record's c = y x, and whether it is in the data."""
    x, y = check_real("feature", feature), check_real("label", label)
    dataset.domain.check([[x]], [y])
    return x * y, bool(((dataset.features[:, 0] == x) & (dataset.labels == y)).any())
