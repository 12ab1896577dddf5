r"""OPSamp: publish the noisy average of many minimisers of tilted objectives (neel2019, Algorithm 2, corrected).

Neighbours replace one record; the number n of records is public. The losses are G-Lipschitz in l1 on W, convex or
not, with values in [0, 1]; W lies in a box of side D.

**Theorem.** Let sigma^1 ... sigma^m be independent vectors with independent exponential entries of rate eta, and w_k
the answer of the oracle for the sum of the losses minus <sigma^k - c, w>, c any constant vector: a member of W whose
objective is within a of the minimum over W. The answer may depend on the data and on sigma^1 ... sigma^k, and on
nothing else. Let s be the stability bound for this eta and a, lambda = s + sqrt(2 d D s L / m) + d D L / (3 m) with
L = ln(1 / delta), and mu a vector of independent Laplace entries of scale lambda / epsilon. Publishing the average
of the w_k plus mu is (epsilon, delta)-differentially private.

*Proof.* Fix neighbours and use the same Sigma = (sigma^1 ... sigma^m) for both. By the lemma of
:mod:`~adaptive_dp.oracle_perturbation.stability` (the term <c, w> is part of the objective on both sides), given the
past each |w_k - w'_k|_1 has mean at most s, so that by :mod:`~adaptive_dp.oracle_perturbation.concentration` the
averages differ by at most lambda in l1 for all Sigma in a set B with P(B) >= 1 - delta. For Sigma in B the Laplace
densities of the outcomes differ by a factor of at most e^epsilon. So Pr[M(D) in S] <= Pr[M(D) in S, B] + delta <=
e^epsilon Pr[M(D') in S, B] + delta. Clipping to the box is post-processing.

Algorithm 2 as printed differs in eta (a scale, by the paper's own definition), in lambda (errata 5 and 7), in a
*scalar* mu (erratum 8), and in gamma, which has units. :func:`printed_plan` is what it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from adaptive_dp.noise import laplace
from adaptive_dp.oracle_perturbation.concentration import bernstein_average, bernstein_calls, printed_calls
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.problems import Uncertified
from adaptive_dp.oracle_perturbation.sampled_oracles import Answers, SampledOracle, list_grid
from adaptive_dp.oracle_perturbation.sampled_problems import (
    ROUNDING,
    STEEPER,
    GridLosses,
    SampledProblem,
    nearest_members,
    objective,
    rounding_error,
)
from adaptive_dp.oracle_perturbation.sampled_utility import ExcessBound, excess_bound, tilt_term
from adaptive_dp.oracle_perturbation.stability import check_gap, printed_stability_bound, stability_bound
from adaptive_dp.privacy import SLACK, Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)

SOURCE = "neel2019, Algorithm 2 and Theorem 11; errata 5, 7 and 8"
OVERSAMPLING = 2.0
# Noise vectors and answers are held at once.
LARGEST_CALLS = 50_000_000
# Largest |sigma_j| of a plan, in units of 1 / eta, that rounding is provided for: exceeded with probability e^-50 a
# draw.
LARGEST_DRAW = 50.0


def rounding_gap(*, records: int, dimension: int, diameter: float, eta: float) -> float:
    """Smallest gap that doubles can certify: four times the rounding of an objective, on the scale of the sum."""
    return 4 * ROUNDING * (records + diameter / 2 * dimension * (LARGEST_DRAW + 1) / eta)


@dataclass(frozen=True, slots=True)
class Plan:
    """Public parameters of OPSamp; a plan whose sensitivity is not proved cannot be made.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee.
    records, dimension : int
        n and d.
    diameter, lipschitz : float
        D and G. The stability is that of a G that is larger by the share ``STEEPER``, which rounding may hide.
    gap : float
        a = n alpha.
    eta : float
        **Rate** of the exponential noise, mean 1 / eta.
    stability : float
        s.
    calls : int
        m.
    sensitivity : float
        lambda.
    """

    epsilon: float
    delta: float
    records: int
    dimension: int
    diameter: float
    lipschitz: float
    gap: float
    eta: float
    stability: float
    calls: int
    sensitivity: float

    def __post_init__(self) -> None:
        for name in ("epsilon", "diameter", "lipschitz", "eta", "stability", "sensitivity"):
            object.__setattr__(self, name, check_ordinary(name, getattr(self, name)))
        object.__setattr__(self, "delta", check_probability("delta", self.delta))
        object.__setattr__(self, "gap", check_gap(self.gap))
        for name in ("records", "dimension", "calls"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        if self.calls > LARGEST_CALLS:
            raise ValueError(f"calls must be at most {LARGEST_CALLS}, got {self.calls}: choose a larger eta")
        needed = stability_bound(
            eta=self.eta,
            dimension=self.dimension,
            diameter=self.diameter,
            lipschitz=self.lipschitz * (1 + STEEPER),
            gap=self.gap,
        )
        if self.stability < needed * (1 - SLACK):
            raise ValueError(f"stability must be at least {needed:.6g}, got {self.stability:.6g}")
        proved = bernstein_average(
            mean=self.stability, largest=self.spread, calls=self.calls, failure=self.delta
        )
        if self.sensitivity < proved * (1 - SLACK):
            raise ValueError(f"sensitivity must be at least {proved:.6g}, got {self.sensitivity:.6g}")
        least = rounding_gap(
            records=self.records, dimension=self.dimension, diameter=self.diameter, eta=self.eta
        )
        if self.gap < least:
            raise ValueError(f"gap must be at least {least:.3g}, what rounding leaves, got {self.gap:.3g}")

    @property
    def spread(self) -> float:
        """M = d D, the largest l1 distance of two members of the box."""
        return self.dimension * self.diameter

    @property
    def scale(self) -> float:
        """Of the Laplace noise in each coordinate: lambda / epsilon."""
        return self.sensitivity / self.epsilon

    def excess(
        self, beta: float, *, euclidean_diameter: float | None = None, centred: bool = True
    ) -> ExcessBound:
        """Bound of the excess mean loss for convex losses, except with probability ``beta``."""
        return excess_bound(
            sensitivity=self.sensitivity,
            epsilon=self.epsilon,
            eta=self.eta,
            calls=self.calls,
            records=self.records,
            dimension=self.dimension,
            diameter=self.diameter,
            lipschitz=self.lipschitz,
            beta=beta,
            gap=self.gap,
            euclidean_diameter=euclidean_diameter,
            centred=centred,
        )

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises."""
        return Guarantee(
            kind="ex-ante",
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=Neighbours.REPLACE_ONE,
            source=SOURCE,
        )


