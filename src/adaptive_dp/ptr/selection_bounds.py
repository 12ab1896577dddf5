"""Private selection: laws of the number of rounds, proved privacy profiles, and the exact law of the selected outcome.

Each round draws a proposal and an outcome from one law Q; let delta_Q be its privacy profile and K ~ Geom(tau) the
number of rounds, of which the best is published. Then for *any* epsilon_1 >= 0 (erratum 13)

    delta(epsilon) <= delta_Q(epsilon - 2 log c) / tau,     c = e^{epsilon_1} + (1 - tau) delta_Q(epsilon_1) / tau.

Proof. Order the outcomes by score (ties at random), let F be the distribution function, q the density. The selected
outcome has the density q tau / (1 - (1 - tau) F)^2, at most q / tau. And with a neighbour's F', as 1 - F' is the
probability of an event, 1 - F' <= e^{epsilon_1} (1 - F) + delta_Q(epsilon_1), so that
1 - (1 - tau) F' <= c (1 - (1 - tau) F). The ratio of the two densities is therefore at most c^2 times that of q and
q', and what exceeds is weighed by at most 1 / tau. The best epsilon_1 does not depend on epsilon: it minimises c,
which is convex in e^{epsilon_1}.

With a cut-off K is replaced by min(K, T), and (1 - tau)^T is added to delta, once. What is selected within T rounds
has the density q g'(F), where g is the power series of E x^K cut after x^T; g' / f' falls, so that the ratio of
densities is bounded as before; all else has probability (1 - tau)^T under the data set at hand.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_real,
)

# Relative error that a curve handed in may carry (that of gaussian_delta is 1e-12), and the roundings made here.
CURVE_ERROR = 1e-11
ROUNDING = 8 * float(np.finfo(np.float64).eps)


# --- the number of rounds -----------------------------------------------------------------------------


class Rounds(Protocol):
    """Law of the number of rounds K."""

    @property
    def mean(self) -> float:
        """Expected number of rounds."""
        ...

    def generating(self, x: ArrayLike) -> FloatArray:
        """E x^K for x in [0, 1], elementwise."""
        ...

    def draw(self, rng: np.random.Generator) -> int:
        """One number of rounds."""
        ...


@dataclass(frozen=True, slots=True)
class GeometricRounds:
    """min(K, cutoff) with P(K = k) = tau (1 - tau)^(k - 1), k = 1, 2, ...

    Parameters
    ----------
    tau : float
        Chance that a round is the last one, in (0, 1]. redberg2023 writes 0.1 / k for k proposals in the text and
        uses 0.05 / k in the experiments.
    cutoff : int, optional
        Largest number of rounds, at least 1.
    """

    tau: float
    cutoff: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tau", check_tau(self.tau))
        if self.cutoff is not None:
            object.__setattr__(self, "cutoff", check_count("cutoff", self.cutoff))

    def _longer_than(self, rounds: int) -> float:
        """P(K > rounds) without cut-off."""
        if rounds == 0 or self.tau == 1:
            return float(rounds == 0)
        return math.exp(rounds * math.log1p(-self.tau))

    @property
    def cut(self) -> float:
        """P(K > cutoff), rounded up: what the cut-off adds to delta."""
        return 0.0 if self.cutoff is None else self._longer_than(self.cutoff) * (1 + CURVE_ERROR)

    @property
    def mean(self) -> float:
        """(1 - P(K > cutoff)) / tau."""
        if self.cutoff is None or self.tau == 1:
            return 1 / self.tau
        return -math.expm1(self.cutoff * math.log1p(-self.tau)) / self.tau

    def generating(self, x: ArrayLike) -> FloatArray:
        """E x^min(K, cutoff) for x in [0, 1], elementwise."""
        points = as_finite_array("x", x)
        going = (1 - self.tau) * points
        # 1 - (1 - tau) x without cancellation near x = 1
        series = self.tau * points / (self.tau + (1 - self.tau) * (1 - points))
        if self.cutoff is None:
            return np.asarray(series)
        before = self.cutoff - 1
        return np.asarray(series * (1 - going**before) + self._longer_than(before) * points**self.cutoff)

    def draw(self, rng: np.random.Generator) -> int:
        """One number of rounds."""
        rounds = int(check_generator(rng).geometric(self.tau))
        return rounds if self.cutoff is None else min(rounds, self.cutoff)

    def expected_quantile(self) -> float:
        """Expected quantile of the best of the rounds among all outcomes: E[1 - 1 / (K + 1)].

        The largest of K independent uniform numbers has mean K / (K + 1) (redberg2023, Theorem B.2.3, which is
        correct). Without cut-off the expectation is 1 - tau (log(1 / tau) - (1 - tau)) / (1 - tau)^2, otherwise a sum
        over ``cutoff`` terms.
        """
        tau, go = self.tau, 1 - self.tau
        if self.cutoff is not None:
            # E h(min(K, T)) = h(1) + sum_k P(K >= k) (h(k) - h(k - 1)), h(k) = k / (k + 1)
            k = np.arange(2, self.cutoff + 1, dtype=np.float64)
            return 0.5 + float(np.sum(go ** (k - 1) / (k * (k + 1))))
        if go < 1e-3:  # the closed form subtracts: sum_j go^j / ((j + 1) (j + 2)) instead
            j = np.arange(12)
            return float(np.sum(go**j / ((j + 1.0) * (j + 2.0))))
        return 1 - tau * (-math.log(tau) - go) / go**2

    def probability_tried(self, proposals: int) -> float:
        """Probability that one given proposal out of ``proposals`` is ever drawn: 1 - E (1 - 1/k)^K.

        Without cut-off 1 - tau (1 - 1/k) / (1 - (1 - tau)(1 - 1/k)). Erratum 13: the first-order step in the proof of
        Theorem B.2.3 is no approximation of it.
        """
        return 1 - float(self.generating(1 - 1 / check_count("proposals", proposals)))


# --- curves -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PairCurve:
    """The privacy profile that follows from one pair: everything an (epsilon, delta)-private mechanism satisfies.

    It is the profile of the worst such mechanism (Kairouz, Oh and Viswanath 2015, Theorem 3.2): delta at and above
    ``level``, and 1 - (1 - failure)(1 + e^epsilon) / (1 + e^level) below.

    Parameters
    ----------
    level : float
        Epsilon of the pair, nonnegative.
    failure : float
        Delta of the pair, in [0, 1).
    """

    level: float
    failure: float = 0.0

    def __post_init__(self) -> None:
        level, failure = check_real("level", self.level), check_real("failure", self.failure)
        if level < 0:
            raise ValueError(f"level must be nonnegative, got {level!r}")
        if not 0 <= failure < 1:
            raise ValueError(f"failure must lie in [0, 1), got {failure!r}")
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "failure", failure)

    def delta(self, epsilon: float) -> float:
        """Smallest delta at ``epsilon``, any real number."""
        e = check_real("epsilon", epsilon)
        if e < 0:
            return -math.expm1(e) + math.exp(e) * self.delta(-e)
        if e >= self.level:
            return self.failure
        # (1 + e^e) / (1 + e^level) = 1 - (e^level - e^e) / (1 + e^level)
        lost = -math.expm1(e - self.level) / (1 + math.exp(-self.level))
        return min(self.failure + (1 - self.failure) * lost, 1.0)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at ``delta`` in [0, 1]; infinite below the delta of the pair."""
        d = check_unit("delta", delta)
        if d < self.failure:
            return math.inf
        if d == self.failure or self.level == 0:
            return self.level
        lost = (d - self.failure) / (1 - self.failure)
        inner = 1 - lost * (1 + math.exp(-self.level))  # e^(epsilon - level)
        if inner <= 0:
            return 0.0
        return max(self.level + math.log(inner) + ROUNDING * (1 + self.level), 0.0)


