"""How far OPDisc's answer is from the best: Theorem 1 as printed, and what is proved.

With w* a minimiser of the loss, w the answer of an oracle with additive gap a, and eta the noise,

    L(w) - L(w*) <= <eta, pi(w) - pi(w*)> + a <= ||eta|| - <eta, pi(w*)> + a <= 2 ||eta|| + a,

as L(w) - <eta, pi(w)> <= L(w*) - <eta, pi(w*)> + a and pi has length one. Each bound below is a quantile, or a tail
bound, of one of the last two: with probability 1 - beta the excess L(w) / n - min L / n is at most alpha. Folding the
last coordinate changes no length and does not lower <eta, pi(w*)>, as pi(w*) has a nonnegative last coordinate.

The proof of Theorem 1 bounds sup over w of <eta, pi(w)> by the *sum* of the entries of eta, which is wrong: eta =
(10, -10) has the sum 0 and the supremum 14.1 over the circle (erratum 3). What the theorem states is nevertheless
true, see :func:`printed_alpha`.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import chdtrc, gammaincc, gammainccinv, roots_jacobi

from adaptive_dp.accounting import smallest_feasible
from adaptive_dp.noise import norm_exponential_radius
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_ordinary, check_probability

QUADRATURE = 400


def printed_alpha(*, sigma: float, dimension: int, records: int, beta: float) -> float:
    """Theorem 1: 2 sqrt(2 (d + 1) ln(4 / beta)) sigma / n. True, and about sqrt(2 ln(4 / beta)) times too large.

    *Proof that it is true.* P(||eta|| > sigma (sqrt(d + 1) + sqrt(2 t))) <= e^-t, and with k = d + 1 >= 2
    (sqrt(k) + sqrt(2 t))^2 <= 2 k + 4 t <= 2 k (ln 4 + t): hence ||eta|| <= sigma sqrt(2 k ln(4 / beta)) with
    probability 1 - beta, at t = ln(1 / beta).
    """
    scale, k, n, share = _check(sigma, dimension, records, beta)
    return 2 * math.sqrt(2 * k * math.log(4 / share)) * scale / n


def chi_alpha(*, sigma: float, dimension: int, records: int, beta: float) -> float:
    """2 sigma / n times the (1 - beta)-quantile of a chi variable with d + 1 degrees: the law of 2 ||eta|| itself."""
    scale, k, n, share = _check(sigma, dimension, records, beta)
    return 2 * scale * math.sqrt(2 * float(gammainccinv(0.5 * k, share))) / n


def sharper_alpha(*, sigma: float, dimension: int, records: int, beta: float) -> float:
    """Closed form sigma (sqrt(d + 1) + 2 sqrt(2 ln(2 / beta))) / n: the dimension enters once, not twice.

    ||eta|| is above sigma (sqrt(d + 1) + sqrt(2 ln(2 / beta))) with probability at most beta / 2, and so is
    -<eta, pi(w*)>, a normal variable as w* does not depend on the noise, above sigma sqrt(2 ln(2 / beta)).
    """
    scale, k, n, share = _check(sigma, dimension, records, beta)
    return scale * (math.sqrt(k) + 2 * math.sqrt(2 * math.log(2 / share))) / n


def norm_alpha(*, scale: float, dimension: int, records: int, beta: float) -> float:
    """Norm noise of scale Delta / epsilon: 2 / n times the (1 - beta)-quantile of its length, a Gamma(d + 1) law."""
    b, k, n, share = _check(scale, dimension, records, beta)
    return 2 * float(norm_exponential_radius(share, b, k)) / n


def tail_alpha(*, noise: str, scale: float, dimension: int, records: int, beta: float) -> float:
    """The best of this argument: 1 / n times the (1 - beta)-quantile of ||eta|| - <eta, pi(w*)>, rounded up.

    The law is the same for every w* and every data set, as the noise has no preferred direction.

    Parameters
    ----------
    noise : {"gaussian", "norm"}
        Which law.
    scale : float
        sigma, or Delta / epsilon.
    dimension, records : int
        d and n, at least 1.
    beta : float
        In (0, 0.9]; the quadrature of the tail is then right to 1e-9.
    """
    kind = check_choice("noise", noise, ("gaussian", "norm"))
    b, k, n, share = _check(scale, dimension, records, beta)
    if share > 0.9:
        raise ValueError(f"beta must be at most 0.9, got {share!r}")
    if kind == "norm":
        high = 2 * float(norm_exponential_radius(share, 1.0, k))
    else:
        high = 2 * math.sqrt(2 * float(gammainccinv(0.5 * k, share)))

    def excess(x: float) -> float:
        return math.log(max(float(excess_tail(x, noise=kind, dimension=dimension)), 1e-300)) - math.log(share)

    return b * smallest_feasible(excess, 1e-9 * high, high * (1 + 1e-9), rtol=1e-10) / n


def excess_tail(x: ArrayLike, *, noise: str, dimension: int) -> FloatArray:
    """P(||eta|| - <eta, u> > x) for a unit vector u, scale 1, elementwise for x >= 0.

    Given the cosine c between eta and u it is P(||eta|| > x / (1 - c)), and (1 + c) / 2 is Beta(d / 2, d / 2)
    distributed in R^(d + 1): an integral by Gauss and Jacobi.
    """
    check_choice("noise", noise, ("gaussian", "norm"))
    d = check_count("dimension", dimension)
    points = np.asarray(x, dtype=np.float64)
    nodes, weights = roots_jacobi(QUADRATURE, 0.5 * d - 1, 0.5 * d - 1)
    with np.errstate(divide="ignore", over="ignore"):
        reach = points[..., np.newaxis] / (1 - nodes)
        tails = gammaincc(d + 1, reach) if noise == "norm" else chdtrc(d + 1, np.square(reach))
    return np.asarray(tails @ (weights / weights.sum()))


def alpha_table(dimensions: ArrayLike, *, beta: float = 0.05, records: int = 1) -> pd.DataFrame:
    """Theorem 1 and the valid bounds with Gaussian noise, in units of sigma / n: columns ``d`` and the rules."""
    return pd.DataFrame(
        {
            "d": d,
            "printed": printed_alpha(sigma=1.0, dimension=d, records=records, beta=beta),
            "chi": chi_alpha(sigma=1.0, dimension=d, records=records, beta=beta),
            "sharper": sharper_alpha(sigma=1.0, dimension=d, records=records, beta=beta),
            "tail": tail_alpha(noise="gaussian", scale=1.0, dimension=d, records=records, beta=beta),
        }
        for d in np.asarray(dimensions, dtype=int).tolist()
    )


def printed_failure(dimensions: ArrayLike, betas: ArrayLike) -> float:
    """Largest P(2 ||eta|| > n alpha) / beta over a grid, alpha as printed: below 1 it is true, far below 1 loose."""
    d, beta = np.meshgrid(np.asarray(dimensions, dtype=float), np.asarray(betas, dtype=float))
    k = d + 1
    return float(np.max(chdtrc(k, 2 * k * np.log(4 / beta)) / beta))


def _check(scale: float, dimension: int, records: int, beta: float) -> tuple[float, int, int, float]:
    """Return the scale, d + 1, n and beta."""
    return (
        check_ordinary("scale", scale),
        check_count("dimension", dimension) + 1,
        check_count("records", records),
        check_probability("beta", beta),
    )
