"""Comparisons of two reports with new noise, many times, and what is recorded of them.

Source: redberg2023, Figures 2.2 and A.3 to A.8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.datasets import Dataset
from adaptive_dp.experiments import product, summarise, sweep
from adaptive_dp.losses import Loss
from adaptive_dp.per_instance.experiment import (
    LAM_RULES,
    LEVELS,
    QUANTITIES,
    Budget,
    LamRule,
    compare_reports,
    level_name,
    summarise_comparison,
)


def run_comparison(
    rng: np.random.Generator,
    *,
    people: Dataset,
    loss: Loss,
    delta: float,
    rho: float,
    independent: float,
    training: float,
    gradient: float,
    hessian: float,
    lam_rule: LamRule,
) -> dict[str, float]:
    """One comparison as plain numbers: ``quantity|statistic`` of its summary, and the errors and guarantees."""
    frame = compare_reports(
        people,
        loss,
        budget_independent=Budget(independent),
        budget_dependent=Budget(training, gradient, hessian),
        delta=delta,
        rho=rho,
        rng=rng,
        lam_rule=lam_rule,
    )
    summary = summarise_comparison(frame).set_index("quantity")
    numbers = {
        f"{name}|{statistic}": float(value)
        for name, row in summary.iterrows()
        for statistic, value in row.items()
        if not math.isnan(value)
    }
    numbers |= {f"{name}|median": float(frame.attrs[name]) for name in PIPELINE}
    # Who wins with the additional cost counted in, and how far the free bound at the same theta is improved.
    numbers["cheaper|median"] = float((frame["total"] <= frame["bound_independent"]).mean())
    numbers["improvement|median"] = float((frame["bound_free"] / frame["bound_dependent"]).median())
    return numbers


PIPELINE = (
    "error_independent",
    "error_dependent",
    "epsilon_independent",
    "epsilon_dependent",
    "epsilon_training_dependent",
    "epsilon_report",
    "lam_independent",
    "lam_dependent",
    "norm_independent",
    "norm_dependent",
)


def repeat_comparison(
    people: Dataset,
    loss: Loss,
    *,
    independent: Sequence[float],
    dependent: Sequence[Budget],
    delta: float,
    rho: float,
    repetitions: int,
    seed: int,
    lam_rules: Sequence[LamRule] = LAM_RULES,
    jobs: int | None = 1,
    results: Path | None = None,
    progress: bool | None = None,
    description: str = "",
) -> pd.DataFrame:
    """:func:`compare_reports` with new noise, many times; one row a setting and quantity.

    Parameters
    ----------
    people, loss, delta, rho
        As in :func:`compare_reports`.
    independent : sequence of float
        Training epsilon of the free pipeline, one for each entry of ``dependent``.
    dependent : sequence of Budget
        Budgets of the other pipeline.
    repetitions, seed, jobs, results, progress, description
        As in :func:`adaptive_dp.experiments.sweep`. The lam rules of one budget meet the same noise.
    lam_rules : sequence of {"printed", "same"}

    Returns
    -------
    DataFrame
        ``independent``, ``training``, ``gradient``, ``hessian``, ``lam_rule``, ``quantity``, ``repetitions``;
        ``low`` and ``high``: the 95 per cent interval of the mean over repetitions of ``median`` (missing for one
        repetition); means over repetitions of the other statistics of :func:`summarise_comparison`. Scalars of a
        pipeline (``PIPELINE``), the share of people for whom ``total`` is at most the free bound (``cheaper``) and
        the median factor between free and paid bound at one theta (``improvement``) stand in ``median``.
    """
    if len(independent) != len(dependent):
        raise ValueError(f"independent must have one entry a budget: {len(independent)} for {len(dependent)}")
    grid = [
        {
            "independent": float(free),
            "training": paid.training,
            "gradient": paid.gradient,
            "hessian": paid.hessian,
            **point,
        }
        for free, paid in zip(independent, dependent, strict=True)
        for point in product(lam_rule=list(lam_rules))
    ]
    trials = sweep(
        run_comparison,
        grid,
        seed=seed,
        repetitions=repetitions,
        shared={"people": people, "loss": loss, "delta": delta, "rho": rho},
        paired=["lam_rule"],
        n_jobs=jobs,
        results=results,
        recipe="per instance, comparison of reports, version 1",
        progress=progress,
        description=description,
    )
    summary = summarise_repetitions(trials)
    summary.attrs["task_seconds"] = trials.attrs["task_seconds"]
    return summary


def summarise_repetitions(trials: pd.DataFrame) -> pd.DataFrame:
    """Means over repetitions of what :func:`run_comparison` returned, one row a setting and quantity."""
    by = ["independent", "training", "gradient", "hessian", "lam_rule"]
    statistics = [level_name(level) for level in LEVELS] + ["max", "coverage"]
    extra = [*PIPELINE, "cheaper", "improvement"]
    rows = []
    for key, part in trials.groupby(by, sort=False):
        setting = dict(zip(by, key, strict=True))
        for name in (*QUANTITIES, *extra):
            row: dict[str, Any] = {**setting, "quantity": name, "repetitions": len(part)}
            centre = part[f"{name}|median"]
            if np.isfinite(centre).all():
                interval = summarise(part, by=["lam_rule"], value=f"{name}|median").iloc[0]
                row |= {"low": interval["low"], "high": interval["high"]}
            else:
                row |= {"low": math.nan, "high": math.nan}
            for statistic in statistics:
                column = f"{name}|{statistic}"
                row[statistic] = part[column].mean() if column in part else math.nan
            rows.append(row)
    return pd.DataFrame.from_records(rows)
