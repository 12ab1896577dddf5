"""One trial of the experiments of Section 4: what a method costs, and what it delivers.

The functions here return plain numbers, so that trials can run in other processes and be stored; they read
a release's private trace, which is why their output is for teaching and never for publication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.accuracy_first.above_threshold import CALIBRATIONS
from adaptive_dp.accuracy_first.brownian import brownian_nr
from adaptive_dp.accuracy_first.calibration import (
    above_threshold_epsilon,
    minimiser_radius,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.flaws import released_code_epsilon
from adaptive_dp.accuracy_first.mechanisms import Hypothesis, cov_nr, doubling, output_nr, theory_inversion
from adaptive_dp.accuracy_first.problems import Problem, RidgeProblem
from adaptive_dp.experiments import product, profile_settings, proportion_interval, summarise, sweep
from adaptive_dp.validation import check_choice

METHODS = ("noise reduction", "doubling", "theory", "theory, likely", "brownian")

#: delta of the Brownian runs and the loss at which their boundary is tightest: public choices, made with hindsight
#: (they are near the losses that came out).
BROWNIAN_DELTA = 1e-6
BROWNIAN_TUNED_EPSILON = {"ridge": 0.3, "logistic": 0.05}


def method_of(method: str, problem: Problem, calibration: str, failure: float) -> Callable[..., Hypothesis]:
    """The mechanism that a method's name stands for on this problem, with everything but alpha and rng bound."""
    check_choice("method", method, METHODS)
    mechanism = "covariance" if isinstance(problem, RidgeProblem) else "output"
    if method == "noise reduction":
        search = cov_nr if mechanism == "covariance" else output_nr
        return partial(search, problem, failure=failure, calibration=calibration)
    if method == "doubling":
        return partial(doubling, problem, mechanism=mechanism, failure=failure, calibration=calibration)
    if method in ("theory", "theory, likely"):
        promise = failure if method == "theory, likely" else None
        return partial(
            theory_inversion, problem, mechanism=mechanism, calibration=calibration, failure=promise
        )
    tuned = BROWNIAN_TUNED_EPSILON[problem.task]
    return partial(
        brownian_nr,
        problem,
        mechanism=mechanism,
        failure=failure,
        delta=BROWNIAN_DELTA,
        tuned_epsilon=tuned,
        calibration=calibration,
    )


def run_trial(
    rng: np.random.Generator,
    *,
    method: str,
    calibration: str,
    alpha: float,
    problem: Problem,
    failure: float = 0.1,
) -> dict[str, float]:
    """One run of one method: the loss it reports and its parts, the excess risk and the norm it delivers.

    Returns
    -------
    dict
        ``epsilon``, ``test``, ``generate`` (0 where a method has no such part), ``refused`` (0 or 1), ``index``
        (-1 for a refusal or a one-shot method), ``excess_risk`` and ``norm`` (NaN for a refusal).
    """
    release = method_of(method, problem, calibration, failure)(alpha=alpha, rng=rng)
    parts = release.guarantee.parts
    theta = None if release.refused else np.asarray(release.value)
    return {
        "epsilon": release.guarantee.epsilon,
        "test": parts.get("test", 0.0),
        "generate": parts.get("generate", 0.0),
        "refused": float(release.refused),
        "index": -1.0 if release.index is None else float(release.index),
        "excess_risk": float("nan") if theta is None else problem.excess_risk(theta),
        "norm": float("nan") if theta is None else float(np.linalg.norm(theta)),
    }


def paper_alphas() -> list[float]:
    """The grid of Figures 1 to 4: 0.005, 0.010, ..., 0.200."""
    return [round(0.005 * step, 3) for step in range(1, 41)]


def chapter_settings(profile: str) -> dict[str, Any]:
    """Sizes of the chapter's live parts at a profile: ``"quick"``, ``"book"`` or ``"paper"``."""
    return profile_settings(
        profile,
        quick={"alphas": [0.05, 0.1], "trials": 2, "draws": 4_000, "frames": 3, "jobs": 1},
        book={
            "alphas": [0.01, 0.025, 0.05, 0.1, 0.2],
            "trials": 8,
            "draws": 40_000,
            "frames": 12,
            "jobs": -1,
        },
        paper={"alphas": paper_alphas(), "trials": 40, "draws": 400_000, "frames": 12, "jobs": -1},
    )


def warm(problem: Problem) -> Problem:
    """Compute everything that a problem caches, so that trials in other processes do not do it again."""
    _ = problem.minimiser, problem.excess_risk(problem.minimiser)
    if not isinstance(problem, RidgeProblem):
        _ = problem.data_hessian, problem.rough_excess_risk(problem.minimiser)
    return problem


QUANTITIES = ("epsilon", "test", "generate")
DELIVERED = ("excess_risk", "norm")


def run_experiment(
    problem: Problem,
    *,
    alphas: Sequence[float],
    repetitions: int,
    seed: int,
    methods: Sequence[str] = METHODS,
    calibrations: Sequence[str] = CALIBRATIONS,
    n_jobs: int | None = None,
    results: Path | None = None,
    progress: bool | None = None,
    description: str = "",
) -> pd.DataFrame:
    """Every method at every alpha, several times: one row a trial, as :func:`run_trial` returns it.

    Brownian noise is not in the paper, so there is no printed calibration of it to run.
    """
    grid = product(calibration=list(calibrations), method=list(methods), alpha=list(alphas))
    return sweep(
        run_trial,
        [point for point in grid if (point["calibration"], point["method"]) != ("printed", "brownian")],
        seed=seed,
        repetitions=repetitions,
        shared={"problem": warm(problem)},
        n_jobs=n_jobs,
        results=results,
        recipe="accuracy first, one trial, version 2",
        progress=progress,
        description=description,
    )


