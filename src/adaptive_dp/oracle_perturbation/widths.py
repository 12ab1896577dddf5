"""What perturbing costs: the mean of the largest perturbation over W, which bounds the mean excess loss.

The answer w and a minimiser w* of the loss satisfy L(w) - L(w*) <= <eta, phi(w)> - <eta, phi(w*)>, up to the gap. The
noise has mean zero, so the mean of the right side is at most E max_w <eta, phi(w)>: the *width* of the noise over W. It
is proportional to 1 / epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.experiments import profile_settings
from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation.comparison import Gains, draw_gains, lifted_gains
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP, shift
from adaptive_dp.oracle_perturbation.embeddings import BoxEmbedding, Embedding, SimplexEmbedding, gauge_noise
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.validation import FloatArray, as_finite_array, check_count


def largest(space: IntegerBall, per_value: ArrayLike, per_squared_norm: ArrayLike) -> FloatArray:
    """Largest value over W of sum_j per_value[j, w_j + B] + per_squared_norm[|w|^2], for many tables at once.

    Parameters
    ----------
    space : IntegerBall
        W.
    per_value : array_like, shape (m, d, 2 B + 1)
        Gains of each value of each coordinate.
    per_squared_norm : array_like, shape (m, K + 1)
        Gains of each squared norm.

    Returns
    -------
    ndarray, shape (m,)
        Exact, by dynamic programming over the squared norm; m d (2 B + 1) K steps, vectorised over m.
    """
    gains, last = (
        as_finite_array("per_value", per_value, 3),
        as_finite_array("per_squared_norm", per_squared_norm, 2),
    )
    return Gains(space, gains, last).largest()


def _stacked(embedding: Embedding, noise: FloatArray) -> FloatArray:
    return np.array([-embedding.costs(table).per_value for table in noise])


def embedded_width(embedding: Embedding, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of max_w <eta, phi(w)> at epsilon = 1, shape (draws,)."""
    noise = gauge_noise(embedding, epsilon=1.0, gap=GAP, rng=rng, draws=check_count("draws", draws))
    gains = _stacked(embedding, noise)
    return largest(embedding.space, gains, np.zeros((draws, embedding.space.squared_radius + 1)))


def lifted_width(space: IntegerBall, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of max_w <eta, pi(w)> for norm noise at epsilon = 1, shape (draws,)."""
    eta = norm_exponential(shift(space, gap=GAP), space.dimension + 1, rng, draws=check_count("draws", draws))
    return lifted_gains(space, eta).largest()


def laplace_width(space: IntegerBall, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of the largest gain under RSPM's Laplace noise at epsilon = 1, shape (draws,)."""
    return draw_gains("rspm", space, epsilon=1.0, draws=check_count("draws", draws), rng=rng).largest()


def value_width(space: IntegerBall, draws: int, rng: np.random.Generator) -> FloatArray:
    """Draws of max_w N(w) - E N for joint noise on values at epsilon = 1, shape (draws,).

    That noise is nonnegative, with the same mean at every value, which moves no answer and is taken off.
    """
    gains = draw_gains("values", space, epsilon=1.0, draws=check_count("draws", draws), rng=rng)
    return gains.largest() - space.dimension * float(gains.per_value.mean())


def width_table(dimensions: Sequence[int], draws: int, rng: np.random.Generator) -> pd.DataFrame:
    """Mean widths over {-1, 0, 1}^d at epsilon = 1, one row a dimension.

    Columns: ``d``; ``norm`` (norm noise over the lift), ``laplace`` and ``box`` (RSPM), ``values`` (joint noise on
    values), ``simplex``; ``exponential``, the bound 2 log |W| on the mean excess of the exponential mechanism, which
    needs no oracle and a list of W; and ``error``, the largest standard error of the five means.
    """
    rows = []
    for d in dimensions:
        space = IntegerBall.signs(d)
        samples = {
            "norm": lifted_width(space, draws, rng),
            "laplace": laplace_width(space, draws, rng),
            "box": embedded_width(BoxEmbedding(space), draws, rng),
            "values": value_width(space, draws, rng),
            "simplex": embedded_width(SimplexEmbedding(space), draws, rng),
        }
        error = max(float(sample.std(ddof=1)) for sample in samples.values()) / math.sqrt(draws)
        means = {name: float(sample.mean()) for name, sample in samples.items()}
        rows.append({"d": d, **means, "exponential": 2.0 * math.log(space.size), "error": error})
    return pd.DataFrame(rows)


def ball_widths(dimension: int, draws: int, rng: np.random.Generator) -> dict[str, float]:
    """Mean widths over OPDisc's space of the experiments, |w|^2 <= d, of ``norm`` and of ``simplex`` noise."""
    space = IntegerBall.halfspaces(dimension)
    return {
        "norm": float(lifted_width(space, draws, rng).mean()),
        "simplex": float(embedded_width(SimplexEmbedding(space), draws, rng).mean()),
    }


def draws_for(profile: str) -> int:
    """How many draws the page takes in a profile."""
    return int(
        profile_settings(profile, quick={"draws": 400}, book={"draws": 4000}, paper={"draws": 20_000})[
            "draws"
        ]
    )
