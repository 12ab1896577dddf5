"""Sizes of the chapter's live parts, and frames in the shape that its figures and tables want."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.datasets.benchmarks import BENCHMARKS
from adaptive_dp.experiments import load_results, profile_settings
from adaptive_dp.objective_perturbation.calibration import calibrate_approximate
from adaptive_dp.objective_perturbation.certified import attaining_shift, certified_delta, certified_renyi
from adaptive_dp.objective_perturbation.composition import ComposedCurve, Perturbation
from adaptive_dp.objective_perturbation.composition_figures import FIGURE_C3, renyi_crossing
from adaptive_dp.objective_perturbation.dp_sgd import Schedule
from adaptive_dp.objective_perturbation.experiment import (
    ALGORITHM_7,
    BATCH,
    DISHONEST,
    EPOCHS,
    EPSILONS,
    FACTOR,
    HONEST,
    HONEST_TRAIN,
    LESS_NOISE,
    SIGMA_OUT,
    TAU,
    beside_printed,
    race_settings,
    verdicts,
)
from adaptive_dp.objective_perturbation.profile_tables import LOWER
from adaptive_dp.objective_perturbation.profiles import HalfNormalCurve, ReducedCurve
from adaptive_dp.objective_perturbation.reduction import DIRECTIONS
from adaptive_dp.objective_perturbation.tuning_accounting import noise_table
from adaptive_dp.objective_perturbation.worst_cases import privacy_loss_density

RACE_NAMES = {
    DISHONEST: "DP-SGD, dishonest",
    HONEST: "DP-SGD, honest",
    HONEST_TRAIN: "DP-SGD, honest, train",
    ALGORITHM_7[0]: "Alg. 7, thesis",
    ALGORITHM_7[1]: "Alg. 7, less ridge",
    ALGORITHM_7[2]: "Alg. 7, numerical",
    LESS_NOISE: "Alg. 7, less noise",
}
DRAWN = (DISHONEST, HONEST, HONEST_TRAIN, ALGORITHM_7[0], LESS_NOISE)
RENYI_NAMES = {
    "objective_perturbation": "Theorem 4.3.2",
    "half_normal": "half-normal",
    "normal": "Gaussian",
    "reduced": "this book",
}
CROSSING_NAMES = {
    "objective_perturbation": "Theorem 4.3.2",
    "reduced": "this book",
    "gaussian": "Gaussian",
    "dp_sgd": "sampled Gaussian",
}
CERTIFIED = (
    (0.2, 0.05, 0.3),
    (0.2, 0.05, 0.8),
    (0.2, 0.5, 0.5),
    (0.2, 0.5, 1.2),
    (1.0, 0.2, 1.0),
    (1.0, 0.8, 2.5),
    (0.1, 0.3, 0.1),
)
RENYI_CASES = (
    (0.2, 0.05, 2.0),
    (0.2, 0.05, 10.0),
    (0.2, 0.5, 4.0),
    (1.0, 0.1, 3.0),
    (0.1, 0.1, 10.0),
    (0.1, 0.1, 30.0),
)


def chapter_settings(profile: str) -> dict[str, Any]:
    """Sizes of the live parts at a profile."""
    settings = profile_settings(
        profile,
        quick={
            "certified": CERTIFIED[:2],
            "renyi": RENYI_CASES[:2],
            "winners": 5,
            "checked": 1,
            "rounds": (1, 4),
            "nine": EPSILONS[2::3],
            "sizes": (100, 200, 400),
            "sag_runs": 2,
            "risk_runs": 200,
            "dimensions": (4, 16, 64),
            "rate_draws": 20,
            "huber": (10, 100),
        },
        book={
            "certified": CERTIFIED,
            "renyi": RENYI_CASES,
            "winners": 13,
            "checked": 3,
            "rounds": (1, 4, 16),
            "nine": EPSILONS,
            "sizes": (100, 200, 400, 800),
            "sag_runs": 4,
            "risk_runs": 1_000,
            "dimensions": (4, 16, 64, 256),
            "rate_draws": 50,
            "huber": (10, 100, 1_000, 10_000),
        },
        paper={
            "certified": CERTIFIED,
            "renyi": RENYI_CASES,
            "winners": 25,
            "checked": 3,
            "rounds": (1, 4, 16),
            "nine": EPSILONS,
            "sizes": (100, 200, 400, 800, 1_600),
            "sag_runs": 8,
            "risk_runs": 4_000,
            "dimensions": (4, 16, 64, 256, 1_024),
            "rate_draws": 400,
            "huber": (10, 30, 100, 300, 1_000, 3_000, 10_000),
        },
    )
    # The live race stays small at every profile: that of the thesis is recorded by a tool.
    return {**settings, "race": race_settings("quick" if profile == "quick" else "book")}


def recorded(path: Path) -> pd.DataFrame:
    """Return the table of a recorded result."""
    return load_results(path)[0]


def density_frame(mu: float, kappa: float, direction: str, *, points: int = 240) -> pd.DataFrame:
    """Densities of the privacy loss in one direction over a common range: ``series``, ``loss``, ``density``.

    The atom of bound B is left out.
    """
    grid = np.linspace(-1.2, 3.0, points)
    frame = privacy_loss_density(mu, kappa, grid)
    kept = frame[(frame["direction"] == direction) & frame["density"].notna()]
    return kept.rename(columns={"law": "series"})[["series", "loss", "density"]]


def attaining_frame(mu: float, kappa: float, *, epsilon: float, reach: float = 5.0) -> pd.DataFrame:
    """The worst shift of each direction: ``direction``, ``t``, ``s``, for t between -``reach`` and ``reach``."""
    parts = []
    for direction in DIRECTIONS:
        frame = attaining_shift(mu, kappa, epsilon=epsilon, direction=direction)
        inside = frame[frame["t"].abs() <= reach]
        parts.append(inside.assign(direction=direction))
    return pd.concat(parts, ignore_index=True)


def calibration_frame(
    epsilons: Sequence[float], *, delta: float, slope: float, curvature: float, factor: float = FACTOR
) -> pd.DataFrame:
    """Noise and ridge of Algorithm 7 by two analyses: ``epsilon``, ``sigma``, ``thesis``, ``this book``.

    nan where an analysis cannot do with that noise.
    """
    task = {"delta": delta, "slope": slope, "curvature": curvature, "factor": factor}
    rows = []
    for epsilon in epsilons:
        row: dict[str, float] = {"epsilon": epsilon}
        for name, analysis in (("thesis", "half-normal"), ("this book", "reduced-renyi")):
            try:
                found = calibrate_approximate(
                    epsilon=epsilon, sigma_out=SIGMA_OUT, tau=TAU, analysis=analysis, **task
                )
            except ValueError:
                row[name] = math.nan
                continue
            row["sigma"], row[name] = found.sigma, found.lam
        rows.append(row)
    return pd.DataFrame(rows)[["epsilon", "sigma", "thesis", "this book"]]


def renyi_frame(cases: Sequence[tuple[float, float, float]]) -> pd.DataFrame:
    """Rényi divergences of the worst case (upper end of the certified bracket) and of three bounds."""
    rows = []
    for mu, kappa, order in cases:
        ends = [
            certified_renyi(mu, kappa, order=order, direction=side, tolerance=0.01) for side in DIRECTIONS
        ]
        rows.append(
            {
                "mu": mu,
                "kappa": kappa,
                "order": order,
                "worst": max(end.upper for end in ends),
                "this book": ReducedCurve(mu, kappa).renyi(order),
                "thesis": HalfNormalCurve(mu, kappa).renyi(order),
                "Gaussian": GaussianCurve(mu).renyi(order),
            }
        )
    return pd.DataFrame(rows)


def composed_epsilons(
    rounds: Sequence[int], *, delta: float, sigma: float = 8.0, beta: float = 1.0, lam: float = 10.0
) -> pd.DataFrame:
    """Epsilon of repeated releases at one delta, gradients of norm 1: by Rényi and numerically, by pair."""
    mu, kappa = 1 / sigma, beta / lam
    rows = []
    for count in rounds:
        thesis = ComposedCurve((Perturbation(mu, kappa, count, "half-normal"),))
        ours = ComposedCurve((Perturbation(mu, kappa, count),))
        rows.append(
            {
                "k": count,
                "thesis, Rényi": thesis.renyi_curve().epsilon(delta),
                "thesis": thesis.epsilon(delta),
                "this book, Rényi": ours.renyi_curve().epsilon(delta),
                "this book": ours.epsilon(delta),
                "Gaussian": GaussianCurve(math.sqrt(count) * mu).epsilon(delta),
            }
        )
    return pd.DataFrame(rows)


def price_frame(epsilons: Sequence[float], *, rows: int, delta: float) -> pd.DataFrame:
    """Noise multipliers of DP-SGD on so many records: ``epsilon``, ``one run``, ``honest``, ``price``.

    The number of records is taken to be public here, as in the thesis.
    """
    schedule = Schedule.of(rows, batch=BATCH, epochs=EPOCHS)
    table = noise_table(
        epsilons, delta=delta, sampling=schedule.sampling, steps=schedule.steps, analysis=None
    )
    return table.rename(columns={"single": "one run"})[["epsilon", "one run", "honest", "price"]]


def live_race(settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of :func:`experiment.race` for the small race on the synthetic data."""
    return {key: value for key, value in settings["race"].items() if key != "data"}


