"""Self-concordant models beside exact computations, and Hessian-shaped noise beside its rivals.

Source: redberg2023, appendix B.3.2 and B.3.3, erratum 18. What :func:`neighbour_check`, :func:`eigenvalue_check` and
the exact profile of :func:`gaussian_pair_delta` return depends on whole data sets: for teaching, never for publication.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adaptive_dp.accounting import GaussianCurve, gaussian_delta, gaussian_sigma
from adaptive_dp.datasets import Dataset, load_adult
from adaptive_dp.datasets.adult import IYENGAR_GROUPS, NUMERIC_TOPS
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance import Objective, perturb_objective, sharp_sigma
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.eigenvalue import glm_constants
from adaptive_dp.ptr.glm import GlmCurve, calibrate_gamma, logistic_ptr, ridge_only
from adaptive_dp.ptr.selection import private_selection
from adaptive_dp.solvers import logistic_regression
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

# Trapezoidal rule for the coordinates that are integrated numerically.
REACH, NODES = 10.0, {1: 1001, 2: 161}
DOMAIN = Domain("l2", 1.0, "sign")
CONSTANTS = glm_constants(LogisticLoss(), DOMAIN)


# --- the exact profile of two Gaussians ---------------------------------------------------------------


def gaussian_pair_delta(epsilon: float, mean: ArrayLike, precisions: ArrayLike) -> float:
    """Hockey-stick divergence of N(0, I) from N(mean, diag(1 / precisions)), up to three dimensions.

    The last coordinate but those integrated numerically is done in closed form: there the privacy loss is quadratic,
    and the set where it exceeds a level is an interval or the complement of one.

    Parameters
    ----------
    epsilon : float
        Any real number.
    mean, precisions : array_like, shape (d,)
        d from 1 to 3; precisions positive.

    Returns
    -------
    float
        Exact to rounding for d = 1, to about 1e-4 of itself for d = 2 and 3. O(161^2) evaluations at most.
    """
    level = check_real("epsilon", epsilon)
    m, s = as_finite_array("mean", mean, ndim=1), as_finite_array("precisions", precisions, ndim=1)
    if m.shape != s.shape or not 1 <= m.size <= 3:
        raise ValueError(f"mean and precisions must have one shape (d,), d <= 3, got {m.shape}, {s.shape}")
    if s.min() <= 0:
        raise ValueError(f"precisions must be positive, got {s.min()!r}")
    order = np.argsort(np.abs(m))
    m, s = m[order], s[order]
    if m.size == 1:
        return float(_line_delta(np.array([level]), float(m[0]), float(s[0]))[0])
    nodes = np.linspace(-REACH, REACH, NODES[m.size - 1])
    weights = np.exp(-0.5 * nodes**2) * (nodes[1] - nodes[0]) / math.sqrt(2 * math.pi)
    losses, total = np.zeros(1), np.ones(1)
    for shift, precision in zip(m[:-1], s[:-1], strict=True):
        loss = 0.5 * (precision * (nodes - shift) ** 2 - nodes**2 - math.log(precision))
        losses = np.add.outer(losses, loss).ravel()
        total = np.multiply.outer(total, weights).ravel()
    return float(total @ _line_delta(level - losses, float(m[-1]), float(s[-1])))


def _line_delta(epsilon: FloatArray, m: float, s: float) -> FloatArray:
    """P(loss > epsilon) - e^epsilon Q(loss > epsilon) for N(0, 1) and N(m, 1 / s), elementwise; in [0, 1]."""
    a = s - 1
    if abs(a) < 1e-10:
        return gaussian_delta(epsilon, np.full_like(epsilon, abs(m)))
    # a w^2 / 2 - s m w + c > 0
    c = 0.5 * (s * m * m - math.log(s)) - epsilon
    square = (s * m) ** 2 - 2 * a * c
    root = np.sqrt(np.maximum(square, 0.0))
    # The larger root in absolute value without cancellation, the other by their product 2 c / a.
    far = (s * m + np.where(s * m >= 0, 1.0, -1.0) * root) / a
    near = np.divide(2 * c / a, far, out=np.zeros_like(far), where=far != 0)
    low, high = np.minimum(far, near), np.maximum(far, near)
    scale = math.sqrt(s)
    if a > 0:
        p = np.where(square > 0, ndtr(low) + ndtr(-high), 1.0)
        q = np.where(square > 0, ndtr(scale * (low - m)) + ndtr(-scale * (high - m)), 1.0)
    else:
        p = np.where(square > 0, _between(low, high), 0.0)
        q = np.where(square > 0, _between(scale * (low - m), scale * (high - m)), 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        found = p - np.where(q > 0, np.exp(np.minimum(epsilon, 700.0)) * q, 0.0)
    return np.asarray(np.clip(found, 0.0, 1.0))


def _between(low: FloatArray, high: FloatArray) -> FloatArray:
    return np.asarray(np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


# --- random neighbours --------------------------------------------------------------------------------


class Optimum(NamedTuple):
    """Minimiser and Hessian there, of the logistic loss of repeated rows plus the ridge."""

    theta: FloatArray
    hessian: FloatArray

    @property
    def smallest(self) -> float:
        """Smallest eigenvalue."""
        return float(np.linalg.eigvalsh(self.hessian)[0])


def optimum(features: FloatArray, labels: FloatArray, counts: FloatArray, lam: float) -> Optimum:
    """Exact optimum where row i occurs ``counts[i]`` times; no rows at all are allowed. O(n d^2) a step."""
    total, d = float(counts.sum()), features.shape[1]
    if total == 0:
        return Optimum(np.zeros(d), lam * np.eye(d))
    fit = logistic_regression(features, labels, lam / total, weights=counts, tolerance=1e-11)
    return Optimum(fit.theta, fit.hessian * total)


def random_neighbours(
    rng: np.random.Generator, *, dimension: int, crowd: float, lam: float
) -> tuple[Optimum, Optimum]:
    """Optima without and with one record more, which is often the one that hurts most.

    Parameters
    ----------
    rng : numpy.random.Generator
    dimension : int
    crowd : float
        Largest number of copies of each of up to seven random rows.
    lam : float
    """
    n = int(rng.integers(0, 8))
    features = rng.standard_normal((n, dimension))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    if rng.random() < 0.5:
        features *= rng.random((n, 1))
    labels = rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else np.ones(n)
    counts = np.floor(crowd ** rng.random(n))
    before = optimum(features, labels, counts, lam)
    if rng.random() < 0.5:  # along the weakest direction, with the label that the crowd would not give
        x = np.linalg.eigh(before.hessian)[1][:, 0]
        y = -1.0 if x @ before.theta > 0 else 1.0
    else:
        x = rng.standard_normal(dimension)
        x /= np.linalg.norm(x)
        y = float(rng.choice([-1.0, 1.0]))
    grown = (np.vstack([features, x]), np.append(labels, y), np.append(counts, 1.0))
    return before, optimum(*grown, lam)


def pair_delta(hand: Optimum, other: Optimum, *, gamma: float, epsilon: float) -> float:
    """Exact one-sided delta of N(theta*, (gamma H)^-1), ``hand`` as P; up to three dimensions."""
    factor = np.linalg.cholesky(hand.hessian)
    inverse = np.linalg.inv(factor)
    precisions, basis = np.linalg.eigh(inverse @ other.hessian @ inverse.T)
    mean = math.sqrt(gamma) * basis.T @ (factor.T @ (other.theta - hand.theta))
    return gaussian_pair_delta(epsilon, mean, precisions)


def neighbour_check(
    trials: int,
    *,
    rng: np.random.Generator,
    dimensions: Sequence[int] = (1, 2),
    deltas: Sequence[float] = (1e-6, 1e-2),
) -> pd.DataFrame:
    """Exact delta of random neighbours at the epsilon that :class:`~adaptive_dp.ptr.glm.GlmCurve` claims.

    lam from 1e-2 to 1e3, crowds of up to 1e5 copies a row; gamma from far too little noise for alpha to far too much.

    Returns
    -------
    DataFrame
        One row a pair, direction and claimed delta: ``dimension``, ``change`` ("added", "removed"), ``lam``,
        ``alpha``, ``gamma``, ``claimed``, ``epsilon``, ``exact`` (its exact delta), ``ratio`` (exact over claimed),
        ``closed`` (epsilon of the closed form). Private.
    """
    check_generator(rng)
    rows = []
    for _ in range(check_count("trials", trials)):
        d, lam = int(rng.choice(dimensions)), 10 ** rng.uniform(-2, 3)
        before, after = random_neighbours(rng, dimension=d, crowd=10 ** rng.uniform(0, 5), lam=lam)
        for change, hand, other in (("added", before, after), ("removed", after, before)):
            alpha = max(hand.smallest, lam)
            gamma = alpha * 10 ** rng.uniform(-3, 0.5)
            curve = GlmCurve(alpha, lam, gamma, CONSTANTS)
            for claimed in deltas:
                epsilon = curve.epsilon(claimed)
                exact = (
                    pair_delta(hand, other, gamma=gamma, epsilon=epsilon) if math.isfinite(epsilon) else 0.0
                )
                rows.append((d, change, lam, alpha, gamma, claimed, epsilon, exact, exact / claimed,
                             curve.closed_epsilon(claimed)))  # fmt: skip
    names = ["dimension", "change", "lam", "alpha", "gamma", "claimed", "epsilon", "exact", "ratio", "closed"]
    return pd.DataFrame(rows, columns=names)


def eigenvalue_check(
    trials: int, *, rng: np.random.Generator, dimensions: Sequence[int] = (1, 2, 3)
) -> pd.DataFrame:
    """Change of the smallest eigenvalue at the optimum when a random record is added; lam from 1e-2 to 10.

    Returns
    -------
    DataFrame
        One row an instance: ``dimension``, ``lam``, ``before``, ``after``, ``change``. Private.
    """
    check_generator(rng)
    rows = []
    for _ in range(check_count("trials", trials)):
        d, lam = int(rng.choice(dimensions)), 10 ** rng.uniform(-2, 1)
        before, after = random_neighbours(rng, dimension=d, crowd=10 ** rng.uniform(0, 3), lam=lam)
        rows.append((d, lam, before.smallest, after.smallest, after.smallest - before.smallest))
    return pd.DataFrame(rows, columns=["dimension", "lam", "before", "after", "change"])


# --- rivals on real data ------------------------------------------------------------------------------


def small_adult() -> Dataset:
    """Adult with seven distinct features instead of 104, among them a constant; public constants only, 45,220 rows.

    Groups of indicators add up to 1, so that the 104 columns leave directions that nobody moves along: the smallest
    eigenvalue of the data's Hessian is 0 there (about 2 for the 21 features of credit default) and a test of
    curvature has nothing to find. Here it is about 110 at lam = 1. All entries lie in [-1, 1] / sqrt(7).
    """
    people = load_adult(scaling="bound")

    def column(name: str, top: float = 1.0) -> FloatArray:
        active = len(IYENGAR_GROUPS) + len(NUMERIC_TOPS)
        return people.features[:, people.names.index(name)] * (math.sqrt(active) * top)

    columns = {
        "constant": np.ones(people.rows),
        "man": 2 * column("sex: Male") - 1,
        "married": 2 * column("marital_status: Married-civ-spouse") - 1,
        "education": (column("education_num", NUMERIC_TOPS["education_num"]) - 10) / 3,
        "age": (column("age", NUMERIC_TOPS["age"]) - 40) / 15,
        "hours": (column("hours_per_week", NUMERIC_TOPS["hours_per_week"]) - 40) / 10,
        "gain": np.where(column("capital_gain", NUMERIC_TOPS["capital_gain"]) > 3_000, 1.0, -1.0),
    }
    rows = np.clip(np.column_stack(list(columns.values())), -1, 1) / math.sqrt(len(columns))
    return Dataset(rows, people.labels, DOMAIN, columns, title="Adult (seven features)")


def perturb_minimiser(
    people: Dataset, *, lam: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Logistic output perturbation as in Chaudhuri et al. (2011): theta* + N(0, sigma^2 I), sensitivity L / lam.

    With the analytic Gaussian mechanism in place of their Gamma noise; lam beside the sum of the losses.
    """
    check_generator(rng)
    objective = Objective(people, LogisticLoss(), lam)
    size = glm_constants(LogisticLoss(), people.domain, dimension=people.columns).slope / objective.lam
    sigma = gaussian_sigma(epsilon, delta, size)
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=epsilon,
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        domain=people.domain,
        source="chaudhuri2011, Algorithm 1, with Gaussian noise",
        curve=GaussianCurve(size / sigma),
    )
    fit = objective.minimise()
    noise = gaussian(sigma, people.columns, rng)
    return Release(fit.theta + noise, guarantee, trace=Trace(minimiser=fit.theta, noise=noise))