@dataclass(frozen=True, slots=True)
class SelectionCurve:
    """Proved privacy profile of private selection, from the profile of one round; see the head of the module.

    Parameters
    ----------
    curve : PrivacyCurve
        Profile of one round, both directions of every pair of neighbours: the largest over all proposals.
    tau : float
        Chance that a round is the last one, in (0, 1].
    cutoff : int, optional
        Largest number of rounds; adds (1 - tau)^cutoff to delta.

    Attributes
    ----------
    first : float
        epsilon_1, the minimiser.
    shift : float
        2 log c: what selection adds to epsilon. For a round that is (e, 0)-private at most 2 e.
    """

    curve: PrivacyCurve
    tau: float
    cutoff: int | None = None
    first: float = field(init=False, compare=False)
    shift: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.curve, type) or not isinstance(self.curve, PrivacyCurve):
            raise TypeError(f"curve must have methods delta and epsilon, got {type(self.curve).__name__}")
        rounds = GeometricRounds(self.tau, self.cutoff)
        object.__setattr__(self, "tau", rounds.tau)
        object.__setattr__(self, "cutoff", rounds.cutoff)
        if isinstance(self.curve, PairCurve | GaussianCurve):
            first, factor = _remembered_factor(self.curve, rounds.tau)
        else:
            first, factor = _smallest_factor(self.curve, rounds.tau)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "shift", 2 * math.log(factor) * (1 + ROUNDING))

    @property
    def cut(self) -> float:
        """P(K > cutoff), 0 without cut-off."""
        return GeometricRounds(self.tau, self.cutoff).cut

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at ``epsilon``; 1 where the bound says nothing."""
        e = check_real("epsilon", epsilon)
        rest = e - self.shift - ROUNDING * (abs(e) + self.shift)
        if rest < 0:
            return 1.0
        one = float(self.curve.delta(rest)) * (1 + CURVE_ERROR)
        return min(one / self.tau * (1 + ROUNDING) + self.cut, 1.0)

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta`` in [0, 1]; infinite where there is none."""
        d = check_unit("delta", delta)
        if d == 1:
            return 0.0
        left = (d - self.cut) * (1 - ROUNDING) / (1 + CURVE_ERROR)
        if left < 0 or (left == 0 and self.cut > 0):
            return math.inf
        rest = float(self.curve.epsilon(left * self.tau))
        return (rest + self.shift) * (1 + 2 * ROUNDING)


