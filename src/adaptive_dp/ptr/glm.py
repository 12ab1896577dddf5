"""Generalised linear models with a self-concordant loss: noise shaped by the Hessian, and how private it is.

Source: redberg2023, Definition B.3.3 to Theorem B.3.9; erratum 18. Neighbours add or remove one record, the ridge
stands beside a *sum* of losses, J(theta; D) = sum_i l(theta'x_i, y_i) + lam / 2 ||theta||^2, and the release is

    theta ~ N(theta*, (gamma H)^-1),    theta* = argmin J(.; D),    H = Hess J(theta*; D).

Mean *and* covariance depend on the data, so that no global sensitivity describes it. What follows bounds its
privacy loss, exactly and one-sidedly: P is the law under the data at hand, Q the law under any neighbour.

**Constants.** R: |l'''| <= R l'' (Bach's definition; the thesis prints 2R, with which the logistic loss would be
1/2-self-concordant and Lemma B.3.4 false). L = sup |l'|, beta = sup l'', and K = sup (R |l'| + l'') <= R L + beta.
Rows have norm at most 1 here; a bound X multiplies R, L by X and beta, K by X^2. The logistic loss has R = L = 1,
beta = 1/4 and, with the probability p of a wrong label, |l'| + l'' = p + p (1 - p) < 1: K = 1, not 1.25.

**How far the minimiser moves.** alpha is the smallest eigenvalue of H *at the minimiser of the data at hand*, and
v the difference of the two minimisers. J' = J(.; D') has gradient +-l' x at theta*; along the segment the Hessian
of the larger of the two objectives' common part shrinks by at most e^(-R t ||v||), its ridge not at all. Hence with
r = R ||v||,

    lam r + (alpha - lam) (1 - e^-r) <= R L,

which bounds r whatever alpha and lam > 0 are (:func:`movement`). The printed condition, strong convexity alpha on
the whole segment, is what Example B.3.8 does not check; ||v|| <= L / alpha is false at the minimiser.

**How the Hessian changes.** Let S = H^-1/2 H' H^-1/2, and u_i = H^-1/2 x_i, so that sum_i l''_i u_i u_i' <= I. The
common records contribute E = sum_i a_i l''_i u_i u_i' with |a_i| <= e^(R |x_i'v|) - 1, and

    ||E||_F^2 <= sum_i a_i^2 l''_i ||u_i||^2 <= ((e^r - 1) / r)^2 R^2 ||v||_H^2 / alpha,
    ||v||_H <= |l'| / sqrt(alpha) . r / (1 - e^-r),

together ||E||_F <= e^r R |l'| / alpha, without any factor for the dimension. The record itself adds or takes away
a rank-one term of size b = l'' x'H^-1 x <= beta / alpha. So ||S - I||_F <= e^r K / alpha, and the eigenvalues of S
lie in [e^-r, e^r + b] (a record added) or [(1 - b) e^-r, e^r] (removed; there b < beta / (beta + lam) as well).

**The privacy loss.** In units of H, P = N(0, I) and Q = N(m, S^-1) with ||m||^2 <= gamma L^2 / (alpha mu^2),
mu = (1 - e^-r) / r. With s = 1 + a the eigenvalues of S and t > 0,

    log E_P (p/q)^t = sum_j -[t log(1 + a_j) + log(1 - t a_j)] / 2 + t (1 + t) s_j m_j^2 / (2 (1 - t a_j)).

The bracketed term over a^2 is convex in a, so that its largest value on the interval times ||S - I||_F^2 bounds the
first sum. Then delta(epsilon) <= e^(-t epsilon) E_P (p/q)^t (t / (1 + t))^t / (1 + t) for every t > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import brentq

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss, Loss
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.objective import Objective
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.eigenvalue import (
    EigenvalueBound,
    GlmConstants,
    glm_constants,
    private_smallest_eigenvalue,
    split_of,
)
from adaptive_dp.validation import (
    FloatArray,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

# Exponents t at which the Rényi bound is tried: the largest one, 1 / max a, times these.
STEPS = 1 / (1 + np.exp(-np.linspace(-16.0, 9.0, 401)))
# Where t |a| is below this, the second derivative's largest value replaces the difference of logarithms.
SMALL = 1e-3
# Where R ||v|| may be this large nothing is private, and the rest is not computed.
HOPELESS = 30.0
SOURCE = "redberg2023, Theorem B.3.6; erratum 18"


def movement(alpha: float, lam: float, constants: GlmConstants) -> float:
    """Bound r >= R ||t - t'|| for the optima t and t', from the smallest eigenvalue ``alpha`` of the Hessian at one.

    The root of lam r + (alpha - lam) (1 - e^-r) = R L, rounded up; 0 for a quadratic loss (R = 0). It holds for
    every neighbour, whether a record is added or removed, and falls with ``alpha``.

    Parameters
    ----------
    alpha : float
        Smallest eigenvalue at the minimiser for the data at hand, ridge included (or a lower bound of it, at least
        ``lam``).
    lam : float
        Ridge beside the sum of the losses, positive.
    constants : GlmConstants
        Of the loss on the declared domain.

    Raises
    ------
    TypeError, ValueError
        ``alpha`` below ``lam``, or numbers that are not positive.
    """
    ridge = check_ordinary("lam", lam)
    curvature = check_ordinary("alpha", alpha)
    if curvature < ridge * (1 - 1e-9):
        raise ValueError(f"alpha must be at least lam = {ridge!r}, got {curvature!r}")
    extra, force = max(curvature - ridge, 0.0), constants.concordance * constants.slope
    if force == 0:
        return 0.0

    def excess(r: float) -> float:
        return ridge * r - extra * math.expm1(-r) - force

    # At force / lam the left side is at least force already.
    return float(brentq(excess, 0.0, force / ridge * (1 + 1e-12), xtol=1e-300, rtol=1e-14)) * (1 + 1e-12)


@dataclass(frozen=True, slots=True)
class _Spectrum:
    """What S can be for one kind of neighbour: eigenvalues 1 + a with a in [low, high]."""

    low: float
    high: float
    frobenius: float


@dataclass(frozen=True, slots=True)
class GlmCurve:
    """Upper bound of the privacy profile of theta ~ N(theta*, (gamma H)^-1), for the data at hand as P.

    Corrected and sharpened version of redberg2023, Theorem B.3.6; see the head of this module. It is a statement
    about one data set (data-dependent privacy), covers adding *and* removing a record, and falls with ``alpha``:
    a lower bound of alpha gives a valid curve.

    Parameters
    ----------
    alpha : float
        Smallest eigenvalue of the Hessian at the minimiser, ridge included, at least ``lam``.
    lam : float
        Ridge, positive.
    gamma : float
        Inverse temperature of the noise, positive.
    constants : GlmConstants
    """

    alpha: float
    lam: float
    gamma: float
    constants: GlmConstants

    def __post_init__(self) -> None:
        movement(self.alpha, self.lam, self.constants)
        check_ordinary("gamma", self.gamma)

    def delta(self, epsilon: float) -> float:
        """Bound on the hockey-stick divergence at ``epsilon`` >= 0, in [0, 1]."""
        level = check_real("epsilon", epsilon)
        if level < 0:
            raise ValueError(f"epsilon must be nonnegative, got {level!r}")
        worst = max(
            float((t * -level + fixed + self.gamma * slope + _conversion(t)).min())
            for t, fixed, slope in _renyi_bounds(self.alpha, self.lam, self.constants)
        )
        return math.exp(min(worst, 0.0))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 at which the bound is at most ``delta``."""
        goal = math.log(check_probability("delta", delta))
        return max(
            0.0,
            *(
                float(((fixed + self.gamma * slope + _conversion(t) - goal) / t).min())
                for t, fixed, slope in _renyi_bounds(self.alpha, self.lam, self.constants)
            ),
        ) * (1 + 1e-12)

    def closed_epsilon(self, delta: float) -> float:
        """The bound in the form of Theorem B.3.6, with all constants: larger than :meth:`epsilon`.

        With l = log(2/delta), e = ||S - I||_F and s = 1 + a in [s_low, s_high],

            e sqrt(l) + a_high l + e^2 / (4 s_low) + sqrt(2 l) s_high ||m|| + s_high ||m||^2 / 2,

        by the tail bound of Laurent and Massart (2000, Lemma 1) for the quadratic part and the Gaussian one.
        Leading terms: (R L + beta) / alpha (sqrt(l) + l) + sqrt(2 gamma L^2 l / alpha) + gamma L^2 / (2 alpha).
        """
        tail = math.log(2 / check_probability("delta", delta))
        r = movement(self.alpha, self.lam, self.constants)
        if r > HOPELESS:
            return math.inf
        m = math.sqrt(self.gamma / self.alpha) * self.constants.slope / _shrinkage(r)
        return max(
            s.frobenius * math.sqrt(tail)
            + s.high * tail
            + s.frobenius**2 / (4 * (1 + s.low))
            + math.sqrt(2 * tail) * (1 + s.high) * m
            + 0.5 * (1 + s.high) * m * m
            for s in _spectra(self.alpha, self.lam, self.constants)
        )


