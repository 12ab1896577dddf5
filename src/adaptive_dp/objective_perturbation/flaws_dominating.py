"""What redberg2023 prints wrong about the dominating pair of objective perturbation (erratum 25), and what goes wrong.

Nothing here is a mechanism, and no ``printed_...`` function may be used for accounting: each is *false as printed*. All
tables are exact computations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from scipy.special import log_ndtr, ndtr

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.objective_perturbation.dominating import HalfNormalPair
from adaptive_dp.validation import check_positive, check_real


def printed_lower_mass(mu: float, kappa: float) -> float:
    """Mass of the printed Q on [0, inf), **false as printed**: e^-c 2 Phi(mu), where e^-c 2 Phi(-mu) is right.

    Lemma C.4.6 has e^(-(t - L)^2 / 2 sigma^2) for e^(-(x + L)^2 / 2 sigma^2). The mass may exceed 1, and the atom at
    -infinity is then negative.
    """
    pair = HalfNormalPair(mu, kappa)
    return (1 - pair.kappa) * 2 * float(ndtr(pair.mu))


def printed_delta(epsilon: float, mu: float, kappa: float) -> float:
    """Hockey-stick divergence of the printed densities, **false as printed**.

    int_0^inf (2 phi(x) - e^(epsilon - c) 2 phi(x - mu))_+ dx: the printed loss c + mu^2/2 - mu x falls in x and is
    never above c + mu^2/2, so that nothing is left from there on.
    """
    pair, e = HalfNormalPair(mu, kappa), check_real("epsilon", epsilon)
    end = (pair.shift + 0.5 * pair.mu**2 - e) / pair.mu
    if end <= 0:
        return 0.0
    upper = 2 * float(ndtr(end)) - 1
    factor = e - pair.shift + math.log(2)
    lower = math.exp(factor + float(log_ndtr(end - pair.mu))) - math.exp(factor + float(log_ndtr(-pair.mu)))
    return upper - lower


def printed_pair_table(
    cases: Sequence[tuple[float, float]] = ((1.0, 0.05), (1.0, 0.5), (0.2, 0.05), (0.125, 0.1)),
    *,
    epsilons: Sequence[float] = (0.0, 0.5, 1.0, 2.0),
) -> pd.DataFrame:
    """The printed pair and the right one.

    Parameters
    ----------
    cases : sequence of (mu, kappa)
    epsilons : sequence of float

    Returns
    -------
    DataFrame
        ``mu``, ``kappa``, ``epsilon``, ``printed_mass`` and ``mass`` of Q on [0, inf), ``printed_atom`` and ``atom`` at
        -infinity, ``printed_delta`` and ``delta`` of the pair, ``gaussian`` (a lower bound of the true delta, Lemma
        4.3.4) and ``violated``: whether the printed delta is below it.
    """
    rows = []
    for mu, kappa in cases:
        pair = HalfNormalPair(mu, kappa)
        for epsilon in epsilons:
            lower = float(gaussian_delta(float(epsilon), float(mu)))
            printed = printed_delta(epsilon, mu, kappa)
            rows.append(
                {
                    "mu": mu,
                    "kappa": kappa,
                    "epsilon": epsilon,
                    "printed_mass": printed_lower_mass(mu, kappa),
                    "mass": pair.lower_mass,
                    "printed_atom": 1 - printed_lower_mass(mu, kappa),
                    "atom": pair.lower_atom,
                    "printed_delta": printed,
                    "delta": float(pair.delta(epsilon)),
                    "gaussian": lower,
                    "violated": printed < lower,
                }
            )
    return pd.DataFrame(rows)


def half_normal_mechanism_delta(epsilon: float, mu: float) -> float:
    """Smallest delta at ``epsilon`` >= 0 of the "half-normal mechanism" f(Z) + |N(0, sigma^2)| (Figure C.1, footnote).

    2 Phi(mu) - 1 whatever epsilon: answers between the two values of f can come from one data set only. The figure's
    curve is the Rényi divergence in the other direction; this direction's is infinite.
    """
    if check_real("epsilon", epsilon) < 0:
        raise ValueError(f"epsilon must be nonnegative, got {epsilon!r}")
    return 2 * float(ndtr(check_positive("mu", mu))) - 1
