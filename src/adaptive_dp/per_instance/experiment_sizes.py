"""Sweeps of the chapter: a larger ridge, the number of people and of features, and how often reports hold.

Source: redberg2023, Figures 2.1, A.1 and A.2; errata 1 and 5 to 8. See :mod:`adaptive_dp.per_instance.experiment` for
the comparison itself. Every sweep is seeded and gives the same numbers with any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp import goe
from adaptive_dp.accounting import gaussian_sigma
from adaptive_dp.datasets import Dataset, simulate_unit_rows
from adaptive_dp.experiments import product, proportion_interval, summarise, sweep
from adaptive_dp.losses import LogisticLoss, Loss
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.bounds import Scope
from adaptive_dp.per_instance.calibration import kifer_calibration
from adaptive_dp.per_instance.ex_post import losses_of_members, losses_of_outsiders
from adaptive_dp.per_instance.experiment import Budget, LamRule, compare_reports, training_error
from adaptive_dp.per_instance.objective import Objective
from adaptive_dp.per_instance.report import (
    PrivacyReport,
    adaptive_report,
    data_dependent_report,
    data_independent_report,
)
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_positive, check_probability

# ---------------------------------------------------------------- Figure 2.1


def required_inflation(
    *,
    epsilon: float,
    delta: float,
    rho: float,
    dimension: int,
    slope: float,
    curvature: float,
    tau: float | None = None,
) -> float:
    """By how much Algorithm 2's lam >= 2 sigma_3 tau exceeds Kifer's 2 curvature / epsilon, if epsilon_3 = epsilon.

    The star of Figure 2.1. sigma_3 is the exact Gaussian calibration of the Hessian at (epsilon, delta), and tau the
    exact bound of the spectral norm of the noise at rho. The answer depends on neither ``slope`` nor ``curvature``,
    which are asked for because the ridge and the noise that are compared do.

    Parameters
    ----------
    epsilon, delta : float
        Of the training and of the Hessian alike.
    rho : float
        Failure probability of the bound of the noise.
    dimension : int
        d.
    slope, curvature : float
        As in :func:`~adaptive_dp.per_instance.calibration.kifer_calibration`.
    tau : float, optional
        Another bound of the noise; 12 is the thesis's for d = 50, of a matrix in another normalisation (erratum 7).
    """
    ridge = kifer_calibration(epsilon=epsilon, delta=delta, slope=slope, curvature=curvature).lam
    sigma = gaussian_sigma(epsilon, delta, curvature / math.sqrt(2))
    norm = goe.operator_norm_bound(rho, dimension) if tau is None else check_positive("tau", tau)
    return 2 * sigma * norm / ridge


def run_utility(
    rng: np.random.Generator, *, people: Dataset, delta: float, epsilon: float, inflation: float
) -> dict[str, float]:
    """One release of logistic regression with an inflated ridge: training error, mean logistic loss, norm."""
    loss = LogisticLoss()
    sigma, lam = kifer_calibration(
        epsilon=epsilon,
        delta=delta,
        slope=loss.lipschitz(people.domain, math.inf, dimension=people.columns),
        curvature=loss.smoothness(people.domain, dimension=people.columns),
    )
    theta = perturbed_minimiser(Objective(people, loss, inflation * lam), sigma=sigma, rng=rng)
    return _utility(people, theta)


def perturbed_minimiser(objective: Objective, *, sigma: float, rng: np.random.Generator) -> FloatArray:
    """The theta of :func:`~adaptive_dp.per_instance.objective.perturb_objective` from the same generator, without
    working out its guarantee, which takes longer than the optimisation of small data.
    """  # noqa: D205
    return objective.minimise(gaussian(sigma, objective.columns, rng)).theta


def _utility(people: Dataset, theta: FloatArray) -> dict[str, float]:
    losses = LogisticLoss().value(people.features @ theta, people.labels)
    return {
        "error": training_error(people, theta),
        "log_loss": float(losses.mean()),
        "norm": float(np.linalg.norm(theta)),
    }


def utility_by_inflation(
    people: Dataset,
    *,
    epsilons: Sequence[float],
    inflations: Sequence[float],
    delta: float,
    trials: int,
    seed: int,
    jobs: int | None = 1,
    results: Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Training error of logistic objective perturbation with lam = inflation * 2 beta / epsilon (Figure 2.1).

    sigma is Kifer's, corrected, at every inflation, so that the noise stays and only the ridge grows. The inflations
    of one epsilon meet the same noise in the same trial, and can be compared in pairs.

    Parameters
    ----------
    people : Dataset
        Labels -1 and +1.
    epsilons, inflations : sequence of float
        Positive.
    delta, trials, seed, jobs, results, progress
        As in :func:`adaptive_dp.experiments.sweep`, with ``trials`` its repetitions.

    Returns
    -------
    DataFrame
        ``epsilon``, ``inflation``, ``count``; ``mean``, ``low``, ``high`` of the share of wrong signs with its 95 per
        cent interval; means ``log_loss`` and ``norm`` of the same releases; ``noiseless`` and
        ``noiseless_log_loss`` of the minimiser with the same ridge and no noise. Private, like all training errors.
    """
    grid = product(epsilon=list(epsilons), inflation=list(inflations))
    frame = sweep(
        run_utility,
        grid,
        seed=seed,
        repetitions=trials,
        shared={"people": people, "delta": delta},
        paired=["inflation"],
        n_jobs=jobs,
        results=results,
        recipe="per instance, utility by inflation, version 1",
        progress=progress,
        description="inflation",
    )
    by = ["epsilon", "inflation"]
    table = summarise(frame, by=by, value="error").drop(columns="standard_error")
    for name in ("log_loss", "norm"):
        table[name] = summarise(frame, by=by, value=name)["mean"]
    loss = LogisticLoss()
    curvature = loss.smoothness(people.domain, dimension=people.columns)
    bare = [
        _utility(people, Objective(people, loss, scale * 2 * curvature / epsilon).minimise().theta)
        for epsilon, scale in zip(table["epsilon"], table["inflation"], strict=True)
    ]
    table["noiseless"] = [item["error"] for item in bare]
    table["noiseless_log_loss"] = [item["log_loss"] for item in bare]
    table.attrs["task_seconds"] = frame.attrs["task_seconds"]
    return table


