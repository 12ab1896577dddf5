"""General solvers as oracles: CP-SAT of OR-Tools, and HiGHS through scipy.

Both get the exact formulation of :mod:`~adaptive_dp.oracle_perturbation.halfspace_program`, stop at a time limit
with whatever gap is left, and have their point's objective computed again by the problem itself. What their lower
bounds are worth differs: CP-SAT reasons in integers, HiGHS in doubles with tolerances. See :func:`cp_sat` and
:func:`highs`. A limit on the time makes the answer depend on the clock; a mechanism must look at the gap and release
nothing that is not certified.
"""

from __future__ import annotations

import importlib
import math
import time
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from adaptive_dp.oracle_perturbation.group_enumeration import cheapest_by_squared_norm
from adaptive_dp.oracle_perturbation.halfspace_program import (
    Patterns,
    Program,
    halfspace_program,
    merge_records,
)
from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Solution,
    ThresholdProblem,
    rounding_allowance,
)
from adaptive_dp.oracle_perturbation.spaces import IntArray
from adaptive_dp.validation import FloatArray, check_count, check_positive

SECONDS = 60.0  # a limit on everything that is called without one
# CP-SAT: costs are whole multiples of 2^-28, or coarser, so that the objective stays below 2^50.
FINEST_BITS, OBJECTIVE_BITS = 28, 50
# HiGHS's defaults, which scipy leaves in place: tolerance of a reduced cost, of pruning, and absolute gap.
REDUCED_COST, PRUNING, ABSOLUTE_GAP = 1e-7, 1e-6, 1e-6
# Its errors grow with the costs: what is deducted relative to them, and the largest costs that are passed on.
RELATIVE, LARGEST_FOR_HIGHS = 1e-9, 1e7


def cp_sat(
    problem: ThresholdProblem, costs: GridCosts, /, *, seconds: float = SECONDS, workers: int = 1
) -> Solution:
    """Minimise with CP-SAT, the constraint solver of OR-Tools (optional extra ``solvers``).

    Coordinates are integer variables tied to one-hot binaries, successes imply a linear inequality. (The same
    program as a bare list of binaries and big-M rows is also exact, and much slower.)

    Parameters
    ----------
    problem : ThresholdProblem
        Any tie rule.
    costs : GridCosts
    seconds : float
        Limit on the search, wall-clock.
    workers : int
        Threads of the search; with more than one the path of the search, and among equal minima the point, may vary.

    Returns
    -------
    Solution
        ``nodes`` counts branches. The lower bound is CP-SAT's own, which is proved in integer arithmetic for costs
        that were rounded to multiples of 2^-28 (coarser if costs are huge), less what that rounding can change:
        half a unit for each of d + 1 costs, one more unit for the conversion to a double, and
        :func:`~.problems.rounding_allowance`. Stopped without a point, it returns the zero vector.

    Raises
    ------
    ImportError
        OR-Tools is not installed.
    TypeError, ValueError
        Not such a problem, tables that do not fit, or an impossible limit.
    """
    start = time.perf_counter()
    tables = _check(problem, costs)
    limit, threads = check_positive("seconds", seconds), check_count("workers", workers)
    model_of = _import_cp_sat()
    bits = _cost_bits(problem, tables)
    model, weights = _cp_model(model_of, problem, tables, merge_records(problem), bits)
    solver = model_of.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = threads
    solver.parameters.relative_gap_limit = solver.parameters.absolute_gap_limit = 0.0
    status = solver.solve(model)
    bound, point = -math.inf, None
    if status in (model_of.OPTIMAL, model_of.FEASIBLE):
        point = np.array([solver.value(weight) for weight in weights], dtype=np.int64)
        lost = (problem.space.dimension + 1) / 2 + 1
        bound = math.ldexp(math.floor(solver.best_objective_bound) - lost, -bits) + problem.records
        bound -= rounding_allowance(problem, tables)
    elif status != model_of.UNKNOWN:
        raise RuntimeError(f"CP-SAT answered {solver.status_name(status)} to a program that has solutions")
    return _solution(problem, tables, point, bound, int(solver.num_branches), start)


def highs(problem: ThresholdProblem, costs: GridCosts, /, *, seconds: float = SECONDS) -> Solution:
    """Minimise with HiGHS, a branch and cut for mixed-integer linear programs, through ``scipy.optimize.milp``.

    Parameters
    ----------
    problem : ThresholdProblem
        Any tie rule.
    costs : GridCosts
    seconds : float
        Limit on the search, wall-clock. The search runs in one thread.

    Returns
    -------
    Solution
        ``nodes`` counts HiGHS's nodes. The lower bound is HiGHS's dual bound less its tolerances: 1e-7 a column,
        since a bound that follows from reduced costs that are off by so much is off by at most that times the width
        of a binary column, summed; 1e-6 for pruning and 1e-6 for the gap at which it calls a point optimal; 1e-9 of
        all costs together, as its errors grow with them; and the rounding of sums. It is proved *as far as HiGHS
        keeps these tolerances*: its arithmetic is in doubles and leaves no proof behind. A mechanism that relies on
        it should be given a gap well above them.

    Raises
    ------
    TypeError, ValueError
        Not such a problem, tables that do not fit, costs beyond 1e7, or an impossible limit.
    """
    start = time.perf_counter()
    tables = _check(problem, costs)
    limit = check_positive("seconds", seconds)
    for name in ("per_value", "per_squared_norm"):
        if np.abs(getattr(tables, name)).max() > LARGEST_FOR_HIGHS:
            raise ValueError(
                f"{name} must stay within {LARGEST_FOR_HIGHS:g} for HiGHS, whose tolerances are absolute"
            )
    program = halfspace_program(problem, tables, merge_records(problem))
    answer = solve_program(program, seconds=limit)
    bound, point = -math.inf, None
    if answer.mip_dual_bound is not None and math.isfinite(answer.mip_dual_bound):
        tolerance = REDUCED_COST * program.cost.size + PRUNING + ABSOLUTE_GAP
        tolerance += RELATIVE * problem.largest_objective(tables)
        bound = float(answer.mip_dual_bound) + program.constant - tolerance
        bound -= rounding_allowance(problem, tables)
    if answer.x is not None:
        point = program.point(np.asarray(answer.x))
    return _solution(problem, tables, point, bound, int(answer.mip_node_count or 0), start)


