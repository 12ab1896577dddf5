"""The exact privacy of objective perturbation at (mu, kappa), over all generalised linear losses and all data.

The supremum over all admissible s of the control problem of :mod:`~adaptive_dp.objective_perturbation.reduction`, from
both sides, by dynamic programming over bins of s:

* upper: a path that is in the bin below s_i gains at most int G(t, s_i) dt over a cell plus the integral of the
  negative part of omega over what it may visit, which interval arithmetic bounds. A bin is what full speed crosses in a
  cell, or a whole part of it, so that no speed is gained by rounding.
* lower: the best path of the same programme on the lattice is turned into an s that is admissible, and its divergence
  is computed in closed form, by data processing on the pieces of full speed.

Both hold for every grid; refinement brings them together. Rounding is on the safe side: each closed form is charged
with its rounding error, as if all of them were off in the same direction. The time is proportional to the number of
cells times that of bins, about a microsecond each: the first grid has FIRST_SIZE of them, the last one at most
LARGEST_SIZE. Within 5 % takes below a second where mu / kappa is between 1e-3 and a hundred and delta is not tiny. For
a smaller kappa the bracket stays wide (the closed bounds of
:class:`~adaptive_dp.per_instance.calibration.LinearPerturbationCurve` are then within a factor of two of the Gaussian).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.ndimage import maximum_filter1d

from adaptive_dp.accounting import EPS, gaussian_delta
from adaptive_dp.objective_perturbation.profiles import HockeyStickCurve
from adaptive_dp.objective_perturbation.reduction import (
    DIRECTIONS,
    SLACK,
    Direction,
    Integrand,
    hockey_stick,
    renyi_integrand,
)
from adaptive_dp.per_instance.calibration import LinearPerturbationCurve
from adaptive_dp.per_instance.cells import Interval
from adaptive_dp.validation import FloatArray, check_probability

FIRST_SIZE, LARGEST_SIZE = 100_000, 6_400_000
LARGEST_CELLS, SMALLEST_BINS = 20_000, 32
WIDEST_CELL = 0.2  # of the first grid; falls with the fourth root of the size
BLOCK = 1 << 18  # entries of the largest intermediate matrix
# mu, kappa, epsilon of the errata's outputs.
SETTINGS = (
    (0.2, 0.5, 0.5),
    (0.2, 0.5, 1.2),
    (0.2, 0.05, 0.3),
    (0.2, 0.05, 0.8),
    (1.0, 0.8, 2.5),
    (0.1, 0.3, 0.1),
    (1.0, 0.2, 1.0),
)


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of t and bins of s: bin i is [s_i - width, s_i]; over a cell s falls by at most ``steps`` bins."""

    edges: FloatArray
    levels: FloatArray
    width: float
    steps: int
    exact: bool
    """Whether ``steps`` bins are what full speed crosses; otherwise it is less than one bin."""


