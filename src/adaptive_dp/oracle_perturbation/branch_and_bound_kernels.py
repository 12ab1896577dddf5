"""Inner loops of the certified oracle, compiled by ``numba`` where it is installed.

Hand-written because no library has this search, and compiled because it looks at up to a million nodes. What is not a
loop over records, patterns or nodes is in :mod:`~adaptive_dp.oracle_perturbation.branch_and_bound`, where the two
stages are explained. All functions here are deterministic, and the arrays have fixed types, so that each is compiled
once.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.validation import FloatArray

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
IntArray = NDArray[np.int64]
TOLERANCE = 1e-7  # a branch is closed when it cannot improve the incumbent by more than this


def _numba() -> Any:
    """``numba``, or None where the optional extra is not installed; it ships no types for mypy to follow."""
    try:
        return import_module("numba")
    except ImportError:
        return None


numba: Any = _numba()


def compiled(function: Kernel) -> Kernel:
    """Compile a kernel and keep the result on disk; without ``numba`` leave it as it is.

    The decorators of ``numba`` have no types, and would take those of the kernels away: through this function each
    kernel keeps the signature that it is written with.
    """
    if numba is None:
        return function
    try:
        return cast(Kernel, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # no folder that can be written to: compile in every process
        return cast(Kernel, numba.njit(function))


class Ball(NamedTuple):
    """The space, and the tie rule: largest y <w, x> that is still an error, for both labels."""

    box: int
    squared_radius: int
    positive_limit: int
    negative_limit: int


class Records(NamedTuple):
    """First stage: distinct records, those labelled +1 first, in p columns."""

    margins: NDArray[np.int16]
    """y_i x_ij, shape (p, N)."""
    rescue: NDArray[np.int16]
    """The most that the columns from the t-th on, and all later ones, add to a margin, shape (p + 1, budgets, N)."""
    weight: NDArray[np.uint16]
    """How many records each stands for, shape (N,)."""
    pattern: IntArray
    """Pattern of each, shape (N,)."""
    positive: int
    """How many are labelled +1."""
    step: int
    """Squared norm from one budget of ``rescue`` to the next."""


class Patterns(NamedTuple):
    """Second stage: distinct rows in the m indicator columns that are left and in the group, P of them."""

    member: NDArray[np.bool_]
    """Whether a pattern has an entry in the j-th column, shape (m, P)."""
    free: IntArray
    """In how many of the columns from the t-th on it has one, shape (m + 1, P)."""
    category: IntArray
    """Its column of the group, or the size of the group if it has none, shape (P,)."""
    reach: IntArray
    """Largest sum of f weights within squared norm k, shape (most columns of a pattern + 1, K + 1)."""
    unit: int
    """The common entry M."""


class Prices(NamedTuple):
    """Costs in the order of the search. A tail is the least cost of what comes later, by the squared norm so far."""

    first: FloatArray
    first_tail: FloatArray
    second: FloatArray
    second_tail: FloatArray
    group: FloatArray


class Stack(NamedTuple):
    """The open part of a depth-first search over L columns."""

    depth: IntArray
    """Level, shape (1,); -1 when nothing is left."""
    used: IntArray
    """Squared norm so far, shape (L + 1,)."""
    spent: FloatArray
    """Cost so far, shape (L + 1,)."""
    own: FloatArray
    """Bound of the node at each level, shape (L + 1,)."""
    kept: IntArray
    """Children that were kept, or -1 before they were looked at, shape (L + 1,)."""
    entered: IntArray
    """First child that was not entered yet, shape (L + 1,)."""
    chosen: IntArray
    """Value of each column on the way to the current node, shape (L,)."""
    values: IntArray
    bounds: FloatArray
    """The children, best bound first, shape (L + 1, 2 B + 1)."""
    stop: IntArray
    """Not zero, shape (1,), when the search is to end: set from outside."""


class Work(NamedTuple):
    """Scratch memory of the bound of the second stage."""

    counts: IntArray
    cheapest: FloatArray
    updated: FloatArray


@compiled
def keep_child(stack: Stack, level: int, value: int, bound: float) -> None:
    """Insert a child in the order of the bounds; of equal ones the earlier stays first."""
    place = stack.kept[level]
    while place > 0 and stack.bounds[level, place - 1] > bound:
        stack.bounds[level, place] = stack.bounds[level, place - 1]
        stack.values[level, place] = stack.values[level, place - 1]
        place -= 1
    stack.bounds[level, place] = bound
    stack.values[level, place] = value
    stack.kept[level] += 1


@compiled
def enter_child(stack: Stack, prices: FloatArray, box: int) -> int:
    """Go down to the best child that was not entered yet; return its value."""
    level = stack.depth[0]
    value = stack.values[level, stack.entered[level]]
    stack.own[level + 1] = stack.bounds[level, stack.entered[level]]
    stack.entered[level] += 1
    stack.chosen[level] = value
    stack.used[level + 1] = stack.used[level] + value * value
    stack.spent[level + 1] = stack.spent[level] + prices[level, value + box]
    stack.kept[level + 1] = -1
    stack.depth[0] = level + 1
    return int(value)


@compiled
def exhausted(stack: Stack, incumbent: float) -> bool:
    """Whether no child of the current node is left that could improve the incumbent."""
    level = stack.depth[0]
    at = stack.entered[level]
    return bool(at >= stack.kept[level] or stack.bounds[level, at] >= incumbent - TOLERANCE)


@compiled
def open_bound(stack: Stack) -> float:
    """Smallest bound of what was not looked at; infinite when nothing is left."""
    least = np.inf
    for level in range(stack.depth[0] + 1):
        if stack.kept[level] < 0:
            least = min(least, stack.own[level])
        elif stack.entered[level] < stack.kept[level]:
            least = min(least, stack.bounds[level, stack.entered[level]])
    return float(least)


@compiled
def add_multiple(
    out: NDArray[np.int16], base: NDArray[np.int16], column: NDArray[np.int16], value: int
) -> None:
    """Out = base + value column, in 16 bits, which the compiler turns into vector instructions."""
    factor = np.int16(value)
    for i in range(out.size):
        out[i] = np.int16(base[i] + np.int16(factor * column[i]))


@compiled
def add_member(out: IntArray, base: IntArray, member: NDArray[np.bool_], value: int) -> None:
    """Out = base, plus value for the patterns that have an entry in the column."""
    for c in range(out.size):
        out[c] = base[c] + value * member[c]


@compiled
def weigh_lost(
    margins: NDArray[np.int16],
    rescue: NDArray[np.int16],
    weight: NDArray[np.uint16],
    start: int,
    stop: int,
    limit: int,
) -> int:
    """Records from ``start`` to ``stop`` whose margin stays at most ``limit`` whatever comes.

    Sixteen bits throughout, slices and a mask instead of a branch: vector instructions again. The margin is compared
    with limit - rescue, which fits into 16 bits for every rescue up to 32,766.
    """
    own, most, number = margins[start:stop], rescue[start:stop], weight[start:stop]
    last = np.int16(limit)
    total = np.uint16(0)
    for i in range(own.size):
        total = np.uint16(total + (number[i] if own[i] <= np.int16(last - most[i]) else np.uint16(0)))
    return int(total)


@compiled
def bound_records(
    records: Records, ball: Ball, margins: NDArray[np.int16], level: int, used: int, tail: FloatArray
) -> float:
    """First stage: errors that no completion avoids, and the least cost of a completion."""
    budget = (ball.squared_radius - used + records.step - 1) // records.step
    rescue = records.rescue[level, budget]
    lost = weigh_lost(margins, rescue, records.weight, 0, records.positive, ball.positive_limit)
    lost += weigh_lost(margins, rescue, records.weight, records.positive, margins.size, ball.negative_limit)
    return float(lost + tail[level, used])


@compiled
def fill_losses(
    records: Records,
    patterns: Patterns,
    ball: Ball,
    margins: NDArray[np.int16],
    losses: NDArray[np.uint16],
    changes: IntArray,
) -> None:
    """Tables of the second stage: losses[r, c, T + t] = least errors of pattern c if its weights sum to within r of t.

    A record with margin z is an error at the sum t if z + y M t <= limit: for y = +1 at all t up to
    floor((limit - z) / M), for y = -1 at all t from ceil((z - limit) / M) on.
    """
    reach = (losses.shape[2] - 1) // 2
    changes[:] = 0
    for i in range(margins.size):
        number = np.int64(records.weight[i])
        if i < records.positive:
            last = (ball.positive_limit - np.int64(margins[i])) // patterns.unit
            if last >= -reach:
                changes[records.pattern[i], 0] += number
                changes[records.pattern[i], min(last, reach) + reach + 1] -= number
        else:
            first = -((ball.negative_limit - np.int64(margins[i])) // patterns.unit)
            if first <= reach:
                changes[records.pattern[i], max(first, -reach) + reach] += number
    for c in range(losses.shape[1]):
        running = np.int64(0)
        for t in range(losses.shape[2]):
            running += changes[c, t]
            losses[0, c, t] = running
    for r in range(1, losses.shape[0]):
        for c in range(losses.shape[1]):
            for t in range(losses.shape[2]):
                least = losses[r - 1, c, t]
                if t > 0:
                    least = min(least, losses[r - 1, c, t - 1])
                if t + 1 < losses.shape[2]:
                    least = min(least, losses[r - 1, c, t + 1])
                losses[r, c, t] = least


@compiled
def bound_patterns(
    patterns: Patterns,
    prices: Prices,
    ball: Ball,
    losses: NDArray[np.uint16],
    sums: IntArray,
    level: int,
    used: int,
    work: Work,
) -> float:
    """Second stage: least errors, and cost of the columns from ``level`` on and of the group.

    Each pattern takes the best sum that its free columns reach within the norm that is left, for itself; the group is
    minimised exactly over its weights, given that, by a knapsack over the squared norm. Exact after the last column.
    """
    box, room, size = ball.box, ball.squared_radius - used, prices.group.shape[0]
    centre = (losses.shape[2] - 1) // 2
    work.counts[:] = 0
    for c in range(sums.size):
        category, at, free = patterns.category[c], sums[c] + centre, patterns.free[level, c]
        if category == size:
            work.counts[size, box] += losses[patterns.reach[free, room], c, at]
        else:
            for value in range(-box, box + 1):
                left = room - value * value
                if left >= 0:
                    work.counts[category, value + box] += losses[patterns.reach[free, left], c, at + value]
    cheapest, updated = work.cheapest, work.updated
    cheapest[0] = work.counts[size, box]
    top = 0
    for category in range(size):
        wider = min(room, top + box * box)
        updated[: wider + 1] = np.inf
        for value in range(-box, box + 1):
            square = value * value
            if square <= room:
                price = work.counts[category, value + box] + prices.group[category, value + box]
                for k in range(min(top, room - square) + 1):
                    updated[k + square] = min(updated[k + square], cheapest[k] + price)
        cheapest, updated = updated, cheapest
        top = wider
    least = np.inf
    for k in range(top + 1):
        least = min(least, cheapest[k] + prices.second_tail[level, used + k])
    return float(least)


@compiled
def search_records(
    records: Records,
    patterns: Patterns,
    prices: Prices,
    ball: Ball,
    stack: Stack,
    margins: NDArray[np.int16],
    losses: NDArray[np.uint16],
    changes: IntArray,
    work: Work,
    incumbent: float,
    most_nodes: int,
    best: IntArray,
    leaves: IntArray,
    leaf_bounds: FloatArray,
) -> tuple[float, int, int]:
    """First stage: go on until ``leaves`` is full, nothing is left, or so many nodes were looked at.

    A leaf has all p values; it is kept with its bound, unless there is no second stage: then its bound is exact, and
    it becomes the incumbent. Returns the incumbent, the nodes that were looked at and the leaves that were kept.
    """
    p, box = prices.first.shape[0], ball.box
    more = prices.second.shape[0] > 0
    sums = np.zeros(patterns.category.size, np.int64)
    nodes, found = 0, 0
    while stack.depth[0] >= 0 and stack.stop[0] == 0:
        level = stack.depth[0]
        if stack.kept[level] < 0:
            if nodes >= most_nodes or found + 2 * box + 1 > leaf_bounds.size:
                break
            stack.kept[level], stack.entered[level] = 0, 0
            for value in range(-box, box + 1):
                used = stack.used[level] + value * value
                if used > ball.squared_radius:
                    continue
                nodes += 1
                add_multiple(margins[level + 1], margins[level], records.margins[level], value)
                spent = stack.spent[level] + prices.first[level, value + box]
                bound = spent + bound_records(
                    records, ball, margins[level + 1], level + 1, used, prices.first_tail
                )
                if bound < incumbent - TOLERANCE and level + 1 == p and sums.size > 0:
                    fill_losses(records, patterns, ball, margins[p], losses, changes)
                    bound = spent + bound_patterns(patterns, prices, ball, losses, sums, 0, used, work)
                if bound >= incumbent - TOLERANCE:
                    continue
                if level + 1 < p:
                    keep_child(stack, level, value, bound)
                    continue
                stack.chosen[level] = value
                if more:
                    leaves[found] = stack.chosen
                    leaf_bounds[found] = bound
                    found += 1
                else:
                    incumbent = bound
                    best[:] = stack.chosen
        if exhausted(stack, incumbent):
            stack.depth[0] -= 1
        else:
            value = enter_child(stack, prices.first, box)
            add_multiple(margins[level + 1], margins[level], records.margins[level], value)
    return incumbent, nodes, found


@compiled
def search_patterns(
    records: Records,
    patterns: Patterns,
    prices: Prices,
    ball: Ball,
    stack: Stack,
    margins: NDArray[np.int16],
    losses: NDArray[np.uint16],
    changes: IntArray,
    work: Work,
    incumbent: float,
    most_nodes: int,
    best: IntArray,
) -> tuple[float, int, bool]:
    """Second stage below one leaf of the first, whose margins are given; the stack starts at that leaf.

    Returns the incumbent, the nodes that were looked at and whether the incumbent was improved: ``best`` then has its
    values.
    """
    m, box = prices.second.shape[0], ball.box
    fill_losses(records, patterns, ball, margins, losses, changes)
    sums = np.zeros((m + 1, patterns.category.size), np.int64)
    nodes, improved = 0, False
    while stack.depth[0] >= 0 and stack.stop[0] == 0:
        level = stack.depth[0]
        if stack.kept[level] < 0:
            if nodes >= most_nodes:
                break
            stack.kept[level], stack.entered[level] = 0, 0
            for value in range(-box, box + 1):
                used = stack.used[level] + value * value
                if used > ball.squared_radius:
                    continue
                nodes += 1
                add_member(sums[level + 1], sums[level], patterns.member[level], value)
                bound = stack.spent[level] + prices.second[level, value + box]
                bound += bound_patterns(
                    patterns, prices, ball, losses, sums[level + 1], level + 1, used, work
                )
                if bound >= incumbent - TOLERANCE:
                    continue
                if level + 1 < m:
                    keep_child(stack, level, value, bound)
                else:
                    incumbent, improved = bound, True
                    stack.chosen[level] = value
                    best[:] = stack.chosen
        if exhausted(stack, incumbent):
            stack.depth[0] -= 1
        else:
            value = enter_child(stack, prices.second, box)
            add_member(sums[level + 1], sums[level], patterns.member[level], value)
    return incumbent, nodes, improved
