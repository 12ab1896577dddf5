"""What a published Hessian and a published gradient say about the true ones, with the promised probability.

Source: redberg2023, Propositions A.3.2 and A.5.1; erratum 8.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.linalg import cholesky

from adaptive_dp.per_instance.bounds import Width
from adaptive_dp.per_instance.objective import LinearRecords, Records
from adaptive_dp.validation import FloatArray

Rule = Literal["family", "three-halves", "standard"]
RULES: tuple[Rule, ...] = ("family", "three-halves", "standard")
# How finely the family of leverage bounds is searched: any member is valid, so a grid is safe.
FAMILY = 65
FAMILY_GENERAL = 5


@dataclass(frozen=True, eq=False)
class NoisyHessian:
    """A published Hessian H + sigma GOE and what it says about H with the promised probability.

    With t a bound of the spectral norm of the noise and H >= floor I,  H >= w (Hhat - t I) + (1 - w) floor I for
    every w in [0, 1], and H <= Hhat + t I. Every member of that family bounds every leverage score from above;
    the printed estimators are single members (erratum 8).
    """

    matrix: FloatArray
    sigma: float
    noise_bound: float
    """t: bound of the spectral norm of the noise, already times sigma."""
    floor: float
    """Lower bound of the smallest eigenvalue of H: lam, or a private release."""
    rule: Rule
    basis: FloatArray = field(init=False)
    spectrum: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        spectrum, basis = np.linalg.eigh(self.matrix)
        object.__setattr__(self, "spectrum", spectrum)
        object.__setattr__(self, "basis", basis)

    def lower_bounds(self, grid: int = FAMILY) -> FloatArray:
        """Spectra (k, d), in the eigenbasis of the noisy matrix, of positive definite M_k <= H.

        ``grid`` members of the family are taken at equal distances, beside those that the printed rules use.
        """
        e, t, floor = self.spectrum, self.noise_bound, self.floor
        if self.rule == "three-halves":
            found = e[np.newaxis] * (2 / 3)
        elif self.rule == "standard":
            found = e[np.newaxis] * (floor / (floor + t))
            if floor < 2 * t:
                found = (e[np.newaxis] + t) * (floor / (floor + 2 * t))
        else:
            # The printed rules are the members 2/3, floor / (floor + t) and floor / (floor + 2 t), which no grid
            # would meet: with them among the weights the minimum is never above a printed bound.
            printed = [2 / 3, floor / (floor + t), floor / (floor + 2 * t)]
            w = np.concatenate([printed, np.linspace(0.0, 1.0, grid)])[:, np.newaxis]
            found = w * (e - t) + (1 - w) * floor
        found = found[(found > 0).all(axis=1)]
        return np.vstack([np.full(e.size, floor), found])

    def relative_upper(self, records: Records) -> FloatArray:
        """Upper bounds of the eigenvalues of H^-1 A, (m, r), ascending: the best member of the family for each."""
        if isinstance(records, LinearRecords):
            squares = (records.features @ self.basis) ** 2
            found = (squares @ (1 / self.lower_bounds()).T).min(axis=1)
            return np.asarray(records.curvatures * found)[:, np.newaxis]
        # Eigenvalues come in ascending order, and each of them is bounded by each member.
        found = [
            records.relative_eigenvalues(_factor(self.basis, spectrum))
            for spectrum in self.lower_bounds(FAMILY_GENERAL)
        ]
        return np.asarray(np.min(found, axis=0))

    def relative_lower(self, records: Records) -> FloatArray:
        """Lower bounds of the eigenvalues of H^-1 A, (m, r), from H <= Hhat + t I."""
        upper = self.spectrum + self.noise_bound
        if upper.min() <= 0:  # the noise broke its bound: nothing is known
            return np.zeros_like(records.eigenvalues)
        if isinstance(records, LinearRecords):
            squares = (records.features @ self.basis) ** 2
            return (records.curvatures * (squares @ (1 / upper)))[:, np.newaxis]
        return records.relative_eigenvalues(_factor(self.basis, upper))


@dataclass(frozen=True, eq=False)
class NoisyGradient:
    """A published gradient grad J + N(0, sigma^2 I), and how far <noise, g> may be from 0."""

    vector: FloatArray
    sigma: float
    width: Width
    """In units of sigma."""


def _factor(basis: FloatArray, spectrum: FloatArray) -> FloatArray:
    """Lower Cholesky factor of the matrix with these eigenvectors and positive eigenvalues."""
    return np.asarray(cholesky((basis * spectrum) @ basis.T, lower=True, check_finite=False))
