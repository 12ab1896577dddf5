"""How far above the minimum RSPM's answer may be: bounds with explicit constants.

neel2019, Theorem 6 and section 3.1, with erratum 13; for OPDisc see
:mod:`~adaptive_dp.oracle_perturbation.discrete_utility`. All numbers are on the scale of the *sum* of the
losses (the paper's alpha times n), for an exact oracle; an oracle with gap a adds a.

Everything follows from one line. Let N(w) be what the noise takes off the objective at w, and let w* be a minimiser
of L. The answer w obeys L(w) - N(w) <= L(w*) - N(w*), hence

    L(w) - L(w*) <= max_v N(v) - N(w*).

No bound that knows the law of the noise only can be better: with L = t at all members but w*, and 0 there, the excess
is t if max_{v != w*} N(v) - N(w*) > t.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr

from adaptive_dp.validation import check_count, check_ordinary, check_probability

# Largest argument of a moment generating function that has a pole at 1.
NEAR_POLE = 1 - 1e-9


def laplace_separator_excess(separators: int, scale: float, beta: float) -> float:
    """(1 - beta)-quantile of sum_j max(eta_j, 0) over m Laplace weights: a bound of RSPM's excess.

    N(w) = -sum_j eta_j e_j(w), so max_v N(v) - N(w*) is at most the sum of the positive parts of eta_j where
    e_j(w*) = 1 and of -eta_j elsewhere. Each is 0 or exponential with probability 1/2, so that the sum is
    Gamma(K, scale) with K binomial(m, 1/2): the quantile is exact.

    Parameters
    ----------
    separators : int
        m.
    scale : float
        Of the Laplace law.
    beta : float
        In (0, 1).
    """
    m, b = check_count("separators", separators), check_ordinary("scale", scale)
    tail = check_probability("beta", beta)
    # Numbers of nonzero terms that occur with probability above about 1e-20.
    width = math.ceil(7 * math.sqrt(m)) + 1
    counts = np.arange(max(1, m // 2 - width), min(m, m // 2 + width) + 1)
    weights = stats.binom.pmf(counts, m, 0.5)

    def excess(x: float) -> float:
        return float(weights @ stats.gamma.sf(x, counts)) - tail

    if excess(0.0) <= 0:
        return 0.0
    return b * float(brentq(excess, 0.0, laplace_separator_closed(m, 1.0, tail), xtol=1e-12))


def laplace_separator_closed(separators: int, scale: float, beta: float) -> float:
    """A closed form above :func:`laplace_separator_excess`: scale (m / 2 + sqrt(3 m l / 2) + l), l = ln(1 / beta).

    With x = lambda scale the centred logarithm of the moment generating function of one positive part is
    log((1 - x / 2) / (1 - x)) - x / 2, the sum over k >= 2 of (1 - 2^-k) x^k / k <= (3 / 8) x^2 / (1 - x): sub-gamma
    with variance 3 scale^2 / 4, and Bernstein's inequality.
    """
    m, b = check_count("separators", separators), check_ordinary("scale", scale)
    log = -math.log(check_probability("beta", beta))
    return b * (0.5 * m + math.sqrt(1.5 * m * log) + log)


def gaussian_separator_excess(separators: int, sigma: float, beta: float) -> float:
    """Bound of the (1 - beta)-quantile of the same sum for N(0, sigma^2) weights, by Chernoff's inequality.

    At most sigma (m / sqrt(2 pi) + sqrt(2 m ln(1 / beta))), as the sum is a Lipschitz function of a normal vector.
    """
    m, scale = check_count("separators", separators), check_ordinary("sigma", sigma)
    log = -math.log(check_probability("beta", beta))

    def bound(logarithm: float) -> float:
        x = math.exp(logarithm)
        return (m * float(np.logaddexp(-math.log(2.0), 0.5 * x * x + float(log_ndtr(x)))) + log) / x

    best = minimize_scalar(bound, bounds=(-20.0, 5.0), method="bounded", options={"xatol": 1e-10})
    closed = m / math.sqrt(2 * math.pi) + math.sqrt(2 * m * log)
    return scale * min(float(best.fun), closed)


def laplace_crude_excess(separators: int, scale: float, beta: float) -> float:
    """2 Gamma quantile: the bound 2 ||eta||_1 of the errata, in place of :func:`laplace_separator_excess`."""
    return (
        2
        * scale
        * float(stats.gamma.isf(check_probability("beta", beta), check_count("separators", separators)))
    )


def value_excess(coordinates: int, values: int, scale: float, beta: float) -> float:
    """Bound for independent exponential noise on the V values of d coordinates, by Chernoff's inequality.

    In each coordinate max_v xi_v - xi_{w*} is the maximum of Q exponential variables, Q uniform on 0 ... V - 1 (the
    rank of xi_{w*} is uniform, and exponential variables have no memory), so that its mean is scale (H_V - 1) with the
    harmonic number H_V.
    """
    d, count = check_count("coordinates", coordinates), check_count("values", values, minimum=2)
    b, log = check_ordinary("scale", scale), -math.log(check_probability("beta", beta))
    steps = np.arange(1, count)

    def bound(x: float) -> float:
        factors = np.concatenate([[0.0], -np.cumsum(np.log1p(-x / steps))])
        return (d * (float(np.logaddexp.reduce(factors)) - math.log(count)) + log) / x

    best = minimize_scalar(bound, bounds=(1e-6, NEAR_POLE), method="bounded", options={"xatol": 1e-10})
    return b * float(best.fun)


def printed_rspm_excess(separators: int, *, epsilon: float, delta: float, beta: float) -> float:
    """neel2019, Theorem 6, with a constant: 7 sqrt(2) m sqrt(m ln(2 m / beta) ln(1 / delta)) / epsilon.

    All |eta_j| are at most sigma sqrt(2 ln(2 m / beta)) at once, and the excess is at most the sum of the |eta_j|.
    Valid for the noise of Algorithm 3, which is not private for large m.
    """
    m, tail = check_count("separators", separators), check_probability("beta", beta)
    logs = math.log(2 * m / tail) * -math.log(check_probability("delta", delta))
    return 7 * math.sqrt(2) * m * math.sqrt(m * logs) / check_ordinary("epsilon", epsilon)