# ---------------------------------------------------------------- Figures A.1 and A.2

WORST = (
    "exact_independent",
    "bound_independent",
    "exact_dependent",
    "bound_dependent",
    "bound_free",
    "bound_many",
    "bound_everyone",
)


def run_worst_case(
    rng: np.random.Generator,
    *,
    rows: int,
    columns: int,
    training: float,
    gradient: float,
    hessian: float,
    delta: float,
    rho: float,
    lam_rule: LamRule,
) -> dict[str, float]:
    """Largest exact losses and bounds over all people of one simulated data set."""
    people, loss = simulate_unit_rows(rows, columns, rng), LogisticLoss()
    frame = compare_reports(
        people,
        loss,
        budget_independent=Budget(training),
        budget_dependent=Budget(training, gradient, hessian),
        delta=delta,
        rho=rho,
        rng=rng,
        lam_rule=lam_rule,
    )
    numbers = {name: float(frame[name].max()) for name in WORST[:5]}
    # The free report again, for scopes that let somebody read the largest of n bounds.
    sigma, lam = frame.attrs["sigma_independent"], frame.attrs["lam_independent"]
    theta = perturbed_minimiser(Objective(people, loss, lam), sigma=sigma, rng=rng)
    for name, scope, count in (("many", Scope.MANY, rows), ("everyone", Scope.EVERYONE, 1)):
        report = data_independent_report(
            theta, loss, people.domain, lam=lam, sigma=sigma, rho=rho, scope=scope, people=count
        )
        told = report.to_frame(people.features, people.labels, combine="sum")
        numbers[f"bound_{name}"] = float(told["bound"].max())
    return numbers


def worst_case_by_rows(rows: Sequence[int], *, columns: int = 50, **options: Any) -> pd.DataFrame:
    """The largest loss of anybody, and the largest bound, against the number of people (Figure A.1).

    Parameters
    ----------
    rows : sequence of int
        Numbers of people; every trial simulates new ones (:func:`~adaptive_dp.datasets.simulate_unit_rows`).
    columns : int
        d.
    **options
        Those of :func:`worst_case`.

    Returns
    -------
    DataFrame
        See :func:`worst_case`.
    """
    return worst_case(product(rows=list(rows), columns=[columns]), **options)


def worst_case_by_columns(columns: Sequence[int], *, rows: int = 1_000, **options: Any) -> pd.DataFrame:
    """The same against the number of features (Figure A.2); see :func:`worst_case_by_rows`."""
    return worst_case(product(rows=[rows], columns=list(columns)), **options)


