"""Statistical audit: what an attacker who may run a mechanism can prove against its privacy claim.

A mechanism that is (epsilon, delta)-differentially private obeys P(E | D) <= exp(epsilon) P(E | D') + delta
for every event E and every neighbouring pair. Both probabilities can be estimated by running the mechanism,
so every event gives a *lower* bound on epsilon with an exact confidence statement (Clopper and Pearson 1934;
for this use Jagielski, Ullman and Oprea 2020, and Nasr et al. 2023).

What an audit cannot do. It looks at one pair and at the events that it is given, so it refutes claims and
never proves one. Its power is bounded by the number of runs N: even an event that always happens on D and
never on D' shows no more than about log(N / log(4 / (1 - confidence))), see :func:`largest_provable`. A claim
above that passes whatever the mechanism does; compare ``result.ceiling`` with the claim before believing a pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv

from adaptive_dp.privacy import Guarantee
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_probability,
    check_real,
)

Data = TypeVar("Data")
Outcome = TypeVar("Outcome")
Outcomes = TypeVar("Outcomes")
BoolArray = NDArray[np.bool_]

BatchMechanism = Callable[[Data, int, np.random.Generator], Outcomes]
"""Runs a mechanism ``runs`` times: ``(data, runs, rng) -> outcomes``, independent from run to run."""
Event = Callable[[Outcomes], BoolArray]
"""Says of each run of a batch whether the event happened: shape (runs,), boolean."""

#: Runs that are held in memory at once.
BATCH = 100_000


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What an audit found about one pair and one event.

    Attributes
    ----------
    lower : float
        With the stated confidence, the mechanism is not (e, delta)-private for any e below ``lower``; at least 0.
    estimate : float
        Largest log ratio of the observed frequencies, without confidence; infinite when one count is 0.
    upper : float
        With the stated confidence, *this event* on *this pair* shows no more than ``upper``. It is no upper
        bound on epsilon.
    counts : tuple of int
        How often the event happened on D and on D'.
    runs : int
        Runs on each of D and D' behind the counts (those that chose the event are not among them).
    event : int
        Index of the event in the family.
    confidence : float
        Of ``lower`` and ``upper`` together.
    delta : float
    """

    lower: float
    estimate: float
    upper: float
    counts: tuple[int, int]
    runs: int
    event: int
    confidence: float
    delta: float

    @property
    def ceiling(self) -> float:
        """The largest lower bound that this many runs could have shown, see :func:`largest_provable`."""
        return largest_provable(self.runs, self.confidence, delta=self.delta)

    def passes(self, claim: float | Guarantee) -> bool:
        """Whether the claim survives: ``lower`` does not exceed it.

        Parameters
        ----------
        claim : float or Guarantee
            An epsilon at this audit's delta, or a guarantee with the same delta. Of an ex-post guarantee only
            the epsilon is used: the audited events must then lie within the outcomes that carry it.

        Raises
        ------
        ValueError
            A guarantee with another delta than the audit's, or a negative epsilon.
        """
        if isinstance(claim, Guarantee):
            if claim.delta != self.delta:
                raise ValueError(f"claim must have the audit's delta {self.delta!r}, got {claim.delta!r}")
            return self.lower <= claim.epsilon
        epsilon = math.inf if claim == math.inf else check_real("claim", claim)
        if epsilon < 0:
            raise ValueError(f"claim must be nonnegative, got {epsilon!r}")
        return self.lower <= epsilon


