"""Chapter 1 against straightforward baselines: ratios of processor times within one run.

usage: python -m benchmarks.accuracy_first [--quick] [--record [FILE]]

A ratio says how many times longer the baseline takes. Building the data and the problem, which is done once for
many trials, is part of no ratio. One BLAS thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from adaptive_dp.accuracy_first import (
    GeometricLevels,
    LogisticProblem,
    RidgeProblem,
    above_threshold_epsilon,
    cov_nr,
    default_levels,
    invert_theory,
    noise_reduction,
    output_nr,
    prepare,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.experiment import warm
from adaptive_dp.accuracy_first.mechanisms import laplace_statistic
from adaptive_dp.accuracy_first.moments import MomentCoding
from adaptive_dp.accuracy_first.problems import Problem
from adaptive_dp.datasets import Dataset, load_census_income, simulate_buzz
from adaptive_dp.solvers import (
    minimise_quadratic_in_ball,
    minimise_quadratic_in_ball_eigen,
    project_to_ball,
)
from adaptive_dp.validation import FloatArray
from benchmarks.timing import HEADING, Comparison, compare, peak_mebibytes, run, seconds_of

SEED = 20261
MECHANISM = {"ridge": "covariance", "logistic": "output"}
CALIBRATIONS = ("sharp", "printed")
ALPHAS = (0.05, 0.075, 0.1)
Risk = Callable[[FloatArray], float]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Setting:
    """What is run: sizes, and the parameters of the paper's Section 4."""

    rows: int = 100_000
    levels: int = 1_000
    many_levels: int = 1_000_000
    sample: int = 25
    repetitions: int = 9
    block: float = 0.05
    lam: float = 0.005
    alpha: float = 0.05
    failure: float = 0.1


QUICK = Setting(rows=2_000, levels=40, many_levels=10_000, sample=3, repetitions=2, block=0.001)


@dataclass(frozen=True, eq=False)
class Case:
    """A data set and the problem it poses; the library uses the problem alone, a baseline the rows too."""

    data: Dataset
    problem: Problem


# ---------------------------------------------------------------- baselines


