"""Noise in proportion to the local sensitivity, without a test: what it gives away.

Source: redberg2023, Section 3.1. Not a mechanism of this library: the scale of the noise is itself a function of the
data, and an attacker can read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from adaptive_dp.validation import check_ordinary, check_real


def laplace_pair_delta(*, shift: float, scale: float, other_scale: float, epsilon: float) -> float:
    """Hockey-stick divergence of Lap(0, scale) from Lap(shift, other_scale) at ``epsilon``, exactly.

    The log-ratio of the densities is piecewise linear with kinks at 0 and at the shift, so that the set where it
    exceeds epsilon is a union of at most three intervals whose ends are roots of linear equations.

    Parameters
    ----------
    shift : float
        Distance of the two centres, any sign.
    scale, other_scale : float
        Positive.
    epsilon : float
        Any real number.
    """
    distance = abs(check_real("shift", shift))
    b, c = check_ordinary("scale", scale), check_ordinary("other_scale", other_scale)
    level = check_real("epsilon", epsilon)

    def excess(t: float) -> float:
        return math.log(c / b) - abs(t) / b + abs(t - distance) / c - level

    # Pieces between the kinks; outside them the slope is +-(1/b - 1/c).
    reach = 800.0 * max(b, c) + distance
    knots = [-reach, 0.0, distance, reach]
    ends: list[tuple[float, float]] = []
    for left, right in pairwise(knots):
        at_left, at_right = excess(left), excess(right)
        if at_left <= 0 and at_right <= 0:
            continue
        if at_left > 0 and at_right > 0:
            ends.append((left, right))
            continue
        root = left + (right - left) * at_left / (at_left - at_right)
        ends.append((left, root) if at_left > 0 else (root, right))
    own = sum(_mass(right, b) - _mass(left, b) for left, right in ends)
    others = sum(_mass(right - distance, c) - _mass(left - distance, c) for left, right in ends)
    return own - math.exp(level) * others


def _mass(t: float, scale: float) -> float:
    """Distribution function of Lap(0, scale)."""
    return 0.5 * math.exp(t / scale) if t < 0 else 1.0 - 0.5 * math.exp(-t / scale)


def naive_noise(sensitivities: Sequence[float], *, epsilon: float) -> pd.DataFrame:
    """Exact delta of f(X) + Lap(local sensitivity / epsilon) for neighbours of sensitivity 1 and less.

    Parameters
    ----------
    sensitivities : sequence of float
        Local sensitivity of the kinder data set, in (0, 1]; that of its neighbour is 1, and so the answers may
        differ by as much as the smaller of the two.
    epsilon : float
        What the noise was calibrated to.

    Returns
    -------
    DataFrame
        Columns ``sensitivity``, ``delta`` at ``epsilon``, and ``delta_ten`` at ten times epsilon: the larger of both
        directions.
    """
    level = check_ordinary("epsilon", epsilon)
    rows = []
    for kind in np.asarray(sensitivities, dtype=np.float64):
        pair = (float(kind) / level, 1.0 / level)
        deltas = [
            max(
                laplace_pair_delta(shift=float(kind), scale=first, other_scale=second, epsilon=factor * level)
                for first, second in (pair, pair[::-1])
            )
            for factor in (1.0, 10.0)
        ]
        rows.append((float(kind), *deltas))
    return pd.DataFrame(rows, columns=["sensitivity", "delta", "delta_ten"])
