r"""Rare noise against OPDisc's Gaussian scale: a lower bound of delta that has the form of the proved upper bound.

*Theorem.* Let s = sigma / Delta with Delta = 4 G D^2 / tau, d >= 3 and R ~ chi with d degrees of freedom. For every
r0 >= 0 and every rho > 0 there are a finite W in R^d, losses in [0, 1], neighbours D ~ D' and a set S of members with

    P_D(S) - e^epsilon P_D'(S)  >=  (1/4) E[(1 - r0 / R)_+ (1 - exp(epsilon - R / s - 1 / (2 s^2)))] - rho

for OPDisc with noise N(0, sigma^2 I) in R^(d + 1). The proved bound of ``discrete_privacy`` is
E[(1 - exp(epsilon - R / s - 1 / (2 s^2)))_+] with d + 1 degrees of freedom, for every W.

*The pattern.* Everything happens on a lattice Z^(d-1). A point z is a *pole* if z_1 is odd, a *winner* (S) if z_1 and
z_2 + ... + z_(d-1) are even, a *rival* otherwise. The losses of the other records add up to 0 at poles, b at rivals and
b + 1 at winners, b >= 0. The record that is replaced has the loss 0 at winners and 1 elsewhere on D, and 1 at winners
and 0 elsewhere on D'. So the winners' objective exceeds that of rivals by 0 on D and by 2 on D', that of poles by b
and b + 2.

*The cells.* Minimise the loss of z plus kappa |x - z|^2. Put u = x - z for a winner z. Any other point is z + k, and
|u - k|^2 - |u|^2 is at least the sum of |k_j| (1 - 2 |u_j|). So the winner z is chosen if and only if its 2 (d - 1)
nearest neighbours are beaten: on D these are kappa (1 - 2 |u_1|) > b and |u_j| < 1/2, on D' they are
kappa (1 - 2 |u_1|) > b + 2 and kappa (1 - 2 |u_j|) > 2, j > 1. A quarter of the points are winners. Hence the share of
space that they win is

    a(kappa) = (1/4) (1 - b / kappa)_+                                             on D,
    a'(kappa) = (1/4) (1 - (b + 2) / kappa)_+ (1 - 2 / kappa)_+^(d-2)              on D',

and a'(kappa) kappa^(d-1) = a(kappa - 2) (kappa - 2)^(d-1): the cell on D' is the one on D, moved by 2 in kappa. This is
Lemma 3 with nothing to spare. Rivals make the cell shrink in every direction, poles let it appear from kappa = b on
only. Poles in one direction are enough, and cost a factor 1 - b / kappa; in all directions they would cost its
(d-1)-st power.

*From the lattice to the sphere.* Cut the unit sphere of R^d into finitely many pieces of diameter at most h, with
boundaries of measure 0. In each piece choose a point u and an orthonormal basis E of the orthogonal complement of u,
and take all w = (u + t E z) / |u + t E z|, z in Z^(d-1), that lie in the piece and are at least t away from its
boundary. Projection onto the sphere does not increase distances, and on this patch does not decrease them by more
than a factor 1 - O(h^2), so that with D = 1 different members are at least tau = t (1 - O(h^2)) apart. All losses are
in [0, 1]: G = 1 / tau, Delta = 4 / tau^2. Let eta have the part sigma R v in R^d, |v| = 1 (the last coordinate of pi
is 0). Up to a term that all members share the objective is loss + sigma R |v - w|^2 / 2. With x the lattice coordinates
of v, v = (u + t E x) / |u + t E x|, the second term is 2 s R |x - z|^2 (1 + O(h^2)): the lattice at kappa = 2 s R. As
t -> 0 the position of x among the points becomes uniform and the part of the sphere near boundaries vanishes; then let
h -> 0. By bounded convergence P_D(S) tends to E a(2 s R), P_D'(S) to E a'(2 s R). With kappa = 2 s r a shift by 2 is a
shift of r by 1 / s, and the density of R is proportional to r^(d-1) exp(-r^2 / 2): substitution gives

    E a'(2 s R) = (1/4) E[(1 - r0 / R)_+ exp(-R / s - 1 / (2 s^2))],   r0 = b / (2 s).

This is the theorem. A counterexample in d dimensions is one in d + 1: add a coordinate 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv, gammaln

from adaptive_dp.oracle_perturbation.discrete_privacy import (
    chi_delta,
    largest_proved_dimension,
    smallest_ratio,
)
from adaptive_dp.oracle_perturbation.flaws_discrete import (
    BoolArray,
    printed_ratio,
    smallest_refuted_dimension,
)
from adaptive_dp.validation import FloatArray, check_count, check_ordinary, check_probability, check_real

# Panels of a quarter with 16 nodes: the integrand is analytic between them, exact to rounding.
PANEL = 0.25
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
# Beyond this distance from the larger of the start and sqrt(d) a chi variable has less than 1e-30 of what is kept.
FAR = 13.0
# A lower bound is rounded down by more than the quadrature errs.
ROUND_DOWN = 1e-9
LARGEST_SEARCH = 2_000
BATCH = 100_000


def winner_shares(kappa: FloatArray, *, dimension: int, floor: float) -> tuple[FloatArray, FloatArray]:
    """Shares a and a' of space that the winners have on D and on D', elementwise in ``kappa`` > 0.

    Parameters
    ----------
    kappa : ndarray
        Curvature, 2 s R.
    dimension : int
        d >= 3; the lattice is Z^(d-1).
    floor : float
        b >= 0, what the poles' loss is lower by.
    """
    d, least, curve = _dimension(dimension), _floor(floor), np.asarray(kappa, dtype=np.float64)
    first = 0.25 * np.maximum(1 - least / curve, 0.0)
    second = 0.25 * np.maximum(1 - (least + 2) / curve, 0.0) * np.maximum(1 - 2 / curve, 0.0) ** (d - 2)
    return first, second


def limit_probabilities(dimension: int, *, ratio: float, floor: float) -> tuple[float, float]:
    """P_D(S) and P_D'(S) in the limit of dense spaces, E a(2 s R) and E a'(2 s R).

    The first is (P(R > r0) - r0 E[1 / R ; R > r0]) / 4, the second E[(1 - r0 / R)_+ exp(-R / s - 1 / (2 s^2))] / 4.

    Parameters
    ----------
    dimension : int
        d >= 3.
    ratio : float
        s.
    floor : float
        b >= 0; r0 = b / (2 s).
    """
    d, s, b = _dimension(dimension), check_ordinary("ratio", ratio), _floor(floor)
    first = _weighted(d, b / (2 * s), lambda r: np.ones_like(r))
    return first, _weighted(d, b / (2 * s), lambda r: np.exp(-r / s - 0.5 / s**2))


def tail_delta(dimension: int, *, ratio: float, epsilon: float, start: float | None = None) -> float:
    """Lower bound of delta of OPDisc with Gaussian noise over the worst W in R^d, by the theorem of this module.

    Parameters
    ----------
    dimension : int
        d >= 3.
    ratio : float
        s, sigma over the shift 4 G D^2 / tau.
    epsilon : float
        Any real number.
    start : float or None
        r0 >= 0; None takes :func:`best_start`. The bound holds for every r0.

    Returns
    -------
    float
        (1/4) E[(1 - r0 / R)_+ (1 - exp(epsilon - R / s - 1 / (2 s^2)))], rounded down; at least 0, as delta is.
    """
    d, s, level = _dimension(dimension), check_ordinary("ratio", ratio), check_real("epsilon", epsilon)
    r0 = best_start(d, ratio=s, epsilon=level) if start is None else _floor(start, "start")
    positive, negative = _parts(d, s, level, r0, lambda r: (1 - r0 / r) / 4)
    return max(positive * (1 - ROUND_DOWN) - negative * (1 + ROUND_DOWN), 0.0)


def best_start(dimension: int, *, ratio: float, epsilon: float) -> float:
    """The r0 with the largest :func:`tail_delta`: where E[1 / R (1 - exp(epsilon - R / s - ...)) ; R > r0] is 0.

    That mean is minus four times the derivative in r0; it rises up to the point where the bracket changes sign and is
    positive beyond, so it has at most one zero. Without one r0 = 0 is best.
    """
    d, s, level = _dimension(dimension), check_ordinary("ratio", ratio), check_real("epsilon", epsilon)

    def slope(r0: float) -> float:
        positive, negative = _parts(d, s, level, r0, lambda r: 1 / r)
        return positive - negative

    change = s * level - 0.5 / s
    if change <= 0 or slope(0.0) >= 0:
        return 0.0
    return float(brentq(slope, 0.0, change, xtol=1e-12))


def _parts(
    d: int, s: float, epsilon: float, start: float, weight: Callable[[FloatArray], FloatArray]
) -> tuple[float, float]:
    """Positive and negative part of the integral from ``start`` of chi_d(r) weight(r) (1 - exp(epsilon - r / s...))."""
    change = s * epsilon - 0.5 / s
    negative = -_integral(d, s, epsilon, start, change, weight) if change > start else 0.0
    stop = max(start, change, math.sqrt(d)) + FAR
    return _integral(d, s, epsilon, max(start, change, 0.0), stop, weight), negative


def _integral(
    d: int, s: float, epsilon: float, low: float, high: float, weight: Callable[[FloatArray], FloatArray]
) -> float:
    return _chi_integral(d, low, high, lambda r: -weight(r) * np.expm1(epsilon - r / s - 0.5 / s**2))


def _weighted(d: int, start: float, factor: Callable[[FloatArray], FloatArray]) -> float:
    stop = max(start, math.sqrt(d)) + FAR
    return _chi_integral(d, start, stop, lambda r: 0.25 * (1 - start / r) * factor(r))


def _chi_integral(d: int, low: float, high: float, function: Callable[[FloatArray], FloatArray]) -> float:
    """Integral from ``low`` to ``high`` of the chi density with d degrees of freedom times a smooth function."""
    edges = np.linspace(low, high, max(4, math.ceil((high - low) / PANEL)) + 1)
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    r = edges[:-1, np.newaxis] + half * (1 + NODES)
    log_density = (d - 1) * np.log(r) - 0.5 * r**2 - (0.5 * d - 1) * math.log(2) - gammaln(0.5 * d)
    return float((half * WEIGHTS * np.exp(log_density) * function(r)).sum())


# --- where the printed scale stands -------------------------------------------------------------------


def smallest_refuted(*, epsilon: float, delta: float) -> int:
    """Smallest d >= 3 at which :func:`tail_delta` of Algorithm 1's scale exceeds ``delta``; so do all larger ones."""
    s, tail = printed_ratio(epsilon=epsilon, delta=delta), check_probability("delta", delta)
    for d in range(3, LARGEST_SEARCH):
        if tail_delta(d, ratio=s, epsilon=epsilon) > tail:
            return d
    raise ValueError(f"delta = {delta!r} is not refuted below {LARGEST_SEARCH} dimensions")


