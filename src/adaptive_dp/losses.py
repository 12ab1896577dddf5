"""Losses of linear predictors, their constants, and the ridge-regularised mean risk.

A loss is a function l(u, y) of the prediction u = <theta, x> and of the label y. What a mechanism
needs to know about it (its largest slope, its largest curvature) follows from the *declared* domain and a
radius of the parameter ball, never from the records.

The risk of this library is the *mean* of the losses plus ``lam / 2 * ||theta||_2^2``. ligett2017 and
wu2015 use this convention; redberg2023 and neel2019 put their lambda beside a *sum*: it is n times the
lambda here.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, check_count, check_real

# Rows are visited in blocks of about this many float64 entries (2 MiB, the size of a second-level
# cache), so that no temporary array is as large as the feature matrix.
BLOCK_ENTRIES = 1 << 18


def check_radius(name: str, value: object) -> float:
    """Return ``value`` as a float in (0, inf]; infinity means that there is no ball."""
    if isinstance(value, numbers.Real) and float(value) == math.inf:
        return math.inf
    number = check_real(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {number!r}")
    return number


def l2_feature_bound(domain: Domain, dimension: int | None = None) -> float:
    """Largest l2 norm of a feature row that ``domain`` allows.

    Parameters
    ----------
    domain : Domain
        Public bounds; an l1 bound is also an l2 bound.
    dimension : int, optional
        Number of features d; needed for an linf bound B only, where the l2 bound is sqrt(d) B.

    Raises
    ------
    ValueError
        linf bound without a dimension.
    """
    if domain.norm != "linf":
        return domain.feature_bound
    if dimension is None:
        raise ValueError("dimension must be given when the domain bounds rows in linf, got None")
    return domain.feature_bound * math.sqrt(check_count("dimension", dimension))


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows, each with about ``BLOCK_ENTRIES / width`` of them."""
    step = max(1, BLOCK_ENTRIES // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


class Loss(ABC):
    """A convex loss of a linear prediction, with the constants that privacy proofs ask for.

    The three functions of (u, y) broadcast as numpy does and are exact in both tails. They do not
    check their input (they sit in inner loops): records come from a ``Dataset``, which did.

    ``mean_risk``, ``gradient`` and ``hessian`` visit the rows in blocks; beside the answer they need
    O(n) memory at most, never a second n x d array.
    """

    curvature: ClassVar[float]
    """Largest second derivative of l(u, y) in u; infinite if l is not smooth."""

    self_concordance: ClassVar[float | None]
    """Smallest M with |l'''| <= M l'' in u (generalised self-concordance); None if there is none."""

    @abstractmethod
    def value(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return l(u, y), elementwise."""

    @abstractmethod
    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """First derivative of l in u, elementwise."""

    @abstractmethod
    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Second derivative of l in u, elementwise."""

    @abstractmethod
    def largest_slope(self, prediction_bound: float, domain: Domain) -> float:
        """Return sup |l'(u, y)| over |u| <= ``prediction_bound`` (may be inf) and the domain's labels."""

    @abstractmethod
    def largest_value(self, prediction_bound: float, domain: Domain) -> float:
        """Return sup l(u, y) over |u| <= ``prediction_bound`` (may be inf) and the domain's labels."""

    def lipschitz(self, domain: Domain, radius: float, *, dimension: int | None = None) -> float:
        """Lipschitz constant, in l2, of theta -> l(<theta, x>, y) on the ball ||theta||_2 <= ``radius``.

        The supremum over all records of ``domain`` of sup |l'| ||x||_2; attained. ``radius`` may be
        infinite. ``dimension`` is needed for linf domains only.
        """
        bound = l2_feature_bound(domain, dimension)
        return bound * self.largest_slope(bound * check_radius("radius", radius), domain)

    def smoothness(self, domain: Domain, *, dimension: int | None = None) -> float:
        """Largest eigenvalue that the Hessian of one record's loss in theta can have."""
        return self.curvature * l2_feature_bound(domain, dimension) ** 2

    def mean_risk(
        self,
        theta: FloatArray,
        features: FloatArray,
        labels: FloatArray,
        lam: float,
        *,
        weights: FloatArray | None = None,
    ) -> FloatArray:
        """Return the mean of the losses plus ``lam / 2 ||theta||^2``, for one parameter or a stack.

        Parameters
        ----------
        theta : ndarray, shape (d,) or (T, d)
            Parameters.
        features, labels : ndarray, shapes (n, d) and (n,)
            Records.
        lam : float
            Factor of half the squared l2 norm, beside the *mean* loss; nonnegative.
        weights : ndarray, shape (n,), optional
            How often each row counts; the mean divides by their sum.

        Returns
        -------
        ndarray, shape () or (T,)
            Time O(n d T), memory O(T) beside a block.
        """
        stack = np.atleast_2d(theta)
        total = np.zeros(stack.shape[0])
        for rows in row_blocks(features.shape[0], max(features.shape[1], stack.shape[0])):
            losses = self.value(features[rows] @ stack.T, labels[rows, np.newaxis])
            total += losses.sum(axis=0) if weights is None else weights[rows] @ losses
        risks = total / _total_weight(features, weights) + 0.5 * lam * np.einsum("td,td->t", stack, stack)
        return np.asarray(risks if theta.ndim == 2 else risks[0], dtype=np.float64)

    def gradient(
        self,
        theta: FloatArray,
        features: FloatArray,
        labels: FloatArray,
        lam: float,
        *,
        weights: FloatArray | None = None,
    ) -> FloatArray:
        """Gradient of ``mean_risk`` at ``theta`` (d,); shape (d,). Time O(n d), memory O(n)."""
        slopes = self.derivative(features @ theta, labels)
        if weights is not None:
            slopes = slopes * weights
        return np.asarray(slopes @ features / _total_weight(features, weights) + lam * theta)

    def hessian(
        self,
        theta: FloatArray,
        features: FloatArray,
        labels: FloatArray,
        lam: float,
        *,
        weights: FloatArray | None = None,
    ) -> FloatArray:
        """Hessian of ``mean_risk`` at ``theta`` (d,); shape (d, d), exactly symmetric.

        Time O(n d^2), memory O(n + d^2).
        """
        curvatures = self.second_derivative(features @ theta, labels)
        if weights is not None:
            curvatures = curvatures * weights
        matrix = weighted_gram(features, curvatures) / _total_weight(features, weights)
        matrix[np.diag_indices_from(matrix)] += lam
        return matrix


def weighted_gram(features: FloatArray, weights: FloatArray) -> FloatArray:
    """Return X' diag(w) X for nonnegative ``weights`` (n,); shape (d, d), exactly symmetric.

    Time O(n d^2) in blocks of rows; the scaled copy of the features is never larger than a block.
    """
    dimension = features.shape[1]
    matrix = np.zeros((dimension, dimension))
    roots = np.sqrt(weights)
    for rows in row_blocks(features.shape[0], dimension):
        block = features[rows] * roots[rows, np.newaxis]
        matrix += block.T @ block
    return matrix


def _total_weight(features: FloatArray, weights: FloatArray | None) -> float:
    return float(features.shape[0] if weights is None else weights.sum())


@dataclass(frozen=True)
class SquaredLoss(Loss):
    """Half the squared error, l(u, y) = (y - u)^2 / 2.

    The half is ligett2017's; wu2015 leaves it out, so its constants are twice those here.
    """

    curvature: ClassVar[float] = 1.0
    self_concordance: ClassVar[float | None] = 0.0

    def value(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return (u - y)^2 / 2, elementwise."""
        residual = np.subtract(prediction, label, dtype=np.float64)
        return np.asarray(0.5 * residual * residual)

    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return u - y, elementwise."""
        return np.asarray(np.subtract(prediction, label, dtype=np.float64))

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return 1, in the broadcast shape of the arguments."""
        return np.ones(np.broadcast_shapes(np.shape(prediction), np.shape(label)))

    def largest_slope(self, prediction_bound: float, domain: Domain) -> float:
        """Return the bound on predictions plus the bound on labels."""
        return check_radius("prediction_bound", prediction_bound) + _label_bound(domain)

    def largest_value(self, prediction_bound: float, domain: Domain) -> float:
        """Half the square of the largest residual."""
        return 0.5 * self.largest_slope(prediction_bound, domain) ** 2


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """The logistic loss l(u, y) = log(1 + exp(-y u)) for labels in {-1, +1}."""

    curvature: ClassVar[float] = 0.25
    self_concordance: ClassVar[float | None] = 1.0

    def value(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return log(1 + exp(-y u)), elementwise, without overflow."""
        return np.asarray(np.logaddexp(0.0, -_margin(prediction, label)))

    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return -y / (1 + exp(y u)), elementwise."""
        return np.asarray(-np.asarray(label, dtype=np.float64) * expit(-_margin(prediction, label)))

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return s(u) s(-u) with the logistic function s, elementwise: it does not depend on a label +-1."""
        margin = _margin(prediction, label)
        # The product of both tails keeps its relative accuracy where s (1 - s) would cancel to 0.
        return np.asarray(expit(margin) * expit(-margin))

    def largest_slope(self, prediction_bound: float, domain: Domain) -> float:
        """Return 1 / (1 + exp(-bound)): below 1 on a bounded ball."""
        _check_sign_labels(domain)
        return float(expit(check_radius("prediction_bound", prediction_bound)))

    def largest_value(self, prediction_bound: float, domain: Domain) -> float:
        """Return log(1 + exp(bound))."""
        _check_sign_labels(domain)
        return float(np.logaddexp(0.0, check_radius("prediction_bound", prediction_bound)))


def _margin(prediction: ArrayLike, label: ArrayLike) -> FloatArray:
    return np.asarray(np.multiply(prediction, label, dtype=np.float64))


def _label_bound(domain: Domain) -> float:
    if domain.labels == "class":
        raise ValueError(
            f"domain must have real or sign labels for this loss, got {domain.describe_labels()}"
        )
    return domain.label_bound


def _check_sign_labels(domain: Domain) -> None:
    if domain.labels != "sign":
        raise ValueError(
            f"domain must have labels in {{-1, +1}} for this loss, got {domain.describe_labels()}"
        )
