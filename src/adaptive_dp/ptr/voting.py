"""Binary voting: report-noisy-max with its exact data-dependent loss, classic and generalized propose-test-release.

redberg2023, Example B.3.1, Theorem B.3.2 and Figure B.1; erratum 17. Each of two counts of votes gets Laplace noise of
scale 1 / epsilon and the larger one wins. Neighbours add or remove one voter: one count moves by one. Everything
depends on the gap t = n_1 - n_0 alone, which moves by one, in either direction and from every t (a vote can always be
added, so that the max(., 0) of the theorem changes nothing). With s = epsilon |t| the minority wins with probability

    p(t) = (2 + s) e^-s / 4.

Its logarithm falls faster and faster towards slope -epsilon. At delta = 0 the loss of a data set therefore *increases*
with the gap, from epsilon - log(1 + epsilon / 2) to epsilon: a lower bound of the gap says nothing. What a gap is good
for is a delta > 0: once p(t) is below it, the minority need not be protected, and the loss falls to zero. The test of
generalized propose-test-release has to use the largest loss over *all* gaps above the private lower bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.noise import laplace, laplace_tail
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.classic import ptr_threshold
from adaptive_dp.ptr.framework import DataDependentMechanism, PrivateTest, generalized_ptr
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

SOURCE = "redberg2023, Example B.3.1; erratum 17"
# A table of losses has about log(1 / delta) / epsilon entries.
LONGEST_TABLE = 2_000_000


def check_votes(votes: ArrayLike, voters: int | None = None) -> tuple[int, int]:
    """Return the counts (n_0, n_1) as two integers.

    Parameters
    ----------
    votes : array_like, shape (2,)
        Nonnegative whole numbers.
    voters : int, optional
        Their sum, if the caller knows it.

    Raises
    ------
    TypeError, ValueError
        Not two nonnegative whole numbers, or they do not sum to ``voters``.
    """
    counts = as_finite_array("votes", votes, ndim=1)
    if counts.shape != (2,):
        raise ValueError(f"votes must be two counts, got shape {counts.shape}")
    if (counts < 0).any() or (counts != np.floor(counts)).any() or counts.max() > 2**52:
        raise ValueError(f"votes must be nonnegative whole numbers, got {counts.tolist()!r}")
    n0, n1 = int(counts[0]), int(counts[1])
    if voters is not None and n0 + n1 != check_count("voters", voters, minimum=0):
        raise ValueError(f"votes must sum to the number of voters: {n0} + {n1} against {voters}")
    return n0, n1


# --- exact probabilities and losses -------------------------------------------------------------------


def minority_probability(gaps: ArrayLike, *, epsilon: float) -> FloatArray:
    """p(t) = (2 + s) e^-s / 4 with s = epsilon |t|, elementwise: the losing side wins; 1/2 at a tie."""
    s = check_ordinary("epsilon", epsilon) * np.abs(as_finite_array("gaps", gaps))
    return np.asarray((2 + s) * np.exp(-s) / 4)


def class_zero_probability(gaps: ArrayLike, *, epsilon: float) -> FloatArray:
    """Probability that class 0 wins at the gap t = n_1 - n_0, either sign, elementwise.

    p(t) for t >= 0 and 1 - p(t) for t < 0. The thesis prints p without the absolute value.
    """
    t = as_finite_array("gaps", gaps)
    p = minority_probability(t, epsilon=epsilon)
    return np.asarray(np.where(t >= 0, p, 1 - p))


def pure_loss(gaps: ArrayLike, *, epsilon: float) -> FloatArray:
    """Data-dependent loss at delta = 0, elementwise: epsilon - log(1 + epsilon / (2 + epsilon |t|)).

    It is log p(t) - log p(t + 1), the same as epsilon + log(1 - epsilon / (2 + epsilon (|t| + 1))): all other ratios
    of Theorem B.3.2 are smaller. It increases with |t|, up to epsilon.
    """
    e = check_ordinary("epsilon", epsilon)
    return np.asarray(e - np.log1p(e / (2 + e * np.abs(as_finite_array("gaps", gaps)))))


def approximate_loss(gaps: ArrayLike, *, epsilon: float, delta: float, one_sided: bool = False) -> FloatArray:
    """Data-dependent loss at delta > 0: smallest epsilon' that covers the gap t and both its neighbours, elementwise.

    For noise of epsilon = 1 and delta = 1e-6: 0.5945 at t = 0, 0.8664 (5), 0.9126 (10), 0.5818 (15), 0 from 16 on.

    Parameters
    ----------
    gaps : array_like
        t = n_1 - n_0.
    epsilon : float
        Of the noise: scale 1 / epsilon.
    delta : float
        In (0, 1).
    one_sided : bool
        Only P_t(S) <= e^epsilon' P_{t'}(S) + delta with t the data set at hand, which is what the proof of generalized
        propose-test-release uses (erratum 12). Otherwise both directions, as in Definition 3.5.1.

    Returns
    -------
    ndarray, nonnegative
    """
    e, d = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    t = np.abs(as_finite_array("gaps", gaps))
    here = _log_probabilities(t, e)
    loss = np.zeros_like(t)
    for step in (-1.0, 1.0):
        there = _log_probabilities(t + step, e)
        for a, b in zip(here, there, strict=True):
            for top, bottom in ((a, b),) if one_sided else ((a, b), (b, a)):
                covered = np.exp(top) <= d
                kept = np.where(covered, 0.0, np.exp(top) - d)
                loss = np.maximum(loss, np.log(np.where(covered, 1.0, kept)) - np.where(covered, 0.0, bottom))
    return loss


def _log_probabilities(t: FloatArray, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Return log of the probabilities that class 0 and that class 1 wins."""
    s = epsilon * np.abs(t)
    small = np.log(2 + s) - s - math.log(4)
    large = np.log1p(-np.exp(small))
    return np.where(t >= 0, small, large), np.where(t >= 0, large, small)


