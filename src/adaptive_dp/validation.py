"""Checks at the door: every public function refuses bad input here, before any noise is drawn.

Each check names the argument and shows the offending value. A wrong *type* raises ``TypeError``, a
right type with an impossible *value* raises ``ValueError``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Choice = TypeVar("Choice", bound=str)


def check_real(name: str, value: object) -> float:
    """Return ``value`` as a finite float; booleans, arrays and text are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}: {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must fit into a float, got an integer beyond") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number!r}")
    return number


def check_positive(name: str, value: object) -> float:
    """Return ``value`` as a float in (0, inf)."""
    number = check_real(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {number!r}")
    return number


def check_ordinary(name: str, value: object) -> float:
    """Return ``value`` as a positive float whose square and inverse square are floats too.

    Parameters of mechanisms are squared, divided and multiplied by norms: outside 1e-100 ... 1e100 that would
    overflow half-way, after noise was drawn.
    """
    number = check_positive(name, value)
    if not 1e-100 <= number <= 1e100:
        raise ValueError(f"{name} must lie between 1e-100 and 1e100, got {number!r}")
    return number


def check_probability(name: str, value: object) -> float:
    """Return ``value`` as a float in the open interval (0, 1)."""
    number = check_real(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {number!r}")
    return number


def check_count(name: str, value: object, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum``; floats and booleans are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}: {value!r}")
    count = int(value)
    if count < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {count}")
    return count


def check_choice(name: str, value: object, choices: Sequence[Choice]) -> Choice:
    """Return ``value`` if it is one of ``choices``."""
    for choice in choices:
        if value == choice:
            return choice
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_generator(rng: object, name: str = "rng") -> np.random.Generator:
    """Return ``rng`` if it is a ``numpy.random.Generator``.

    Integer seeds are refused on purpose: two releases from one integer seed would share their
    noise, and the guarantee of the pair would be lost (field report 7).
    """
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"{name} must be a numpy.random.Generator (numpy.random.default_rng(seed)), "
            f"got {type(rng).__name__}: {rng!r}"
        )
    return rng


def as_finite_array(name: str, value: ArrayLike, ndim: int | None = None) -> FloatArray:
    """Return ``value`` as a float64 array without missing or infinite entries.

    Numbers and booleans are accepted, text, objects and complex numbers are not. Masked arrays and
    sparse matrices are refused rather than silently filled.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must not be a masked array: fill or drop the masked entries first")
    if hasattr(value, "toarray"):
        raise TypeError(f"{name} must be dense, got {type(value).__name__}: call .toarray() first")
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numeric, got dtype {array.dtype}")
    array = np.array(array, dtype=np.float64)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite, got {array[where]!r} at index {where}")
    return array


def check_increasing_epsilons(epsilons: ArrayLike, name: str = "epsilons", minimum: int = 2) -> FloatArray:
    """Return a strictly increasing list of at least ``minimum`` positive privacy levels, shape (T,)."""
    levels = as_finite_array(name, epsilons, ndim=1)
    if levels.size < minimum:
        raise ValueError(f"{name} must hold at least {minimum} levels, got {levels.size}")
    if levels[0] <= 0:
        raise ValueError(f"{name} must be positive, got {levels[0]!r} at index 0")
    steps = np.diff(levels)
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0))
        raise ValueError(
            f"{name} must be strictly increasing, got {levels[at]!r} then {levels[at + 1]!r} "
            f"at indices {at} and {at + 1}"
        )
    return levels