def calibrate_gamma(
    *, alpha: float, lam: float, constants: GlmConstants, epsilon: float, delta: float
) -> float:
    """Largest gamma whose :class:`GlmCurve` is within (epsilon, delta); 0 if there is none.

    log delta is linear in gamma for each exponent t, so that no search is needed. There is none where the change of
    the Hessian alone costs more: about where alpha < (R L + beta) log(1/delta) / (2 epsilon).

    Parameters
    ----------
    alpha, lam, constants
        As in :class:`GlmCurve`.
    epsilon, delta : float
        One-sided, data-dependent target.
    """
    level, goal = check_ordinary("epsilon", epsilon), math.log(check_probability("delta", delta))
    found = min(
        float(((goal + t * level - fixed - _conversion(t)) / slope).max())
        for t, fixed, slope in _renyi_bounds(alpha, lam, constants)
    )
    gamma = found * (1 - 1e-12)
    return gamma if gamma > 1e-100 else 0.0


def _shrinkage(r: float) -> float:
    """mu(r) = (1 - e^-r) / r: mean Hessian along the segment over the Hessian at its end, at least."""
    return -math.expm1(-r) / r if r > 0 else 1.0


def _spectra(alpha: float, lam: float, constants: GlmConstants) -> tuple[_Spectrum, _Spectrum]:
    """The two classes of relative Hessians: a record added, a record removed."""
    r = movement(alpha, lam, constants)
    added = constants.curvature / alpha
    removed = min(added, constants.curvature / (constants.curvature + lam))
    frobenius = math.exp(r) * constants.joint / alpha
    grown, shrunk = math.expm1(r), math.expm1(-r)
    return (
        _Spectrum(shrunk, grown + added, frobenius),
        # (1 - b) e^-r - 1; the Hessian without the record is at least the ridge.
        _Spectrum(shrunk - removed * math.exp(-r), grown, frobenius),
    )


