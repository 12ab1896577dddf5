"""Figure 1 of neel2019: discrete objective perturbation against private logistic regression on balanced Adult.

15,682 records, 23 columns (:func:`~adaptive_dp.datasets.load_adult`, two readings of what the paper does not name),
delta = 1 / n^2, neighbours replace one record. Features are rounded to multiples of 1/1000, for everybody; a
record on the plane is an error; accuracy is measured on the records that were learned from, as in the paper. The
contenders:

``OPDisc, ...``
    Integer halfspaces of norm at most sqrt d with norm-exponential noise (pure epsilon), the smallest Gaussian noise
    that is proved, and the Gaussian noise that Algorithm 1 prints, whose delta is not proved at this dimension.
``RSPM, ...``
    {-1, 0, 1}^d with Laplace or box noise (pure epsilon), the smallest proved Gaussian noise, and the printed one.
``Simplex``
    The space of OPDisc with the simplex noise of this page, which is not in the paper (pure epsilon).
``LR, ...``
    Private logistic regression: descent of 50 steps with fixed settings; descent whose settings are the best of a grid
    on the same records, which **nobody pays for**; DP-SGD of the paper's kind with fixed settings and with such a grid,
    both counted under **add/remove**, as the paper's library counts; and objective perturbation of the first page,
    nothing tuned, sound for replacing a record.

Every discrete answer is certified: its gap is below the one that the guarantee allows. At one repetition all contenders
start from the same random numbers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from adaptive_dp.datasets import Dataset, load_adult
from adaptive_dp.datasets.adult import NEEL_NUMERIC
from adaptive_dp.experiments import product, profile_settings, sweep
from adaptive_dp.objective_perturbation.sampled_gaussian import noise_multiplier
from adaptive_dp.oracle_perturbation.branch_and_bound import BranchAndBound
from adaptive_dp.oracle_perturbation.opdisc import opdisc
from adaptive_dp.oracle_perturbation.private_regression import (
    Descent,
    Minibatch,
    accuracy,
    averaged_dp_sgd,
    noisy_descent,
    objective_perturbation_replace_one,
)
from adaptive_dp.oracle_perturbation.problems import (
    GridCosts,
    Oracle,
    Solution,
    ThresholdProblem,
    integer_features,
)
from adaptive_dp.oracle_perturbation.rspm import rspm
from adaptive_dp.oracle_perturbation.simplex import simplex_perturbation
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.privacy import Refused, Release
from adaptive_dp.validation import check_choice, check_count, check_positive

EPSILONS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
RUNS = 15
GRID = 1000
COLUMNS = tuple(NEEL_NUMERIC)
# Names of the contenders, and the noise of the discrete ones.
OPDISC = {"OPDisc, norm": "norm", "OPDisc, Gaussian": "gaussian", "OPDisc, printed": "printed"}
RSPM = {
    "RSPM, Laplace": "laplace",
    "RSPM, box": "box",
    "RSPM, Gaussian": "gaussian",
    "RSPM, printed": "printed",
}
SIMPLEX = "Simplex"
DISCRETE = (*OPDISC, *RSPM, SIMPLEX)
PURE = ("norm", "laplace", "box")
SHORT, TUNED, SGD, SGD_TUNED, OBJECTIVE = (
    f"LR, {what}" for what in ("50 steps", "descent, tuned", "DP-SGD", "DP-SGD, tuned", "objective pert.")
)
REGRESSIONS = (SHORT, TUNED, SGD, SGD_TUNED, OBJECTIVE)
LEARNERS = (TUNED, SGD_TUNED)
METHODS = (*DISCRETE, *REGRESSIONS)
FIXED: dict[str, Descent | Minibatch] = {
    SHORT: Descent(clip=1.0, steps=50, rate=4.0),
    SGD: Minibatch(clip=1.0, batch=256, epochs=5, rate=0.5),
}
FEWEST_ROWS = 50
# Weak enough a ridge that it no longer shows in the accuracy.
INVERSE_RIDGE = 1000.0

Settings = Descent | Minibatch
Tuned = Mapping[tuple[str, float], Settings]


def adult_settings(profile: str) -> dict[str, Any]:
    """Arguments of :func:`adult_runs` at a profile: ``"quick"``, ``"book"`` (some seconds), ``"paper"`` (minutes)."""
    live = ("OPDisc, norm", "RSPM, box", SIMPLEX, SHORT, OBJECTIVE)
    return profile_settings(
        profile,
        quick={"columns": "code", "rows": 500, "epsilons": (1.0,), "methods": live, "runs": 2},
        book={"columns": "code", "rows": None, "epsilons": (0.25, 1.0, 8.0), "methods": live, "runs": 3},
        paper={"columns": "code", "rows": None, "epsilons": EPSILONS, "methods": METHODS, "runs": RUNS},
    )


# --- what is learned from ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Arena:
    """The records in the shape that each kind of learner wants, and oracles that were prepared for them.

    Parameters
    ----------
    halfspaces, signs : ThresholdProblem
        Rows in units of 1/1000; the spaces of OPDisc and of RSPM.
    plain : Dataset
        The same rows, entries in [0, 1].
    unit : Dataset
        The same rows, each divided by its norm; the sides of planes through the origin do not change.
    solvers : mapping
        The oracle of each problem, by ``"halfspaces"`` and ``"signs"``.
    """

    halfspaces: ThresholdProblem
    signs: ThresholdProblem
    plain: Dataset
    unit: Dataset
    solvers: Mapping[str, Oracle]

    @property
    def delta(self) -> float:
        """1 / n^2, n public."""
        return 1.0 / self.plain.rows**2


def make_arena(columns: str, rows: int | None, seed: int) -> Arena:
    """Balanced Adult, or a random subset of ``rows`` records of it."""
    check_choice("columns", columns, COLUMNS)
    full = load_adult("neel", columns=columns, scaling="none", norm="l2")
    people = full if rows is None else full.subsample(rows, np.random.default_rng(seed))
    grid = integer_features(people.features, GRID)
    plain = Dataset(grid / GRID, people.labels, people.domain, people.names, people.title)
    lengths = np.linalg.norm(plain.features, axis=1, keepdims=True)
    unit_domain = load_adult("neel", columns=columns, norm="l2").domain
    unit = Dataset(plain.features / lengths, people.labels, unit_domain, people.names, people.title)
    labels, dimension = people.labels.astype(np.int8), grid.shape[1]
    problems = {
        "halfspaces": ThresholdProblem(grid, labels, IntegerBall.halfspaces(dimension)),
        "signs": ThresholdProblem(grid, labels, IntegerBall.signs(dimension)),
    }
    solvers = {name: BranchAndBound(problem) for name, problem in problems.items()}
    return Arena(problems["halfspaces"], problems["signs"], plain, unit, solvers)


@functools.lru_cache(maxsize=1)
def prepared_arena(columns: str, rows: int | None, seed: int) -> Arena:
    """One at a time is kept in a worker. A first question is asked here: it compiles or loads the oracle's code."""
    arena = make_arena(columns, rows, seed)
    for name, problem in (("halfspaces", arena.halfspaces), ("signs", arena.signs)):
        arena.solvers[name](problem, no_costs(problem.space))
    return arena


