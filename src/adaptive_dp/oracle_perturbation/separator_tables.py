"""Frames in the shape that the section on RSPM shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from adaptive_dp.oracle_perturbation.rspm import separator_noise
from adaptive_dp.oracle_perturbation.separator_gaussian import (
    SeparatorCurve,
    largest_proved_count,
    odd_delta,
    printed_separator_sigma,
    separator_step,
    smallest_refuted_count,
)
from adaptive_dp.oracle_perturbation.separator_laws import LAWS, worst_three_point_loss


def noise_table(counts: Sequence[int], *, epsilon: float, delta: float) -> pd.DataFrame:
    """Mean absolute weight of one separator by each noise, without a gap.

    Parameters
    ----------
    counts : sequence of int
        Numbers m of separators.
    epsilon, delta : float
        delta is for the Gaussian kinds; the other two are pure.

    Returns
    -------
    DataFrame
        ``m``, ``laplace``, ``box``, ``gaussian`` (the smallest proved scale, for any W), ``printed`` (Algorithm 3).
    """
    rows = []
    for m in counts:
        laplace, box = (
            separator_noise(kind, m, epsilon=epsilon, gap=0.0).scale for kind in ("laplace", "box")
        )
        gaussian = separator_noise("gaussian", m, epsilon=epsilon, delta=delta, gap=0.0).scale
        printed = printed_separator_sigma(m, epsilon=epsilon, delta=delta)
        normal = math.sqrt(2 / math.pi)
        rows.append((m, laplace, 0.5 * (m + 1) * box, normal * gaussian, normal * printed))
    return pd.DataFrame(rows, columns=["m", "laplace", "box", "gaussian", "printed"])


def printed_noise_frame(counts: Sequence[int], *, epsilon: float, delta: float) -> pd.DataFrame:
    """What is known of Algorithm 3's noise at its own claim, for any W.

    Returns
    -------
    DataFrame
        ``m``, and delta at ``epsilon`` by three calculations: ``length`` (an upper bound from the length of the shift),
        ``separators`` (an upper bound, one separator after the other), ``parity`` (attained by a pair).
    """
    rows = []
    for m in counts:
        sigma = printed_separator_sigma(m, epsilon=epsilon, delta=delta)
        curve = SeparatorCurve(separator_step(0.0) / sigma, m)
        rows.append((m, curve.euclidean.delta(epsilon), curve.delta(epsilon), odd_delta(m, sigma, epsilon)))
    return pd.DataFrame(rows, columns=["m", "length", "separators", "parity"])


def range_table(deltas: Sequence[float], *, epsilon: float = 1.0) -> pd.DataFrame:
    """Largest m for which Algorithm 3's noise is proved, and smallest for which it is refuted.

    Returns
    -------
    DataFrame
        ``delta``, ``length`` and ``separators`` (proved up to here at ``epsilon``, by either bound), ``refuted`` (from
        here on, at some epsilon in [0.01, 1]).
    """
    rows = [
        (
            delta,
            largest_proved_count(epsilon=epsilon, delta=delta, bound="length"),
            largest_proved_count(epsilon=epsilon, delta=delta),
            smallest_refuted_count(delta=delta),
        )
        for delta in deltas
    ]
    return pd.DataFrame(rows, columns=["delta", "length", "separators", "refuted"])


def exact_table(epsilons: Sequence[float]) -> pd.DataFrame:
    """Exact worst privacy loss over W = {-1, 0, 1}: ``epsilon`` and one column for each noise of ``LAWS``."""
    frame = pd.DataFrame({"epsilon": list(epsilons)})
    for noise in LAWS:
        frame[noise] = [worst_three_point_loss(noise, epsilon=level, span=4) for level in epsilons]
    return frame


def powers(first: int, last: int, count: int) -> list[int]:
    """Different integers, evenly spread in the logarithm."""
    return sorted({int(m) for m in np.rint(np.geomspace(first, last, count))})
