"""The runs of Figure 1 in the shape that the page's figures, tables and numbers want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from adaptive_dp.experiments import load_results
from adaptive_dp.oracle_perturbation.adult_experiment import (
    COLUMNS,
    METHODS,
    OBJECTIVE,
    OPDISC,
    REGRESSIONS,
    RSPM,
    SGD,
    SGD_TUNED,
    SHORT,
    SIMPLEX,
    TUNED,
)
from adaptive_dp.plots import format_number

FAMILIES = {
    **dict.fromkeys(OPDISC, "OPDisc"),
    **dict.fromkeys(RSPM, "RSPM"),
    SIMPLEX: "Simplex",
    **dict.fromkeys(REGRESSIONS, "regression"),
}
# What is drawn beside what: the discrete mechanisms, and two of them against regression.
DRAWN = ("OPDisc, norm", "OPDisc, Gaussian", "OPDisc, printed", "RSPM, Laplace", "RSPM, printed", SIMPLEX)
AGAINST = ("OPDisc, norm", SIMPLEX, SHORT, TUNED, SGD_TUNED, OBJECTIVE)
SHOWN = (0.1, 0.5, 1.0, 2.0, 8.0)


def recorded_runs(results: Path, columns: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The runs of one set of columns at the size of the paper; parameters and ``wall_seconds`` of the recording."""
    if columns not in COLUMNS:
        raise ValueError(f"columns must be one of {', '.join(COLUMNS)}, got {columns!r}")
    runs, metadata = load_results(results / f"beyond-convexity-{columns}.csv")
    return runs, {**metadata["parameters"], "wall_seconds": float(metadata["wall_seconds"])}


def summary_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean and standard deviation of the accuracies, as the paper shows them.

    Returns
    -------
    DataFrame
        ``method``, ``epsilon``, ``count``, ``mean``, ``sd`` (empirical, n - 1), ``low``, ``high`` (mean minus and plus
        one standard deviation), in order of appearance.
    """
    groups = runs.groupby(["method", "epsilon"], sort=False)["accuracy"]
    table = groups.agg(count="size", mean="mean", sd="std").reset_index()
    table["low"], table["high"] = table["mean"] - table["sd"], table["mean"] + table["sd"]
    return table


def accuracy_frame(runs: pd.DataFrame, epsilons: Sequence[float] = SHOWN) -> pd.DataFrame:
    """Accuracies in per cent, mean and standard deviation as text; a row a method, a column an epsilon."""
    known = [method for method in METHODS if (runs["method"] == method).any()]
    rows = []
    for method in known:
        pairs = {format_number(epsilon): at(runs, method, epsilon) for epsilon in epsilons}
        cells = {name: f"{mean:.1f} ± {sd:.1f}" for name, (mean, sd) in pairs.items()}
        rows.append({"method": method, **cells})
    return pd.DataFrame(rows)


def compare(runs: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Two methods beside one another at every epsilon that both have.

    Returns
    -------
    DataFrame
        ``epsilon``, ``gain`` (mean of the first less that of the second, points of per cent), ``apart`` (the gain in
        standard errors), ``sd_ratio`` (standard deviation of the first over that of the second).
    """
    table = summary_of(runs).set_index(["method", "epsilon"])
    one, two = table.loc[first], table.loc[second]
    levels = [level for level in one.index if level in two.index]
    one, two = one.loc[levels], two.loc[levels]
    error = np.sqrt(one["sd"] ** 2 / one["count"] + two["sd"] ** 2 / two["count"])
    gain = one["mean"] - two["mean"]
    return pd.DataFrame(
        {
            "epsilon": levels,
            "gain": 100 * gain.to_numpy(),
            "apart": (gain / error).to_numpy(),
            "sd_ratio": (one["sd"] / two["sd"]).to_numpy(),
        }
    )


def verdict(runs: pd.DataFrame, first: str, second: str) -> dict[str, Any]:
    """In how many epsilons the first method is better or worse by more than two standard errors, and by how much."""
    table = compare(runs, first, second)
    gains = table["gain"].to_numpy()
    return {
        "first": first,
        "second": second,
        "points": len(table),
        "better": int((table["apart"] > 2).sum()),
        "worse": int((table["apart"] < -2).sum()),
        "largest gain": float(gains.max()),
        "at": float(table["epsilon"].iloc[int(gains.argmax())]),
        "largest loss": float(gains.min()),
        "steadier": int((table["sd_ratio"] < 1).sum()),
    }