@functools.lru_cache(maxsize=256)
def largest_losses(epsilon: float, delta: float, one_sided: bool = True) -> FloatArray:
    """Table of sup over t >= j of the loss at delta, for j = 0, 1, ...; the last entry is 0 and holds from there on.

    Where p(t - 1) <= delta everything about the minority is within delta, and so is what the majority can lose.

    Raises
    ------
    ValueError
        More than two million entries.
    """
    e, d = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    # p <= e^{-s/2} / 2, as 2 + s <= 2 e^{s/2}
    if 2 * math.log(1 / d) / e > LONGEST_TABLE:
        raise ValueError(f"epsilon is too small for a table of losses at this delta, got {e!r}")
    gaps = np.arange(math.ceil(2 * math.log(1 / d) / e) + 3, dtype=np.float64)
    last = int(np.argmax(minority_probability(gaps, epsilon=e) <= d)) + 1
    losses = approximate_loss(gaps[:last], epsilon=e, delta=d, one_sided=one_sided)
    table = np.append(np.maximum.accumulate(losses[::-1])[::-1], 0.0)
    table.setflags(write=False)
    return table


def loss_above(lower: ArrayLike, *, epsilon: float, delta: float, one_sided: bool = True) -> FloatArray:
    """Largest loss over all gaps |t| >= ``lower``, elementwise: what a lower bound of the gap proves."""
    table = largest_losses(epsilon, delta, one_sided)
    first = np.clip(np.ceil(as_finite_array("lower", lower)), 0, table.size - 1).astype(np.intp)
    return np.asarray(table[first])


def smallest_gap(budget: float, *, epsilon: float, delta: float, one_sided: bool = True) -> int:
    """Smallest gap from which on every loss is within ``budget`` >= 0; 0 where the noise alone is."""
    level = check_real("budget", budget)
    if level < 0:
        raise ValueError(f"budget must be nonnegative, got {level!r}")
    return int(np.argmax(largest_losses(epsilon, delta, one_sided) <= level))


# --- mechanisms ---------------------------------------------------------------------------------------


def report_noisy_max(
    votes: ArrayLike, *, epsilon: float, voters: int | None = None, rng: np.random.Generator
) -> Release[int]:
    """Publish the class whose count with Laplace(1 / epsilon) noise is larger: the baseline, (epsilon, 0)-private.

    Parameters
    ----------
    votes : array_like, shape (2,)
    epsilon : float
    voters : int, optional
        See :func:`check_votes`.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        0 or 1.
    """
    counts = check_votes(votes, voters)
    e = check_ordinary("epsilon", epsilon)
    guarantee = Guarantee("ex-ante", e, Neighbours.ADD_REMOVE, source=SOURCE)
    return Release(_noisy_winner(counts, e, check_generator(rng)), guarantee)


