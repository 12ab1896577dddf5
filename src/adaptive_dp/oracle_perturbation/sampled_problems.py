"""Losses for OPSamp: any losses on a grid in a box, and convex losses of a linear score on the whole box.

A problem knows the public facts of its losses (number of records n, the l1-Lipschitz constant G, the box) and can
evaluate their *sum* L. The Lipschitz constant and the range [0, 1] are declared, and checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.privacy import SLACK
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_count, check_ordinary

# Entries of a table of losses that are held at once.
BLOCK = 4_000_000
LARGEST_GRID = 1_000_000
# Relative rounding error of a sum of losses: numpy adds pairwise, at most about 45 roundings in a row for 2^30
# terms, and a loss itself takes a few. 64 roundings are allowed.
ROUNDING = 32 * float(np.finfo(np.float64).eps)
# Rounding of the difference of two losses in [0, 1], and the share of G that it may take: a constant for which it takes
# more could not be checked, and is refused.
DIFFERENCE, SHARE = 8 * float(np.finfo(np.float64).eps), 1e-6
# A loss that passes is at most (1 + STEEPER) G-Lipschitz: SLACK and SHARE, and the rounding of the grid. Plans of
# OPSamp are made for this.
STEEPER = 2e-6
LOSSES = ("hinge", "absolute", "ramp", "folded")
CONVEX = ("hinge", "absolute")


@runtime_checkable
class SampledProblem(Protocol):
    """What OPSamp needs to know of its losses."""

    @property
    def records(self) -> int:
        """Number of records n, public."""
        ...

    @property
    def dimension(self) -> int:
        """Dimension d."""
        ...

    @property
    def half_width(self) -> float:
        """W lies in the box [-half_width, half_width]^d."""
        ...

    @property
    def lipschitz(self) -> float:
        """G, of one loss, in l1."""
        ...

    def values(self, points: FloatArray) -> FloatArray:
        """L at members of W, shape (k, d) to (k,); raises ValueError for other points."""
        ...


def objective(problem: SampledProblem, points: FloatArray, tilts: FloatArray) -> FloatArray:
    """L(w) - <tilt, w> for pairs of points and tilts, shape (k, d) each."""
    return np.asarray(problem.values(points) - np.einsum("ij,ij->i", points, tilts))


def rounding_error(problem: SampledProblem, tilts: FloatArray) -> FloatArray:
    """Bound of the rounding error of :func:`objective` for each tilt, shape (k,): losses are at most 1 in size."""
    return np.asarray(
        ROUNDING * (problem.records + problem.half_width * np.abs(tilts).sum(axis=1)), dtype=np.float64
    )


@dataclass(frozen=True, slots=True)
class BoxGrid:
    """A product grid in [-half_width, half_width]^d, ends included.

    Parameters
    ----------
    dimension : int
        d; the oracles list all points, so that 1 or 2 is meant.
    side : int
        Points along each axis, at least 2.
    half_width : float
        The l_infinity diameter is twice this.
    """

    dimension: int
    side: int
    half_width: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", check_count("dimension", self.dimension))
        object.__setattr__(self, "side", check_count("side", self.side, minimum=2))
        object.__setattr__(self, "half_width", check_ordinary("half_width", self.half_width))
        if self.size > LARGEST_GRID:
            raise ValueError(
                f"side must give at most {LARGEST_GRID} points, got {self.side}^{self.dimension}"
            )

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.side**self.dimension)

    @property
    def spacing(self) -> float:
        """Distance of neighbours."""
        return 2 * self.half_width / (self.side - 1)

    @property
    def axis(self) -> FloatArray:
        """The values of a coordinate."""
        return np.linspace(-self.half_width, self.half_width, self.side)

    def points(self) -> FloatArray:
        """All points in lexicographic order, shape (side^d, d)."""
        return np.array(list(itertools.product(self.axis, repeat=self.dimension)), dtype=np.float64)

    def indices(self, points: FloatArray) -> NDArray[np.int64]:
        """Position in :meth:`points` of each of ``points`` (k, d); raises ValueError if one is not on the grid."""
        # Clipped: beyond the integers the cast below has no meaning.
        steps = np.clip(np.rint((points + self.half_width) / self.spacing), -1, self.side).astype(np.int64)
        if (
            points.ndim != 2
            or points.shape[1] != self.dimension
            or (steps < 0).any()
            or (steps >= self.side).any()
        ):
            raise ValueError("points must lie on the grid")
        if not np.allclose(self.axis[steps], points, rtol=0, atol=1e-9 * self.half_width):
            raise ValueError("points must lie on the grid")
        return np.asarray(steps @ self.side ** np.arange(self.dimension)[::-1], dtype=np.int64)


Rows = Callable[[slice], ArrayLike]


class GridLosses:
    """Any losses, convex or not, with W the points of a grid.

    Parameters
    ----------
    losses : array_like, shape (k, N), or callable
        Loss of row i at point j; or ``losses(rows)``, which returns those rows of the table, so that the whole table
        need never exist. Only the sum is kept.
    grid : BoxGrid
        With N points.
    lipschitz : float
        G: |l(w) - l(v)| <= G |w - v|_1 on the grid, for every possible record. On a product grid it is enough that
        neighbours obey, and they are checked up to rounding (see ``STEEPER``), as is the range [0, 1].
    rows : int, optional
        k; needed where ``losses`` is callable.
    weights : array_like of int, shape (k,), optional
        How many records have each row; 1 by default.

    Raises
    ------
    TypeError, ValueError
        Shapes that do not fit, losses outside [0, 1], a loss that breaks ``lipschitz``, or a constant so small that
        rounding hides what breaks it. No message shows a loss.
    """

    __slots__ = ("_grid", "_lipschitz", "_records", "_total")

    def __init__(
        self,
        losses: ArrayLike | Rows,
        grid: BoxGrid,
        lipschitz: float,
        *,
        rows: int | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        if not isinstance(grid, BoxGrid):
            raise TypeError(f"grid must be a BoxGrid, got {type(grid).__name__}")
        self._grid, self._lipschitz = grid, check_ordinary("lipschitz", lipschitz)
        least = DIFFERENCE / (SHARE * grid.spacing)
        if self._lipschitz < least:
            raise ValueError(
                f"lipschitz must be at least {least:.3g} to be checked on this grid, got {self._lipschitz:g}: steps of "
                "losses would drown in rounding"
            )
        if callable(losses):
            count, chunk = check_count("rows", rows), losses
        else:
            table = as_finite_array("losses", losses, ndim=2)
            count, chunk = table.shape[0], table.__getitem__
            if count == 0 or rows not in (None, count):
                raise ValueError(f"rows must be {count}, as many as losses has, and positive, got {rows}")
        times = np.ones(count) if weights is None else as_finite_array("weights", weights, ndim=1)
        if times.shape[0] != count or (times < 1).any() or not np.array_equal(times, np.rint(times)):
            raise ValueError(f"weights must be {count} positive whole numbers")
        self._records = int(times.sum())
        self._total = self._sum(chunk, times)

    def _sum(self, chunk: Rows, times: FloatArray) -> FloatArray:
        size = self._grid.size
        total, lost = np.zeros(size), np.zeros(size)
        step = max(1, BLOCK // size)
        for at in range(0, times.size, step):
            rows = slice(at, min(at + step, times.size))
            block = self._checked(chunk(rows), rows, size)
            # Rows in the last axis: numpy then adds pairwise. Blocks are added with their rounding errors kept.
            part = (np.ascontiguousarray(block.T) * times[rows]).sum(axis=1)
            raised = total + part
            lost += np.where(total >= part, (total - raised) + part, (part - raised) + total)
            total = raised
        total += lost
        total.setflags(write=False)
        return total

    def _checked(self, values: ArrayLike, rows: slice, size: int) -> FloatArray:
        block = as_finite_array("losses", values, ndim=2)
        if block.shape != (rows.stop - rows.start, size):
            raise ValueError(f"losses must have shape {(rows.stop - rows.start, size)}, got {block.shape}")
        if block.min() < -SLACK or block.max() > 1 + SLACK:
            raise ValueError("losses must lie in [0, 1]: scale or clip them")
        allowed = self._lipschitz * self._grid.spacing * (1 + SLACK) + DIFFERENCE
        cube = block.reshape(-1, *[self._grid.side] * self._grid.dimension)
        for axis in range(1, cube.ndim):
            if np.abs(np.diff(cube, axis=axis)).max() > allowed:
                raise ValueError(
                    f"losses: a step along axis {axis - 1} changes a loss by more than lipschitz = "
                    f"{self._lipschitz:g} allows over {self._grid.spacing:g}; declare a larger constant"
                )
        return block

    @property
    def records(self) -> int:
        """Number of records n."""
        return self._records

    @property
    def dimension(self) -> int:
        """Dimension d."""
        return self._grid.dimension

    @property
    def half_width(self) -> float:
        """Half the l_infinity diameter."""
        return self._grid.half_width

    @property
    def lipschitz(self) -> float:
        """G, as declared."""
        return self._lipschitz

    @property
    def grid(self) -> BoxGrid:
        """W."""
        return self._grid

    @property
    def total(self) -> FloatArray:
        """L at all points of the grid, shape (N,)."""
        return self._total

    def values(self, points: FloatArray) -> FloatArray:
        """L at points of the grid, shape (k, d) to (k,)."""
        return np.asarray(self._total[self._grid.indices(points)])


@dataclass(frozen=True, slots=True, eq=False)
class ScoreLosses:
    """Losses of a linear score u = <w, x> on the box [-1, 1]^d, for features in [-1, 1] and labels in [-1, 1].

    Parameters
    ----------
    features : array_like, shape (n, d)
        Entries in [-1, 1], so that |u| <= d and slopes in u are slopes in l1.
    labels : array_like, shape (n,)
        y in [-1, 1]; -1 or +1 for the hinge and the ramp. The folded loss does not use them.
    loss : {"hinge", "absolute", "ramp", "folded"}
        (1 - y u)_+ / (1 + d) and |y - u| / (1 + d), which are convex; the ramp, (1 - y u) / 2 cut at 0 and 1; and (1
        - |u|)_+, the same for w and -w. All have values in [0, 1].

    Notes
    -----
    Equal records are counted once, with their number: features on a coarse public grid make sums over many records
    cheap.
    """

    features: FloatArray
    labels: FloatArray
    loss: str = "hinge"
    records: int = field(init=False, default=0)
    _weights: FloatArray = field(init=False, default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        x = as_finite_array("features", self.features, ndim=2)
        y = as_finite_array("labels", self.labels, ndim=1)
        if 0 in x.shape or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"labels must have one entry a row of features: {y.shape[0]} against shape {x.shape}"
            )
        for name, entries in (("features", x), ("labels", y)):
            if np.abs(entries).max() > 1 + SLACK:
                raise ValueError(f"{name} must lie in [-1, 1]: scale or clip them")
        if self.loss in ("hinge", "ramp") and not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError(f"labels must be -1 or +1 for the {self.loss} loss")
        distinct, counts = np.unique(np.column_stack([x, y]), axis=0, return_counts=True)
        object.__setattr__(self, "records", x.shape[0])
        for name, array in (
            ("features", distinct[:, :-1]),
            ("labels", distinct[:, -1]),
            ("_weights", counts.astype(np.float64)),
        ):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def dimension(self) -> int:
        """Dimension d."""
        return int(self.features.shape[1])

    @property
    def half_width(self) -> float:
        """The box is [-1, 1]^d."""
        return 1.0

    @property
    def convex(self) -> bool:
        """Whether the losses are convex in w."""
        return self.loss in CONVEX

    @property
    def lipschitz(self) -> float:
        """G in l1."""
        return {"ramp": 0.5, "folded": 1.0}.get(self.loss, 1 / (1 + self.dimension))

    def _of_scores(self, scores: FloatArray, labels: FloatArray) -> FloatArray:
        """Losses for scores of shape (..., k) and k labels."""
        if self.loss == "absolute":
            return np.asarray(np.abs(labels - scores) * self.lipschitz)
        if self.loss == "folded":
            return np.asarray(np.maximum(1 - np.abs(scores), 0.0))
        rest = 1 - labels * scores
        if self.loss == "hinge":
            return np.asarray(np.maximum(rest, 0.0) * self.lipschitz)
        return np.asarray(np.clip(rest / 2, 0.0, 1.0))

    def values(self, points: FloatArray) -> FloatArray:
        """L at points of the box, shape (k, d) to (k,); at most about 30 MB at a time."""
        w = as_finite_array("points", points, ndim=2)
        if w.shape[1] != self.dimension or np.abs(w).max(initial=0.0) > 1 + SLACK:
            raise ValueError(f"points must lie in [-1, 1]^{self.dimension}")
        step = max(1, BLOCK // self._weights.size)
        parts = [
            (self._of_scores(w[at : at + step] @ self.features.T, self.labels) * self._weights).sum(axis=1)
            for at in range(0, len(w), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def value_and_subgradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """L at a point (d,) and a subgradient, for the convex losses."""
        if not self.convex:
            raise ValueError(f"loss must be one of {', '.join(CONVEX)}, got {self.loss!r}: not convex")
        scores = self.features @ point
        value = float((self._of_scores(scores, self.labels) * self._weights).sum())
        slopes = np.sign(scores - self.labels)
        if self.loss == "hinge":
            slopes = -self.labels * (self.labels * scores < 1)
        # One column after the other, contiguous: numpy then sums in pairs, to an error that the certificates allow for.
        # A matrix product adds records one by one, and its error may exceed the gap from a million records on.
        columns = np.ascontiguousarray(self.features.T)
        return value, np.asarray((columns * (slopes * self._weights * self.lipschitz)).sum(axis=1))

    def on_grid(self, side: int) -> GridLosses:
        """The same losses with W the points of a grid of ``side`` points along each axis."""
        grid = BoxGrid(self.dimension, side)
        points = grid.points()

        def chunk(rows: slice) -> FloatArray:
            return self._of_scores(points @ self.features[rows].T, self.labels[rows]).T

        return GridLosses(chunk, grid, self.lipschitz, rows=self._weights.size, weights=self._weights)


def nearest_members(problem: SampledProblem, points: FloatArray) -> FloatArray:
    """Members of W for answers that a rounding may have moved off it; raises ValueError for other answers.

    The guarantee is about averages of members: points beside W must not enter them. ``points`` has shape (k, d),
    finite; a problem of another kind than :class:`GridLosses` is taken to have all points of its box.
    """
    if isinstance(problem, GridLosses):
        return np.asarray(problem.grid.points()[problem.grid.indices(points)])
    if np.abs(points).max() > problem.half_width * (1 + SLACK):
        raise ValueError("points must lie in the box")
    return np.clip(points, -problem.half_width, problem.half_width)