def perturb_sharply(
    people: Dataset, *, lam: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    """Logistic objective perturbation with the smallest proved noise for this ``lam`` (chapter 2)."""
    loss, d = LogisticLoss(), people.columns
    sigma = sharp_sigma(
        epsilon=epsilon,
        delta=delta,
        slope=loss.lipschitz(people.domain, math.inf, dimension=d),
        curvature=loss.smoothness(people.domain, dimension=d),
        lam=lam,
    )
    return perturb_objective(people, loss, lam=lam, sigma=sigma, delta=delta, rng=rng)


def _ridge_only(
    people: Dataset, *, lam: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    return ridge_only(people, LogisticLoss(), lam=lam, epsilon=epsilon, delta=delta, rng=rng)


def _tested(
    people: Dataset, *, lam: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Release[FloatArray]:
    return logistic_ptr(people, lam=lam, epsilon=epsilon, delta=delta, rng=rng, share=0.4)


Method = Callable[..., Release[FloatArray]]
METHODS: dict[str, Method] = {
    "propose-test-release": _tested,
    "Hessian noise, no test": _ridge_only,
    "output perturbation": perturb_minimiser,
    "objective perturbation": perturb_sharply,
}


def is_possible(method: str, people: Dataset, *, lam: float, epsilon: float, delta: float) -> bool:
    """Whether ``method`` can be private at this ridge and budget for every data set at all; public.

    Hessian noise without a test needs a gamma for alpha = lam, objective perturbation log(1 + beta / lam) < epsilon.
    """
    check_choice("method", method, tuple(METHODS))
    constants = glm_constants(LogisticLoss(), people.domain, dimension=people.columns)
    if method == "Hessian noise, no test":
        gamma = calibrate_gamma(alpha=lam, lam=lam, constants=constants, epsilon=epsilon, delta=delta)
        return gamma > 0
    return method != "objective perturbation" or math.log1p(constants.curvature / lam) < epsilon


def compare_methods(
    train: Dataset,
    test: Dataset,
    *,
    epsilons: Sequence[float] = (0.5, 1.0, 2.0),
    lams: Sequence[float] = (1.0, 10.0, 100.0),
    delta: float = 1e-6,
    trials: int = 3,
    rng: np.random.Generator,
    methods: Sequence[str] = tuple(METHODS),
) -> pd.DataFrame:
    """Accuracy of private logistic regression against epsilon, for each method and each fixed ridge.

    Ridges are fixed in advance: whoever takes the best of a column has to pay for it (:func:`select_ridge`).

    Returns
    -------
    DataFrame
        ``epsilon``, ``method``, ``lam``; over the trials that released: mean ``accuracy`` on ``test``, its standard
        deviation ``spread`` and ``distance``, the mean ||theta - theta*||; ``refused``, share of refusals (1 as well
        where the method cannot be private at that ridge). Means are missing where nothing was released.
        ``attrs["accuracy"]``: without privacy, by ridge. Private.
    """
    check_generator(rng)
    tail, runs = check_probability("delta", delta), check_count("trials", trials)
    best = {float(lam): Objective(train, LogisticLoss(), lam).minimise().theta for lam in lams}
    rows = []
    for epsilon in epsilons:
        level = check_ordinary("epsilon", epsilon)
        for name in methods:
            for lam, target in best.items():
                found = []
                possible = is_possible(name, train, lam=lam, epsilon=level, delta=tail)
                for _ in range(runs if possible else 0):
                    value = METHODS[name](train, lam=lam, epsilon=level, delta=tail, rng=rng).value
                    if not isinstance(value, Refused):
                        found.append((accuracy(test, value), float(np.linalg.norm(value - target))))
                values = np.array(found) if found else np.full((1, 2), math.nan)
                mean, spread = values.mean(axis=0), values.std(axis=0)
                rows.append((level, name, lam, mean[0], spread[0], mean[1], 1 - len(found) / runs))
    names = ["epsilon", "method", "lam", "accuracy", "spread", "distance", "refused"]
    frame = pd.DataFrame(rows, columns=names)
    frame.attrs["accuracy"] = {lam: accuracy(test, theta) for lam, theta in best.items()}
    return frame


def select_ridge(
    train: Dataset,
    validation: Dataset,
    *,
    lams: Sequence[float],
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
    tau: float | None = None,
    share: float = 0.4,
) -> Release[FloatArray]:
    """Private choice of the ridge among ``lams`` by validation accuracy (redberg2023, Example B.3.8, steps 1 and 8).

    A geometric number of rounds of :func:`~adaptive_dp.ptr.glm.logistic_ptr` (about 1 / tau), each with the budget
    that makes the whole (epsilon, delta): a third of epsilon or a little less, and delta tau.

    Parameters
    ----------
    train, validation : Dataset
        The guarantee is about ``train``; ``validation`` must be public, or other people's.
    lams : sequence of float
        Public grid, positive and strictly increasing.
    epsilon, delta : float
        Total.
    rng : numpy.random.Generator
    tau : float, optional
        Chance that a round is the last; by default 1 / (2 len(lams)).
    share : float
        Of a round's epsilon for the eigenvalue.

    Returns
    -------
    Release
        theta and ``index`` of its ridge, or ``Refused``.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    chance = 0.5 / len(lams) if tau is None else check_probability("tau", tau)
    # pair_bound at delta* = tau delta: 3 epsilon* + 2 log(1 + (1 - tau) delta).
    round_epsilon = (level - 2 * math.log1p((1 - chance) * tail)) / 3 * (1 - 1e-9)
    round_delta = chance * tail * (1 - 1e-9)
    one = Guarantee(
        "ex-ante", check_positive("epsilon of a round", round_epsilon), Neighbours.ADD_REMOVE, round_delta,
        train.domain,
    )  # fmt: skip

    def run(people: Dataset, lam: float, source: np.random.Generator) -> Release[FloatArray]:
        return logistic_ptr(
            people, lam=lam, epsilon=round_epsilon, delta=round_delta, rng=source, share=share
        )

    return private_selection(
        train,
        run=run,
        proposals=[float(lam) for lam in lams],
        score=lambda theta: accuracy(validation, theta),
        guarantee=one,
        tau=chance,
        delta=tail,
        rng=rng,
    )


def accuracy(people: Dataset, theta: FloatArray) -> float:
    """Share of people whose label has the sign of x'theta."""
    return float(np.mean(people.labels * (people.features @ theta) > 0))