def _noisy_winner(votes: tuple[int, int], epsilon: float, rng: np.random.Generator) -> int:
    noisy = np.array(votes) + laplace(1 / epsilon, 2, rng)
    return int(noisy[1] > noisy[0])


def classic_ptr_vote(
    votes: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    calibration: str = "sharp",
    voters: int | None = None,
    rng: np.random.Generator,
) -> Release[int]:
    """Publish the true majority if a private test says that no voter can change it, (epsilon, delta)-private.

    The local sensitivity of the majority is zero where |t| > 1, and the distance to where it is not is
    max(|t| - 1, 0); at a tie the majority is class 0.

    Parameters
    ----------
    votes : array_like, shape (2,)
    epsilon, delta : float
        delta in (0, 1).
    calibration : {"sharp", "printed"}
        Threshold log(1 / (2 delta)) / epsilon or log(1 / delta) / epsilon, see
        :func:`~adaptive_dp.ptr.classic.ptr_threshold`.
    voters : int, optional
    rng : numpy.random.Generator

    Returns
    -------
    Release
        0, 1 or ``Refused`` (the thesis then draws a class at random, which is postprocessing).
    """
    n0, n1 = check_votes(votes, voters)
    threshold = ptr_threshold(epsilon, delta, calibration=calibration)
    check_generator(rng)
    guarantee = Guarantee("ex-ante", float(epsilon), Neighbours.ADD_REMOVE, float(delta), source=SOURCE)
    distance = max(abs(n1 - n0) - 1, 0)
    noisy = distance + float(laplace(1 / epsilon, 1, rng)[0])
    trace = Trace(distance=distance, noisy_distance=noisy)
    if noisy <= threshold:
        return Release(
            Refused("the test did not confirm that the majority is stable"), guarantee, trace=trace
        )
    return Release(int(n1 > n0), guarantee, trace=trace)


def generalized_ptr_vote(
    votes: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    noise_epsilon: float,
    test_epsilon: float,
    test_delta: float,
    calibration: str = "sharp",
    one_sided: bool = True,
    voters: int | None = None,
    rng: np.random.Generator,
) -> Release[int]:
    """Run report-noisy-max if a private lower bound of the gap proves its loss to be within ``epsilon``.

    The lower bound t^P = |t| + Lap(1 / test_epsilon) - threshold exceeds |t| with probability at most ``test_delta``.
    The test passes where the largest loss over all gaps of at least t^P is at most ``epsilon``; redberg2023 evaluates
    the loss *at* t^P, which is no upper bound of it (erratum 17).

    Parameters
    ----------
    votes : array_like, shape (2,)
    epsilon, delta : float
        Budget of the vote; epsilon >= 0, delta in (0, 1).
    noise_epsilon : float
        The noise of the vote has scale 1 / noise_epsilon.
    test_epsilon, test_delta : float
        Budget of the test, and how often it may pass a loss over budget.
    calibration : {"sharp", "printed"}
        As in :func:`classic_ptr_vote`, for ``test_delta``.
    one_sided : bool
        See :func:`approximate_loss`; the guarantee is the same.
    voters : int, optional
    rng : numpy.random.Generator

    Returns
    -------
    Release
        0, 1 or ``Refused``, with the guarantee (epsilon + test_epsilon, max(delta, test_delta)).
    """
    counts = check_votes(votes, voters)
    check_ordinary("noise_epsilon", noise_epsilon)
    check_ordinary("test_epsilon", test_epsilon)
    check_probability("test_delta", test_delta)
    threshold = ptr_threshold(test_epsilon, test_delta, calibration=calibration)
    enough = smallest_gap(epsilon, epsilon=noise_epsilon, delta=delta, one_sided=one_sided)
    cost = Guarantee("ex-ante", float(test_epsilon), Neighbours.ADD_REMOVE, source=SOURCE)

    def decide(
        data: tuple[int, int], proposal: float, budget: float, generator: np.random.Generator
    ) -> Release[bool]:
        lower = abs(data[1] - data[0]) + float(laplace(1 / test_epsilon, 1, generator)[0]) - threshold
        # |t| is a whole number: t^P > enough - 1 proves |t| >= enough.
        return Release(enough == 0 or lower > enough - 1, cost, trace=Trace(lower_bound=lower))

    def loss(data: tuple[int, int], proposal: float) -> float:
        gap = abs(data[1] - data[0])
        return float(approximate_loss(gap, epsilon=proposal, delta=delta, one_sided=one_sided))

    return generalized_ptr(
        counts,
        proposal=float(noise_epsilon),
        mechanism=DataDependentMechanism(_noisy_winner, loss, delta),
        check=PrivateTest(decide, test_epsilon, 0.0, test_delta),
        epsilon=epsilon,
        rng=rng,
    )


