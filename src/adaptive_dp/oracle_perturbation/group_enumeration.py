"""An exact oracle in plain numpy: enumerate the weights outside one group of indicators, solve the group exactly.

A coded category is a group of columns of which a record has at most one. Given the weights of all *other* columns,
each record's loss depends on the weight of one column of the group only, so that the objective is a sum over the
columns of the group and a table over the squared norm: a knapsack, which a dynamic programme over the squared norm
minimises exactly. No bound is pruned with, nothing is compiled, and what remains to be believed is short. It is
meant for teaching sizes, and as a second opinion on faster oracles.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Solution,
    ThresholdProblem,
    rounding_allowance,
)
from adaptive_dp.oracle_perturbation.spaces import LARGEST_LIST, IntArray, IntegerBall
from adaptive_dp.validation import FloatArray, check_count

# Entries of the score table of one block: about 30 MB with its temporaries.
BLOCK_ENTRIES = 1_000_000


def enumerate_group(
    problem: ThresholdProblem, costs: GridCosts, /, *, group: Sequence[int] | None = None
) -> Solution:
    """Minimise exactly by enumerating all weights outside one group of indicators.

    With p columns outside the group, m in it and N members of the ball in p dimensions, the cost is N n integer
    operations for the scores and N m B K for the dynamic programme, whatever the noise. Four columns beside a group
    of six (d = 10, B = 3, K = 10) have N = 569: a fraction of a second at n = 2,000 and at n = 15,682. Memory stays
    near 50 MB.

    Parameters
    ----------
    problem : ThresholdProblem
        Any tie rule.
    costs : GridCosts
        Any tables that fit: OPDisc's noise of either sign, RSPM's separators.
    group : sequence of int or None
        Columns of which each record has at most one, with one common positive entry, as :func:`find_group` returns
        them; None looks for the largest group. The choice changes the time that is taken and not the minimum.

    Returns
    -------
    Solution
        ``nodes`` is N. The lower bound is the minimum found less :func:`rounding_allowance`, since the sums are of
        doubles; it holds for the exact value of the tables as they were given.

    Raises
    ------
    TypeError
        ``problem`` is not a ThresholdProblem.
    ValueError
        Tables that do not fit, columns that are not such a group, no group where none was named, or more than four
        million weights outside it.
    """
    start = time.perf_counter()
    if not isinstance(problem, ThresholdProblem):
        raise TypeError(f"problem must be a ThresholdProblem, got {type(problem).__name__}")
    tables = problem.check_costs(costs)
    columns = find_group(problem.features) if group is None else check_group(problem.features, group)
    records = _split(problem, columns)
    others, outside = _other_weights(problem.space, records.outside.shape[1])
    best = (math.inf, 0)
    room = problem.space.squared_radius + 1
    wide = max(records.outside.shape[0], (len(columns) + 1) * max(room, 4 * (problem.space.box + 1)))
    size = max(1, BLOCK_ENTRIES // max(1, wide))
    for at in range(0, len(outside), size):
        block = outside[at : at + size]
        totals = _block_totals(problem.space, records, block, tables, columns)
        least = int(np.argmin(totals))
        if totals[least] < best[0]:
            best = (float(totals[least]), at + least)
    point = _assemble(problem.space, records, outside[best[1]], tables, columns)
    bound = best[0] - rounding_allowance(problem, tables)
    objective = float(problem.objective(point, tables))
    return Solution(point, objective, bound, nodes=others, seconds=time.perf_counter() - start)


def check_group(features: NDArray[np.int16], group: Sequence[int]) -> tuple[int, ...]:
    """Return ``group`` as column numbers if each record has at most one of them, always with the same positive entry.

    Raises
    ------
    ValueError
        No columns, a column twice or out of range, two in one record, a negative entry, or two different entries.
    """
    d = int(features.shape[1])
    columns = tuple(check_count("group", column, minimum=0) for column in group)
    if not columns or len(set(columns)) != len(columns) or max(columns) >= d:
        raise ValueError(f"group must name different columns from 0 to {d - 1}, got {list(group)!r}")
    part = features[:, columns]
    entries = np.unique(part[part != 0])
    if entries.size > 1 or (entries.size and entries[0] < 0):
        raise ValueError(f"group must hold 0 and one positive entry only, got {entries[:4].tolist()}")
    busiest = int(np.argmax((part != 0).sum(axis=1)))
    if (part[busiest] != 0).sum() > 1:
        raise ValueError(f"group must be one-hot: record {busiest} has {(part[busiest] != 0).sum()} of them")
    return columns


def find_group(features: NDArray[np.int16]) -> tuple[int, ...]:
    """Return a large set of columns of which each record has at most one, always with the same positive entry.

    Greedy: from each such column on, to the right and around, whatever column still fits is added; the largest set
    wins. Columns without any entry fit everywhere. What it finds decides how long :func:`enumerate_group` takes, no
    more.

    Raises
    ------
    ValueError
        No column has a single nonzero, positive entry.
    """
    indicator = features != 0
    top = features.max(axis=0).astype(np.int64)
    usable = np.flatnonzero((~indicator | (features == top)).all(axis=0) & (top >= 0))
    present = indicator[:, usable].astype(np.float32)
    together = (present.T @ present) > 0
    best: list[int] = []
    for first in range(usable.size):
        chosen: list[int] = []
        unit = int(top[usable[first]])
        for j in np.roll(np.arange(usable.size), -first):
            entry = int(top[usable[j]])
            if entry in (0, unit) and not together[j, chosen].any():
                chosen.append(int(j))
        if unit > 0 and len(chosen) > len(best):
            best = chosen
    if not best:
        raise ValueError("features must have a column of indicators: 0 and one positive entry, got none")
    return tuple(sorted(int(usable[j]) for j in best))


def cheapest_by_squared_norm(table: FloatArray, values: IntArray, largest: int) -> FloatArray:
    """Cheapest choice of one value per coordinate, for each squared norm: a knapsack.

    Parameters
    ----------
    table : ndarray, shape (..., m, len(values))
        Cost of each value of each of m coordinates.
    values : ndarray of int
        -B ... B.
    largest : int
        K.

    Returns
    -------
    ndarray, shape (..., m + 1, K + 1)
        Entry [..., c, k]: the cheapest sum over the first c coordinates with squared norm k; infinite if there is
        none.
    """
    m = table.shape[-2]
    cheapest = np.full((*table.shape[:-2], m + 1, largest + 1), np.inf)
    cheapest[..., 0, 0] = 0.0
    for c in range(m):
        for column, value in enumerate(values):
            square = int(value) ** 2
            if square <= largest:
                candidate = cheapest[..., c, : largest + 1 - square] + table[..., c, column, np.newaxis]
                target = cheapest[..., c + 1, square:]
                np.minimum(target, candidate, out=target)
    return cheapest


@dataclass(frozen=True, slots=True, eq=False)
class _Records:
    """Equal records merged: entries outside the group, column of the group (m: none), label, number, limit."""

    outside: IntArray
    category: IntArray
    positive: NDArray[np.bool_]
    count: FloatArray
    limit: IntArray
    unit: int
    group_size: int


def _split(problem: ThresholdProblem, columns: tuple[int, ...]) -> _Records:
    rows = np.column_stack([problem.features, problem.labels])
    distinct, count = np.unique(rows, axis=0, return_counts=True)
    features, positive = distinct[:, :-1].astype(np.int64), distinct[:, -1] > 0
    part = features[:, columns]
    category = np.where((part != 0).any(axis=1), np.argmax(part != 0, axis=1), len(columns))
    rest = np.setdiff1d(np.arange(problem.space.dimension), columns)
    limit = np.where(positive, *problem.thresholds)
    unit = max(int(part.max()), 1)
    return _Records(
        features[:, rest], category, positive, count.astype(np.float64), limit, unit, len(columns)
    )


def _other_weights(space: IntegerBall, dimension: int) -> tuple[int, IntArray]:
    """Members of the ball in the columns outside the group: how many, and which."""
    if dimension == 0:
        return 1, np.zeros((1, 0), dtype=np.int64)
    ball = IntegerBall(dimension, space.box, space.squared_radius)
    if ball.size > LARGEST_LIST:
        raise ValueError(
            f"group leaves {dimension} columns with {ball.size} weights to enumerate (at most {LARGEST_LIST})"
        )
    return ball.size, ball.points()


def _group_losses(space: IntegerBall, records: _Records, block: IntArray) -> tuple[FloatArray, FloatArray]:
    """Errors by value of the group's weights, (N, m, 2 B + 1), and of the records without a category, (N,).

    A record with score s outside the group and unit u errs at weight v if y (s + u v) <= limit: for y = +1 at all v
    up to floor((limit - s) / u), for y = -1 at all v from ceil((-limit - s) / u) on. Counting where that changes
    and summing along v counts the errors.
    """
    box, m, values = space.box, records.group_size, 2 * space.box + 1
    scores = (block @ records.outside.T).astype(np.int64)
    signed = np.where(records.positive, records.limit - scores, records.limit + scores)
    last = np.floor_divide(signed, records.unit)  # y v <= last is an error
    last = np.clip(last, -box - 1, box)
    # Column `last + B + 1` of 2 B + 2: how many values, from the bottom in the order of y v, are errors.
    cell = np.arange(len(block))[:, np.newaxis] * (m + 1) + records.category
    cell = (cell * 2 + records.positive) * (values + 1) + last + box + 1
    weights = np.broadcast_to(records.count, cell.shape).ravel()
    counts = np.bincount(cell.ravel(), weights, minlength=len(block) * (m + 1) * 2 * (values + 1))
    counts = counts.reshape(len(block), m + 1, 2, values + 1)
    # A record errs at the i-th value of y v if its number of errors is above i.
    errors = counts[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]
    by_value = errors[:, :, 1] + errors[:, :, 0, ::-1]
    return by_value[:, :m], by_value[:, m, box]


def _block_totals(
    space: IntegerBall, records: _Records, block: IntArray, costs: GridCosts, columns: tuple[int, ...]
) -> FloatArray:
    """Minimum of the objective over the group's weights, for each of the weights of the other columns, shape (N,)."""
    losses, constant = _group_losses(space, records, block)
    cheapest = cheapest_by_squared_norm(
        losses + costs.per_value[columns, :], space.values, space.squared_radius
    )[:, -1]
    rest = np.setdiff1d(np.arange(space.dimension), columns)
    constant = constant + costs.per_value[rest, block + space.box].sum(axis=1)
    return np.asarray((cheapest + _norm_costs(space, block, costs)).min(axis=1) + constant)


