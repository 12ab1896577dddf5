"""Explicit steps from raw columns to bounded rows; each says whether it looks at other people's records.

Everything here works on one record at a time with constants that are fixed in advance, so that it costs
no privacy: if one record changes, exactly one prepared row changes. The one exception, division by the
largest norm in the data, is named for what it is: :func:`divide_by_largest`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.privacy import NORMS, row_norms
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_positive, check_real

SCALINGS = ("unit", "bound")


def to_range(name: str, column: ArrayLike, low: float, high: float, start: float = 0.0) -> FloatArray:
    """Clip a column to [low, high] and map it linearly onto [start, 1].

    Parameters
    ----------
    name : str
        For messages.
    column : array_like, shape (n,)
    low, high : float
        Public range, ``low < high``; values outside are clipped.
    start : float
        0 for [0, 1] or -1 for [-1, 1].

    Returns
    -------
    ndarray, shape (n,)
    """
    low, high = check_real("low", low), check_real("high", high)
    if not low < high:
        raise ValueError(f"low must be below high, got {low!r} and {high!r}")
    share = (np.clip(as_finite_array(name, column, ndim=1), low, high) - low) / (high - low)
    return np.asarray(start + (1 - start) * share, dtype=np.float64)


def log_range(name: str, column: ArrayLike, high: float, start: float = 0.0) -> FloatArray:
    """Map log(1 + value) of a nonnegative amount linearly onto [start, 1]; ``high`` is the public top."""
    values = np.clip(as_finite_array(name, column, ndim=1), 0, check_positive("high", high))
    return to_range(name, np.log1p(values), 0.0, float(np.log1p(high)), start)


def signed_log_range(name: str, column: ArrayLike, high: float) -> FloatArray:
    """Map sign(v) log(1 + |v|) of an amount that may be negative onto [-1, 1]; ``high`` bounds |v|."""
    values = as_finite_array(name, column, ndim=1)
    return np.asarray(np.sign(values) * log_range(name, np.abs(values), high), dtype=np.float64)


def one_hot(name: str, column: pd.Series, levels: Sequence[str]) -> FloatArray:
    """Indicator columns (n, len(levels)) in the order of ``levels``; an unknown level is refused."""
    codes = pd.Index(levels).get_indexer(pd.Index(column.astype(str)))
    if (codes < 0).any():
        unknown = column.iloc[int(np.argmax(codes < 0))]
        raise ValueError(f"{name} must be one of the declared levels, got {unknown!r}")
    return np.asarray(np.eye(len(levels))[codes], dtype=np.float64)


def scale_rows(matrix: FloatArray, norm: str, scaling: str, active: int) -> FloatArray:
    """Bring rows to norm at most 1 with public constants; costs no privacy.

    Parameters
    ----------
    matrix : ndarray, shape (n, d)
        Entries in [-1, 1].
    norm : {"l1", "l2", "linf"}
    scaling : {"unit", "bound"}
        ``"unit"`` divides each row by its own norm (a zero row stays zero), so that every row has norm
        1 and the length of a row is lost. ``"bound"`` divides all rows by the largest norm that a row
        of ``active`` entries in [-1, 1] can have, so that the geometry is kept and rows are short.
    active : int
        Largest number of nonzero entries that the coding allows: one for each numeric column, one for
        each group of indicators.

    Returns
    -------
    ndarray, shape (n, d)
    """
    check_choice("norm", norm, NORMS)
    if check_choice("scaling", scaling, SCALINGS) == "unit":
        norms = row_norms(matrix, norm)[:, np.newaxis]
        return matrix / np.where(norms > 0, norms, 1.0)
    return matrix / {"l1": float(active), "l2": float(np.sqrt(active)), "linf": 1.0}[norm]


def divide_by_largest(matrix: FloatArray, norm: str) -> FloatArray:
    """Divide all rows by the largest row norm *in the data*, as ligett2017 does.

    This is **not** private: one record sets the scale of all the others. It is here to repeat the
    paper's preparation, which the paper itself describes as not private (Appendix, "Features, labels,
    and transformations").
    """
    return matrix / check_positive("largest row norm", row_norms(matrix, norm).max())
