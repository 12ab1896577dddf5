"""Increasing lists of privacy levels, as long as one likes at no cost in memory.

The printed experiments walk through T = 1000 levels from 1/n up to 4E. A geometric list is stored as
its two ends, so that a million levels cost what a thousand cost.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_increasing_epsilons,
    check_positive,
)

IndexArray = NDArray[np.int64]


class PrivacyLevels:
    """A strictly increasing list epsilon_0 < ... < epsilon_{T-1} of positive privacy levels."""

    def __len__(self) -> int:
        raise NotImplementedError

    def at(self, index: ArrayLike) -> FloatArray:
        """Levels at the given indices, counted from 0."""
        raise NotImplementedError

    def below(self, bound: FloatArray) -> IndexArray:
        """For each entry of ``bound`` the largest index whose level is smaller, or -1."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> float:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"level {position} of {len(self)}")
        return float(self.at(position % len(self)))

    def __iter__(self) -> Iterator[float]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} privacy levels from {self[0]:.6g} to {self[-1]:.6g}>"


def _checked(index: ArrayLike, count: int) -> IndexArray:
    positions = np.asarray(index)
    if positions.size == 0:
        return positions.astype(np.int64)
    if positions.dtype.kind not in "iu" or positions.min() < 0 or positions.max() >= count:
        raise IndexError(f"index must hold integers from 0 to {count - 1}, got {index!r}")
    return positions.astype(np.int64)


class ListedLevels(PrivacyLevels):
    """Any strictly increasing list, stored as it is."""

    def __init__(self, epsilons: ArrayLike) -> None:
        self._levels = check_increasing_epsilons(epsilons)

    def __len__(self) -> int:
        return int(self._levels.size)

    def at(self, index: ArrayLike) -> FloatArray:
        """Levels at the given indices, counted from 0."""
        return np.asarray(self._levels[_checked(index, len(self))], dtype=np.float64)

    def below(self, bound: FloatArray) -> IndexArray:
        """For each entry of ``bound`` the largest index whose level is smaller, or -1."""
        return np.asarray(np.searchsorted(self._levels, bound, side="left") - 1, dtype=np.int64)


@dataclass(frozen=True, repr=False)
class GeometricLevels(PrivacyLevels):
    """The geometric list from ``first`` to ``last`` with ``count`` levels, stored as three numbers.

    The paper prints a decreasing list that its own algorithms refuse (erratum AF-2); this is the list
    that the algorithms need, with both ends included.
    """

    first: float
    last: float
    count: int

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        check_count("count", self.count, minimum=2)
        if self.last <= self.first:
            raise ValueError(f"last must exceed first, got {self.last!r} after {self.first!r}")
        if self.log_ratio < 1e-12:
            raise ValueError(f"count is too large to tell neighbouring levels apart, got {self.count}")

    @property
    def log_ratio(self) -> float:
        """Logarithm of the ratio of two neighbouring levels."""
        return (math.log(self.last) - math.log(self.first)) / (self.count - 1)

    def __len__(self) -> int:
        return self.count

    def at(self, index: ArrayLike) -> FloatArray:
        """Levels at the given indices, counted from 0."""
        # Interpolating from the nearer end keeps both ends exact.
        steps = _checked(index, self.count).astype(np.float64)
        lower = 2 * steps < self.count
        offset = np.where(lower, steps, steps - (self.count - 1))
        return np.asarray(np.where(lower, self.first, self.last) * np.exp(offset * self.log_ratio))

    def below(self, bound: FloatArray) -> IndexArray:
        """For each entry of ``bound`` the largest index whose level is smaller, or -1."""
        with np.errstate(divide="ignore"):
            guess = (np.log(np.asarray(bound)) - math.log(self.first)) / self.log_ratio
        index = np.clip(np.ceil(guess) - 1, -1, self.count - 1).astype(np.int64)
        # Rounding of the logarithm can be off by one index; the levels themselves decide.
        index -= (index >= 0) & (self.at(np.maximum(index, 0)) >= bound)
        following = np.minimum(index + 1, self.count - 1)
        index += (index < self.count - 1) & (self.at(following) < bound)
        return np.asarray(index, dtype=np.int64)


def as_levels(epsilons: PrivacyLevels | ArrayLike) -> PrivacyLevels:
    """Return ``epsilons`` as privacy levels: a strictly increasing list of at least two.

    Raises
    ------
    TypeError, ValueError
        Naming ``epsilons`` and the first entry that is not positive or not larger than the one before.
    """
    return epsilons if isinstance(epsilons, PrivacyLevels) else ListedLevels(epsilons)


def as_prefix_costs(costs: PrivacyLevels | ArrayLike) -> PrivacyLevels | FloatArray:
    """Return the cost of publishing each prefix of a list of queries: levels, or any nonnegative list."""
    if isinstance(costs, PrivacyLevels):
        return costs
    array = as_finite_array("prefix_epsilons", costs, ndim=1)
    if array.size == 0 or array[0] < 0 or (np.diff(array) < 0).any():
        raise ValueError(f"prefix_epsilons must be nonnegative and nondecreasing, got {array!r}")
    return array