def no_costs(space: IntegerBall) -> GridCosts:
    """Costs of nothing: the oracle's problem without noise."""
    return GridCosts(np.zeros((space.dimension, 2 * space.box + 1)), np.zeros(space.squared_radius + 1))


def reference_accuracies(arena: Arena) -> dict[str, float]:
    """What needs no noise: accuracy of logistic regression, and of the best member of each discrete space.

    Returns
    -------
    dict
        ``regression``, ``halfspaces``, ``signs``. Not private. The last two are certified optima.
    """
    X, y = arena.plain.features, arena.plain.labels
    model = LogisticRegression(C=INVERSE_RIDGE, fit_intercept=False, max_iter=5_000).fit(X, y)
    found = {"regression": float(accuracy(model.coef_[0], X, y))}
    for name, problem in (("halfspaces", arena.halfspaces), ("signs", arena.signs)):
        solution = arena.solvers[name](problem, no_costs(problem.space))
        if solution.gap >= 0.5:  # errors are whole numbers
            raise RuntimeError(f"the best member of {name} was not certified")
        found[name] = float(problem.accuracy(solution.point))
    return found


# --- one run -------------------------------------------------------------------------------------------


class Watched:
    """An oracle whose last answer and its time are kept."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.solution: Solution | None = None
        self.seconds = float("nan")

    def __call__(self, problem: ThresholdProblem, costs: GridCosts, /) -> Solution:
        """Ask the oracle and look at the processor's clock, which waits while others have the machine."""
        start = time.process_time()
        self.solution = self.oracle(problem, costs)
        self.seconds = time.process_time() - start
        return self.solution


def run_adult(
    rng: np.random.Generator,
    *,
    columns: str,
    rows: int | None,
    subset_seed: int,
    tuned: Tuned,
    method: str,
    epsilon: float,
) -> dict[str, float]:
    """One run of one contender.

    Returns
    -------
    dict
        ``accuracy`` (on the records), ``seconds`` (of the processor: the oracle's, or those of learning), ``gap`` and
        ``nodes`` of the oracle (nan for logistic regression), ``delta`` (what the release guarantees at ``epsilon``,
        which for printed noise is what is proved).
    """
    arena = prepared_arena(columns, rows, subset_seed)
    if check_choice("method", method, METHODS) in REGRESSIONS:
        return _regression(method, arena, epsilon, tuned, rng)
    return _discrete(method, arena, epsilon, rng)


