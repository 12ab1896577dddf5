"""Means and shares of what a sweep returned, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_probability


def summarise(frame: pd.DataFrame, by: str | Sequence[str], value: str, level: float = 0.95) -> pd.DataFrame:
    """Mean of a column in each group, with Student's t interval.

    Parameters
    ----------
    frame : pandas.DataFrame
        As `sweep` returns it.
    by : str or sequence of str
        Columns that make up the groups.
    value : str
        Column to average; it must have no missing entries, since leaving out failed runs would
        change what the mean means.
    level : float
        Coverage of the interval, in (0, 1).

    Returns
    -------
    pandas.DataFrame
        Columns ``by``, ``count``, ``mean``, ``standard_error``, ``low``, ``high``, in order of
        appearance. The last three are missing for a group of one.

    Raises
    ------
    ValueError
        If a column is missing or ``value`` is not finite throughout.
    """
    coverage = check_probability("level", level)
    rows = []
    for key, sample in _groups(frame, by, value):
        count = sample.size
        mean = float(sample.mean())
        error = float(sample.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
        half = float(stats.t.ppf((1 + coverage) / 2, count - 1)) * error if count > 1 else math.nan
        interval = {"low": mean - half, "high": mean + half}
        rows.append({**key, "count": count, "mean": mean, "standard_error": error, **interval})
    return pd.DataFrame.from_records(rows)


def summarise_proportion(
    frame: pd.DataFrame, by: str | Sequence[str], value: str, level: float = 0.95
) -> pd.DataFrame:
    """Share of truths of a column in each group, with the Clopper-Pearson interval.

    Parameters are those of `summarise`; ``value`` holds truth values or zeros and ones.

    Returns
    -------
    pandas.DataFrame
        Columns ``by``, ``count``, ``mean``, ``low``, ``high``.

    Raises
    ------
    ValueError
        If a column is missing or ``value`` holds anything but zero and one.
    """
    rows = []
    for key, sample in _groups(frame, by, value):
        if not np.isin(sample, (0.0, 1.0)).all():
            raise ValueError(
                f"{value} must hold truth values only, got {sample[~np.isin(sample, (0.0, 1.0))][0]!r}"
            )
        low, high = proportion_interval(int(sample.sum()), sample.size, level)
        rows.append({**key, "count": sample.size, "mean": float(sample.mean()), "low": low, "high": high})
    return pd.DataFrame.from_records(rows)


def _groups(
    frame: pd.DataFrame, by: str | Sequence[str], value: str
) -> Iterator[tuple[dict[str, Any], FloatArray]]:
    names = [by] if isinstance(by, str) else list(by)
    for name in [*names, value]:
        if name not in frame.columns:
            raise ValueError(f"frame has no column {name!r}, only {list(map(str, frame.columns))}")
    taken = {"count", "mean", "standard_error", "low", "high"} & set(names)
    if taken:
        raise ValueError(f"by must not name {sorted(taken)[0]!r}, which is a column of the summary")
    if not names or not len(frame):
        raise ValueError("summarise needs at least one column in by and one row in frame")
    for key, part in frame.groupby(names, sort=False, observed=True, dropna=False):
        yield dict(zip(names, key, strict=True)), as_finite_array(value, part[value].to_numpy(), ndim=1)


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a probability from ``successes`` out of ``trials`` (Clopper and Pearson 1934).

    It covers the true probability at least with probability ``level``, for every number of trials.

    Raises
    ------
    ValueError
        If ``successes`` is not between 0 and ``trials``, or ``level`` not in (0, 1).
    """
    total = check_count("trials", trials)
    hits = check_count("successes", successes, minimum=0)
    if hits > total:
        raise ValueError(f"successes must be at most {total}, got {hits}")
    interval = stats.binomtest(hits, total).proportion_ci(check_probability("level", level), method="exact")
    return float(interval.low), float(interval.high)
