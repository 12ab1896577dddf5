"""Finite parameter spaces W and their lift to the unit sphere.

A space is public: it is fixed before anybody looks at the data. Its radius D bounds the norms and its separation tau
is the smallest distance between two members (neel2019, Definition 2.4); both enter the noise through (D / tau)^2, so
that a space should be centred and no larger than it must be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from adaptive_dp.privacy import SLACK
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_ordinary

IntArray = NDArray[np.int64]
LARGEST_LIST = 4_000_000  # members that are ever listed
LARGEST_SQUARE = 1_000_000  # tables run over the squared norm
RIM = 8 * float(np.finfo(np.float64).eps)


@runtime_checkable
class FiniteSpace(Protocol):
    """What the mechanisms need to know of W."""

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        ...

    @property
    def radius(self) -> float:
        """Radius D, at least the largest Euclidean norm of a member."""
        ...

    @property
    def separation(self) -> float:
        """Separation tau, the smallest Euclidean distance between two members."""
        ...

    @property
    def size(self) -> int:
        """Number of members |W|."""
        ...

    def points(self) -> NDArray[Any]:
        """All members, shape (|W|, d), always in the same order."""
        ...


def lift(points: ArrayLike, radius: float) -> FloatArray:
    """Put members on the unit sphere of one more dimension: pi(w) = (w, sqrt(D^2 - |w|^2)) / D (neel2019, section 3).

    Distances shrink by no more than D: |pi(w) - pi(v)| >= |w - v| / D.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Members w.
    radius : float
        D, positive and at least the largest norm; a smaller one would make the last coordinate undefined.

    Returns
    -------
    ndarray, shape (..., d + 1)
        Unit vectors with a nonnegative last coordinate.

    Raises
    ------
    ValueError
        A norm is above ``radius``.
    """
    w = as_finite_array("points", points)
    bound = check_ordinary("radius", radius)
    if w.ndim == 0:
        raise ValueError("points must have at least one dimension, got a single number")
    rest = bound**2 - np.sum(np.square(w), axis=-1, keepdims=True)
    if rest.size and rest.min() < -SLACK * bound**2:
        longest = math.sqrt(bound**2 - float(rest.min()))
        raise ValueError(f"radius must be at least the largest norm {longest:.6g}, got {bound:.6g}")
    # On the rim the difference of two roundings is noise, and its root would be as large as 1e-8.
    rest = np.where(rest < RIM * bound**2, 0.0, rest)
    return np.asarray(np.concatenate([w, np.sqrt(rest)], axis=-1) / bound)


@dataclass(frozen=True, slots=True)
class IntegerBall:
    """Integer vectors in a ball and a box: w in Z^d, |w_j| <= box, |w|^2 <= squared_radius.

    The separation is 1 and D is the root of ``squared_radius``. Section 5 of neel2019 uses :meth:`halfspaces` for
    OPDisc and :meth:`signs` for RSPM. A finer grid needs no class of its own: with losses that depend on the direction
    of w, or with rescaled features, everything depends on D / tau alone.

    Parameters
    ----------
    dimension : int
        d >= 1.
    box : int
        Largest absolute coordinate B >= 1, at most the root of ``squared_radius``.
    squared_radius : int
        K = D^2 >= 1.
    """

    dimension: int
    box: int
    squared_radius: int

    def __post_init__(self) -> None:
        for name in ("dimension", "box", "squared_radius"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.squared_radius > LARGEST_SQUARE:
            raise ValueError(f"squared_radius must be at most {LARGEST_SQUARE}, got {self.squared_radius}")
        if self.box > math.isqrt(self.squared_radius):
            raise ValueError(
                f"box must be at most {math.isqrt(self.squared_radius)}, the root of squared_radius = "
                f"{self.squared_radius}, got {self.box}"
            )

    @classmethod
    def halfspaces(cls, dimension: int) -> IntegerBall:
        """OPDisc's space in the experiments of neel2019: |w|^2 <= d, integers up to the root of d."""
        d = check_count("dimension", dimension)
        return cls(d, math.isqrt(d), d)

    @classmethod
    def signs(cls, dimension: int) -> IntegerBall:
        """RSPM's space in the experiments of neel2019: {-1, 0, 1}^d."""
        d = check_count("dimension", dimension)
        return cls(d, 1, d)

    @property
    def radius(self) -> float:
        """Radius D."""
        return math.sqrt(self.squared_radius)

    @property
    def separation(self) -> float:
        """Distance between neighbours on the grid: tau = 1."""
        return 1.0

    @property
    def values(self) -> IntArray:
        """The values of a coordinate, -B ... B."""
        return np.arange(-self.box, self.box + 1)

    @property
    def size(self) -> int:
        """|W|, counted exactly: a convolution over the squared norms, one coordinate after the other."""
        squares = [int(value) ** 2 for value in self.values]
        counts = [1] + [0] * self.squared_radius
        for _ in range(self.dimension):
            counts = [sum(counts[k - q] for q in squares if q <= k) for k in range(self.squared_radius + 1)]
        return sum(counts)

    def contains(self, point: ArrayLike) -> bool:
        """Whether ``point`` (d,) is a member."""
        w = as_finite_array("point", point, ndim=1)
        return bool(
            w.shape == (self.dimension,)
            and np.array_equal(w, np.rint(w))
            and np.abs(w).max() <= self.box
            and np.square(w).sum() <= self.squared_radius
        )

    def points(self) -> IntArray:
        """All members in lexicographic order, shape (|W|, d).

        Raises
        ------
        ValueError
            More than four million members.
        """
        if self.size > LARGEST_LIST:
            raise ValueError(f"the space has {self.size} members, too many to list (at most {LARGEST_LIST})")
        members = np.zeros((1, 0), dtype=np.int64)
        squares = np.zeros(1, dtype=np.int64)
        for _ in range(self.dimension):
            sums = squares[:, np.newaxis] + self.values**2
            row, column = np.nonzero(sums <= self.squared_radius)
            members = np.column_stack([members[row], self.values[column]])
            squares = sums[row, column]
        return members


