"""The largest gamma of a posterior sample for a privacy budget, from the exact profile.

For one pair of neighbours the profile depends on the leverage h and the mean m alone and grows with |m|, so that each h
has a largest mean M(h). With residuals up to R a budget allows gamma exactly when sqrt(gamma) R times the mean at
gamma = R = 1 stays below M at every h up to the largest: the *scaled precision* gamma R^2 is a function of the largest
leverage alone, worth tabulating where hundreds of proposals share one budget.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from adaptive_dp.ptr.posterior_sampling import (
    GRID,
    SAMPLED,
    PosteriorCurve,
    Side,
    Statistics,
    _delta,
    data_dependent_sides,
)
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_positive,
    check_probability,
)

# The profile is a difference of numbers of size 1 at worst, right to about 1e-16.
SMALLEST_DELTA = 1e-13
TABLE = np.logspace(-9, 4, 391)
# Halvings of the bracket of the mean: to the last place of its upper end.
HALVINGS = 54
# What is taken off every gamma, so that neither roundings nor a maximum between two points lift delta above the budget:
# with it the certified upper bound of delta meets the budget, which largest_gamma checks and tests check of the tables.
MARGIN = 1e-7


def largest_mean(leverage: ArrayLike, *, epsilon: float, delta: float, sampled: str) -> FloatArray:
    """Largest mean |m| that (epsilon, delta) allows at each leverage; nan where even 0 is too much.

    Parameters
    ----------
    leverage : array_like, shape (k,)
        Positive.
    epsilon, delta : float
        Positive; ``delta`` in [1e-13, 1).
    sampled : {"without", "with"}
        See :func:`adaptive_dp.ptr.posterior_sampling.posterior_delta`.

    Returns
    -------
    ndarray, shape (k,)
        By bisection, from below; about 20 microseconds an entry.
    """
    check_choice("sampled", sampled, SAMPLED)
    h = as_finite_array("leverage", leverage, ndim=1)
    if h.size and h.min() <= 0:
        raise ValueError(f"leverage must be positive, got {float(h.min())!r}")
    return _largest_mean(h, *check_budget(epsilon, delta), sampled)


def check_budget(epsilon: object, delta: object) -> tuple[float, float]:
    """Return epsilon > 0 and delta in [1e-13, 1), below which the profile has no digits."""
    e, level = check_positive("epsilon", epsilon), check_probability("delta", delta)
    if level < SMALLEST_DELTA:
        raise ValueError(f"delta must be at least {SMALLEST_DELTA:g} for a calibration, got {level!r}")
    return e, level


def _largest_mean(
    h: FloatArray, epsilon: float, delta: float, sampled: str, halvings: int = HALVINGS
) -> FloatArray:
    e = np.broadcast_to(np.float64(epsilon), h.shape)
    low, high = np.zeros_like(h), np.full_like(h, 1.0 + math.sqrt(2 * epsilon))
    allowed = _delta(e, h, low, sampled) <= delta
    while (short := _delta(e, h, high, sampled) <= delta).any():
        high = np.where(short, 2 * high, high)
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        fits = _delta(e, h, middle, sampled) <= delta
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(allowed, low, np.nan)


def largest_gamma(sides: tuple[Side, ...], *, epsilon: float, delta: float) -> float:
    """Largest gamma for which every pair of the families is (epsilon, delta)-private; 0 where there is none.

    Parameters
    ----------
    sides : tuple of Side
        From :func:`~adaptive_dp.ptr.posterior_sampling.data_dependent_sides` or ``data_independent_sides``.
    epsilon, delta : float

    Returns
    -------
    float
        ``PosteriorCurve(gamma, sides).enclosure(epsilon)`` ends at ``delta`` or below; about 10 ms a side.
    """
    budget = check_budget(epsilon, delta)
    gamma = min(_largest_gamma_of(side, *budget) for side in sides)
    if gamma <= 0:
        return 0.0
    step = 1e-6
    while PosteriorCurve(gamma, sides).enclosure(budget[0])[1] > budget[1]:
        gamma *= 1 - step
        step = min(2 * step, 0.5)  # a handful of rounds, even where an enclosure should stay wide
    return gamma


def rough_gamma(sides: tuple[Side, ...], *, epsilon: float, delta: float) -> float:
    """:func:`largest_gamma` to a few percent, for a search over lam; never for a release."""
    points = np.concatenate([GRID[40:160:12], GRID[160::8]])
    smallest = math.inf
    for side in sides:
        h = side.largest_leverage * points
        means = _largest_mean(h, epsilon, delta, side.sampled, halvings=16)
        smallest = min(smallest, float(np.nan_to_num(np.square(means / side.mean_at_one(h)), nan=0.0).min()))
    return smallest


def _largest_gamma_of(side: Side, epsilon: float, delta: float) -> float:
    def allowed(h: FloatArray) -> FloatArray:
        means = _largest_mean(h, epsilon, delta, side.sampled)
        return np.nan_to_num(np.square(means / side.mean_at_one(h)), nan=0.0)

    points = side.largest_leverage * GRID
    values = allowed(points)
    if values.min() <= 0:
        return 0.0
    lowest = _refined(allowed, points, int(values.argmin()))[1]
    return min(float(values.min()), lowest) * (1 - MARGIN)


def _interior_minima(values: FloatArray) -> list[int]:
    inner = values[1:-1]
    lower = (inner <= values[:-2]) & (inner <= values[2:]) & (inner > 0)
    return [int(at) + 1 for at in np.flatnonzero(lower)]


def _refined(
    function: Callable[[FloatArray], FloatArray], points: FloatArray, at: int
) -> tuple[float, float]:
    """Place and value of the minimum between the neighbours of grid point ``at``."""
    found = minimize_scalar(
        lambda log_h: float(function(np.array([math.exp(log_h)]))[0]),
        bounds=(math.log(points[max(at - 1, 0)]), math.log(points[min(at + 1, points.size - 1)])),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return math.exp(float(found.x)), float(found.fun)


class PosteriorCalibration:
    """Scaled precisions gamma R^2 for one budget, as a function of the largest leverages.

    Parameters
    ----------
    epsilon, delta : float
        What one posterior sample may cost, one-sided: the data at hand against every neighbour.

    Notes
    -----
    The table takes about 0.1 s; :func:`posterior_calibration` keeps it.
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = check_budget(epsilon, delta)
        self._tables = {sampled: self._table(sampled) for sampled in SAMPLED}

    def _allowed(self, h: FloatArray, sampled: str) -> FloatArray:
        means = _largest_mean(h, self.epsilon, self.delta, sampled)
        # The residual of an added record belongs to the fit without it, of a removed one to the fit with it.
        scale = (1 + h) if sampled == "without" else 1.0
        return np.nan_to_num(np.square(means * scale) / h, nan=0.0)

    def _table(self, sampled: str) -> tuple[FloatArray, FloatArray]:
        points, values = TABLE, self._allowed(TABLE, sampled)
        extra = [_refined(lambda h: self._allowed(h, sampled), TABLE, at) for at in _interior_minima(values)]
        for place, value in extra:
            slot = int(np.searchsorted(points, place))
            points, values = np.insert(points, slot, place), np.insert(values, slot, value)
        return points, np.minimum.accumulate(values)

    def _smallest(self, h: FloatArray, sampled: str) -> FloatArray:
        points, running = self._tables[sampled]
        slot = np.searchsorted(points, h, side="right") - 1
        before = np.where(slot >= 0, running[np.maximum(slot, 0)], np.inf)
        return np.minimum(before, self._allowed(h, sampled))

    def scaled_precision(self, added: ArrayLike, removed: ArrayLike) -> FloatArray:
        """Largest gamma R^2; 0 where the budget allows none.

        Parameters
        ----------
        added, removed : array_like, shape (k,)
            Largest leverages of records that may be added and removed, positive
            (:class:`~adaptive_dp.ptr.posterior_sampling.Statistics`).

        Returns
        -------
        ndarray, shape (k,)
        """
        first = as_finite_array("added", added, ndim=1)
        second = as_finite_array("removed", removed, ndim=1)
        if first.size and min(first.min(), second.min()) <= 0:
            raise ValueError("added and removed must be positive leverages")
        both = np.minimum(self._smallest(first, "without"), self._smallest(second, "with"))
        return both * (1 - MARGIN)

    def largest_leverage(self, sampled: str) -> float:
        """Largest leverage at which some gamma > 0 meets the budget: where the change of scale alone uses it up."""
        points, running = self._tables[check_choice("sampled", sampled, SAMPLED)]
        last = int(np.flatnonzero(running > 0)[-1])
        low, high = float(points[last]), float(points[min(last + 1, points.size - 1)])
        e, none = np.asarray(self.epsilon), np.asarray(0.0)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            fits = float(_delta(e, np.asarray(middle), none, sampled)) <= self.delta
            low, high = (middle, high) if fits else (low, middle)
        return low

    def extreme_means(self, sampled: str, leverage: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Given leverages and the largest mean at each, where gamma meets the budget up to that leverage."""
        h = as_finite_array("leverage", leverage, ndim=1)
        allowed = self._smallest(h, check_choice("sampled", sampled, SAMPLED))
        scale = (1 + h) if sampled == "without" else 1.0
        return h, np.asarray(np.sqrt(allowed * h) / scale)

    def gamma(self, statistics: Statistics) -> float:
        """Largest gamma for a data set with these statistics; 0 where there is none."""
        scaled = self.scaled_precision([statistics.leverage_added], [statistics.leverage_removed])
        return float(scaled[0]) / statistics.residual_bound**2


@functools.lru_cache(maxsize=64)
def posterior_calibration(epsilon: float, delta: float) -> PosteriorCalibration:
    """Return the :class:`PosteriorCalibration` of a budget, made once."""
    return PosteriorCalibration(epsilon, delta)


def calibrate_gamma(
    statistics: Statistics, *, epsilon: float, delta: float, two_sided: bool = False
) -> float:
    """Largest gamma from the exact data-dependent profile (erratum 14, S4); 0 where there is none."""
    return largest_gamma(data_dependent_sides(statistics, two_sided=two_sided), epsilon=epsilon, delta=delta)
