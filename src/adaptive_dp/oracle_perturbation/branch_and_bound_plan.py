"""What the certified oracle prepares once for a problem: groups, the order of the columns, merged records, patterns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.oracle_perturbation.branch_and_bound_kernels import Ball, Patterns, Prices, Records
from adaptive_dp.oracle_perturbation.group_enumeration import check_group
from adaptive_dp.oracle_perturbation.problems import (
    LARGEST_SCORE,
    GridCosts,
    ThresholdProblem,
)
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import FloatArray, check_count

BUDGETS = 64  # slots of the squared norm in the tables over records; a larger one is rounded up
LARGEST_TABLES = 2**31  # bytes


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Order of the columns and merged data: ``first``, then ``second``, in whose bounds ``group`` is solved for."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    group: tuple[int, ...]
    ball: Ball
    records: Records
    patterns: Patterns
    loss_shape: tuple[int, int, int]
    """Radii, patterns and sums of the tables of the second stage."""


def one_hot_groups(features: NDArray[np.int16]) -> list[tuple[int, ...]]:
    """Split the indicator columns into groups of which each record has at most one, all with one common entry.

    The entry is the one that most columns share; a column without entries goes with any. First fit, from left to right:
    coded categories come out whole. Any split is valid, a bad one only costs time.

    Parameters
    ----------
    features : ndarray of integers, shape (n, d)

    Returns
    -------
    list of tuple of int
        Columns of each group; empty without indicators.
    """
    units = [_unit(column) for column in features.T]
    positive = [unit for unit in units if unit > 0]
    if not positive:
        return []
    common = max(sorted(set(positive)), key=positive.count)
    groups: list[list[int]] = []
    taken: list[NDArray[np.bool_]] = []
    for j, unit in enumerate(units):
        if unit not in (0, common):
            continue
        present = features[:, j] != 0
        for group, rows in zip(groups, taken, strict=True):
            if not (rows & present).any():
                group.append(j)
                rows |= present
                break
        else:
            groups.append([j])
            taken.append(present)
    return [tuple(group) for group in groups]


def most_even_group(features: NDArray[np.int16], groups: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The group that splits the records most evenly, by the entropy of their shares; () without groups.

    What is solved for exactly is not relaxed, and the relaxation of an even group costs most. For five sets of columns
    of Adult this was the fastest choice of a group, or close to it.
    """

    def entropy(group: tuple[int, ...]) -> float:
        counts = np.count_nonzero(features[:, group], axis=0)
        shares = np.append(counts, features.shape[0] - counts.sum()) / features.shape[0]
        return -float(np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))

    return max(groups, key=entropy, default=())


def make_plan(
    problem: ThresholdProblem, eliminate: Sequence[int] | None, order: Sequence[int] | None
) -> Plan:
    """Choose what was left open, and merge; the arguments are those of the class ``BranchAndBound``."""
    features = problem.features
    groups = one_hot_groups(features)
    if eliminate is None:
        group = most_even_group(features, groups)
    else:
        told = tuple(eliminate)
        group = check_group(features, told) if told else ()
    unit = max((_unit(features[:, j]) for j in group), default=0)
    if unit == 0:  # nothing in the group, or no group
        unit = max((_unit(features[:, j]) for columns in groups for j in columns), default=1)
    indicator = {j for j, column in enumerate(features.T) if _unit(column) in (0, unit)}
    branched = _branching_order(features, group, indicator, order)
    p = 1 + max((at for at, j in enumerate(branched) if j not in indicator), default=-1)
    first, second = branched[:p], branched[p:]
    return _merge(problem, first, second, group, unit)


def _unit(column: NDArray[np.int16]) -> int:
    """The one positive entry of an indicator column, 0 if it has no entry at all, -1 if it is no indicator."""
    entries = np.unique(column[column != 0])
    if entries.size == 0:
        return 0
    return int(entries[0]) if entries.size == 1 and entries[0] > 0 else -1


def _branching_order(
    features: NDArray[np.int16], group: tuple[int, ...], indicator: set[int], order: Sequence[int] | None
) -> tuple[int, ...]:
    """Columns that are branched on: as told, or indicators last and in each part the heaviest column first."""
    rest = [j for j in range(features.shape[1]) if j not in group]
    if order is None:
        weight = np.square(features.astype(np.float64)).sum(axis=0)
        return tuple(sorted(rest, key=lambda j: (j in indicator, -weight[j], j)))
    told = tuple(check_count("order", j, minimum=0) for j in order)
    if sorted(told) != rest:
        raise ValueError(
            f"order must name each column that is not eliminated once, {rest}, got {list(order)!r}"
        )
    return told