def _discrete(method: str, arena: Arena, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
    problem, name = (arena.signs, "signs") if method in RSPM else (arena.halfspaces, "halfspaces")
    watched = Watched(arena.solvers[name])
    if method == SIMPLEX:
        release = simplex_perturbation(problem, epsilon=epsilon, oracle=watched, rng=rng)
    else:
        noise = (OPDISC | RSPM)[method]
        delta = None if noise in PURE else arena.delta
        mechanism = opdisc if method in OPDISC else rspm
        release = mechanism(problem, epsilon=epsilon, delta=delta, noise=noise, oracle=watched, rng=rng)
    if watched.solution is None:
        raise RuntimeError("the mechanism answered without asking its oracle")
    return {
        "accuracy": float(problem.accuracy(_value(release))),
        "seconds": watched.seconds,
        "gap": watched.solution.gap,
        "nodes": float(watched.solution.nodes),
        "delta": release.guarantee.delta,
    }


def _regression(
    method: str, arena: Arena, epsilon: float, tuned: Tuned, rng: np.random.Generator
) -> dict[str, float]:
    data = arena.unit if method == OBJECTIVE else arena.plain
    common: dict[str, Any] = {"epsilon": epsilon, "delta": arena.delta, "rng": rng}
    settings = FIXED.get(method) or tuned.get((method, epsilon))
    if isinstance(settings, Minibatch):
        # Kept by its cache, so that the time of the calibration does not count as time of learning.
        schedule = settings.schedule(data.rows)
        noise_multiplier(epsilon=epsilon, delta=arena.delta, sampling=schedule.sampling, steps=schedule.steps)
    start = time.process_time()
    if method == OBJECTIVE:
        release = objective_perturbation_replace_one(data, **common)
    elif isinstance(settings, Descent):
        release = noisy_descent(data, settings=settings, **common)
    elif isinstance(settings, Minibatch):
        release = averaged_dp_sgd(data, settings=settings, **common)
    else:
        raise ValueError(f"tuned must hold settings of {method!r} at epsilon {epsilon!r}")
    seconds = time.process_time() - start
    return {
        "accuracy": float(accuracy(_value(release), data.features, data.labels)),
        "seconds": seconds,
        "gap": float("nan"),
        "nodes": float("nan"),
        "delta": release.guarantee.delta,
    }


def _value(release: Release[NDArray[Any]]) -> NDArray[Any]:
    """What was released; these mechanisms never refuse."""
    if isinstance(release.value, Refused):
        raise RuntimeError(f"nothing was released: {release.value.reason}")
    return release.value


# --- the figure ----------------------------------------------------------------------------------------


def adult_runs(
    columns: str,
    *,
    epsilons: Sequence[float] = EPSILONS,
    methods: Sequence[str] = METHODS,
    runs: int = RUNS,
    seed: int = 2026,
    tuned: Tuned | None = None,
    jobs: int | None = None,
    rows: int | None = None,
    results: str | Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """All runs of Figure 1 for one set of columns.

    Parameters
    ----------
    columns : {"code", "regression"}
        See :func:`~adaptive_dp.datasets.load_adult`.
    epsilons : sequence of float
    methods : sequence of str
        Of :data:`METHODS`.
    runs : int
        Per method and epsilon.
    seed : int
    tuned : mapping, optional
        Settings of the tuned learners, by method and epsilon: :func:`~.adult_grids.tuned_settings`.
    jobs : int, optional
    rows : int, optional
        Learn from a random subset of so many records; all of them by default.
    results : path, optional
        File of finished runs, to resume.
    progress : bool, optional

    Returns
    -------
    DataFrame
        One row a run: ``method``, ``epsilon``, ``repetition``, and what :func:`run_adult` returns. ``attrs``:
        ``task_seconds``.

    Raises
    ------
    TypeError, ValueError
        An argument out of range, before anything is run.
    RuntimeError
        A run failed, for instance as its oracle could not certify its answer.
    """
    listed, levels = _listed("methods", methods), check_levels(epsilons)
    settings = dict(tuned or {})
    for method in listed:
        check_choice("methods", method, METHODS)
        missing = [level for level in levels if method in LEARNERS and (method, level) not in settings]
        if missing:
            raise ValueError(f"tuned must hold settings of {method!r} at epsilon {missing[0]!r}")
    shared = {**study_of(columns, rows, seed), "tuned": settings}
    return sweep(
        run_adult,
        product(method=listed, epsilon=levels),
        seed=seed,
        repetitions=check_count("runs", runs),
        shared=shared,
        paired=["method"],
        n_jobs=jobs,
        results=results,
        recipe="OPDisc, RSPM and private logistic regression on Adult, version 1",
        progress=progress,
        description=columns,
    )


def study_of(columns: str, rows: int | None, seed: int) -> dict[str, Any]:
    """Checked arguments that all runs of a study share."""
    check_choice("columns", columns, COLUMNS)
    if rows is not None and not FEWEST_ROWS <= check_count("rows", rows) <= 15_682:
        raise ValueError(f"rows must lie between {FEWEST_ROWS} and 15682, got {rows}")
    return {"columns": columns, "rows": rows, "subset_seed": check_count("seed", seed, minimum=0)}


def check_levels(epsilons: object) -> list[float]:
    """Return a list of positive epsilons."""
    return [check_positive("epsilons", epsilon) for epsilon in _listed("epsilons", epsilons)]


def _listed(name: str, values: object) -> list[Any]:
    """Return ``values`` as a list, or refuse a single one."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, got {type(values).__name__}: {values!r}")
    return list(values)
