"""Exact ex-post per-instance privacy losses of objective perturbation.

Source: redberg2023, Definition 2.2.3, Theorem 2.3.1, Corollary 2.3.2; erratum 2.

The loss of a person with record z at a published theta is |log p_D(theta) / p_{D with or without z}(theta)|.
Let g and A be gradient and Hessian of her loss at theta, H the Hessian of J(theta; D) for the *actual* data (it
includes A if she is in D), and s = +1 if she would be added, -1 if she would be removed. Then

    log ratio = - log det(I + s H^-1 A) + ||g||^2 / (2 sigma^2) + s <grad J(theta; D), g> / sigma^2,

an equality, from the change of variables theta -> b. For a generalised linear loss the determinant is
1 + s f'' x'H^-1 x, and a single Cholesky factor of H gives the losses of everybody.

These numbers depend on the whole data set. They are for the curator, for figures and for tests: publishing one of
them may reveal the data (Example 2.2.4). What may be published is a report.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from adaptive_dp.losses import Loss
from adaptive_dp.per_instance.objective import (
    Objective,
    ObjectiveAt,
    check_columns,
    check_vector,
    record_blocks,
)
from adaptive_dp.validation import FloatArray, check_ordinary, check_real

# Removing somebody whose leverage is this near to 1 cancels digits in 1 - leverage. As the leverages of members
# sum to at most d, at most about d people come that near: for them H without their record is factorised.
LARGE_LEVERAGE = 1.0 - 1e-3


@dataclass(frozen=True, eq=False)
class LossTerms:
    """The three terms of the log density ratio of each of m people, and their sum.

    Private, as they depend on the data.
    """

    determinant: FloatArray
    """-log det(I + s H^-1 A), shape (m,): how much the person bends the objective."""
    gradient: FloatArray
    """||g||^2 / (2 sigma^2), shape (m,): how badly the model fits the person."""
    inner: FloatArray
    """s <grad J, g> / sigma^2, shape (m,): whether the noise happened to point along her gradient."""

    @property
    def signed(self) -> FloatArray:
        """Log p_D(theta) / p_{D with or without z}(theta), shape (m,)."""
        return self.determinant + self.gradient + self.inner

    @property
    def loss(self) -> FloatArray:
        """The ex-post per-instance loss, shape (m,), nonnegative."""
        return np.abs(self.signed)

    def to_frame(self) -> pd.DataFrame:
        """One row a person: the three terms and the loss."""
        return pd.DataFrame(
            {
                "determinant": self.determinant,
                "gradient": self.gradient,
                "inner": self.inner,
                "loss": self.loss,
            }
        )


def losses_of_members(
    objective: Objective | ObjectiveAt, theta: ArrayLike | None = None, *, sigma: float
) -> LossTerms:
    """Exact losses of everybody in the data, each compared with the data without her.

    Parameters
    ----------
    objective : Objective or ObjectiveAt
        The objective, or the objective already seen from ``theta`` (then leave ``theta`` out).
    theta : array_like, shape (d,)
        The published parameter.
    sigma : float
        Noise scale of the release.

    Returns
    -------
    LossTerms
        Arrays of shape (n,). Time O(n d^2 + d^3), memory O(n) beside blocks of rows, for a generalised linear
        loss; O(n d^3) for a general one.

    Raises
    ------
    ValueError
        theta of the wrong length or not finite, sigma not positive, a singular Hessian.
    """
    point = _at(objective, theta)
    people = point.objective.people
    return _terms(point, people.features, people.labels, -1, check_ordinary("sigma", sigma))


def losses_of_outsiders(
    objective: Objective | ObjectiveAt,
    theta: ArrayLike | None = None,
    *,
    features: ArrayLike,
    labels: ArrayLike,
    sigma: float,
) -> LossTerms:
    """Exact losses of people who are *not* in the data, each compared with the data with her added.

    Parameters are those of :func:`losses_of_members`; ``features`` (m, d) and ``labels`` (m,) are the records of
    the outsiders, which must obey the domain.
    """
    point = _at(objective, theta)
    matrix, vector = check_records(point.objective, features, labels)
    return _terms(point, matrix, vector, +1, check_ordinary("sigma", sigma))


def loss_of_person(
    objective: Objective | ObjectiveAt,
    theta: ArrayLike | None = None,
    *,
    features: ArrayLike,
    label: float,
    member: bool,
    sigma: float,
) -> float:
    """Exact ex-post loss of one person, a member (removed) or an outsider (added).

    Raises
    ------
    ValueError
        Beside the errors of :func:`losses_of_members`: a record outside the domain, or a ``member`` whose record
        is not in the data, as nobody who is not there can be removed.
    """
    point = _at(objective, theta)
    x = check_vector("features", features, point.objective.columns)
    matrix, vector = check_records(point.objective, x[np.newaxis], [check_real("label", label)])
    if member:
        people = point.objective.people
        if not ((people.features == x).all(axis=1) & (people.labels == vector[0])).any():
            raise ValueError("features, label: this record is not in the data, so it cannot be removed")
    sign = -1 if member else +1
    return float(_terms(point, matrix, vector, sign, check_ordinary("sigma", sigma)).loss[0])


def leverage_scores(objective: Objective | ObjectiveAt, theta: ArrayLike | None = None) -> FloatArray:
    """mu(x) = x'H^-1 x of every member, shape (n,), for a generalised linear loss. O(n d^2).

    Raises
    ------
    ValueError
        The loss is not a generalised linear one: its Hessians have more than one direction.
    """
    point = _at(objective, theta)
    if not isinstance(point.objective.loss, Loss):
        raise ValueError(
            f"loss must be a generalised linear one to have leverage scores, got {point.objective.loss!r}; "
            "losses_of_members works with any smooth loss"
        )
    people = point.objective.people
    scores = np.empty(people.rows)
    for rows in record_blocks(point.objective.loss, people.rows, people.columns):
        half = solve_triangular(point.factor, people.features[rows].T, lower=True, check_finite=False)
        scores[rows] = np.einsum("ji,ji->i", half, half)
    return scores


def log_determinant(relative: FloatArray, sign: int) -> FloatArray:
    """Return log det(I + s H^-1 A) from the eigenvalues (m, r) of H^-1 A; -inf where one reaches 1 with s = -1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(np.maximum(sign * relative, -1.0)).sum(axis=1))


