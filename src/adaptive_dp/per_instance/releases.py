"""The three additional releases at a published theta: gradient, Hessian and smallest eigenvalue.

Source: redberg2023, Algorithms 10, 11 and 8, Theorems A.3.4, A.4.1 and A.3.1; errata 6 and 7.

All three are Gaussian mechanisms, so each has an exact curve, per person and at worst, and several of them
compose exactly: squares of mu add up. Sensitivities are conditional on theta, which is public: the largest slope is
taken over |x'theta| <= ||theta|| times the feature bound, so that even the squared loss has a finite one.
Neighbours add or remove one record.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.losses import Loss, SmoothLoss
from adaptive_dp.noise import gaussian, goe
from adaptive_dp.per_instance.objective import ObjectiveAt, check_theta
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import FloatArray, check_generator, check_ordinary, check_probability


def gradient_sensitivity(
    loss: Loss | SmoothLoss, domain: Domain, theta: ArrayLike, *, dimension: int
) -> float:
    """Sup ||grad l(theta; z)||_2 over the records z that ``domain`` allows, at this theta."""
    point = check_theta(theta, dimension)
    if isinstance(loss, SmoothLoss):
        return loss.lipschitz(domain)
    # A radius of 0 is no ball; the smallest float leaves the supremum as it is.
    return loss.lipschitz(domain, max(float(np.linalg.norm(point)), 1e-300), dimension=dimension)


def hessian_sensitivity(loss: Loss | SmoothLoss, domain: Domain, *, dimension: int) -> float:
    """Sup of the spectral norm of one record's Hessian."""
    if isinstance(loss, SmoothLoss):
        return loss.smoothness(domain)
    return loss.smoothness(domain, dimension=dimension)


def hessian_frobenius_sensitivity(loss: Loss | SmoothLoss, domain: Domain, *, dimension: int) -> float:
    """Sup of the Frobenius norm: the spectral one for rank-one Hessians, at most sqrt(d) times it otherwise."""
    spectral = hessian_sensitivity(loss, domain, dimension=dimension)
    return spectral if isinstance(loss, Loss) else math.sqrt(dimension) * spectral


def release_gradient(
    point: ObjectiveAt, *, sigma: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Publish grad J(theta; D) + N(0, sigma^2 I), shape (d,) (redberg2023, Algorithm 10, Theorem A.3.4)."""
    scale, objective = check_ordinary("sigma", sigma), _check_point(point).objective
    size = gradient_sensitivity(
        objective.loss, objective.people.domain, point.theta, dimension=objective.columns
    )
    guarantee = _guarantee(point, size / scale, delta, "redberg2023, Theorem A.3.4")
    noise = gaussian(scale, objective.columns, check_generator(rng))
    return Release(point.gradient + noise, guarantee, trace=Trace(noise=noise))


def release_hessian(
    point: ObjectiveAt, *, sigma: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Publish Hess J(theta; D) + sigma GOE, shape (d, d) (redberg2023, Algorithm 11, Theorem A.4.1).

    The noise has variance sigma^2 off the diagonal and 2 sigma^2 on it, the natural geometry of symmetric
    matrices: releasing H is then releasing (diagonal / sqrt 2, strict upper triangle) with N(0, sigma^2) noise,
    and one record moves that vector by ||A||_F / sqrt 2 exactly. Analyze-Gauss needs noise sqrt 2 times
    larger off the diagonal for the same privacy.
    """
    scale, objective = check_ordinary("sigma", sigma), _check_point(point).objective
    size = hessian_frobenius_sensitivity(
        objective.loss, objective.people.domain, dimension=objective.columns
    ) / math.sqrt(2)
    guarantee = _guarantee(point, size / scale, delta, "redberg2023, Theorem A.4.1")
    noise = goe(scale, objective.columns, check_generator(rng))
    return Release(point.hessian + noise, guarantee, trace=Trace(noise=noise))


def release_smallest_eigenvalue(
    point: ObjectiveAt, *, sigma: float, delta: float, rng: np.random.Generator
) -> Release[float]:
    """Publish the smallest eigenvalue of Hess J(theta; D) + N(0, sigma^2) (redberg2023, Algorithm 8, Theorem A.3.1).

    By Weyl's inequality one record moves it by at most the spectral norm of its Hessian.
    """
    scale, objective = check_ordinary("sigma", sigma), _check_point(point).objective
    size = hessian_sensitivity(objective.loss, objective.people.domain, dimension=objective.columns)
    guarantee = _guarantee(point, size / scale, delta, "redberg2023, Theorem A.3.1")
    smallest = float(np.linalg.eigvalsh(point.hessian)[0])
    noise = float(gaussian(scale, 1, check_generator(rng))[0])
    return Release(smallest + noise, guarantee, trace=Trace(noise=noise, smallest=smallest))


def _check_point(point: ObjectiveAt) -> ObjectiveAt:
    """Refuse an objective that is not seen from a published theta."""
    if not isinstance(point, ObjectiveAt):
        raise TypeError(f"point must be an ObjectiveAt, objective.at(theta), got {type(point).__name__}")
    return point


def _guarantee(point: ObjectiveAt, mu: float, delta: float, source: str) -> Guarantee:
    tail = check_probability("delta", delta)
    curve = GaussianCurve(mu) if math.isfinite(mu) else None
    return Guarantee(
        kind="ex-ante",
        epsilon=math.inf if curve is None else curve.epsilon(tail),
        delta=tail,
        neighbours=Neighbours.ADD_REMOVE,
        domain=point.objective.people.domain,
        source=source,
        curve=curve,
    )