def race_panels(summary: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """One frame a data set with the methods that are drawn, in the order of the legend."""
    panels = {}
    for name, part in summary.groupby("data", sort=False):
        lines = [part[part["method"] == method].sort_values("epsilon") for method in DRAWN]
        panels[str(name)] = pd.concat([line for line in lines if len(line)], ignore_index=True)
    return panels


def judgement(summary: pd.DataFrame) -> pd.DataFrame:
    """What :func:`experiment.verdicts` finds against honest DP-SGD with private scores; short names."""
    found = verdicts(summary, against=HONEST_TRAIN)
    found = found.rename(columns={"largest_gain": "gain", "largest_loss": "loss"})
    columns = ["data", "method", "better", "undecided", "worse", "gain", "loss"]
    kept = found[found["method"] != ALGORITHM_7[2]]  # next to "less ridge", which it hardly differs from
    return kept.assign(method=kept["method"].map(RACE_NAMES))[columns]


def table_numbers(summary: pd.DataFrame) -> dict[str, float]:
    """Numbers of the text beside Tables 4.1 and 4.2, in points of per cent."""
    printed = beside_printed(summary)
    size = printed["difference"].abs()
    numbers = {"table_largest": float(size.max()), "table_median": float(size.median())}
    reached = summary.groupby("data")["not_private"].first()
    low = printed[printed["epsilon"] == 0.1].set_index(["data", "method"])[["printed", "mean"]]
    for name, data in (("l", "Synthetic-L"), ("adult", "Adult")):
        ours, honest = (
            100 * low.reindex([(data, method)]).to_numpy(dtype=np.float64)[0]
            for method in (ALGORITHM_7[0], HONEST)
        )
        gains = (ours - honest).tolist()
        numbers[f"gap_printed_{name}"], numbers[f"gap_measured_{name}"] = gains
        numbers[f"reached_{name}"] = 100 * float(reached[data])
    return numbers


def trials_in_words(summary: pd.DataFrame) -> str:
    """How many trials there are behind each point, by data set."""
    counts = summary.groupby("data", sort=False)["count"].min()
    most = int(counts.max())
    fewer = [f"{name} {int(count)}" for name, count in counts.items() if count < most]
    return f"{most} trials a point" + (f" ({', '.join(fewer)})" if fewer else "")


def race_numbers(summary: pd.DataFrame) -> dict[str, int]:
    """Counts of the text below Figure 4.2: points at which intervals are apart, and at which means are ordered."""
    numbers: dict[str, int] = {}
    for against, prefix in ((HONEST, "race"), (HONEST_TRAIN, "fair")):
        sums = verdicts(summary, against=against).groupby("method").sum(numeric_only=True)
        for method, name in ((ALGORITHM_7[0], prefix), (LESS_NOISE, f"{prefix}_less")):
            for count in ("points", "better", "worse", "better_small", "small"):
                numbers[f"{name}_{count}"] = int(sums[count][method])
    first = verdicts(summary, against=HONEST).query("method == @ALGORITHM_7[0]")
    for data, better, worse in first[["data", "better", "worse"]].itertuples(index=False):
        key = str(data).lower().replace("-", "_")
        numbers |= {f"race_{key}_better": int(better), f"race_{key}_worse": int(worse)}
    wide = summary.set_index(["data", "epsilon", "method"])["mean"].unstack()  # noqa: PD010
    numbers["ridge_lower"] = int((wide[ALGORITHM_7[1]] < wide[ALGORITHM_7[0]]).sum())
    numbers["noise_higher"] = int((wide[LESS_NOISE] > wide[ALGORITHM_7[0]]).sum())
    return numbers


def selection_on_test(summary: pd.DataFrame, data: str = "Synthetic-H") -> dict[str, float]:
    """Accuracy of honest DP-SGD at the smallest epsilon, in per cent, by where the winner was chosen."""
    part = summary[summary["data"] == data]
    smallest = part[part["epsilon"] == part["epsilon"].min()].set_index("method")["mean"]
    return {
        "chosen_on_test": 100 * float(smallest[HONEST]),
        "chosen_on_train": 100 * float(smallest[HONEST_TRAIN]),
    }


def recorded_race(folder: Path) -> pd.DataFrame:
    """The recorded panels of Figure 4.2, one below the other."""
    names = [f"objective-perturbation-{name.lower()}.csv" for name in BENCHMARKS]
    return pd.concat([recorded(folder / name) for name in names], ignore_index=True)


def certified_at(scales: pd.DataFrame, *, epsilon: float) -> pd.DataFrame:
    """Worst-case delta at given noise scales: ``kappa``, ``sigma``, ``lower``, ``upper``."""
    rows = []
    for kappa, sigma in zip(scales["kappa"], scales["sharper"], strict=True):
        ends = [certified_delta(1 / sigma, kappa, epsilon=epsilon, direction=side) for side in DIRECTIONS]
        lower, upper = max(end.lower for end in ends), max(end.upper for end in ends)
        rows.append({"kappa": kappa, "sigma": sigma, "lower": lower, "upper": upper})
    return pd.DataFrame(rows)


def at_epsilon(panels: dict[str, pd.DataFrame], epsilon: float) -> list[dict[str, float]]:
    """Delta at the grid's point nearest to ``epsilon`` in each panel of Figure 4.1: ``thesis``, ``ours``, ``floor``."""
    found = []
    for frame in panels.values():
        nearest = float(frame["epsilon"].iloc[(frame["epsilon"] - epsilon).abs().argmin()])
        at = frame[frame["epsilon"] == nearest].set_index("analysis")["delta"]
        names = {"thesis": "hockey stick, thesis", "ours": "this book, sharper", "floor": LOWER}
        found.append({key: float(at[name]) for key, name in names.items()})
    return found


def crossing_panels(*, kappa: float) -> dict[str, pd.DataFrame]:
    """The two panels of Figure C.3."""
    return {
        f"sigma {sigma:g}, sampling {sampling:g}": renyi_crossing(
            sigma=sigma, sampling=sampling, multiplier=multiplier, kappa=kappa
        )
        for sigma, sampling, multiplier in FIGURE_C3
    }
