"""The vocabulary: neighbouring relations, data domains, guarantees and releases.

A mechanism of this library is a function ``(data, ..., *, epsilon, ..., rng) -> Release``. The
release says what may be published, the guarantee that covers it, and carries a private trace for
teaching plots that must not be published.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_ordinary

Value = TypeVar("Value")


class Neighbours(StrEnum):
    """Which two data sets a guarantee compares."""

    REPLACE_ONE = "replace-one"
    """One record is exchanged for another; the number of records n is public."""

    ADD_REMOVE = "add/remove"
    """One record is added or removed; n is private."""


NORMS = ("l1", "l2", "linf")
LABELS = ("real", "sign", "class")
# Rounding slack at the door. A row that was scaled to norm 1 in float64 may come out at 1 + 1e-16;
# the sensitivities move by the same relative amount, far below what any printed digit shows.
SLACK = 1e-9


def row_norms(features: FloatArray, norm: str) -> FloatArray:
    """Norm of each row of ``features`` (n, d): ``"l1"``, ``"l2"`` or ``"linf"``; shape (n,)."""
    order = {"l1": 1, "l2": 2, "linf": np.inf}[check_choice("norm", norm, NORMS)]
    return np.asarray(np.linalg.norm(features, ord=order, axis=1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Domain:
    """The public bounds that records are declared to obey, before anybody looks at them.

    Sensitivities are computed from these bounds and from nothing else. They must come from outside
    the data: a maximum taken over the records is not a public bound.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm in which feature rows are bounded.
    feature_bound : float
        Largest norm of a row, positive.
    labels : {"real", "sign", "class"}
        Real labels in [-label_bound, label_bound], labels in {-1, +1}, or classes 0, 1, 2, ...
    label_bound : float
        Largest absolute label for ``"real"``; 1 for ``"sign"``; number of classes for ``"class"``.
    """

    norm: str = "l1"
    feature_bound: float = 1.0
    labels: str = "real"
    label_bound: float = 1.0

    def __post_init__(self) -> None:
        # What is kept is the checked value: a bound left in 8-bit integers would overflow when it is squared.
        object.__setattr__(self, "norm", check_choice("norm", self.norm, NORMS))
        object.__setattr__(self, "labels", check_choice("labels", self.labels, LABELS))
        object.__setattr__(self, "feature_bound", check_ordinary("feature_bound", self.feature_bound))
        object.__setattr__(self, "label_bound", check_ordinary("label_bound", self.label_bound))
        if self.labels == "class" and (
            self.label_bound < 2 or self.label_bound != math.floor(self.label_bound)
        ):
            raise ValueError(f"label_bound must be a number of classes, 2 or more, got {self.label_bound!r}")
        if self.labels == "sign" and self.label_bound != 1.0:
            raise ValueError(f"label_bound must be 1 for labels in {{-1, +1}}, got {self.label_bound!r}")

    def check(self, features: ArrayLike, labels: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Return ``features`` (n, d) and ``labels`` (n,) as float64, or refuse them.

        Raises
        ------
        TypeError
            Sparse, masked, text or object input.
        ValueError
            Empty data, wrong shapes, non-finite entries, a row or a label outside the domain.
        """
        matrix = as_finite_array("features", features, ndim=2)
        vector = as_finite_array("labels", labels, ndim=1)
        if matrix.shape[0] == 0 or matrix.shape[1] == 0:
            raise ValueError(f"features must have at least one row and one column, got shape {matrix.shape}")
        if vector.shape[0] != matrix.shape[0]:
            raise ValueError(
                f"labels must have one entry a row of features: {vector.shape[0]} against {matrix.shape[0]}"
            )
        self._check_rows(matrix)
        self._check_labels(vector)
        return matrix, vector

    def _check_rows(self, matrix: FloatArray) -> None:
        norms = row_norms(matrix, self.norm)
        worst = int(np.argmax(norms))
        if norms[worst] > self.feature_bound * (1 + SLACK):
            raise ValueError(
                f"features: row {worst} has {self.norm} norm {norms[worst]:.6g}, above the declared bound "
                f"{self.feature_bound:.6g}; clip or scale the rows by public constants first"
            )

    def _check_labels(self, vector: FloatArray) -> None:
        if self.labels == "sign":
            bad = np.abs(vector) != 1
        elif self.labels == "real":
            bad = np.abs(vector) > self.label_bound * (1 + SLACK)
        else:
            bad = (vector < 0) | (vector >= self.label_bound) | (vector != np.floor(vector))
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"labels: entry {at} is {vector[at]:.6g}, outside the declared domain: {self.describe_labels()}"
            )

    def describe_labels(self) -> str:
        """Say in words which labels are allowed."""
        if self.labels == "sign":
            return "labels in {-1, +1}"
        if self.labels == "real":
            return f"|label| <= {self.label_bound:g}"
        return f"classes 0 ... {self.label_bound - 1:g}"

    def describe(self) -> str:
        """Say in words which records are allowed."""
        return f"{self.norm} norm of a row <= {self.feature_bound:g}, {self.describe_labels()}"


GUARANTEES = ("ex-ante", "ex-post", "per-instance")


