"""Queries whose distance to the nearest data set of large local sensitivity is known exactly.

Source: redberg2023, section 3.3.1 (the distance D_beta of Algorithm 3); Dwork and Lei, "Differential privacy and
robust statistics", STOC 2009; Thakurta and Smith, "Differentially private feature selection via stability arguments",
COLT 2013. Neighbours add or remove one record, and the empty data set counts as a data set.

For a query f with local sensitivity LS, the distance at a bound beta is

    D_beta(X) = min { number of records to add or remove that lead from X to X'' : LS(X'') > beta },

infinity where no data set at all exceeds the bound. It is 0 exactly when LS(X) > beta, and one record more or less
moves it by at most 1, whatever f is. The work is to compute it without a search over all data sets:

=================  =====================================  ======================================================
query              local sensitivity                      distance
=================  =====================================  ======================================================
:class:`Median`    half of the larger gap at the middle   empty an interval longer than 2 beta, balance its sides
:class:`Mode`      0 or 1 (the class changes)             records until another class wins, less one
:class:`Pairs`     size of the largest class              records until a class has more than beta members
=================  =====================================  ======================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_real

Answer = TypeVar("Answer", covariant=True)


class LocalQuery(Protocol):
    """A number computed from a data set, with what classic propose-test-release has to know about it."""

    def value(self, data: ArrayLike) -> float:
        """Return f(X)."""
        ...

    def local_sensitivity(self, data: ArrayLike) -> float:
        """Largest change of f when one record is added to X or removed."""
        ...

    def distance(self, data: ArrayLike, bound: float) -> float:
        """Records to add or remove until the local sensitivity exceeds ``bound``; may be infinite."""
        ...


class StableQuery(Protocol[Answer]):
    """An answer of any kind that changes rarely, with the distance to the nearest data set where it can change."""

    def value(self, data: ArrayLike) -> Answer:
        """Return f(X)."""
        ...

    def stability(self, data: ArrayLike) -> float:
        """Records to add or remove until one more can change the answer: 0 where a neighbour has another one."""
        ...


def _check_bound(bound: float) -> float:
    number = check_real("bound", bound)
    if number < 0:
        raise ValueError(f"bound must be nonnegative, got {number!r}")
    return number


@dataclass(frozen=True, slots=True)
class Median:
    """The median of numbers in a declared interval.

    The midpoint of the two middle values where their number is even; of no records at all, the midpoint of the
    interval.

    Parameters
    ----------
    lower, upper : float
        The public interval [a, b] that the records lie in, a < b.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", check_real("lower", self.lower))
        object.__setattr__(self, "upper", check_real("upper", self.upper))
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, got {self.lower!r} and {self.upper!r}")
        if not math.isfinite(self.upper - self.lower):
            raise ValueError(f"upper - lower must be finite, got {self.lower!r} and {self.upper!r}")

    def _padded(self, data: ArrayLike) -> FloatArray:
        """Sorted records between the two ends of the interval, shape (n + 2,)."""
        values = as_finite_array("data", data, ndim=1)
        outside = (values < self.lower) | (values > self.upper)
        if outside.any():
            at = int(np.argmax(outside))
            raise ValueError(
                f"data must lie in [{self.lower:g}, {self.upper:g}], got {values[at]!r} at index {at}; clip to "
                "public bounds first"
            )
        return np.concatenate([[self.lower], np.sort(values), [self.upper]])

    def value(self, data: ArrayLike) -> float:
        """Return the median; O(n log n)."""
        x = self._padded(data)
        return 0.5 * float(x[(x.size - 1) // 2] + x[x.size // 2])

    def local_sensitivity(self, data: ArrayLike) -> float:
        """Largest change of the median when a record is added or removed; O(n log n).

        With x_(0) = a and x_(n+1) = b: of an even number n = 2k of records, half of x_(k+1) - x_(k); of an odd number,
        half of the larger gap beside the middle record.
        """
        x = self._padded(data)
        middle = (x.size - 1) // 2
        gaps = np.diff(x[middle - 1 : middle + 2] if x.size % 2 else x[middle : middle + 2])
        return 0.5 * float(gaps.max())

    def distance(self, data: ArrayLike, bound: float) -> float:
        """Records to add or remove until the local sensitivity exceeds ``bound``; O(n log n).

        The local sensitivity of X'' exceeds beta exactly when an interval longer than 2 beta inside [a, b] holds no
        record, with numbers of records to the left and to the right that differ by at most one. From X, an interval
        (x_(i), x_(j)) takes j - i - 1 removals to be emptied, and its sides, with i and n - j + 1 records, take
        max(0, ``|i + j - n - 1|`` - 1) additions to be balanced. For each i the nearest j serves: one further record
        inside costs one removal and spares at most one addition.

        Parameters
        ----------
        data : array_like, shape (n,)
        bound : float
            beta, nonnegative.

        Returns
        -------
        float
            A whole number, or infinity if beta >= (b - a) / 2, which no data set exceeds.
        """
        beta, x = _check_bound(bound), self._padded(data)
        first = np.arange(x.size - 1)
        # One fixed monotone function of the two values: the distance has sensitivity 1, roundings or not.
        last = np.searchsorted(x, x[:-1] + 2 * beta, side="right")
        open_ = last < x.size
        if not open_.any():
            return math.inf
        i, j = first[open_], last[open_]
        cost = (j - i - 1) + np.maximum(np.abs(i + j - (x.size - 1)) - 1, 0)
        return float(cost.min())


def class_counts(labels: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Sizes of the classes 0 ... classes - 1, shape (classes,); labels elsewhere are refused."""
    values = as_finite_array("data", labels, ndim=1)
    bad = (values < 0) | (values >= classes) | (values != np.floor(values))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"data must hold classes 0 ... {classes - 1}, got {values[at]!r} at index {at}")
    return np.bincount(values.astype(np.int64), minlength=classes).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Mode:
    """The most frequent of the classes 0 ... classes - 1; of several, the first.

    Parameters
    ----------
    classes : int
        Public number of classes, at least 2.
    """

    classes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", check_count("classes", self.classes, minimum=2))

    def value(self, data: ArrayLike) -> int:
        """Return the winning class; O(n + classes)."""
        return int(np.argmax(class_counts(data, self.classes)))

    def distance_to_change(self, data: ArrayLike) -> int:
        """Records to add or remove until another class wins, at least 1; O(n + classes).

        Class c takes n_winner - n_c of them, and one more if ties are decided against it.
        """
        counts = class_counts(data, self.classes)
        winner = int(np.argmax(counts))
        cost = counts[winner] - counts + (np.arange(self.classes) > winner)
        return int(np.delete(cost, winner).min())

    def stability(self, data: ArrayLike) -> float:
        """Records to add or remove until one more can change the mode: the distance to a change, less one."""
        return float(self.distance_to_change(data) - 1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The number of pairs of records of one class: the size of a self-join, sum_c n_c (n_c - 1) / 2.

    A query without any finite global sensitivity: a record that joins a class of m members adds m pairs. Its local
    sensitivity, the size of the largest class, has global sensitivity 1, so that it can be tested or published.

    Parameters
    ----------
    classes : int
        Public number of classes, at least 1.
    """

    classes: int

    #: How much one record moves the local sensitivity.
    LOCAL_SENSITIVITY_SENSITIVITY = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", check_count("classes", self.classes))

    def value(self, data: ArrayLike) -> float:
        """Return the number of pairs; O(n + classes)."""
        counts = class_counts(data, self.classes)
        return float((counts * (counts - 1) // 2).sum())

    def local_sensitivity(self, data: ArrayLike) -> float:
        """Size of the largest class: its next member makes that many pairs."""
        return float(class_counts(data, self.classes).max())

    def distance(self, data: ArrayLike, bound: float) -> float:
        """Records to add until the largest class has more than ``bound`` members; O(n + classes)."""
        beta = _check_bound(bound)
        return max(0.0, math.floor(beta) + 1.0 - self.local_sensitivity(data))