def step_by_step(
    value: FloatArray, *, sensitivity: float, epsilons: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """NoiseReduction as printed, a coin for each coordinate and level; shape (T, k), most private first."""
    values = np.empty((epsilons.size, value.size))
    values[-1] = value + rng.laplace(scale=sensitivity / epsilons[-1], size=value.size)
    for level in range(epsilons.size - 2, -1, -1):
        keep = rng.random(value.size) < (epsilons[level] / epsilons[level + 1]) ** 2
        noise = rng.laplace(scale=sensitivity / epsilons[level], size=value.size)
        values[level] = np.where(keep, values[level + 1], values[level + 1] + noise)
    return values


def risk_over_rows(case: Case) -> Risk:
    """Excess risk as it is defined: a pass over all rows for each hypothesis."""
    features, labels, lam = case.data.features, case.data.labels, case.problem.lam

    def risk(theta: FloatArray) -> float:
        prediction = features @ theta
        if case.problem.task == "ridge":
            losses = (labels - prediction) ** 2 / 2
        else:
            margin = labels * prediction
            losses = np.log1p(np.exp(-np.abs(margin))) - np.minimum(margin, 0)
        return float(losses.mean() + lam / 2 * (theta @ theta))

    least = risk(case.problem.minimiser)
    return lambda theta: risk(theta) - least


def first_above_threshold(
    hypotheses: Iterable[FloatArray],
    excess: Risk,
    *,
    alpha: float,
    sensitivity: float,
    epsilon: float,
    rng: np.random.Generator,
) -> tuple[int, FloatArray] | None:
    """InteractiveAboveThreshold as printed: the excess risk of each hypothesis until a noisy one is small."""
    threshold = -alpha / 2 + rng.laplace(scale=2 * sensitivity / epsilon)
    for index, theta in enumerate(hypotheses):
        if -excess(theta) + rng.laplace(scale=4 * sensitivity / epsilon) >= threshold:
            return index, theta
    return None


def hypotheses_of(noisy: FloatArray, problem: Problem, calibration: str) -> Iterator[FloatArray]:
    """Every noisy statistic, shape (T, k), as a hypothesis in the ball: by eigendecomposition or projection."""
    radius = laplace_statistic(problem, MECHANISM[problem.task], calibration).radius
    coding = MomentCoding(problem.columns, calibration)
    for vector in noisy:
        if problem.task == "ridge":
            gram, moment = coding.decode(vector)
            matrix = gram / problem.rows + problem.lam * np.eye(problem.columns)
            yield minimise_quadratic_in_ball_eigen(matrix, moment / problem.rows, radius).theta
        else:
            yield project_to_ball(vector, radius)


def straightforward_trial(
    case: Case, setting: Setting, *, calibration: str, rng: np.random.Generator
) -> tuple[int, FloatArray] | None:
    """CovNR or OutputNR with neither shortcut nor bound: the accepted level and hypothesis, or None."""
    problem = case.problem
    levels = levels_of(problem, setting, calibration)
    statistic = laplace_statistic(problem, MECHANISM[problem.task], calibration)
    noisy = step_by_step(
        statistic.value, sensitivity=statistic.sensitivity, epsilons=np.array(list(levels)), rng=rng
    )
    hypotheses = list(hypotheses_of(noisy, problem, calibration))  # all of them, before the first test
    return first_above_threshold(
        hypotheses,
        risk_over_rows(case),
        alpha=setting.alpha,
        rng=rng,
        **query_parameters(problem, setting, calibration),
    )


def levels_of(problem: Problem, setting: Setting, calibration: str) -> GeometricLevels:
    """The paper's grid of privacy levels, as the library builds it."""
    largest = invert_theory(
        problem.task,
        MECHANISM[problem.task],
        alpha=setting.alpha,
        rows=problem.rows,
        columns=problem.columns,
        lam=problem.lam,
        calibration=calibration,
    )
    return default_levels(rows=problem.rows, largest=largest, count=setting.levels)


def query_parameters(problem: Problem, setting: Setting, calibration: str) -> dict[str, float]:
    """Sensitivity and privacy loss of the test, as the library chooses them."""
    sensitivity = risk_query_sensitivity(
        problem.task, rows=problem.rows, lam=problem.lam, calibration=calibration
    )
    epsilon = above_threshold_epsilon(
        sensitivity=sensitivity,
        alpha=setting.alpha,
        failure=setting.failure,
        levels=setting.levels,
        calibration=calibration,
    )
    return {"sensitivity": sensitivity, "epsilon": epsilon}


def library_trial(case: Case, setting: Setting, *, calibration: str, rng: np.random.Generator) -> object:
    """The same trial by the library."""
    search = cov_nr if case.problem.task == "ridge" else output_nr
    return search(
        case.problem,
        alpha=setting.alpha,
        failure=setting.failure,
        epsilons=levels_of(case.problem, setting, calibration),
        calibration=calibration,
        rng=rng,
    )


# ---------------------------------------------------------------- comparisons


def noise_paths(ridge: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """The noise of 77 x 77 + 77 = 6006 coordinates."""
    statistic = laplace_statistic(ridge.problem, "covariance", "printed")
    levels = levels_of(ridge.problem, setting, "printed")
    listed = np.array(list(levels))
    many = replace(levels, count=setting.many_levels)
    value, delta = statistic.value, statistic.sensitivity

    def draw(grid: GeometricLevels, walk: bool = False) -> None:
        path = noise_reduction(value, sensitivity=delta, epsilons=grid, rng=rng)
        for _ in path.walk() if walk else ():
            pass

    versus = partial(compare, repetitions=setting.repetitions, block=setting.block)
    yield versus(
        f"noise of {value.size} coordinates: many levels against few",
        (f"T = {setting.levels:,}", lambda: draw(levels)),
        (f"T = {setting.many_levels:,}", lambda: draw(many)),
    )
    yield versus(
        f"noise of {value.size} coordinates, drawn and walked through, T = {setting.levels:,}",
        ("by moves", lambda: draw(levels, walk=True)),
        (
            "step by step as printed",
            lambda: step_by_step(value, sensitivity=delta, epsilons=listed, rng=rng),
        ),
    )


def ridge_risk(ridge: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """One excess risk."""
    theta = ridge.problem.minimiser + rng.normal(size=ridge.problem.columns)
    over_rows = risk_over_rows(ridge)
    yield compare(
        f"one ridge risk query, n = {ridge.problem.rows:,}, p = {ridge.problem.columns}",
        ("quadratic form", lambda: ridge.problem.excess_risk(theta)),
        ("residuals of all rows", lambda: over_rows(theta)),
        repetitions=setting.repetitions,
        block=setting.block,
    )


@dataclass(frozen=True, eq=False)
class BallProblem:
    """A noisy quadratic of a search, and the multiplier that the search found one level before."""

    matrix: FloatArray
    vector: FloatArray
    radius: float
    multiplier: float

    @property
    def definite(self) -> bool:
        """Whether all eigenvalues are positive."""
        return bool(np.linalg.eigvalsh(self.matrix)[0] > 0)


def ball_problems(problem: RidgeProblem, setting: Setting, rng: np.random.Generator) -> list[BallProblem]:
    """Noisy quadratics along one path that a search cannot settle by the sign of the diagonal."""
    statistic = laplace_statistic(problem, "covariance", "sharp")
    coding, levels = MomentCoding(problem.columns, "sharp"), levels_of(problem, setting, "sharp")
    path = noise_reduction(statistic.value, sensitivity=statistic.sensitivity, epsilons=levels, rng=rng)
    found: list[BallProblem] = []
    multiplier: float | None = None
    for vector in path.walk():
        if statistic.on_sphere(vector):
            continue
        gram, moment = coding.decode(vector)
        matrix = gram / problem.rows + problem.lam * np.eye(problem.columns)
        if multiplier is not None:
            found.append(BallProblem(matrix, moment / problem.rows, statistic.radius, multiplier))
        minimum = minimise_quadratic_in_ball(matrix, moment / problem.rows, statistic.radius)
        multiplier = minimum.multiplier
    return found


def ball_solvers(ridge: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """The exact minimiser of a noisy quadratic in a ball."""
    assert isinstance(ridge.problem, RidgeProblem)
    problems = ball_problems(ridge.problem, setting, rng)
    for kind in ("indefinite", "definite"):
        chosen = thin([each for each in problems if each.definite == (kind == "definite")], setting.sample)

        def cold(chosen: list[BallProblem] = chosen) -> None:
            for each in chosen:
                minimise_quadratic_in_ball(each.matrix, each.vector, each.radius)

        def started(chosen: list[BallProblem] = chosen) -> None:
            for each in chosen:
                minimise_quadratic_in_ball(each.matrix, each.vector, each.radius, multiplier=each.multiplier)

        def eigen(chosen: list[BallProblem] = chosen) -> None:
            for each in chosen:
                minimise_quadratic_in_ball_eigen(each.matrix, each.vector, each.radius)

        for start, solve in (("cold", cold), ("warm", started)):
            yield compare(
                f"{len(chosen)} {kind} quadratics in a ball, p = {ridge.problem.columns}, {start} start",
                ("Cholesky and secular equation", solve),
                ("eigendecomposition", eigen),
                repetitions=setting.repetitions,
                block=setting.block,
            )


def risk_decisions(
    problem: LogisticProblem, setting: Setting, calibration: str, rng: np.random.Generator
) -> list[tuple[FloatArray, float]]:
    """(hypothesis, level of excess risk) of each query of one search that asks more than for a norm."""
    statistic = laplace_statistic(problem, "output", calibration)
    levels = levels_of(problem, setting, calibration)
    path = noise_reduction(statistic.value, sensitivity=statistic.sensitivity, epsilons=levels, rng=rng)
    test = query_parameters(problem, setting, calibration)
    unit = test["sensitivity"] / test["epsilon"]
    threshold = -setting.alpha / 2 + rng.laplace(scale=2 * unit)
    asked: list[tuple[FloatArray, float]] = []
    for vector in path.walk():
        theta, level = statistic.solve(vector), rng.laplace(scale=4 * unit) - threshold
        if statistic.on_sphere(vector) and problem.least_excess_on_sphere(statistic.radius) > level:
            continue
        asked.append((theta, level))
        if problem.excess_at_most(theta, level):
            break
    return asked


def logistic_decisions(logistic: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Whether an excess risk is small enough, along a search."""
    problem = logistic.problem
    assert isinstance(problem, LogisticProblem)
    for calibration in CALIBRATIONS:
        queries = risk_decisions(problem, setting, calibration, rng)
        chosen = thin(queries, 4 * setting.sample)

        def decide(chosen: list[tuple[FloatArray, float]] = chosen) -> list[bool]:
            return [problem.excess_at_most(theta, level) for theta, level in chosen]

        def evaluate(chosen: list[tuple[FloatArray, float]] = chosen) -> list[bool]:
            return [problem.excess_risk(theta) <= level for theta, level in chosen]

        if decide() != evaluate():
            raise AssertionError("bounds and exact risks must decide alike")
        yield compare(
            f"{len(chosen)} of the {len(queries)} logistic risk decisions of a search, {calibration}",
            ("bounds, then single precision", decide),
            ("exact risk, distinct rows", evaluate),
            repetitions=setting.repetitions,
            block=setting.block,
        )


def whole_trials(case: Case, setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """A whole search: noise, hypotheses and tests."""
    name = {"ridge": "CovNR", "logistic": "OutputNR"}[case.problem.task]
    for calibration in CALIBRATIONS:

        def library(calibration: str = calibration) -> object:
            return library_trial(case, setting, calibration=calibration, rng=rng)

        def baseline(calibration: str = calibration) -> object:
            return straightforward_trial(case, setting, calibration=calibration, rng=rng)

        yield compare(
            f"a whole {name} trial, n = {case.problem.rows:,}, alpha = {setting.alpha:g}, {calibration}",
            ("library", library),
            ("straightforward", baseline),
            repetitions=setting.repetitions,
            block=setting.block,
            against_once=True,
        )


def thin(items: list[Item], count: int) -> list[Item]:
    """At most ``count`` items, evenly spaced, the first and the last among them."""
    if not items:
        raise ValueError("items must not be empty")
    keep = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[index] for index in keep]


# ---------------------------------------------------------------- running it


def build(name: str, load: Callable[[], Dataset], lam: float) -> Case:
    """Load data and prepare the problem; print the processor time of each."""
    start = time.process_time()
    data = load()
    loaded = time.process_time()
    problem = warm(prepare(data, lam=lam))
    done = time.process_time()
    print(
        f"{name}, {data.rows:,} x {data.columns}: data {loaded - start:.2f} s, problem {done - loaded:.2f} s"
    )
    return Case(data, problem)


def show_trials(case: Case, setting: Setting, rng: np.random.Generator) -> None:
    """Print absolute times of library trials, means over the repetitions, for information."""
    for calibration in CALIBRATIONS:
        times = []
        for alpha in ALPHAS:
            trial = partial(
                library_trial, case, replace(setting, alpha=alpha), calibration=calibration, rng=rng
            )
            times.append(f"{1e3 * seconds_of(trial, setting.repetitions):.0f} ms at alpha {alpha:g}")
        print(f"a {case.problem.task} trial, {calibration}: {', '.join(times)}")


def comparisons(
    ridge: Case, logistic: Case, setting: Setting, rng: np.random.Generator
) -> Iterator[Comparison]:
    """Everything that is compared, in turn."""
    yield from noise_paths(ridge, setting, rng)
    yield from ridge_risk(ridge, setting, rng)
    yield from ball_solvers(ridge, setting, rng)
    yield from logistic_decisions(logistic, setting, rng)
    yield from whole_trials(ridge, setting, rng)
    yield from whole_trials(logistic, setting, rng)


def work(setting: Setting, rng: np.random.Generator) -> Iterator[Comparison]:
    """Times and memory for information, then everything that is compared."""
    print("For information, processor times on this machine:")
    ridge = build("Buzz-like", lambda: simulate_buzz(setting.rows, rng=rng), setting.lam)
    logistic = build("Census-Income", lambda: load_census_income(setting.rows), setting.lam)
    for case in (ridge, logistic):
        show_trials(case, setting, rng)
    print(f"peak memory so far, without any baseline: {peak_mebibytes():.0f} MiB\n")
    print(HEADING)
    yield from comparisons(ridge, logistic, setting, rng)
    print(f"\npeak memory with the baselines: {peak_mebibytes():.0f} MiB")


def main(arguments: list[str] | None = None) -> int:
    """Run all comparisons and print them; ``--record`` keeps the ratios."""
    return run("accuracy_first", __doc__, work, full=Setting(), quick=QUICK, seed=SEED, arguments=arguments)


if __name__ == "__main__":
    sys.exit(main())
