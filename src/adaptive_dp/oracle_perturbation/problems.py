"""What an oracle is asked to minimise, what it answers, and the enumeration that every faster oracle is compared with.

The objective is always a sum over records plus a cost that depends on the noise and on w, not on the records. For
the 0/1 loss of integer halfspaces (:class:`ThresholdProblem`) that cost is a table per coordinate and a table over the
squared norm, which covers OPDisc (either sign of the last noise coordinate) and RSPM; for a small explicit space
(:class:`TableProblem`) it is one number for each member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall, PointSet, lift
from adaptive_dp.privacy import SLACK
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_count, check_ordinary

TIES = ("error", "plus", "minus")
# Integer features and scores fit into 16 bits, and so do counts of records: the compiled oracle relies on it.
LARGEST_SCORE = 32_766
LARGEST_COUNT = 65_534
# Noise beyond this would swallow the counts in the rounding of a double.
LARGEST_COST = 1e9


class Uncertified(RuntimeError):  # noqa: N818 (the outcome of a search, named as one says it)
    """An oracle stopped before its gap was below the one that the guarantee allows: nothing is released."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """An oracle's answer with its certificate.

    Parameters
    ----------
    point : ndarray, shape (d,)
        The member of W that was found.
    objective : float
        Its perturbed objective, on the scale of the sum of the losses.
    lower_bound : float
        A proved lower bound of the minimum over W.
    nodes : int
        Parts of W that were looked at: the oracle's own count of its work.
    seconds : float
        Time that was taken.
    """

    point: NDArray[Any]
    objective: float
    lower_bound: float
    nodes: int = 0
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """Additive gap: the objective is at most this far above the minimum; infinite if the bound is not a number."""
        gap = self.objective - self.lower_bound
        return max(gap, 0.0) if gap == gap else float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class GridCosts:
    """Noise as a cost of the values of w: sum_j per_value[j, w_j + B] + per_squared_norm[|w|^2].

    Parameters
    ----------
    per_value : array_like, shape (d, 2 B + 1)
        Cost of each value of each coordinate.
    per_squared_norm : array_like, shape (K + 1,)
        Cost of each squared norm 0 ... K.
    """

    per_value: FloatArray
    per_squared_norm: FloatArray

    def __post_init__(self) -> None:
        for name, ndim in (("per_value", 2), ("per_squared_norm", 1)):
            table = as_finite_array(name, getattr(self, name), ndim=ndim)
            if table.size and np.abs(table).max() > LARGEST_COST:
                raise ValueError(
                    f"{name} must stay within {LARGEST_COST:g} in absolute value, got {np.abs(table).max():.3g}: "
                    "counts of records would drown in rounding"
                )
            table.setflags(write=False)
            object.__setattr__(self, name, table)


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdProblem:
    """Number of errors of an integer halfspace: sum_i 1[y_i <w, x_i> is not a success], w in an integer ball.

    Each record has a loss in {0, 1}, whatever its features: the size of the features plays no part in the privacy. They
    must only keep scores within 16 bits, a bound that is declared by choosing the grid of :func:`integer_features`.

    Parameters
    ----------
    features : array_like of integers, shape (n, d)
        Public rounding to integers makes ties exact; see :func:`integer_features`. Any integer dtype or whole floats.
    labels : array_like, shape (n,)
        -1 or +1.
    space : IntegerBall
        W, with as many dimensions as there are columns.
    tie : {"error", "plus", "minus"}
        What <w, x> = 0 means: an error for both labels, the label +1, or the label -1. Any fixed rule is private.

    Raises
    ------
    TypeError
        ``space`` is not an IntegerBall, or the data are not numeric.
    ValueError
        Shapes that do not fit, no records, more than 65,534 of them, features that are not whole numbers, labels that
        are not -1 or +1, or scores that would leave 16 bits: D max |x| above 32,766.
    """

    features: NDArray[np.int16]
    labels: NDArray[np.int8]
    space: IntegerBall
    tie: str = "error"

    def __post_init__(self) -> None:
        if not isinstance(self.space, IntegerBall):
            raise TypeError(f"space must be an IntegerBall, got {type(self.space).__name__}")
        check_choice("tie", self.tie, TIES)
        x = as_finite_array("features", self.features, ndim=2)
        y = as_finite_array("labels", self.labels, ndim=1)
        if x.shape[0] == 0 or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"labels must have one entry a record, got {y.shape[0]} against {x.shape[0]} rows"
            )
        if x.shape[0] > LARGEST_COUNT:
            raise ValueError(f"features must have at most {LARGEST_COUNT} rows, got {x.shape[0]}")
        if x.shape[1] != self.space.dimension:
            raise ValueError(
                f"features must have {self.space.dimension} columns like the space, got {x.shape[1]}"
            )
        if not np.array_equal(x, np.rint(x)):
            raise ValueError(
                "features must be whole numbers: round them on a public grid with integer_features"
            )
        score = self.space.radius * float(np.linalg.norm(x, axis=1).max())
        if score + self.space.box * float(np.abs(x).max()) > LARGEST_SCORE:
            raise ValueError(
                f"features must keep scores D |x| + B max |x_j| within {LARGEST_SCORE}: take a coarser grid"
            )
        if not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError("labels must be -1 or +1")
        for name, array in (("features", x.astype(np.int16)), ("labels", y.astype(np.int8))):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def records(self) -> int:
        """Number of records n."""
        return int(self.features.shape[0])

    @property
    def thresholds(self) -> tuple[int, int]:
        """Largest y <w, x> that is still an error, for y = +1 and for y = -1."""
        return {"error": (0, 0), "plus": (-1, 0), "minus": (0, -1)}[self.tie]

    def errors(self, points: ArrayLike) -> IntArray:
        """Number of errors of each point, shape of ``points`` (..., d) less the last axis."""
        w = _whole(points, self.space.dimension)
        margins = (w @ self.features.T.astype(np.int64)) * self.labels
        positive, negative = self.thresholds
        limit = np.where(self.labels > 0, positive, negative)
        return np.asarray(np.sum(margins <= limit, axis=-1), dtype=np.int64)

    def accuracy(self, points: ArrayLike) -> FloatArray:
        """Share of records that are not errors, for each point; not private."""
        return np.asarray(1.0 - self.errors(points) / self.records)

    def check_costs(self, costs: GridCosts) -> GridCosts:
        """Return ``costs`` if its tables fit the space."""
        if not isinstance(costs, GridCosts):
            raise TypeError(f"costs must be GridCosts, got {type(costs).__name__}")
        shapes = ((self.space.dimension, 2 * self.space.box + 1), (self.space.squared_radius + 1,))
        for name, wanted in zip(("per_value", "per_squared_norm"), shapes, strict=True):
            if getattr(costs, name).shape != wanted:
                raise ValueError(f"{name} must have shape {wanted}, got {getattr(costs, name).shape}")
        return costs

    def objective(self, points: ArrayLike, costs: GridCosts) -> FloatArray:
        """Perturbed objective: errors plus costs, for each of ``points`` (..., d)."""
        w, column = _whole(points, self.space.dimension), np.arange(self.space.dimension)
        if w.size and (
            np.abs(w).max() > self.space.box or (w**2).sum(axis=-1).max() > self.space.squared_radius
        ):
            raise ValueError("points must be members of the space")
        noise = costs.per_value[column, w + self.space.box].sum(axis=-1)
        return np.asarray(self.errors(w) + noise + costs.per_squared_norm[np.sum(w**2, axis=-1)])

    def largest_objective(self, costs: GridCosts) -> float:
        """Bound of the absolute value of the perturbed objective over W."""
        noise = np.abs(costs.per_value).max(axis=1).sum() + np.abs(costs.per_squared_norm).max()
        return self.records + float(noise)

    def lifted_costs(self, noise: ArrayLike) -> GridCosts:
        """Return OPDisc's perturbation -<noise, pi(w)> as tables; ``noise`` has shape (d + 1,), any signs.

        The last coordinate of pi depends on w through |w|^2 alone: a table over k = 0 ... K holds it exactly, for
        either sign. (The quadratic constraint of neel2019, Figure 2, is exact only for a positive one.)
        """
        eta = _lifted_noise(noise, self.space.dimension)
        radius, squares = self.space.radius, np.arange(self.space.squared_radius + 1)
        last = np.sqrt(self.space.squared_radius - squares) / radius
        return GridCosts(-np.outer(eta[:-1], self.space.values) / radius, -eta[-1] * last)


@dataclass(frozen=True, slots=True, eq=False)
class TableProblem:
    """Any losses over a small explicit space, as a table.

    Parameters
    ----------
    losses : array_like, shape (n, N)
        Loss of record i at member j.
    space : PointSet
        W, with N members.
    lipschitz : float or None
        G with |l(w) - l(v)| <= G |w - v| for every possible record; None declares losses in [0, 1], with G = 1 / tau.

    Raises
    ------
    TypeError
        ``space`` is not a PointSet.
    ValueError
        Shapes that do not fit, or a loss that breaks the declared bound.
    """

    losses: FloatArray
    space: PointSet
    lipschitz: float | None = None
    _total: FloatArray = field(init=False, default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        if not isinstance(self.space, PointSet):
            raise TypeError(f"space must be a PointSet, got {type(self.space).__name__}")
        table = as_finite_array("losses", self.losses, ndim=2)
        if table.shape[0] == 0 or table.shape[1] != self.space.size:
            raise ValueError(f"losses must have shape (n, {self.space.size}) with n >= 1, got {table.shape}")
        if self.lipschitz is None:
            if table.min() < -SLACK or table.max() > 1 + SLACK:
                raise ValueError("losses must lie in [0, 1]; declare lipschitz for other ones")
        else:
            object.__setattr__(self, "lipschitz", check_ordinary("lipschitz", self.lipschitz))
            self._check_lipschitz(table)
        table.setflags(write=False)
        object.__setattr__(self, "losses", table)
        # Unbounded losses are summed as differences to the first member: what rounding does is then public, too.
        base = 0.0 if self.lipschitz is None else table[:, :1]
        total = (table - base).sum(axis=0)
        total.setflags(write=False)
        object.__setattr__(self, "_total", total)

    def _check_lipschitz(self, table: FloatArray) -> None:
        bound, points = float(self.lipschitz or 0.0), self.space.members
        for j in range(self.space.size):
            distance = np.linalg.norm(points - points[j], axis=1)
            # Relative slack only: noise is proportional to the declared constant, however small it is.
            excess = np.abs(table - table[:, [j]]) - bound * distance * (1 + SLACK)
            if excess.max() > 0:
                record, member = np.unravel_index(int(np.argmax(excess)), excess.shape)
                raise ValueError(
                    f"losses: record {record} breaks lipschitz = {bound:g} between members {member} and {j}"
                )

    @property
    def records(self) -> int:
        """Number of records n."""
        return int(self.losses.shape[0])

    @property
    def total(self) -> FloatArray:
        """L(D, w) for every member, shape (N,); less L(D, w_1) of the first one if ``lipschitz`` was declared."""
        return self._total

    def check_costs(self, costs: ArrayLike) -> FloatArray:
        """Return ``costs`` (N,) as floats."""
        values = as_finite_array("costs", costs, ndim=1)
        if values.shape[0] != self.space.size:
            raise ValueError(f"costs must have one entry a member, {self.space.size}, got {values.shape[0]}")
        return values

    def lifted_costs(self, noise: ArrayLike) -> FloatArray:
        """Return OPDisc's perturbation -<noise, pi(w)> for every member; ``noise`` has shape (d + 1,)."""
        return -(lift(self.space.members, self.space.radius) @ _lifted_noise(noise, self.space.dimension))


