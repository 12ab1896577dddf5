"""General solvers beside exact enumeration on Adult: where they agree, and where they stop.

Balanced Adult with some of the columns of neel2019, integers on a grid of 1/1000, perturbed by OPDisc's norm noise.
The solvers get the formulation of :mod:`~adaptive_dp.oracle_perturbation.halfspace_program`, one thread, and the
same noise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.datasets import load_adult
from adaptive_dp.experiments import profile_settings
from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound
from adaptive_dp.oracle_perturbation.discrete_privacy import shift
from adaptive_dp.oracle_perturbation.group_enumeration import enumerate_group
from adaptive_dp.oracle_perturbation.halfspace_program import halfspace_program, merge_records
from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Oracle,
    Solution,
    ThresholdProblem,
    enumerate_members,
    integer_features,
)
from adaptive_dp.oracle_perturbation.solvers import cp_sat, highs, solve_program
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.plots.numbers import superscript
from adaptive_dp.validation import FloatArray, check_count, check_positive

# Numeric columns and groups of indicators of the comparisons, by their number of columns.
COLUMNS: dict[int, tuple[tuple[str, ...], tuple[str, ...]]] = {
    8: (("education_num", "capital_gain"), ("relationship",)),
    10: (("age", "education_num", "capital_gain", "hours_per_week"), ("relationship",)),
    23: (
        ("capital_gain", "capital_loss", "hours_per_week"),
        ("marital_status", "relationship", "race", "sex"),
    ),
}
ORACLES: dict[str, Oracle] = {
    "all members": enumerate_members,
    "one group": enumerate_group,
    "CP-SAT": cp_sat,
    "HiGHS": highs,
}
SAME = 1e-6  # objectives that are closer agree
# What the recorded comparison runs: columns, records (None: all), epsilons.
CASES: tuple[tuple[int, int | None, tuple[float, ...]], ...] = (
    (8, 2_000, (1.0, 8.0)),
    (8, None, (1.0, 8.0)),
    (10, 2_000, (1.0, 8.0)),
    (10, None, (1.0, 8.0)),
    (23, None, (1.0,)),
)


def programs_settings(profile: str) -> dict[str, Any]:
    """Sizes of the page's section: records ``solved`` for, ``epsilons``, and ``draws`` of the noise."""
    return profile_settings(
        profile,
        quick={"solved": 400, "epsilons": (1.0,), "draws": 100},
        book={"solved": 2_000, "epsilons": (1.0, 8.0), "draws": 500},
        paper={"solved": 4_000, "epsilons": (1.0, 8.0), "draws": 4_000},
    )


def adult_problem(
    columns: int, *, records: int | None = None, tie: str = "error", seed: int = 20_261
) -> ThresholdProblem:
    """Halfspaces |w|^2 <= d on balanced Adult with 8, 10 or 23 columns.

    Parameters
    ----------
    columns : {8, 10, 23}
        Grade of education, capital gain and relationship; the same with age and hours; or the 23 columns of
        ``load_adult("neel")``.
    records : int or None
        Half of them of each label, the first ones in the loader's random order; None takes all 15,682.
    tie : {"error", "plus", "minus"}
    seed : int
        Which negative records are in the balanced set.

    Raises
    ------
    ValueError
        Another number of columns, or an odd or too large number of records.
    """
    if columns not in COLUMNS:
        raise ValueError(f"columns must be one of {', '.join(map(str, COLUMNS))}, got {columns!r}")
    numeric, groups = COLUMNS[columns]
    # Both readings of the paper's columns have the same records in the same order.
    code, regression = (
        load_adult("neel", seed, columns=kind, scaling="none") for kind in ("code", "regression")
    )
    by_name = {name: data.features[:, j] for data in (code, regression) for j, name in enumerate(data.names)}
    names = [*numeric, *(name for name in code.names if name.split(":")[0] in groups)]
    features = integer_features(np.column_stack([by_name[name] for name in names]))
    labels = code.labels.astype(np.int8)
    if records is not None:
        half, odd = divmod(check_count("records", records, minimum=2), 2)
        if odd or half > (labels > 0).sum():
            raise ValueError(f"records must be even and at most {len(labels)}, got {records}")
        chosen = np.sort(np.concatenate([np.flatnonzero(labels == sign)[:half] for sign in (1, -1)]))
        features, labels = features[chosen], labels[chosen]
    return ThresholdProblem(features, labels, IntegerBall.halfspaces(len(names)), tie)


