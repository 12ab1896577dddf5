"""A data set and the public bounds that its records are declared to obey."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.privacy import Domain
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_positive,
    check_probability,
    check_real,
)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features, labels, names and a declared domain, checked at the door.

    Parameters
    ----------
    features : array_like, shape (n, d)
        One row a person. Numpy arrays, nested lists and pandas frames are accepted.
    labels : array_like, shape (n,)
        One label a person.
    domain : Domain
        Public bounds. A record outside them is refused with a ``ValueError``.
    names : sequence of str, optional
        One name a feature; by default the columns of a pandas frame, if they are text.
    title : str, optional
        What the data are.
    label_scale, label_shift : float
        How real labels were brought into the domain by public constants: the value in the units of
        the source is ``label_shift + label_scale * label``.
    """

    features: FloatArray
    labels: FloatArray
    domain: Domain
    names: tuple[str, ...] = ()
    title: str = ""
    label_scale: float = 1.0
    label_shift: float = 0.0

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        domain: Domain,
        names: Iterable[str] = (),
        title: str = "",
        *,
        label_scale: float = 1.0,
        label_shift: float = 0.0,
    ) -> None:
        if not isinstance(domain, Domain):
            raise TypeError(f"domain must be a Domain, got {type(domain).__name__}")
        matrix, vector = domain.check(features, labels)
        _check_alignment(features, labels)
        listed = _names_of(features, names)
        if listed and len(listed) != matrix.shape[1]:
            raise ValueError(f"names must have one entry a feature: {len(listed)} against {matrix.shape[1]}")
        matrix.setflags(write=False)
        vector.setflags(write=False)
        for field, value in (
            ("features", matrix),
            ("labels", vector),
            ("domain", domain),
            ("names", listed),
            ("title", title),
            ("label_scale", check_positive("label_scale", label_scale)),
            ("label_shift", check_real("label_shift", label_shift)),
        ):
            object.__setattr__(self, field, value)

    @property
    def rows(self) -> int:
        """Number of records n."""
        return int(self.features.shape[0])

    @property
    def columns(self) -> int:
        """Number of features d."""
        return int(self.features.shape[1])

    def restore_labels(self, labels: ArrayLike) -> FloatArray:
        """Labels, or predictions of them, in the units of the source; same shape as ``labels``."""
        return self.label_shift + self.label_scale * as_finite_array("labels", labels)

    def take(self, indices: ArrayLike) -> Dataset:
        """The records at ``indices`` (integers or a boolean mask), in that order."""
        chosen = np.asarray(indices)
        if chosen.dtype.kind not in "iub" or chosen.ndim != 1:
            raise TypeError(f"indices must be a list of integers or a boolean mask, got {indices!r}")
        return Dataset(
            self.features[chosen],
            self.labels[chosen],
            self.domain,
            self.names,
            self.title,
            label_scale=self.label_scale,
            label_shift=self.label_shift,
        )

    def subsample(self, rows: int, rng: np.random.Generator) -> Dataset:
        """A random subset of ``rows`` records without replacement, in random order."""
        check_generator(rng)
        if check_count("rows", rows) > self.rows:
            raise ValueError(f"rows must be at most {self.rows}, got {rows}")
        return self.take(rng.choice(self.rows, size=rows, replace=False))

    def split(self, share: float, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
        """Two parts in random order; the first has ``round(share * rows)`` records, both at least one."""
        check_generator(rng)
        first = round(check_probability("share", share) * self.rows)
        if not 0 < first < self.rows:
            raise ValueError(f"share must leave records on both sides of {self.rows}, got {share!r}")
        order = rng.permutation(self.rows)
        return self.take(order[:first]), self.take(order[first:])

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the door again: a copy made field by field would be writable.
        return _rebuild, (
            self.features,
            self.labels,
            self.domain,
            self.names,
            self.title,
            self.label_scale,
            self.label_shift,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataset:
        return self  # nothing in it can change

    def __repr__(self) -> str:
        return f"Dataset({self.title or 'untitled'}: {self.rows} x {self.columns}; {self.domain.describe()})"


def _rebuild(
    features: FloatArray,
    labels: FloatArray,
    domain: Domain,
    names: tuple[str, ...],
    title: str,
    scale: float,
    shift: float,
) -> Dataset:
    return Dataset(features, labels, domain, names, title, label_scale=scale, label_shift=shift)


def _check_alignment(features: Any, labels: Any) -> None:
    """Refuse a frame and a series whose rows are named differently: matching them by position would be a guess."""
    named = isinstance(features, pd.DataFrame | pd.Series) and isinstance(labels, pd.DataFrame | pd.Series)
    if named and len(features) == len(labels) and not features.index.equals(labels.index):
        raise ValueError(
            "labels must have the index of features, in the same order; reset both or align them"
        )


def _names_of(features: object, names: Iterable[str]) -> tuple[str, ...]:
    """Feature names as given, or the text columns of a frame; each name once."""
    if isinstance(names, str):
        raise TypeError(f"names must be a list of names, got the text {names!r}")
    listed = tuple(names)
    if (
        not listed
        and isinstance(features, pd.DataFrame)
        and all(isinstance(name, str) for name in features.columns)
    ):
        listed = tuple(features.columns)
    if not all(isinstance(name, str) for name in listed):
        raise TypeError(f"names must be text, got {listed!r}")
    if len(set(listed)) != len(listed):
        raise ValueError(f"names must differ, got {listed!r}")
    return listed
