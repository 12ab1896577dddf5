"""Tables of the counterexamples to Theorem 2 of neel2019, as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.oracle_perturbation.flaws_discrete import parity_table, printed_ratio, simulated_table
from adaptive_dp.oracle_perturbation.flaws_discrete_tail import best_start, sampled_tail_delta, tail_delta

SHAPES = ("cube", "rings")
Frames = dict[str, pd.DataFrame]


def parity_frames(
    sizes: Mapping[str, Any], *, epsilon: float, delta: float, rng: np.random.Generator
) -> tuple[Frames, Frames]:
    """Exact curves and simulated points of the parity losses, for both shapes.

    Parameters
    ----------
    sizes : mapping
        ``curve``, ``points`` and ``runs`` of :func:`~adaptive_dp.oracle_perturbation.flaws_discrete.settings`.
    epsilon, delta : float
        The claim.
    rng : numpy.random.Generator

    Returns
    -------
    (dict, dict)
        Frames by shape.
    """
    exact = {shape: parity_table(shape, sizes["curve"], epsilons=[epsilon], delta=delta) for shape in SHAPES}
    drawn = {
        shape: simulated_table(
            shape, sizes["points"], epsilon=epsilon, delta=delta, runs=sizes["runs"], rng=rng
        )
        for shape in SHAPES
    }
    return exact, drawn


def sampled_row(
    dimension: int, *, epsilon: float, delta: float, runs: int, rng: np.random.Generator
) -> pd.DataFrame:
    """The rare-noise bound of the printed scale by its integral and by importance sampling.

    Returns
    -------
    DataFrame
        One row: ``d``, ``exact``, ``sampled``, ``error`` (one standard error), ``claimed``.
    """
    ratio = printed_ratio(epsilon=epsilon, delta=delta)
    start = best_start(dimension, ratio=ratio, epsilon=epsilon)
    mean, error = sampled_tail_delta(dimension, ratio=ratio, epsilon=epsilon, start=start, runs=runs, rng=rng)
    exact = tail_delta(dimension, ratio=ratio, epsilon=epsilon, start=start)
    return pd.DataFrame([{"d": dimension, "exact": exact, "sampled": mean, "error": error, "claimed": delta}])
