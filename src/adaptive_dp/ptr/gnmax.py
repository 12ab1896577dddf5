"""What a noisy vote of teachers gives away: the Rényi loss of GNMax, before and after looking at the votes.

GNMax answers one query: argmax_j n_j + N(0, sigma^2), where n_j teachers vote for class j. Neighbours differ in the
training data of one teacher, whose vote may move from any class to any other: two counts change by one.

Whatever the votes, the answer is post-processing of counts of l2 sensitivity sqrt(2): Rényi loss order / sigma^2. If
the teachers agree, much less is lost. That bound depends on the votes, and is therefore itself private: it must be
tested (:mod:`adaptive_dp.ptr.pate_ptr`), not published.

The bound is one-sided: D(answer on the votes at hand || answer on a neighbour). That is what generalized
propose-test-release needs (erratum 12); the other direction can be larger.

Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning with PATE", ICLR 2018;
redberg2023, Section 3.6.2; erratum 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp

from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_ordinary,
    check_probability,
)

CONVERSIONS = ("sharp", "classical")
DIRECTIONS = ("forward", "reverse")
# Quadrature of the law of the answer: beyond nine and a half sigma there is nothing that a double would notice.
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(400)
REACH = 9.5


# --- the door -----------------------------------------------------------------------------------------


def check_votes(votes: ArrayLike, *, teachers: int | None = None) -> FloatArray:
    """Return counts of votes as a float array of shape (queries, classes).

    Parameters
    ----------
    votes : array_like, shape (queries, classes) or (classes,)
        Whole nonnegative numbers; every row sums to the number of teachers. One row may come without its dimension.
    teachers : int, optional
        The number of teachers, 2 or more. By default what the first row sums to.

    Raises
    ------
    TypeError, ValueError
        No query, fewer than two classes, negative or broken counts, a row that does not sum to the number of
        teachers, or a single teacher (who would be told everything about).
    """
    counts = as_finite_array("votes", votes)
    if counts.ndim == 1:
        counts = counts[None, :]
    if counts.ndim != 2 or not counts.shape[0]:
        raise ValueError(f"votes must have one row a query and one column a class, got shape {counts.shape}")
    if counts.shape[1] < 2:
        raise ValueError(f"votes must be about at least 2 classes, got {counts.shape[1]}")
    bad = (counts < 0) | (counts != np.floor(counts))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"votes must be nonnegative whole numbers, got {float(counts[where])!r} at {where}")
    sums = counts.sum(axis=1)
    total = int(sums[0]) if teachers is None else check_count("teachers", teachers, minimum=2)
    if total < 2:
        raise ValueError(f"votes must come from at least 2 teachers, got {total}")
    if (sums != total).any():
        at = int(np.argmax(sums != total))
        raise ValueError(
            f"votes of each query must sum to the {total} teachers, got {sums[at]:g} in row {at}"
        )
    return counts


def check_orders(orders: ArrayLike) -> FloatArray:
    """Return Rényi orders as an array of shape (orders,), each above 1; a single number becomes one entry."""
    values = np.atleast_1d(as_finite_array("orders", orders))
    if values.ndim != 1 or not values.size:
        raise ValueError(f"orders must be a list of numbers, got shape {values.shape}")
    if values.min() <= 1:
        raise ValueError(f"orders must be above 1, got {float(values.min())!r}")
    return values


def default_orders() -> FloatArray:
    """120 Rényi orders from 1.1 to 2000, in geometric steps of order - 1."""
    return 1 + np.geomspace(0.1, 1999.0, 120)


# --- Rényi losses -------------------------------------------------------------------------------------


def data_independent_renyi(orders: ArrayLike, *, sigma: float) -> FloatArray:
    """Rényi loss of one GNMax answer for any votes: order / sigma^2; shape (orders,) (papernot2018, Proposition 8)."""
    return check_orders(orders) / check_ordinary("sigma", sigma) ** 2


def log_wrong_answer(votes: ArrayLike, *, sigma: float) -> FloatArray:
    """Log of a bound on the probability that the answer is not the plurality, shape (queries,).

    The sum over the other classes of the probability that this one beats the plurality (papernot2018, Proposition 7),
    and at most 1 - 1 / classes, since the plurality is the likeliest answer. Right in the far tail, where the
    probability itself would be 0 in floats.
    """
    counts = check_votes(votes)
    bound = _log_union(counts, check_ordinary("sigma", sigma))
    return np.minimum(bound, math.log1p(-1 / counts.shape[1]))


def _log_union(counts: FloatArray, sigma: float) -> FloatArray:
    """Union bound of :func:`log_wrong_answer` without its cap; checked counts."""
    top = counts.argmax(axis=1)
    behind = log_ndtr((counts - counts.max(axis=1, keepdims=True)) / (math.sqrt(2) * sigma))
    behind[np.arange(len(counts)), top] = -np.inf
    # scipy's logsumexp would do, but takes most of the time of a smooth sensitivity.
    peak = behind.max(axis=1)
    return np.asarray(peak + np.log(np.exp(behind - peak[:, None]).sum(axis=1)))


def renyi_given_wrong_answer(log_q: ArrayLike, *, sigma: float, orders: ArrayLike) -> FloatArray:
    """Rényi loss of one GNMax answer that differs from the plurality with probability at most q.

    papernot2018, Theorem 6, with the two orders of its Proposition 10, mu_2 = sigma sqrt(log 1/q), mu_1 = mu_2 + 1.
    With s = sqrt(log 1/q) and c = 1 / sigma everything simplifies: the loss at order a is log(G + H) / (a - 1),

        G = (1 - e^(-s^2))^a (1 - e^(-(s - c)^2))^(1 - a),      H = exp(-s^2 + (a - 1) (2 s c + c^2)),

    under the conditions mu_1 >= a, mu_2 > 1 and log((mu_2 + 1) / (mu_2 - 1)) <= (2 mu_2 - 1) / sigma^2; where they
    fail, or where it is smaller, the loss is order / sigma^2. Only logarithms of q are formed: any q > 0 will do.

    Parameters
    ----------
    log_q : array_like, any shape
        Negative; from :func:`log_wrong_answer`. Larger values are bounds too.
    sigma : float
        Scale of the noise on the counts, positive.
    orders : array_like, shape (orders,)
        Above 1.

    Returns
    -------
    ndarray, shape (shape of log_q, orders)
        Nonnegative. About 20 million entries a second.

    Raises
    ------
    TypeError, ValueError
        A bad argument.
    """
    logs, scale, a = as_finite_array("log_q", log_q), check_ordinary("sigma", sigma), check_orders(orders)
    if logs.size and logs.max() >= 0:
        raise ValueError(f"log_q must be negative, got {float(logs.max())!r}")
    s, c = np.sqrt(-logs)[..., None], 1 / scale
    mu = s * scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Where mu_2 <= 1 the conditions fail and the nan of the logarithm does not matter.
        allowed = (mu > 1) & (mu + 1 >= a) & (2 * np.arctanh(1 / mu) <= (2 * mu - 1) * c * c)
        right = a * np.log1p(-np.exp(-s * s)) - (a - 1) * np.log1p(-np.exp(-((s - c) ** 2)))
        wrong = -s * s + (a - 1) * (2 * s * c + c * c)
        loss = np.maximum(np.logaddexp(right, wrong) / (a - 1), 0.0)
    independent = a * c * c
    return np.where(allowed, np.fmin(loss, independent), independent)


def gnmax_renyi(votes: ArrayLike, *, sigma: float, orders: ArrayLike) -> FloatArray:
    """Data-dependent Rényi loss of each GNMax answer, **private**; shape (queries, orders).

    The sum over the queries is the loss of all answers: a teacher's vote may change in each of them.

    Parameters
    ----------
    votes : array_like, shape (queries, classes)
        Whole nonnegative numbers; rows sum to the number of teachers.
    sigma : float
        Scale of the noise on the counts, positive.
    orders : array_like, shape (orders,)
        Above 1.

    Raises
    ------
    TypeError, ValueError
        A bad argument; see :func:`check_votes`.
    """
    return renyi_given_wrong_answer(log_wrong_answer(votes, sigma=sigma), sigma=sigma, orders=orders)


def renyi_epsilon(
    losses: ArrayLike, orders: ArrayLike, *, delta: float, conversion: str = "sharp"
) -> tuple[float, float]:
    """Smallest epsilon that Rényi losses at several orders give at ``delta``, and the order that gives it.

    Parameters
    ----------
    losses : array_like, shape (orders,)
        Nonnegative, may be infinite.
    orders : array_like, shape (orders,)
        Above 1.
    delta : float
        In (0, 1).
    conversion : {"sharp", "classical"}
        loss + log(1 - 1/a) - log(a delta) / (a - 1) (Canonne, Kamath and Steinke 2020, Proposition 12), or
        loss + log(1 / delta) / (a - 1) (Mironov 2017, Proposition 3). Both hold one-sidedly.

    Returns
    -------
    epsilon, order : float
    """
    a, level = check_orders(orders), check_probability("delta", delta)
    check_choice("conversion", conversion, CONVERSIONS)
    values = np.atleast_1d(np.asarray(losses, dtype=np.float64))
    if values.shape != a.shape:
        raise ValueError(f"losses must have one entry an order, got shapes {values.shape} and {a.shape}")
    if np.isnan(values).any() or values.min() < 0:
        raise ValueError(f"losses must be nonnegative, got {values[np.argmin(values)]!r}")
    epsilons = np.maximum(values + conversion_cost(a, delta=level, conversion=conversion), 0.0)
    best = int(np.argmin(epsilons))
    return float(epsilons[best]), float(a[best])


def conversion_cost(orders: ArrayLike, *, delta: float, conversion: str = "sharp") -> FloatArray:
    """What :func:`renyi_epsilon` adds to a loss, shape (orders,); it may be negative."""
    a, level = check_orders(orders), check_probability("delta", delta)
    if check_choice("conversion", conversion, CONVERSIONS) == "classical":
        return np.asarray(-math.log(level) / (a - 1))
    return np.asarray(np.log1p(-1 / a) - (math.log(level) + np.log(a)) / (a - 1))


# --- the exact law, for a few classes -----------------------------------------------------------------


def answer_log_probabilities(votes: ArrayLike, *, sigma: float) -> FloatArray:
    """Log of the probability of each answer, shape (queries, classes), by quadrature.

    Accurate to about 1e-12 in the logarithm as long as the counts spread over fewer than 60 sigma.
    """
    counts, scale = check_votes(votes), check_ordinary("sigma", sigma)
    low = counts.min(axis=1, keepdims=True) - REACH * scale
    high = counts.max(axis=1, keepdims=True) + REACH * scale
    points = 0.5 * (high - low) * NODES + 0.5 * (high + low)
    log_weights = np.log(0.5 * (high - low) * NODE_WEIGHTS) - math.log(scale * math.sqrt(2 * math.pi))
    z = (points[:, None, :] - counts[:, :, None]) / scale
    below = log_ndtr(z)
    others = below.sum(axis=1, keepdims=True) - below
    logs = np.asarray(logsumexp(-0.5 * z * z + others + log_weights[:, None, :], axis=2))
    # The plurality from the others: its distance from 0 would otherwise drown in the error of the quadrature.
    rows, top = np.arange(len(counts)), counts.argmax(axis=1)
    logs[rows, top] = -np.inf
    logs[rows, top] = np.log1p(-np.exp(logsumexp(logs, axis=1)))
    return logs


def neighbouring_votes(row: ArrayLike) -> Iterator[FloatArray]:
    """All counts that differ from ``row`` (classes,) in the vote of one teacher."""
    counts = check_votes(row)[0]
    for giver in np.flatnonzero(counts):
        for taker in range(counts.size):
            if taker != giver:
                other = counts.copy()
                other[giver] -= 1
                other[taker] += 1
                yield other


def exact_renyi(row: ArrayLike, *, sigma: float, orders: ArrayLike, direction: str = "forward") -> FloatArray:
    """Largest Rényi divergence of one answer over all neighbours of the votes, shape (orders,).

    Parameters
    ----------
    row : array_like, shape (classes,)
        Votes of one query.
    sigma : float
        Scale of the noise on the counts, positive.
    orders : array_like, shape (orders,)
        Above 1.
    direction : {"forward", "reverse"}
        From these votes to the neighbour, which is what :func:`gnmax_renyi` bounds, or back.

    Returns
    -------
    ndarray, shape (orders,)
        Right to about 1e-12 relatively and 1e-15 absolutely. Milliseconds for a few classes; classes^2 quadratures.
    """
    a = check_orders(orders)
    check_choice("direction", direction, DIRECTIONS)
    counts = check_votes(row)
    if len(counts) != 1:
        raise ValueError(f"row must be the votes of one query, got {len(counts)} rows")
    both = answer_log_probabilities(
        np.concatenate([counts, list(neighbouring_votes(counts[0]))]), sigma=sigma
    )
    here, there = (both[:1], both[1:]) if direction == "forward" else (both[1:], both[:1])
    terms = a[:, None, None] * here + (1 - a)[:, None, None] * there
    return np.asarray(np.max(logsumexp(terms, axis=2) / (a - 1)[:, None], axis=1))
