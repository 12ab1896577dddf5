"""Objective perturbation with Gaussian noise, and what one record contributes to the objective.

Source: redberg2023, Algorithm 1 and equation (2.2.1); errata 1 and 2.

Neighbouring data sets add or remove one record. The ridge stands beside a *sum* of losses,

    J(theta; D) = sum_i l(theta; z_i) + r(theta) + lam / 2 ||theta||^2,

with a convex, twice differentiable penalty r, and theta ranges over all of R^d. The published theta is the
exact minimiser of J(theta; D) + b'theta with b ~ N(0, sigma^2 I): each theta belongs to exactly one noise
vector, b = -grad J(theta; D). Everything in this chapter rests on that bijection, so that an inexact minimiser
is outside its theorems; the solver goes on to a gradient norm below 1e-10 or raises.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import Loss, Penalty, SmoothLoss, row_blocks, weighted_gram
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.calibration import perturbation_guarantee
from adaptive_dp.privacy import Domain, Release, Trace
from adaptive_dp.solvers import NewtonFit, minimise_newton
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

TOLERANCE = 1e-10
# Hessians of a general loss are visited in blocks of about this many entries.
HESSIAN_ENTRIES = 1 << 20
# Ratio of the least to the largest eigenvalue of a Hessian above which its Cholesky factor is accurate enough, and the
# ratio (of the factor's singular values, where it comes from the rows) below which nothing is.
WELL_CONDITIONED = 1e-5
SINGULAR = 1e-9


class Records(ABC):
    """Gradients and Hessians of the losses of m records at one theta, seen through what the theorems need."""

    @abstractmethod
    def inner_products(self, vector: FloatArray) -> FloatArray:
        """Return g_i' v for each record, shape (m,)."""

    @property
    @abstractmethod
    def gradient_norms(self) -> FloatArray:
        """||g_i||_2, shape (m,)."""

    @property
    @abstractmethod
    def gradient_l1_norms(self) -> FloatArray:
        """||g_i||_1, shape (m,)."""

    @property
    @abstractmethod
    def hessian_norms(self) -> FloatArray:
        """Frobenius norm of each record's Hessian, shape (m,)."""

    @property
    @abstractmethod
    def hessian_spectral_norms(self) -> FloatArray:
        """Largest eigenvalue of each record's Hessian, shape (m,)."""

    @property
    @abstractmethod
    def eigenvalues(self) -> FloatArray:
        """Eigenvalues of each record's Hessian, shape (m, r); those beyond the rank r are 0."""

    @abstractmethod
    def relative_eigenvalues(self, factor: FloatArray) -> FloatArray:
        """Eigenvalues, ascending, of M^-1 A_i with M = L L', from the lower Cholesky factor L; shape (m, r).

        For a generalised linear loss this is the one number f'' x'M^-1 x, the (weighted) leverage score.
        """


@dataclass(frozen=True, eq=False)
class LinearRecords(Records):
    """Records of a generalised linear loss f(x'theta; y): gradient f' x, Hessian f'' x x'."""

    features: FloatArray
    slopes: FloatArray
    curvatures: FloatArray

    @cached_property
    def feature_norms(self) -> FloatArray:
        """||x_i||_2, shape (m,)."""
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", self.features, self.features)))

    def inner_products(self, vector: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(self.slopes * (self.features @ vector))

    @property
    def gradient_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(np.abs(self.slopes) * self.feature_norms)

    @property
    def gradient_l1_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(np.abs(self.slopes) * np.abs(self.features).sum(axis=1))

    @property
    def hessian_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(self.curvatures * self.feature_norms**2)

    @property
    def hessian_spectral_norms(self) -> FloatArray:  # noqa: D102
        return self.hessian_norms

    @property
    def eigenvalues(self) -> FloatArray:  # noqa: D102
        return self.hessian_norms[:, np.newaxis]

    def relative_eigenvalues(self, factor: FloatArray) -> FloatArray:  # noqa: D102
        half = solve_triangular(factor, self.features.T, lower=True, check_finite=False)
        return np.asarray(self.curvatures * np.einsum("ji,ji->i", half, half))[:, np.newaxis]


@dataclass(frozen=True, eq=False)
class GeneralRecords(Records):
    """Records of a general smooth loss: full gradients and Hessians."""

    gradients: FloatArray
    hessians: FloatArray

    def inner_products(self, vector: FloatArray) -> FloatArray:  # noqa: D102
        return np.asarray(self.gradients @ vector)

    @property
    def gradient_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(np.linalg.norm(self.gradients, axis=1))

    @property
    def gradient_l1_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(np.abs(self.gradients).sum(axis=1))

    @property
    def hessian_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(np.linalg.norm(self.hessians, axis=(1, 2)))

    @property
    def hessian_spectral_norms(self) -> FloatArray:  # noqa: D102
        return np.asarray(self.eigenvalues[:, -1])

    @cached_property
    def eigenvalues(self) -> FloatArray:  # noqa: D102
        # A convex loss has no negative ones: what rounding leaves below 0 is cut.
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.hessians), 0.0))

    def relative_eigenvalues(self, factor: FloatArray) -> FloatArray:  # noqa: D102
        inverse = solve_triangular(factor, np.eye(factor.shape[0]), lower=True, check_finite=False)
        return np.asarray(np.maximum(np.linalg.eigvalsh(inverse @ self.hessians @ inverse.T), 0.0))