def smallest_refuted_epsilon(dimension: int, *, delta: float) -> float:
    """Level from which on Algorithm 1's scale is refuted in ``dimension`` dimensions, to six digits, below 10.

    Raises
    ------
    ValueError
        It is refuted at no level between 1e-3 and 10, or at all of them.
    """
    d, tail = _dimension(dimension), check_probability("delta", delta)

    def excess(log_epsilon: float) -> float:
        level = math.exp(log_epsilon)
        found = tail_delta(d, ratio=printed_ratio(epsilon=level, delta=tail), epsilon=level)
        return math.log(max(found, 1e-300)) - math.log(tail)

    low, high = math.log(1e-3), math.log(10.0)
    if excess(low) >= 0 or excess(high) <= 0:
        raise ValueError(f"the verdict for d = {d} does not change between epsilon = 0.001 and 10")
    return math.exp(brentq(excess, low, high, xtol=1e-7))


def other_records(dimension: int, *, epsilon: float, delta: float) -> int:
    """How many records beside the one that is replaced the best pattern needs: b + 1 = 2 s r0 + 1, rounded up.

    Each has a loss in [0, 1] that is a multiple of the pattern's base loss; further records may have constant losses.
    """
    s = printed_ratio(epsilon=epsilon, delta=delta)
    return math.ceil(2 * s * best_start(dimension, ratio=s, epsilon=epsilon) + 1)


