"""Problems and tables that show the certified oracle at work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound
from adaptive_dp.oracle_perturbation.problems import GridCosts, ThresholdProblem, integer_features
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import check_count


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
