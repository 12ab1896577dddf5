"""The points of a sweep, and the generator of random numbers that belongs to each run."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_dp.validation import check_count

Scalar = float | int | str | bool | None
Point = dict[str, Scalar]
"""One setting of an experiment: names and scalars."""

REPETITION = "repetition"
"""Name of the column that numbers the runs at one point."""

PROFILES = ("quick", "book", "paper")


def product(**axes: Sequence[Any]) -> list[Point]:
    """All combinations of the given values, the last name varying fastest.

    >>> product(alpha=[0.1, 0.2], method=["a"])
    [{'alpha': 0.1, 'method': 'a'}, {'alpha': 0.2, 'method': 'a'}]
    """
    for name, values in axes.items():
        if isinstance(values, str) or not len(values):
            raise ValueError(f"{name} must be a non-empty list of values, got {values!r}")
    return [dict(zip(axes, combination, strict=True)) for combination in itertools.product(*axes.values())]


def profile_settings(
    profile: str, *, quick: Mapping[str, Any], book: Mapping[str, Any], paper: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of one profile: ``"quick"`` (seconds), ``"book"`` (stored outputs), ``"paper"`` (hours).

    Raises
    ------
    ValueError
        If the profile is unknown, or the three do not set the same names: a name that is missing
        from one would be found out only when that one is run.
    """
    settings = dict(zip(PROFILES, (quick, book, paper), strict=True))
    if profile not in settings:
        raise ValueError(f"profile must be one of {', '.join(map(repr, PROFILES))}, got {profile!r}")
    for name, other in settings.items():
        if set(other) != set(book):
            raise ValueError(f"{name} sets {sorted(other)}, but book sets {sorted(book)}")
    return dict(settings[profile])


def plain(name: str, value: object) -> Scalar:
    """A scalar as Python and JSON know it; numpy scalars are unwrapped."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str(value)  # a member of a StrEnum becomes its text
    if value is None or isinstance(value, bool | int | float):
        return value
    raise TypeError(
        f"{name} must be a number, text, truth value or None, got {type(value).__name__}: {value!r}"
    )


def point_key(point: Mapping[str, Scalar]) -> str:
    """A text that is equal for equal points, whatever the order of their names; 1 and 1.0 are equal."""
    same = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in point.items()
    }
    return json.dumps(same, sort_keys=True)


def check_grid(grid: Sequence[Mapping[str, Any]], reserved: Sequence[str]) -> list[Point]:
    """Return the points with plain values; refuse an empty grid, a repeated point or a ``reserved`` name."""
    points = [{name: plain(name, value) for name, value in point.items()} for point in grid]
    if not points:
        raise ValueError("grid must hold at least one point, got none")
    seen: set[str] = set()
    for point in points:
        for name, value in point.items():
            if name in reserved:
                raise ValueError(f"grid must not set {name!r}, which the sweep sets itself")
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"grid must not hold missing numbers, got {name}={value!r}")
        if (key := point_key(point)) in seen:
            raise ValueError(f"grid holds the point {point!r} twice")
        seen.add(key)
    return points


def task_generator(
    seed: int, point: Mapping[str, Any], repetition: int, paired: Sequence[str] = ()
) -> np.random.Generator:
    """The generator of one task, a function of the seed, the point and the repetition alone.

    It is the child of ``SeedSequence(seed)`` whose spawn key is a 128-bit hash of the point followed
    by the repetition. So it depends neither on the order of the tasks, nor on the number of workers,
    nor on which other points the grid holds.

    Parameters
    ----------
    seed : int
        Base seed, not negative.
    point : mapping
        The grid point.
    repetition : int
        Number of the repetition, from 0.
    paired : sequence of str
        Names left out of the hash: points that differ only there share their random numbers, and
        so can be compared in pairs.
    """
    check_count("seed", seed, minimum=0)
    check_count("repetition", repetition, minimum=0)
    hashed = {name: plain(name, value) for name, value in point.items() if name not in paired}
    digest = hashlib.sha256(point_key(hashed).encode("utf-8")).digest()
    words = np.frombuffer(digest[:16], dtype="<u4")
    sequence = np.random.SeedSequence(seed, spawn_key=(*(int(word) for word in words), repetition))
    return np.random.default_rng(sequence)