def is_linear(loss: Loss | SmoothLoss) -> bool:
    """Whether ``loss`` is a generalised linear loss, a function of x'theta and y.

    Raises
    ------
    TypeError
        Neither a ``Loss`` nor a ``SmoothLoss``.
    """
    if not isinstance(loss, Loss | SmoothLoss):
        raise TypeError(f"loss must be a Loss or a SmoothLoss, got {type(loss).__name__}: {loss!r}")
    return isinstance(loss, Loss)


def records_at(
    loss: Loss | SmoothLoss, theta: FloatArray, features: FloatArray, labels: FloatArray
) -> Records:
    """What the records (m, d), (m,) contribute at ``theta``. O(m d), or O(m d^2) for a general loss."""
    if isinstance(loss, Loss):
        predictions = features @ theta
        return LinearRecords(
            features, loss.derivative(predictions, labels), loss.second_derivative(predictions, labels)
        )
    return GeneralRecords(loss.gradients(theta, features, labels), loss.hessians(theta, features, labels))


def record_blocks(loss: Loss | SmoothLoss, rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows whose temporary arrays stay small: a million people need no million matrices."""
    if isinstance(loss, Loss):
        yield from row_blocks(rows, columns)
        return
    step = max(1, HESSIAN_ENTRIES // columns**2)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective J(theta; D) without its noise. Private: it holds the data.

    Parameters
    ----------
    people : Dataset
        The data set D, with its declared domain.
    loss : Loss or SmoothLoss
        Convex and twice differentiable; a ``Loss`` is a generalised linear one.
    lam : float
        lambda > 0, beside the sum of the losses.
    penalty : Penalty, optional
        r, convex and twice differentiable.

    Raises
    ------
    ValueError
        ``lam`` is not positive, or the loss is not defined for the labels of the domain.
    """

    people: Dataset
    loss: Loss | SmoothLoss
    lam: float
    penalty: Penalty | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.people, Dataset):
            raise TypeError(f"people must be a Dataset, got {type(self.people).__name__}")
        if not (self.penalty is None or isinstance(self.penalty, Penalty)):
            raise TypeError(f"penalty must be a Penalty or None, got {type(self.penalty).__name__}")
        check_loss_of(self.loss, self.people.domain, self.people.columns)
        object.__setattr__(self, "lam", check_ordinary("lam", self.lam))

    @property
    def columns(self) -> int:
        """Number of parameters d."""
        return self.people.columns

    def value(self, theta: FloatArray) -> float:
        """J(theta; D). O(n d)."""
        features, labels = self.people.features, self.people.labels
        if isinstance(self.loss, Loss):
            total = float(self.loss.value(features @ theta, labels).sum())
        else:
            total = float(self.loss.values(theta, features, labels).sum())
        extra = self.penalty.value(theta) if self.penalty is not None else 0.0
        return total + extra + 0.5 * self.lam * float(theta @ theta)

    def derivatives(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient (d,) and Hessian (d, d) of J at ``theta``. O(n d^2), in blocks of rows."""
        features, labels = self.people.features, self.people.labels
        if isinstance(self.loss, Loss):
            predictions = features @ theta
            gradient = self.loss.derivative(predictions, labels) @ features
            hessian = weighted_gram(features, self.loss.second_derivative(predictions, labels))
        else:
            gradient, hessian = np.zeros(self.columns), np.zeros((self.columns, self.columns))
            for rows in record_blocks(self.loss, self.people.rows, self.columns):
                gradient += self.loss.gradients(theta, features[rows], labels[rows]).sum(axis=0)
                hessian += self.loss.hessians(theta, features[rows], labels[rows]).sum(axis=0)
        gradient = gradient + self.lam * theta
        hessian[np.diag_indices_from(hessian)] += self.lam
        if self.penalty is not None:
            gradient = gradient + self.penalty.gradient(theta)
            hessian = hessian + self.penalty.hessian(theta)
        return np.asarray(gradient), np.asarray(hessian)

    def at(self, theta: ArrayLike) -> ObjectiveAt:
        """Gradient, Hessian and Cholesky factor at a released ``theta``, computed once.

        Raises
        ------
        ValueError
            ``theta`` of the wrong length or not finite; a Hessian that is singular to rounding.
        """
        point = check_theta(theta, self.columns)
        gradient, hessian = self.derivatives(point)
        if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
            raise ValueError(
                f"theta is so large (an entry of {np.abs(point).max():.3g}) that derivatives overflow"
            )
        try:
            factor = self.factor(point, hessian)
        except LinAlgError:
            raise ValueError(
                f"the Hessian at theta is singular to rounding: lam = {self.lam:.3g} is too small beside the "
                "curvature of the data"
            ) from None
        return ObjectiveAt(self, point, gradient, hessian, factor)

    def factor(self, theta: FloatArray, hessian: FloatArray) -> FloatArray:
        """Lower triangular L, positive on the diagonal, with L L' = ``hessian``, the Hessian at ``theta``.

        Adding up X' diag(f'') X rounds it by about 1e-16 of its largest eigenvalue, which is all there is where lam
        is that small and the data leave a direction free: leverages would then be wrong without any sign of it. For
        a badly conditioned Hessian of a generalised linear loss L comes from a QR decomposition of the rows instead,
        whose error grows with the root of the condition only.

        Raises
        ------
        scipy.linalg.LinAlgError
            The Hessian is singular to rounding: leverages would have fewer than about six digits.
        """
        spectrum = np.linalg.eigvalsh(hessian)
        if spectrum[0] >= WELL_CONDITIONED * spectrum[-1]:
            return np.asarray(cholesky(hessian, lower=True, check_finite=False))
        if not isinstance(self.loss, Loss):
            if spectrum[0] < SINGULAR * spectrum[-1]:
                raise LinAlgError("singular to rounding")
            return np.asarray(cholesky(hessian, lower=True, check_finite=False))
        features, labels = self.people.features, self.people.labels
        root: FloatArray = math.sqrt(self.lam) * np.eye(self.columns)
        if self.penalty is not None:
            weights, basis = np.linalg.eigh(self.penalty.hessian(theta))
            extra = np.sqrt(np.maximum(weights, 0.0))[:, np.newaxis] * basis.T
            root = np.asarray(qr(np.vstack([root, extra]), mode="r", check_finite=False)[0][: self.columns])
        for rows in row_blocks(self.people.rows, self.columns):
            block = features[rows]
            curvatures = self.loss.second_derivative(block @ theta, labels[rows])
            stacked = np.vstack([root, np.sqrt(curvatures)[:, np.newaxis] * block])
            root = np.asarray(qr(stacked, mode="r", check_finite=False, overwrite_a=True)[0][: self.columns])
        sizes = np.linalg.svd(root, compute_uv=False)
        if sizes[-1] < SINGULAR * sizes[0]:
            raise LinAlgError("singular to rounding")
        signs = np.where(np.diag(root) < 0, -1.0, 1.0)
        return np.asarray((signs[:, np.newaxis] * root).T)

    def minimise(self, linear: ArrayLike | None = None, *, tolerance: float = TOLERANCE) -> NewtonFit:
        """Exact argmin of J(theta; D) + b'theta.

        Parameters
        ----------
        linear : array_like, shape (d,), optional
            b; 0 without noise.
        tolerance : float
            Largest gradient norm at the answer.

        Raises
        ------
        RuntimeError
            The tolerance was not reached: it lies below what double precision can do for these data.
        """
        b = np.zeros(self.columns) if linear is None else check_vector("linear", linear, self.columns)

        def value(theta: FloatArray) -> float:
            return self.value(theta) + float(b @ theta)

        def derivatives(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
            gradient, hessian = self.derivatives(theta)
            return gradient + b, hessian

        goal = check_positive("tolerance", tolerance)
        return minimise_newton(value, derivatives, np.zeros(self.columns), tolerance=goal)


@dataclass(frozen=True, eq=False)
class ObjectiveAt:
    """The objective seen from one released theta. Private: it depends on the data."""

    objective: Objective
    theta: FloatArray
    gradient: FloatArray
    """grad J(theta; D), shape (d,): the noise vector that led to theta is its negative."""
    hessian: FloatArray
    """Hess J(theta; D), shape (d, d); includes every member's Hessian, the penalty's and lam I."""
    factor: FloatArray
    """Lower Cholesky factor of the Hessian."""

    def records(self, features: FloatArray, labels: FloatArray) -> Records:
        """What the records (m, d), (m,) contribute at theta."""
        return records_at(self.objective.loss, self.theta, features, labels)

    def log_density(self, *, sigma: float) -> float:
        """Log of the density of the published theta^P at this theta, by change of variables.

        log N(b; 0, sigma^2 I) + log det Hess J at b = -grad J(theta; D) (Lemma A.7.7).
        """
        scale = check_ordinary("sigma", sigma)
        d = self.theta.size
        square = float(self.gradient @ self.gradient) / scale**2
        log_det = 2.0 * float(np.log(np.diag(self.factor)).sum())
        return -0.5 * square - 0.5 * d * float(np.log(2 * np.pi * scale**2)) + log_det


def perturb_objective(
    people: Dataset,
    loss: Loss | SmoothLoss,
    *,
    lam: float,
    sigma: float,
    delta: float,
    rng: np.random.Generator,
    penalty: Penalty | None = None,
) -> Release[FloatArray]:
    """Publish the exact minimiser of J(theta; D) + b'theta, b ~ N(0, sigma^2 I) (redberg2023, Algorithm 1).

    Parameters
    ----------
    people : Dataset
        Records obeying their declared domain.
    loss : Loss or SmoothLoss
        Convex and twice differentiable.
    lam : float
        Ridge beside the *sum* of the losses, positive; any positive value has a guarantee.
    sigma : float
        Standard deviation of each coordinate of the noise, positive; units of the gradient of one loss.
    delta : float
        Where the guarantee of the release is read off its curve.
    rng : numpy.random.Generator
        The only source of chance.
    penalty : Penalty, optional
        Convex, twice differentiable, public.

    Returns
    -------
    Release
        theta, shape (d,). The guarantee compares data sets that differ by one added or removed record; it is
        infinite for a loss with unbounded gradients (squared loss on all of R^d), whose per-instance losses
        are finite all the same. Time O(n d^2) a Newton step.

    Raises
    ------
    ValueError
        Impossible parameters, before any noise is drawn.
    """
    check_generator(rng)
    objective = Objective(people, loss, lam, penalty)
    scale = check_ordinary("sigma", sigma)
    guarantee = perturbation_guarantee(
        loss,
        people.domain,
        dimension=people.columns,
        lam=objective.lam,
        sigma=scale,
        delta=check_probability("delta", delta),
    )
    b = gaussian(scale, objective.columns, rng)
    fit = objective.minimise(b)
    return Release(fit.theta, guarantee, trace=Trace(noise=b, gradient_norm=fit.gradient_norm))


def check_loss_of(loss: Loss | SmoothLoss, domain: Domain, columns: int) -> None:
    """Refuse a loss that is not defined for the labels of ``domain``."""
    is_linear(loss)
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {type(domain).__name__}: {domain!r}")
    if isinstance(loss, Loss):
        loss.lipschitz(domain, 1.0, dimension=columns)


def check_theta(theta: ArrayLike, columns: int) -> FloatArray:
    """Return ``theta`` as a finite vector with ``columns`` entries."""
    return check_vector("theta", theta, columns)


def check_vector(name: str, value: ArrayLike, columns: int) -> FloatArray:
    """Return ``value`` as a finite vector with ``columns`` entries."""
    vector = as_finite_array(name, value, ndim=1)
    if vector.size != columns:
        raise ValueError(f"{name} must have {columns} entries, one a feature, got {vector.size}")
    return vector


def check_columns(features: ArrayLike, columns: int) -> None:
    """Refuse a table of records with another number of columns; the domain checks the rest, and copies but once."""
    shape = np.shape(features)
    if len(shape) == 2 and shape[1] != columns:
        raise ValueError(f"features must have {columns} columns, got {shape[1]}")
