"""The exact law of separator perturbations where W has three members, to see how much of epsilon they use.

W = {-1, 0, 1} in one dimension, m = 2 separators 1[w = +1] and 1[w = -1]. The answer is 0 where both weights are too
large to matter, so that all probabilities are integrals over polygons of the plane.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, product

import numpy as np
from scipy import stats

from adaptive_dp.noise import laplace_tail
from adaptive_dp.oracle_perturbation.exponential import LossLevels
from adaptive_dp.oracle_perturbation.rspm import separator_noise
from adaptive_dp.validation import FloatArray, as_finite_array, check_choice, check_count, check_ordinary

LAWS = ("laplace", "box", "values")
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def three_point_law(losses: FloatArray | list[float], noise: str, *, epsilon: float) -> FloatArray:
    """Probabilities of the answers -1, 0, +1, shape (3,).

    Parameters
    ----------
    losses : array_like, shape (3,)
        L at -1, 0, +1.
    noise : {"laplace", "box", "values"}
        RSPM's two pure kinds, or noise on the values, which in one dimension is permute-and-flip.
    epsilon : float
        Calibrated without a gap.
    """
    table = as_finite_array("losses", losses, ndim=1)
    if table.shape != (3,):
        raise ValueError(f"losses must have shape (3,), got {table.shape}")
    check_choice("noise", noise, LAWS)
    if noise == "values":
        levels = LossLevels.of(table)
        shares = levels.permute_and_flip(epsilon) / levels.counts
        return np.asarray(shares[np.searchsorted(levels.values, table)])
    scale = separator_noise(noise, 2, epsilon=epsilon, gap=0.0).scale
    minus, zero, plus = table / scale
    law = _laplace if noise == "laplace" else _box
    middle = _middle(noise, zero - minus, zero - plus)
    return np.array([law(zero - minus, plus - minus), middle, law(zero - plus, minus - plus)])


def worst_three_point_loss(noise: str, *, epsilon: float, span: int = 6) -> float:
    """Largest |log P_D(w) - log P_D'(w)| over all neighbours with 0/1 losses and differences of L up to ``span``.

    At most ``epsilon`` by the theorem; what is missing is not used.
    """
    limit, level = check_count("span", span), check_ordinary("epsilon", epsilon)
    sides = range(-limit, limit + 1)
    laws = {
        (minus, plus): np.log(three_point_law([float(minus), 0.0, float(plus)], noise, epsilon=level))
        for minus, plus in product(sides, repeat=2)
    }
    worst = 0.0
    # Replacing a record moves the two differences by those of two triples of losses in {0, 1}.
    changes = {(a - b, c - b) for a, b, c in product((0, 1), repeat=3)}
    steps = {(x - u, y - v) for x, y in changes for u, v in changes}
    for (minus, plus), law in laws.items():
        for x, y in steps:
            other = laws.get((minus + x, plus + y))
            if other is not None:
                worst = max(worst, float(np.abs(law - other).max()))
    return worst


def _middle(noise: str, minus: float, plus: float) -> float:
    """P(both weights are above their thresholds): the answer 0."""
    if noise == "laplace":
        return float(laplace_tail(minus, 1.0) * laplace_tail(plus, 1.0))

    def area(r: FloatArray) -> FloatArray:
        return np.asarray(np.clip(r - minus, 0, 2 * r) * np.clip(r - plus, 0, 2 * r))

    return _over_radius(area, (abs(minus), abs(plus)))


def _laplace(threshold: float, offset: float) -> float:
    """P(x < threshold, y > x - offset) for independent unit Laplace weights: the answer of x.

    ``threshold`` is the loss at 0 less that at the answer, ``offset`` the loss at the other end less that.
    """
    edges = np.unique(np.clip([-60.0, 0.0, offset, threshold], -60.0, threshold))
    total = 0.0
    for low, high in pairwise(edges):
        # Panels of length 1 or less: the integrand is a product of exponentials.
        cuts = np.linspace(low, high, int(np.ceil(high - low)) + 1)
        half = 0.5 * np.diff(cuts)[:, np.newaxis]
        x = cuts[:-1, np.newaxis] + half * (1 + NODES)
        total += float((half * WEIGHTS * 0.5 * np.exp(-np.abs(x)) * laplace_tail(x - offset, 1.0)).sum())
    return total


def _box(threshold: float, offset: float) -> float:
    """The same for box noise of unit scale."""

    def area(r: FloatArray) -> FloatArray:
        # The integral over x of what is left of the other side, in u = r + offset - x.
        def primitive(u: FloatArray) -> FloatArray:
            inside = np.clip(u, 0, 2 * r)
            return np.asarray(0.5 * inside**2 + 2 * r * np.maximum(u - 2 * r, 0))

        last = np.clip(threshold, -r, r)
        return primitive(2 * r + offset) - primitive(r + offset - last)

    kinks = (
        abs(threshold),
        abs(offset),
        0.5 * abs(offset),
        abs(threshold - offset),
        abs(offset - threshold) / 2,
    )
    return _over_radius(area, kinks)


def _over_radius(area: Callable[[FloatArray], FloatArray], kinks: tuple[float, ...]) -> float:
    """Mean of area / (2 r)^2 over the side r ~ Gamma(3, 1) of the square; ``kinks`` are where the area has them."""
    edges = np.unique([0.0, *kinks, *np.linspace(0.0, 60.0, 61)])
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    r = edges[:-1, np.newaxis] + half * (1 + NODES)
    return float((half * WEIGHTS * stats.gamma.pdf(r, 3) * area(r) / (4 * r * r)).sum())