@dataclass(frozen=True, slots=True, eq=False)
class PointSet:
    """A space that is given by its list of members.

    Parameters
    ----------
    members : array_like, shape (N, d)
        At least two different points.
    bound : float or None
        D; None takes the largest norm. A larger bound is allowed and costs noise.

    Raises
    ------
    ValueError
        Fewer than two members, two equal ones, or a norm above ``bound``.
    """

    members: FloatArray
    bound: float | None = None
    _separation: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        points = as_finite_array("members", self.members, ndim=2)
        if points.shape[0] < 2 or points.shape[1] == 0:
            raise ValueError(f"members must be at least two points, got shape {points.shape}")
        if points.shape[0] > 10_000:
            raise ValueError(f"members must be at most 10000 points, got {points.shape[0]}")
        separation = float(pdist(points).min())
        if separation == 0:
            raise ValueError("members must be different points, got two equal ones")
        check_ordinary("the smallest distance between members", separation)
        longest = check_ordinary("the largest norm of members", np.linalg.norm(points, axis=1).max())
        bound = longest if self.bound is None else check_ordinary("bound", self.bound)
        if bound < longest * (1 - SLACK):
            raise ValueError(f"bound must be at least the largest norm {longest:.6g}, got {bound:.6g}")
        points.setflags(write=False)
        object.__setattr__(self, "members", points)
        object.__setattr__(self, "bound", max(bound, longest))
        object.__setattr__(self, "_separation", separation)

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return int(self.members.shape[1])

    @property
    def radius(self) -> float:
        """Radius D."""
        return float(self.bound or 0.0)

    @property
    def separation(self) -> float:
        """Separation tau."""
        return self._separation

    @property
    def size(self) -> int:
        """Number of members |W|."""
        return int(self.members.shape[0])

    def points(self) -> FloatArray:
        """All members, in the order in which they were given."""
        return self.members


def is_space(value: object) -> bool:
    """Whether ``value`` is a finite space; its size, which takes time to count, is not asked for if its type tells."""
    return isinstance(value, IntegerBall | PointSet) or (
        not isinstance(value, type) and isinstance(value, FiniteSpace)
    )
