"""Grids of the tuned regressions of Figure 1, tried on the records for every epsilon: not private, as in the paper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.experiments import product, sweep
from adaptive_dp.oracle_perturbation.adult_experiment import (
    EPSILONS,
    LEARNERS,
    TUNED,
    Settings,
    check_levels,
    prepared_arena,
    study_of,
)
from adaptive_dp.oracle_perturbation.private_regression import Descent, Minibatch
from adaptive_dp.oracle_perturbation.regression_tuning import (
    DESCENTS,
    MINIBATCHES,
    tune_descent,
    tune_dp_sgd,
)
from adaptive_dp.validation import check_choice

# The grid is tried this often; the runs that are reported are others.
TUNING_RUNS = 4


def run_tuning(
    rng: np.random.Generator,
    *,
    columns: str,
    rows: int | None,
    subset_seed: int,
    learner: str,
    epsilon: float,
) -> dict[str, float | None]:
    """The best setting of one grid at one epsilon, and the processor's time; what a learner does not have is None."""
    arena = prepared_arena(columns, rows, subset_seed)
    common: dict[str, Any] = {"epsilon": epsilon, "delta": arena.delta, "runs": TUNING_RUNS, "rng": rng}
    start = time.process_time()
    best: Settings
    if check_choice("learner", learner, LEARNERS) == TUNED:
        best, trials = tune_descent(arena.plain, grid=DESCENTS, **common)
    else:
        best, trials = tune_dp_sgd(arena.plain, grid=MINIBATCHES, **common)
    names = ("clip", "steps", "batch", "epochs", "rate")
    return {
        **{name: getattr(best, name, None) for name in names},
        "accuracy": float(trials["mean"].max()),
        "seconds": time.process_time() - start,
    }


def tuned_settings(found: pd.DataFrame) -> dict[tuple[str, float], Settings]:
    """The settings that :func:`adult_tuning` found, by learner and epsilon."""
    settings: dict[tuple[str, float], Settings] = {}
    for row in found.to_dict("records"):
        clip, rate = float(row["clip"]), float(row["rate"])
        settings[str(row["learner"]), float(row["epsilon"])] = (
            Descent(clip, int(row["steps"]), rate)
            if row["learner"] == TUNED
            else Minibatch(clip, int(row["batch"]), int(row["epochs"]), rate)
        )
    return settings


def adult_tuning(
    columns: str,
    *,
    epsilons: Sequence[float] = EPSILONS,
    seed: int = 2026,
    jobs: int | None = None,
    rows: int | None = None,
    learners: Sequence[str] = LEARNERS,
    results: str | Path | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Try the grids of the tuned learners on the records. **Not private**: see the module.

    Returns
    -------
    DataFrame
        ``learner``, ``epsilon``, ``clip``, ``steps``, ``batch``, ``epochs``, ``rate``, ``accuracy``, ``seconds``.
    """
    shared = study_of(columns, rows, seed)
    points = product(learner=list(learners), epsilon=check_levels(epsilons))
    return sweep(
        run_tuning,
        points,
        seed=seed,
        repetitions=1,
        shared=shared,
        n_jobs=jobs,
        results=results,
        recipe="private logistic regression on Adult, grids, version 1",
        progress=progress,
        description=f"{columns}, grids",
    )
