"""Losses of linear predictors, their constants, and the ridge-regularised mean risk.

A loss is a function l(u, y) of the prediction u = <theta, x> and of the label y. What a mechanism
needs to know about it (its largest slope, its largest curvature) follows from the *declared* domain and a
radius of the parameter ball, never from the records.

The risk of this library is the *mean* of the losses plus ``lam / 2 * ||theta||_2^2``. ligett2017 and
wu2015 use this convention; redberg2023 and neel2019 put their lambda beside a *sum*: it is n times the
lambda here.

Two further kinds of function serve objectives beyond that form: a :class:`SmoothLoss` of the parameter and a record
that is no function of <theta, x>, and a :class:`Penalty` of the parameter alone.
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
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_ordinary, check_real

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


def repair_norms(features: FloatArray, norms: FloatArray) -> FloatArray:
    """Return l2 norms (n,) of rows (n, d) again where the squares of the entries left the range of doubles.

    Squares vanish below about 1e-162 and overflow above 1e154. Such rows are divided by their largest entry first; all
    other norms are returned as they came, bit for bit.
    """
    odd = np.flatnonzero(~((norms > 1e-140) & (norms < 1e140)))
    if not odd.size:
        return norms
    rows, repaired = features[odd], norms.copy()
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = rows / np.where(largest > 0, largest, 1.0)[:, np.newaxis]
    repaired[odd] = largest * np.linalg.norm(unit, axis=1)
    return repaired


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

    def check_labels(self, labels: FloatArray, name: str = "labels") -> None:  # noqa: B027 (most have none)
        """Refuse labels, finite numbers, that the loss is not defined for; by default there are none.

        For functions that take bare arrays: what a ``Dataset`` holds is checked by its domain.

        Raises
        ------
        ValueError
            A label that is not possible.
        """

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

    def check_labels(self, labels: FloatArray, name: str = "labels") -> None:
        """Refuse labels other than -1 and +1: with 0 and 1 a record of label 0 would count for nothing."""
        bad = np.abs(labels) != 1
        if bad.any():
            raise ValueError(
                f"{name} must be -1 or +1 for the logistic loss, got {float(labels[bad].flat[0])!r}"
            )

    def largest_slope(self, prediction_bound: float, domain: Domain) -> float:
        """Return 1 / (1 + exp(-bound)): below 1 on a bounded ball."""
        _check_sign_labels(domain)
        return float(expit(check_radius("prediction_bound", prediction_bound)))

    def largest_value(self, prediction_bound: float, domain: Domain) -> float:
        """Return log(1 + exp(bound))."""
        _check_sign_labels(domain)
        return float(np.logaddexp(0.0, check_radius("prediction_bound", prediction_bound)))


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Half the squared error near the label, linear beyond: r^2 / 2 for |r| <= width, width (|r| - width / 2) outside.

    It is the squared loss with its slope cut at the width. Where the record is absent from the data at hand it attains
    the bound of objective perturbation that no curvature enters (redberg2023, errata, S1).

    Parameters
    ----------
    width : float
        Half-width of the quadratic part, and the largest slope; between 1e-100 and 1e100.
    """

    width: float = 1.0
    curvature: ClassVar[float] = 1.0
    self_concordance: ClassVar[float | None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_ordinary("width", self.width))

    def value(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return the loss of the residual u - y, elementwise."""
        size = np.abs(np.subtract(prediction, label, dtype=np.float64))
        inner = np.minimum(size, self.width)
        return np.asarray(inner * (size - 0.5 * inner))

    def derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return u - y cut at plus and minus the width, elementwise."""
        return np.asarray(np.clip(np.subtract(prediction, label, dtype=np.float64), -self.width, self.width))

    def second_derivative(self, prediction: ArrayLike, label: ArrayLike) -> FloatArray:
        """Return 1 for |u - y| <= width and 0 outside; at the two kinks the larger one-sided derivative."""
        return np.asarray(np.abs(np.subtract(prediction, label, dtype=np.float64)) <= self.width, dtype=float)

    def largest_slope(self, prediction_bound: float, domain: Domain) -> float:
        """Return the width, or the largest residual where that is smaller."""
        return min(self.width, check_radius("prediction_bound", prediction_bound) + _label_bound(domain))

    def largest_value(self, prediction_bound: float, domain: Domain) -> float:
        """Return the loss of the largest residual."""
        return float(
            self.value(check_radius("prediction_bound", prediction_bound) + _label_bound(domain), 0.0)
        )


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


class SmoothLoss(ABC):
    """A convex, twice differentiable loss l(theta; x, y) that need not be a function of <theta, x>.

    The Hessian of one record may have full rank, so that the rank-one formulas for generalised linear models do not
    apply. Constants are in l2, follow from the declared domain alone, and hold for every theta in R^d.

    Shapes, types and the finiteness of ``theta`` are checked; that the records are finite and inside the domain is
    not, since they come from a ``Dataset``, which did.
    """

    @abstractmethod
    def values(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Loss of each record at ``theta`` (d,); ``features`` (n, d), ``labels`` (n,); shape (n,)."""

    @abstractmethod
    def gradients(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Gradient in theta of the loss of each record; shape (n, d)."""

    @abstractmethod
    def hessians(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Hessian in theta of the loss of each record, exactly symmetric; shape (n, d, d): mind the memory."""

    @abstractmethod
    def lipschitz(self, domain: Domain) -> float:
        """Least upper bound of the l2 norm of one record's gradient, over ``domain`` and all theta (may be inf)."""

    @abstractmethod
    def smoothness(self, domain: Domain) -> float:
        """Least upper bound of the eigenvalues of one record's Hessian, over ``domain`` and all theta (may be inf)."""


@dataclass(frozen=True)
class SmoothDistanceLoss(SmoothLoss):
    """The smoothed distance l(theta; x) = sqrt(width^2 + ||theta - x||_2^2); labels are not looked at.

    The minimiser of the sum is a smoothed geometric median. The gradient is shorter than 1 wherever the records lie,
    and comes as near to 1 as one likes far away; the Hessian has full rank, and is I / width at theta = x.

    Parameters
    ----------
    width : float
        Radius of the smoothing, between 1e-100 and 1e100; the loss lies within ``width`` above the distance.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", check_ordinary("width", self.width))

    def values(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Return sqrt(width^2 + ||theta - x||^2) for each row x; shape (n,)."""
        _, sizes = self._differences(theta, features, labels)
        return sizes

    def gradients(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Return (theta - x) / l for each row x; shape (n, d)."""
        differences, sizes = self._differences(theta, features, labels)
        return np.asarray(differences / sizes[:, np.newaxis])

    def hessians(self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike) -> FloatArray:
        """Return (I - g g') / l with the gradient g of each record; shape (n, d, d)."""
        differences, sizes = self._differences(theta, features, labels)
        slopes = differences / sizes[:, np.newaxis]
        # I - g g' = (width / l)^2 I + (||g||^2 I - g g'): the smallest eigenvalue is an addend, not a cancellation.
        matrices = -slopes[:, :, np.newaxis] * slopes[:, np.newaxis, :]
        diagonal = np.arange(slopes.shape[1])
        ridge = np.square(self.width / sizes) + np.einsum("nd,nd->n", slopes, slopes)
        matrices[:, diagonal, diagonal] += ridge[:, np.newaxis]
        matrices /= sizes[:, np.newaxis, np.newaxis]
        return np.asarray(matrices)

    def lipschitz(self, domain: Domain) -> float:
        """Return 1: approached far away, attained nowhere."""
        _check_domain(domain)
        return 1.0

    def smoothness(self, domain: Domain) -> float:
        """Return 1 / width, attained at theta = x."""
        _check_domain(domain)
        return 1.0 / self.width

    def _differences(
        self, theta: ArrayLike, features: ArrayLike, labels: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        point, rows = check_parameter(theta), np.asarray(features)
        if rows.dtype.kind not in "fiub":
            raise TypeError(f"features must be numeric, got dtype {rows.dtype}")
        if rows.ndim != 2 or rows.shape[1] != point.size:
            raise ValueError(f"features must have shape (n, {point.size}) as theta has, got {rows.shape}")
        if np.shape(labels) != (rows.shape[0],):
            raise ValueError(f"labels must have shape ({rows.shape[0]},), got {np.shape(labels)}")
        differences = point - rows.astype(np.float64, copy=False)
        return differences, np.hypot(self.width, np.linalg.norm(differences, axis=1))


class Penalty(ABC):
    """A convex, twice differentiable function of the parameter alone, beside the quadratic term of an objective.

    It does not look at records, hence costs no privacy; what it may cost is accuracy.
    """

    @abstractmethod
    def value(self, theta: ArrayLike) -> float:
        """Penalty at ``theta`` (d,)."""

    @abstractmethod
    def gradient(self, theta: ArrayLike) -> FloatArray:
        """Gradient at ``theta`` (d,); shape (d,)."""

    @abstractmethod
    def hessian(self, theta: ArrayLike) -> FloatArray:
        """Hessian at ``theta`` (d,), exactly symmetric; shape (d, d)."""


@dataclass(frozen=True)
class SmoothL1Penalty(Penalty):
    """The smoothed l1 norm: weight * sum_j sqrt(width^2 + theta_j^2).

    Parameters
    ----------
    weight : float
        Factor in front, between 1e-100 and 1e100; largest slope in one coordinate (approached, not attained).
    width : float
        Half-width of the rounded corner, between 1e-100 and 1e100; curvature weight / width at 0.
    """

    weight: float
    width: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_ordinary("weight", self.weight))
        object.__setattr__(self, "width", check_ordinary("width", self.width))

    def value(self, theta: ArrayLike) -> float:
        """Return weight * sum_j sqrt(width^2 + theta_j^2)."""
        return self.weight * float(np.hypot(self.width, check_parameter(theta)).sum())

    def gradient(self, theta: ArrayLike) -> FloatArray:
        """Return weight * theta_j / sqrt(width^2 + theta_j^2) for each j; shape (d,)."""
        point = check_parameter(theta)
        return np.asarray(self.weight * (point / np.hypot(self.width, point)))

    def hessian(self, theta: ArrayLike) -> FloatArray:
        """Return the diagonal matrix of weight * width^2 / (width^2 + theta_j^2)^(3/2); shape (d, d)."""
        sizes = np.hypot(self.width, check_parameter(theta))
        return np.diag(self.weight * (np.square(self.width / sizes) / sizes))


def check_parameter(theta: ArrayLike) -> FloatArray:
    """Return ``theta`` as a finite float64 vector with at least one entry, shape (d,)."""
    point = as_finite_array("theta", theta, ndim=1)
    if point.size == 0:
        raise ValueError(f"theta must have at least one entry, got shape {point.shape}")
    return point


def _check_domain(domain: object) -> None:
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {type(domain).__name__}: {domain!r}")
