"""Smooth sensitivity of the data-dependent Rényi loss of GNMax: how far one teacher can move it, privately.

Write q for the union bound on a wrong answer (:func:`~adaptive_dp.ptr.gnmax.log_wrong_answer`) of m classes. Its
*effective gap* g is the gap that m - 1 equal rivals would need for the same q:

    q = (m - 1) (1 - Phi(g / (sqrt(2) sigma))).

1. *One vote moves g by at most 2.* With the plurality held fixed, every gap moves by at most 2. For h(x) =
   Phi(Phi^-1(x) + c), concave in x for c > 0 (the power of a test between two Gaussians), Jensen's inequality gives
   q' / (m - 1) <= mean of h(x_i) <= h(q / (m - 1)), which is g' >= g - 2. If the plurality changes, q' is smaller
   still, since the plurality has the smallest union bound. Exchanging the two gives g >= g' - 2.
2. *The loss is a nonincreasing function r(g)* (checked on the grid whenever a table is made). Neighbours of votes with
   gap t change it by at most the larger of y(t) and y(t + 2), where y(t) = r(t - 2) - r(t).
3. *Votes at distance d have gaps in an interval [low(d), high(d)]* whose ends are known. q depends on the sorted counts
   only, and sorting brings no two sets of votes further apart, so that the plurality may be held fixed. It is a sum of
   convex functions of the gaps (as long as these are nonnegative), so that it is smallest after each moved vote has
   gone from the strongest rival to the plurality, and largest after all have gone from the plurality to its strongest
   rival, as long as d is at most half their gap; beyond, low(d) = 0.
4. *Local sensitivity at distance d* is bounded by the maximum of y over [low(d), high(d) + 2], and that of a sum over
   queries by the sum. The interval of a neighbour at distance d + 1 contains the one at distance d, so that
   max_d exp(-beta d) LS(d) is beta-smooth: SS(X) <= e^beta SS(X'), and it is at least LS(0) (nissim2007, Lemma 2.3).

No condition on sigma or the order is needed, where papernot2018 checks its conditions C5 and C6 numerically.

The maximum over an interval is that over all cells of a fixed grid that meet it, each bounded from its two ends. That
is an upper bound, above the supremum by about 1 / (2 resolution), and as smooth as the supremum: cells do not depend
on the votes.

Papernot et al. 2018, Appendix B; Nissim, Raskhodnikova and Smith, "Smooth sensitivity and sampling", STOC 2007;
redberg2023, Section 3.6.2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from adaptive_dp.ptr.gnmax import (
    _log_union,
    check_orders,
    check_votes,
    renyi_given_wrong_answer,
)
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_ordinary, check_positive

# What the effective gap may be off by rounding, in votes: two neighbours differ by at most 2 + SLACK.
SLACK = 1e-9
RESOLUTION = 128


def effective_gap(votes: ArrayLike, *, sigma: float) -> FloatArray:
    """Effective gap of each query, in votes, between 0 and the number of teachers; shape (queries,).

    For two classes it is the gap between them.
    """
    return _gaps(check_votes(votes), check_ordinary("sigma", sigma))


def _gaps(counts: FloatArray, scale: float) -> FloatArray:
    share = _log_union(counts, scale) - math.log(counts.shape[1] - 1)
    # The share is at most 1/2, up to rounding where all classes tie.
    gap = -math.sqrt(2) * scale * ndtri_exp(np.minimum(share, -math.log(2)))
    return np.clip(gap, 0.0, counts[0].sum())


def loss_of_gap(gap: ArrayLike, *, sigma: float, order: float, classes: int) -> FloatArray:
    """Data-dependent Rényi loss r(g) of one answer as a function of its effective gap; same shape as ``gap``."""
    gaps, scale = as_finite_array("gap", gap), check_ordinary("sigma", sigma)
    rivals = check_count("classes", classes, minimum=2) - 1
    log_q = math.log(rivals) + log_ndtr(-gaps / (math.sqrt(2) * scale))
    log_q = np.minimum(log_q, math.log1p(-1 / classes))
    return renyi_given_wrong_answer(log_q, sigma=scale, orders=order)[..., 0]


def reachable_gaps(votes: ArrayLike, *, sigma: float) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest effective gap of votes at distance at most 0, 1, ..., teachers.

    Parameters
    ----------
    votes : array_like, shape (queries, classes)
        Whole nonnegative numbers; rows sum to the number of teachers.
    sigma : float
        Scale of the noise on the counts, positive.

    Returns
    -------
    low, high : ndarray, shape (queries, teachers + 1)
        ``high`` is exact. ``low`` is exact up to half the gap to the strongest rival and 0 beyond.
    """
    counts, scale = check_votes(votes), check_ordinary("sigma", sigma)
    # Sorted: the plurality comes first, its strongest rival second.
    spread = -np.sort(-counts, axis=1)
    gather, rows = spread.copy(), np.arange(len(spread))
    total = int(spread[0].sum())
    low, high = np.zeros((len(spread), total + 1)), np.empty((len(spread), total + 1))
    for distance in range(total + 1):
        high[:, distance] = _gaps(gather, scale)
        apart = spread[:, 0] >= spread[:, 1]
        if apart.any():
            low[apart, distance] = _gaps(spread[apart], scale)
        spread[:, 0] -= 1
        spread[:, 1] += 1
        donor = 1 + gather[:, 1:].argmax(axis=1)
        given = np.minimum(gather[rows, donor], 1)
        gather[rows, donor] -= given
        gather[:, 0] += given
    return low, high


