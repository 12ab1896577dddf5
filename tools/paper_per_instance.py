"""The experiments of chapter 2 at the sizes of the thesis; resumable, recorded under data/results.

usage: python tools/paper_per_instance.py [--only NAME ...] [--jobs N] [--repetitions N]

Finished trials are kept in data/local (not committed): a run that was interrupted goes on where it stopped. The
summaries, with parameters, versions, seed and date, are what the book shows.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.datasets import (
    Dataset,
    load_credit_default,
    load_kidney,
    load_wine_red,
    simulate_unit_rows,
)
from adaptive_dp.experiments import save_results
from adaptive_dp.losses import LogisticLoss, Loss, SquaredLoss
from adaptive_dp.per_instance.experiment import (
    LAM_RULES,
    Budget,
    allocations,
    chapter_settings,
    compare_reports,
    quantile_table,
)
from adaptive_dp.per_instance.experiment_repeats import repeat_comparison
from adaptive_dp.per_instance.experiment_sizes import (
    coverage,
    required_inflation,
    utility_by_inflation,
    worst_case_by_columns,
    worst_case_by_rows,
)

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "data" / "results"
LOCAL = ROOT / "data" / "local"
SEED = 20262
DELTA = RHO = 1e-6
PAPER = chapter_settings("paper")
# Where the recorded distribution functions are read off.
ECDF_LEVELS = [0.005, *(round(0.02 * step, 2) for step in range(1, 50)), 0.99, 0.995, 1.0]
ECDF_COLUMNS = (
    "exact_independent",
    "bound_independent",
    "exact_dependent",
    "bound_dependent",
    "bound_free",
    "total",
    "ratio_independent",
    "ratio_dependent",
)


class Run:
    """Options of one run of this tool."""

    def __init__(self, jobs: int, repetitions: int | None) -> None:
        self.jobs = jobs
        self._repetitions = repetitions

    def count(self, usual: int) -> int:
        """Trials a point: what was asked for, or the ``usual`` number."""
        return self._repetitions or usual

    def sweep(self, name: str) -> dict[str, Any]:
        """Where the trials of the experiment ``name`` are kept, and how many work on them."""
        return {
            "seed": SEED,
            "jobs": self.jobs,
            "results": LOCAL / f"per-instance-{name}.jsonl",
            "progress": True,
        }


def utility(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figure 2.1: training error against the inflation of lambda, n = 1000, d = 50."""
    people = simulate_unit_rows(1_000, 50, np.random.default_rng(SEED))
    table = utility_by_inflation(
        people,
        epsilons=PAPER["epsilons"],
        inflations=PAPER["inflations"],
        delta=DELTA,
        trials=run.count(PAPER["utility_trials"]),
        **run.sweep("utility"),
    )
    stars = {}
    for epsilon in PAPER["epsilons"]:
        common = {"epsilon": epsilon, "delta": DELTA, "rho": RHO, "dimension": 50, "slope": 1.0}
        exact = required_inflation(**common, curvature=0.25)
        printed = required_inflation(**common, curvature=0.25, tau=12.0)
        stars[f"{epsilon:g}"] = {"exact": rounded(exact), "printed": rounded(printed)}
    return table, {"data": people.title, "rows": 1_000, "columns": 50, "delta": DELTA, "stars": stars}


