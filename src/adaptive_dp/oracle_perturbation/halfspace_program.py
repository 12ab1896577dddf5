"""The 0/1 loss of integer halfspaces as a mixed-integer linear program, exact for every table of costs.

Neel et al. (neel2019, Figure 2) hand their solver a quadratic constraint and strict inequalities; what that changes
is in :mod:`~adaptive_dp.oracle_perturbation.flaws_programs`. Here everything is a choice among finitely many
values: one binary variable for each value of each coordinate, one for each squared norm, and one for each group of
equal records that may be got right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from adaptive_dp.oracle_perturbation.problems import GridCosts, ThresholdProblem
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Patterns:
    """Records that every halfspace treats alike, merged.

    Only the sign of <w, x> counts, so that a row and its positive multiples are one pattern, divided by its
    greatest common divisor.

    Parameters
    ----------
    rows : ndarray of int, shape (N, d)
        Different rows without a common factor.
    positive, negative : ndarray of int, shape (N,)
        Records of each label.
    reach : ndarray of int, shape (N,)
        Largest <w, row> over W, which is symmetric: the smallest constant that can stand for "no constraint".
    """

    rows: IntArray
    positive: IntArray
    negative: IntArray
    reach: IntArray


def merge_records(problem: ThresholdProblem) -> Patterns:
    """Return the patterns of a problem."""
    x = problem.features.astype(np.int64)
    divisor = np.maximum(np.gcd.reduce(x, axis=1), 1)
    rows, place = np.unique(x // divisor[:, np.newaxis], axis=0, return_inverse=True)
    place = place.ravel()
    count = len(rows)
    positive = np.bincount(place[problem.labels > 0], minlength=count)
    negative = np.bincount(place[problem.labels < 0], minlength=count)
    return Patterns(rows, positive, negative, largest_scores(rows, problem.space))


def largest_scores(rows: IntArray, space: IntegerBall) -> IntArray:
    """Largest <w, row> over the ball for each row, exactly: a knapsack over the squared norm, shape (N,).

    Much smaller than D times the row's norm when coordinates have few values, and a relaxation is the tighter for it.
    """
    # Column k: within a squared norm of at most k.
    reach = np.zeros((len(rows), space.squared_radius + 1), dtype=np.int64)
    for column in np.abs(rows).T:
        before = reach.copy()
        for value in range(1, space.box + 1):
            square = value**2
            candidate = before[:, : reach.shape[1] - square] + value * column[:, np.newaxis]
            np.maximum(reach[:, square:], candidate, out=reach[:, square:])
    return reach[:, -1]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """min cost . z + constant with lower <= matrix z <= upper, z binary.

    The columns are the d (2 B + 1) values, the K + 1 squared norms, and then the successes. All entries of
    ``matrix``, ``lower`` and ``upper`` are whole numbers.

    Parameters
    ----------
    cost : ndarray, shape (columns,)
        The tables of costs, then less the number of records of each success.
    matrix : sparse array of int, shape (rows, columns)
    lower, upper : ndarray, shape (rows,)
    constant : int
        n: without a success every record is an error.
    space : IntegerBall
        W.
    """

    cost: FloatArray
    matrix: csr_array
    lower: FloatArray
    upper: FloatArray
    constant: int
    space: IntegerBall

    def point(self, solution: FloatArray) -> IntArray:
        """Return the member of W that a solution of the program stands for."""
        values = self.space.values
        chosen = solution[: self.space.dimension * values.size].reshape(self.space.dimension, values.size)
        return np.asarray(values[np.argmax(chosen, axis=1)])


@dataclass(slots=True)
class _Rows:
    """Rows of a sparse matrix as they are written down."""

    row: list[IntArray]
    column: list[IntArray]
    entry: list[IntArray]
    lower: list[float]
    upper: list[float]

    def add(self, column: IntArray, entry: IntArray, lower: float, upper: float) -> None:
        self.row.append(np.full(column.size, len(self.lower)))
        self.column.append(column)
        self.entry.append(entry)
        self.lower.append(lower)
        self.upper.append(upper)

    def matrix(self, columns: int) -> csr_array:
        place = (np.concatenate(self.row), np.concatenate(self.column))
        shape = (len(self.lower), columns)
        return csr_array(coo_array((np.concatenate(self.entry).astype(np.float64), place), shape=shape))


def halfspace_program(
    problem: ThresholdProblem,
    costs: GridCosts,
    patterns: Patterns,
    *,
    thresholds: tuple[int, int] | None = None,
) -> Program:
    """Write the perturbed problem as a program whose solutions are the members of W, with the same objective.

    A success variable is 1 only if the score is right by a whole unit of the integer grid, which is what a strict
    inequality between integers is: s >= t + 1 for the label +1 (t = 0, or -1 where a tie counts as +1), as
    s >= -R + (R + t + 1) p with R the reach of the pattern; and likewise below.

    Parameters
    ----------
    problem : ThresholdProblem
    costs : GridCosts
    patterns : Patterns
        Of this problem.
    thresholds : pair of int or None
        Another pair than the tie rule's, for the flaws: (-1, -1) lets a tie be right for both labels.

    Returns
    -------
    Program
    """
    space = problem.space
    d, width = space.dimension, space.values.size
    norms = np.arange(space.squared_radius + 1)
    norm_at = d * width
    rows = _Rows([], [], [], [], [])
    for j in range(d):
        rows.add(np.arange(j * width, (j + 1) * width), np.ones(width, dtype=np.int64), 1, 1)
    rows.add(norm_at + norms, np.ones_like(norms), 1, 1)
    squares = np.concatenate([np.tile(space.values**2, d), -norms])
    rows.add(np.arange(norm_at + norms.size), squares, 0, 0)
    tie = problem.thresholds if thresholds is None else thresholds
    gains = _success_rows(rows, space, patterns, tie, norm_at + norms.size)
    cost = np.concatenate([costs.per_value.ravel(), costs.per_squared_norm, -gains])
    lower, upper = np.array(rows.lower), np.array(rows.upper)
    return Program(cost, rows.matrix(cost.size), lower, upper, problem.records, space)


def _success_rows(
    rows: _Rows, space: IntegerBall, patterns: Patterns, thresholds: tuple[int, int], first: int
) -> FloatArray:
    """Add the constraints of the successes; return how many records each of them gains."""
    values = space.values
    gains: list[float] = []
    least = (thresholds[0] + 1, thresholds[1] + 1)
    for i in range(len(patterns.rows)):
        row, reach = patterns.rows[i], int(patterns.reach[i])
        active = np.flatnonzero(row)
        column = (active[:, np.newaxis] * values.size + np.arange(values.size)).ravel()
        entry = np.outer(row[active], values).ravel()
        found = []
        for sign, wanted, count in (
            (1, least[0], patterns.positive[i]),
            (-1, least[1], patterns.negative[i]),
        ):
            if count and reach >= wanted:
                found.append(first + len(gains))
                gains.append(float(count))
                both = np.append(column, found[-1]), np.append(sign * entry, -(reach + wanted))
                rows.add(*both, -reach, np.inf)
        if len(found) == 2 and sum(least) > 0:
            rows.add(np.array(found), np.ones(2, dtype=np.int64), -np.inf, 1)
    return np.array(gains)
