"""Numbers as a reader sees them: a few significant digits, never an ``e`` notation."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping

import pandas as pd

from adaptive_dp.validation import check_count

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MOST_DIGITS = 6
# Outside this range positional notation is all zeros.
_SMALLEST, _LARGEST = 1e-3, 1e7


def format_number(value: object, digits: int = 3, *, pad: bool = False) -> str:
    """Text of one value, rounded so that it does not drift from machine to machine.

    Parameters
    ----------
    value : int, float, bool, str or a numpy scalar of these
        Integers are shown exactly, with commas from 10,000 on; truth values as yes or no; text as it is.
    digits : int, default 3
        Significant digits of a float, 1 to 6. The last digits of a float64 depend on the machine.
    pad : bool, default False
        Keep trailing zeros (0.500 and not 0.5), as a column of a table wants it.

    Returns
    -------
    str
        For example ``0.0123``, ``48,842``, ``−2.5``, ``1.7 × 10⁻⁹``, ``∞``; ``–`` for a missing number.

    Raises
    ------
    TypeError
        If the value is neither a real number nor text.
    ValueError
        If ``digits`` is not between 1 and 6.
    """
    if check_count("digits", digits) > _MOST_DIGITS:
        raise ValueError(f"digits must be at most {_MOST_DIGITS}, got {digits}")
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        whole = int(value)
        text = f"{whole:,}" if abs(whole) >= 10_000 else str(whole)
    elif isinstance(value, numbers.Real):
        text = _format_float(float(value), digits, pad)
    else:
        raise TypeError(f"value must be a number or text, got {type(value).__name__}: {value!r}")
    return text.replace("-", "−")


def ends_in_words(frame: pd.DataFrame, series: Mapping[str, str]) -> str:
    """Each column of ``series`` in words, from the first row to the last: for the text of a figure."""
    return "; ".join(
        f"{label} from {format_number(float(frame[column].iloc[0]), 2)} to "
        f"{format_number(float(frame[column].iloc[-1]), 2)}"
        for column, label in series.items()
    )


def _format_float(number: float, digits: int, pad: bool) -> str:
    if math.isnan(number):
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if number == 0:
        return "0"
    mantissa, exponent = f"{number:.{digits - 1}e}".split("e")
    power = int(exponent)
    rounded = float(f"{mantissa}e{exponent}")
    if not _SMALLEST <= abs(rounded) < _LARGEST:
        if not pad and "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        # No-break spaces: the number must not be torn apart at the end of a line.
        return f"{mantissa}\u00a0×\u00a010{superscript(power)}"
    text = f"{rounded:.{max(digits - 1 - power, 0)}f}"
    if not pad and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{float(text):,.0f}" if "." not in text and abs(rounded) >= 10_000 else text


def superscript(power: int) -> str:
    """An integer in raised digits, as in 10⁻⁹."""
    return str(power).translate(_SUPERSCRIPTS)
