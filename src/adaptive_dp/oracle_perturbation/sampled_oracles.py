"""Oracles for OPSamp: the minimum of L(w) - <tilt, w> over W for many tilts, each answer with a certificate.

An answer is a member of W and a proved lower bound of the minimum. The mechanism computes the objective of the
member itself, so that it need not believe anything but the lower bound.

*On a grid* everything is listed, whatever the losses. *Convex losses on a box*: cutting planes (Kelley 1960). Each
evaluation of L at v, with a subgradient g, gives L(w) >= L(v) + <g, w - v> everywhere; a linear programme minimises
the largest of these planes minus the tilt. Its optimum in floating point is not taken as a bound. Any nonnegative
multipliers with sum 1, and the solver's are made so, combine the planes into one plane, whose minimum over the box
is a formula: that is the certificate.

Planes bound L and not the perturbed objective: they stay valid from one tilt to the next, and are kept. The answer
to the k-th tilt then depends on the data and on the first k tilts, which the privacy theorem allows (the lemmas are
applied given the earlier tilts). They must not depend on later ones, on other data, or on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from tqdm import tqdm

from adaptive_dp.oracle_perturbation.problems import Solution, Uncertified
from adaptive_dp.oracle_perturbation.sampled_problems import (
    GridLosses,
    SampledProblem,
    rounding_error,
)
from adaptive_dp.oracle_perturbation.stability import check_gap
from adaptive_dp.validation import FloatArray, as_finite_array, check_count

# Entries of a table of objectives that are held at once.
LISTED = 250_000
# Planes that a cutting-plane oracle keeps, and evaluations of one call after which it gives up.
BLOW_UP = 100.0  # of the linear programme against the solver's absolute tolerances
KEPT_PLANES = 400
LARGEST_EFFORT = 500
# Earlier tilts whose active planes are tried before a linear programme is solved.
NEAREST = 8
Basis = tuple[NDArray[np.int64], NDArray[np.int64]]  # active planes, coordinates inside the box


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Answers to m tilts.

    Parameters
    ----------
    points : ndarray, shape (m, d)
        Members of W.
    lower_bounds : ndarray, shape (m,)
        Proved lower bounds of L(w) - <tilt, w> over W, on the scale of the sum of the losses.
    """

    points: FloatArray
    lower_bounds: FloatArray


class SampledOracle(Protocol):
    """Answers tilts (m, d), in order; the k-th answer must depend on the problem and the first k tilts alone."""

    def __call__(self, problem: SampledProblem, tilts: FloatArray, /, *, gap: float) -> Answers:
        """Answer with additive gaps of at most ``gap``, or raise :class:`~.problems.Uncertified`."""
        ...


def check_tilts(problem: SampledProblem, tilts: ArrayLike) -> FloatArray:
    """Return tilts (m, d) as floats."""
    array = as_finite_array("tilts", tilts, ndim=2)
    if array.shape[1] != problem.dimension:
        raise ValueError(f"tilts must have {problem.dimension} columns, got {array.shape[1]}")
    return array


