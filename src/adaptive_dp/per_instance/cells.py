"""Divergences of two laws on the line, enclosed from what is known on the cells of a grid.

On each cell two things are known: its probabilities under P and Q, exactly, and an interval that holds the loss
l = log dP/dQ everywhere on it. Hockey-stick and Renyi divergences are means under P of convex functions of the
likelihood ratio dQ/dP, whose mean on the cell is known too. Jensen's inequality on every cell bounds them from below,
the chord between the ends of the interval from above. Both bounds hold for any grid, up to the rounding of floating
point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from adaptive_dp.validation import FloatArray

ROOT_TOLERANCE = 1e-9  # relative; both sides stay on their side of the root


class Interval(NamedTuple):
    """A number that is known to lie between two bounds."""

    lower: float
    upper: float


def larger(first: Interval, second: Interval) -> Interval:
    """Enclose the larger of two numbers."""
    return Interval(max(first.lower, second.lower), max(first.upper, second.upper))


@dataclass(frozen=True, eq=False)
class Cells:
    """What is known on each cell, for one direction (P, Q); cells in the last axis, the outer two unbounded.

    log_mass : log P(cell), shape (..., m), or (m,) where P is the same for all
    mean : log P(cell) / Q(cell), by Jensen the loss of the cell as a whole; shape (..., m)
    low, high : bounds of the loss, shape (..., m); infinite in the two unbounded cells
    ends : smallest |t| in the unbounded cells, where t is standard normal under P; shape (...)
    """

    log_mass: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    ends: FloatArray

    def reverse(self, log_mass: FloatArray, ends: FloatArray) -> Cells:
        """The other direction (Q, P), with log Q(cell) and the ends where Q is standard normal."""
        return Cells(log_mass, -self.mean, -self.high, -self.low, ends)

    @cached_property
    def chord(self) -> FloatArray:
        """Weight of ``high``: mixed with ``low`` it has the likelihood ratio's true mean on the cell."""
        with np.errstate(over="ignore", invalid="ignore"):
            far, near = np.expm1(self.mean - self.low), np.expm1(self.mean - self.high)
            weight = far / (far - near)
        return np.asarray(np.where(np.isfinite(far), np.nan_to_num(weight, nan=1.0), 1.0))

    # ------------------------------------------------------------ hockey-stick divergence

    def hockey_lower(self, epsilon: ArrayLike) -> FloatArray:
        """Each cell's share of the lower bound of the hockey-stick divergence at ``epsilon``, shape (...)."""
        with np.errstate(over="ignore"):
            gain = np.maximum(0.0, -np.expm1(np.asarray(epsilon)[..., np.newaxis] - self.mean))
        return np.asarray(np.exp(self.log_mass) * gain)

    def hockey_upper(self, epsilon: ArrayLike) -> FloatArray:
        """Each cell's share of the upper bound; exact where the whole cell lies above ``epsilon``."""
        level = np.asarray(epsilon)[..., np.newaxis]
        with np.errstate(over="ignore"):
            mixed = self.chord * np.maximum(0.0, -np.expm1(level - self.high))
            whole = -np.expm1(level - self.mean)
        return np.asarray(np.exp(self.log_mass) * np.where(self.low >= level, whole, mixed))

    def epsilon(self, delta: float) -> Interval:
        """Enclose the smallest epsilon >= 0 at ``delta``; for one pair of laws, cells of shape (m,)."""
        return Interval(self.lower_epsilon(delta), self._bracket(self.hockey_upper, delta).upper)

    def lower_epsilon(self, delta: float) -> float:
        """The lower bound alone."""
        return self._bracket(self.hockey_lower, delta).lower

    def _bracket(self, share: Callable[[float], FloatArray], delta: float) -> Interval:
        """Both sides of the smallest epsilon at which the shares add up to ``delta``, by bisection."""
        low, high = 0.0, max(0.0, float(self.high[self._bounded].max(initial=0.0)))
        if share(low).sum() <= delta:
            return Interval(0.0, 0.0)
        if share(high).sum() > delta:
            return Interval(high, math.inf)
        while high - low > ROOT_TOLERANCE * high + 1e-300:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if share(middle).sum() <= delta else (middle, high)
        return Interval(low, high)

    # ------------------------------------------------------------ Renyi divergence

    def renyi_lower(self, order: float) -> FloatArray:
        """Lower bound of the Renyi divergence of ``order`` > 1, shape (...)."""
        power = order - 1
        return np.asarray(np.maximum(_log_mean_exp(self.log_mass, power * self.mean), 0.0) / power)

    def renyi_upper(self, order: float, mu: ArrayLike, extra: ArrayLike) -> FloatArray:
        """Upper bound of the same.

        Beyond the grid the loss is at most ``extra`` + mu^2/2 + mu |t|: that tail is added in closed form.
        """
        power, shift = order - 1, np.asarray(mu)
        body = _log_mean_exp(np.where(self._bounded, self.log_mass, -math.inf), self._log_chord(power))
        envelope = power * (np.asarray(extra) + shift**2 / 2) + (power * shift) ** 2 / 2
        tail = math.log(2) + envelope + special.log_ndtr(power * shift - self.ends)
        return np.asarray(np.logaddexp(body, tail) / power)

    def renyi_gaps(self, order: float, divergence: float) -> FloatArray:
        """What each cell leaves open, as a share of exp((order - 1) ``divergence``)."""
        power = order - 1
        with np.errstate(over="ignore"):
            upper = np.exp(self.log_mass + self._log_chord(power) - power * divergence)
            lower = np.exp(self.log_mass + power * self.mean - power * divergence)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.nan_to_num(upper - lower, nan=0.0, posinf=0.0))

    @property
    def _bounded(self) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(self.low) & np.isfinite(self.high))

    def _log_chord(self, power: float) -> FloatArray:
        """Log of the chord's bound of the mean of exp(power l); 0 in the unbounded cells."""
        low, high = np.where(self._bounded, self.low, 0.0), np.where(self._bounded, self.high, 0.0)
        with np.errstate(divide="ignore"):
            ends = np.log(self.chord) + power * high, np.log1p(-self.chord) + power * low
        return np.asarray(np.logaddexp(*ends))

    # ------------------------------------------------------------ the loss itself

    def absolute(self) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest |loss| that each cell allows."""
        small = np.maximum(0.0, np.maximum(self.low, -self.high))
        return small, np.maximum(np.abs(self.low), np.abs(self.high))


def _log_mean_exp(log_mass: FloatArray, exponents: FloatArray) -> FloatArray:
    """Log of the sum of mass exp(exponent), exact also when it is close to the total mass of 1."""
    plain = special.logsumexp(log_mass + exponents, axis=-1)
    with np.errstate(over="ignore"):
        excess = (np.exp(log_mass) * np.expm1(np.minimum(exponents, 700.0))).sum(axis=-1)
    small = (np.abs(excess) < 0.5) & (np.where(log_mass > -math.inf, exponents, 0.0).max(axis=-1) < 700)
    # A mass that was left out counts as one with exponent 0 here: larger, never smaller.
    return np.asarray(np.where(small, np.log1p(np.where(small, excess, 0.0)), plain))


def normal_cells(
    scores: FloatArray, shifts: FloatArray, base: FloatArray, bends: FloatArray
) -> tuple[Cells, Cells]:
    """Cells of two laws with standard normal coordinates t and t + s; both directions, first the one with P = t's.

    With densities phi(t) H and phi(t + s) (H + h) the loss is s t + s^2/2 - log(1 + h/H), which interval arithmetic
    bounds on each cell: s and t must be monotone there, and so must h and H.

    Parameters
    ----------
    scores, base : ndarray, shape (..., K), or (K,) where they are the same for all
        t at the grid points, strictly decreasing, as is t + s; and H.
    shifts, bends : ndarray, shape (..., K)
        s and h.
    """
    with_record = scores + shifts
    absent, present = (_log_masses(t) for t in (scores, with_record))
    middle = scores + shifts / 2
    corners = [
        a * b for a in (shifts[..., :-1], shifts[..., 1:]) for b in (middle[..., :-1], middle[..., 1:])
    ]
    h, H = (np.stack([part[..., :-1], part[..., 1:]]) for part in (bends, base))
    low = _with_ends(np.min(corners, axis=0) - np.log1p(h.max(axis=0) / H.min(axis=0)), -math.inf, -math.inf)
    high = _with_ends(np.max(corners, axis=0) - np.log1p(h.min(axis=0) / H.max(axis=0)), math.inf, math.inf)
    empty = ~np.isfinite(absent) | ~np.isfinite(present)
    mean = np.where(empty, 0.0, absent) - np.where(empty, 0.0, present)
    # On a narrow cell the difference of two rounded masses is worse than what interval arithmetic knows already.
    mean = np.clip(mean, low, np.maximum(low, high))
    first, second = (np.minimum(np.abs(t[..., 0]), np.abs(t[..., -1])) for t in (scores, with_record))
    forward = Cells(absent, mean, low, high, first)
    return forward, forward.reverse(present, second)


def _log_masses(scores: FloatArray) -> FloatArray:
    """Log of the standard normal probability between decreasing points, without cancellation in either tail."""
    edges = _with_ends(scores, math.inf, -math.inf)
    high, low = edges[..., :-1], edges[..., 1:]
    flip = low > 0
    top, bottom = np.where(flip, -low, high), np.where(flip, -high, low)
    ceiling = special.log_ndtr(top)
    with np.errstate(divide="ignore"):
        return np.asarray(ceiling + np.log(-np.expm1(special.log_ndtr(bottom) - ceiling)))


def _with_ends(values: FloatArray, left: float, right: float) -> FloatArray:
    """The values with one more at either end of the last axis."""
    edge = (*values.shape[:-1], 1)
    return np.concatenate([np.full(edge, left), values, np.full(edge, right)], axis=-1)