def make_grid(integrand: Integrand, size: int) -> Grid:
    """About ``size`` pairs of a cell and a bin; a bin is what full speed crosses in a cell, where that is sensible.

    -mu is the lower end of a bin and one more level, on which paths of the lower bound may stand.
    """
    mu, speed, *_ = integrand.side
    reach, widest = integrand.reach, WIDEST_CELL * (FIRST_SIZE / size) ** 0.25
    step = min(widest, math.sqrt(4 * reach * mu / (speed * size)))
    fewest = max(SMALLEST_BINS, math.isqrt(size) // 8)
    most = max(fewest, size // math.ceil(2 * reach / widest))
    bins = min(max(fewest, math.ceil(2 * mu / (speed * step))), most)
    width = 2 * mu / bins
    wanted = min(widest, max(2 * reach / min(LARGEST_CELLS, max(1, size // bins)), step))
    steps = max(1, round(speed * wanted / width))
    exact = steps * width <= speed * widest * (1 + 1e-6)
    # A billionth less than full speed takes, so that rounding never takes a path out of the programme.
    step = steps * width / speed * (1 - SLACK) if exact else widest
    cells = math.ceil(2 * reach / step)
    edges = step * (np.arange(cells + 1) - 0.5 * cells)
    return Grid(edges, mu - width * np.arange(bins + 1), width, steps if exact else 1, exact)


def _windows(values: FloatArray, last: int) -> FloatArray:
    """Largest of the entries i ... i + ``last`` of the last axis, for each i."""
    if last == 0:
        return values
    if last == 1:
        answer = values.copy()
        np.maximum(values[..., :-1], values[..., 1:], out=answer[..., :-1])
        return answer
    size = min(last, values.shape[-1]) + 1
    return np.asarray(maximum_filter1d(values, size, origin=-(size // 2), mode="constant", cval=-math.inf))


def _shifted(values: FloatArray, by: int) -> FloatArray:
    """Entry i + ``by`` at i, and -inf beyond the end."""
    answer = np.full(values.size, -math.inf)
    if by < values.size:
        answer[: values.size - by] = values[by:]
    return answer


class Rewards(NamedTuple):
    """What a cell is worth from each bin, shape (cells, bins)."""

    level: FloatArray
    """Integral of G at constant s."""
    stay: FloatArray
    """Upper bound within one bin."""
    full: FloatArray
    """Upper bound at full speed."""
    losses: FloatArray
    """Cumulative sums over the bins of what a visit to a bin may add, shape (cells, bins + 1)."""


def cell_rewards(integrand: Integrand, grid: Grid, cells: slice) -> Rewards:
    """Rewards of a range of cells, charged with their rounding errors."""
    edges, s = grid.edges[cells.start : cells.stop + 1, np.newaxis], grid.levels
    low, high, step = edges[:-1], edges[1:], float(grid.edges[1] - grid.edges[0])
    if float(np.abs(edges).max()) <= integrand.quiet:
        nothing = np.zeros((low.size, s.size + 1))
        return Rewards(nothing[:, 1:], nothing[:, 1:], nothing[:, 1:], nothing)
    potential, error = integrand.potential(edges, s)
    error = error[1:] + error[:-1]
    level = integrand.standing(low, high, s) - (potential[1:] - potential[:-1])
    omega = integrand.slope(low, high, s, grid.width)
    least = -_windows(-omega, grid.steps)
    area = step * grid.width
    # Full speed from s_i follows the line s_i - k (t - t_j), at most one bin below it.
    line = level - 0.5 * integrand.side.speed * step * step * least
    losses = np.cumsum(np.maximum(-omega, 0.0) * area, axis=1)
    return Rewards(
        level + error,
        level + error + np.maximum(-omega, 0.0) * area,
        line + error + np.maximum(-least, 0.0) * area,
        np.concatenate([np.zeros((losses.shape[0], 1)), losses], axis=1),
    )


def _step_back(after: FloatArray, rewards: Rewards, j: int, grid: Grid) -> FloatArray:
    """Upper bounds one cell earlier: stay in the bin, fall at full speed, or anything in between."""
    best = rewards.stay[j] + after
    if grid.exact:
        best = np.maximum(best, rewards.full[j] + _shifted(after, grid.steps))
    between = grid.steps - 1 if grid.exact else 1
    if between > 0:
        visited = _shifted(rewards.losses[j, 1:] + after, 1)
        best = np.maximum(best, rewards.level[j] - rewards.losses[j, :-1] + _windows(visited, between - 1))
    return np.asarray(best)


def _solve(integrand: Integrand, grid: Grid) -> tuple[float, FloatArray]:
    """Upper bound of the integral, and the best path on the lattice: s at the edges."""
    edges, s = grid.edges, grid.levels
    cells, count = edges.size - 1, s.size
    ends, error = integrand.potential(edges[[0, -1], np.newaxis], s)
    below = np.concatenate([ends[:, 1:], ends[:, -1:]], axis=1)
    upper, value = np.maximum(ends[1], below[1]) + error[1], ends[1]
    merits = np.empty((cells, count))
    reachable = grid.steps if grid.exact else 0
    rows = max(1, BLOCK // count)
    for stop in range(cells, 0, -rows):
        block = slice(max(0, stop - rows), stop)
        rewards = cell_rewards(integrand, grid, block)
        for j in range(block.stop - block.start - 1, -1, -1):
            upper[-1] = -math.inf  # below -mu there is nothing
            upper = _step_back(upper, rewards, j, grid)
            half = 0.5 * rewards.level[j]
            merit = merits[block.start + j] = value + half
            value = half + _windows(merit, reachable)
    total = float((upper - np.minimum(ends[0], below[0]) + error[0])[:-1].max()) + integrand.tail
    at = int(np.argmax(value - ends[0]))
    path = [at]
    for merit in merits:
        at += int(np.argmax(merit[at : at + reachable + 1]))
        path.append(at)
    return total * (1 + 4 * cells * EPS), s[path] * (1 - 2 * SLACK)


def _attained(integrand: Integrand, edges: FloatArray, path: FloatArray) -> float:
    """Integral along an admissible s: on each cell stand, fall at full speed, stand. From below."""
    fall = np.maximum(path[:-1] - path[1:], 0.0) / integrand.side.speed
    begin = 0.5 * (edges[:-1] + edges[1:] - fall)
    end = begin + fall
    pieces = [
        (edges[:-1], begin, path[:-1], False),
        (begin, end, path[:-1], True),
        (end, edges[1:], path[1:], False),
        (np.array([-math.inf]), edges[:1], path[:1], False),
        (edges[-1:], np.array([math.inf]), path[-1:], False),
    ]
    total = 0.0
    for low, high, s, moves in pieces:
        gain = integrand.moving(low, high, s) if moves else integrand.standing(low, high, s)
        used = high > low
        low, high, gain = low[used], high[used], gain[used]
        total += float(np.maximum(gain - integrand.charge(low, high, gain), 0.0).sum())
    return total * (1 - 4 * edges.size * EPS)


class CertifiedSupremum(NamedTuple):
    """A bracket of the supremum, and the path that attains its lower end."""

    bracket: Interval
    noise: FloatArray
    """t under P at the edges of the cells."""
    path: FloatArray
    """s there."""


def solve(integrand: Integrand, tolerance: float) -> CertifiedSupremum:
    """Refine until upper <= (1 + ``tolerance``) lower, or LARGEST_SIZE is passed; the best of all grids is kept."""
    lower, upper, size = -math.inf, math.inf, FIRST_SIZE
    noise = path = np.empty(0)
    while True:
        grid = make_grid(integrand, size)
        total, candidate = _solve(integrand, grid)
        found = integrand.divergence(_attained(integrand, grid.edges, candidate))
        upper = min(upper, integrand.divergence(total))
        if found > lower:
            lower, noise, path = found, grid.edges, candidate
        if upper <= (1 + tolerance) * lower or size >= LARGEST_SIZE:
            return CertifiedSupremum(Interval(lower, max(lower, upper)), noise, path)
        # The gap falls with the root of the size, or faster.
        excess = (upper / lower - 1) / tolerance if lower > 0 else math.inf
        size = min(LARGEST_SIZE, math.ceil(size * min(max(1.5 * excess, 2.0), 16.0)))


# ---------------------------------------------------------------- public


def certified_delta(
    mu: float, kappa: float, *, epsilon: float, direction: Direction, tolerance: float = 0.05
) -> Interval:
    """Enclose the smallest delta at ``epsilon`` that holds for all losses and data with this mu and kappa.

    Parameters
    ----------
    mu : float
        sup |f'| ||x|| / sigma, positive.
    kappa : float
        sup f'' ||x||^2 / lam, positive.
    epsilon : float
        Any real number within 500 of 0.
    direction : {"absent", "present"}
        Whether the data at hand are those without or those with the record; the profile is the larger of both.
    tolerance : float
        In (0, 1): wanted upper / lower - 1. The grid is refined up to a fixed size (some seconds), after which the
        bracket is wider, and as valid.

    Returns
    -------
    Interval
        ``lower`` is attained by :func:`attaining_shift`, ``upper`` holds for every admissible s.
    """
    return solve(
        hockey_stick(mu, kappa, epsilon, direction), check_probability("tolerance", tolerance)
    ).bracket


def certified_renyi(
    mu: float, kappa: float, *, order: float, direction: Direction, tolerance: float = 0.05
) -> Interval:
    """Enclose the Renyi divergence of ``order`` in (1, 1e6] likewise; the order times mu^2 at most 1e4."""
    return solve(
        renyi_integrand(mu, kappa, order, direction), check_probability("tolerance", tolerance)
    ).bracket


def attaining_shift(
    mu: float, kappa: float, *, epsilon: float, direction: Direction, tolerance: float = 0.05
) -> pd.DataFrame:
    """An admissible s whose hockey-stick divergence is the lower end of :func:`certified_delta`, for a figure.

    Parameters
    ----------
    mu, kappa, epsilon, direction, tolerance
        As there.

    Returns
    -------
    pandas.DataFrame
        ``t``, the noise along the record over sigma on the data *without* it, increasing, and ``s``, the slope of the
        record's loss at the output over sigma (times ||x||), nonincreasing, -kappa <= s' <= 0. Beyond the ends s is
        constant. Between two rows s stands, falls at full speed and stands again.
    """
    integrand = hockey_stick(mu, kappa, epsilon, direction)
    found = solve(integrand, check_probability("tolerance", tolerance))
    noise = found.noise if direction == "absent" else found.noise + found.path
    return pd.DataFrame({"t": noise, "s": found.path})


def certified_table(
    settings: Iterable[tuple[float, float, float]] = SETTINGS, *, tolerance: float = 0.05
) -> pd.DataFrame:
    """The bracket beside the closed bounds, in both directions.

    Parameters
    ----------
    settings : iterable of (mu, kappa, epsilon)
        Positive, epsilon nonnegative.
    tolerance : float
        As in :func:`certified_delta`.

    Returns
    -------
    pandas.DataFrame
        ``mu``, ``kappa``, ``epsilon``, ``direction``; ``lower`` and ``upper`` of the exact worst case; ``closed``, the
        bound of this direction (errata, S1); ``thesis``, Theorem 4.3.1 with the right sign (NaN from kappa = 1 on);
        ``gaussian``, the profile of the Gaussian mechanism, a lower bound.
    """
    rows = []
    for mu, kappa, epsilon in settings:
        curve = LinearPerturbationCurve(mu, kappa)
        thesis = HockeyStickCurve(mu, kappa).delta(epsilon) if kappa < 1 else math.nan
        for direction in DIRECTIONS:
            bracket = certified_delta(mu, kappa, epsilon=epsilon, direction=direction, tolerance=tolerance)
            closed = curve.absent(epsilon) if direction == "absent" else curve.present(epsilon)
            rows.append(
                (mu, kappa, epsilon, direction, *bracket, closed, thesis, gaussian_delta(epsilon, mu))
            )
    names = ["mu", "kappa", "epsilon", "direction", "lower", "upper", "closed", "thesis", "gaussian"]
    return pd.DataFrame(rows, columns=names)