def lower_bound(
    mechanism: BatchMechanism[Data, Outcomes],
    pair: tuple[Data, Data],
    *,
    events: Event[Outcomes] | Sequence[Event[Outcomes]],
    runs: int,
    confidence: float = 0.99,
    delta: float = 0.0,
    rng: np.random.Generator,
) -> AuditResult:
    """Bound epsilon from below by running a mechanism on two neighbouring data sets.

    Parameters
    ----------
    mechanism : callable ``(data, runs, rng) -> outcomes``
        Runs the mechanism ``runs`` times, independently; :func:`one_by_one` makes it from a single run.
    pair : (D, D')
        Two neighbouring data sets, in whatever form the mechanism takes.
    events : callable or sequence of callables ``outcomes -> (runs,) bool``
        One event: all runs go into its bound. Several: the first half of the runs chooses the event with the
        largest lower bound, fresh runs of the second half evaluate it, so that no correction for the number of
        events is needed. Both directions of the pair and the complement of each event are always tried.
    runs : int
        Runs on each of D and D', at least 2.
    confidence : float in (0, 1)
        Chance of at least this much that ``lower`` is a true lower bound (and ``upper`` a true upper bound for
        the event): two-sided Clopper-Pearson intervals for both probabilities, a quarter of 1 - confidence in
        each of the four tails (a union bound, which covers the two directions and the complement as well).
    delta : float in [0, 1)
        The delta of the claim to be tested.
    rng : numpy.random.Generator

    Returns
    -------
    AuditResult

    Raises
    ------
    TypeError, ValueError
        A parameter out of range, an empty family, an event that does not answer with (runs,) booleans.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp import audit
    >>> def noisy_count(count, runs, rng):
    ...     return count + rng.laplace(scale=1 / 0.5, size=runs)  # 0.5-differentially private
    >>> result = audit.lower_bound(
    ...     noisy_count, (10, 11), events=audit.half_lines(lambda x: x, [9, 10, 11, 12]),
    ...     runs=100_000, confidence=0.99, rng=np.random.default_rng(1))
    >>> result.passes(0.5), result.passes(0.25)
    (True, False)
    """
    family = [events] if callable(events) else list(events)
    if not family:
        raise ValueError("events must hold at least one event, got none")
    for event in family:
        if not callable(event):
            raise TypeError(f"events must be callables, got {type(event).__name__}: {event!r}")
    total = check_count("runs", runs, minimum=2)
    level = check_probability("confidence", confidence)
    slack = _check_delta(delta)
    check_generator(rng)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(f"pair must be a tuple of two data sets, got {type(pair).__name__}")
    chosen, evaluation = 0, total
    if len(family) > 1:
        first = total // 2
        evaluation = total - first
        tries = _counts(mechanism, pair, family, first, rng)
        bounds = [_bounds((a, b), first, level, slack) for a, b in tries.tolist()]
        # A tie (usually: no event shows anything) goes to the larger observed ratio.
        chosen = max(range(len(family)), key=lambda i: (bounds[i][0], bounds[i][1]))
    ((on_d, on_other),) = _counts(mechanism, pair, [family[chosen]], evaluation, rng).tolist()
    return from_counts((on_d, on_other), runs=evaluation, confidence=level, delta=slack, event=chosen)


def from_counts(
    counts: tuple[int, int], *, runs: int, confidence: float = 0.99, delta: float = 0.0, event: int = 0
) -> AuditResult:
    """Bound epsilon from below when somebody else has run the mechanism and counted.

    Parameters
    ----------
    counts : (int, int)
        How often one event, fixed before the runs, happened on D and on D'.
    runs : int
        Runs on each of D and D', independent.
    confidence, delta
        As in :func:`lower_bound`.
    event : int
        Carried over to the result.
    """
    total = check_count("runs", runs)
    level, slack = check_probability("confidence", confidence), _check_delta(delta)
    on_d, on_other = (check_count("counts", count, minimum=0) for count in counts)
    if max(on_d, on_other) > total:
        raise ValueError(f"counts must not exceed {total} runs, got {(on_d, on_other)}")
    lower, estimate, upper = _bounds((on_d, on_other), total, level, slack)
    return AuditResult(lower, estimate, upper, (on_d, on_other), total, event, level, slack)


def clopper_pearson(count: int, runs: int, tail: float) -> tuple[float, float]:
    """Two-sided exact interval for a probability, each end wrong with chance at most ``tail``.

    Source: Clopper and Pearson 1934, as quantiles of beta laws.
    """
    low = float(betaincinv(count, runs - count + 1, tail)) if count > 0 else 0.0
    high = float(betainccinv(count + 1, runs - count, tail)) if count < runs else 1.0
    return low, high


def largest_provable(runs: int, confidence: float, *, delta: float = 0.0) -> float:
    """Lower bound shown by an event that happened in all ``runs`` on D and in none on D'.

    No mechanism, however broken, is shown to have a larger epsilon with this many runs (after the event has
    been chosen): about log(runs / log(4 / (1 - confidence))).
    """
    count = check_count("runs", runs)
    level, slack = check_probability("confidence", confidence), _check_delta(delta)
    return _bounds((count, 0), count, level, slack)[0]