def plan(
    *,
    epsilon: float,
    delta: float,
    records: int,
    dimension: int,
    diameter: float,
    lipschitz: float,
    gap: float = GAP,
    beta: float = 0.05,
    eta: float | None = None,
    oversampling: float = OVERSAMPLING,
    centred: bool = True,
) -> Plan:
    """Choose the noise, the number of calls and the sensitivity of OPSamp.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee, delta in (0, 1).
    records, dimension : int
        n and d, public.
    diameter : float
        D, side of the box.
    lipschitz : float
        G of one loss, in l1.
    gap : float
        a, additive gap of the oracle on the scale of the sum of the losses: n times the alpha of Definition 2.1.
    beta : float
        eta makes the bound of the excess at this failure probability smallest (convex losses; the losses of any other
        kind are as private).
    eta : float, optional
        Rate to take instead.
    oversampling : float
        r: m = r d D ln(1 / delta) / s. At 2 lambda is 13 s / 6; more calls bring it nearer to s.
    centred : bool
        Whether 1 / eta is subtracted from the noise; enters the choice of eta only.

    Returns
    -------
    Plan

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, or a plan that asks for too many calls or a gap below rounding.
    """
    level, privacy = check_probability("beta", beta), check_ordinary("epsilon", epsilon)
    failure = check_probability("delta", delta)
    d, n = check_count("dimension", dimension), check_count("records", records)
    side, slope = check_ordinary("diameter", diameter), check_ordinary("lipschitz", lipschitz)

    def at(rate: float) -> tuple[float, int, float]:
        steepest = slope * (1 + STEEPER)
        s = stability_bound(eta=rate, dimension=d, diameter=side, lipschitz=steepest, gap=gap)
        m = bernstein_calls(mean=s, largest=d * side, failure=failure, oversampling=oversampling)
        return s, m, bernstein_average(mean=s, largest=d * side, calls=m, failure=failure)

    def risk(log_rate: float) -> float:
        rate = math.exp(log_rate)
        _, m, size = at(rate)
        return excess_bound(
            sensitivity=size,
            epsilon=privacy,
            eta=rate,
            calls=m,
            records=n,
            dimension=d,
            diameter=side,
            lipschitz=slope,
            beta=level,
            gap=gap,
            centred=centred,
        ).total

    if eta is None:
        # The excess in the mean is about B eta + E / eta: the best rate for the bound is near its best rate.
        rise = 52 / 3 * slope**2 * d**3 * side / privacy
        centre = 0.5 * math.log(tilt_term(dimension=d, diameter=side, centred=centred) / n / rise)
        found = minimize_scalar(
            risk, bounds=(centre - 2, centre + 2), method="bounded", options={"xatol": 1e-5}
        )
        # Three digits: as good, and the same on every machine.
        eta = float(f"{math.exp(float(found.x)):.2e}")
    rate = check_ordinary("eta", eta)
    return Plan(privacy, delta, n, d, side, slope, gap, rate, *at(rate))