def _renyi_bounds(
    alpha: float, lam: float, constants: GlmConstants
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """For both kinds of neighbours: exponents t, and log E_P (p/q)^t <= fixed + gamma slope; shapes (k,)."""
    r = movement(alpha, lam, constants)
    if r > HOPELESS:
        return [(STEPS, np.full(STEPS.shape, math.inf), np.ones(STEPS.shape))]
    force = (constants.slope / _shrinkage(r)) ** 2 / alpha
    bounds = []
    for spectrum in _spectra(alpha, lam, constants):
        # Every t below 1 / high is allowed; where high is next to nothing (R small, a record removed) few matter.
        t = STEPS / max(spectrum.high, -spectrum.low / 50)
        per_square = np.maximum(_log_det_rate(t, spectrum.low), _log_det_rate(t, spectrum.high))
        fixed = per_square * spectrum.frobenius**2
        slope = 0.5 * t * (1 + t) * force * (1 + spectrum.high) / (1 - t * spectrum.high)
        bounds.append((t, fixed, slope))
    return bounds


def _log_det_rate(t: FloatArray, a: float) -> FloatArray:
    """Return -[t log(1 + a) + log(1 - t a)] / (2 a^2), or a little more where a is small; positive."""
    small = np.abs(t * a) + abs(a) < SMALL
    bound = 0.25 * (t / (1 + min(a, 0.0)) ** 2 + (t / (1 - np.where(small, t, 0.0) * max(a, 0.0))) ** 2)
    if a == 0:
        return np.asarray(bound)
    exact = -0.5 * (t * math.log1p(a) + np.log1p(-t * a)) / a**2
    return np.asarray(np.where(small, bound, exact))


def _conversion(t: FloatArray) -> FloatArray:
    """Log of sup_y (1 - e^-y) e^(-t y) = (t / (1 + t))^t / (1 + t)."""
    return np.asarray(-t * np.log1p(1 / t) - np.log1p(t))


# --- the mechanisms -----------------------------------------------------------------------------------


def sample_around(
    theta: FloatArray, hessian: FloatArray, gamma: float, rng: np.random.Generator
) -> FloatArray:
    """One draw from N(theta, (gamma H)^-1), shape (d,). O(d^3). Not private by itself."""
    factor = cholesky(check_ordinary("gamma", gamma) * hessian, lower=True, check_finite=False)
    draw = gaussian(1.0, theta.size, rng)
    return np.asarray(theta + solve_triangular(factor, draw, lower=True, trans=1, check_finite=False))


def glm_ptr(
    people: Dataset,
    loss: Loss,
    *,
    lam: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    share: float = 0.5,
) -> Release[FloatArray]:
    """Generalized propose-test-release around Hessian-shaped output perturbation, for one proposed ``lam``.

    redberg2023, Example B.3.8 with the repairs of erratum 18: (1) publish a lower bound of alpha, the smallest
    eigenvalue at the minimiser, which fails with probability at most delta / 2; (2) take the largest gamma for
    which every data set with that alpha is one-sidedly (epsilon_2, delta / 4)-private; (3) draw theta.

    Parameters
    ----------
    people : Dataset
        Records obeying their declared domain.
    loss : Loss
        Self-concordant with bounded slope: of the losses here the logistic one.
    lam : float
        Proposed ridge beside the *sum* of the losses, positive. Choosing it by the data costs extra, see
        :mod:`adaptive_dp.ptr.selection`.
    epsilon, delta : float
        Total of the release. With the thesis's letter, delta here is its 2 delta: delta/4 for the test's noise,
        delta/2 for a wrong bound, delta/4 for theta. They *add*, as gamma depends on the published bound.
    rng : numpy.random.Generator
        The only source of chance.
    share : float
        Part of epsilon for the eigenvalue, in (0, 1); the thesis takes half.

    Returns
    -------
    Release
        theta, shape (d,), or ``Refused`` where no gamma > 0 keeps the promise: the refusal is computed from the
        published bound and has the same guarantee. ``guarantee.parts``: ``"eigenvalue"``, ``"theta"``. The trace
        holds ``bound`` (:class:`~adaptive_dp.ptr.eigenvalue.EigenvalueBound`) and ``gamma``, which *are* covered,
        and the private ``minimiser`` and ``smallest`` eigenvalue. Time O(n d^2) a Newton step.

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, or a loss without the constants, before any noise is drawn.
    """
    check_generator(rng)
    objective = Objective(people, loss, lam)
    constants = glm_constants(loss, people.domain, dimension=people.columns)
    split = split_of(epsilon, delta, share)
    fit = objective.minimise()
    test = private_smallest_eigenvalue(
        people,
        loss,
        lam=objective.lam,
        epsilon=split.epsilon_test,
        delta=split.delta_test,
        failure=split.failure,
        rng=rng,
        hessian=fit.hessian,
    )
    bound = test.value
    assert isinstance(bound, EigenvalueBound)
    gamma = calibrate_gamma(
        alpha=bound.lower,
        lam=objective.lam,
        constants=constants,
        epsilon=split.epsilon_release,
        delta=split.delta_release,
    )
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=split.epsilon_test + split.epsilon_release,
        delta=split.delta_test + split.failure + split.delta_release,
        neighbours=Neighbours.ADD_REMOVE,
        domain=people.domain,
        parts={"eigenvalue": split.epsilon_test, "theta": split.epsilon_release},
        source="redberg2023, Example B.3.8 and Theorem B.3.9; erratum 18",
    )
    trace = {
        "bound": bound,
        "gamma": gamma,
        "minimiser": fit.theta,
        "smallest": test.trace["smallest"],
    }
    if gamma == 0:
        reason = (
            f"no noise level is private enough: the published lower bound of the smallest eigenvalue, "
            f"{bound.lower:.6g}, lets the Hessian alone cost more than epsilon {split.epsilon_release:.6g}"
        )
        return Release(Refused(reason), guarantee, trace=Trace(**trace))
    theta = sample_around(fit.theta, fit.hessian, gamma, rng)
    return Release(theta, guarantee, trace=Trace(**trace))


