"""Regression on tables: bike rentals, concrete strength, red wine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.files import read_table
from adaptive_dp.datasets.preparation import log_range, scale_rows, to_range
from adaptive_dp.privacy import NORMS, Domain
from adaptive_dp.validation import FloatArray, check_choice

# Declared ranges: round numbers around what is physically usual. A data holder would take them from
# knowledge of the process; values outside are clipped.
CONCRETE_RANGES = {
    "cement": (0.0, 600.0),
    "blast_furnace_slag": (0.0, 400.0),
    "fly_ash": (0.0, 250.0),
    "water": (100.0, 300.0),
    "superplasticizer": (0.0, 40.0),
    "coarse_aggregate": (700.0, 1_200.0),
    "fine_aggregate": (500.0, 1_000.0),
}
CONCRETE_AGE_TOP = 365.0
CONCRETE_STRENGTH_TOP = 100.0
WINE_RANGES = {
    "fixed_acidity": (4.0, 16.0),
    "volatile_acidity": (0.0, 1.6),
    "citric_acid": (0.0, 1.0),
    "residual_sugar": (0.0, 16.0),
    "chlorides": (0.0, 0.7),
    "free_sulfur_dioxide": (0.0, 80.0),
    "total_sulfur_dioxide": (0.0, 300.0),
    "density": (0.985, 1.005),
    "pH": (2.5, 4.5),
    "sulphates": (0.0, 2.0),
    "alcohol": (8.0, 15.0),
}
WINE_QUALITY = (0.0, 10.0)
BIKE_COUNT_TOP = 1_000.0

Columns = dict[str, FloatArray]


def _regression(
    name: str,
    title: str,
    columns: Columns,
    target: FloatArray,
    target_range: tuple[float, float],
    *,
    norm: str,
    scaling: str,
    centre_labels: bool,
) -> Dataset:
    low, high = target_range
    start = -1.0 if centre_labels else 0.0
    scale = (high - low) / (1.0 - start)
    return Dataset(
        scale_rows(np.column_stack(list(columns.values())), norm, scaling, len(columns)),
        to_range(name, target, low, high, start),
        Domain(norm=norm, feature_bound=1.0, labels="real", label_bound=1.0),
        tuple(columns),
        title=title,
        label_scale=scale,
        label_shift=low - start * scale,
    )


def _check(norm: str, centre_labels: bool) -> None:
    check_choice("norm", norm, NORMS)
    if not isinstance(centre_labels, bool):
        raise TypeError(f"centre_labels must be True or False, got {centre_labels!r}")


def _ranges(table: pd.DataFrame, ranges: Mapping[str, tuple[float, float]]) -> Columns:
    return {name: to_range(name, table[name], low, high, -1.0) for name, (low, high) in ranges.items()}


def load_bike(*, norm: str = "l1", scaling: str = "unit", centre_labels: bool = True) -> Dataset:
    """Hourly bike rentals, 17,379 x 13; the label is log(1 + count).

    The hour enters as two harmonics of the day and the month as one harmonic of the year, so that a
    linear model can follow the commuters. Season and weekday are left out (month, holiday and working
    day say nearly the same), and so is the weather code, which the source blanks in some rows. Left
    out on purpose are *casual* and *registered*, which sum to the count: the 17 features of wang2018
    contain both, a leak of the label into the features.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`; public constants, no privacy cost.
    centre_labels : bool
        True maps log(1 + count), with counts clipped at 1,000, onto [-1, 1]; False onto [0, 1].

    Returns
    -------
    Dataset
        ``restore_labels`` gives log(1 + count).
    """
    _check(norm, centre_labels)
    table = read_table("bike")
    hour = 2 * np.pi * table["hr"].to_numpy() / 24
    month = 2 * np.pi * (table["mnth"].to_numpy() - 1) / 12
    waves: dict[str, tuple[Callable[[FloatArray], FloatArray], FloatArray]] = {
        "sin hour": (np.sin, hour),
        "cos hour": (np.cos, hour),
        "sin 2 hour": (np.sin, 2 * hour),
        "cos 2 hour": (np.cos, 2 * hour),
        "sin month": (np.sin, month),
        "cos month": (np.cos, month),
    }
    plain = ("yr", "holiday", "workingday", "temp", "atemp", "hum", "windspeed")
    columns = _ranges(table.astype(dict.fromkeys(plain, float)), dict.fromkeys(plain, (0.0, 1.0)))
    columns |= {name: wave(angle) for name, (wave, angle) in waves.items()}
    counts = np.clip(table["cnt"].to_numpy(dtype=np.float64), 0, BIKE_COUNT_TOP)
    return _regression(
        "cnt",
        "Bike sharing, hourly",
        columns,
        np.log1p(counts),
        (0.0, float(np.log1p(BIKE_COUNT_TOP))),
        norm=norm,
        scaling=scaling,
        centre_labels=centre_labels,
    )


def load_concrete(*, norm: str = "l1", scaling: str = "unit", centre_labels: bool = True) -> Dataset:
    """Compressive strength of concrete, 1,030 x 8; the label is the strength in MPa.

    Amounts in kg per cubic metre are mapped to [-1, 1] by declared ranges; the age in days enters as
    its logarithm, up to a year.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`; public constants, no privacy cost.
    centre_labels : bool
        True maps strengths, clipped to [0, 100] MPa, onto [-1, 1]; False onto [0, 1].

    Returns
    -------
    Dataset
        ``restore_labels`` gives MPa.
    """
    _check(norm, centre_labels)
    table = read_table("concrete")
    columns = _ranges(table, CONCRETE_RANGES) | {
        "age": log_range("age", table["age"], CONCRETE_AGE_TOP, -1.0)
    }
    return _regression(
        "compressive_strength",
        "Concrete compressive strength",
        columns,
        table["compressive_strength"].to_numpy(),
        (0.0, CONCRETE_STRENGTH_TOP),
        norm=norm,
        scaling=scaling,
        centre_labels=centre_labels,
    )


def load_wine_red(*, norm: str = "l2", scaling: str = "unit", centre_labels: bool = True) -> Dataset:
    """Quality of red wine, 1,599 x 11 (the size that wang2018 states); the label is a grade from 0 to 10.

    redberg2023 says "wine quality" without a colour; red is used here.

    Parameters
    ----------
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"unit", "bound"}
        See :func:`adaptive_dp.datasets.preparation.scale_rows`; public constants, no privacy cost.
    centre_labels : bool
        True maps grades from 0 to 10 onto [-1, 1]; False onto [0, 1].

    Returns
    -------
    Dataset
        ``restore_labels`` gives grades.
    """
    _check(norm, centre_labels)
    table = read_table("wine_red")
    return _regression(
        "quality",
        "Wine quality, red",
        _ranges(table, WINE_RANGES),
        table["quality"].to_numpy(),
        WINE_QUALITY,
        norm=norm,
        scaling=scaling,
        centre_labels=centre_labels,
    )
