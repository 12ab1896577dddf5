"""InteractiveAboveThreshold: test private queries one at a time and stop at the first good one.

Source: ligett2017, Algorithm 2, Lemma 2.8 and Theorem A.1; errata AF-7a, AF-7e and AF-7g.

The test never needs the *value* of a query, only whether it reaches a level; a query is therefore an
object with one method, ``reaches(level)``, which may decide without computing the value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from adaptive_dp.accuracy_first.levels import PrivacyLevels, as_prefix_costs
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_generator,
    check_positive,
    check_probability,
    check_real,
)

SOURCE = "ligett2017, Algorithm 2 and Lemma 2.8; erratum AF-7"


class Query(Protocol):
    """A private question about the data, known to the public by what it returns alone."""

    def reaches(self, level: float) -> bool:
        """Whether the query's value on the private data is at least ``level``."""
        ...


@dataclass(frozen=True)
class ValueQuery:
    """A query whose value is already there."""

    value: float

    def __post_init__(self) -> None:
        check_real("value", self.value)

    def reaches(self, level: float) -> bool:
        """Whether the value is at least ``level``."""
        return self.value >= level


AnyQuery = TypeVar("AnyQuery", bound=Query)


def interactive_above_threshold(
    queries: Iterable[AnyQuery],
    *,
    threshold: float,
    sensitivity: float,
    epsilon: float,
    prefix_epsilons: PrivacyLevels | ArrayLike,
    rng: np.random.Generator,
    neighbours: Neighbours = Neighbours.REPLACE_ONE,
    domain: Domain | None = None,
) -> Release[AnyQuery]:
    """Stop at the first query whose noisy value reaches a noisy threshold.

    The threshold gets Laplace(2 sensitivity / epsilon) noise once, each query fresh
    Laplace(4 sensitivity / epsilon) noise; both scales are needed, since the value of a query may move
    up and that of another down between two neighbouring data sets (erratum AF-7a).

    Parameters
    ----------
    queries : iterable of Query
        Produced lazily: query t is asked for only when all earlier ones have failed.
    threshold : float
        The level that a query has to reach.
    sensitivity : float
        How much the value of any one query, held fixed, moves between neighbouring data sets.
    epsilon : float
        Privacy loss of the test alone.
    prefix_epsilons : PrivacyLevels or array_like, shape (T,)
        What publishing queries 0 ... t costs, nondecreasing; zeros for public queries. Its length is the
        number of queries that are asked at the most.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        The accepted query, or ``Refused`` when all fail. Ex-post guarantee ``epsilon + prefix_epsilons[t]``;
        a refusal costs ``epsilon`` and the last prefix that was asked for, and the
        release never contains the exact minimiser that the paper falls back to (erratum AF-7g).

    Raises
    ------
    ValueError
        A parameter out of range, or no query at all.
    """
    level, delta = check_real("threshold", threshold), check_positive("sensitivity", sensitivity)
    budget = check_positive("epsilon", epsilon)
    costs = as_prefix_costs(prefix_epsilons)
    check_generator(rng)

    def outcome(value: AnyQuery | Refused, asked: int) -> Release[AnyQuery]:
        parts = {"test": budget, "generate": float(costs[asked - 1])}
        guarantee = Guarantee(
            "ex-post", sum(parts.values()), neighbours, domain=domain, parts=parts, source=SOURCE
        )
        index = None if isinstance(value, Refused) else asked - 1
        return Release(value, guarantee, index=index, trace=Trace(tested=asked))

    noisy_threshold = level + rng.laplace(scale=2 * delta / budget)
    asked = 0
    for query in itertools.islice(queries, len(costs)):
        asked += 1
        # value + noise >= noisy threshold, written as what the query has to reach
        if query.reaches(noisy_threshold - rng.laplace(scale=4 * delta / budget)):
            return outcome(query, asked)
    if asked == 0:
        raise ValueError("queries must produce at least one query, got none")
    return outcome(Refused(f"none of the {asked} queries reached the threshold"), asked)


# ---------------------------------------------------------------- exact laws


def _log_laplace_cdf(x: FloatArray, scale: float) -> FloatArray:
    """Log of the Laplace distribution function, accurate where it is near zero and where it is near one."""
    size = np.abs(x) / scale
    return np.where(x < 0, -math.log(2) - size, np.log1p(-0.5 * np.exp(-size)))


