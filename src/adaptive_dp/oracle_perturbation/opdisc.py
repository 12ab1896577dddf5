"""OPDisc: minimise a sum of losses minus <noise, pi(w)> over a finite space, with an oracle that proves its optimum.

neel2019, Algorithm 1, with the noise that its erratum asks for. Neighbours replace one record; W, D, tau, G and n are
public. The guarantee needs an answer whose perturbed objective is within a gap of the minimum, *proved*: a
heuristic that is usually right is not private. So the oracle hands over a lower bound, and the mechanism re-evaluates
the objective of its answer and releases nothing that is not certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv

from adaptive_dp.noise import gaussian, norm_exponential
from adaptive_dp.oracle_perturbation.certificates import certify, check_oracle, consult, rounding, row_of
from adaptive_dp.oracle_perturbation.discrete_privacy import (
    GAP,
    ProvedGaussianCurve,
    printed_sigma,
    shift,
    smallest_sigma,
)
from adaptive_dp.oracle_perturbation.problems import (
    LARGEST_COST,
    Oracle,
    Solution,
    TableProblem,
    ThresholdProblem,
    Uncertified,
    enumerate_members,
)
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

NOISES = ("norm", "gaussian", "printed")
# A noise vector longer than its (1 - 1e-12)-quantile is not worth speaking of; up to there the certificate must work.
RARE = 1e-12

Point = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LiftedNoise:
    """The noise of one run: its law in R^(d + 1).

    Parameters
    ----------
    kind : {"norm", "gaussian", "printed"}
        Density proportional to exp(-||eta|| / scale), or independent N(0, scale^2) entries (both other kinds).
    scale : float
        Positive.
    coordinates : int
        d + 1.
    folded : bool
        Whether the absolute value of the last coordinate is used.
    """

    kind: str
    scale: float
    coordinates: int
    folded: bool

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, NOISES)

    def draw(self, rng: np.random.Generator, *, draws: int | None = None) -> FloatArray:
        """One vector (d + 1,), or ``draws`` of them (draws, d + 1)."""
        if self.kind == "norm":
            eta = norm_exponential(self.scale, self.coordinates, rng, draws=draws)
        else:
            eta = gaussian(self.scale, (() if draws is None else (draws,)) + (self.coordinates,), rng)
        if self.folded:
            eta[..., -1] = np.abs(eta[..., -1])
        return eta

    def length(self, tail: float) -> float:
        """Quantile of ||eta||: exceeded with probability ``tail`` in (0, 1). Folding does not change it."""
        level = check_probability("tail", tail)
        if self.kind == "norm":
            return self.scale * float(gammainccinv(self.coordinates, level))
        return self.scale * math.sqrt(2 * float(gammainccinv(0.5 * self.coordinates, level)))


def opdisc(
    problem: ThresholdProblem | TableProblem,
    *,
    epsilon: float,
    delta: float | None = None,
    noise: str = "norm",
    oracle: Oracle = enumerate_members,
    gap: float = GAP,
    fold: bool = True,
    rng: np.random.Generator,
    fallback: ArrayLike | None = None,
    failure_bound: float | None = None,
) -> Release[Point]:
    """Release a member of W with a small sum of losses, differentially private for replacing one record.

    The privacy proof with the density p(eta) proportional to exp(-epsilon ||eta|| / Delta_a): by
    :func:`~adaptive_dp.oracle_perturbation.discrete_privacy.shift` every eta that leads to w on D has eta + Delta_a
    pi(w) leading to w on D', so P_D(w) <= int p(eta) 1[eta + Delta_a pi(w) leads to w on D'] d eta, and p(eta) <=
    e^epsilon p(eta + Delta_a pi(w)) for every eta, as ||pi(w)|| = 1. Substitute and sum over w in any set. If the
    last coordinate is folded, eta lives in a half space, and so does eta + Delta_a pi(w), as pi(w) has a nonnegative
    last coordinate. For Gaussian noise see ``ProvedGaussianCurve``.

    The oracle is one fixed map from (problem, costs) to an answer; it may use coins of its own. The guarantee presumes
    that it certifies **on every data set**. An exception is an outcome that no guarantee covers, the time that the
    oracle takes depends on the data, and neither must be shown to anybody.

    With ``fallback`` an answer that is not certified is no exception: it is replaced by a member that was fixed without
    looking at the data. (An oracle that is broken, or raises, still stops the mechanism.) If on *every* data set this
    happens with probability at most phi = ``failure_bound``, the mechanism is
    (epsilon, delta + (1 + e^epsilon) phi)-private. *Proof.* Let M* be the mechanism whose oracle
    answers with an exact minimiser wherever ours fails: it is (epsilon, delta)-private, and M agrees with it but for an
    event of probability at most phi. So P_M(D)(S) <= P_M*(D)(S) + phi <= e^epsilon P_M*(D')(S) + delta + phi
    <= e^epsilon (P_M(D')(S) + phi) + delta + phi. That bound is a promise about data sets that nobody has seen: runs
    on one data set cannot establish it.

    Parameters
    ----------
    problem : ThresholdProblem or TableProblem
        Data, losses and W.
    epsilon : float
        Positive.
    delta : float or None
        In (0, 1) for Gaussian noise; must be None for ``"norm"``, whose guarantee is pure.
    noise : {"norm", "gaussian", "printed"}
        ``"printed"`` draws Algorithm 1's scale; its guarantee has the delta that is proved for it, not the printed one.
    oracle : callable
        ``(problem, costs) -> Solution``.
    gap : float
        a > 0: largest additive gap that is accepted, part of the guarantee and fixed beforehand.
    fold : bool
        Use the absolute value of the last noise coordinate. As private as without (Gaussian noise of a small space
        apart, where it is charged for), and the perturbation becomes a convex function of w.
    rng : numpy.random.Generator
        The only source of chance.
    fallback : array_like or None
        Member of W, shape (d,), chosen without the data.
    failure_bound : float or None
        phi in [0, 1), declared by the caller; goes with ``fallback``.

    Returns
    -------
    Release
        ``value`` is the member, shape (d,). The trace holds ``noise``, ``solution`` and ``certified``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, an epsilon so small that the noise would drown the certificate in rounding (before any noise is
        drawn); an oracle that answers with something else than a Solution, with a point outside W, with an objective
        that is not that of its point, or with a lower bound above it. Nothing is released.
    Uncertified
        The proved gap is not below ``gap`` and there is no fallback. Nothing is released.
    """
    law, guarantee = plan(problem, epsilon=epsilon, delta=delta, noise=noise, gap=gap, fold=fold)
    check_oracle(problem, oracle)
    default, guarantee = _check_fallback(problem, fallback, failure_bound, guarantee)
    check_generator(rng)
    eta = law.draw(rng)
    solution: Solution | None = None
    try:
        if np.linalg.norm(eta) > LARGEST_COST:
            raise Uncertified("the noise is longer than what can be certified")
        costs: Any = problem.lifted_costs(eta)
        solution = consult(problem, costs, oracle)
        value = certify(problem, costs, solution, gap=gap, length=float(np.linalg.norm(eta)))
    except Uncertified:
        if default is None:
            raise
        value, certified = default, False
    else:
        certified = True
    return Release(value, guarantee, trace=Trace(noise=eta, solution=solution, certified=certified))


def plan(
    problem: ThresholdProblem | TableProblem,
    *,
    epsilon: float,
    delta: float | None = None,
    noise: str = "norm",
    gap: float = GAP,
    fold: bool = True,
) -> tuple[LiftedNoise, Guarantee]:
    """The noise that :func:`opdisc` will draw and the guarantee that it will give, without touching the data.

    Arguments and errors are those of :func:`opdisc`. From the problem only W, G and n are read.
    """
    if not isinstance(problem, ThresholdProblem | TableProblem):
        raise TypeError(f"problem must be a ThresholdProblem or a TableProblem, got {type(problem).__name__}")
    check_choice("noise", noise, NOISES)
    level, allowed = check_ordinary("epsilon", epsilon), check_positive("gap", gap)
    if not isinstance(fold, bool):
        raise TypeError(f"fold must be True or False, got {fold!r}")
    length, coordinates = shift(problem, gap=allowed), problem.space.dimension + 1
    if noise == "norm":
        if delta is not None:
            raise ValueError(f"delta must be None for norm noise, whose guarantee is pure, got {delta!r}")
        law = LiftedNoise(noise, length / level, coordinates, fold)
        guarantee = _guarantee(
            level, 0.0, f"norm-exponential noise (erratum 0), oracle gap below {allowed:g}"
        )
    else:
        if delta is None:
            raise ValueError(f"delta must be given for {noise} noise: Gaussian noise has no pure guarantee")
        tail = check_probability("delta", delta)
        sigma = (
            smallest_sigma(problem, epsilon=level, delta=tail, gap=allowed, fold=fold)
            if noise == "gaussian"
            else printed_sigma(problem, epsilon=level, delta=tail)
        )
        law = LiftedNoise(noise, sigma, coordinates, fold)
        curve = ProvedGaussianCurve(length / sigma, coordinates, problem.space.size, fold)
        guarantee = _gaussian_guarantee(curve, level, tail, noise, allowed)
    _check_size(problem, law, allowed)
    return law, guarantee


def _check_size(problem: ThresholdProblem | TableProblem, law: LiftedNoise, gap: float) -> None:
    """Refuse noise beside which the counts, or the gap of the certificate, would drown in rounding."""
    length = law.length(RARE)
    hidden = rounding(problem, length)
    if length > LARGEST_COST or hidden > 0.5 * gap:
        raise ValueError(
            f"epsilon is too small for this space: noise of length {length:.3g} would leave a rounding error of "
            f"{hidden:.3g} beside the gap {gap:g} (and the noise may be at most {LARGEST_COST:g} long); take a larger "
            "epsilon, a smaller D / tau, or a larger gap"
        )


def _guarantee(
    epsilon: float, delta: float, what: str, curve: ProvedGaussianCurve | None = None
) -> Guarantee:
    return Guarantee(
        kind="ex-ante",
        epsilon=epsilon,
        delta=delta,
        neighbours=Neighbours.REPLACE_ONE,
        source=f"neel2019, Algorithm 1 with {what}",
        curve=curve,
    )


def _gaussian_guarantee(
    curve: ProvedGaussianCurve, epsilon: float, delta: float, noise: str, gap: float
) -> Guarantee:
    if noise == "gaussian":
        what = f"the Gaussian scale that is proved (erratum 0), oracle gap below {gap:g}"
        return _guarantee(epsilon, delta, what, curve)
    proved = curve.delta(epsilon)
    if not proved < 1:
        raise ValueError(
            f"noise 'printed' has no guarantee at epsilon {epsilon:g} and delta {delta:g}: none is proved"
        )
    verdict = (
        "proved for so few dimensions"
        if proved <= delta
        else "not proved (Theorem 2 is false for some W from about d = ln(1/delta) on); the delta stated here is"
    )
    what = f"its printed scale, oracle gap below {gap:g}; its printed delta {delta:g} is {verdict}"
    return _guarantee(epsilon, proved, what, curve)


def _check_fallback(
    problem: ThresholdProblem | TableProblem,
    fallback: ArrayLike | None,
    failure_bound: float | None,
    guarantee: Guarantee,
) -> tuple[Point | None, Guarantee]:
    """The member to fall back on, and the guarantee that pays for it."""
    if fallback is None:
        if failure_bound is not None:
            raise ValueError("failure_bound goes with a fallback, which is None")
        return None, guarantee
    if failure_bound is None:
        raise ValueError(
            "failure_bound must be declared with a fallback: the largest probability, over all data sets, that "
            "the oracle fails. It is part of the guarantee and cannot be measured on one data set"
        )
    share = check_real("failure_bound", failure_bound)
    if not 0 <= share < 1:
        raise ValueError(f"failure_bound must lie in [0, 1), got {share!r}")
    point = as_finite_array("fallback", fallback, ndim=1)
    if isinstance(problem, ThresholdProblem):
        member: Point | None = point.astype(np.int64) if problem.space.contains(point) else None
    else:
        place = row_of(problem, point)
        member = None if place is None else problem.space.members[place].copy()
    if member is None:
        raise ValueError("fallback must be a member of W")
    delta = guarantee.delta + ((1 + guarantee.risk_factor) * share if share else 0.0)
    if not delta < 1:
        raise ValueError(f"failure_bound {share!r} leaves no guarantee: delta would be {delta!r}")
    source = f"{guarantee.source}; fallback with probability at most {share:g} on every data set, as declared"
    return member, Guarantee(
        kind="ex-ante",
        epsilon=guarantee.epsilon,
        delta=delta,
        neighbours=guarantee.neighbours,
        source=source,
    )
