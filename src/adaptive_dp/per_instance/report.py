"""Privacy reports: what each person may be told about her own ex-post loss, without exposing the data.

Source: redberg2023, Algorithms 2 and 9, Theorem 2.3.5, Propositions A.3.2, A.3.5 and A.5.1; errata 5, 6, 8.

A report is a *function*: anybody, in the data or not, puts in her own record and gets an upper bound of her
ex-post per-instance loss of the published theta, and the extra loss that the report itself causes her. Nothing
in the object is private: it holds theta, noisy copies of gradient and Hessian, and public constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp import goe
from adaptive_dp.accounting import GaussianCurve, compose_gaussian, gaussian_epsilon
from adaptive_dp.losses import Loss, SmoothLoss, check_parameter
from adaptive_dp.per_instance.bounds import (
    Scope,
    Width,
    check_scope,
    determinant_bound,
    inner_product_width,
    normal_quantile,
)
from adaptive_dp.per_instance.ex_post import log_determinant
from adaptive_dp.per_instance.noisy_objective import RULES, NoisyGradient, NoisyHessian, Rule
from adaptive_dp.per_instance.objective import (
    Objective,
    Records,
    check_columns,
    check_loss_of,
    check_vector,
    is_linear,
    record_blocks,
    records_at,
)
from adaptive_dp.per_instance.releases import (
    hessian_frobenius_sensitivity,
    hessian_sensitivity,
    release_gradient,
    release_hessian,
    release_smallest_eigenvalue,
)
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

Value = TypeVar("Value")
Combination = Literal["interval", "sum"]
COMBINATIONS: tuple[Combination, ...] = ("interval", "sum")


class ReportEntry(NamedTuple):
    """What one person is told."""

    bound: float
    """Upper bound of her ex-post loss of the published theta, with the confidence of the report."""
    overhead: float
    """epsilon (at the report's delta) of the additional releases, for her record."""


@dataclass(frozen=True, eq=False)
class PrivacyReport:
    """A function from a record to a bound of that person's ex-post loss. Public.

    Call it with one record, or use :meth:`to_frame` for many. Made by :func:`data_independent_report`,
    :func:`data_dependent_report` or :func:`adaptive_report`.
    """

    theta: FloatArray
    loss: Loss | SmoothLoss
    domain: Domain
    lam: float
    sigma: float
    rho: float
    """Failure probability of each of the events that the bounds rest on."""
    confidence: float
    """Probability, over the noise, with which the bounds hold for those in ``scope``."""
    scope: Scope
    people: int
    width: Width
    """Of <b, g>, in units of sigma: the bound that needs no look at the data."""
    delta: float
    """At which the overhead is stated."""
    guarantee: Guarantee
    """Of the additional releases, given this theta; epsilon is 0 if there are none."""
    gradient: NoisyGradient | None = None
    hessian: NoisyHessian | None = None
    sigma_eigenvalue: float | None = None

    def __call__(
        self,
        features: ArrayLike,
        label: float,
        *,
        member: bool | None = None,
        combine: Combination = "interval",
    ) -> ReportEntry:
        """Bound and overhead for one person, who gives her own record.

        Parameters
        ----------
        features : array_like, shape (d,)
            Her features, within the domain.
        label : float
            Her label.
        member : bool, optional
            Whether she is in the data: she knows, and the bound is then a little sharper. By default the
            bound holds in both cases.
        combine : {"interval", "sum"}
            ``"sum"`` adds bounds of the absolute values of the three terms, as Algorithm 2 does;
            ``"interval"`` keeps their signs, and is never larger.

        Raises
        ------
        ValueError
            A record of the wrong length or outside the domain.
        """
        x = check_vector("features", features, self.theta.size)
        row = self.to_frame(x[np.newaxis], [check_real("label", label)], member=member, combine=combine).iloc[
            0
        ]
        return ReportEntry(float(row["bound"]), float(row["overhead"]))

    def to_frame(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        member: bool | None = None,
        combine: Combination = "interval",
    ) -> pd.DataFrame:
        """Bounds for m people at once, one row a person.

        Returns
        -------
        DataFrame
            ``determinant``, ``gradient``, ``inner``: bounds of the absolute values of the three terms (the
            second is exact); ``bound``: of the loss; ``overhead``: epsilon of the additional releases at
            ``delta``. Time O(m d^2), memory O(m) beside blocks of rows.
        """
        check_columns(features, self.theta.size)
        matrix, vector = self.domain.check(features, labels)
        if not (member is None or isinstance(member, bool | np.bool_)):
            raise TypeError(f"member must be True, False or None, got {member!r}")
        check_choice("combine", combine, COMBINATIONS)
        frames = [
            self._block(records_at(self.loss, self.theta, matrix[rows], vector[rows]), member, combine)
            for rows in record_blocks(self.loss, *matrix.shape)
        ]
        return pd.concat(frames, ignore_index=True)

    def person_mu(self, records: Records) -> FloatArray:
        """Mu of the joint Gaussian release for each record, shape (m,): per-instance, data-independent."""
        square = np.zeros_like(records.gradient_norms)
        if self.gradient is not None:
            square += (records.gradient_norms / self.gradient.sigma) ** 2
        if self.hessian is not None:
            square += 0.5 * (records.hessian_norms / self.hessian.sigma) ** 2
        if self.sigma_eigenvalue is not None:
            square += (records.hessian_spectral_norms / self.sigma_eigenvalue) ** 2
        return np.sqrt(square)

    def joint_guarantee(self, training: Guarantee) -> Guarantee:
        """Guarantee of theta and the report together, and of everybody's reports in the joint sense.

        By the billboard lemma (redberg2023, Lemma A.7.8) the tuple of reports, each computed from the
        published material and the person's own record, is jointly differentially private at this level.
        Epsilons and deltas add up (basic composition).

        ``guarantee`` of the report is stated given theta, whose norm bounds the slopes. What is composed here must be
        known before theta is: the sensitivity of the gradient is the supremum over all theta, and the noise scales
        are taken as fixed beforehand.
        """
        if training.neighbours is not Neighbours.ADD_REMOVE:
            raise ValueError(f"training must compare add/remove neighbours, got {training.neighbours}")
        if training.domain not in (None, self.domain):
            raise ValueError(f"training must have the domain of the report, got {training.domain}")
        mu = self._largest_mu()
        epsilon = float(gaussian_epsilon(self.delta, mu)) if math.isfinite(mu) else math.inf
        parts = {"training": training.epsilon, "report": epsilon}
        return Guarantee(
            kind="ex-ante",
            epsilon=training.epsilon + epsilon,
            delta=training.delta + (self.delta if mu > 0 else 0.0),
            neighbours=Neighbours.ADD_REMOVE,
            domain=self.domain,
            parts=parts if math.isfinite(training.epsilon + epsilon) else {},
            source="redberg2023, Section 2.3.3, Lemma A.7.8",
        )

    def _largest_mu(self) -> float:
        """Mu of the additional releases over all records and all theta; infinite for unbounded slopes."""
        d, found = self.theta.size, 0.0
        if self.gradient is not None:
            slope = (
                self.loss.lipschitz(self.domain, math.inf, dimension=d)
                if isinstance(self.loss, Loss)
                else self.loss.lipschitz(self.domain)
            )
            found = math.hypot(found, slope / self.gradient.sigma)
        if self.hessian is not None:
            size = hessian_frobenius_sensitivity(self.loss, self.domain, dimension=d) / math.sqrt(2)
            found = math.hypot(found, size / self.hessian.sigma)
        if self.sigma_eigenvalue is not None:
            size = hessian_sensitivity(self.loss, self.domain, dimension=d)
            found = math.hypot(found, size / self.sigma_eigenvalue)
        return found

    def _block(self, records: Records, member: bool | None, combine: Combination) -> pd.DataFrame:
        with np.errstate(over="ignore"):
            gradient = 0.5 * (records.gradient_norms / self.sigma) ** 2
        if not np.isfinite(gradient).all():
            raise ValueError(
                f"theta is so large (an entry of {np.abs(self.theta).max():.3g}) beside sigma = {self.sigma:.3g} that "
                "bounds overflow"
            )
        low, high = self._inner_interval(records)
        inner = np.maximum(np.abs(low), np.abs(high))
        signs = (+1, -1) if member is None else ((-1,) if member else (+1,))
        intervals = {sign: self._log_det_interval(records, sign) for sign in signs}
        determinant = np.max([np.abs(ends).max(axis=0) for ends in intervals.values()], axis=0)
        if combine == "sum":
            bound = determinant + gradient + inner
        else:
            bound = np.zeros_like(gradient)
            for sign, (smallest, largest) in intervals.items():
                # The term is -log det, and the inner product comes with the sign s.
                bottom = -largest + gradient + (low if sign > 0 else -high)
                top = -smallest + gradient + (high if sign > 0 else -low)
                bound = np.maximum(bound, np.maximum(np.abs(bottom), np.abs(top)))
        return pd.DataFrame(
            {
                "determinant": determinant,
                "gradient": gradient,
                "inner": inner,
                "bound": bound,
                "overhead": gaussian_epsilon(self.delta, self.person_mu(records)),
            }
        )

    def _inner_interval(self, records: Records) -> tuple[FloatArray, FloatArray]:
        """Interval of <grad J, g> / sigma^2 for each record."""
        limit = self.sigma * self.width.of(records)
        low, high = -limit, limit
        if self.gradient is not None:
            centre = records.inner_products(self.gradient.vector)
            reach = self.gradient.sigma * self.gradient.width.of(records)
            low, high = np.maximum(low, centre - reach), np.minimum(high, centre + reach)
            # Empty only when one of the two events failed: what needs no look at the data is then kept, so that
            # the noisy gradient never makes a bound larger.
            empty = low > high
            low, high = np.where(empty, -limit, low), np.where(empty, limit, high)
        return low / self.sigma**2, high / self.sigma**2

    def _log_det_interval(self, records: Records, sign: int) -> tuple[FloatArray, FloatArray]:
        """Interval of log det(I + s H^-1 A): nonnegative for s = +1, nonpositive for s = -1."""
        cap = determinant_bound(records, lam=self.lam)
        if self.hessian is None:
            near, far = np.zeros_like(cap), sign * cap
        else:
            near = log_determinant(self.hessian.relative_lower(records), sign)
            far = log_determinant(self.hessian.relative_upper(records), sign)
            # The cap holds for both signs and with certainty; far is -inf where the bound of leverage reaches 1.
            near, far = (np.clip(ends, -cap, cap) for ends in (near, far))
        return np.minimum(near, far), np.maximum(near, far)


def data_independent_report(
    theta: ArrayLike | Release[FloatArray],
    loss: Loss | SmoothLoss,
    domain: Domain,
    *,
    lam: float,
    sigma: float,
    rho: float,
    scope: Scope = Scope.ONE,
    people: int = 1,
) -> PrivacyReport:
    """The report that costs nothing: bounds from theta and public constants (Algorithm 2, DATA-INDEP).

    Parameters
    ----------
    theta : array_like, shape (d,), or Release
        What objective perturbation published.
    loss, domain, lam, sigma
        As they were there; the bounds hold for any convex penalty.
    rho : float
        The bounds hold with probability 1 - rho over the noise of theta, for those in ``scope``.
    scope : Scope
        One person fixed before the release, ``people`` of them at once, or everybody at once.
    people : int
        For ``Scope.MANY``: a *public* bound of their number. The report shows it, and the number of records is private.

    Raises
    ------
    ValueError
        Impossible parameters.
    """
    point = _published(theta)
    check_loss_of(loss, domain, point.size)
    ridge, scale, tail = (
        check_ordinary("lam", lam),
        check_ordinary("sigma", sigma),
        check_probability("rho", rho),
    )
    count = _check_scope(scope, people)
    return PrivacyReport(
        theta=point,
        loss=loss,
        domain=domain,
        lam=ridge,
        sigma=scale,
        rho=tail,
        confidence=1 - tail,
        scope=check_scope(scope),
        people=count,
        width=inner_product_width(
            tail, scope=scope, dimension=point.size, people=count, fixed_direction=is_linear(loss)
        ),
        delta=tail,
        guarantee=Guarantee(
            kind="ex-ante",
            epsilon=0.0,
            neighbours=Neighbours.ADD_REMOVE,
            domain=domain,
            source="redberg2023, Algorithm 2 (DATA-INDEP): post-processing of theta",
        ),
    )


def data_dependent_report(
    objective: Objective,
    theta: ArrayLike | Release[FloatArray],
    *,
    sigma: float,
    sigma_gradient: float,
    sigma_hessian: float,
    rho: float,
    delta: float,
    rng: np.random.Generator,
    scope: Scope = Scope.ONE,
    people: int = 1,
    rule: Rule = "family",
) -> PrivacyReport:
    """The report from a noisy gradient and a noisy Hessian (Algorithm 2, DATA-DEP, corrected).

    Parameters
    ----------
    objective : Objective
        The data and the objective that led to ``theta``. Private.
    theta : array_like, shape (d,), or Release
        What was published.
    sigma : float
        Noise scale of ``theta``.
    sigma_gradient, sigma_hessian : float
        Noise scales sigma_2 and sigma_3 of the two additional releases.
    rho : float
        Failure probability of each of three events: the bounds hold with probability 1 - 3 rho.
    delta : float
        At which the overheads are stated.
    rng : numpy.random.Generator
        The only source of chance.
    scope, people
        For whom the bounds hold at once. The bound of the Hessian's noise holds for everybody anyway.
    rule : {"family", "three-halves", "standard"}
        How leverage is bounded. ``"three-halves"`` is Algorithm 2's 3/2 x'Hhat^-1 x and needs
        lam >= 2 sigma_hessian tau; ``"standard"`` is Algorithm 9's estimator with lam for the smallest
        eigenvalue; ``"family"``, never worse than either, needs nothing (erratum 8).

    Raises
    ------
    ValueError
        Impossible parameters, or a ``lam`` that is too small for ``"three-halves"``; before any noise is drawn.
    """
    return _report(
        objective,
        theta,
        sigma=sigma,
        sigma_gradient=sigma_gradient,
        sigma_hessian=sigma_hessian,
        sigma_eigenvalue=None,
        rho=rho,
        delta=delta,
        rng=rng,
        scope=scope,
        people=people,
        rule=rule,
    )


def adaptive_report(
    objective: Objective,
    theta: ArrayLike | Release[FloatArray],
    *,
    sigma: float,
    sigma_gradient: float,
    sigma_hessian: float,
    sigma_eigenvalue: float,
    rho: float,
    delta: float,
    rng: np.random.Generator,
    scope: Scope = Scope.ONE,
    people: int = 1,
    rule: Literal["family", "standard"] = "family",
) -> PrivacyReport:
    """The report that also releases the smallest eigenvalue of the Hessian (Algorithm 9, corrected).

    Arguments are those of :func:`data_dependent_report`, with ``sigma_eigenvalue`` the noise scale sigma_4 of the
    eigenvalue. It works for every lam > 0. Four events: the bounds hold with probability 1 - 4 rho.
    """
    if check_choice("rule", rule, RULES) == "three-halves":
        raise ValueError("rule must be 'family' or 'standard' for an adaptive report, got 'three-halves'")
    return _report(
        objective,
        theta,
        sigma=sigma,
        sigma_gradient=sigma_gradient,
        sigma_hessian=sigma_hessian,
        sigma_eigenvalue=check_ordinary("sigma_eigenvalue", sigma_eigenvalue),
        rho=rho,
        delta=delta,
        rng=rng,
        scope=scope,
        people=people,
        rule=rule,
    )


def _report(
    objective: Objective,
    theta: ArrayLike | Release[FloatArray],
    *,
    sigma: float,
    sigma_gradient: float,
    sigma_hessian: float,
    sigma_eigenvalue: float | None,
    rho: float,
    delta: float,
    rng: np.random.Generator,
    scope: Scope,
    people: int,
    rule: Rule,
) -> PrivacyReport:
    check_generator(rng)
    tail, level = check_probability("rho", rho), check_probability("delta", delta)
    scales = [
        check_ordinary("sigma_gradient", sigma_gradient),
        check_ordinary("sigma_hessian", sigma_hessian),
    ]
    events = 3 if sigma_eigenvalue is None else 4
    if events * tail >= 1:
        raise ValueError(f"rho must be below 1/{events}, the number of events that may fail, got {tail!r}")
    check_choice("rule", rule, RULES)
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be an Objective, got {type(objective).__name__}")
    base = data_independent_report(
        theta,
        objective.loss,
        objective.people.domain,
        lam=objective.lam,
        sigma=sigma,
        rho=rho,
        scope=scope,
        people=people,
    )
    d = objective.columns
    noise_bound = scales[1] * goe.operator_norm_bound(tail, d)
    if rule == "three-halves" and objective.lam < 2 * noise_bound:
        raise ValueError(
            f"lam must be at least 2 sigma_hessian tau = {2 * noise_bound:.6g} for the rule 'three-halves', got "
            f"{objective.lam!r}; the rule 'family' needs no such condition"
        )
    point = objective.at(base.theta)
    gradient = release_gradient(point, sigma=scales[0], delta=level, rng=rng)
    hessian = release_hessian(point, sigma=scales[1], delta=level, rng=rng)
    released: list[Release[FloatArray] | Release[float]] = [gradient, hessian]
    floor = objective.lam
    if sigma_eigenvalue is not None:
        eigenvalue = release_smallest_eigenvalue(point, sigma=sigma_eigenvalue, delta=level, rng=rng)
        released.append(eigenvalue)
        # A lower bound needs one tail only: the quantile at 2 rho of the two-sided law.
        below = normal_quantile(2 * tail) if tail < 0.5 else 0.0
        floor = max(floor, float(published(eigenvalue)) - sigma_eigenvalue * below)
    return PrivacyReport(
        theta=base.theta,
        loss=base.loss,
        domain=base.domain,
        lam=base.lam,
        sigma=base.sigma,
        rho=tail,
        confidence=1 - events * tail,
        scope=base.scope,
        people=base.people,
        width=base.width,
        delta=level,
        guarantee=_joint(released, level, base.domain),
        gradient=NoisyGradient(
            published(gradient),
            scales[0],
            # The noise of this release is fresh: given theta every gradient has a fixed direction.
            inner_product_width(tail, scope=base.scope, dimension=d, people=base.people),
        ),
        hessian=NoisyHessian(published(hessian), scales[1], noise_bound, floor, rule),
        sigma_eigenvalue=sigma_eigenvalue,
    )


def published(release: Release[Value]) -> Value:
    """The value of a release that cannot have been refused."""
    if isinstance(release.value, Refused):
        raise TypeError(f"release was refused: {release.value.reason}")
    return release.value


def _published(theta: ArrayLike | Release[FloatArray]) -> FloatArray:
    value = published(theta) if isinstance(theta, Release) else theta
    return check_parameter(value)


def _check_scope(scope: Scope, people: int) -> int:
    """Return the number of people, refusing one that ``scope`` would ignore."""
    count = check_count("people", people)
    if check_scope(scope) is not Scope.MANY and count != 1:
        raise ValueError(f"people must be left at 1 unless scope is Scope.MANY, got {count}")
    return count


def _joint(released: list[Release[FloatArray] | Release[float]], delta: float, domain: Domain) -> Guarantee:
    """The additional releases together: Gaussian mechanisms compose exactly (erratum 6)."""
    curves = [release.guarantee.curve for release in released]
    gaussian = [curve for curve in curves if isinstance(curve, GaussianCurve)]
    curve = compose_gaussian(*gaussian) if len(gaussian) == len(curves) else None
    return Guarantee(
        kind="ex-ante",
        epsilon=math.inf if curve is None else curve.epsilon(delta),
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        domain=domain,
        source="redberg2023, Theorem 2.3.5 (1), with the exact Gaussian curve",
        curve=curve,
    )
