"""Problems and tables that show the certified oracle at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound
from adaptive_dp.oracle_perturbation.discrete_privacy import shift
from adaptive_dp.oracle_perturbation.problems import GridCosts, ThresholdProblem, integer_features
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import check_choice, check_count


class Sizes(NamedTuple):
    """What the page runs in each profile."""

    budgets: tuple[int, ...]
    epsilons: tuple[float, ...]


def oracle_sizes(profile: str) -> Sizes:
    """Budgets of nodes and privacy levels of the page's live solves, for the profiles quick, book and paper."""
    check_choice("profile", profile, ("quick", "book", "paper"))
    if profile == "quick":
        return Sizes((1_000, 10_000), (0.1, 1.0, 8.0))
    return Sizes((1_000, 10_000, 50_000), (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0))


def halfspaces_on(
    data: Dataset,
    *,
    features: Sequence[str] | None = None,
    records: int | None = None,
    space: IntegerBall | None = None,
    tie: str = "error",
    grid: int = 1000,
) -> ThresholdProblem:
    """Halfspaces on a prepared data set, or on a part of it.

    Parameters
    ----------
    data : Dataset
        Features in [-1, 1] and labels in {-1, +1}, such as ``load_adult("neel", scaling="none")``.
    features : sequence of str or None
        Columns to keep: their names, or the name of a category for all its indicators. None keeps all.
    records : int or None
        How many records, the first ones; the loader of Adult returns them in random order. None takes all.
    space : IntegerBall or None
        None takes :meth:`~adaptive_dp.oracle_perturbation.spaces.IntegerBall.halfspaces`.
    tie : {"error", "plus", "minus"}
    grid : int
        Features are rounded to multiples of 1 / grid.

    Returns
    -------
    ThresholdProblem

    Raises
    ------
    ValueError
        An unknown name, more records than there are, or what :class:`ThresholdProblem` refuses.
    """
    chosen = np.arange(data.columns) if features is None else _columns(data.names, features)
    rows = data.rows if records is None else check_count("records", records)
    if rows > data.rows:
        raise ValueError(f"records must be at most {data.rows}, got {rows}")
    ball = IntegerBall.halfspaces(chosen.size) if space is None else space
    labels = data.labels[:rows].astype(np.int8)
    return ThresholdProblem(integer_features(data.features[:rows, chosen], grid), labels, ball, tie)


def _columns(names: Sequence[str], features: Sequence[str]) -> IntArray:
    found: list[int] = []
    for feature in features:
        of_feature = [j for j, name in enumerate(names) if name == feature or name.startswith(f"{feature}: ")]
        if not of_feature:
            raise ValueError(f"features must name columns or categories of the data, got {feature!r}")
        found += of_feature
    return np.array(found, dtype=np.int64)


def certificate_table(oracle: BranchAndBound, costs: GridCosts, budgets: Sequence[int]) -> pd.DataFrame:
    """How answer and bound approach each other as the search may look at more nodes.

    Parameters
    ----------
    oracle : BranchAndBound
    costs : GridCosts
    budgets : sequence of int
        Numbers of nodes after which the search is stopped; the last row is the search that is not.

    Returns
    -------
    DataFrame
        Columns nodes, objective, bound, gap, certified (gap of at most 1e-6).
    """
    rows = []
    for budget in (*budgets, None):
        answer = oracle.solve(costs, max_nodes=budget)
        certified = "yes" if answer.gap <= 1e-6 else "no"
        rows.append((answer.nodes, answer.objective, answer.lower_bound, answer.gap, certified))
    return pd.DataFrame(rows, columns=["nodes", "objective", "bound", "gap", "certified"])


def difficulty_table(
    oracle: BranchAndBound, epsilons: Sequence[float], rng: np.random.Generator
) -> pd.DataFrame:
    """One draw of OPDisc's norm noise per privacy level, and how much work its minimum is.

    Parameters
    ----------
    oracle : BranchAndBound
    epsilons : sequence of float
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        Columns epsilon, noise (length of the noise vector), nodes, errors (of the minimiser), gap.
    """
    problem = oracle.problem
    rows = []
    for epsilon in epsilons:
        noise = norm_exponential(shift(problem) / epsilon, problem.space.dimension + 1, rng)
        answer = oracle.solve(problem.lifted_costs(noise))
        errors = int(problem.errors(answer.point))
        rows.append((epsilon, float(np.linalg.norm(noise)), answer.nodes, errors, answer.gap))
    return pd.DataFrame(rows, columns=["epsilon", "noise", "nodes", "errors", "gap"])