def worst_case(
    grid: Sequence[dict[str, Any]],
    *,
    trials: int,
    seed: int,
    budget: Budget | None = None,
    delta: float = 1e-6,
    rho: float = 1e-6,
    lam_rule: LamRule = "printed",
    jobs: int | None = 1,
    results: Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Largest exact losses and largest bounds over all people, averaged over simulated data sets.

    Parameters
    ----------
    grid : sequence of dict
        Points with ``rows`` and ``columns``.
    trials, seed, jobs, results, progress
        As in :func:`adaptive_dp.experiments.sweep`, with ``trials`` its repetitions.
    budget : Budget, optional
        Of the dependent pipeline; the other one has the same training epsilon. By default (1, 1, 1), as in Section
        A.2.3.
    delta, rho, lam_rule
        As in :func:`~adaptive_dp.per_instance.experiment.compare_reports`.

    Returns
    -------
    DataFrame
        ``rows``, ``columns``, ``trials``; means of the maxima over people of ``exact_independent``,
        ``bound_independent``, ``exact_dependent``, ``bound_dependent``, ``bound_free`` (the free bound at the
        dependent pipeline's theta), and of the free bound of a further release for all n people at once
        (``bound_many``) and for everybody, also later (``bound_everyone``); each with ``_low`` and ``_high``, the 95
        per cent interval of the mean (missing for one trial). The first five are bounds for one person chosen
        beforehand, as in the thesis: nobody is promised that the largest of n of them holds.
    """
    spent = Budget(1.0, 1.0, 1.0) if budget is None else budget
    frame = sweep(
        run_worst_case,
        grid,
        seed=seed,
        repetitions=trials,
        shared={
            "training": spent.training,
            "gradient": spent.gradient,
            "hessian": spent.hessian,
            "delta": check_probability("delta", delta),
            "rho": check_probability("rho", rho),
            "lam_rule": lam_rule,
        },
        n_jobs=jobs,
        results=results,
        recipe="per instance, worst case, version 1",
        progress=progress,
        description="worst case",
    )
    by = ["rows", "columns"]
    table: pd.DataFrame | None = None
    for name in WORST:
        part = summarise(frame, by=by, value=name)
        if table is None:
            table = part[[*by, "count"]].rename(columns={"count": "trials"})
        table[[name, f"{name}_low", f"{name}_high"]] = part[["mean", "low", "high"]]
    assert table is not None  # WORST is not empty
    table.attrs["task_seconds"] = frame.attrs["task_seconds"]
    return table


# ---------------------------------------------------------------- coverage

KINDS = ("independent", "dependent", "adaptive")
EVENTS = {"independent": 1, "dependent": 3, "adaptive": 4}
# Scope of the report, and who reads it; the last pair is outside the promise.
READERS = (
    (Scope.ONE, "a member"),
    (Scope.ONE, "an outsider"),
    (Scope.MANY, "all of them"),
    (Scope.EVERYONE, "all of them, and records made afterwards"),
    (Scope.ONE, "all of them"),
)
_SCOPES = {Scope.ONE: "one", Scope.MANY: "many", Scope.EVERYONE: "everyone"}


def small_people(rows: int = 21, columns: int = 5) -> Callable[[np.random.Generator], Dataset]:
    """A maker of small simulated data sets for :func:`coverage`."""
    return partial(_unit_rows, check_count("rows", rows, minimum=2), check_count("columns", columns))


def _unit_rows(rows: int, columns: int, rng: np.random.Generator) -> Dataset:
    return simulate_unit_rows(rows, columns, rng)


def run_coverage(
    rng: np.random.Generator,
    *,
    make_people: Callable[[np.random.Generator], Dataset],
    loss: Loss,
    lam: float,
    sigma: float,
    sigma_gradient: float,
    sigma_hessian: float,
    sigma_eigenvalue: float,
    rho: float,
    kind: str,
) -> dict[str, bool]:
    """One release and one report a scope: whether the bounds of its readers were all at least their exact losses."""
    everybody = make_people(rng)
    people, outsider = everybody.take(np.arange(everybody.rows - 1)), everybody.take([everybody.rows - 1])
    objective = Objective(people, loss, lam)
    theta = perturbed_minimiser(objective, sigma=sigma, rng=rng)
    point = objective.at(theta)
    inside = losses_of_members(point, sigma=sigma).loss
    # The outsider first, then the records that were made afterwards.
    others = _with_records_made_afterwards(outsider, point.gradient)
    outside = losses_of_outsiders(point, features=others.features, labels=others.labels, sigma=sigma).loss
    outcome: dict[str, bool] = {}
    for scope in Scope:
        common: dict[str, Any] = {"sigma": sigma, "rho": rho, "scope": scope}
        common["people"] = everybody.rows if scope is Scope.MANY else 1
        extra: dict[str, Any] = {
            "sigma_gradient": sigma_gradient,
            "sigma_hessian": sigma_hessian,
            "delta": rho,
            "rng": rng,
        }
        report: PrivacyReport
        if kind == "independent":
            report = data_independent_report(theta, loss, people.domain, lam=lam, **common)
        elif kind == "dependent":
            report = data_dependent_report(objective, theta, **common, **extra)
        else:
            report = adaptive_report(objective, theta, sigma_eigenvalue=sigma_eigenvalue, **common, **extra)
        members = _holds(report, people, inside, member=True)
        strangers = _holds(report, others, outside, member=False)
        all_of_them = bool(members.all() and strangers[0])
        if scope is Scope.ONE:
            outcome["one|a member"], outcome["one|an outsider"] = bool(members[0]), bool(strangers[0])
            outcome["one|all of them"] = all_of_them
        elif scope is Scope.MANY:
            outcome["many|all of them"] = all_of_them
        else:
            found = all_of_them and bool(strangers.all())
            outcome["everyone|all of them, and records made afterwards"] = found
    return outcome


def _holds(
    report: PrivacyReport, people: Dataset, exact: FloatArray, *, member: bool
) -> np.ndarray[Any, Any]:
    """Whose bound is at least the exact loss (up to the rounding of a sum), shape (m,)."""
    bound = report.to_frame(people.features, people.labels, member=member)["bound"].to_numpy()
    return np.asarray(bound * (1 + 1e-9) + 1e-12 >= exact)


def _with_records_made_afterwards(outsider: Dataset, gradient: FloatArray) -> Dataset:
    """The outsider, and four records along the noise and along its largest entry, with both labels."""
    largest = int(np.argmax(np.abs(gradient)))
    directions = np.vstack([gradient / np.linalg.norm(gradient), np.eye(gradient.size)[largest]])
    made = outsider.domain.feature_bound * np.vstack([directions, directions])
    labels = np.concatenate([outsider.labels, np.repeat([1.0, -1.0], 2)])
    return Dataset(np.vstack([outsider.features, made]), labels, outsider.domain)


def coverage(
    make_people: Callable[[np.random.Generator], Dataset] | None = None,
    *,
    trials: int,
    seed: int,
    loss: Loss | None = None,
    rho: float = 0.05,
    lam: float = 1.0,
    sigma: float = 1.0,
    sigma_gradient: float = 0.5,
    sigma_hessian: float = 0.1,
    sigma_eigenvalue: float = 0.25,
    kinds: Sequence[str] = KINDS,
    jobs: int | None = 1,
    results: Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """How often reports hold, over simulated data sets, releases and reports.

    Parameters
    ----------
    make_people : callable, optional
        A data set from a generator, with l2 rows and sign labels and at least two records; the last is kept out as
        the outsider. By default :func:`small_people`.
    trials, seed, jobs, results, progress
        As in :func:`adaptive_dp.experiments.sweep`, with ``trials`` its repetitions. The kinds of report meet the
        same people and releases.
    loss : Loss, optional
        A generalised linear loss; the logistic one by default.
    rho : float
        Failure probability of each event, below 1/4.
    lam, sigma, sigma_gradient, sigma_hessian, sigma_eigenvalue : float
        Of the releases. They need not be private ones here: the bounds hold for any.
    kinds : sequence of {"independent", "dependent", "adaptive"}

    Returns
    -------
    DataFrame
        ``kind``; ``scope`` of the report; ``readers``: whose bounds had to hold, all at once; ``promised``: whether the
        scope covers those readers; ``nominal`` confidence; ``covered`` out of ``trials``, and the 95 per cent
        Clopper-Pearson interval ``low``, ``high`` of the share.
    """
    for kind in kinds:
        check_choice("kinds", kind, KINDS)
    frame = sweep(
        run_coverage,
        product(kind=list(kinds)),
        seed=seed,
        repetitions=trials,
        shared={
            "make_people": small_people() if make_people is None else make_people,
            "loss": LogisticLoss() if loss is None else loss,
            "rho": check_probability("rho", rho),
            "lam": lam,
            "sigma": sigma,
            "sigma_gradient": sigma_gradient,
            "sigma_hessian": sigma_hessian,
            "sigma_eigenvalue": sigma_eigenvalue,
        },
        paired=["kind"],
        n_jobs=jobs,
        results=results,
        recipe="per instance, coverage, version 1",
        progress=progress,
        description="coverage",
    )
    rows = []
    for kind in kinds:
        part = frame[frame["kind"] == kind]
        for scope, readers in READERS:
            covered = int(part[f"{_SCOPES[scope]}|{readers}"].sum())
            low, high = proportion_interval(covered, len(part))
            rows.append(
                {
                    "kind": kind,
                    "scope": _SCOPES[scope],
                    "readers": readers,
                    "promised": not (scope is Scope.ONE and readers == "all of them"),
                    "nominal": 1 - EVENTS[kind] * rho,
                    "covered": covered,
                    "trials": len(part),
                    "low": low,
                    "high": high,
                }
            )
    table = pd.DataFrame.from_records(rows)
    table.attrs["task_seconds"] = frame.attrs["task_seconds"]
    return table