PAIRS = (
    ("OPDisc, norm", SHORT),
    ("OPDisc, norm", SGD),
    ("OPDisc, norm", TUNED),
    ("OPDisc, norm", OBJECTIVE),
    ("OPDisc, printed", SHORT),
    ("OPDisc, printed", "RSPM, printed"),
    ("OPDisc, norm", "RSPM, Laplace"),
    ("OPDisc, norm", "RSPM, box"),
    (SIMPLEX, "OPDisc, norm"),
    (SIMPLEX, SHORT),
    (SIMPLEX, TUNED),
    (SIMPLEX, OBJECTIVE),
)


def claims_frame(
    panels: Mapping[str, pd.DataFrame], pairs: Sequence[tuple[str, str]] = PAIRS
) -> pd.DataFrame:
    """What the paper says of its figure in words, counted.

    Returns
    -------
    DataFrame
        One row a pair. ``method``, ``against``, and for each panel its name (at how many epsilons the method is better
        and worse, as text) and its name with ``", gain"`` (the largest difference of the means in points).
    """
    rows = []
    for first, second in pairs:
        row: dict[str, Any] = {"method": first, "against": second}
        for name, runs in panels.items():
            found = verdict(runs, first, second)
            row[name] = f"{found['better']} : {found['worse']}"
            row[f"{name}, gain"] = found["largest gain"]
        rows.append(row)
    return pd.DataFrame(rows)


def time_frame(runs: pd.DataFrame) -> pd.DataFrame:
    """Processor seconds of single runs by family, and the nodes of the oracles.

    Returns
    -------
    DataFrame
        ``family``, ``runs``, ``median``, ``largest`` (seconds), ``nodes`` (median), ``gap`` (largest that was proved).
    """
    family = runs["method"].map(FAMILIES)
    groups = runs.groupby(family, sort=False)
    table = groups.agg(
        runs=("seconds", "size"),
        median=("seconds", "median"),
        largest=("seconds", "max"),
        nodes=("nodes", "median"),
        gap=("gap", "max"),
    )
    return table.rename_axis("family").reset_index()


def beaten_in_time(runs: pd.DataFrame, name: str = "OPDisc") -> float:
    """Share of the runs of a family that took less time than the median run of logistic regression at its epsilon."""
    family = runs["method"].map(FAMILIES)
    regression = runs[family == "regression"].groupby("epsilon")["seconds"].median()
    discrete = runs[family == name]
    return float((discrete["seconds"] < discrete["epsilon"].map(regression)).mean())


def at(runs: pd.DataFrame, method: str, epsilon: float) -> tuple[float, float]:
    """Mean and standard deviation of the accuracy, in per cent."""
    values = runs.loc[(runs["method"] == method) & (runs["epsilon"] == epsilon), "accuracy"]
    if not len(values):
        raise ValueError(f"runs hold nothing of {method!r} at epsilon {epsilon!r}")
    return 100 * float(values.mean()), 100 * float(values.std())


