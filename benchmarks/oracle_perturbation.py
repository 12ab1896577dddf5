"""Chapter 4, second page, against straightforward baselines: ratios of processor times within one run.

usage: python -m benchmarks.oracle_perturbation [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. Preparing an oracle for a problem, done once for many draws of
the noise, is part of no ratio. The extras ``fast`` and ``solvers`` are needed. One BLAS thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound
from adaptive_dp.oracle_perturbation.group_enumeration import enumerate_group
from adaptive_dp.oracle_perturbation.opdisc import plan
from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Solution,
    ThresholdProblem,
    enumerate_members,
)
from adaptive_dp.oracle_perturbation.sampled_oracles import list_grid
from adaptive_dp.oracle_perturbation.sampled_problems import GridLosses, ScoreLosses
from adaptive_dp.oracle_perturbation.solver_comparison import adult_problem
from adaptive_dp.oracle_perturbation.solvers import cp_sat
from adaptive_dp.validation import FloatArray
from benchmarks.timing import HEADING, Comparison, agree, compare, run

SEED = 20265


@dataclass(frozen=True)
class Setting:
    """What is run."""

    columns: int = 8
    more_columns: int = 10
    records: int | None = 2_000
    epsilon: float = 1.0
    people: int = 10_000
    side: int = 41
    tilts: int = 2_000
    repetitions: int = 5
    block: float = 0.05


QUICK = Setting(records=200, people=200, side=5, tilts=20, repetitions=2, block=0.001)


def drawn_costs(problem: ThresholdProblem, setting: Setting, rng: np.random.Generator) -> GridCosts:
    """OPDisc's perturbation with norm noise."""
    law, _ = plan(problem, epsilon=setting.epsilon)
    return problem.lifted_costs(law.draw(rng))


def oracles(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Exact oracles on the same perturbed problem."""
    small = adult_problem(setting.columns, records=setting.records)
    costs = drawn_costs(small, setting, rng)
    yield _against(small, costs, "every member", lambda: enumerate_members(small, costs), setting)
    yield _against(small, costs, "CP-SAT", lambda: cp_sat(small, costs), setting)
    large = adult_problem(setting.more_columns, records=setting.records)
    more = drawn_costs(large, setting, rng)
    yield _against(large, more, "beside one group", lambda: enumerate_group(large, more), setting)


def _against(
    problem: ThresholdProblem,
    costs: GridCosts,
    name: str,
    baseline: Callable[[], Solution],
    setting: Setting,
) -> Comparison:
    prepared = BranchAndBound(problem)
    agree("minima", np.array(prepared.solve(costs).objective), np.array(baseline().objective), atol=1e-6)
    return compare(
        f"certified minimum, d = {problem.space.dimension}, n = {problem.records:,}",
        ("branch and bound", lambda: prepared.solve(costs)),
        (name, baseline),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def grid_one_by_one(problem: GridLosses, tilts: FloatArray) -> FloatArray:
    """One tilt after the other over all points of the grid."""
    points = problem.grid.points()
    return np.array([points[int(np.argmin(problem.total - points @ tilt))] for tilt in tilts])


def grids(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """OPSamp's grid oracle: all tilts at once against one after the other."""
    features = rng.uniform(-1.0, 1.0, (setting.people, 2))
    problem = ScoreLosses(features, rng.choice([-1.0, 1.0], setting.people), "hinge").on_grid(setting.side)
    tilts = rng.exponential(setting.people / 50, (setting.tilts, 2))
    agree("answers", list_grid(problem, tilts, gap=1e-6).points, grid_one_by_one(problem, tilts))
    yield compare(
        f"{setting.tilts:,} tilts over a grid of {setting.side**2:,} points",
        ("in blocks", lambda: list_grid(problem, tilts, gap=1e-6)),
        ("one by one", lambda: grid_one_by_one(problem, tilts)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    print(HEADING)
    yield from oracles(setting, rng)
    yield from grids(setting, rng)


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run(
        "oracle_perturbation", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments
    )


if __name__ == "__main__":
    sys.exit(main())
