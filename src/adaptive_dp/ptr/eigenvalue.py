"""The smallest eigenvalue of the Hessian at the optimum: how far one record moves it, and its private release.

Source: redberg2023, Theorem B.3.11 and Proposition B.3.12; erratum 18. Neighbours add or remove one record; the
ridge stands beside a sum of losses.

**Theorem** (rows of norm at most 1; no condition on lam > 0). Let F be the objective, F~ = F + f with one record
more, R the self-concordance, L = sup |l'|, K = sup (R |l'| + l'') <= R L + beta. Then

    -R L <= lambda_min(Hess F~ at its minimiser) - lambda_min(Hess F at its minimiser) <= K.

*Proof.* Follow F_t = F + t f with minimiser theta_t and Hessian H_t there, t from 0 to 1. Differentiating
grad F_t(theta_t) = 0 gives theta_t' = -H_t^-1 l' x, so ||theta_t'|| <= |l'| / Lambda, Lambda = lambda_min(H_t).
Lambda is locally Lipschitz, hence differentiable almost everywhere, and there, for any unit eigenvector e,

    Lambda' = e'H_t'e = l'' (x'e)^2 + D^3 F_t(theta_t)[theta_t', e, e].

By self-concordance the last term is at most R ||theta_t'|| e'H_t e <= R |l'| in absolute value: Lambda cancels.
So -R |l'| <= Lambda' <= R |l'| + l'', *at the same point* t. Integrate over t. QED.

The thesis prints 2 R L + beta, for a decrease only, and needs lam >= R L; its proof takes strong convexity at a
point for strong convexity on a segment. The errata have R L + beta, 1.25 for the logistic loss. As slope and
curvature are large in different places, K is smaller: with the probability p of the wrong label,
|l'| + l'' = 2 p - p^2 < 1. So the logistic sensitivity is **1**, and no smaller constant will do: a record against
a large, almost separated crowd moves the eigenvalue by as near to 1 as one likes
(:func:`adaptive_dp.ptr.flaws_glm.eigenvalue_extremes`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss, Loss, l2_feature_bound
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.objective import Objective
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)


@dataclass(frozen=True, slots=True)
class GlmConstants:
    """Constants of theta -> l(theta'x, y) on a domain, in the l2 norm of theta.

    Parameters
    ----------
    concordance : float
        R times the bound on rows, nonnegative: |D^3 l[v, w, w]| <= R ||v|| D^2 l[w, w].
    slope : float
        L: largest gradient, positive.
    curvature : float
        beta: largest eigenvalue of a record's Hessian, positive.
    joint : float
        K: sup of R ||gradient|| + ||Hessian|| of one record, at most R L + beta.
    """

    concordance: float
    slope: float
    curvature: float
    joint: float

    def __post_init__(self) -> None:
        if check_real("concordance", self.concordance) < 0:
            raise ValueError(f"concordance must be nonnegative, got {self.concordance!r}")
        for name in ("slope", "curvature", "joint"):
            check_ordinary(name, getattr(self, name))
        if self.joint > (self.concordance * self.slope + self.curvature) * (1 + 1e-12):
            raise ValueError(f"joint must be at most concordance * slope + curvature, got {self.joint!r}")

    @property
    def eigenvalue_sensitivity(self) -> float:
        """Largest change of the smallest eigenvalue at the optimum when one record is added or removed."""
        return max(self.joint, self.concordance * self.slope)


def glm_constants(loss: Loss, domain: Domain, *, dimension: int | None = None) -> GlmConstants:
    """Constants of ``loss`` on ``domain``, for theta anywhere in R^d.

    Raises
    ------
    TypeError
        Not a generalised linear ``Loss``.
    ValueError
        A loss that is not self-concordant or has unbounded slope on R^d (the squared loss): no data-dependent
        bound of this kind exists.
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a Loss, got {type(loss).__name__}: {loss!r}")
    if loss.self_concordance is None:
        raise ValueError(f"loss must be self-concordant, got {loss!r}")
    slope = loss.lipschitz(domain, math.inf, dimension=dimension)
    if not math.isfinite(slope):
        raise ValueError(f"loss must have a bounded slope for every theta, got {loss!r}")
    size = l2_feature_bound(domain, dimension)
    concordance, curvature = loss.self_concordance * size, loss.smoothness(domain, dimension=dimension)
    # p + p (1 - p) for the logistic loss; for any other loss the sum of the two suprema.
    joint = size**2 if isinstance(loss, LogisticLoss) else concordance * slope + curvature
    return GlmConstants(concordance, slope, curvature, joint)


class Split(NamedTuple):
    """How (epsilon, delta) is spent on a private bound and on the release that relies on it."""

    epsilon_test: float
    epsilon_release: float
    delta_test: float
    failure: float
    delta_release: float


def split_of(epsilon: float, delta: float, share: float) -> Split:
    """A ``share`` of epsilon for the bound; delta in quarters: noise of the bound, 2 for its failure, release.

    The proportions of redberg2023, Theorem B.3.9 (delta/2 + delta + delta/2 in its letters). The three delta add up:
    the release is calibrated to the published bound, so that max(delta, delta') is not proved here (erratum 18).
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    part = check_probability("share", share)
    return Split(part * level, (1 - part) * level, tail / 4, tail / 2, tail / 4)


class EigenvalueBound(NamedTuple):
    """A published smallest eigenvalue; all of it is covered by the guarantee."""

    estimate: float
    """Smallest eigenvalue plus noise, ridge included."""
    lower: float
    """Lower bound, at least the ridge, wrong with probability at most ``failure``."""
    sigma: float
    """Standard deviation of the noise."""
    failure: float


def private_smallest_eigenvalue(
    people: Dataset,
    loss: Loss,
    *,
    lam: float,
    epsilon: float,
    delta: float,
    failure: float,
    rng: np.random.Generator,
    hessian: ArrayLike | None = None,
) -> Release[EigenvalueBound]:
    """Publish the smallest eigenvalue of the Hessian at the optimum with a one-sided bound.

    Gaussian noise calibrated exactly to the sensitivity of the head of this module, with its exact curve. The printed
    noise, sqrt(log(4/delta)) / (epsilon / 2) times the sensitivity, lacks a sqrt 2 and breaks the promise
    (erratum 18).

    Parameters
    ----------
    people : Dataset
        Records obeying their declared domain.
    loss : Loss
        Self-concordant with bounded slope.
    lam : float
        Ridge beside the sum of the losses, positive.
    epsilon, delta : float
        Guarantee of this release.
    failure : float
        Probability, over the noise, that ``lower`` exceeds the eigenvalue; it costs no privacy here, but whoever
        relies on the bound has to add it to delta.
    rng : numpy.random.Generator
        The only source of chance.
    hessian : array_like, shape (d, d), optional
        Hessian of the objective at its minimiser, if it is known already.

    Returns
    -------
    Release
        An :class:`EigenvalueBound`. Private trace: ``smallest``. O(n d^2) a Newton step without ``hessian``.

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, before any noise is drawn.
    """
    check_generator(rng)
    objective = Objective(people, loss, lam)
    constants = glm_constants(loss, people.domain, dimension=people.columns)
    tail = check_probability("failure", failure)
    size = constants.eigenvalue_sensitivity
    sigma = gaussian_sigma(check_ordinary("epsilon", epsilon), delta, size)
    matrix = objective.minimise().hessian if hessian is None else _check_hessian(hessian, people.columns)
    # Rounding may leave an eigenvalue of a singular Hessian below the ridge.
    smallest = max(float(np.linalg.eigvalsh(matrix)[0]), objective.lam)
    estimate = smallest + float(gaussian(sigma, 1, rng)[0])
    lower = max(estimate + sigma * float(ndtri(tail)), objective.lam)
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=Neighbours.ADD_REMOVE,
        domain=people.domain,
        source="redberg2023, Theorem B.3.11; erratum 18",
        curve=GaussianCurve(size / sigma),
    )
    return Release(EigenvalueBound(estimate, lower, sigma, tail), guarantee, trace=Trace(smallest=smallest))


def _check_hessian(hessian: ArrayLike, columns: int) -> FloatArray:
    matrix = as_finite_array("hessian", hessian, ndim=2)
    if matrix.shape != (columns, columns):
        raise ValueError(f"hessian must have shape ({columns}, {columns}), got {matrix.shape}")
    return matrix