def opdisc_noise(
    problem: ThresholdProblem, epsilon: float, rng: np.random.Generator, *, draws: int
) -> FloatArray:
    """OPDisc's norm noise, not folded, so that both signs of the last coordinate occur; shape (draws, d + 1)."""
    scale = shift(problem) / check_positive("epsilon", epsilon)
    return norm_exponential(scale, problem.space.dimension + 1, rng, draws=draws)


def compare_oracles(
    problem: ThresholdProblem,
    epsilons: Sequence[float],
    rng: np.random.Generator,
    *,
    oracles: Mapping[str, Oracle] = ORACLES,
) -> pd.DataFrame:
    """Ask several oracles for the minimum of the same perturbed problems, one draw of the noise for each epsilon.

    Returns
    -------
    DataFrame
        ``epsilon``, ``oracle``, ``objective``, ``lower_bound``, ``gap``, ``nodes``, ``seconds`` (of the processor),
        and ``excess`` over the best objective that any of them found.
    """
    rows = []
    for epsilon in epsilons:
        costs = problem.lifted_costs(opdisc_noise(problem, epsilon, rng, draws=1)[0])
        found = {name: _timed(oracle, problem, costs) for name, oracle in oracles.items()}
        best = min(solution.objective for solution, _ in found.values())
        rows += [
            {
                "epsilon": epsilon,
                "oracle": name,
                "objective": solution.objective,
                "lower_bound": solution.lower_bound,
                "gap": solution.gap,
                "nodes": solution.nodes,
                "seconds": seconds,
                "excess": solution.objective - best,
            }
            for name, (solution, seconds) in found.items()
        ]
    return pd.DataFrame(rows)


def _timed(oracle: Oracle, problem: ThresholdProblem, costs: Any) -> tuple[Solution, float]:
    start = time.process_time()
    solution = oracle(problem, costs)
    return solution, time.process_time() - start


def agreement_table(found: pd.DataFrame) -> pd.DataFrame:
    """Columns of :func:`compare_oracles` that are the same on every machine, for the page.

    Returns
    -------
    DataFrame
        ``epsilon``, ``oracle``, ``objective``, ``agrees``: within 1e-6 of the best, ``gap below``: a power of ten,
        as text.
    """
    return pd.DataFrame(
        {
            "epsilon": found["epsilon"],
            "oracle": found["oracle"],
            "objective": found["objective"],
            "agrees": found["excess"] <= SAME,
            "gap below": [power_above(gap) for gap in found["gap"]],
        }
    )


def power_above(gap: float) -> str:
    """The smallest power of ten that is above a gap, as text; 0 for an exact answer."""
    if gap == 0:
        return "0"
    return f"10{superscript(math.floor(math.log10(gap)) + 1)}"


def relaxation_table(columns: Sequence[int], *, records: int | None = None) -> pd.DataFrame:
    """What the linear relaxation knows without noise: next to nothing beyond records that contradict each other.

    Returns
    -------
    DataFrame
        ``d``, ``patterns``: distinct rows up to multiples, ``relaxation``: its least number of errors, ``twins``:
        errors that nobody can avoid, since the rows are the same and the labels are not, ``least``: the true
        minimum.
    """
    rows = []
    for count in columns:
        problem = adult_problem(count, records=records)
        space = problem.space
        costs = GridCosts(np.zeros((count, 2 * space.box + 1)), np.zeros(space.squared_radius + 1))
        patterns = merge_records(problem)
        program = halfspace_program(problem, costs, patterns)
        bound = float(solve_program(program, relaxed=True).fun) + program.constant
        twins = int(np.minimum(patterns.positive, patterns.negative).sum())
        least = int(enumerate_group(problem, costs).objective)
        rows.append((count, len(patterns.rows), bound, twins, least))
    return pd.DataFrame(rows, columns=["d", "patterns", "relaxation", "twins", "least"])