def solve_program(program: Program, *, seconds: float = SECONDS, relaxed: bool = False) -> Any:
    """Pass a program of binaries, or its relaxation to [0, 1], to HiGHS; return scipy's ``OptimizeResult``.

    Raises
    ------
    RuntimeError
        HiGHS finds no solution to a program that has one.
    """
    answer = milp(
        program.cost,
        integrality=np.full(program.cost.size, 0 if relaxed else 1),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(program.matrix, program.lower, program.upper),
        options={"mip_rel_gap": 0.0, "time_limit": seconds},
    )
    if answer.status in (2, 3):
        raise RuntimeError(f"HiGHS failed on a program that has solutions: {answer.message}")
    return answer


def least_cost(problem: ThresholdProblem, costs: GridCosts) -> float:
    """Minimum of the noise alone over W, less rounding: a lower bound of the objective that needs no solver."""
    space = problem.space
    cheapest = cheapest_by_squared_norm(costs.per_value, space.values, space.squared_radius)[-1]
    return float((cheapest + costs.per_squared_norm).min()) - rounding_allowance(problem, costs)


def _check(problem: ThresholdProblem, costs: GridCosts) -> GridCosts:
    if not isinstance(problem, ThresholdProblem):
        raise TypeError(f"problem must be a ThresholdProblem, got {type(problem).__name__}")
    return problem.check_costs(costs)


def _solution(
    problem: ThresholdProblem,
    costs: GridCosts,
    point: IntArray | None,
    bound: float,
    nodes: int,
    start: float,
) -> Solution:
    """Certificate of a point: its objective computed again, and the better of two lower bounds."""
    if point is None or not problem.space.contains(point):
        point = np.zeros(problem.space.dimension, dtype=np.int64)
    objective = float(problem.objective(point, costs))
    lower = max(bound, least_cost(problem, costs))
    if lower > objective + rounding_allowance(problem, costs):
        # A bound above a member's objective is wrong, and so may be the rest of what the solver says.
        lower = least_cost(problem, costs)
    return Solution(point, objective, lower, nodes=nodes, seconds=time.perf_counter() - start)


def _import_cp_sat() -> Any:
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as missing:
        raise ImportError(
            "cp_sat needs OR-Tools, which the extra 'solvers' installs: pip install 'adaptive-dp[solvers]'"
        ) from missing


def _cost_bits(problem: ThresholdProblem, costs: GridCosts) -> int:
    """Binary digits after the point of the integer costs."""
    return min(FINEST_BITS, OBJECTIVE_BITS - math.ceil(math.log2(problem.largest_objective(costs))))


def _whole(table: FloatArray, bits: int) -> list[int]:
    """Costs in units of 2^-bits, rounded to the nearest; the multiplication by a power of two is exact."""
    return [int(value) for value in np.rint(np.ldexp(table, bits)).ravel()]


def _cp_model(
    cp: Any, problem: ThresholdProblem, costs: GridCosts, patterns: Patterns, bits: int
) -> tuple[Any, list[Any]]:
    """The model and its coordinates."""
    space, model, total = problem.space, cp.CpModel(), cp.LinearExpr.weighted_sum
    values = [int(value) for value in space.values]
    norms = [model.new_bool_var("") for _ in range(space.squared_radius + 1)]
    weights, binaries = [], []
    for _ in range(space.dimension):
        choice = [model.new_bool_var("") for _ in values]
        weight = model.new_int_var(-space.box, space.box, "")
        model.add_exactly_one(choice)
        model.add(weight == total(choice, values))
        weights.append(weight)
        binaries += choice
    model.add_exactly_one(norms)
    squares = [value**2 for value in values] * space.dimension
    model.add(total(binaries, squares) == total(norms, list(range(space.squared_radius + 1))))
    successes, gains = _cp_successes(cp, model, problem, patterns, weights)
    factors = _whole(costs.per_value, bits) + _whole(costs.per_squared_norm, bits)
    factors += [-(gain << bits) for gain in gains]
    model.minimize(total(binaries + norms + successes, factors))
    return model, weights


def _cp_successes(
    cp: Any, model: Any, problem: ThresholdProblem, patterns: Patterns, weights: list[Any]
) -> tuple[list[Any], list[int]]:
    """One binary for each pattern and label that can be right, and the records that it gains."""
    successes: list[Any] = []
    gains: list[int] = []
    least = [threshold + 1 for threshold in problem.thresholds]
    counts = np.column_stack([patterns.positive, patterns.negative])
    for row, count, reach in zip(patterns.rows, counts, patterns.reach, strict=True):
        active = [int(j) for j in np.flatnonzero(row)]
        score = cp.LinearExpr.weighted_sum([weights[j] for j in active], [int(row[j]) for j in active])
        found = []
        for sign, wanted, gain in zip((1, -1), least, count, strict=True):
            if gain and reach >= wanted:
                success = model.new_bool_var("")
                model.add(sign * score >= wanted).only_enforce_if(success)
                found.append(success)
                gains.append(int(gain))
        if len(found) == 2:
            model.add_at_most_one(found)
        successes += found
    return successes, gains