def verdict_table(dimensions: Sequence[int], *, epsilons: Sequence[float], delta: float) -> pd.DataFrame:
    """Algorithm 1's scale between the two bounds.

    Returns
    -------
    DataFrame
        ``d``, ``epsilon``, ``attained`` (:func:`tail_delta`), ``proved`` (``chi_delta``), ``claimed`` (``delta``) and
        ``verdict``: ``proved``, ``open`` or ``refuted``.
    """
    rows = []
    for level in epsilons:
        s = printed_ratio(epsilon=level, delta=delta)
        for d in dimensions:
            attained = tail_delta(d, ratio=s, epsilon=level)
            proved = chi_delta(level, 1 / s, d + 1)
            verdict = "refuted" if attained > delta else "proved" if proved <= delta else "open"
            rows.append(
                {
                    "d": d,
                    "epsilon": level,
                    "attained": attained,
                    "proved": proved,
                    "claimed": delta,
                    "verdict": verdict,
                }
            )
    return pd.DataFrame(rows)


def dimension_table(epsilons: Sequence[float], *, delta: float, parity: bool = True) -> pd.DataFrame:
    """For each epsilon the largest proved and the smallest refuted dimension of Algorithm 1's scale.

    Returns
    -------
    DataFrame
        ``epsilon``, ``proved up to``, ``refuted from`` and, with ``parity``, ``rings from``: from where the parity
        losses on products of polygons refute it at this very epsilon.
    """
    rows = []
    for level in epsilons:
        row: dict[str, float] = {
            "epsilon": level,
            "proved up to": largest_proved_dimension(epsilon=level, delta=delta),
            "refuted from": smallest_refuted(epsilon=level, delta=delta),
        }
        if parity:
            row["rings from"] = smallest_refuted_dimension("rings", delta=delta, epsilons=(level,))
        rows.append(row)
    return pd.DataFrame(rows)