def record_comparison(seed: int, *, seconds: float) -> pd.DataFrame:
    """Run :data:`CASES` with a limit on each solve; about five minutes at 30 seconds.

    Returns
    -------
    DataFrame
        ``columns``, ``records`` and the columns of :func:`compare_oracles`; the exact oracle is called "exact":
        enumeration of one group, and with 23 columns the branch and bound.
    """

    def limited_cp_sat(problem: ThresholdProblem, costs: Any, /) -> Solution:
        return cp_sat(problem, costs, seconds=seconds)

    def limited_highs(problem: ThresholdProblem, costs: Any, /) -> Solution:
        return highs(problem, costs, seconds=seconds)

    frames = []
    for columns, records, epsilons in CASES:
        problem = adult_problem(columns, records=records)
        exact: Oracle = enumerate_group if columns < max(COLUMNS) else BranchAndBound(problem)
        oracles: dict[str, Oracle] = {"exact": exact, "CP-SAT": limited_cp_sat, "HiGHS": limited_highs}
        frame = compare_oracles(problem, epsilons, np.random.default_rng([seed, columns]), oracles=oracles)
        frame.insert(0, "records", problem.records)
        frame.insert(0, "columns", columns)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def recorded_numbers(recorded: pd.DataFrame) -> dict[str, float]:
    """Numbers of the text beside the recorded runs.

    Returns
    -------
    dict
        ``ten_cpsat`` and ``ten_highs``: most seconds of CP-SAT and least gap of HiGHS at 10 columns and 2,000
        records; ``full_exact``: most seconds of enumeration at 10 columns and all records; ``full_gap``: least gap
        of a solver with all records and 10 or 23 columns; ``stopped`` runs of CP-SAT, and ``held``: those that had
        the minimiser.
    """
    ten = recorded[(recorded["columns"] == 10) & (recorded["records"] == 2_000)]
    full = recorded[(recorded["columns"] >= 10) & (recorded["records"] > 2_000)]
    general = full[full["oracle"] != "exact"]
    exact = full[(full["oracle"] == "exact") & (full["columns"] == 10)]
    stopped = recorded[(recorded["oracle"] == "CP-SAT") & (recorded["gap"] > SAME)]
    return {
        "ten_cpsat": float(ten["seconds"][ten["oracle"] == "CP-SAT"].max()),
        "ten_highs": float(ten["gap"][ten["oracle"] == "HiGHS"].min()),
        "full_exact": float(exact["seconds"].max()),
        "full_gap": float(general["gap"].min()),
        "stopped": len(stopped),
        "held": int((stopped["excess"] <= SAME).sum()),
    }


def recorded_table(recorded: pd.DataFrame) -> pd.DataFrame:
    """One row a problem: time of the exact oracle, and time, excess and gap of both solvers.

    Returns
    -------
    DataFrame
        ``d, n``, ``epsilon``, ``exact, s``, ``CP-SAT, s``, ``its gap``, ``HiGHS, s`` and ``gap``.
    """
    wide = recorded.pivot_table(
        index=["columns", "records", "epsilon"], columns="oracle", values=["seconds", "gap"], sort=False
    )
    keys = [f"{columns}; {records:,}" for columns, records, _ in wide.index]
    return pd.DataFrame(
        {
            "d; n": keys,
            "epsilon": [epsilon for _, _, epsilon in wide.index],
            "exact, s": wide["seconds", "exact"].to_numpy(),
            "CP-SAT, s": wide["seconds", "CP-SAT"].to_numpy(),
            "CP-SAT gap": wide["gap", "CP-SAT"].to_numpy(),
            "HiGHS, s": wide["seconds", "HiGHS"].to_numpy(),
            "HiGHS gap": wide["gap", "HiGHS"].to_numpy(),
        }
    )