def check_records(
    objective: Objective, features: ArrayLike, labels: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Refuse records of the wrong length or outside the domain of ``objective``."""
    check_columns(features, objective.columns)
    return objective.people.domain.check(features, labels)


def _at(objective: Objective | ObjectiveAt, theta: ArrayLike | None) -> ObjectiveAt:
    if isinstance(objective, ObjectiveAt):
        if theta is not None:
            raise ValueError("theta must be left out: the objective is already seen from one")
        return objective
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be an Objective or ObjectiveAt, got {type(objective).__name__}")
    if theta is None:
        raise ValueError("theta must be given: at which published parameter?")
    return objective.at(theta)


def _terms(
    point: ObjectiveAt, features: FloatArray, labels: FloatArray, sign: int, sigma: float
) -> LossTerms:
    rows = features.shape[0]
    terms = LossTerms(np.empty(rows), np.empty(rows), np.empty(rows))
    for block in record_blocks(point.objective.loss, rows, features.shape[1]):
        records = point.records(features[block], labels[block])
        relative = records.relative_eigenvalues(point.factor)
        terms.determinant[block] = -log_determinant(relative, sign)
        if sign < 0:
            _refine_removals(point, features, labels, block, relative, terms.determinant)
        with np.errstate(over="ignore", invalid="ignore"):
            terms.gradient[block] = 0.5 * (records.gradient_norms / sigma) ** 2
            terms.inner[block] = sign * records.inner_products(point.gradient / sigma) / sigma
            finite = np.isfinite(terms.gradient[block] + terms.inner[block])
        if not finite.all():
            raise ValueError(
                f"theta is so large (an entry of {np.abs(point.theta).max():.3g}) beside sigma = {sigma:.3g} that "
                "losses overflow"
            )
    return terms


def _refine_removals(
    point: ObjectiveAt,
    features: FloatArray,
    labels: FloatArray,
    block: slice,
    relative: FloatArray,
    determinant: FloatArray,
) -> None:
    """Recompute -log det(I - H^-1 A) as log det(I + (H - A)^-1 A) where the first form cancels; in place."""
    for i in block.start + np.flatnonzero(relative.max(axis=1) > LARGE_LEVERAGE):
        one = point.records(features[i : i + 1], labels[i : i + 1])
        try:
            factor = _factor_without(point, features[i], labels[i])
        except LinAlgError:
            raise ValueError(
                f"the Hessian without record {i} is singular to rounding: lam = {point.objective.lam:.3g} is too "
                "small beside the curvature of the data"
            ) from None
        determinant[i] = log_determinant(one.relative_eigenvalues(factor), +1)[0]


def _factor_without(point: ObjectiveAt, x: FloatArray, y: float) -> FloatArray:
    """Factor of H - A from the other records, not by subtraction: lam may be far below the curvature of A."""
    people, objective = point.objective.people, point.objective
    same = (people.features == x).all(axis=1) & (people.labels == y)
    keep = np.ones(people.rows, dtype=bool)
    keep[np.flatnonzero(same)[0]] = False
    if keep.any():
        rest = Objective(people.take(keep), objective.loss, objective.lam, objective.penalty)
        return rest.factor(point.theta, rest.derivatives(point.theta)[1])
    hessian = objective.lam * np.eye(point.theta.size)
    if objective.penalty is not None:
        hessian += objective.penalty.hessian(point.theta)
    return np.asarray(cholesky(hessian, lower=True, check_finite=False))
