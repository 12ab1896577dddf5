"""Suprema over *all* neighbours of one data set in one dimension: any record of the domain added, any member removed.

Members are finitely many. Records to add form the interval c in [-R, R]: on |c' - c| <= r the loss moves by at most

    rho = r (1.1 T / sigma + R / (2 H)),

where T bounds |t + s| and H bounds J'' from below on all theta but a set of probability ``tail``; then
delta_{c'}(epsilon) <= tail + e^rho delta_c(epsilon - rho) in either direction, and Renyi moments grow by a factor of
at most e^(alpha rho). First the worst neighbour is searched, then a level slightly above it is certified: intervals
of c that the bound does not rule out are halved (branch and bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import special

from adaptive_dp.per_instance.cells import Cells, Interval, larger, normal_cells
from adaptive_dp.per_instance.one_dimensional import (
    REACH,
    Data1D,
    grid,
    pair_of,
    record_terms,
    renyi_reach,
)
from adaptive_dp.validation import FloatArray

STEEPEST = 1.1
"""Above sup |d/dc c expit(-c theta)| = sup |expit(-u) - u expit(u) expit(-u)| = 1.0998."""
TRIED = 17  # records that the search tries to add
AT_ONCE = 64  # records whose cells are held in memory together
MOST_PARTS, HALVINGS = 256, 14
SEARCH_TOLERANCE = 1e-3

Directions = tuple[Cells, Cells]
Certificate = Callable[[Directions, bool, float], NDArray[np.bool_]]
"""Cells of some neighbours, whether they are members, and rho: which of them are settled."""


def largest_epsilon(data: Data1D, bound: float, delta: float, *, start: Interval, ceiling: float) -> Interval:
    """Supremum of epsilon at ``delta`` over all neighbours, in both directions.

    Parameters
    ----------
    data : Data1D
    bound : float
        R, the largest |c| of the domain.
    delta : float
    start : Interval
        Encloses the epsilon of one neighbour.
    ceiling : float
        An upper bound that is known; the answer if nothing lower can be certified.
    """
    neighbours = _Neighbours(data, bound, REACH)
    best = start
    for product in (bound, -bound):
        best = larger(best, _epsilon_of(data, product, False, delta))
    for part, member, cells in neighbours.blocks():
        for _ in range(part.size):
            shares = np.max([side.hockey_lower(best.lower).sum(axis=-1) for side in cells], axis=0)
            at = int(np.argmax(shares))
            if shares[at] <= delta * (1 + SEARCH_TOLERANCE):
                break
            found = _epsilon_of(data, float(part[at]), member, delta)
            if found.lower <= best.lower:
                break
            best = larger(best, found)
    tail = 1e-4 * delta

    def settled(target: float, cells: Directions, member: bool, rho: float) -> NDArray[np.bool_]:
        over = np.max([side.hockey_upper(target - rho).sum(axis=-1) for side in cells], axis=0)
        return np.asarray(over <= (delta - tail) * math.exp(-rho))

    theta_reach = -float(special.ndtri(tail / 2))
    targets = [max(best.upper, best.lower * (1 + slack) + 1e-9) for slack in (0.005, 0.02, 0.1)]
    certified = neighbours.first_certified(targets, settled, theta_reach, ceiling)
    return Interval(best.lower, max(ceiling, start.upper) if certified is None else certified)


def _epsilon_of(data: Data1D, product: float, member: bool, delta: float) -> Interval:
    return larger(*pair_of(data, product, member=member).epsilon(delta, tolerance=SEARCH_TOLERANCE))


def largest_renyi(
    data: Data1D, bound: float, order: float, *, start: Interval, ceiling: float, both: bool
) -> Interval:
    """Supremum of the Renyi divergence over all neighbours: in ``both`` directions, or with P = ``data`` alone.

    Other parameters are those of :func:`largest_epsilon`.
    """
    reach = renyi_reach(order, data.mu(bound), data.kappa(bound))
    neighbours = _Neighbours(data, bound, reach)
    power = order - 1

    mu, extra = data.mu(bound), math.log1p(data.kappa(bound))

    def sides(cells: Directions, member: bool) -> tuple[Cells, ...]:
        return cells if both else (cells[int(member)],)

    best = start
    for part, member, cells in neighbours.blocks():
        lows = np.max([side.renyi_lower(order) for side in sides(cells, member)], axis=0)
        at = int(np.argmax(lows))
        if lows[at] > best.lower:
            found = pair_of(data, float(part[at]), member=member).renyi(order, tolerance=SEARCH_TOLERANCE)
            best = larger(best, larger(*found) if both else found[int(member)])

    def settled(target: float, cells: Directions, member: bool, rho: float) -> NDArray[np.bool_]:
        highs = np.max([side.renyi_upper(order, mu, extra) for side in sides(cells, member)], axis=0)
        over = np.logaddexp(order * rho + power * highs, -40.0) / power  # what lies beyond the reach: e^-40
        return np.asarray(over <= target)

    targets = [max(best.upper, best.lower * (1 + slack) + 1e-12) for slack in (0.05, 0.25)]
    certified = neighbours.first_certified(targets, settled, reach, ceiling)
    return Interval(best.lower, max(ceiling, start.upper) if certified is None else certified)


class _Neighbours:
    """All neighbours of one data set on one grid."""

    def __init__(self, data: Data1D, bound: float, reach: float) -> None:
        self.data, self.bound = data, bound
        self.points = grid(data, np.array([bound, -bound]), reach, core=160)
        self.scores, self.curvatures = data.scores(self.points), data.curvatures(self.points)

    def added(self, products: FloatArray) -> Directions:
        """Cells for each record added, leading axis (m,); P = the data first."""
        shifts, bends = record_terms(self.points, products, self.data.sigma)
        return normal_cells(self.scores, shifts, self.curvatures, bends)

    def removed(self, products: FloatArray) -> Directions:
        """Cells for each member removed; P = the data without her first."""
        shifts, bends = record_terms(self.points, products, self.data.sigma)
        base = np.maximum(self.curvatures - bends, self.data.lam)
        return normal_cells(self.scores - shifts, shifts, base, bends)

    def blocks(self) -> Iterator[tuple[FloatArray, bool, Directions]]:
        """Neighbours to try, with their cells: a grid of additions with both ends, then every distinct member."""
        yield (additions := np.linspace(-self.bound, self.bound, TRIED)), False, self.added(additions)
        for part in _in_parts(self.data.products):
            yield part, True, self.removed(part)

    def first_certified(
        self, targets: list[float], settled: Callable[..., NDArray[np.bool_]], reach: float, ceiling: float
    ) -> float | None:
        """The first of ``targets`` below ``ceiling`` that no neighbour exceeds, if that can be certified."""
        for target in targets:
            if target >= ceiling:
                return None
            if self._certify(partial(settled, target), reach):
                return target
        return None

    def _certify(self, settled: Certificate, reach: float) -> bool:
        """Whether every neighbour is ``settled``; False also if that could not be found out in time."""
        for part in _in_parts(self.data.products):
            if not settled(self.removed(part), True, 0.0).all():
                return False
        parts = 16
        centres = (np.arange(parts) + 0.5) * 2 * self.bound / parts - self.bound
        for _ in range(HALVINGS):
            radius = self.bound / parts
            rho = self._move(radius, reach)
            fine = [settled(self.added(part), False, rho) for part in _in_parts(centres)]
            left = centres[~np.concatenate(fine)]
            if left.size == 0:
                return True
            if left.size > MOST_PARTS:
                return False
            centres, parts = np.concatenate([left - radius / 2, left + radius / 2]), 2 * parts
        return False

    def _move(self, radius: float, reach: float) -> float:
        """Return rho for a half-width ``radius``, on theta whose t is within ``reach`` for D and D+c."""
        mu = self.data.mu(self.bound)
        inside = np.flatnonzero(np.abs(self.scores) <= reach + mu)
        first, last = max(int(inside[0]) - 1, 0), min(int(inside[-1]) + 1, self.points.size - 1)
        lowest = min(float(self.curvatures[first]), float(self.curvatures[last]))
        return radius * (STEEPEST * (reach + 2 * mu) / self.data.sigma + self.bound / (2 * lowest))


def _in_parts(products: FloatArray) -> Iterator[FloatArray]:
    for start in range(0, products.size, AT_ONCE):
        yield products[start : start + AT_ONCE]
