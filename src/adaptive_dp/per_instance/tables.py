"""Tables of the chapter, and the names under which its figures show what was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.experiments import load_results
from adaptive_dp.losses import Loss
from adaptive_dp.per_instance.calibration import Calibration, sharp_sigma
from adaptive_dp.per_instance.experiment import LAM_RULES, Budget, compare_reports
from adaptive_dp.per_instance.gaussian import gaussian_instance_epsilon, high_probability_loss
from adaptive_dp.per_instance.report import PrivacyReport
from adaptive_dp.validation import FloatArray

BOUNDS = ("explicit", "tail", "exact")
RIDGES = {"printed": "ridge of Algorithm 2", "same": "Kifer's ridge"}
LOSSES = {
    "exact_independent": "exact, free",
    "bound_independent": "reported, free",
    "exact_dependent": "exact, paid",
    "bound_dependent": "reported, paid",
}
TOTALS = {
    "bound_independent": "reported, free",
    "bound_dependent": "reported, paid",
    "total": "paid, with overhead",
}
RATIOS = {"ratio_independent": "free report", "ratio_dependent": "paid report"}
WORST = {
    "exact_independent": "exact",
    "bound_independent": "free report",
    "bound_dependent": "paid report",
    "bound_everyone": "free, for everybody",
}
SHARES = ["training", "gradient", "hessian"]


def noise_by_calibration(
    kifer: Calibration, *, epsilon: float, delta: float, slope: float, curvature: float
) -> pd.DataFrame:
    """Noise of three calibrations of objective perturbation: Kifer's, and the sharp one at two ridges."""
    rows = [("Kifer, corrected", kifer.lam, kifer.sigma)]
    for name, factor in (("one-dimensional", 1), ("the same, ten times the ridge", 10)):
        lam = factor * kifer.lam
        sigma = sharp_sigma(epsilon=epsilon, delta=delta, slope=slope, curvature=curvature, lam=lam)
        rows.append((name, lam, sigma))
    return pd.DataFrame(rows, columns=["calibration", "lambda", "sigma"])


def gaussian_bounds(mus: Sequence[float], *, delta: float, rho: float) -> pd.DataFrame:
    """Three epsilons at ``delta`` and three bounds of the ex-post loss at ``rho`` of Gaussian mechanisms, by mu."""
    table = pd.DataFrame({"mu": mus})
    for kind in BOUNDS:
        table[f"epsilon, {kind}"] = gaussian_instance_epsilon(delta, table["mu"], bound=kind)
    for kind in BOUNDS:
        table[f"ex post, {kind}"] = high_probability_loss(rho, table["mu"], bound=kind)
    return table


def spread(frame: pd.DataFrame) -> pd.DataFrame:
    """Smallest, median and largest entry of each column."""
    table = frame.agg(["min", "median", "max"])
    table.index = pd.Index(["smallest", "median", "largest"], name="over people")
    return table.reset_index()


def combinations(report: PrivacyReport, features: FloatArray, labels: FloatArray) -> pd.DataFrame:
    """Median and largest bound of a report whose terms are put together in three ways."""
    bounds = {
        "sum of absolute values": report.to_frame(features, labels, combine="sum"),
        "intervals": report.to_frame(features, labels),
        "intervals, as a member": report.to_frame(features, labels, member=True),
    }
    return pd.DataFrame(
        [(name, frame["bound"].median(), frame["bound"].max()) for name, frame in bounds.items()],
        columns=["combination", "median bound", "largest bound"],
    )


def both_ridges(
    people: Dataset, loss: Loss, budget: Budget, *, delta: float, rho: float, rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """One comparison of a free and a paid report for each ridge of the paid pipeline, at equal nominal budget."""
    return {
        rule: compare_reports(
            people,
            loss,
            budget_independent=Budget(budget.total),
            budget_dependent=budget,
            delta=delta,
            rho=rho,
            rng=rng,
            lam_rule=rule,
        )
        for rule in LAM_RULES
    }


def live_medians(
    cases: Mapping[str, tuple[Dataset, Loss]],
    trainings: Sequence[float],
    *,
    delta: float,
    rho: float,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Medians over people of one comparison for each data set and training epsilon, gradient and Hessian at 1 each.

    Kifer's ridge and the family of leverage bounds for the paid report; ``held`` is the share of all bounds, free
    and paid, that were at least the exact loss.
    """
    rows = []
    for name, (people, loss) in cases.items():
        for training in trainings:
            frame = compare_reports(
                people,
                loss,
                budget_independent=Budget(training),
                budget_dependent=Budget(training, 1.0, 1.0),
                delta=delta,
                rho=rho,
                rng=rng,
                lam_rule="same",
            )
            held = [
                (frame[f"bound_{kind}"] >= frame[f"exact_{kind}"]).mean()
                for kind in ("independent", "dependent")
            ]
            rows.append(
                (name, training, *(frame[column].median() for column in (*LOSSES, "overhead")), min(held))
            )
    return pd.DataFrame(rows, columns=["data", "epsilon", *LOSSES.values(), "overhead", "held"])


def worst_cases(frame: pd.DataFrame, size: str) -> pd.DataFrame:
    """Means of a live sweep over sizes: the largest exact loss and the largest bounds over people."""
    return frame[[size, *WORST]].rename(columns=WORST)


def pipelines(comparisons: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What the whole pipelines guarantee and how well their models fit, one row a ridge of the paid one."""
    facts = {
        "lambda, paid": "lam_dependent",
        "epsilon, free": "epsilon_independent",
        "epsilon, paid": "epsilon_dependent",
        "error, free": "error_independent",
        "error, paid": "error_dependent",
    }
    rows = [
        {"ridge": RIDGES[rule], **{name: float(frame.attrs[key]) for name, key in facts.items()}}
        for rule, frame in comparisons.items()
    ]
    return pd.DataFrame(rows)


def titled(comparisons: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same frames under titles for a figure."""
    return {RIDGES[rule]: frame for rule, frame in comparisons.items()}


def recorded_allocations(path: Path, *, rule: str = "printed") -> dict[str, pd.DataFrame]:
    """Recorded quantiles, one frame an allocation of the budget, under titles for a figure."""
    frame = load_results(path)[0]
    chosen = frame[frame["lam_rule"] == rule]
    return {", ".join(f"{share:g}" for share in key): part for key, part in chosen.groupby(SHARES)}


def recorded_trainings(path: Path, *, rule: str = "same") -> dict[str, pd.DataFrame]:
    """Recorded quantiles, one frame a training epsilon, under titles for a figure."""
    frame = load_results(path)[0]
    chosen = frame[frame["lam_rule"] == rule]
    return {f"epsilon {float(eps):g} for training": part for eps, part in chosen.groupby("training")}  # type: ignore[arg-type]


def recorded_medians(path: Path) -> pd.Series:
    """Medians over people, means over repetitions, by ridge, shares of the budget and quantity."""
    frame = load_results(path)[0]
    medians: pd.Series = frame.set_index(["lam_rule", *SHARES, "quantity"])["median"].sort_index()
    return medians
