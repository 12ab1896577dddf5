"""Simulated data that stand in for files which no package registry holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import brentq
from scipy.special import betainc, betaincinv, log_ndtr

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.preparation import scale_rows
from adaptive_dp.privacy import NORMS, Domain, row_norms
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_generator, check_positive

DAYS = 7
# The eleven measures of UCI's Twitter data, each for seven days, in the order of the file.
MEASURES = ("NCD", "AI", "AS(NA)", "BL", "NAC", "AS(NAC)", "CS", "AT", "NA", "ADL", "NAD")
BUZZ_NAMES = tuple(f"{measure}_{day}" for measure in MEASURES for day in range(DAYS))


@dataclass(frozen=True)
class Published:
    """Summary statistics of one column of UCI's Twitter data (583,250 rows)."""

    quartiles: tuple[float, float, float]
    mean: float
    top: float


PUBLISHED_ROWS = 583_250
FIRST_DAY = Published((3.0, 18.0, 104.0), 140.3, 24_210.0)
LAST_DAY = Published((6.0, 30.0, 164.0), 219.4, 79_079.0)
TARGET = Published((4.5, 25.5, 139.0), 191.3, 75_724.5)
# Correlation of neighbouring days on the normal scale: topics live for weeks.
PERSISTENCE = 0.97
# Where the upper tail bends; the level there is fitted so that the mean is the published one.
BEND = 0.999
# Other counts follow the number of new discussions (NCD) as factor * NCD ** power, within +- noise.
# The powers below one make the published ratios fall with the level, as the quartiles and means say.
FOLLOWERS = {
    "AI": (0.70, 0.950, 0.10),
    "NAC": (1.12, 0.993, 0.03),
    "NA": (0.98, 0.985, 0.05),
    "NAD": (1.003, 1.000, 0.003),
}
# Attention shares: level of one author (AI) and of one container (NAC) in all of the site's traffic.
SHARE_OF_AUTHOR = 2.85e-6
SHARE_OF_CONTAINER = 7.5e-7
# Lengths of discussions (ADL) and author interaction (AT) are one, plus on a share of the active cells
# a Pareto excess of this scale and index, up to the published maximum.
LENGTHS = {"ADL": (0.26, 295.0), "AT": (0.20, 283.0)}
LENGTH_SHARE = 0.35
LENGTH_INDEX = 1.5
LOG_SCALINGS = ("paper", "unit", "bound")
LINEAR_LABELS = ("sign", "real")


def _quantile_function(column: Published, bend: float) -> PchipInterpolator:
    """Monotone interpolation of log(1 + level) against -log(1 - probability).

    It passes through zero, the quartiles, the bend and the maximum, which is reached at the last of the
    published rows. On these axes a straight line is a Pareto tail.
    """
    probabilities = np.array([0.0, 0.25, 0.5, 0.75, BEND, 1 - 1 / PUBLISHED_ROWS])
    levels = np.array([0.0, *column.quartiles, bend, column.top])
    return PchipInterpolator(-np.log1p(-probabilities), np.log1p(levels))


@lru_cache(maxsize=DAYS + 1)
def _fitted_quantiles(column: Published) -> tuple[FloatArray, FloatArray]:
    """A table (-log(1 - probability), log(1 + level)) of the quantile function with the published mean.

    The table is fine enough for linear interpolation, which is much faster than the cubic, and constant
    beyond its end.
    """
    grid = np.linspace(0.0, float(np.log(PUBLISHED_ROWS)), 4_000)

    def excess(bend: float) -> float:
        levels = np.expm1(_quantile_function(column, bend)(grid))
        tail = column.top / PUBLISHED_ROWS
        return float(np.trapezoid(levels * np.exp(-grid), grid)) + tail - column.mean

    bend = float(brentq(excess, 1.01 * column.quartiles[2], 0.9 * column.top, xtol=1e-6))
    return grid, np.asarray(_quantile_function(column, bend)(grid), dtype=np.float64)


def _between(day: int) -> Published:
    """The published first and last day, and days between them by geometric interpolation."""
    share = day / (DAYS - 1)

    def mix(first: float, last: float) -> float:
        return float(np.expm1((1 - share) * np.log1p(first) + share * np.log1p(last)))

    first, second, third = (mix(*pair) for pair in zip(FIRST_DAY.quartiles, LAST_DAY.quartiles, strict=True))
    return Published(
        (first, second, third), mix(FIRST_DAY.mean, LAST_DAY.mean), mix(FIRST_DAY.top, LAST_DAY.top)
    )