# --- exact laws of the outcome ------------------------------------------------------------------------


def report_noisy_max_law(gaps: ArrayLike, *, epsilon: float) -> FloatArray:
    """Probabilities of class 0, class 1 and a refusal (which never happens) at each gap, shape (gaps, 3)."""
    p = class_zero_probability(np.atleast_1d(gaps), epsilon=epsilon)
    q = class_zero_probability(-np.atleast_1d(np.asarray(gaps, dtype=np.float64)), epsilon=epsilon)
    # At a tie both are 1/2; elsewhere they are complements, each with its own digits.
    return np.column_stack([p, q, np.zeros_like(p)])


def classic_ptr_law(
    gaps: ArrayLike, *, epsilon: float, delta: float, calibration: str = "sharp"
) -> FloatArray:
    """Law of :func:`classic_ptr_vote` at each gap, shape (gaps, 3)."""
    t = np.atleast_1d(as_finite_array("gaps", gaps))
    threshold = ptr_threshold(epsilon, delta, calibration=calibration)
    margin = threshold - np.maximum(np.abs(t) - 1, 0)
    passing, refusing = laplace_tail(margin, 1 / epsilon), laplace_tail(-margin, 1 / epsilon)
    return np.column_stack([np.where(t <= 0, passing, 0.0), np.where(t > 0, passing, 0.0), refusing])


def generalized_ptr_law(
    gaps: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    noise_epsilon: float,
    test_epsilon: float,
    test_delta: float,
    calibration: str = "sharp",
    one_sided: bool = True,
) -> FloatArray:
    """Law of :func:`generalized_ptr_vote` at each gap, shape (gaps, 3)."""
    t = np.atleast_1d(as_finite_array("gaps", gaps))
    threshold = ptr_threshold(test_epsilon, test_delta, calibration=calibration)
    enough = smallest_gap(epsilon, epsilon=noise_epsilon, delta=delta, one_sided=one_sided)
    law = report_noisy_max_law(t, epsilon=noise_epsilon)
    if enough == 0:
        return law
    margin = enough - 1 + threshold - np.abs(t)
    law *= laplace_tail(margin, 1 / test_epsilon)[:, np.newaxis]
    law[:, 2] = laplace_tail(-margin, 1 / test_epsilon)
    return law


def largest_delta(laws: ArrayLike, epsilon: float) -> FloatArray:
    """Smallest delta at ``epsilon`` for each two consecutive gaps, both directions; shape (gaps - 1,).

    Parameters
    ----------
    laws : array_like, shape (gaps, outcomes)
        Laws at the gaps t, t + 1, t + 2, ...
    epsilon : float
        Nonnegative.
    """
    rows = as_finite_array("laws", laws, ndim=2)
    factor = math.exp(check_real("epsilon", epsilon))
    forward = np.maximum(rows[:-1] - factor * rows[1:], 0).sum(axis=1)
    backward = np.maximum(rows[1:] - factor * rows[:-1], 0).sum(axis=1)
    return np.asarray(np.maximum(forward, backward))


def error_rate(laws: ArrayLike, gaps: Sequence[float] | ArrayLike) -> FloatArray:
    """Probability of the wrong class at gaps other than 0, where a refusal is replaced by a fair coin."""
    rows, t = as_finite_array("laws", laws, ndim=2), np.atleast_1d(as_finite_array("gaps", gaps))
    if rows.shape != (t.size, 3) or (t == 0).any():
        raise ValueError(f"gaps must be nonzero, one a law, got shape {t.shape} for laws {rows.shape}")
    return np.asarray(np.where(t > 0, rows[:, 0], rows[:, 1]) + rows[:, 2] / 2)