def by_rows(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figure A.1: the largest loss and bounds against n, at d = 50, for both ridges."""
    return _worst(run, "rows", lambda **options: worst_case_by_rows(PAPER["rows"], columns=50, **options))


def by_columns(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figure A.2: the same against d, at n = 1000."""
    return _worst(
        run, "columns", lambda **options: worst_case_by_columns(PAPER["columns"], rows=1_000, **options)
    )


def _worst(run: Run, name: str, sweep: Callable[..., pd.DataFrame]) -> tuple[pd.DataFrame, dict[str, Any]]:
    tables, seconds = [], 0.0
    for rule in LAM_RULES:
        table = sweep(
            trials=run.count(PAPER["trials"]),
            delta=DELTA,
            rho=RHO,
            lam_rule=rule,
            **run.sweep(f"{name}-{rule}"),
        )
        seconds += table.attrs["task_seconds"]
        tables.append(table.assign(lam_rule=rule))
    joined = pd.concat(tables, ignore_index=True)
    joined.attrs["task_seconds"] = seconds
    return joined, {
        "data": "unit rows (simulated), new ones in every trial",
        "budget": [1.0, 1.0, 1.0],
        "delta": DELTA,
        "rho": RHO,
    }


def covered(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """How often reports hold for those in their scope, at rho = 0.05."""
    table = coverage(trials=run.count(PAPER["coverage_trials"]), rho=0.05, **run.sweep("coverage"))
    return table, {"data": "unit rows (simulated), 20 x 5 and an outsider", "rho": 0.05}


def credit(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figures 2.2, A.3 and A.4: credit default, a total budget of 1 in four allocations, both ridges."""
    return _compared(run, "credit", load_credit_default(), LogisticLoss(), [1.0] * 4, list(allocations()))


def kidney(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figures A.5 and A.7: kidney disease, logistic; epsilon_1 = 0.1 and 1, the others 1."""
    return _compared(run, "kidney", load_kidney(), LogisticLoss(), *_with_ones())


def wine(run: Run) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Figures A.6 and A.8: wine quality, linear; calibrated as if gradients were at most 1."""
    return _compared(run, "wine", load_wine_red(), SquaredLoss(), *_with_ones())


def _with_ones() -> tuple[list[float], list[Budget]]:
    return [0.1, 1.0], [Budget(0.1, 1.0, 1.0), Budget(1.0, 1.0, 1.0)]


def _compared(
    run: Run, name: str, people: Dataset, loss: Loss, free: list[float], paid: list[Budget]
) -> tuple[pd.DataFrame, dict[str, Any]]:
    table = repeat_comparison(
        people,
        loss,
        independent=free,
        dependent=paid,
        delta=DELTA,
        rho=RHO,
        repetitions=run.count(PAPER["repetitions"]),
        description=name,
        **run.sweep(name),
    )
    largest = loss.lipschitz(people.domain, math.inf, dimension=people.columns)
    parameters = {
        "data": people.title,
        "rows": people.rows,
        "columns": people.columns,
        "delta": DELTA,
        "rho": RHO,
        "trivial_error": rounded(trivial_error(people)),
        "gradient_bound": largest if math.isfinite(largest) else "none: calibrated as if it were 1",
    }
    _record_distributions(name, people, loss, free, paid, parameters)
    return table, parameters


def _record_distributions(
    name: str,
    people: Dataset,
    loss: Loss,
    free: list[float],
    paid: list[Budget],
    parameters: dict[str, Any],
) -> None:
    """Quantile functions of one run a setting: what the figures of the thesis show."""
    start, tables = time.perf_counter(), []
    for first, budget in zip(free, paid, strict=True):
        for rule in LAM_RULES:
            frame = compare_reports(
                people,
                loss,
                budget_independent=Budget(first),
                budget_dependent=budget,
                delta=DELTA,
                rho=RHO,
                rng=np.random.default_rng(SEED),
                lam_rule=rule,
            )
            table = quantile_table(frame, ECDF_COLUMNS, ECDF_LEVELS)
            names = ["independent", "training", "gradient", "hessian", "lam_rule"]
            values = [first, budget.training, budget.gradient, budget.hessian, rule]
            tables.append(pd.DataFrame([values] * len(table), columns=names).join(table))
    seconds = {"wall_seconds": round(time.perf_counter() - start, 1)}
    save_results(
        pd.concat(tables, ignore_index=True),
        RESULTS / f"per-instance-{name}-quantiles.csv",
        {"parameters": parameters, "seed": SEED, **seconds},
    )


def trivial_error(people: Dataset) -> float:
    """Training error without looking at features: of the commoner label, or of 0 for real labels."""
    if people.domain.labels == "sign":
        share = float(np.mean(people.labels > 0))
        return min(share, 1 - share)
    return float(np.sqrt(np.mean(people.labels**2)))


def rounded(value: float) -> float:
    """Six digits, as in the tables."""
    return float(f"{value:.6g}")


EXPERIMENTS: dict[str, Callable[[Run], tuple[pd.DataFrame, dict[str, Any]]]] = {
    "utility": utility,
    "rows": by_rows,
    "columns": by_columns,
    "coverage": covered,
    "credit": credit,
    "kidney": kidney,
    "wine": wine,
}


def record(name: str, run: Run) -> Path:
    """Run one experiment, or what is left of it, and record its summary."""
    start = time.perf_counter()
    table, parameters = EXPERIMENTS[name](run)
    path = RESULTS / f"per-instance-{name}.csv"
    seconds = {
        "wall_seconds": round(time.perf_counter() - start, 1),
        "task_seconds": round(table.attrs["task_seconds"], 1),
    }
    save_results(table, path, {"parameters": parameters, "seed": SEED, **seconds})
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit status is 2 for an unknown name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", help=f"names of experiments: {', '.join(EXPERIMENTS)}")
    parser.add_argument("--jobs", type=int, default=-1, help="worker processes, -1 for all cores")
    parser.add_argument("--repetitions", type=int, help="trials a point, instead of the usual number")
    options = parser.parse_args(arguments)
    for name in options.only or list(EXPERIMENTS):
        if name not in EXPERIMENTS:
            print(f"unknown experiment {name!r}, known here: {', '.join(EXPERIMENTS)}", file=sys.stderr)
            return 2
        path = record(name, Run(options.jobs, options.repetitions))
        print(f"{name}: recorded in {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