def _lifted_noise(noise: ArrayLike, dimension: int) -> FloatArray:
    """OPDisc's noise, one entry more than W has dimensions."""
    eta = as_finite_array("noise", noise, ndim=1)
    if eta.shape[0] != dimension + 1:
        raise ValueError(f"noise must have {dimension + 1} entries, got {eta.shape[0]}")
    return eta


def _whole(points: ArrayLike, dimension: int) -> IntArray:
    """Points as whole numbers, shape (..., d); a fraction is refused rather than cut off."""
    w = np.asarray(points)
    if w.ndim == 0 or w.shape[-1] != dimension:
        raise ValueError(f"points must have {dimension} coordinates, got shape {w.shape}")
    if w.dtype.kind not in "iu" and not np.array_equal(w, np.rint(as_finite_array("points", w))):
        raise ValueError("points must be whole numbers")
    return w.astype(np.int64)


Problem = ThresholdProblem | TableProblem
AnyProblem = TypeVar("AnyProblem", ThresholdProblem, TableProblem)


class Oracle(Protocol):
    """Minimises a perturbed problem over W and proves how close it came."""

    def __call__(self, problem: Any, costs: Any, /) -> Solution:
        """Return a member and a lower bound of the minimum. Must not depend on anything but the two arguments."""
        ...