def logistic_ptr(
    people: Dataset,
    *,
    lam: float,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    share: float = 0.5,
) -> Release[FloatArray]:
    """:func:`glm_ptr` for the logistic loss (redberg2023, Example B.3.8, repaired); labels -1 and +1."""
    return glm_ptr(people, LogisticLoss(), lam=lam, epsilon=epsilon, delta=delta, rng=rng, share=share)


def ridge_only(
    people: Dataset, loss: Loss, *, lam: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Hessian-shaped output perturbation without a test: alpha is taken to be ``lam``, which no data set falls below.

    The data-independent rival of :func:`glm_ptr`; arguments are the same, the whole budget goes to theta.

    Raises
    ------
    ValueError
        No gamma > 0 is private for this ``lam``: before any noise is drawn, and whatever the data are.
    """
    check_generator(rng)
    objective = Objective(people, loss, lam)
    constants = glm_constants(loss, people.domain, dimension=people.columns)
    gamma = calibrate_gamma(
        alpha=objective.lam, lam=objective.lam, constants=constants, epsilon=epsilon, delta=delta
    )
    if gamma == 0:
        raise ValueError(
            f"lam = {objective.lam:.6g} is too small for epsilon {epsilon!r} and delta {delta!r}"
        )
    curve = GlmCurve(objective.lam, objective.lam, gamma, constants)
    guarantee = _guarantee(people.domain, epsilon, delta, SOURCE)
    fit = objective.minimise()
    theta = sample_around(fit.theta, fit.hessian, gamma, rng)
    return Release(theta, replace(guarantee, curve=curve), trace=Trace(gamma=gamma, minimiser=fit.theta))


def _guarantee(domain: Domain, epsilon: float, delta: float, source: str) -> Guarantee:
    return Guarantee(
        kind="ex-ante",
        epsilon=epsilon,
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        domain=domain,
        source=source,
    )