@runtime_checkable
class PrivacyCurve(Protocol):
    """All the (epsilon, delta) pairs that one mechanism satisfies at once: its privacy profile."""

    def delta(self, epsilon: float) -> float:
        """Smallest delta in [0, 1] that goes with ``epsilon`` (or a proved upper bound of it)."""
        ...

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 that goes with ``delta`` (or a proved upper bound of it)."""
        ...


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is promised about one release.

    Parameters
    ----------
    kind : {"ex-ante", "ex-post", "per-instance"}
        Fixed before the run; a bound on the privacy loss of the outcome that was seen (ligett2017,
        Definition 2.3); or the loss of one named person.
    epsilon : float
        Nonnegative; infinity says honestly that nothing is promised.
    delta : float
        0 for a pure guarantee. Otherwise, for each pair of neighbours fixed before the run, the probability over the
        mechanism's coins that the bound fails; an ex-ante guarantee is the usual (epsilon, delta).
    neighbours : Neighbours
        The relation that the guarantee quantifies over.
    domain : Domain or None
        The bounds that records are assumed to obey; None where the mechanism took a declared
        sensitivity instead.
    parts : mapping of str to float
        How epsilon is spent, for instance ``{"test": ..., "generate": ...}``; sums to epsilon.
    source : str
        Paper, theorem, erratum.
    curve : PrivacyCurve or None
        The whole trade-off, of which (epsilon, delta) is one point. The pair may promise less than the curve, not
        more: ``curve.delta(epsilon) <= delta`` is checked.
    """

    kind: str
    epsilon: float
    neighbours: Neighbours
    delta: float = 0.0
    domain: Domain | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    source: str = ""
    curve: PrivacyCurve | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, GUARANTEES)
        for name, number in (("epsilon", self.epsilon), ("delta", self.delta), *self.parts.items()):
            if isinstance(number, bool | np.bool_) or not isinstance(number, numbers.Real):
                raise TypeError(f"{name} must be a real number, got {type(number).__name__}: {number!r}")
            if name != "delta" and (math.isnan(number) or number < 0):
                raise ValueError(f"{name} must be nonnegative, got {number!r}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {self.delta!r}")
        if not (self.domain is None or isinstance(self.domain, Domain)):
            raise TypeError(f"domain must be a Domain or None, got {type(self.domain).__name__}")
        if not isinstance(self.neighbours, Neighbours):
            raise TypeError(f"neighbours must be a Neighbours member, got {self.neighbours!r}")
        total = sum(self.parts.values())
        if self.parts and not math.isclose(total, self.epsilon, rel_tol=1e-9, abs_tol=1e-12):
            raise ValueError(f"parts must sum to epsilon: {total!r} against {self.epsilon!r}")
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))
        if self.curve is not None:
            self._check_curve(self.curve)

    def _check_curve(self, curve: PrivacyCurve) -> None:
        # A class has the methods too, unbound: it is not a curve.
        if isinstance(curve, type) or not isinstance(curve, PrivacyCurve):
            raise TypeError(
                f"curve must have methods delta and epsilon, got {type(curve).__name__}: {curve!r}"
            )
        if math.isinf(self.epsilon):
            return
        needed = float(curve.delta(float(self.epsilon)))
        if not 0 <= needed <= self.delta * (1 + SLACK):  # written so that nan is refused
            raise ValueError(
                f"curve needs delta {needed!r} at epsilon {self.epsilon!r}, above the delta that is promised: "
                f"{self.delta!r}"
            )

    @property
    def risk_factor(self) -> float:
        """The privacy risk factor exp(epsilon) (ligett2017, Definition 2.1)."""
        return math.exp(self.epsilon) if self.epsilon < 709 else math.inf

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled, and sweeps send guarantees between processes.
        return (
            Guarantee,
            (
                self.kind,
                self.epsilon,
                self.neighbours,
                self.delta,
                self.domain,
                dict(self.parts),
                self.source,
                self.curve,
            ),
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """The mechanism declined to answer. This value is published too, and has its own guarantee."""

    reason: str


class Trace(Mapping[str, Any]):
    """What the mechanism saw on the way: for teaching plots only, *not* covered by the guarantee.

    Printing a trace shows its keys and a warning, never its values, and a trace refuses to be
    pickled, so that it does not reach a disk or another process by accident.
    """

    __slots__ = ("_items",)

    def __init__(self, **items: Any) -> None:
        self._items = items

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<private trace, must not leave the room: {', '.join(self._items) or 'empty'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a trace is private and cannot be pickled; send release.public() instead")


@dataclass(frozen=True, slots=True)
class Release(Generic[Value]):
    """The outcome of a mechanism: ``value`` may be published, ``guarantee`` says at what cost.

    ``trace`` is what the mechanism saw on the way. It is *not* covered by the guarantee.
    """

    value: Value | Refused
    guarantee: Guarantee
    index: int | None = None
    """Which of the privacy levels was accepted (from 0), where the mechanism searched; published."""
    trace: Trace = field(default_factory=Trace, compare=False)

    @property
    def refused(self) -> bool:
        """Whether the mechanism declined to answer."""
        return isinstance(self.value, Refused)

    def public(self) -> Release[Value]:
        """The same release without its private trace."""
        return replace(self, trace=Trace())

    def __getstate__(self) -> tuple[Any, ...]:
        if self.trace:
            raise TypeError("a release with a private trace cannot be pickled; send release.public() instead")
        return (self.value, self.guarantee, self.index)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, item in zip(("value", "guarantee", "index"), state, strict=True):
            object.__setattr__(self, name, item)
        object.__setattr__(self, "trace", Trace())
