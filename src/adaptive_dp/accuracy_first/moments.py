"""(X'X, X'y) as one vector of noisy coordinates, and back.

Printed: all p^2 entries of X'X get their own noise. Sharp: the diagonal and the *doubled* upper triangle; a
record still contributes ||x||_1^2 <= 1, so the l1 sensitivity is the same 4 and the noise of an off-diagonal
entry is halved (erratum AF-5b). For Gaussian noise the upper triangle is scaled by sqrt 2 instead, which makes
the Euclidean norm of the vector the Frobenius norm of the matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from adaptive_dp.accuracy_first.calibration import check_calibration
from adaptive_dp.validation import FloatArray, check_count

#: What multiplies an off-diagonal entry of the upper triangle in the released vector.
OFF_DIAGONAL = {"sharp": 2.0, "gaussian": math.sqrt(2.0)}


@dataclass(frozen=True)
class MomentCoding:
    """How (X'X, X'y) is written as one vector: ``"printed"``, ``"sharp"`` or ``"gaussian"``."""

    columns: int
    kind: str

    def __post_init__(self) -> None:
        check_count("columns", self.columns)
        if self.kind != "gaussian":
            check_calibration(self.kind)

    @cached_property
    def _upper(self) -> tuple[np.ndarray, np.ndarray]:
        return np.triu_indices(self.columns, k=1)

    @property
    def size(self) -> int:
        """Number of coordinates: p^2 + p printed, p (p + 1)/2 + p otherwise."""
        p = self.columns
        return p * p + p if self.kind == "printed" else p * (p + 1) // 2 + p

    def encode(self, gram: FloatArray, moment: FloatArray) -> FloatArray:
        """The vector to be released, shape (size,)."""
        if self.kind == "printed":
            return np.concatenate([gram.ravel(), moment])
        return np.concatenate([np.diag(gram), OFF_DIAGONAL[self.kind] * gram[self._upper], moment])

    def diagonal(self, vector: FloatArray) -> FloatArray:
        """Diagonal of the (p, p) matrix in a coded vector, shape (p,); a view."""
        p = self.columns
        return vector[: p * p : p + 1] if self.kind == "printed" else vector[:p]

    def decode(self, vector: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Symmetric (p, p) matrix and (p,) vector; only the symmetric part of a noisy X'X matters."""
        p = self.columns
        if self.kind == "printed":
            square = vector[: p * p].reshape(p, p)
            return (square + square.T) / 2, vector[p * p :]
        matrix = np.zeros((p, p))
        off = vector[p:-p] / OFF_DIAGONAL[self.kind]
        matrix[self._upper] = off
        matrix += matrix.T
        matrix.flat[:: p + 1] = vector[:p]
        return matrix, vector[-p:]
