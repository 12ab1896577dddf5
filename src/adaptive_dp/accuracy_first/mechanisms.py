"""One-shot mechanisms and the accuracy-first searches: CovNR, OutputNR, DoublingMethod.

Source: ligett2017, Algorithms 3, 4 and 5, Theorems 3.1 to 3.4, A.2 and A.9; errata AF-1 to AF-9.

Everything here compares replace-one neighbours and is pure (delta = 0). A search returns, besides the
hypothesis, an *ex-post* guarantee: the loss of the outcome that was seen. A search that fails returns
``Refused`` and never the exact minimiser, which the paper would publish at infinite loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.accuracy_first.above_threshold import interactive_above_threshold
from adaptive_dp.accuracy_first.calibration import (
    MOMENT_SENSITIVITY_L1,
    above_threshold_epsilon,
    check_calibration,
    default_levels,
    doubling_levels,
    doubling_test_epsilon,
    minimiser_radius,
    minimiser_sensitivity,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.levels import PrivacyLevels, as_levels
from adaptive_dp.accuracy_first.moments import MomentCoding
from adaptive_dp.accuracy_first.noise_reduction import noise_reduction
from adaptive_dp.accuracy_first.problems import Problem, RidgeProblem, check_task_of, prepare
from adaptive_dp.accuracy_first.theory import invert_theory
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.noise import laplace
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.solvers import minimise_quadratic_in_ball, project_to_ball
from adaptive_dp.validation import FloatArray, check_generator, check_ordinary, check_probability

Hypothesis = Release[FloatArray]


class RiskQuery:
    """Excess risk of one hypothesis, as the query L(theta*) - L(theta) that has to reach -alpha/2.

    The public part of an accepted query is ``theta``; the problem behind it is private (erratum AF-7g).
    The hypothesis is computed when it is asked for, and most queries fail without it: a hypothesis that is
    known to lie on the sphere is too far from theta* to be good. The answer is the same either way.
    """

    def __init__(self, noisy: FloatArray, statistic: NoisyStatistic, problem: Problem) -> None:
        self._noisy, self._statistic, self._problem = noisy, statistic, problem

    @cached_property
    def theta(self) -> FloatArray:
        """The hypothesis, shape (p,): post-processing of the noisy statistic."""
        return self._statistic.solve(self._noisy)

    def reaches(self, level: float) -> bool:
        """Whether L(theta*) - L(theta) >= level."""
        statistic, problem = self._statistic, self._problem
        if statistic.on_sphere(self._noisy) and problem.least_excess_on_sphere(statistic.radius) > -level:
            return False
        return problem.excess_at_most(self.theta, -level)

    def __repr__(self) -> str:
        return "<risk query; publish its theta if it is accepted>"


# ---------------------------------------------------------------- how noise becomes a hypothesis


@dataclass(frozen=True, eq=False)
class NoisyStatistic:
    """What a mechanism adds noise to, and how a noisy version of it becomes a hypothesis in the ball.

    Attributes
    ----------
    value : ndarray
        The exact statistic: (X'X, X'y) as a vector, or theta*. Private.
    sensitivity : float
        Its l1 sensitivity (its l2 sensitivity where the noise is Gaussian).
    solve : callable
        From a noisy statistic to a hypothesis of norm at most ``radius``; post-processing.
    on_sphere : callable
        A cheap certificate: True only if ``solve`` would return a hypothesis of norm exactly ``radius``.
    """

    value: FloatArray
    sensitivity: float
    radius: float
    solve: Callable[[FloatArray], FloatArray]
    on_sphere: Callable[[FloatArray], bool]


def covariance_statistic(
    problem: RidgeProblem, *, coding: MomentCoding, sensitivity: float, radius: float
) -> NoisyStatistic:
    """(X'X, X'y) with equation (3.1): the exact minimiser of the noisy quadratic in the ball.

    The noisy matrix may be indefinite; the minimiser then lies on the sphere and the normal equations would
    give a saddle or a maximum (erratum AF-5c).
    """
    ridge = problem.lam * np.eye(problem.columns)
    multiplier: float | None = None

    def solve(vector: FloatArray) -> FloatArray:
        nonlocal multiplier  # a warm start for the next solve: faster, and the same result up to rounding
        noisy_gram, noisy_moment = coding.decode(vector)
        minimum = minimise_quadratic_in_ball(
            noisy_gram / problem.rows + ridge, noisy_moment / problem.rows, radius, multiplier=multiplier
        )
        multiplier = minimum.multiplier
        return minimum.theta

    def on_sphere(vector: FloatArray) -> bool:
        # A negative diagonal entry makes the quadratic indefinite, and then no interior point is a minimum.
        return bool(coding.diagonal(vector).min() + problem.rows * problem.lam < 0)

    return NoisyStatistic(coding.encode(problem.gram, problem.moment), sensitivity, radius, solve, on_sphere)


def output_statistic(problem: Problem, *, sensitivity: float, radius: float) -> NoisyStatistic:
    """The exact minimiser itself; a noisy one outside the ball is projected onto it (erratum AF-1a)."""
    return NoisyStatistic(
        problem.minimiser,
        sensitivity,
        radius,
        solve=lambda vector: project_to_ball(vector, radius),
        on_sphere=lambda vector: bool(vector @ vector > radius**2),
    )


def laplace_statistic(problem: Problem, mechanism: str, calibration: str) -> NoisyStatistic:
    """The statistic of a mechanism with its l1 sensitivity, for ``"covariance"`` or ``"output"``."""
    check_task_of(problem, mechanism)
    radius = minimiser_radius(problem.task, lam=problem.lam, calibration=calibration)
    if mechanism == "output" or not isinstance(problem, RidgeProblem):
        sensitivity = minimiser_sensitivity(
            problem.task, rows=problem.rows, columns=problem.columns, lam=problem.lam, calibration=calibration
        )
        return output_statistic(problem, sensitivity=sensitivity, radius=radius)
    _check_l1_rows(problem)
    coding = MomentCoding(problem.columns, calibration)
    return covariance_statistic(problem, coding=coding, sensitivity=MOMENT_SENSITIVITY_L1, radius=radius)


def _check_l1_rows(problem: Problem) -> None:
    if problem.domain.norm != "l1":
        raise ValueError(
            f"data must declare rows of l1 norm at most 1 for covariance perturbation with Laplace noise, got "
            f"{problem.domain.describe()}; in l2 the sensitivity of X'X grows with p (erratum AF-5a)"
        )


# ---------------------------------------------------------------- one-shot mechanisms


def _one_shot(
    data: Dataset | Problem,
    mechanism: str,
    lam: float | None,
    epsilon: float,
    calibration: str,
    project: bool,
    source: str,
    rng: np.random.Generator,
) -> Hypothesis:
    check_calibration(calibration)
    level = check_ordinary("epsilon", epsilon)
    check_generator(rng)
    problem = prepare(data, lam=lam)
    statistic = laplace_statistic(problem, mechanism, calibration)
    noisy = statistic.value + laplace(statistic.sensitivity / level, statistic.value.shape, rng)
    theta = statistic.solve(noisy) if project else noisy
    guarantee = Guarantee(
        "ex-ante",
        level,
        Neighbours.REPLACE_ONE,
        domain=problem.domain,
        parts={"generate": level},
        source=source,
    )
    return Release(theta, guarantee, trace=Trace(problem=problem, excess_risk=problem.excess_risk(theta)))


def covariance_perturbation(
    data: Dataset | Problem,
    *,
    lam: float | None = None,
    epsilon: float,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """Ridge regression from (X'X, X'y) with Laplace(4/epsilon) noise on every entry.

    Epsilon-differentially private for replace-one neighbours, ||x||_1 <= 1, |y| <= 1.

    Parameters
    ----------
    data : Dataset or RidgeProblem
    lam : float
        Ridge parameter beside a mean loss; may be left out for a prepared problem.
    epsilon : float
    calibration : {"sharp", "printed"}
        Noise on the diagonal and doubled upper triangle and the ball of the sharp radius (erratum AF-5b), or
        on all p^2 entries and the printed radius (ligett2017, Theorem 3.1).
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, shape (p,), the exact minimiser of the noisy problem in the ball.
    """
    source = "ligett2017, Theorem 3.1; erratum AF-5"
    return _one_shot(data, "covariance", lam, epsilon, calibration, True, source, rng)


def output_perturbation(
    data: Dataset | Problem,
    *,
    lam: float | None = None,
    epsilon: float,
    calibration: str = "sharp",
    project: bool = False,
    rng: np.random.Generator,
) -> Hypothesis:
    """Exact minimiser plus Laplace noise, for ridge or logistic regression.

    Epsilon-differentially private for replace-one neighbours, ||x||_2 <= 1, |y| <= 1.

    Parameters
    ----------
    data : Dataset or prepared problem
    lam : float
    epsilon : float
    calibration : {"sharp", "printed"}
        Which l1 sensitivity of the minimiser (ligett2017, Lemmas A.8 and A.10; erratum AF-3a).
    project : bool
        Project onto the ball afterwards (post-processing; the utility theorems are for False).
    rng : numpy.random.Generator
    """
    source = "ligett2017, Theorems 3.3 and A.9; errata AF-3, AF-6"
    return _one_shot(data, "output", lam, epsilon, calibration, project, source, rng)


# ---------------------------------------------------------------- accuracy-first searches


def cov_nr(
    data: Dataset | Problem,
    *,
    lam: float | None = None,
    alpha: float,
    failure: float,
    epsilons: PrivacyLevels | ArrayLike | None = None,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """CovNR: the most private covariance-perturbation ridge hypothesis that is accurate enough.

    Parameters
    ----------
    data : Dataset or RidgeProblem
    lam : float
    alpha : float
        Excess risk that the analyst tolerates.
    failure : float
        gamma: a hypothesis worse than ``alpha`` is accepted with at most this probability.
    epsilons : PrivacyLevels or array_like, optional
        Strictly increasing; default: the paper's 1000 levels from 1/n to 4 E.
    calibration : {"sharp", "printed"}
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, or ``Refused``; ex-post guarantee epsilon_0 + epsilon_k (ligett2017, Algorithm 3, Theorem 3.2).
        ``trace`` holds the exact excess risk and the norm of the accepted hypothesis: private.

    Notes
    -----
    After the O(n p^2) statistics, O(p^2) a level for the test and a Cholesky factor or a few for the solve.
    """
    return _noise_reduction_search(data, "covariance", lam, alpha, failure, epsilons, calibration, rng)


def output_nr(
    data: Dataset | Problem,
    *,
    lam: float | None = None,
    alpha: float,
    failure: float,
    epsilons: PrivacyLevels | ArrayLike | None = None,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """OutputNR: the most private output-perturbation hypothesis that is accurate enough.

    Logistic regression for labels in {-1, +1} (ligett2017, Algorithm 5, Theorem 3.4), ridge regression for real
    labels (the paper's footnote 4 with Lemma A.8). Each noisy minimiser is projected onto the ball when it is
    *outside* (erratum AF-1a) and tested at -alpha/2 (erratum AF-1b). Parameters and result as :func:`cov_nr`.
    """
    return _noise_reduction_search(data, "output", lam, alpha, failure, epsilons, calibration, rng)


def _search_epsilon(problem: Problem, mechanism: str, alpha: float, calibration: str) -> float:
    return invert_theory(
        problem.task,
        mechanism,
        alpha=alpha,
        rows=problem.rows,
        columns=problem.columns,
        lam=problem.lam,
        calibration=calibration,
    )


def _noise_reduction_search(
    data: Dataset | Problem,
    mechanism: str,
    lam: float | None,
    alpha: float,
    failure: float,
    epsilons: PrivacyLevels | ArrayLike | None,
    calibration: str,
    rng: np.random.Generator,
) -> Hypothesis:
    check_calibration(calibration)
    target, gamma = check_ordinary("alpha", alpha), check_probability("failure", failure)
    check_generator(rng)
    listed = None if epsilons is None else as_levels(epsilons)
    problem = prepare(data, lam=lam)
    statistic = laplace_statistic(problem, mechanism, calibration)
    levels = listed or default_levels(
        rows=problem.rows, largest=_search_epsilon(problem, mechanism, target, calibration)
    )
    path = noise_reduction(statistic.value, sensitivity=statistic.sensitivity, epsilons=levels, rng=rng)
    return search_path(
        path.walk(),
        statistic,
        problem,
        levels,
        alpha=target,
        failure=gamma,
        calibration=calibration,
        rng=rng,
    )


def search_path(
    noisy_statistics: Iterator[FloatArray],
    statistic: NoisyStatistic,
    problem: Problem,
    levels: PrivacyLevels,
    *,
    alpha: float,
    failure: float,
    calibration: str,
    rng: np.random.Generator,
) -> Hypothesis:
    """Test hypotheses of falling noise one at a time; the common second half of every search of the chapter.

    The noisy statistics must cost ``levels[t]`` as prefixes, and ``statistic.radius`` must not exceed the
    ``minimiser_radius`` of the calibration. Each is used before the next one is drawn.
    """
    task, rows, lam = problem.task, problem.rows, problem.lam
    sensitivity = risk_query_sensitivity(task, rows=rows, lam=lam, calibration=calibration)
    epsilon = above_threshold_epsilon(
        sensitivity=sensitivity, alpha=alpha, failure=failure, levels=len(levels), calibration=calibration
    )
    outcome = interactive_above_threshold(
        (RiskQuery(noisy, statistic, problem) for noisy in noisy_statistics),
        threshold=-alpha / 2,
        sensitivity=sensitivity,
        epsilon=epsilon,
        prefix_epsilons=levels,
        rng=rng,
        domain=problem.domain,
    )
    return _hypothesis_release(outcome.value, outcome.guarantee, outcome.index, problem)


def _hypothesis_release(
    value: RiskQuery | Refused, guarantee: Guarantee, index: int | None, problem: Problem
) -> Hypothesis:
    """Publish theta alone of an accepted query, and keep for plots what must stay private."""
    if isinstance(value, Refused):
        return Release(value, guarantee, index=index, trace=Trace(problem=problem))
    theta = value.theta
    trace = Trace(problem=problem, excess_risk=problem.excess_risk(theta), norm=float(np.linalg.norm(theta)))
    return Release(theta, guarantee, index=index, trace=trace)


def doubling(
    data: Dataset | Problem,
    *,
    mechanism: str,
    lam: float | None = None,
    alpha: float,
    failure: float,
    epsilons: PrivacyLevels | ArrayLike | None = None,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """DoublingMethod: fresh hypotheses at doubled epsilons, each tested with the Laplace mechanism.

    Parameters
    ----------
    data : Dataset or prepared problem
    mechanism : {"covariance", "output"}
    lam, alpha, failure, calibration, rng
        As in :func:`cov_nr`.
    epsilons : PrivacyLevels or array_like, optional
        Default: 1/n, 2/n, 4/n, ... until 4 E is reached (errata AF-2).

    Returns
    -------
    Release
        Stopping at step k (from 1) has ex-post loss k times the test plus the sum of the first k levels
        (ligett2017, Theorem A.2; erratum AF-7f). Hypotheses are projected onto the ball (Remark A.3).
    """
    check_calibration(calibration)
    target, gamma = check_ordinary("alpha", alpha), check_probability("failure", failure)
    check_generator(rng)
    listed = None if epsilons is None else as_levels(epsilons)
    problem = prepare(data, lam=lam)
    statistic = laplace_statistic(problem, mechanism, calibration)
    levels = listed or doubling_levels(
        rows=problem.rows, largest=_search_epsilon(problem, mechanism, target, calibration)
    )
    sensitivity = risk_query_sensitivity(
        problem.task, rows=problem.rows, lam=problem.lam, calibration=calibration
    )
    each = doubling_test_epsilon(
        sensitivity=sensitivity, alpha=target, failure=gamma, levels=len(levels), calibration=calibration
    )
    spent = 0.0
    for step, epsilon in enumerate(levels, start=1):
        noisy = statistic.value + laplace(statistic.sensitivity / epsilon, statistic.value.shape, rng)
        query = RiskQuery(noisy, statistic, problem)
        spent += epsilon
        if query.reaches(-target / 2 - float(laplace(sensitivity / each, (), rng))):
            return _hypothesis_release(
                query, _doubling_guarantee(step, each, spent, problem), step - 1, problem
            )
    refusal = Refused(f"none of the {len(levels)} hypotheses reached the threshold")
    return _hypothesis_release(refusal, _doubling_guarantee(len(levels), each, spent, problem), None, problem)


def _doubling_guarantee(steps: int, each: float, spent: float, problem: Problem) -> Guarantee:
    return Guarantee(
        "ex-post",
        steps * each + spent,
        Neighbours.REPLACE_ONE,
        domain=problem.domain,
        parts={"test": steps * each, "generate": spent},
        source="ligett2017, Algorithm 4 and Theorem A.2; erratum AF-7f",
    )


def theory_inversion(
    data: Dataset | Problem,
    *,
    mechanism: str,
    lam: float | None = None,
    alpha: float,
    failure: float | None = None,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """Run a one-shot mechanism once, at the epsilon at which its utility theorem promises ``alpha``.

    The promise is in expectation; with ``failure`` it holds with probability 1 - failure, by Markov's inequality
    for the nonnegative excess risk (an expected excess of alpha * failure). Source: ligett2017, Section 4.
    """
    check_calibration(calibration)
    target = check_ordinary("alpha", alpha)
    if failure is not None:
        target *= check_probability("failure", failure)
    check_generator(rng)
    problem = prepare(data, lam=lam)
    check_task_of(problem, mechanism)
    epsilon = _search_epsilon(problem, mechanism, target, calibration)
    run = covariance_perturbation if mechanism == "covariance" else output_perturbation
    return run(problem, epsilon=epsilon, calibration=calibration, rng=rng)