def plan_for(problem: SampledProblem, *, epsilon: float, delta: float, **settings: Any) -> Plan:
    """Return :func:`plan` for a problem's public facts; ``settings`` are its other arguments."""
    return plan(
        epsilon=epsilon,
        delta=delta,
        records=problem.records,
        dimension=problem.dimension,
        diameter=2 * problem.half_width,
        lipschitz=problem.lipschitz,
        **settings,
    )


@dataclass(frozen=True, slots=True)
class PrintedPlan:
    """Algorithm 2 as printed: **not** private in general, and not what :func:`opsamp` uses.

    Attributes
    ----------
    gamma : float
        sqrt(epsilon / n) d^{5/4} sqrt(D_2), printed with the unit of sqrt(w) where a pure number is needed.
    calls : int
        m.
    eta : float
        Called a scale by Section 2; the proofs need a rate.
    sensitivity : float
        lambda = 4 D gamma + 250 eta G d^2 D^2 + alpha / (10 G).
    """

    gamma: float
    calls: int
    eta: float
    sensitivity: float


def printed_plan(
    *,
    epsilon: float,
    delta: float,
    records: int,
    dimension: int,
    diameter: float,
    euclidean_diameter: float,
    lipschitz: float,
    beta: float = 0.05,
    alpha: float = 0.0,
) -> PrintedPlan:
    """Return the parameters that Algorithm 2 prints; arguments as in :func:`plan`, ``alpha`` on the scale of the mean.

    ``eta`` has sqrt(2 d epsilon) where its derivation has sqrt(2 d) epsilon: no difference at epsilon = 1.
    """
    d, n = check_count("dimension", dimension), check_count("records", records)
    across, level = (
        check_ordinary("euclidean_diameter", euclidean_diameter),
        check_ordinary("epsilon", epsilon),
    )
    side, slope = check_ordinary("diameter", diameter), check_ordinary("lipschitz", lipschitz)
    failure, odds = check_probability("delta", delta), 1 + math.log(2 / check_probability("beta", beta))
    gamma = math.sqrt(level / n * across) * d**1.25
    eta = math.sqrt(across * math.sqrt(2 * d * level) / (250 * slope**2 * d**2 * side**2 * odds * n))
    moved = printed_stability_bound(eta=eta, dimension=d, diameter=side, lipschitz=slope, alpha=alpha)
    return PrintedPlan(gamma, printed_calls(gamma, d, failure), eta, 4 * side * gamma + moved)


