"""A data set and the public bounds that its records are declared to obey."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, check_count, check_generator


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
        One name a feature.
    title : str, optional
        What the data are.
    """

    features: FloatArray
    labels: FloatArray
    domain: Domain
    names: tuple[str, ...] = ()
    title: str = ""

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        domain: Domain,
        names: tuple[str, ...] | list[str] = (),
        title: str = "",
    ) -> None:
        if not isinstance(domain, Domain):
            raise TypeError(f"domain must be a Domain, got {type(domain).__name__}")
        matrix, vector = domain.check(features, labels)
        if names and len(names) != matrix.shape[1]:
            raise ValueError(f"names must have one entry a feature: {len(names)} against {matrix.shape[1]}")
        matrix.setflags(write=False)
        vector.setflags(write=False)
        for field, value in (
            ("features", matrix),
            ("labels", vector),
            ("domain", domain),
            ("names", tuple(names)),
            ("title", title),
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

    def subsample(self, rows: int, rng: np.random.Generator) -> Dataset:
        """A random subset of ``rows`` records without replacement, in random order."""
        check_generator(rng)
        if check_count("rows", rows) > self.rows:
            raise ValueError(f"rows must be at most {self.rows}, got {rows}")
        chosen = rng.choice(self.rows, size=rows, replace=False)
        return Dataset(self.features[chosen], self.labels[chosen], self.domain, self.names, self.title)

    def __repr__(self) -> str:
        return f"Dataset({self.title or 'untitled'}: {self.rows} x {self.columns}; {self.domain.describe()})"