def local_sensitivities(
    votes: ArrayLike,
    *,
    sigma: float,
    order: float,
    teachers: int | None = None,
    resolution: int = RESOLUTION,
) -> FloatArray:
    """Bound on the local sensitivity of the summed loss at distance 0, 1, ..., teachers; nondecreasing.

    Parameters
    ----------
    votes : array_like, shape (queries, classes)
        Whole nonnegative numbers; rows sum to the number of teachers.
    sigma : float
        Scale of the noise on the counts, positive.
    order : float
        Rényi order of the loss, above 1.
    teachers : int, optional
        By default what the rows sum to.
    resolution : int
        Cells a vote of the grid.

    Returns
    -------
    ndarray, shape (teachers + 1,)
        200 queries of 400 teachers take about a tenth of a second.

    Raises
    ------
    TypeError, ValueError
        A bad argument; see :func:`~adaptive_dp.ptr.gnmax.check_votes`.
    """
    counts = check_votes(votes, teachers=teachers)
    total, classes = int(counts[0].sum()), counts.shape[1]
    scale, a = check_ordinary("sigma", sigma), float(check_orders(order)[0])
    cells = check_count("resolution", resolution)
    changes = _changes(total, classes, scale, a, cells)
    low, high = reachable_gaps(counts, sigma=scale)
    margin = SLACK * np.arange(1, total + 2)
    low, high = np.maximum(low - margin, 0.0), np.minimum(high + margin, total) + 2
    first = np.floor(low * cells).astype(np.intp)
    last = np.minimum(np.floor(high * cells).astype(np.intp), changes.size - 1)
    return np.asarray(_range_maxima(changes, first, last).sum(axis=0))


def smooth_sensitivity(
    votes: ArrayLike,
    *,
    sigma: float,
    order: float,
    beta: float,
    teachers: int | None = None,
    resolution: int = RESOLUTION,
) -> float:
    """A beta-smooth bound on the local sensitivity of the summed data-dependent Rényi loss of GNMax.

    Parameters
    ----------
    votes, sigma, order, teachers, resolution
        As for :func:`local_sensitivities`.
    beta : float
        Smoothness, positive: the logarithm of the answer moves by at most ``beta`` from one set of votes to its
        neighbours.

    Returns
    -------
    float
        0 only if the loss is the same for all votes, which depends on public numbers alone.

    Raises
    ------
    TypeError, ValueError
        A bad argument.
    """
    rate = check_positive("beta", beta)
    local = local_sensitivities(votes, sigma=sigma, order=order, teachers=teachers, resolution=resolution)
    return discounted_maximum(local, beta=rate)


def discounted_maximum(local: ArrayLike, *, beta: float) -> float:
    """Largest exp(-beta d) LS(d) over the distances d = 0, 1, ...; ``local`` has shape (distances,)."""
    values, rate = as_finite_array("local", local, ndim=1), check_positive("beta", beta)
    if not values.size or values.min() < 0:
        raise ValueError(f"local must hold nonnegative sensitivities, got {values!r}")
    return float(np.max(values * np.exp(-rate * np.arange(values.size))))


def _changes(teachers: int, classes: int, sigma: float, order: float, resolution: int) -> FloatArray:
    """Upper bounds of y(t) = r(t - 2) - r(t) in the cells of [0, teachers + 2], gaps kept in [0, teachers]."""
    ends = np.arange((teachers + 2) * resolution + 1) / resolution
    before = np.clip(ends[:-1] - 2 - SLACK, 0.0, teachers)
    after = np.clip(ends[1:] + SLACK, 0.0, teachers)
    high = loss_of_gap(before, sigma=sigma, order=order, classes=classes)
    low = loss_of_gap(after, sigma=sigma, order=order, classes=classes)
    rounding = 1e-14 / (order - 1)
    for values in (high, low):
        if (np.diff(values) > 1e-12 * values[:-1] + rounding).any():
            raise ArithmeticError(f"the loss is not monotone in the gap at sigma {sigma}, order {order}")
    return np.maximum(high - low, 0.0)


def _range_maxima(values: FloatArray, first: NDArray[np.intp], last: NDArray[np.intp]) -> FloatArray:
    """Maximum of ``values[first : last + 1]`` for arrays of ends, by a table of maxima over powers of two."""
    levels = [values]
    while 2 ** len(levels) <= values.size:
        previous, width = levels[-1], 2 ** (len(levels) - 1)
        levels.append(np.maximum(previous[:-width], previous[width:]))
    # floor(log2(length)): exact, from the exponent of the float.
    level = np.frexp(last - first + 1)[1] - 1
    answer = np.empty(first.shape)
    for k, table in enumerate(levels):
        here = level == k
        answer[here] = np.maximum(table[first[here]], table[last[here] - 2**k + 1])
    return answer
