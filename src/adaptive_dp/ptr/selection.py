"""Private selection: run randomly chosen proposals a geometric number of times and publish the best run.

redberg2023, Algorithm 5 with Theorem 3.5.6 (quoted from Liu and Talwar, "Private selection from private candidates",
STOC 2019, Theorem 3.4). The quoted guarantee holds and is very loose (erratum 13); what is used instead is the profile
proved in :mod:`~adaptive_dp.ptr.selection_bounds`.

A score may look at what a round returned and at public records only. Its worst value belongs to a refusal.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.privacy import SLACK, Guarantee, Refused, Release, Trace
from adaptive_dp.ptr.selection_bounds import GeometricRounds, PairCurve, SelectionCurve, check_tau, check_unit
from adaptive_dp.validation import (
    as_finite_array,
    check_choice,
    check_generator,
    check_increasing_epsilons,
    check_positive,
    check_probability,
)

Data = TypeVar("Data")
Value = TypeVar("Value")
Proposal = TypeVar("Proposal")

SOURCE = "redberg2023, Algorithm 5; erratum 13 (profile of private selection)"
BOUNDS = ("profile", "pair", "liu-talwar")


# --- guarantees ---------------------------------------------------------------------------------------


def liu_talwar_pair(*, epsilon: float, delta: float, tau: float, delta2: float) -> tuple[float, float]:
    """Total (epsilon, delta) as redberg2023 quotes it in Theorem 3.5.6: valid, and very loose.

    (3 epsilon + 3 sqrt(2 delta), sqrt(2 delta) T + delta2) with T = log(1 / delta2) / tau rounds at most.

    Parameters
    ----------
    epsilon, delta : float
        Of one round; delta in [0, 1).
    tau : float
        In (0, 1].
    delta2 : float
        Probability of the cut-off, in (0, 1).

    Returns
    -------
    (float, float)
        The delta may exceed 1, and then says nothing.
    """
    pair = PairCurve(epsilon, delta)
    tail = check_probability("delta2", delta2)
    root = math.sqrt(2 * pair.failure)
    return 3 * pair.level + 3 * root, root * math.log(1 / tail) / check_tau(tau) + tail


def pair_bound(*, epsilon: float, delta: float, tau: float) -> tuple[float, float]:
    """Total (epsilon, delta) from the pair of one round: (3 epsilon + 2 log(1 + (1 - tau) delta / tau), delta / tau).

    No square root and no cut-off (erratum 13): :class:`SelectionCurve` at epsilon_1 = epsilon.
    """
    pair, chance = PairCurve(epsilon, delta), check_tau(tau)
    grown = 2 * math.log1p((1 - chance) * pair.failure / chance)
    return 3 * pair.level + grown, pair.failure / chance


def selection_guarantee(one: Guarantee, *, tau: float, delta: float, cutoff: int | None = None) -> Guarantee:
    """Guarantee of private selection, from the guarantee of one round.

    Parameters
    ----------
    one : Guarantee
        Ex-ante, holds for every proposal. Its curve is used where it has one, else its pair.
    tau : float
        In (0, 1].
    delta : float
        Total delta, in [0, 1).
    cutoff : int, optional
        Largest number of rounds.

    Returns
    -------
    Guarantee
        With the curve of the selection.

    Raises
    ------
    TypeError, ValueError
        The guarantee of a round is not ex-ante or promises nothing; ``delta`` is too small for any epsilon.
    """
    if not isinstance(one, Guarantee):
        raise TypeError(f"one must be a Guarantee, got {type(one).__name__}: {one!r}")
    if one.kind != "ex-ante":
        raise ValueError(f"one must be an ex-ante guarantee, got {one.kind!r}")
    if math.isinf(one.epsilon) and one.curve is None:
        raise ValueError("one must promise something: its epsilon is infinite")
    total = check_unit("delta", delta)
    curve = SelectionCurve(one.curve or PairCurve(one.epsilon, one.delta), tau, cutoff)
    epsilon = curve.epsilon(total)
    if not math.isfinite(epsilon) or total == 1:
        raise ValueError(
            f"delta must be larger than that of one round over tau (plus (1 - tau)^cutoff) and below 1, got {total!r}"
        )
    return Guarantee("ex-ante", epsilon, one.neighbours, total, one.domain, source=SOURCE, curve=curve)


def gaussian_run_sigma(
    *,
    epsilon: float,
    delta: float,
    tau: float,
    sensitivity: float = 1.0,
    cutoff: int | None = None,
    bound: str = "profile",
) -> float:
    """Noise of one round, where a round is a Gaussian mechanism, for a total of (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Total, positive.
    delta : float
        Total, in (0, 1).
    tau : float
        In (0, 1].
    sensitivity : float
        l2 sensitivity, positive.
    cutoff : int, optional
        Only for the bound ``"profile"``.
    bound : {"profile", "pair", "liu-talwar"}
        ``"profile"``: :class:`SelectionCurve`. ``"pair"``: :func:`pair_bound`. ``"liu-talwar"``: Theorem 3.5.6 as
        quoted, with delta2 = delta / 2.

    Returns
    -------
    float
        Standard deviation, rounded up. For (1, 1e-6), sensitivity 1, k = 30 and tau = 0.1 / k: 11.06, 15.13, 26.18.

    Notes
    -----
    About 0.1 s for ``"profile"``.

    Raises
    ------
    ValueError
        A parameter out of range, or no noise is enough.
    """
    e, d, chance = check_positive("epsilon", epsilon), check_probability("delta", delta), check_tau(tau)
    length = check_positive("sensitivity", sensitivity)
    rule = check_choice("bound", bound, BOUNDS)
    if rule != "profile" and cutoff is not None:
        raise ValueError(f"cutoff belongs to the bound 'profile', got {cutoff!r} with {rule!r}")
    if rule == "pair":
        one_delta = d * chance
        one = (e - 2 * math.log1p((1 - chance) * one_delta / chance)) / 3
    elif rule == "liu-talwar":
        one_delta = 0.5 * (d / 2 * chance / math.log(2 / d)) ** 2
        one = (e - 3 * math.sqrt(2 * one_delta)) / 3
    else:
        return length / _largest_mu(e, d, chance, cutoff)
    if one <= 0:
        raise ValueError(f"epsilon is too small for any noise with the bound {rule!r}, got {e!r}")
    return gaussian_sigma(one, one_delta, length)


def _largest_mu(epsilon: float, delta: float, tau: float, cutoff: int | None) -> float:
    cut = GeometricRounds(tau, cutoff).cut
    if delta <= cut:
        raise ValueError(f"delta must exceed (1 - tau)^cutoff = {cut:.3g}, got {delta!r}")

    def excess(log_mu: float) -> float:
        found = SelectionCurve(GaussianCurve(math.exp(log_mu)), tau, cutoff).delta(epsilon) - cut
        return math.log(max(found, 1e-300)) - math.log(delta - cut)

    # The bound is never below the profile of a single round.
    high = -math.log(gaussian_sigma(epsilon, delta, 1.0)) + 0.1
    low = high - 1.0
    while excess(low) > 0:
        low -= 1.0
    log_mu = brentq(excess, low, high, xtol=1e-12)
    step = 1e-12
    while excess(log_mu) > 0:
        log_mu, step = log_mu - step, 2 * step
    return math.exp(log_mu)


# --- the mechanism ------------------------------------------------------------------------------------


def private_selection(
    data: Data,
    *,
    run: Callable[[Data, Proposal, np.random.Generator], Release[Value]],
    proposals: Sequence[Proposal],
    score: Callable[[Value], float],
    guarantee: Guarantee,
    tau: float,
    delta: float,
    cutoff: int | None = None,
    rng: np.random.Generator,
) -> Release[Value]:
    """Run random proposals a geometric number of times and publish the outcome with the best score.

    redberg2023, Algorithm 5. About 1 / tau runs are made.

    Parameters
    ----------
    data : object
        Handed to ``run`` as it is.
    run : callable ``(data, proposal, rng) -> Release``
        One round, for instance a generalized propose-test-release; it may refuse.
    proposals : sequence
        Public list, at least one entry. Numbers must be positive and strictly increasing.
    score : callable ``value -> float``
        May look at the value and at public records only (:func:`check_disjoint`). Larger is better; nan is taken
        for the worst value of an answer. A refusal is not scored: it is worse than every answer.
    guarantee : Guarantee
        Of one round, ex-ante, whatever the proposal; the largest over the proposals. What each round promises is
        compared with it.
    tau : float
        Chance that a round is the last one, in (0, 1].
    delta : float
        Total delta.
    cutoff : int, optional
        Largest number of rounds; costs (1 - tau)^cutoff of the total delta.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        The value and, as ``index``, which proposal gave it; ``Refused`` if every round refused. The trace holds
        ``rounds``, ``drawn`` (indices of the proposals), ``scores`` (nan for a refusal) and ``refusals``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, before any round; a round that returns no release, or promises less than ``guarantee``.
    """
    for name, function in (("run", run), ("score", score)):
        if not callable(function):
            raise TypeError(f"{name} must be callable, got {type(function).__name__}")
    choices = check_proposals(proposals)
    check_generator(rng)
    total = selection_guarantee(guarantee, tau=tau, delta=delta, cutoff=cutoff)
    rounds = GeometricRounds(tau, cutoff).draw(rng)
    best: tuple[float, int, Value] | None = None
    drawn, scores = [], []
    for _ in range(rounds):
        index = int(rng.integers(len(choices)))
        outcome = run(data, choices[index], rng)
        _check_round(outcome, guarantee, total)
        drawn.append(index)
        if isinstance(outcome.value, Refused):
            scores.append(math.nan)
            continue
        found = float(score(outcome.value))
        found = -math.inf if math.isnan(found) else found
        scores.append(found)
        if best is None or found > best[0]:
            best = (found, index, outcome.value)
    trace = Trace(rounds=rounds, drawn=drawn, scores=scores, refusals=int(np.isnan(scores).sum()))
    if best is None:
        return Release(Refused("every round refused its proposal"), total, trace=trace)
    return Release(best[2], total, best[1], trace)


def check_proposals(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Return the proposals as a list: not empty, and numbers positive and strictly increasing."""
    if isinstance(proposals, str) or not isinstance(proposals, Sequence | np.ndarray):
        raise TypeError(f"proposals must be a sequence, got {type(proposals).__name__}: {proposals!r}")
    choices = list(proposals)
    if not choices:
        raise ValueError("proposals must hold at least one entry, got none")
    if all(
        isinstance(choice, numbers.Real) and not isinstance(choice, bool | np.bool_) for choice in choices
    ):
        check_increasing_epsilons(np.asarray(choices), name="proposals", minimum=1)
    return choices


def check_disjoint(training_rows: ArrayLike, validation_rows: ArrayLike) -> None:
    """Refuse a validation set that shares rows with the training set; both are row numbers of one table.

    A score that looks at private records is not covered by the guarantee of the selection.
    """
    rows = []
    for name, given in (("training_rows", training_rows), ("validation_rows", validation_rows)):
        numbers_of = as_finite_array(name, given, ndim=1)
        if not numbers_of.size:
            raise ValueError(f"{name} must not be empty")
        rows.append(numbers_of)
    shared = np.intersect1d(rows[0], rows[1])
    if shared.size:
        raise ValueError(
            f"validation_rows overlap training_rows: {shared.size} in both, such as {shared[0]:g}"
        )


def _check_round(outcome: object, promised: Guarantee, total: Guarantee) -> None:
    """Compare what a round promises with what was declared: at the pair, or where the bound looks at the curve."""
    if not isinstance(outcome, Release):
        raise TypeError(f"run must return a Release, got {type(outcome).__name__}")
    found = outcome.guarantee
    fits = found.kind == "ex-ante" and found.neighbours == promised.neighbours
    if fits and promised.curve is None:
        fits = found.epsilon <= promised.epsilon * (1 + SLACK) and found.delta <= promised.delta * (1 + SLACK)
    elif fits and promised.curve is not None:
        curve = total.curve
        assert isinstance(curve, SelectionCurve)
        points = (curve.first, max(total.epsilon - curve.shift, 0.0))
        fits = found.curve is not None and all(
            found.curve.delta(e) <= promised.curve.delta(e) * (1 + SLACK) for e in points
        )
    if not fits:
        raise ValueError(f"run promised less than the declared guarantee of one round: {found!r}")
