r"""How far an oracle's answer moves when one loss is replaced: Lemma 8 of neel2019, corrected and sharpened.

OPSamp asks an oracle for a minimiser of L(w) - <sigma, w> over W, with sigma in R^d of independent exponential entries
of **rate** eta (mean 1 / eta). L is the *sum* of the losses, each of them G-Lipschitz in l1 on W; W has l_infinity
diameter D; the oracle's additive gap, on the scale of the sum, is at most a = n alpha. On the neighbouring data set
the sum is L + h with h = l' - l, which is K-Lipschitz, K = 2 G. Write w and w' for the two answers at the same
sigma, and X = E |w - w'|_1.

**Lemma.** For every c > 0 with e^{-c eta} d K < c,

    X <= [d (1 - e^{-c eta}) D + e^{-c eta} 3 d a / c] / (1 - e^{-c eta} d K / c),

in particular (c = 2 d K) X <= 8 eta G d^2 D + 3 a / (2 G). No convexity is needed, and W may be any bounded set. It
holds as well if the oracle remembers earlier noise vectors: given them, its answers are functions of the data and of
this sigma.

*Proof.* Let v, v' be the answers at sigma + c e_i. (1) v is within a of the best at sigma + c e_i, w at sigma, and
w' at sigma for L + h. Adding the three inequalities (v against w', w against v, w' against w) gives c (v_i - w'_i)
>= h(w') - h(w) - 3 a >= -K |w - w'|_1 - 3 a. In the same way, or more easily, for the pairs (v, w), (v', w') and
(v', w). So min(v_i, v'_i) >= max(w_i, w'_i) - (K |w - w'|_1 + 3 a) / c. (2) The exponential law has no memory: given
sigma_i >= c, sigma_i - c is exponential again. Let m = E min(w_i, w'_i) and M = E max(w_i, w'_i); all coordinates i
of W lie in an interval of length D, so that min(w_i, w'_i) >= M - D always, and m >= (1 - e^{-c eta}) (M - D) +
e^{-c eta} E min(v_i, v'_i) >= M - (1 - e^{-c eta}) D - e^{-c eta} (K X + 3 a) / c. (3) Sum M - m = E |w_i - w'_i|
over i and solve for X. For c = 2 d K the denominator is at least 1/2 and 1 - e^{-c eta} <= 2 d K eta.

**In one dimension** the constant falls from 8 to 2, and is the smallest possible. Compare v at sigma + K + t
directly with w' at sigma, t > 0: the two inequalities add up to (K + t)(w' - v) <= h(v) - h(w') + 2 a, hence w' - v
<= 2 a / t wherever it is positive, and so for the other pairs. Step (2) with c = K + t gives

    X <= (1 - e^{-(K + t) eta}) D + e^{-(K + t) eta} 2 a / t,     and X <= D (1 - e^{-2 G eta}) for a = 0 (t to 0),

which W = {0, D} and one loss G w that is replaced by -G w attain (:func:`flip_gap`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import minimize_scalar

from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_real,
)

ORACLES = ("exact", "adversarial")
# Entries of a table that are held at once.
BLOCK = 4_000_000


def check_gap(gap: float) -> float:
    """Return an additive gap, finite and nonnegative."""
    value = check_real("gap", gap)
    if not 0 <= value <= 1e100:
        raise ValueError(f"gap must lie between 0 and 1e100, got {value!r}")
    return value


def stability_bound(
    *, eta: float, dimension: int, diameter: float, lipschitz: float, gap: float = 0.0
) -> float:
    """Bound E |w - w'|_1 over neighbours (replace-one), with the free constant of the lemma chosen numerically.

    Parameters
    ----------
    eta : float
        Rate of the exponential noise; its mean is 1 / eta, in units of the sum of the losses over those of w.
    dimension : int
        d.
    diameter : float
        D, the largest |w_i - v_i| over W and i.
    lipschitz : float
        G of one loss, in l1.
    gap : float
        a = n alpha, additive gap of the oracle on the scale of the sum of the losses.

    Returns
    -------
    float
        At most d D. Every value of the free constant gives a valid bound, so that the search cannot make it wrong.

    Notes
    -----
    Source: neel2019, Lemma 8 (Suggala and Netrapalli 2020); erratum. Proof in the module's docstring.
    """
    rate, size = check_ordinary("eta", eta), check_ordinary("diameter", diameter)
    d, change = check_count("dimension", dimension), 2 * check_ordinary("lipschitz", lipschitz)
    slack = check_gap(gap)
    best = min(d * size, _smallest(lambda c: _general(c, rate, d, size, change, slack), d * change, rate))
    if d == 1:
        if slack == 0:
            return min(best, size * -math.expm1(-change * rate))
        best = min(best, _smallest(lambda t: _line(t, rate, size, change, slack), change, rate))
    return best


def _general(c: FloatArray, eta: float, d: int, diameter: float, change: float, gap: float) -> FloatArray:
    stays = np.exp(-c * eta)
    rest = 1 - stays * d * change / c
    with np.errstate(divide="ignore", over="ignore"):
        bound = (d * -np.expm1(-c * eta) * diameter + stays * 3 * d * gap / c) / rest
    return np.asarray(np.where(rest > 0, bound, np.inf))


def _line(t: FloatArray, eta: float, diameter: float, change: float, gap: float) -> FloatArray:
    exponent = -(change + t) * eta
    return np.asarray(-np.expm1(exponent) * diameter + np.exp(exponent) * 2 * gap / t)


def _smallest(bound: Callable[[FloatArray], FloatArray], unit: float, eta: float) -> float:
    """Smallest value of a function of one positive number, found on a grid and then around its best point."""
    low, high = 1e-9 * unit, max(1e4 * unit, 60 / eta)
    grid = np.geomspace(low, high, 200)
    values = bound(grid)
    at = int(np.argmin(values))
    if not np.isfinite(values[at]):
        return math.inf
    ends = math.log(grid[max(at - 1, 0)]), math.log(grid[min(at + 1, grid.size - 1)])
    fine = minimize_scalar(lambda x: float(bound(np.exp(np.array([x])))[0]), bounds=ends, method="bounded")
    return min(float(values[at]), float(fine.fun))


def closed_stability_bound(
    *, eta: float, dimension: int, diameter: float, lipschitz: float, gap: float = 0.0
) -> float:
    """8 eta G d^2 D + 3 a / (2 G): the lemma at c = 4 d G. Arguments as in :func:`stability_bound`, never below it."""
    slope = check_ordinary("lipschitz", lipschitz)
    moved = 8 * check_ordinary("eta", eta) * slope * check_count("dimension", dimension) ** 2
    return moved * check_ordinary("diameter", diameter) + 1.5 * check_gap(gap) / slope


def printed_stability_bound(
    *, eta: float, dimension: int, diameter: float, lipschitz: float, alpha: float = 0.0
) -> float:
    """250 eta G d^2 D^2 + alpha / (10 G): Lemma 8, **false as printed**. D must have power 1, alpha must be n alpha.

    ``alpha`` is the gap of Definition 2.1, on the scale of the *mean* of the losses.
    """
    slope = check_ordinary("lipschitz", lipschitz)
    moved = 250 * check_ordinary("eta", eta) * slope * check_count("dimension", dimension) ** 2
    return moved * check_ordinary("diameter", diameter) ** 2 + check_gap(alpha) / (10 * slope)


def flip_gap(*, eta: float, diameter: float, lipschitz: float) -> float:
    """E |w - w'| = D (1 - e^{-2 G eta}) exactly: d = 1, W = {0, D}, L = 2 G w, one loss G w replaced by -G w.

    On the first data set w = D if sigma > 2 G and 0 otherwise; on the second w' = D always.
    """
    change = 2 * check_ordinary("lipschitz", lipschitz)
    return check_ordinary("diameter", diameter) * -math.expm1(-change * check_ordinary("eta", eta))


def segment_gap(*, eta: float, dimension: int, diameter: float, lipschitz: float) -> float:
    """E |w - w'|_1 exactly, for W = {0, (D, ..., D)} and linear losses: a lower bound of every valid lemma.

    w is the far end if sum_i sigma_i exceeds a threshold T, which one loss moves by 2 G d; the sum has the law
    Gamma(d, 1 / eta), and T is put where this interval is likely. As 2 G eta tends to 0, the value over 2 G eta D is
    about d^{3/2} / sqrt(2 pi) for large d, where the lemma has 4 d^2: up to a factor of order sqrt(d) there is
    nothing to gain.
    """
    rate, d = check_ordinary("eta", eta), check_count("dimension", dimension)
    window = 2 * check_ordinary("lipschitz", lipschitz) * d
    low = max(0.0, (d - 1) / rate - window / 2)
    law = stats.gamma(d, scale=1 / rate)
    return d * check_ordinary("diameter", diameter) * float(law.cdf(low + window) - law.cdf(low))


def attained_gap(*, eta: float, dimension: int, diameter: float, lipschitz: float) -> float:
    """Largest E |w - w'|_1 among products of segments: d / b blocks of b coordinates, each :func:`segment_gap`.

    One loss moves all blocks at once. Blocks of one coordinate give d, one block about d^{3/2} / sqrt(2 pi), in
    units of 2 G eta D: the former is larger up to d = 5 (one block gives 4.884), the latter from d = 6 on (6.317).
    In one dimension it is the lemma's bound.
    """
    d = check_count("dimension", dimension)
    return max(
        d // b * segment_gap(eta=eta, dimension=b, diameter=diameter, lipschitz=lipschitz)
        for b in range(1, d + 1)
        if d % b == 0
    )


def simulated_gap(
    objective: ArrayLike,
    change: ArrayLike,
    members: ArrayLike,
    *,
    eta: float,
    draws: int,
    rng: np.random.Generator,
    gap: float = 0.0,
    oracle: str = "exact",
) -> FloatArray:
    """Distance |w - w'|_1 of the answers for L and L + h on a finite W, for each of ``draws`` noise vectors.

    Parameters
    ----------
    objective, change : array_like, shape (N,)
        L and h at the members.
    members : array_like, shape (N, d)
        W.
    eta : float
        Rate of the noise.
    draws : int
        Number of noise vectors.
    rng : numpy.random.Generator
    gap : float
        a, used by the adversarial oracle alone.
    oracle : {"exact", "adversarial"}
        The adversary answers with the member of the smallest coordinate sum within ``gap`` of the best for L, and of
        the largest for L + h: the two answers are driven apart as far as their certificates allow.

    Returns
    -------
    ndarray, shape (draws,)
    """
    points = as_finite_array("members", members, ndim=2)
    first = as_finite_array("objective", objective, ndim=1)
    second = first + as_finite_array("change", change, ndim=1)
    if first.shape[0] != points.shape[0]:
        raise ValueError(f"objective must have {points.shape[0]} entries, got {first.shape[0]}")
    rate, count, slack = check_ordinary("eta", eta), check_count("draws", draws), check_gap(gap)
    adversary = check_choice("oracle", oracle, ORACLES) == "adversarial"
    noise = check_generator(rng).exponential(1 / rate, (count, points.shape[1]))
    rows, found = max(1, BLOCK // points.shape[0]), []
    for at in range(0, count, rows):
        tilt = noise[at : at + rows] @ points.T
        picks = [
            _pick(total - tilt, sign * points.sum(axis=1), slack) if adversary else np.argmin(total - tilt, 1)
            for total, sign in ((first, 1.0), (second, -1.0))
        ]
        found.append(np.abs(points[picks[0]] - points[picks[1]]).sum(axis=1))
    return np.concatenate(found)


def _pick(values: FloatArray, preference: FloatArray, gap: float) -> NDArray[np.int64]:
    """Per row, the member with the smallest ``preference`` among those within ``gap`` of the smallest value."""
    allowed = values <= values.min(axis=1, keepdims=True) + gap
    return np.asarray(np.argmin(np.where(allowed, preference, np.inf), axis=1))
