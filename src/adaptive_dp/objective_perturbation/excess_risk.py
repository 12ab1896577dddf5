"""Excess empirical risk of objective perturbation: bounds, the best lam, and Monte Carlo on logistic regression.

Source: redberg2023, appendix C.8, with erratum 28; Kifer et al. 2012; the lower rate is Bassily et al. 2014.

J_lam(theta) = J(theta) + lam / 2 ||theta||^2 with a sum J of n generalised linear losses, b ~ N(0, sigma^2 I).
Algorithm 7 stops at a theta with ||grad J_lam(theta) + b|| <= tau and publishes theta + N(0, sigma_out^2 I). With
theta* = argmin J,

    E J(published) - J(theta*) <= (sigma sqrt(d) + tau)^2 / (2 lam) + lam / 2 ||theta*||^2 + n beta sigma_out^2 / 2,

beta = sup f'' ||x||^2. *Proof.* J_lam is lam-strongly convex, so J_lam(theta) - min J_lam <= ||grad J_lam(theta)||^2 /
(2 lam), and grad J_lam(theta) is -b up to tau; min J_lam <= J_lam(theta*); and the output noise moves each prediction
by N(0, sigma_out^2 ||x||^2), which adds at most half of sup f'' times the variance to each loss. Neither n L tau / lam
nor n L sigma_out sqrt(d) of Theorem C.8.1 is needed. If f'' >= c on the range of the predictions, J_lam is 1-strongly
convex in the norm of M = c X'X + lam I, and tr(M^-1) takes the place of d / lam: section C.8.2, corrected.

The best lam for given sigma is sqrt(d) sigma / ||theta*||, and gives sqrt(d) sigma ||theta*||. As sigma of a
generalised linear loss does not grow with d, that is the rate sqrt(d) L ||theta*|| sqrt(log(1/delta)) / epsilon, the
lower rate up to the logarithm. The printed choice, with sigma a factor sqrt(d) too large, gives d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from adaptive_dp.accounting import smallest_feasible
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import Loss
from adaptive_dp.objective_perturbation.clipping import check_glm
from adaptive_dp.per_instance.calibration import Calibration, LinearPerturbationCurve
from adaptive_dp.per_instance.objective import check_loss_of
from adaptive_dp.privacy import Domain
from adaptive_dp.solvers import minimise_newton
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

# Predictions held at once while many minimisers are sought.
BLOCK_ENTRIES = 1 << 20
NEWTON_STEPS = 100
SMALLEST_DELTA = 1e-290
# Curvature of the mean loss, relative to its largest, at which a "minimiser" is taken for an escape to infinity.
FLAT = 1e-7


# --- bounds -------------------------------------------------------------------------------------------------


class RiskBound(NamedTuple):
    """The three parts of a bound on the expected excess risk."""

    noise: float
    ridge: float
    output: float

    @property
    def total(self) -> float:
        """Their sum: the bound."""
        return self.noise + self.ridge + self.output


def excess_risk_bound(
    *,
    rows: int,
    dimension: int,
    curvature: float,
    sigma: float,
    lam: float,
    norm: float,
    tau: float = 0.0,
    sigma_out: float = 0.0,
) -> RiskBound:
    """Bound of this module: Theorem C.8.1 with sharper terms for tau and the output noise.

    Parameters
    ----------
    rows, dimension : int
        n and d.
    curvature : float
        sup f'' ||x||^2 over the domain: ``loss.smoothness(domain)``.
    sigma, lam : float
        Noise and ridge, positive.
    norm : float
        ||theta*||, nonnegative. It belongs to the data: the bound says what to expect, and is not to be published.
    tau, sigma_out : float
        Stopping tolerance and output noise of Algorithm 7, nonnegative.
    """
    n, d = check_count("rows", rows), check_count("dimension", dimension)
    noise, ridge = check_ordinary("sigma", sigma), check_ordinary("lam", lam)
    size, slack, out = (
        _nonnegative(name, value) for name, value in (("norm", norm), ("tau", tau), ("sigma_out", sigma_out))
    )
    return RiskBound(
        noise=(noise * math.sqrt(d) + slack) ** 2 / (2 * ridge),
        ridge=ridge / 2 * size**2,
        output=n * check_ordinary("curvature", curvature) * out**2 / 2,
    )


def spread_noise_bound(
    features: ArrayLike, *, sigma: float, lam: float, bend: float, tau: float = 0.0
) -> float:
    """Noise term of the bound where the data curve J as well.

    (sigma sqrt(tr M^-1) + tau / sqrt(lam))^2 / 2 with M = bend X'X + lam I: section C.8.2, corrected and sharpened.
    With ``bend`` c <= 1 it is at most sigma^2 tr((X'X + lam I)^-1) / (2 c), for tau = 0.

    Parameters
    ----------
    features : array_like, shape (n, d)
    sigma, lam, tau : float
        See :func:`excess_risk_bound`.
    bend : float
        Lower bound c of f'' on the predictions that occur; 0 gives back d sigma^2 / (2 lam). For the logistic loss it
        is positive on a bounded range only, so that the bound holds given that the predictions stay in it.
    """
    X = as_finite_array("features", features, ndim=2)
    ridge, slack = check_ordinary("lam", lam), _nonnegative("tau", tau)
    least = _nonnegative("bend", bend)
    # Eigenvalues of X'X are rounded by 1e-16 of the largest, which may be more than lam: singular values are not, and
    # those that are rounding alone count as 0, on the safe side.
    sizes = np.linalg.svd(X, compute_uv=False)
    sizes = sizes[sizes > max(X.shape) * np.finfo(np.float64).eps * sizes.max(initial=0.0)]
    trace = float((1 / (least * sizes**2 + ridge)).sum()) + (X.shape[1] - sizes.size) / ridge
    return (check_ordinary("sigma", sigma) * math.sqrt(trace) + slack / math.sqrt(ridge)) ** 2 / 2


def best_lam(*, dimension: int, sigma: float, norm: float) -> float:
    """The lam that makes d sigma^2 / (2 lam) + lam / 2 ||theta*||^2 least: sqrt(d) sigma / ||theta*||."""
    d = check_count("dimension", dimension)
    return math.sqrt(d) * check_ordinary("sigma", sigma) / check_ordinary("norm", norm)


def optimal_choice(
    *, epsilon: float, delta: float, slope: float, curvature: float, dimension: int, norm: float
) -> Calibration:
    """Smallest sigma that is (epsilon, delta) with lam = sqrt(d) sigma / norm, for a generalised linear loss.

    ``norm`` must not come from the data if theta is released: a public guess of ||theta*|| serves.

    Raises
    ------
    TypeError, ValueError
        A parameter out of range; ``delta`` below 1e-290, where profiles underflow.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    if tail < SMALLEST_DELTA:
        raise ValueError(f"delta must be at least {SMALLEST_DELTA:g}, got {tail!r}")
    size, bend = check_ordinary("slope", slope), check_ordinary("curvature", curvature)
    unit = best_lam(dimension=dimension, sigma=1.0, norm=norm)

    def excess(sigma: float) -> float:
        found = LinearPerturbationCurve(size / sigma, bend / (unit * sigma)).delta(level)
        return math.log(max(found, 1e-300) / tail)

    low = 1e-3 * size / level
    while excess(low) <= 0:  # a tiny epsilon beside a large delta: the total variation is all that counts
        low *= 1e-3
    sigma = smallest_feasible(excess, low, 1e6 * (size + bend / unit) / level)
    return Calibration(sigma, unit * sigma)


def _nonnegative(name: str, value: object) -> float:
    number = check_real(name, value)
    if number < 0:
        raise ValueError(f"{name} must be nonnegative, got {number!r}")
    return number


# --- measurement --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RiskSample:
    """Excess risks of repeated runs on one data set.

    Parameters
    ----------
    excess : ndarray, shape (repetitions,)
        J(published) - J(theta*).
    middle : ndarray, shape (repetitions,)
        J_lam(theta) - min J_lam before the output noise: what sections C.8 and C.8.2 bound by the noise term.
    minimiser : ndarray, shape (d,)
        theta*.
    least_bend : float
        Smallest f'' at a record on the segments from argmin J_lam to the theta of each run, if f'' has one peak.
    """

    excess: FloatArray
    middle: FloatArray
    minimiser: FloatArray
    least_bend: float

    def interval(self, level: float = 0.999) -> tuple[float, float, float]:
        """Mean of ``excess`` with its normal interval: mean, low, high."""
        half = float(stats.norm.isf((1 - check_probability("level", level)) / 2))
        mean, error = float(self.excess.mean()), float(stats.sem(self.excess))
        return mean, mean - half * error, mean + half * error


def measure_excess_risk(
    data: Dataset,
    loss: Loss,
    *,
    sigma: float,
    lam: float,
    tau: float = 0.0,
    sigma_out: float = 0.0,
    repetitions: int = 2_000,
    rng: np.random.Generator,
) -> RiskSample:
    """Run Algorithm 7 many times on one data set and look at J: for studying bounds, not private.

    With tau > 0 the solver is taken to stop where it hurts: at a gradient of norm tau along b, like more noise.

    Parameters
    ----------
    data : Dataset
        On which J must have a minimiser: with sign labels, classes that no plane separates.
    loss : Loss
    sigma, lam, tau, sigma_out : float
        See :func:`excess_risk_bound`.
    repetitions : int
        At least 2.
    rng : numpy.random.Generator

    Raises
    ------
    TypeError, ValueError
        Bad arguments, a loss that is not defined for the labels included, before anything is drawn.
    RuntimeError
        J has no minimiser that Newton's method can find.
    """
    check_generator(rng)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    check_loss_of(check_glm(loss), data.domain, data.columns)
    count = check_count("repetitions", repetitions, minimum=2)
    noise, ridge = check_ordinary("sigma", sigma), check_ordinary("lam", lam)
    slack, out = _nonnegative("tau", tau), _nonnegative("sigma_out", sigma_out)
    X, y, d = data.features, data.labels, data.columns
    b = noise * rng.standard_normal((count, d))
    b *= 1 + slack / np.linalg.norm(b, axis=1, keepdims=True)
    best = _unpenalised(loss, X, y)
    centre = _minimisers(loss, X, y, ridge, np.zeros((1, d)))[0]
    theta = _minimisers(loss, X, y, ridge, b)
    published = theta + out * rng.standard_normal((count, d))

    def risk(points: FloatArray, weight: float) -> FloatArray:
        return data.rows * loss.mean_risk(points, X, y, weight / data.rows)

    # Where f'' has one peak, as the logistic one has, its least value on a segment is at an end.
    bends = [loss.second_derivative(X @ point, y).min() for point in (centre, *theta)]
    return RiskSample(
        excess=risk(published, 0.0) - float(risk(best, 0.0)),
        middle=risk(theta, ridge) - float(risk(centre, ridge)),
        minimiser=best,
        least_bend=float(np.min(bends)),
    )


def _unpenalised(loss: Loss, X: FloatArray, y: FloatArray) -> FloatArray:
    n = X.shape[0]
    fit = minimise_newton(
        lambda theta: float(loss.mean_risk(theta, X, y, 0.0)),
        lambda theta: (loss.gradient(theta, X, y, 0.0), loss.hessian(theta, X, y, 0.0)),
        np.zeros(X.shape[1]),
        tolerance=1e-10 / math.sqrt(n),
    )
    least = float(np.linalg.eigvalsh(fit.hessian)[0])
    if least <= FLAT * loss.curvature * float(np.einsum("ij,ij->i", X, X).mean()):
        raise RuntimeError(
            f"Newton's method ran away to ||theta|| = {np.linalg.norm(fit.theta):.3g}, where the mean loss is flat "
            f"(curvature {least:.3g}): a plane separates the classes, and the risk has no minimiser"
        )
    return fit.theta


def _minimisers(loss: Loss, X: FloatArray, y: FloatArray, lam: float, b: FloatArray) -> FloatArray:
    """Minimisers (B, d) of J_lam + b'theta for each row of ``b``, by Newton's method with halved steps."""
    block = max(1, BLOCK_ENTRIES // (X.shape[0] * X.shape[1]))
    return np.concatenate([_newton(loss, X, y, lam, b[i : i + block]) for i in range(0, b.shape[0], block)])


def _newton(loss: Loss, X: FloatArray, y: FloatArray, lam: float, b: FloatArray) -> FloatArray:
    theta = np.zeros_like(b)

    def value(points: FloatArray) -> FloatArray:
        losses = loss.value(points @ X.T, y).sum(axis=1)
        return np.asarray(losses + np.einsum("bd,bd->b", 0.5 * lam * points + b, points))

    current = value(theta)
    for _ in range(NEWTON_STEPS):
        scores = theta @ X.T
        gradient = loss.derivative(scores, y) @ X + lam * theta + b
        if np.linalg.norm(gradient, axis=1).max() <= 1e-9 * (X.shape[0] + lam):
            return theta
        hessian = (X.T * loss.second_derivative(scores, y)[:, np.newaxis]) @ X + lam * np.eye(X.shape[1])
        step = -np.linalg.solve(hessian, gradient[:, :, np.newaxis])[:, :, 0]
        slope, length = np.einsum("bd,bd->b", gradient, step), np.ones(b.shape[0])
        for _ in range(60):
            new = value(theta + length[:, np.newaxis] * step)
            bad = new > current + 1e-4 * length * slope + 1e-13 * (1 + np.abs(current))
            if not bad.any():
                break
            length[bad] /= 2
        theta, current = theta + length[:, np.newaxis] * step, new
    raise RuntimeError(f"Newton's method did not reach the minimisers in {NEWTON_STEPS} steps")


def noisy_logistic(rows: int, columns: int, rng: np.random.Generator) -> Dataset:
    """Rows uniform on the unit sphere, labels on the side of a hidden plane after noise of twice the scores' size."""
    n, d = check_count("rows", rows), check_count("columns", columns)
    features = check_generator(rng).standard_normal((n, d))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    scores = features @ rng.standard_normal(d) + 2 * rng.standard_normal(n)
    return Dataset(
        features, np.where(scores >= 0, 1.0, -1.0), Domain("l2", 1.0, "sign"), title="noisy logistic"
    )