def _scores(rows: int, rng: np.random.Generator) -> FloatArray:
    """Stationary AR(1) scores of standard exponential law, shape (DAYS + 1, rows)."""
    normals = rng.standard_normal((DAYS + 1, rows))
    for day in range(1, DAYS + 1):
        normals[day] = PERSISTENCE * normals[day - 1] + np.sqrt(1 - PERSISTENCE**2) * normals[day]
    # -log of the upper tail probability; log_ndtr keeps it exact far out.
    return np.asarray(-log_ndtr(-normals), dtype=np.float64)


def _lengths(measure: str, active: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Lengths from 1 up with a heavy tail where there is activity, 0 elsewhere; shape of ``active``."""
    scale, top = LENGTHS[measure]
    uniforms = rng.random(active.shape) / LENGTH_SHARE
    tail = uniforms < 1
    lengths = active.copy()
    excess = scale * (np.maximum(uniforms[tail], 1e-9) ** (-1 / LENGTH_INDEX) - 1)
    lengths[tail] *= np.minimum(1 + excess, top)
    return lengths


def buzz_tops() -> FloatArray:
    """Largest value of each of the 77 columns that the simulator can produce, shape (77,).

    These are constants of the simulator and therefore public bounds.
    """
    levels = np.array([np.round(_between(day).top) for day in range(DAYS)])
    tops = {
        "NCD": levels,
        "BL": np.ones(DAYS),
        "CS": np.ones(DAYS),
        **{name: (1 + noise) * factor * levels**power for name, (factor, power, noise) in FOLLOWERS.items()},
        **{name: np.full(DAYS, top) for name, (_, top) in LENGTHS.items()},
    }
    tops["AS(NA)"] = SHARE_OF_AUTHOR * tops["AI"]
    tops["AS(NAC)"] = SHARE_OF_CONTAINER * tops["NAC"]
    every: FloatArray = np.concatenate([tops[measure] for measure in MEASURES])
    return every


def simulate_buzz_table(rows: int, *, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Raw "Buzz-like" columns (rows, 77) and targets (rows,), before any transform.

    Parameters
    ----------
    rows : int
        Number of records, at least 1.
    rng : numpy.random.Generator

    Returns
    -------
    features : ndarray, shape (rows, 77)
        Eleven nonnegative measures for seven days, named by :data:`BUZZ_NAMES`.
    target : ndarray, shape (rows,)
        Mean number of active discussions in the days after, between 0 and 75,724.5.

    Notes
    -----
    One latent AR(1) path a topic drives all columns. Numbers of new discussions follow a quantile
    function through the published quartiles and maximum of the first and the last day, with the tail
    fitted to the published mean; the other measures follow by their published ratios.
    """
    check_count("rows", rows)
    check_generator(rng)
    scores = _scores(rows, rng)
    levels = np.empty((DAYS, rows))
    for day in range(DAYS):
        levels[day] = np.round(np.expm1(np.interp(scores[day], *_fitted_quantiles(_between(day)))))
    active = (levels > 0).astype(np.float64)
    columns = {"NCD": levels, "BL": active, "CS": active}
    for measure, (factor, power, noise) in FOLLOWERS.items():
        columns[measure] = levels**power * rng.uniform(
            factor * (1 - noise), factor * (1 + noise), size=levels.shape
        )
    columns["AS(NA)"] = SHARE_OF_AUTHOR * columns["AI"]
    columns["AS(NAC)"] = SHARE_OF_CONTAINER * columns["NAC"]
    for measure in LENGTHS:
        columns[measure] = _lengths(measure, active, rng)
    target = np.expm1(np.interp(scores[DAYS], *_fitted_quantiles(TARGET)))
    features = np.empty((rows, len(BUZZ_NAMES)))
    for place, measure in enumerate(MEASURES):
        features[:, place * DAYS : (place + 1) * DAYS] = columns[measure].T
    return features, np.clip(target, 0.0, TARGET.top)


def simulate_buzz(
    rows: int = 100_000, *, rng: np.random.Generator, norm: str = "l1", scaling: str = "paper"
) -> Dataset:
    """Simulate "Buzz-like" data: ridge regression with 77 heavy-tailed features.

    The Twitter data of ligett2017 are in no package registry, so this simulator reproduces their
    published summary statistics; call the result Buzz-like, not Twitter. The largest values are
    *constants* of the simulator (:func:`buzz_tops`) and hence public bounds, whereas the paper takes
    them from the data, which is not private.

    Parameters
    ----------
    rows : int
        Number of records.
    rng : numpy.random.Generator
    norm : {"l1", "l2", "linf"}
        Norm of the declared domain; the bound is 1.
    scaling : {"paper", "unit", "bound"}
        ``"paper"``: raw features divided by the largest norm that a row can have. A typical row is then
        a thousand times shorter than the longest one, and with a ridge of the usual size the best fit
        gains next to nothing over theta = 0. ``"unit"`` and ``"bound"`` map log(1 + value) of each
        column to [0, 1] by its public top first, then scale rows as in
        :func:`adaptive_dp.datasets.preparation.scale_rows`.

    Returns
    -------
    Dataset
        ``rows`` x 77, real labels in [0, 1]: log(1 + target) over its largest value;
        ``restore_labels`` gives log(1 + target).
    """
    check_choice("norm", norm, NORMS)
    check_choice("scaling", scaling, LOG_SCALINGS)
    features, target = simulate_buzz_table(rows, rng=rng)
    tops = buzz_tops()
    if scaling == "paper":
        features /= row_norms(tops[np.newaxis], norm)
    else:
        features = scale_rows(np.log1p(features) / np.log1p(tops), norm, scaling, tops.size)
    scale = float(np.log1p(TARGET.top))
    return Dataset(
        features,
        np.log1p(target) / scale,
        Domain(norm=norm, feature_bound=1.0, labels="real", label_bound=1.0),
        BUZZ_NAMES,
        title="Buzz-like (simulated)",
        label_scale=scale,
    )


def simulate_unit_rows(rows: int, columns: int, rng: np.random.Generator, *, labels: str = "sign") -> Dataset:
    """Simulate rows of length 1 whose labels a hidden linear rule gives without error.

    Parameters
    ----------
    rows, columns : int
        Number of records and of features, at least 1.
    rng : numpy.random.Generator
    labels : {"sign", "real"}
        ``"sign"``: the side of the hidden plane, -1 or +1. ``"real"``: x'theta / |theta|, which no unit row can
        bring outside [-1, 1].

    Returns
    -------
    Dataset
        ``rows`` x ``columns``, l2 bound 1. Real labels restore to x'theta.

    Raises
    ------
    ValueError
        If there is no row or no column, or ``labels`` is unknown.
    TypeError
        If ``rng`` is no generator or a count is no integer.

    Notes
    -----
    The data of Redberg (2023), section 2.4.1: the entries of theta and of the rows are standard normal, then each row
    is divided by its length. The thesis brings its labels to [0, 1] by their extremes, which belong to the records;
    here the length of theta does it, a constant of the population. Theta is drawn first, so that a larger sample of the
    same seed begins with the smaller one.
    """
    check_count("rows", rows)
    check_count("columns", columns)
    check_choice("labels", labels, LINEAR_LABELS)
    theta = check_generator(rng).standard_normal(columns)
    features = rng.standard_normal((rows, columns))
    features /= row_norms(features, "l2")[:, np.newaxis]
    length = float(np.linalg.norm(theta))
    scores = features @ (theta / length)
    return Dataset(
        features,
        np.where(scores >= 0, 1.0, -1.0) if labels == "sign" else scores,
        Domain(norm="l2", feature_bound=1.0, labels=labels, label_bound=1.0),
        title="unit rows (simulated)",
        label_scale=length if labels == "real" else 1.0,
    )


def simulate_margin(rows: int, margin: float, rng: np.random.Generator) -> Dataset:
    """Simulate two classes in the unit disc with an empty strip between them.

    Parameters
    ----------
    rows : int
        Number of records, at least 1.
    margin : float
        Width of the strip, in (0, 2). Figure 2.3.1 of Redberg (2023) has 0.4.
    rng : numpy.random.Generator

    Returns
    -------
    Dataset
        ``rows`` x 2, l2 bound 1, labels -1 and +1, both equally likely. The label is the sign of the first feature,
        whose absolute value is at least ``margin / 2``: the line between the classes is the second axis, so a rule
        without intercept separates them. Each class is uniform on its part of the disc.

    Raises
    ------
    ValueError
        If there is no row, or ``margin`` is not in (0, 2).
    TypeError
        If ``rng`` is no generator, ``rows`` no integer or ``margin`` no number.
    """
    check_count("rows", rows)
    if check_positive("margin", margin) >= 2:
        raise ValueError(f"margin must be below 2, the width of the disc, got {margin!r}")
    labels = np.where(check_generator(rng).random(rows) < 0.5, -1.0, 1.0)
    # One coordinate of a uniform point of the disc is 1 - 2 B with B of the law Beta(3/2, 3/2); the strip cuts B.
    half = margin / 2
    cut = betainc(1.5, 1.5, (1 - half) / 2)
    across = np.maximum(1 - 2 * betaincinv(1.5, 1.5, cut * rng.random(rows)), half)
    along = rng.uniform(-1, 1, rows) * np.sqrt((1 - across) * (1 + across))
    return Dataset(
        np.column_stack([labels * across, along]),
        labels,
        Domain(norm="l2", feature_bound=1.0, labels="sign", label_bound=1.0),
        title=f"two classes, margin {margin:g} (simulated)",
    )