def refuted_ratio(dimension: int, *, epsilon: float, delta: float) -> float:
    """Largest sigma over shift that :func:`tail_delta` refutes at (``epsilon``, ``delta``), to about ten digits.

    Every sound scale is larger. The lower bound falls in s up to the proved scale, between which and a small s the
    root is bracketed.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    d = _dimension(dimension)

    def excess(log_ratio: float) -> float:
        found = tail_delta(d, ratio=math.exp(log_ratio), epsilon=level)
        return math.log(max(found, 1e-300)) - math.log(tail)

    high = math.log(smallest_ratio(epsilon=level, delta=tail, coordinates=d + 1))
    low = high
    while excess(low) <= 0:
        low -= 0.1
        if low < high - 10:
            raise ValueError(f"delta = {delta!r} is too large for a refutation in {d} dimensions")
    return math.exp(brentq(excess, low, high, xtol=1e-10))


def ratio_table(dimensions: Sequence[int], *, epsilon: float, delta: float) -> pd.DataFrame:
    """How large a Gaussian must be over the worst W: between ``refuted`` and ``proved``, Algorithm 1's beside them.

    Returns
    -------
    DataFrame
        ``d``, ``printed``, ``refuted``, ``proved`` (all sigma over shift) and ``proved / refuted``.
    """
    rows = []
    for d in dimensions:
        low = refuted_ratio(d, epsilon=epsilon, delta=delta)
        high = smallest_ratio(epsilon=epsilon, delta=delta, coordinates=d + 1)
        printed = printed_ratio(epsilon=epsilon, delta=delta)
        rows.append(
            {"d": d, "printed": printed, "refuted": low, "proved": high, "proved / refuted": high / low}
        )
    return pd.DataFrame(rows)


# --- the same by sampling -----------------------------------------------------------------------------


def lattice_choices(position: FloatArray, kappa: FloatArray, *, floor: float, first: bool) -> BoolArray:
    """Whether a winner minimises loss + kappa |x - z|^2 over the lattice, decided from the nearest point of each kind.

    Nothing of the formulas for the cells is used: the nearest pole, the nearest winner and the nearest rival are found
    (decoding of a checkerboard lattice), and their objectives compared.

    Parameters
    ----------
    position : ndarray, shape (N, d - 1)
        x, any real numbers.
    kappa : ndarray, shape (N,)
    floor : float
        b.
    first : bool
        D, or D'.

    Returns
    -------
    ndarray of bool, shape (N,)
    """
    x, curve = np.asarray(position, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    layer, rest = x[:, 0], x[:, 1:]
    to_even = np.abs(layer - 2 * np.rint(layer / 2))
    corner = np.rint(rest)
    away = np.abs(rest - corner)
    nearest = (away**2).sum(axis=1)
    turned = nearest + (1 - 2 * away).min(axis=1)
    even = corner.sum(axis=1) % 2 == 0
    winner = floor + (0 if first else 2) + curve * (to_even**2 + np.where(even, nearest, turned))
    rival = floor + curve * (to_even**2 + np.where(even, turned, nearest))
    pole = curve * ((1 - to_even) ** 2 + nearest)
    return np.asarray((winner < rival) & (winner < pole))


def sampled_tail_delta(
    dimension: int, *, ratio: float, epsilon: float, start: float, runs: int, rng: np.random.Generator
) -> tuple[float, float]:
    """The same lower bound by importance sampling: mean and standard error.

    R is drawn from its law given R > r0, x_1 from the part of its period where a winner can be chosen on D at all,
    the other coordinates of x uniformly; all three are corrected by exact factors. Both data sets see the same draws.
    """
    d, s, level = _dimension(dimension), check_ordinary("ratio", ratio), check_real("epsilon", epsilon)
    r0 = _floor(start, "start")
    count, floor = check_count("runs", runs, minimum=2), 2 * s * r0
    tail = float(gammaincc(0.5 * d, 0.5 * r0**2))
    total = squares = 0.0
    for begin in range(0, count, BATCH):
        size = min(BATCH, count - begin)
        kappa = 2 * s * np.sqrt(2 * gammainccinv(0.5 * d, tail * rng.random(size)))
        width = 0.5 * (1 - floor / kappa)
        layer = (2 * rng.random(size) - 1) * width
        position = np.column_stack([layer, rng.uniform(0, 2, (size, d - 2))])
        first, second = (lattice_choices(position, kappa, floor=floor, first=on) for on in (True, False))
        # The period of x_1 is 2, of which 2 width is drawn from.
        values = tail * width * (first - math.exp(level) * second)
        total, squares = total + float(values.sum()), squares + float((values**2).sum())
    mean = total / count
    return mean, math.sqrt(max(squares / count - mean**2, 0.0) / count)


def _dimension(value: int) -> int:
    return check_count("dimension", value, minimum=3)


def _floor(value: float, name: str = "floor") -> float:
    number = check_real(name, value)
    if number < 0:
        raise ValueError(f"{name} must be nonnegative, got {value!r}")
    return number