def study_numbers(
    recorded: Mapping[str, tuple[pd.DataFrame, Mapping[str, Any]]], *, epsilon: float = 1.0
) -> dict[str, float | int]:
    """Numbers of the text on the whole study; times are those of the reading ``"code"``.

    Parameters
    ----------
    recorded : mapping
        What :func:`recorded_runs` returns, by set of columns.
    epsilon : float
        Where the proved delta of the printed scale is read, and the accuracy at half of that scale: the scale is
        proportional to 1 / epsilon, so that half of it is the printed one at twice the epsilon.
    """
    runs, parameters = recorded["code"]
    printed = runs[(runs["method"] == "OPDisc, printed") & (runs["epsilon"] == epsilon)]
    seconds = runs.loc[runs["method"].map(FAMILIES) == "OPDisc", "seconds"]
    half = {
        f"adult_{name}_half": at(found, "OPDisc, printed", 2 * epsilon)[0]
        for name, (found, _) in recorded.items()
    }
    return {
        **half,
        "adult_runs": int(parameters["runs"]),
        "adult_delta": float(parameters["delta"]),
        "adult_delta_printed": float(printed["delta"].iloc[0]),
        "adult_gap_allowed": float(parameters["gap"]),
        "adult_gap_largest": max(float(found["gap"].max()) for found, _ in recorded.values()),
        "adult_solves": sum(int(found["gap"].notna().sum()) for found, _ in recorded.values()),
        "adult_spread": float(seconds.max() / seconds.median()),
        "adult_beaten": 100 * beaten_in_time(runs),
        "adult_beaten_rspm": 100 * beaten_in_time(runs, "RSPM"),
        "adult_grid": grid_seconds(parameters),
        "adult_minutes": parameters["wall_seconds"] / 60,
    }


def weights_frame(names: Sequence[str], point: NDArray[Any]) -> pd.DataFrame:
    """The weights of a halfspace that are not 0, largest first: ``column``, ``weight``."""
    table = pd.DataFrame({"column": list(names), "weight": np.asarray(point).astype(int)})
    return table[table["weight"] != 0].sort_values(
        "weight", ascending=False, kind="stable", ignore_index=True
    )


def tuned_frame(parameters: Mapping[str, Any]) -> pd.DataFrame:
    """The settings that the grids chose, by learner and epsilon, from the recorded parameters."""
    return pd.DataFrame(parameters["tuned"])


REFERENCE_NAMES = {"regression": "LR, no noise", "halfspaces": "best halfspace"}


def reference_lines(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Names and accuracies of what needs no noise, for a figure."""
    return {name: float(parameters["references"][key]) for key, name in REFERENCE_NAMES.items()}


SHORT_NAMES = {
    "norm": "OPDisc, norm",
    "printed": "OPDisc, printed",
    "box": "RSPM, box",
    "laplace": "RSPM, Laplace",
    "separators": "RSPM, printed",
    "simplex": SIMPLEX,
    "short": SHORT,
    "sgd": SGD,
    "tuned": TUNED,
    "sgd_tuned": SGD_TUNED,
    "objective": OBJECTIVE,
}
# Pairs of them that the text compares.
COMPARED = (
    ("norm", "short"),
    ("norm", "tuned"),
    ("norm", "sgd_tuned"),
    ("norm", "objective"),
    ("norm", "box"),
    ("simplex", "norm"),
    ("simplex", "sgd_tuned"),
    ("simplex", "objective"),
    ("printed", "separators"),
    ("printed", "short"),
)


def accuracy_numbers(
    runs: pd.DataFrame, parameters: Mapping[str, Any], *, prefix: str, epsilon: float
) -> dict[str, float]:
    """Numbers of the text: mean accuracies in per cent at one epsilon, and without noise."""
    means = {f"{prefix}_{key}": at(runs, method, epsilon)[0] for key, method in SHORT_NAMES.items()}
    ceilings = {f"{prefix}_best_{key}": 100 * value for key, value in parameters["references"].items()}
    return {**means, **ceilings}


def claim_numbers(
    runs: pd.DataFrame, pairs: Sequence[tuple[str, str]], *, prefix: str
) -> dict[str, float | int]:
    """Numbers of the text on pairs of :data:`SHORT_NAMES`: better, worse, steadier, and the largest gain and loss."""
    numbers: dict[str, float | int] = {}
    for first, second in pairs:
        found = verdict(runs, SHORT_NAMES[first], SHORT_NAMES[second])
        name = f"{prefix}_{first}_{second}"
        numbers |= {
            f"{name}_better": found["better"],
            f"{name}_worse": found["worse"],
            f"{name}_steadier": found["steadier"],
            f"{name}_gain": found["largest gain"],
            f"{name}_loss": -found["largest loss"],
        }
    return numbers


def grid_seconds(parameters: Mapping[str, Any], learner: str = TUNED) -> float:
    """Median processor time of one grid search, over the epsilons."""
    table = tuned_frame(parameters)
    return float(table.loc[table["learner"] == learner, "seconds"].median())