def summarise_experiment(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a calibration, method and alpha: means with 95 per cent intervals, and how often it went wrong.

    ``epsilon``, ``test`` and ``generate`` average all trials, refusals at what they cost; ``excess_risk`` and
    ``norm`` average the trials that delivered. ``worse`` counts deliveries above alpha, ``worse_high`` bounds its
    share from above (Clopper-Pearson), ``largest`` is the largest excess risk that was delivered.
    """
    by = ["calibration", "method", "alpha"]
    table = trials.groupby(by, sort=False).agg(
        trials=("refused", "size"), refused=("refused", "sum"), largest=("excess_risk", "max")
    )
    delivered = trials[trials["refused"] == 0]
    for name in (*QUANTITIES, *DELIVERED):
        part = summarise(delivered if name in DELIVERED else trials, by=by, value=name).set_index(by)
        table[name] = part["mean"]
        table[[f"{name}_low", f"{name}_high"]] = part[["low", "high"]]
    worse = delivered["excess_risk"] > delivered["alpha"]
    table["worse"] = delivered.assign(worse=worse).groupby(by, sort=False)["worse"].sum()
    table["worse"] = table["worse"].fillna(0).astype(int)
    upper = {
        pair: proportion_interval(*pair)[1] for pair in set(zip(table["worse"], table["trials"], strict=True))
    }
    table["worse_high"] = [upper[pair] for pair in zip(table["worse"], table["trials"], strict=True)]
    return table.reset_index()


def quantity(
    summary: pd.DataFrame, name: str, *, calibration: str, methods: Sequence[str] = METHODS
) -> pd.DataFrame:
    """One quantity of a summary as a figure wants it: ``method``, ``alpha``, ``mean``, ``low``, ``high``."""
    rows = summary[(summary["calibration"] == calibration) & summary["method"].isin(methods)]
    return pd.DataFrame(
        {
            "method": rows["method"],
            "alpha": rows["alpha"],
            "mean": rows[name],
            "low": rows[f"{name}_low"],
            "high": rows[f"{name}_high"],
        }
    )


def at_alpha(summary: pd.DataFrame, *, calibration: str, method: str, alpha: float) -> pd.Series:
    """The one row of a summary for a calibration, a method and an alpha.

    Raises
    ------
    ValueError
        There is no such row.
    """
    chosen = summary[
        (summary["calibration"] == calibration)
        & (summary["method"] == method)
        & np.isclose(summary["alpha"], alpha)
    ]
    if len(chosen) != 1:
        raise ValueError(f"alpha must be one of the summary's grid for {calibration} {method}, got {alpha!r}")
    return chosen.iloc[0]


def radii(task: str, *, lam: float) -> dict[str, float]:
    """The theoretical maximum of a hypothesis's norm, by calibration."""
    return {kind: minimiser_radius(task, lam=lam, calibration=kind) for kind in CALIBRATIONS}


def losses_by_alpha(summary: pd.DataFrame) -> pd.DataFrame:
    """Mean losses as a table: one row an alpha, columns (calibration, method)."""
    return summary.pivot_table(index="alpha", columns=["calibration", "method"], values="epsilon")


def risk_factors(
    summary: pd.DataFrame, *, alphas: Sequence[float], rows: int, lam: float, failure: float
) -> pd.DataFrame:
    """Privacy risk factors exp(mean loss) for ridge regression, beside what could have produced the printed ones.

    The last column joins the test budget of the authors' released code (with the sensitivity of Claim A.5) to the
    generating part that was measured here.
    """
    delta = risk_query_sensitivity("ridge", rows=rows, lam=lam, calibration="printed")
    table = []
    for alpha in alphas:
        row: dict[str, float] = {"alpha": alpha}
        for kind in CALIBRATIONS:
            for method in ("noise reduction", "doubling"):
                loss = at_alpha(summary, calibration=kind, method=method, alpha=alpha)["epsilon"]
                row[f"{kind}, {method}"] = float(np.exp(loss))
        generated = at_alpha(summary, calibration="printed", method="noise reduction", alpha=alpha)[
            "generate"
        ]
        tested = released_code_epsilon(sensitivity=delta, alpha=alpha, failure=failure, levels=1_000)
        row["released code, noise reduction"] = float(np.exp(tested + generated))
        table.append(row)
    return pd.DataFrame(table)


def never_refuted(summary: pd.DataFrame, failure: float) -> bool:
    """Whether no search delivered too often above alpha: the 95 per cent interval of its share reaches ``failure``."""
    searches = summary[summary["method"] != "theory"]
    # An interval around a share that is not above ``failure`` reaches it; the others are computed.
    suspects = searches[searches["worse"] > failure * searches["trials"]]
    return all(
        proportion_interval(int(bad), int(total))[0] <= failure
        for bad, total in zip(suspects["worse"], suspects["trials"], strict=True)
    )


def factors_of_the_test(
    *,
    alphas: Sequence[float],
    rows: int = 100_000,
    lam: float = 0.005,
    failure: float = 0.1,
    levels: int = 1_000,
) -> tuple[list[float], list[float]]:
    """Risk factors of the ridge test alone: of the printed algorithm, and of the released code with its own Delta."""
    delta = risk_query_sensitivity("ridge", rows=rows, lam=lam, calibration="printed")
    printed = [
        above_threshold_epsilon(
            sensitivity=delta, alpha=alpha, calibration="printed", failure=failure, levels=levels
        )
        for alpha in alphas
    ]
    released = [
        released_code_epsilon(sensitivity=delta / 2, alpha=alpha, failure=failure, levels=levels)
        for alpha in alphas
    ]
    return [float(np.exp(value)) for value in printed], [float(np.exp(value)) for value in released]