def list_grid(problem: SampledProblem, tilts: FloatArray, /, *, gap: float = 0.0) -> Answers:
    """Exact minimum over a grid for all tilts; exact up to rounding, which the lower bounds allow for.

    A few megabytes at a time, which stay in the processor's cache; time N m d. Among points that tie, the first is
    taken.

    Raises
    ------
    TypeError
        ``problem`` has no grid.
    """
    if not isinstance(problem, GridLosses):
        raise TypeError(f"problem must be GridLosses, got {type(problem).__name__}")
    array, points = check_tilts(problem, tilts), problem.grid.points()
    check_gap(gap)
    best, values = np.zeros(len(array), dtype=np.int64), np.zeros(len(array))
    step = max(1, LISTED // problem.grid.size)
    for at in range(0, len(array), step):
        table = array[at : at + step] @ points.T
        np.subtract(problem.total, table, out=table)
        rows = np.argmin(table, axis=1)
        best[at : at + step] = rows
        values[at : at + step] = table[np.arange(len(rows)), rows]
    return Answers(points[best], values - rounding_error(problem, array))


@runtime_checkable
class ConvexProblem(SampledProblem, Protocol):
    """Convex losses on the box [-half_width, half_width]^d."""

    @property
    def convex(self) -> bool:
        """Whether they are."""
        ...

    def value_and_subgradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """L at a point and one of its subgradients."""
        ...


class CuttingPlanes:
    """Kelley's method for L(w) - <tilt, w> on a box, with planes that are kept from tilt to tilt.

    Parameters
    ----------
    problem : ConvexProblem
        Convex losses on a box (a :class:`ConvexProblem`); d small.
    planes : int
        How many planes to keep; the oldest unused ones are dropped.
    effort : int
        Evaluations of L after which one call gives up.

    Raises
    ------
    TypeError
        The problem offers no subgradients.
    ValueError
        Its losses are not convex.
    """

    def __init__(
        self, problem: SampledProblem, *, planes: int = KEPT_PLANES, effort: int = LARGEST_EFFORT
    ) -> None:
        if not isinstance(problem, ConvexProblem):
            raise TypeError(f"problem must have subgradients, got {type(problem).__name__}")
        if not problem.convex:
            raise ValueError("problem must have convex losses: a plane through one point bounds nothing else")
        self._problem = problem
        self._keep = check_count("planes", planes, minimum=2 * problem.dimension + 2)
        self._effort = check_count("effort", effort)
        d = problem.dimension
        self._points, self._values = np.zeros((0, d)), np.zeros(0)
        self._slopes, self._used = np.zeros((0, d)), np.zeros(0, dtype=np.int64)
        self._calls = 0
        self._tilts, self._bases = np.zeros((0, d)), list[Basis]()
        self._evaluate(np.zeros(d))

    def _evaluate(self, point: FloatArray) -> None:
        value, slope = self._problem.value_and_subgradient(point)
        self._points = np.vstack([self._points, point])
        self._values = np.append(self._values, value)
        self._slopes = np.vstack([self._slopes, slope])
        self._used = np.append(self._used, self._calls)

    def _forget(self) -> None:
        """Drop the planes that were not active for longest."""
        if self._values.size > self._keep:
            order = np.sort(np.argsort(self._used, kind="stable")[-self._keep :])
            self._tilts, self._bases = self._tilts[:0], []
            self._points, self._values = self._points[order], self._values[order]
            self._slopes, self._used = self._slopes[order], self._used[order]

    def solve(self, tilt: ArrayLike, *, gap: float) -> Solution:
        """Answer one tilt (d,) with an additive gap of at most ``gap``, the rounding of L included.

        Raises
        ------
        Uncertified
            The gap was not reached within the effort, or ``gap`` is below the rounding of the objective.
        """
        started, allowed = time.perf_counter(), check_gap(gap)
        row = check_tilts(self._problem, as_finite_array("tilt", tilt, ndim=1)[np.newaxis])
        slack = float(rounding_error(self._problem, row)[0])
        self._calls += 1
        self._forget()
        level = float((self._values - self._points @ row[0]).min())
        lower, nodes = self._remembered(row[0], level + 2 * slack - allowed) - slack, 0
        while True:
            candidates = self._values - self._points @ row[0]
            best = int(np.argmin(candidates))
            if candidates[best] + slack - lower <= allowed:
                break
            if nodes == self._effort:
                raise Uncertified(f"cutting planes stopped after {nodes} evaluations with too large a gap")
            point, bound = self._programme(row[0], float(candidates[best]))
            lower = max(lower, bound - slack)
            if candidates[best] + slack - lower > allowed:
                if (self._points == point).all(axis=1).any():
                    raise Uncertified("cutting planes do not get further: the programme repeats a point")
                self._evaluate(point)
                nodes += 1
        seconds = time.perf_counter() - started
        return Solution(self._points[best].copy(), float(candidates[best]), lower, nodes, seconds)

    def _remembered(self, tilt: FloatArray, enough: float) -> float:
        """Lower bound from the planes that were active at the nearest earlier tilts, until it is ``enough``.

        Where the same planes are active again, this is exact and saves the linear programme. It is a valid bound
        anyhow.
        """
        best = -np.inf
        for at in np.argsort(np.square(self._tilts - tilt).sum(axis=1), kind="stable")[:NEAREST]:
            planes, inside = self._bases[at]
            system = np.vstack([self._slopes[planes][:, inside].T, np.ones(len(planes))])
            weights = np.linalg.lstsq(system, np.append(tilt[inside], 1.0), rcond=None)[0]
            best = max(best, self._combined(planes, weights, tilt))
            if best >= enough:
                break
        return best

    def _combined(self, planes: NDArray[np.int64], weights: FloatArray, tilt: FloatArray) -> float:
        """Minimum over the box of the combination of planes with these multipliers, made nonnegative with sum 1."""
        shares = np.maximum(weights, 0.0)
        if not shares.sum() > 0:
            return -np.inf
        shares /= shares.sum()
        self._used[planes[shares > 0]] = self._calls
        slope = shares @ self._slopes[planes]
        height = shares @ (
            self._values[planes] - np.einsum("ij,ij->i", self._slopes[planes], self._points[planes])
        )
        return float(height - self._problem.half_width * np.abs(slope - tilt).sum())

    def _programme(self, tilt: FloatArray, level: float) -> tuple[FloatArray, float]:
        """Minimiser of the largest plane minus the tilt, and a lower bound that holds whatever the solver did.

        Planes are shifted by ``level`` and divided by n, so that the programme's numbers are of order one, and then
        blown up: the solver's feasibility tolerance is absolute, and a plane that is violated by less is not seen.
        """
        scale, d = float(self._problem.records) / BLOW_UP, self._problem.dimension
        # plane j: height_j + <slope_j, w>
        heights = self._values - np.einsum("ij,ij->i", self._slopes, self._points)
        tilted = self._slopes - tilt
        width = self._problem.half_width
        found = linprog(
            np.append(np.zeros(d), 1.0),
            A_ub=np.column_stack([tilted / scale, -np.ones(heights.size)]),
            b_ub=(level - heights) / scale,
            bounds=[(-width, width)] * d + [(None, None)],
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status != 0 or found.x is None:
            raise Uncertified("the linear programme of the cutting planes was not solved")
        point, weights = np.clip(found.x[:d], -width, width), -np.asarray(found.ineqlin.marginals)
        planes = np.flatnonzero(weights > 0)
        self._tilts = np.vstack([self._tilts, tilt])
        self._bases.append((planes, np.flatnonzero(np.abs(point) < width)))
        return point, self._combined(planes, weights[planes], tilt)


def one_by_one(
    solve: Callable[[FloatArray], Solution], tilts: FloatArray, *, progress: bool = False
) -> Answers:
    """Answers of a solver that takes one tilt at a time, in order; ``progress`` shows a bar."""
    points, bounds = np.zeros(tilts.shape), np.zeros(len(tilts))
    rows: Iterable[int] = tqdm(range(len(tilts)), desc="oracle calls", disable=not progress)
    for k in rows:
        solution = solve(tilts[k])
        points[k], bounds[k] = solution.point, solution.lower_bound
    return Answers(points, bounds)


def cut_planes(
    problem: SampledProblem, tilts: FloatArray, /, *, gap: float, progress: bool = False
) -> Answers:
    """:class:`CuttingPlanes` for all tilts, from no planes at all: a function of the problem and the tilts.

    To see a progress bar, pass ``functools.partial(cut_planes, progress=True)`` to the mechanism.
    """
    oracle = CuttingPlanes(problem)
    return one_by_one(
        lambda tilt: oracle.solve(tilt, gap=gap), check_tilts(problem, tilts), progress=progress
    )