def halting_probability(
    values: ArrayLike,
    *,
    threshold: float,
    sensitivity: float,
    epsilon: float,
    threshold_factor: float = 2.0,
    query_factor: float = 4.0,
) -> float:
    """Exact probability that the test stops at the last of the listed query values and not before.

    One-dimensional integral over the threshold's noise, by Gauss-Legendre rules between the kinks of
    the integrand; absolute error below 1e-13. ``threshold_factor`` and ``query_factor`` replace the 2
    and the 4 of the algorithm, to see what other choices would cost (erratum AF-7a).

    Parameters
    ----------
    values : array_like, shape (t,)
        Values of queries 0 ... t-1 on the data.
    """
    value = as_finite_array("values", values, ndim=1)
    if value.size == 0:
        raise ValueError("values must hold at least one query value, got none")
    check_positive("threshold_factor", threshold_factor)
    check_positive("query_factor", query_factor)
    unit = check_positive("sensitivity", sensitivity) / check_positive("epsilon", epsilon)
    b_threshold, b_query = threshold_factor * unit, query_factor * unit
    distance = value - check_real("threshold", threshold)
    nodes, weights = _panels(np.append(distance, 0.0), b_threshold, b_query)
    # P(nu < xi - d_s) for the queries that fail, P(nu >= xi - d_t) for the one that is accepted
    failing, often = np.unique(distance[:-1], return_counts=True)  # equal queries are evaluated once
    fail = _log_laplace_cdf(nodes[:, None] - failing, b_query) @ often
    accept = np.exp(_log_laplace_cdf(distance[-1] - nodes, b_query))
    density = np.exp(-np.abs(nodes) / b_threshold + fail) / (2 * b_threshold)
    return float(weights @ (density * accept))


def _panels(kinks: FloatArray, b_threshold: float, b_query: float) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on panels that end at every kink and are short against both scales."""
    reach = 45 * b_threshold
    width = min(b_threshold, b_query)
    inside = kinks[np.abs(kinks) < reach]
    edges = np.unique(np.concatenate([np.arange(-reach, reach + width, width), inside]))
    x, w = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2
    centre = (edges[:-1] + edges[1:])[:, None] / 2
    return (centre + half * x).ravel(), (half * w).ravel()


def worst_halting_loss(
    *, two_sided: bool, epsilon: float = 1.0, threshold_factor: float = 2.0, query_factor: float = 4.0
) -> float:
    """Largest exact privacy loss of the test over a grid of adversarial query values, sensitivity 1.

    m equal queries fail before the last one is accepted; on the neighbour all of them move up by one, and the last
    one up or not at all (``two_sided=False``), or down. The supremum is approached far from the threshold and with
    many queries, where the grid has its ends.
    """
    last_moves = (-1.0,) if two_sided else (0.0, 1.0)
    worst = 0.0
    grid = itertools.product((0, 1, 10, 1000), (-16.0, -8.0, -4.0, 0.0, 4.0), (-30.0, -6.0, 6.0), last_moves)
    for many, before, last, last_move in grid:
        chances = [
            halting_probability(
                [before + move] * many + [last + move * last_move],
                threshold=0.0,
                sensitivity=1.0,
                epsilon=epsilon,
                threshold_factor=threshold_factor,
                query_factor=query_factor,
            )
            for move in (0.0, 1.0)
        ]
        worst = max(worst, abs(math.log(chances[0] / chances[1])))
    return worst


def false_acceptance_probability(margin: float, *, levels: int, sensitivity: float, epsilon: float) -> float:
    """Exact chance that one of ``levels`` queries, all ``margin`` below the threshold, is accepted.

    The worst case of Theorem A.1: every query sits exactly at the edge of being too bad.
    """
    count = check_count("levels", levels)
    gap = check_real("margin", margin)
    unit = check_positive("sensitivity", sensitivity) / check_positive("epsilon", epsilon)
    nodes, weights = _panels(np.array([-gap, 0.0]), 2 * unit, 4 * unit)
    density = np.exp(-np.abs(nodes) / (2 * unit)) / (4 * unit)
    log_fail = _log_laplace_cdf(nodes + gap, 4 * unit)
    return float(weights @ (density * -np.expm1(count * log_fail)))


CALIBRATIONS = ("printed", "sharp")


def accuracy_margin(
    *, levels: int, sensitivity: float, epsilon: float, failure: float, calibration: str = "sharp"
) -> float:
    """How far below the threshold an accepted query can be, except with probability ``failure``.

    ``"printed"``: 8 Delta (log T + log(2/gamma)) / epsilon (ligett2017, Theorem A.1).
    ``"sharp"``: 4 Delta log(2T / (3 gamma)) / epsilon (erratum AF-7e; needs gamma < 2T/3).
    ``"exact"``: the root of :func:`false_acceptance_probability`.

    It bounds bad acceptances only; it says nothing about the chance that every query is refused.
    """
    kind = check_choice("calibration", calibration, (*CALIBRATIONS, "exact"))
    count, gamma = check_count("levels", levels), check_probability("failure", failure)
    unit = check_positive("sensitivity", sensitivity) / check_positive("epsilon", epsilon)
    if kind == "printed":
        return 8 * unit * (math.log(count) + math.log(2 / gamma))
    if gamma >= 2 * count / 3:
        raise ValueError(f"failure must be below 2 T / 3 = {2 * count / 3:.6g}, got {gamma!r}")
    sharp = 4 * unit * math.log(2 * count / (3 * gamma))
    if kind == "sharp":
        return sharp

    def excess_failure(margin: float) -> float:
        p = false_acceptance_probability(margin, levels=count, sensitivity=sensitivity, epsilon=epsilon)
        return p - gamma

    if excess_failure(0.0) <= 0:
        return 0.0  # one query and a failure probability of a half or more: nothing can go too wrong
    root = float(brentq(excess_failure, 0.0, 2 * sharp + unit, xtol=1e-13 * unit, rtol=1e-14))
    return root * (1 + 1e-9)  # the failure probability falls with the margin: step to the safe side