def opsamp(
    problem: SampledProblem,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    oracle: SampledOracle = list_grid,
    chosen: Plan | None = None,
    centred: bool = True,
    gap: float = GAP,
    beta: float = 0.05,
    oversampling: float = OVERSAMPLING,
) -> Release[FloatArray]:
    """Publish the average of oracle answers under Laplace noise (neel2019, Algorithm 2, corrected).

    Neighbours replace one record; n is public. Privacy needs no convexity; a small excess loss does.

    Parameters
    ----------
    problem : GridLosses, ScoreLosses or another SampledProblem
        Losses with declared Lipschitz constant and range [0, 1].
    epsilon, delta : float
        The guarantee.
    rng : numpy.random.Generator
        m d exponential draws and d Laplace draws are taken. Do not hand it to an oracle.
    oracle : callable
        ``oracle(problem, tilts, gap=...)``, see :class:`~.sampled_oracles.SampledOracle`; by default everything is
        listed on a grid.
    chosen : Plan, optional
        Parameters to use; by default :func:`plan` chooses them. Must be made for this problem and guarantee.
    centred : bool
        Subtract 1 / eta from the noise: allowed, since it adds the same term to all objectives, and better on average.
    gap, beta, oversampling
        For :func:`plan`.

    Returns
    -------
    Release
        A point of the box, shape (d,). Private trace: ``average``, ``points`` (m, d), ``gaps`` (m,), ``noise`` (mu),
        ``plan``.

    Raises
    ------
    TypeError, ValueError
        Impossible parameters, before any noise is drawn.
    Uncertified
        An answer is outside W, or its certified gap is above the plan's: nothing is released. Whether that happens
        depends on the data and is not covered by the guarantee; trying again with fresh noise would void it.
    """
    check_generator(rng)
    check_ordinary("epsilon", epsilon)
    check_probability("delta", delta)
    if not isinstance(problem, SampledProblem):
        raise TypeError(f"problem must be GridLosses, ScoreLosses or alike, got {type(problem).__name__}")
    if not callable(oracle):
        raise TypeError(f"oracle must be callable, got {type(oracle).__name__}")
    if oracle is list_grid and not isinstance(problem, GridLosses):
        raise TypeError(f"oracle must be given for a problem without a grid: {type(problem).__name__}")
    if not isinstance(centred, bool):
        raise TypeError(f"centred must be True or False, got {type(centred).__name__}")
    if chosen is None:
        chosen = plan_for(
            problem,
            epsilon=epsilon,
            delta=delta,
            gap=gap,
            beta=beta,
            oversampling=oversampling,
            centred=centred,
        )
    _check_plan(chosen, problem, epsilon, delta)
    tilts = rng.exponential(1 / chosen.eta, (chosen.calls, chosen.dimension))
    if centred:
        tilts -= 1 / chosen.eta
    points, gaps = _certified(problem, oracle, tilts, chosen.gap)
    average = points.mean(axis=0)
    noise = laplace(chosen.scale, chosen.dimension, rng)
    released = np.clip(average + noise, -problem.half_width, problem.half_width)
    trace = Trace(average=average, points=points, gaps=gaps, noise=noise, plan=chosen)
    return Release(released, chosen.guarantee, trace=trace)


def _check_plan(chosen: object, problem: SampledProblem, epsilon: float, delta: float) -> None:
    if not isinstance(chosen, Plan):
        raise TypeError(f"chosen must be a Plan, got {type(chosen).__name__}")
    wanted: dict[str, float] = {
        "records": problem.records,
        "dimension": problem.dimension,
        "diameter": 2 * problem.half_width,
        "lipschitz": problem.lipschitz,
        "epsilon": epsilon,
        "delta": delta,
    }
    for name, value in wanted.items():
        if getattr(chosen, name) != value:
            raise ValueError(f"chosen must have {name} = {value!r}, got {getattr(chosen, name)!r}")


def _certified(
    problem: SampledProblem, oracle: SampledOracle, tilts: FloatArray, gap: float
) -> tuple[FloatArray, FloatArray]:
    """Members of W and their gaps, all at most ``gap``. Only the lower bounds are taken from the oracle."""
    # A read-only copy, and half of the gap: the oracle rounds in another order than the evaluation below.
    frozen = tilts.copy()
    frozen.setflags(write=False)
    found = oracle(problem, frozen, gap=gap / 2)
    if not isinstance(found, Answers):
        raise TypeError(f"oracle must return Answers, got {type(found).__name__}")
    points, bounds = (
        np.asarray(found.points, dtype=np.float64),
        np.asarray(found.lower_bounds, dtype=np.float64),
    )
    if points.shape != tilts.shape or bounds.shape != (len(tilts),) or not np.isfinite(points).all():
        raise Uncertified(
            "the oracle did not answer every tilt with a point and a bound; nothing is released"
        )
    try:
        members = nearest_members(problem, points)
        values = objective(problem, members, tilts)
    except ValueError:
        members, values = points, None
    if values is None:
        raise Uncertified("the oracle answered with a point outside W; nothing is released")
    slack = rounding_error(problem, tilts)
    if (bounds > values + slack).any():
        raise ValueError("oracle returned a lower bound above the objective of its point: it is broken")
    gaps = values + slack - bounds
    if not (gaps <= gap).all():  # written so that nan is refused
        raise Uncertified(
            f"an answer has a certified gap above {gap:.3g}, the largest that the guarantee allows: nothing is "
            "released, and fresh noise must not be drawn to try again"
        )
    return members, gaps