def _merge(
    problem: ThresholdProblem,
    first: tuple[int, ...],
    second: tuple[int, ...],
    group: tuple[int, ...],
    unit: int,
) -> Plan:
    """Merge equal records with their labels, then equal rows of indicators into patterns."""
    space = problem.space
    # Sorted by minus the label: records labelled +1 come first.
    rows = np.column_stack([-problem.labels, problem.features])
    distinct, count = np.unique(rows, axis=0, return_counts=True)
    labels, features = -distinct[:, 0], distinct[:, 1:]
    # Without indicators there is no second stage, and no pattern.
    shared = features[:, [*second, *group]] != 0
    kinds, pattern = np.unique(shared, axis=0, return_inverse=True)
    kinds = kinds[: len(kinds) if shared.shape[1] else 0]
    budgets = min(BUDGETS, space.squared_radius)
    _check_memory(kinds, len(first), len(second), budgets, len(distinct), space)
    patterns = _make_patterns(kinds, len(second), unit, space)
    widest = patterns.reach[:, space.squared_radius]
    radius, sums = int(widest[patterns.free[0].max(initial=0)]), int(widest[-1])
    loss_shape = (radius + 1, len(kinds), 2 * sums + 1)
    step = -(-space.squared_radius // budgets)
    records = Records(
        margins=np.ascontiguousarray((features[:, list(first)] * labels[:, np.newaxis]).T, dtype=np.int16),
        rescue=_rescue(features, first, (*second, *group), space, step),
        weight=count.astype(np.uint16),
        pattern=np.asarray(pattern.reshape(-1), dtype=np.int64),
        positive=int(np.count_nonzero(labels > 0)),
        step=step,
    )
    ball = Ball(space.box, space.squared_radius, *problem.thresholds)
    return Plan(first, second, group, ball, records, patterns, loss_shape)


def _check_memory(
    kinds: NDArray[np.bool_], p: int, m: int, budgets: int, distinct: int, space: IntegerBall
) -> None:
    """Refuse a problem whose tables would not fit, before any of them is made."""
    most, free = (int(part.sum(axis=1).max(initial=0)) for part in (kinds, kinds[:, :m]))
    sums, radius = (min(f * space.box, math.isqrt(f * space.squared_radius)) for f in (most, free))
    needed = 2 * (radius + 1) * len(kinds) * (2 * sums + 1)  # losses of patterns
    needed += 2 * (p + 1) * (budgets + 1) * distinct  # rescue of records
    needed += 8 * (most + p + 2 * m + space.dimension + 4) * (space.squared_radius + 1)  # reach and tails
    if needed > LARGEST_TABLES:
        raise ValueError(
            f"problem needs tables of {needed / 2**30:.3g} GiB, at most {LARGEST_TABLES / 2**30:g}: "
            "take a smaller squared_radius, or fewer distinct records"
        )


def _make_patterns(kinds: NDArray[np.bool_], m: int, unit: int, space: IntegerBall) -> Patterns:
    """Tables of the second stage; the first ``m`` columns of ``kinds`` are branched on, the others are the group."""
    member, part = np.ascontiguousarray(kinds[:, :m].T), kinds[:, m:]
    free = np.zeros((m + 1, len(kinds)), dtype=np.int64)
    free[:m] = np.cumsum(member[::-1], axis=0)[::-1]
    has = part.any(axis=1)
    category = np.where(has, np.argmax(part, axis=1) if part.shape[1] else 0, part.shape[1])
    most = int(kinds.sum(axis=1).max(initial=0))
    return Patterns(member, free, category.astype(np.int64), largest_sums(most, space), unit)


def largest_sums(most: int, space: IntegerBall) -> IntArray:
    """Largest sum of f weights of the space within squared norm k, shape (most + 1, K + 1)."""
    table = np.zeros((most + 1, space.squared_radius + 1), dtype=np.int64)
    for f in range(1, most + 1):
        for value in range(space.box + 1):
            gained = table[f - 1, : space.squared_radius + 1 - value**2] + value
            np.maximum(table[f, value**2 :], gained, out=table[f, value**2 :])
    return table


def _rescue(
    features: NDArray[Any], first: tuple[int, ...], later: tuple[int, ...], space: IntegerBall, step: int
) -> NDArray[np.int16]:
    """The most that free columns add to a margin within each budget: a knapsack for every record.

    Budget s is a squared norm of s ``step``; what is left of it is rounded up to a budget, so that the table is an
    upper bound, and exact for step 1. More than the largest score is never needed.
    """
    budgets = -(-space.squared_radius // step)
    table = np.zeros((budgets + 1, features.shape[0]), dtype=np.int64)
    out = np.zeros((len(first) + 1, *table.shape), dtype=np.int16)
    columns = (*first, *later)
    for at in range(len(columns) - 1, -1, -1):
        size = np.abs(features[:, columns[at]].astype(np.int64))
        previous = table.copy()
        for value in range(1, space.box + 1):
            for s in range(budgets + 1):
                left = s * step - value**2
                if left >= 0:
                    np.maximum(table[s], previous[-(-left // step)] + value * size, out=table[s])
        if at <= len(first):
            out[at] = np.minimum(table, LARGEST_SCORE)
    return out


def make_prices(plan: Plan, costs: GridCosts) -> Prices:
    """Costs in the order of the search, with the least cost of what comes later for each squared norm so far."""
    first, second, group = (
        np.ascontiguousarray(costs.per_value[list(columns)])
        for columns in (plan.first, plan.second, plan.group)
    )
    norm = np.ascontiguousarray(costs.per_squared_norm)
    later = _tails(np.concatenate([first, second, group]), norm)
    return Prices(first, later[: len(first) + 1].copy(), second, _tails(second, norm), group)


def _tails(per_value: FloatArray, norm: FloatArray) -> FloatArray:
    """tails[t, k] = least cost of the columns from t on plus that of the norm, when squared norm k is used before."""
    box, largest = per_value.shape[1] // 2, norm.size - 1
    tails = np.full((per_value.shape[0] + 1, norm.size), np.inf)
    tails[-1] = norm
    for t in range(per_value.shape[0] - 1, -1, -1):
        for value in range(-box, box + 1):
            square = value**2
            extended = tails[t + 1, square:] + per_value[t, value + box]
            np.minimum(tails[t, : largest + 1 - square], extended, out=tails[t, : largest + 1 - square])
    return tails