def half_lines(score: Callable[[Outcomes], FloatArray], thresholds: ArrayLike) -> list[Event[Outcomes]]:
    """Events "score <= threshold", one for each threshold; complements come for free.

    Parameters
    ----------
    score : callable ``outcomes -> (runs,) float``
        One number a run, for instance the log density ratio of the pair: the best events are its half-lines
        (Neyman and Pearson 1933).
    thresholds : array_like, shape (k,)
        Chosen without looking at the audited runs.
    """

    def event(threshold: float) -> Event[Outcomes]:
        return lambda outcomes: np.asarray(score(outcomes) <= threshold, dtype=np.bool_)

    return [event(threshold) for threshold in as_finite_array("thresholds", thresholds, ndim=1).tolist()]


def one_by_one(run: Callable[[Data, np.random.Generator], Outcome]) -> BatchMechanism[Data, list[Outcome]]:
    """Turn a single run ``(data, rng) -> outcome`` into a batch: the list of ``runs`` outcomes."""

    def batch(data: Data, runs: int, rng: np.random.Generator) -> list[Outcome]:
        return [run(data, rng) for _ in range(runs)]

    return batch


def for_each(event: Callable[[Outcome], bool]) -> Event[Sequence[Outcome]]:
    """Turn an event of one outcome into an event of a list of outcomes."""
    return lambda outcomes: np.fromiter((event(o) for o in outcomes), dtype=np.bool_, count=len(outcomes))


def _check_delta(delta: float) -> float:
    slack = check_real("delta", delta)
    if not 0 <= slack < 1:
        raise ValueError(f"delta must lie in [0, 1), got {slack!r}")
    return slack


def _counts(
    mechanism: BatchMechanism[Data, Outcomes],
    pair: tuple[Data, Data],
    family: Sequence[Event[Outcomes]],
    runs: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """How often each event happens on D and on D', shape (events, 2)."""
    counts = np.zeros((len(family), 2), dtype=np.int64)
    for start in range(0, runs, BATCH):
        size = min(BATCH, runs - start)
        for side, data in enumerate(pair):
            outcomes = mechanism(data, size, rng)
            for index, event in enumerate(family):
                happened = np.asarray(event(outcomes))
                if happened.shape != (size,) or happened.dtype != np.bool_:
                    raise ValueError(
                        f"events must answer with {size} booleans, but event {index} gave shape "
                        f"{happened.shape} of {happened.dtype}"
                    )
                counts[index, side] += np.count_nonzero(happened)
    return counts


def _bounds(
    counts: tuple[int, int], runs: int, confidence: float, delta: float
) -> tuple[float, float, float]:
    """Lower bound, estimate and upper bound of what the event shows, its complement and both directions included."""
    tail = (1 - confidence) / 4
    intervals = []
    for count in counts:
        low, high = clopper_pearson(count, runs, tail)
        intervals.append((low, count / runs, high))
    (a_low, a, a_high), (b_low, b, b_high) = intervals
    # (smallest, observed, largest) probability of the event in the numerator and in the denominator
    cases = [
        ((a_low, a, a_high), (b_low, b, b_high)),
        ((b_low, b, b_high), (a_low, a, a_high)),
        ((1 - a_high, 1 - a, 1 - a_low), (1 - b_high, 1 - b, 1 - b_low)),
        ((1 - b_high, 1 - b, 1 - b_low), (1 - a_high, 1 - a, 1 - a_low)),
    ]
    lower = max(_log_ratio(top[0] - delta, bottom[2]) for top, bottom in cases)
    estimate = max(_log_ratio(top[1] - delta, bottom[1]) for top, bottom in cases)
    upper = max(_log_ratio(top[2] - delta, bottom[0]) for top, bottom in cases)
    return max(lower, 0.0), max(estimate, 0.0), max(upper, 0.0)


def _log_ratio(top: float, bottom: float) -> float:
    """Log of top / bottom: minus infinity when the event shows nothing, infinity when it proves any epsilon wrong."""
    if top <= 0:
        return -math.inf
    return math.inf if bottom <= 0 else math.log(top) - math.log(bottom)