def enumerate_members(problem: Problem, costs: Any, /) -> Solution:
    """Look at every member of W: the reference oracle, exact up to rounding, for spaces small enough to list.

    Memory is kept at about 50 MB by taking the members in blocks; time is |W| n d.
    """
    points: NDArray[Any]
    if isinstance(problem, TableProblem):
        values = problem.total + problem.check_costs(costs)
        points = problem.space.members
    else:
        checked = problem.check_costs(costs)
        points = problem.space.points()
        block = max(1, 6_000_000 // problem.records)
        values = np.concatenate(
            [problem.objective(points[at : at + block], checked) for at in range(0, len(points), block)]
        )
    best = int(np.argmin(values))
    lower = float(values[best]) - _sum_rounding(problem, costs)
    return Solution(points[best].copy(), float(values[best]), lower, nodes=len(points))


def rounding_allowance(problem: ThresholdProblem, costs: GridCosts) -> float:
    """How much a sum of the objective's terms in doubles may differ from the exact one, twice.

    A sum of m doubles, in any order, is within m u sum|terms| of the exact sum (u = 2^-53, m u far below 1). Here m
    is at most d + 4, and the terms are at most the number of records and the largest entry of each table. The
    allowance is four times that: once for the minimum, once for the objective that it is compared with, and twice
    that for good measure. At the noise of OPDisc it is about 1e-10.
    """
    return 4.0 * (problem.space.dimension + 4) * 2.0**-53 * problem.largest_objective(costs)


def _sum_rounding(problem: Problem, costs: Any) -> float:
    """What rounding can do to the sums of :func:`enumerate_members`, with a reserve: terms times size times 2^-52."""
    if isinstance(problem, TableProblem):
        eps = float(np.finfo(np.float64).eps)
        spread = problem.losses - (0.0 if problem.lipschitz is None else problem.losses[:, :1])
        return eps * (problem.records + 2) * float(np.abs(spread).sum(axis=0).max() + np.abs(costs).max())
    return rounding_allowance(problem, costs)


def integer_features(features: ArrayLike, grid: int = 1000) -> NDArray[np.int16]:
    """Round features in [-1, 1] to multiples of 1 / ``grid``, as 16-bit integers: a public map, record by record.

    Halfspaces through the origin do not change when all features are multiplied by ``grid``; rounding makes a tie
    <w, x> = 0 an exact event of integer arithmetic rather than one of the last bit.

    Raises
    ------
    ValueError
        A feature outside [-1, 1], or a grid that is not between 1 and 10,000.
    """
    x = as_finite_array("features", features, ndim=2)
    if check_count("grid", grid) > 10_000:
        raise ValueError(f"grid must lie between 1 and 10000, got {grid!r}")
    if x.size and np.abs(x).max() > 1 + SLACK:
        raise ValueError(
            f"features must lie in [-1, 1], got {x[np.unravel_index(np.argmax(np.abs(x)), x.shape)]:.6g}"
        )
    return np.asarray(np.rint(x * grid), dtype=np.int16)