def _norm_costs(space: IntegerBall, block: IntArray, costs: GridCosts) -> FloatArray:
    """Cost of the whole squared norm by that of the group, (N, K + 1); infinite where it would leave the ball."""
    whole = np.square(block).sum(axis=1)[:, np.newaxis] + np.arange(space.squared_radius + 1)
    padded = np.concatenate([costs.per_squared_norm, np.full(space.squared_radius + 1, np.inf)])
    return np.asarray(padded[whole])


def _assemble(
    space: IntegerBall, records: _Records, weights: IntArray, costs: GridCosts, columns: tuple[int, ...]
) -> IntArray:
    """The whole minimiser for the best weights outside the group: the dynamic programme once more, with its choices."""
    block = weights[np.newaxis]
    losses, _ = _group_losses(space, records, block)
    table = losses[0] + costs.per_value[columns, :]
    cheapest = cheapest_by_squared_norm(table, space.values, space.squared_radius)
    left = int(np.argmin(cheapest[-1] + _norm_costs(space, block, costs)[0]))
    point = np.zeros(space.dimension, dtype=np.int64)
    point[np.setdiff1d(np.arange(space.dimension), columns)] = weights
    squares = space.values**2
    for c in range(len(columns) - 1, -1, -1):
        fits = squares <= left
        before = np.where(fits, cheapest[c, np.where(fits, left - squares, 0)], np.inf)
        choice = int(np.argmin(before + table[c]))
        point[columns[c]] = space.values[choice]
        left -= int(squares[choice])
    return point