def _smallest_factor(curve: PrivacyCurve, tau: float) -> tuple[float, float]:
    """Return epsilon_1 and c. Every epsilon_1 gives a valid c, so that the search need not be exact."""
    odds = (1 - tau) / tau

    def factor(first: float) -> float:
        return math.exp(first) + odds * float(curve.delta(first)) * (1 + CURVE_ERROR)

    candidates = [0.0]
    longest = math.log(factor(0.0))  # beyond it e^{epsilon_1} alone is larger
    if longest > 0:
        found = minimize_scalar(factor, bounds=(0.0, longest), method="bounded", options={"xatol": 1e-10})
        candidates.append(float(found.x))
    # The profile of a pure mechanism, and that of a pair, have their kink where they reach their smallest value.
    kinks = [curve.level] if isinstance(curve, PairCurve) else [float(curve.epsilon(0.0))]
    candidates += [kink for kink in kinks if kink <= longest]
    best = min(candidates, key=factor)
    return best, factor(best)


@functools.lru_cache(maxsize=64)
def _remembered_factor(curve: PairCurve | GaussianCurve, tau: float) -> tuple[float, float]:
    """Search once for a selection that is run many times; these curves cannot change."""
    return _smallest_factor(curve, tau)


# --- the exact law ------------------------------------------------------------------------------------


def selection_law(law: ArrayLike, scores: ArrayLike, rounds: Rounds) -> FloatArray:
    """Exact law of the selected outcome when one round has finitely many outcomes.

    Parameters
    ----------
    law : array_like, shape (m,)
        Probability of each outcome of one round, the draw of the proposal included; they sum to 1.
    scores : array_like, shape (m,)
        Score of each outcome, -inf for a refusal. Ties are allowed.
    rounds : Rounds
        Law of the number of rounds.

    Returns
    -------
    ndarray, shape (m,)
        What is missing to 1 is the probability of no round at all (only where K = 0 can happen).
    """
    p = as_finite_array("law", law, ndim=1)
    ranks = np.array(scores, dtype=np.float64)
    if ranks.shape != p.shape or np.isnan(ranks).any():
        raise ValueError(f"scores must be numbers, one an outcome: shape {ranks.shape} against {p.shape}")
    if (p < 0).any() or not math.isclose(float(p.sum()), 1.0, abs_tol=1e-9):
        raise ValueError(f"law must be nonnegative and sum to 1, got the sum {p.sum()!r}")
    _, level = np.unique(ranks, return_inverse=True)
    mass = np.bincount(level, weights=p)
    below = np.concatenate([[0.0], np.cumsum(mass)]).clip(0.0, 1.0)
    if isinstance(rounds, GeometricRounds) and rounds.cutoff is None:
        # (f(b) - f(a)) / (b - a) in closed form keeps the digits of small probabilities.
        halting = rounds.tau + (1 - rounds.tau) * np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
        weight = rounds.tau / (halting[1:] * halting[:-1])
    else:
        gained = np.diff(rounds.generating(below))
        weight = np.divide(gained, mass, out=np.zeros_like(mass), where=mass > 0)
    return np.asarray(p * weight[level])


def check_tau(tau: object) -> float:
    """Return tau as a float in (0, 1]."""
    chance = check_real("tau", tau)
    if not 0 < chance <= 1:
        raise ValueError(f"tau must lie in (0, 1], got {chance!r}")
    return chance


def check_unit(name: str, value: object) -> float:
    """Return ``value`` as a float in [0, 1]."""
    number = check_real(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {number!r}")
    return number
