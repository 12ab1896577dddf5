"""Separator sets: a few losses that tell all members of W apart (neel2019, Definition A.1).

RSPM perturbs W through such a set, and its noise grows with the number m of separators. A set is a table of 0/1
losses, shape (m, N): row j holds the loss of separator j at every member. Whether it separates is a property of the
table, and :func:`check_separates` looks at all of it.

Errata to section 3.1 and the appendix: the sets given here have 2 d separators for {-1, 0, 1}^d and 2 d / tau for the
grid of step tau in the unit ball. The printed 2 (d - 1) / tau is impossible for d <= 2, by counting cells; and losses
that depend on the direction of w alone cannot tell w from 2 w, so that OPDisc's space has no separator set among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.oracle_perturbation.problems import TIES
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.privacy import SLACK
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_count

Bits = NDArray[np.int8]


def check_separates(points: ArrayLike, losses: ArrayLike) -> Bits:
    """Return ``losses`` as 0/1 integers if they separate the members, or name two members that they do not.

    Parameters
    ----------
    points : array_like, shape (N, d)
        Members of W, for the message and for their number.
    losses : array_like, shape (m, N)
        Loss of each separator at each member, 0 or 1.

    Returns
    -------
    ndarray of int8, shape (m, N)

    Raises
    ------
    TypeError
        Entries that are not numbers.
    ValueError
        Shapes that do not fit, no separators, entries that are neither 0 nor 1, or two members with the same losses.
    """
    members = as_finite_array("points", points, ndim=2)
    table = as_finite_array("losses", losses, ndim=2)
    if table.shape[0] == 0 or table.shape[1] != members.shape[0]:
        raise ValueError(
            f"losses must have shape (m, {members.shape[0]}) with m >= 1, got {tuple(table.shape)}"
        )
    if not np.isin(table, (0.0, 1.0)).all():
        raise ValueError("losses of separators must be 0 or 1")
    bits = table.astype(np.int8)
    first: dict[bytes, int] = {}
    for place, column in enumerate(np.packbits(bits, axis=0).T):
        twin = first.setdefault(column.tobytes(), place)
        if twin != place:
            raise ValueError(
                f"losses do not separate members {twin} and {place}: "
                f"{members[twin].tolist()} and {members[place].tolist()} have the same {bits.shape[0]} losses"
            )
    return bits


def grid_separators(points: ArrayLike, box: int) -> Bits:
    """Losses of the thresholds 1[w_j >= t] and 1[w_j <= -t], t = 1 ... box, for integer members.

    In the order coordinate by coordinate, for each the thresholds upwards and then downwards: 2 d box separators. They
    separate any set of different integer vectors with entries up to ``box``. For {-1, 0, 1}^d (box 1) these are the
    2 d separators 1[w_j = +1] and 1[w_j = -1]; for the grid of step tau = 1 / box in the unit ball, with tau w in
    place of w, they are the losses 1[<w, x> >= 1] of section 3.1 at x = +-e_j / (t tau), and m = 2 d / tau.

    Parameters
    ----------
    points : array_like of integers, shape (N, d)
    box : int
        Largest absolute entry B.

    Returns
    -------
    ndarray of int8, shape (2 d box, N)

    Raises
    ------
    ValueError
        Entries that are not whole numbers, or beyond ``box``.
    """
    bound = check_count("box", box)
    w = as_finite_array("points", points, ndim=2)
    if not np.array_equal(w, np.rint(w)) or (w.size and np.abs(w).max() > bound):
        raise ValueError(f"points must be whole numbers of at most {bound} in absolute value")
    steps = np.arange(1, bound + 1)[:, np.newaxis]
    rows = [side * column >= steps for column in w.T for side in (1, -1)]
    return np.concatenate(rows).astype(np.int8)


def threshold_losses(points: ArrayLike, features: ArrayLike) -> Bits:
    """Losses 1[<w, x> >= 1] of section 3.1, shape (m, N), for ``points`` (N, d) and ``features`` (m, d)."""
    w, x = as_finite_array("points", points, ndim=2), as_finite_array("features", features, ndim=2)
    return np.asarray(x @ w.T >= 1 - SLACK, dtype=np.int8)


def sign_losses(points: ArrayLike, features: ArrayLike, labels: ArrayLike, tie: str = "error") -> Bits:
    """Losses of halfspaces through the origin, shape (m, N): 1 where y <w, x> is not a success.

    Parameters
    ----------
    points : array_like, shape (N, d)
    features, labels : array_like, shapes (m, d) and (m,)
        The records x and y.
    tie : {"error", "plus", "minus"}
        What <w, x> = 0 means, as in :class:`~adaptive_dp.oracle_perturbation.problems.ThresholdProblem`.
    """
    check_choice("tie", tie, TIES)
    w, x = as_finite_array("points", points, ndim=2), as_finite_array("features", features, ndim=2)
    y = as_finite_array("labels", labels, ndim=1)[:, np.newaxis]
    scores = x @ w.T
    predicted = np.where(scores == 0, {"error": 0.0, "plus": 1.0, "minus": -1.0}[tie], np.sign(scores))
    return np.asarray(predicted != y, dtype=np.int8)


def sign_separators(dimension: int, tie: str = "error") -> tuple[FloatArray, FloatArray]:
    """Return 2 d records whose sign losses separate {-1, 0, 1}^d: features (2 d, d) and labels (2 d,).

    The two records of a coordinate must answer differently for -1, 0 and +1, and which pair does so depends on the tie
    rule. Where a tie is an error for both labels it is (e_j, +1) and (e_j, -1). Where it has the label +1 that pair
    fails, as the second loss is one minus the first, and (e_j, +1), (-e_j, +1) is the one; with -1 the labels change
    sign.

    Raises
    ------
    ValueError
        A dimension below 1 or an unknown tie rule.
    """
    d = check_count("dimension", dimension)
    check_choice("tie", tie, TIES)
    unit = np.eye(d)
    if tie == "error":
        return np.repeat(unit, 2, axis=0), np.tile([1.0, -1.0], d)
    features = np.stack([unit, -unit], axis=1).reshape(2 * d, d)
    return features, np.full(2 * d, 1.0 if tie == "plus" else -1.0)


def most_cells(separators: int, dimension: int) -> int:
    """Most cells that m half-spaces make in R^d, the sum of C(m, i) for i <= d: at least |W| where they separate W."""
    m, d = check_count("separators", separators, minimum=0), check_count("dimension", dimension)
    return sum(math.comb(m, i) for i in range(d + 1))


def fewest_separators(size: int, dimension: int) -> int:
    """Smallest m whose half-spaces could have ``size`` cells: a lower bound for separator sets of half-spaces."""
    members, m = check_count("size", size), 0
    while most_cells(m, dimension) < members:
        m += 1
    return m


def count_table(cases: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """Printed and possible sizes of separator sets of the grid of step 1 / steps in the unit ball.

    Parameters
    ----------
    cases : sequence of (d, steps)
        Dimension and 1 / tau.

    Returns
    -------
    DataFrame
        ``d``, ``steps``, ``members`` of the grid, ``printed`` = 2 (d - 1) steps and the most ``cells`` that this many
        half-spaces make, ``needed`` (:func:`fewest_separators`), ``ours`` = 2 d steps.
    """
    rows = []
    for d, steps in cases:
        size, printed = IntegerBall(d, steps, steps * steps).size, 2 * (d - 1) * steps
        rows.append(
            {
                "d": d,
                "steps": steps,
                "members": size,
                "printed": printed,
                "cells": most_cells(printed, d),
                "needed": fewest_separators(size, d),
                "ours": 2 * d * steps,
            }
        )
    return pd.DataFrame(rows)
