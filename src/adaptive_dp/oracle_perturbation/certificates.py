"""The certificate: what a mechanism asks of its oracle, and what it checks before anything is released.

The mechanisms of this page differ in their noise and share this step. An oracle gets a copy of the costs, so that it
cannot change what it is judged by; its answer is evaluated anew; and only its lower bound is taken on trust.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.oracle_perturbation.problems import (
    LARGEST_COST,
    GridCosts,
    Oracle,
    Problem,
    Solution,
    TableProblem,
    ThresholdProblem,
    Uncertified,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.spaces import LARGEST_LIST
from adaptive_dp.validation import FloatArray, as_finite_array

EPS = float(np.finfo(np.float64).eps)
# Noise beyond what has this probability is treated as impossible when the door is checked.
NEVER = 1e-22

Point = NDArray[Any]


def check_oracle(problem: Problem, oracle: Oracle) -> None:
    """Refuse, before noise is drawn, what is no oracle or cannot list the space.

    Raises
    ------
    TypeError
        ``oracle`` is not callable.
    ValueError
        The oracle is the enumeration, and W is too large to be listed.
    """
    if not callable(oracle):
        raise TypeError(f"oracle must be callable, got {type(oracle).__name__}")
    if oracle is enumerate_members and problem.space.size > LARGEST_LIST:
        raise ValueError(
            f"oracle must be another one: W has {problem.space.size} members, too many for enumerate_members "
            f"(at most {LARGEST_LIST}); see BranchAndBound and enumerate_group"
        )


def consult(problem: Problem, costs: Any, oracle: Oracle) -> Solution:
    """Return the oracle's answer; a table of costs is handed over as a copy, which the oracle may use as it likes."""
    return oracle(problem, costs if isinstance(costs, GridCosts) else np.array(costs))


def certify(
    problem: ThresholdProblem | TableProblem, costs: Any, solution: Solution, *, gap: float, length: float
) -> Point:
    """Return the member that ``solution`` names if its gap is below ``gap``, rounding included.

    Parameters
    ----------
    problem, costs
        What the oracle was asked.
    solution : Solution
        What it answered. Its point must be a member of W, its objective that of the point, and its bound not above it;
        nothing is taken on trust but the lower bound, which is the oracle's proof.
    gap : float
        Additive gap that the guarantee allows.
    length : float
        Length of the noise vector, which decides how much rounding can hide.

    Raises
    ------
    TypeError, ValueError
        The oracle is broken.
    Uncertified
        The gap is too large.
    """
    if not isinstance(solution, Solution):
        raise TypeError(f"oracle must return a Solution, got {type(solution).__name__}")
    point, objective = _evaluate(problem, costs, solution.point)
    slack = rounding(problem, length)
    if not abs(objective - solution.objective) <= slack:  # written so that nan is refused
        raise ValueError("oracle returned an objective that is not that of its point: it is broken")
    if solution.lower_bound > objective + slack:
        raise ValueError("oracle returned a lower bound above the objective of its point: it is broken")
    if not objective - solution.lower_bound + slack < gap:
        raise Uncertified(
            f"the oracle did not prove that its answer is within {gap:g} of the minimum: nothing is released. That it "
            "failed, and when, depends on the data and must not be shown"
        )
    return point


def rounding(problem: ThresholdProblem | TableProblem, length: float) -> float:
    """Bound of what rounding can do to a perturbed objective, with a reserve for sums in any order.

    A sum of d + 2 terms whose absolute values add up to at most the losses and, by Cauchy and Schwarz, sqrt(d + 1)
    times the length of the noise; the sum of a table's losses has n terms. Only sizes are read, so
    that the bound is public. The lift is taken as it was computed: vectors of length one, up to rounding, that are
    at least ||w - v|| / D apart are all that the proof needs.
    """
    size = float(problem.records)
    if isinstance(problem, TableProblem) and problem.lipschitz is not None:
        # Sums are taken of differences to one member: G times the largest distance bounds them, whatever the data.
        size *= 2.0 * problem.lipschitz * problem.space.radius
    terms = 16 * (problem.space.dimension + 4)
    sums = terms + (problem.records if isinstance(problem, TableProblem) else 0)
    return 0.5 * EPS * (sums * size + terms * math.sqrt(problem.space.dimension + 1) * length)


def _evaluate(problem: ThresholdProblem | TableProblem, costs: Any, point: ArrayLike) -> tuple[Point, float]:
    """The point as it is in W, and its perturbed objective, computed anew."""
    w = as_finite_array("the oracle's point", point)
    if isinstance(problem, ThresholdProblem):
        if w.ndim != 1 or not problem.space.contains(w):
            raise ValueError(f"oracle returned a point outside W, of shape {w.shape}: it is broken")
        member = w.astype(np.int64)
        return member, float(problem.objective(member, costs))
    place = row_of(problem, w)
    if place is None:
        raise ValueError(f"oracle returned a point outside W, of shape {w.shape}: it is broken")
    return problem.space.members[place].copy(), float(problem.total[place] + costs[place])


def row_of(problem: TableProblem, point: FloatArray) -> int | None:
    """Place of ``point`` in the list of members; None if it is not among them."""
    if point.shape != (problem.space.dimension,):
        return None
    found = np.flatnonzero((problem.space.members == point).all(axis=1))
    return int(found[0]) if found.size else None


def check_noise_size(problem: Problem, largest: float, total: float, *, depth: int, gap: float) -> None:
    """Refuse noise whose tables would overflow, or whose rounding would not leave half of the gap.

    Parameters
    ----------
    problem : ThresholdProblem or TableProblem
        With losses in [0, 1]; only its sizes are read.
    largest, total : float
        What the entries of the noise, and the sum of their absolute values, hardly ever exceed.
    depth : int
        Entries that are added up for one entry of the table of costs.
    gap : float
        a.

    Raises
    ------
    ValueError
        The noise is too large.
    """
    if not depth * largest <= LARGEST_COST:
        raise ValueError(
            f"epsilon must be larger: costs could reach {depth * largest:.3g}, and beyond {LARGEST_COST:g} counts "
            "would drown"
        )
    error = rounding(problem, depth * total)
    if not error <= 0.5 * gap:
        raise ValueError(
            f"epsilon or gap must be larger: rounding could move the objective by {error:.3g}, more than half of "
            f"the gap {gap:g}"
        )
